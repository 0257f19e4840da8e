# SPDX-License-Identifier: Apache-2.0
target_sources(kvp_xport PRIVATE ${CMAKE_CURRENT_LIST_DIR}/fault.c)
