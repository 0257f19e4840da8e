# SPDX-License-Identifier: Apache-2.0
foreach(name IN ITEMS slab index evict_lru lease namespaces recover store store_random tier)
	kvp_test(unit.store.${name} SOURCES ${CMAKE_CURRENT_LIST_DIR}/store/${name}_test.c
		LINKS kvp_store LABELS unit TIMEOUT 120)
endforeach()
# It counts allocations.
target_link_options(test_unit_store_store_random PRIVATE
	-Wl,--wrap=malloc -Wl,--wrap=calloc -Wl,--wrap=realloc)
