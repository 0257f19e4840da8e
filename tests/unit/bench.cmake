# SPDX-License-Identifier: Apache-2.0
foreach(name IN ITEMS fill hist trace)
	kvp_test(unit.bench.${name} SOURCES ${CMAKE_CURRENT_LIST_DIR}/bench/${name}_test.c
		LINKS kvp_bench LABELS unit)
endforeach()
target_compile_definitions(test_unit_bench_trace PRIVATE KVP_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
foreach(name IN ITEMS args loop page)
	kvp_test(unit.bench.perf_${name} LABELS unit LINKS kvp_bench kvpool m
		SOURCES ${CMAKE_CURRENT_LIST_DIR}/bench/perf_${name}_test.c)
endforeach()
kvp_script_test(unit.bench.perf LABELS unit TIMEOUT 180
	COMMAND ${CMAKE_CURRENT_LIST_DIR}/bench/perf_test.py $<TARGET_FILE:kvpool-perf>)
