# SPDX-License-Identifier: Apache-2.0
# The parts of the client that stand alone: regions, caches, keys, the operator's side.
foreach(name IN ITEMS region loc_cache reads)
	kvp_test(unit.client.${name}
		SOURCES ${CMAKE_CURRENT_LIST_DIR}/client_parts/${name}_test.c
		LINKS kvp_client
		LABELS unit)
endforeach()

kvp_test(unit.client.keys
	SOURCES ${CMAKE_CURRENT_LIST_DIR}/client_parts/keys_test.c
	LINKS kvp_client PkgConfig::jansson
	LABELS unit)
target_compile_definitions(test_unit_client_keys PRIVATE
	KVP_GOLDEN_DIR="${CMAKE_CURRENT_LIST_DIR}/../golden")

kvp_test(unit.client.admin
	SOURCES ${CMAKE_CURRENT_LIST_DIR}/client_parts/admin_test.c
	LINKS kvp_client
	LABELS unit)

kvp_script_test(golden COMMAND ${CMAKE_CURRENT_LIST_DIR}/../golden/make.py --check LABELS unit)
kvp_script_test(unit.client.ctl LABELS unit
	COMMAND ${CMAKE_CURRENT_LIST_DIR}/client_parts/ctl_test.py $<TARGET_FILE:kvpoolctl>)
