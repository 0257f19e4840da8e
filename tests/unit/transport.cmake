# SPDX-License-Identifier: Apache-2.0
foreach(name IN ITEMS slot sum wire)
	kvp_test(unit.transport.${name} SOURCES ${CMAKE_CURRENT_LIST_DIR}/transport/${name}_test.c
		LINKS kvp_proto LABELS unit)
endforeach()
kvp_test(unit.transport.hello SOURCES ${CMAKE_CURRENT_LIST_DIR}/transport/hello_test.c LINKS kvp_rpc
	LABELS unit)
foreach(name IN ITEMS call link hostile loop)
	kvp_test(unit.transport.rpc_${name}
		SOURCES
			${CMAKE_CURRENT_LIST_DIR}/transport/rpc_${name}_test.c
			${CMAKE_CURRENT_LIST_DIR}/transport/rpc_peer.c
		LINKS kvp_rpc LABELS unit)
endforeach()
kvp_test(unit.transport.http SOURCES ${CMAKE_CURRENT_LIST_DIR}/transport/http_test.c LINKS kvp_http
	LABELS unit)
