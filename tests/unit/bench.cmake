# SPDX-License-Identifier: Apache-2.0
foreach(name IN ITEMS fill hist trace)
	kvp_test(unit.bench.${name} SOURCES ${CMAKE_CURRENT_LIST_DIR}/bench/${name}_test.c
		LINKS kvp_bench LABELS unit)
endforeach()
target_compile_definitions(test_unit_bench_trace PRIVATE KVP_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
