# SPDX-License-Identifier: Apache-2.0
# What users of the installed library rely on: symbols, headers, pkg-config.
foreach(check IN ITEMS symbols headers structs install)
	kvp_script_test(abi.${check} LABELS abi TIMEOUT 120
		COMMAND ${CMAKE_CURRENT_LIST_DIR}/abi.py ${check} --source ${PROJECT_SOURCE_DIR}
			--build ${PROJECT_BINARY_DIR} --library $<TARGET_FILE:kvpool>
			--cc ${CMAKE_C_COMPILER} --cmake ${CMAKE_COMMAND})
endforeach()
kvp_script_test(abi.config LABELS abi
	COMMAND ${CMAKE_CURRENT_LIST_DIR}/../gen_config.py
		${CMAKE_RUNTIME_OUTPUT_DIRECTORY} --check)
