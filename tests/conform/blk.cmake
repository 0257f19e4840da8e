# SPDX-License-Identifier: Apache-2.0
# One suite, run against every block engine. A new engine is a line here.
function(kvp_blk_test name engine)
	kvp_test(${name} TIMEOUT 240 LABELS conform LINKS kvp_blk
		SOURCES
			${CMAKE_CURRENT_FUNCTION_LIST_DIR}/blk_main.c
			${CMAKE_CURRENT_FUNCTION_LIST_DIR}/blk_data.c
			${CMAKE_CURRENT_FUNCTION_LIST_DIR}/blk_flow.c
			${CMAKE_CURRENT_FUNCTION_LIST_DIR}/blk_fail.c
			${CMAKE_CURRENT_FUNCTION_LIST_DIR}/blk_power.c
			${CMAKE_CURRENT_FUNCTION_LIST_DIR}/blk_open.c)
	string(REPLACE "." "_" target "test_${name}")
	target_compile_definitions(${target} PRIVATE BLK_NAME="${engine}" ${ARGN})
endfunction()

kvp_blk_test(conform.blk.uring uring)
kvp_blk_test(conform.blk.threads threads)
kvp_blk_test(conform.blk.fault threads BLK_FAULT)
