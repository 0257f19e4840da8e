# SPDX-License-Identifier: Apache-2.0
# One suite, run against every transport. A new transport is a line here.
function(kvp_xport_test name provider)
	kvp_test(${name} TIMEOUT 240 LABELS conform LINKS kvp_xport
		SOURCES
			${CMAKE_CURRENT_FUNCTION_LIST_DIR}/xport_main.c
			${CMAKE_CURRENT_FUNCTION_LIST_DIR}/xport_util.c
			${CMAKE_CURRENT_FUNCTION_LIST_DIR}/xport_child.c
			${CMAKE_CURRENT_FUNCTION_LIST_DIR}/xport_data.c
			${CMAKE_CURRENT_FUNCTION_LIST_DIR}/xport_cm.c
			${CMAKE_CURRENT_FUNCTION_LIST_DIR}/xport_fence.c)
	string(REPLACE "." "_" target "test_${name}")
	target_compile_definitions(${target} PRIVATE XPORT_NAME="${provider}" ${ARGN})
endfunction()

kvp_xport_test(conform.xport.shm shm)
kvp_xport_test(conform.xport.ofi ofi)
kvp_xport_test(conform.xport.verbs verbs)
kvp_xport_test(conform.xport.fault.ofi ofi XPORT_FAULT)
