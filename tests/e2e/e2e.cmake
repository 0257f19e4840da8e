# SPDX-License-Identifier: Apache-2.0
# Real daemons, as users run them. Scripts in Python over the built binaries.
add_executable(test_blocks ${CMAKE_CURRENT_LIST_DIR}/blocks.c)
set_target_properties(test_blocks PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
target_link_libraries(test_blocks PRIVATE kvp_flags kvp_bench kvpool)

foreach(name IN ITEMS badinput hosts perf readme replay restart ssd)
	kvp_script_test(e2e.${name} SERIAL LABELS e2e TIMEOUT 180
		COMMAND ${CMAKE_COMMAND} -E env
			KVP_TEST_BIN=${PROJECT_BINARY_DIR}/bin
			KVP_TEST_BLOCKS=${PROJECT_BINARY_DIR}/tests/test_blocks
			PYTHONDONTWRITEBYTECODE=1
			${CMAKE_CURRENT_LIST_DIR}/${name}_test.py)
endforeach()
kvp_script_test(e2e.quickstart SERIAL LABELS e2e TIMEOUT 120
	COMMAND ${CMAKE_CURRENT_LIST_DIR}/quickstart_test.sh)
