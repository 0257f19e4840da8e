# SPDX-License-Identifier: Apache-2.0
kvp_test(conform.evict
	SOURCES ${CMAKE_CURRENT_LIST_DIR}/evict.c ${KVP_ALLOC_COUNT_SOURCE}
	LINKS kvp_store
	LABELS conform)
target_link_options(test_conform_evict PRIVATE ${KVP_ALLOC_COUNT_OPTIONS}) # of unit/store.cmake
