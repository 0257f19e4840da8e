# SPDX-License-Identifier: Apache-2.0
target_sources(kvp_xport PRIVATE
	${CMAKE_CURRENT_LIST_DIR}/shm_open.c
	${CMAKE_CURRENT_LIST_DIR}/shm_cm.c
	${CMAKE_CURRENT_LIST_DIR}/shm_target.c
	${CMAKE_CURRENT_LIST_DIR}/shm_lock.c
	${CMAKE_CURRENT_LIST_DIR}/shm_mr.c
	${CMAKE_CURRENT_LIST_DIR}/shm_io.c
	${CMAKE_CURRENT_LIST_DIR}/shm_poll.c
	${CMAKE_CURRENT_LIST_DIR}/shm_view.c)
target_link_libraries(kvp_xport PUBLIC PkgConfig::libxxhash)
