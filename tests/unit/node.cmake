# SPDX-License-Identifier: Apache-2.0
# kvpoold's logic on virtual time, and the program itself.
foreach(name IN ITEMS announce lease offer restart session ssd)
	kvp_test(unit.node.${name}
		SOURCES
			${CMAKE_CURRENT_LIST_DIR}/node/${name}_test.c
			${CMAKE_CURRENT_LIST_DIR}/node/fake.c
		LINKS kvp_node
		LABELS unit)
endforeach()
foreach(name IN ITEMS head identity quotas)
	kvp_test(unit.node.${name}
		SOURCES ${CMAKE_CURRENT_LIST_DIR}/node/${name}_test.c
		LINKS kvp_node
		LABELS unit)
endforeach()
kvp_test(unit.node.kvpoold
	SOURCES ${CMAKE_CURRENT_LIST_DIR}/node/kvpoold_test.c
	LINKS kvp_hal
	LABELS unit)
target_compile_definitions(test_unit_node_kvpoold PRIVATE KVPOOLD="$<TARGET_FILE:kvpoold>")
add_dependencies(test_unit_node_kvpoold kvpoold)
