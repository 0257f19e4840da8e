# SPDX-License-Identifier: Apache-2.0
foreach(name IN ITEMS addr err log mem mem_arena mem_limit metrics opt opt_print os)
	kvp_test(unit.hal.${name} SOURCES ${CMAKE_CURRENT_LIST_DIR}/hal/${name}_test.c LINKS kvp_hal
		LABELS unit)
endforeach()
kvp_script_test(unit.tidy COMMAND ${CMAKE_CURRENT_LIST_DIR}/tidy_test.py LABELS unit)

