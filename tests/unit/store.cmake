# SPDX-License-Identifier: Apache-2.0
foreach(name IN ITEMS slab index evict_lru lease namespaces recover store store_random tier)
	kvp_test(unit.store.${name} SOURCES ${CMAKE_CURRENT_LIST_DIR}/store/${name}_test.c
		LINKS kvp_store LABELS unit TIMEOUT 120)
endforeach()
# They count allocations.
set(KVP_ALLOC_COUNT_OPTIONS -Wl,--wrap=malloc -Wl,--wrap=calloc -Wl,--wrap=realloc)
set(KVP_ALLOC_COUNT_SOURCE ${CMAKE_CURRENT_LIST_DIR}/store/alloc_count.c)
target_sources(test_unit_store_store_random PRIVATE ${KVP_ALLOC_COUNT_SOURCE})
target_link_options(test_unit_store_store_random PRIVATE ${KVP_ALLOC_COUNT_OPTIONS})
