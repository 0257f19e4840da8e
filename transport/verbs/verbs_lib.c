/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs_lib.c - loading libibverbs and librdmacm: once a process, never unloaded, because their
 * device drivers keep state.
 */
#include "transport/verbs/verbs.h"

#include "hal/base/err.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

struct lib_state {
	pthread_once_t once;
	struct verbs_lib lib;
	const char *error; /* NULL: loaded */
	char error_text[256];
};

/* A process's and not an xport's, as the libraries are. Written under once, only read after. */
static struct lib_state lib_state = {.once = PTHREAD_ONCE_INIT};

const struct verbs_lib *
verbs_lib(void)
{
	return &lib_state.lib;
}

struct lib_symbol {
	const char *name;
	size_t off;
	bool is_optional;
};

#define SYMBOL(symbol, member)                                                                     \
	{                                                                                          \
		.name = symbol, .off = offsetof(struct verbs_lib, member)                          \
	}

static const struct lib_symbol symbols_verbs[] = {
	SYMBOL("ibv_get_device_list", get_device_list),
	SYMBOL("ibv_free_device_list", free_device_list),
	SYMBOL("ibv_get_device_name", get_device_name),
	SYMBOL("ibv_query_device", query_device),
	SYMBOL("ibv_query_port", query_port),
	SYMBOL("ibv_query_gid", query_gid),
	SYMBOL("ibv_alloc_pd", alloc_pd),
	SYMBOL("ibv_dealloc_pd", dealloc_pd),
	SYMBOL("ibv_reg_mr", reg_mr),
	{"ibv_reg_mr_iova2", offsetof(struct verbs_lib, reg_mr_iova2), true},
	SYMBOL("ibv_dereg_mr", dereg_mr),
	SYMBOL("ibv_create_comp_channel", create_comp_channel),
	SYMBOL("ibv_destroy_comp_channel", destroy_comp_channel),
	SYMBOL("ibv_create_cq", create_cq),
	SYMBOL("ibv_destroy_cq", destroy_cq),
	SYMBOL("ibv_get_cq_event", get_cq_event),
	SYMBOL("ibv_ack_cq_events", ack_cq_events),
	SYMBOL("ibv_create_qp", create_qp),
	SYMBOL("ibv_modify_qp", modify_qp),
	SYMBOL("ibv_destroy_qp", destroy_qp),
	SYMBOL("ibv_wc_status_str", wc_status_str),
};

static const struct lib_symbol symbols_cm[] = {
	SYMBOL("rdma_get_devices", get_devices),
	SYMBOL("rdma_free_devices", free_devices),
	SYMBOL("rdma_create_event_channel", create_event_channel),
	SYMBOL("rdma_destroy_event_channel", destroy_event_channel),
	SYMBOL("rdma_create_id", create_id),
	SYMBOL("rdma_destroy_id", destroy_id),
	SYMBOL("rdma_bind_addr", bind_addr),
	SYMBOL("rdma_resolve_addr", resolve_addr),
	SYMBOL("rdma_resolve_route", resolve_route),
	SYMBOL("rdma_create_qp", cm_create_qp),
	SYMBOL("rdma_init_qp_attr", init_qp_attr),
	SYMBOL("rdma_connect", connect),
	SYMBOL("rdma_listen", listen),
	SYMBOL("rdma_accept", accept),
	SYMBOL("rdma_reject", reject),
	SYMBOL("rdma_disconnect", disconnect),
	SYMBOL("rdma_get_cm_event", get_cm_event),
	SYMBOL("rdma_ack_cm_event", ack_cm_event),
	SYMBOL("rdma_event_str", event_str),
	SYMBOL("rdma_set_option", set_option),
};

static bool
lib_load_one(
	struct lib_state *state, const char *path, const struct lib_symbol *symbols, size_t count)
{
	void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);

	if (handle == NULL) {
		(void)snprintf(state->error_text, sizeof(state->error_text), "%s", dlerror());
		state->error = state->error_text;
		return false;
	}
	for (size_t i = 0; i < count; i++) {
		void *addr = dlsym(handle, symbols[i].name);

		if (addr == NULL && !symbols[i].is_optional) {
			(void)snprintf(state->error_text, sizeof(state->error_text), "%s lacks %s",
				path, symbols[i].name);
			state->error = state->error_text;
			return false;
		}
		memcpy((char *)&state->lib + symbols[i].off, &addr, sizeof(addr));
	}
	return true;
}

static void
lib_load(void)
{
	struct lib_state *state = &lib_state;

	if (lib_load_one(state, "libibverbs.so.1", symbols_verbs,
		    sizeof(symbols_verbs) / sizeof(symbols_verbs[0]))) {
		(void)lib_load_one(state, "librdmacm.so.1", symbols_cm,
			sizeof(symbols_cm) / sizeof(symbols_cm[0]));
	}
}

int
verbs_lib_load(const struct kvp_log *log)
{
	(void)pthread_once(&lib_state.once, lib_load); /* fails for bad arguments only */
	if (lib_state.error != NULL) {
		kvp_info(log, "verbs is not usable: %s", lib_state.error);
		return -KVP_E_NO_PROVIDER;
	}
	return 0;
}
