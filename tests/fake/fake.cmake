# SPDX-License-Identifier: Apache-2.0
# The fake RDMA libraries under the names of the real ones, and the verbs provider over them.
set(fake_dir ${PROJECT_BINARY_DIR}/tests/fake)
add_library(fake_rdma SHARED ${CMAKE_CURRENT_LIST_DIR}/ibverbs.c ${CMAKE_CURRENT_LIST_DIR}/rdmacm.c)
target_link_libraries(fake_rdma PRIVATE kvp_flags)
target_include_directories(fake_rdma SYSTEM PRIVATE
	${libibverbs_INCLUDE_DIRS} ${librdmacm_INCLUDE_DIRS})
set_target_properties(fake_rdma PROPERTIES OUTPUT_NAME ibverbs SOVERSION 1
	C_VISIBILITY_PRESET default LIBRARY_OUTPUT_DIRECTORY ${fake_dir})
add_custom_command(TARGET fake_rdma POST_BUILD
	COMMAND ${CMAKE_COMMAND} -E create_symlink libibverbs.so.1 ${fake_dir}/librdmacm.so.1)

kvp_test(conform.xport.verbs_fake TIMEOUT 120 LABELS conform LINKS kvp_xport
	SOURCES ${CMAKE_CURRENT_LIST_DIR}/verbs_test.c)
add_dependencies(test_conform_xport_verbs_fake fake_rdma)
set_property(TEST ${KVP_TEST_PREFIX}conform.xport.verbs_fake APPEND PROPERTY
	ENVIRONMENT "LD_LIBRARY_PATH=${fake_dir}")

# Those tests of the suite that need one process only; small limits of the device split everything.
foreach(name IN ITEMS data_round_trip_here data_large cm_token cm_many fence_simple fault_walk)
	set(test ${KVP_TEST_PREFIX}conform.xport.verbs_fake.${name})
	add_test(NAME ${test} COMMAND test_conform_xport_verbs ${name})
	set_tests_properties(${test} PROPERTIES TIMEOUT 120 LABELS conform
		ENVIRONMENT "LD_LIBRARY_PATH=${fake_dir}")
endforeach()
