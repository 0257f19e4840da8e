# SPDX-License-Identifier: Apache-2.0
# Real daemons, as users run them. Scripts in Python over the built binaries.
add_executable(test_blocks ${CMAKE_CURRENT_LIST_DIR}/blocks.c)
set_target_properties(test_blocks PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
target_link_libraries(test_blocks PRIVATE kvp_flags kvp_bench kvpool)

add_executable(test_survivor ${CMAKE_CURRENT_LIST_DIR}/survivor.c)
set_target_properties(test_survivor PROPERTIES
	RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
target_link_libraries(test_survivor PRIVATE kvp_flags kvp_bench kvpool kvp_hal)

foreach(name IN ITEMS badinput hosts kill perf readme replay restart ssd)
	kvp_script_test(e2e.${name} SERIAL LABELS e2e TIMEOUT 180
		COMMAND ${CMAKE_COMMAND} -E env
			KVP_TEST_BIN=${PROJECT_BINARY_DIR}/bin
			KVP_TEST_BLOCKS=${PROJECT_BINARY_DIR}/tests/test_blocks
			KVP_TEST_SURVIVOR=${PROJECT_BINARY_DIR}/tests/test_survivor
			PYTHONDONTWRITEBYTECODE=1
			${CMAKE_CURRENT_LIST_DIR}/${name}_test.py)
endforeach()
if(TEST e2e.kill) # nightly it is longer
	set_tests_properties(e2e.kill PROPERTIES TIMEOUT 1800)
endif()
kvp_script_test(e2e.quickstart SERIAL LABELS e2e TIMEOUT 120
	COMMAND ${CMAKE_CURRENT_LIST_DIR}/quickstart_test.sh)
