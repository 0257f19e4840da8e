# SPDX-License-Identifier: Apache-2.0
foreach(name IN ITEMS directory membership handlers)
	kvp_test(unit.meta.${name} SOURCES ${CMAKE_CURRENT_LIST_DIR}/meta/${name}_test.c
		LINKS kvp_meta LABELS unit)
endforeach()

kvp_test(unit.daemon.meta SOURCES ${CMAKE_CURRENT_LIST_DIR}/meta/daemon_test.c LINKS kvp_hal
	LABELS unit)
target_compile_definitions(test_unit_daemon_meta PRIVATE
	TEST_META_BIN="$<TARGET_FILE:kvpool-meta>")
add_dependencies(test_unit_daemon_meta kvpool-meta)
