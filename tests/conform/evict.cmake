# SPDX-License-Identifier: Apache-2.0
kvp_test(conform.evict SOURCES ${CMAKE_CURRENT_LIST_DIR}/evict.c LINKS kvp_store LABELS conform)
# It counts allocations.
target_link_options(test_conform_evict PRIVATE
	-Wl,--wrap=malloc -Wl,--wrap=calloc -Wl,--wrap=realloc)
