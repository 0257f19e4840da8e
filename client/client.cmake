# SPDX-License-Identifier: Apache-2.0
# The client's sources once, as objects, in two forms: kvp_client, a static library with everything
# visible for tests and tools of this tree, and libkvpool.so, which exports the public names only.
add_library(kvp_client_objects OBJECT
	${CMAKE_CURRENT_LIST_DIR}/admin.c
	${CMAKE_CURRENT_LIST_DIR}/blocking.c
	${CMAKE_CURRENT_LIST_DIR}/cancel.c
	${CMAKE_CURRENT_LIST_DIR}/chain.c
	${CMAKE_CURRENT_LIST_DIR}/chan.c
	${CMAKE_CURRENT_LIST_DIR}/client.c
	${CMAKE_CURRENT_LIST_DIR}/control.c
	${CMAKE_CURRENT_LIST_DIR}/cq.c
	${CMAKE_CURRENT_LIST_DIR}/error.c
	${CMAKE_CURRENT_LIST_DIR}/leases.c
	${CMAKE_CURRENT_LIST_DIR}/loc_cache.c
	${CMAKE_CURRENT_LIST_DIR}/lookup.c
	${CMAKE_CURRENT_LIST_DIR}/metas.c
	${CMAKE_CURRENT_LIST_DIR}/namespace.c
	${CMAKE_CURRENT_LIST_DIR}/nodes.c
	${CMAKE_CURRENT_LIST_DIR}/op.c
	${CMAKE_CURRENT_LIST_DIR}/op_clear.c
	${CMAKE_CURRENT_LIST_DIR}/op_delete.c
	${CMAKE_CURRENT_LIST_DIR}/op_get.c
	${CMAKE_CURRENT_LIST_DIR}/op_lease.c
	${CMAKE_CURRENT_LIST_DIR}/op_match.c
	${CMAKE_CURRENT_LIST_DIR}/op_put.c
	${CMAKE_CURRENT_LIST_DIR}/op_touch.c
	${CMAKE_CURRENT_LIST_DIR}/open.c
	${CMAKE_CURRENT_LIST_DIR}/options.c
	${CMAKE_CURRENT_LIST_DIR}/peers.c
	${CMAKE_CURRENT_LIST_DIR}/port.c
	${CMAKE_CURRENT_LIST_DIR}/put_wire.c
	${CMAKE_CURRENT_LIST_DIR}/reads.c
	${CMAKE_CURRENT_LIST_DIR}/region.c
	${CMAKE_CURRENT_LIST_DIR}/spread.c
	${CMAKE_CURRENT_LIST_DIR}/submit.c
	${CMAKE_CURRENT_LIST_DIR}/tie.c
	${CMAKE_CURRENT_LIST_DIR}/unit.c
	${CMAKE_CURRENT_LIST_DIR}/view.c)
target_link_libraries(kvp_client_objects PRIVATE kvp_flags kvp_xport kvp_rpc kvp_proto kvp_hal
	PkgConfig::libcrypto)

add_library(kvp_client STATIC $<TARGET_OBJECTS:kvp_client_objects>)
target_include_directories(kvp_client PUBLIC ${PROJECT_SOURCE_DIR}/client/include)
target_link_libraries(kvp_client PUBLIC kvp_xport kvp_rpc kvp_proto kvp_hal PkgConfig::libcrypto
	Threads::Threads)

# What static libraries bring along stays inside: the map exports the public names and nothing else.
add_library(kvpool SHARED $<TARGET_OBJECTS:kvp_client_objects>)
set_target_properties(kvpool PROPERTIES
	VERSION ${PROJECT_VERSION}
	SOVERSION 0
	LINK_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/libkvpool.map)
target_include_directories(kvpool PUBLIC
	$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/client/include>
	$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(kvpool PRIVATE kvp_xport kvp_rpc kvp_proto kvp_hal PkgConfig::libcrypto
	Threads::Threads)
target_link_options(kvpool PRIVATE -Wl,--exclude-libs,ALL -Wl,-z,defs
	-Wl,--version-script=${CMAKE_CURRENT_LIST_DIR}/libkvpool.map)
if(KVP_ASAN OR KVP_TSAN)
	# A sanitizer's runtime is the program's: its symbols are not defined here.
	target_link_options(kvpool PRIVATE -Wl,-z,undefs)
endif()

# Relative, so that an installation to another prefix, or moved later, still works.
file(RELATIVE_PATH KVP_PC_UP ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(${CMAKE_CURRENT_LIST_DIR}/kvpool.pc.in ${PROJECT_BINARY_DIR}/kvpool.pc @ONLY)
install(TARGETS kvpool
	LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${CMAKE_CURRENT_LIST_DIR}/include/kvpool
	DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
	FILES_MATCHING PATTERN "*.h")
install(FILES ${PROJECT_BINARY_DIR}/kvpool.pc
	DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
