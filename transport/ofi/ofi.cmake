# SPDX-License-Identifier: Apache-2.0
# Only libfabric's headers are used when building; libfabric.so.1 is loaded at run time.
target_sources(kvp_xport PRIVATE
	${CMAKE_CURRENT_LIST_DIR}/ofi_lib.c
	${CMAKE_CURRENT_LIST_DIR}/ofi_open.c
	${CMAKE_CURRENT_LIST_DIR}/ofi_cm.c
	${CMAKE_CURRENT_LIST_DIR}/ofi_target.c
	${CMAKE_CURRENT_LIST_DIR}/ofi_mr.c
	${CMAKE_CURRENT_LIST_DIR}/ofi_io.c
	${CMAKE_CURRENT_LIST_DIR}/ofi_poll.c)
get_target_property(ofi_include_dirs PkgConfig::libfabric INTERFACE_INCLUDE_DIRECTORIES)
if(ofi_include_dirs)
	target_include_directories(kvp_xport SYSTEM PRIVATE ${ofi_include_dirs})
endif()
target_link_libraries(kvp_xport PUBLIC ${CMAKE_DL_LIBS})
