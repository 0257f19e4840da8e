# SPDX-License-Identifier: Apache-2.0
# The verbs transport over a real RDMA stack, in a virtual machine. The kernel is kept in build/.
kvp_script_test(vm.verbs SERIAL LABELS vm TIMEOUT 240
	COMMAND ${CMAKE_COMMAND} -E env
		KVP_TEST_VM_DIR=${PROJECT_SOURCE_DIR}/build/rdma-vm
		KVP_TEST_BIN=${PROJECT_BINARY_DIR}/bin
		KVP_TEST_DIR=${PROJECT_BINARY_DIR}/tests
		KVP_TEST_BLOCKS=${PROJECT_BINARY_DIR}/tests/test_blocks
		${CMAKE_CURRENT_LIST_DIR}/verbs_test.sh)
