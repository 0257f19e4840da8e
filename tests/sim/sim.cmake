# SPDX-License-Identifier: Apache-2.0
kvp_library(kvp_sim
	SOURCES
		${CMAKE_CURRENT_LIST_DIR}/sim.c
		${CMAKE_CURRENT_LIST_DIR}/sim_rpc.c
		${CMAKE_CURRENT_LIST_DIR}/sim_xport.c
		${CMAKE_CURRENT_LIST_DIR}/sim_cluster.c
	LINKS kvp_bench kvp_client kvp_node kvp_meta kvp_store kvp_proto kvp_hal)
kvp_test(sim.cluster SOURCES ${CMAKE_CURRENT_LIST_DIR}/cluster_test.c LINKS kvp_sim LABELS sim
	TIMEOUT 120)
