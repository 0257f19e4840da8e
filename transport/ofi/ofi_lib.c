/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ofi_lib.c - loading libfabric.
 *
 * It is loaded once a process and never unloaded: its providers keep state. Some install handlers
 * of SIGINT, SIGTERM, SIGSEGV and others when they are loaded or first asked (seen with 1.17).
 * Those signals are the program's own: its handlers are put back.
 */
#include "transport/ofi/ofi.h"

#include "hal/base/err.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

struct lib_state {
	pthread_once_t once;
	struct ofi_lib lib;
	const char *error; /* NULL: loaded */
	char error_text[256];
};

/* The one thing here that is a process's and not an xport's, because libfabric itself is: loading
 * it twice at a time would restore each other's signals. Written under once, only read after. */
static struct lib_state lib_state = {.once = PTHREAD_ONCE_INIT};

const struct ofi_lib *
ofi_lib(void)
{
	return &lib_state.lib;
}

static void
lib_symbols(struct lib_state *state)
{
	static const struct {
		const char *name;
		size_t off;
	} symbols[] = {
		{"fi_getinfo", offsetof(struct ofi_lib, getinfo)},
		{"fi_freeinfo", offsetof(struct ofi_lib, freeinfo)},
		{"fi_dupinfo", offsetof(struct ofi_lib, dupinfo)},
		{"fi_fabric", offsetof(struct ofi_lib, fabric)},
		{"fi_strerror", offsetof(struct ofi_lib, strerror)},
		{"fi_version", offsetof(struct ofi_lib, version)},
	};
	void *handle = dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL);

	if (handle == NULL) {
		(void)snprintf(state->error_text, sizeof(state->error_text), "%s", dlerror());
		state->error = state->error_text;
		return;
	}
	for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		void *addr = dlsym(handle, symbols[i].name);

		if (addr == NULL) {
			state->error = "libfabric.so.1 lacks a function";
			return;
		}
		memcpy((char *)&state->lib + symbols[i].off, &addr, sizeof(addr));
	}
	if (FI_VERSION_LT(state->lib.version(), OFI_API_VERSION)) {
		state->error = "libfabric is older than 1.17";
	}
}

/* NULL: out of memory. */
struct fi_info *
ofi_hints(const char *provider, const char *device)
{
	struct fi_info *hints = ofi_lib()->dupinfo(NULL);

	if (hints == NULL) {
		return NULL;
	}
	hints->caps = FI_MSG | FI_RMA;
	hints->ep_attr->type = FI_EP_MSG;
	hints->domain_attr->threading = FI_THREAD_SAFE;
	hints->domain_attr->mr_mode =
		FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	hints->tx_attr->op_flags = FI_COMPLETION | FI_DELIVERY_COMPLETE;
	hints->fabric_attr->prov_name = strdup(provider);
	if (hints->fabric_attr->prov_name == NULL) {
		ofi_lib()->freeinfo(hints);
		return NULL;
	}
	if (device != NULL) {
		hints->domain_attr->name = strdup(device);
		if (hints->domain_attr->name == NULL) {
			ofi_lib()->freeinfo(hints);
			return NULL;
		}
	}
	return hints;
}

/* All providers initialise at the first question, whatever it is. */
static void
lib_init(void)
{
	struct fi_info *hints = ofi_hints("tcp", NULL);
	struct fi_info *list = NULL;

	if (hints != NULL) {
		if (ofi_lib()->getinfo(OFI_API_VERSION, NULL, NULL, 0, hints, &list) == 0) {
			ofi_lib()->freeinfo(list);
		}
		ofi_lib()->freeinfo(hints);
	}
}

static void
lib_load(void)
{
	struct lib_state *state = &lib_state;
	struct sigaction actions[NSIG];
	bool known[NSIG] = {false};

	for (int i = 1; i < NSIG; i++) {
		known[i] = sigaction(i, NULL, &actions[i]) == 0;
	}
	lib_symbols(state);
	if (state->error == NULL) {
		lib_init();
	}
	for (int i = 1; i < NSIG; i++) {
		if (known[i] && i != SIGKILL && i != SIGSTOP) {
			(void)sigaction(i, &actions[i], NULL); /* it was valid before */
		}
	}
}

int
ofi_lib_load(const char **ret_error)
{
	struct lib_state *state = &lib_state;

	(void)pthread_once(&state->once, lib_load); /* fails for bad arguments only */
	*ret_error = state->error;
	return state->error != NULL ? -KVP_E_NO_PROVIDER : 0;
}
