# SPDX-License-Identifier: Apache-2.0
# Only headers are used when building; libibverbs.so.1 and librdmacm.so.1 are loaded at run time.
target_sources(kvp_xport PRIVATE
	${CMAKE_CURRENT_LIST_DIR}/verbs_lib.c
	${CMAKE_CURRENT_LIST_DIR}/verbs_open.c
	${CMAKE_CURRENT_LIST_DIR}/verbs_cm.c
	${CMAKE_CURRENT_LIST_DIR}/verbs_target.c
	${CMAKE_CURRENT_LIST_DIR}/verbs_mr.c
	${CMAKE_CURRENT_LIST_DIR}/verbs_io.c
	${CMAKE_CURRENT_LIST_DIR}/verbs_poll.c)
foreach(pkg IN ITEMS libibverbs librdmacm)
	get_target_property(verbs_include_dirs PkgConfig::${pkg} INTERFACE_INCLUDE_DIRECTORIES)
	if(verbs_include_dirs)
		target_include_directories(kvp_xport SYSTEM PRIVATE ${verbs_include_dirs})
	endif()
endforeach()
target_link_libraries(kvp_xport PUBLIC ${CMAKE_DL_LIBS})
