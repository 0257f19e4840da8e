# SPDX-License-Identifier: Apache-2.0

# A whole pool in one process.
kvp_test(unit.client.cluster
	SOURCES
		unit/client/cluster.c
		unit/client/cluster_test.c
	LINKS kvp_client kvp_node kvp_meta kvp_store
	TIMEOUT 120)

# Nobody at the other end.
kvp_test(unit.client.alone
	SOURCES unit/client/client_test.c
	LINKS kvp_client)

kvp_test(unit.client.lease
	SOURCES
		unit/client/cluster.c
		unit/client/lease_test.c
	LINKS kvp_client kvp_node kvp_meta kvp_store
	TIMEOUT 120)
