/* SPDX-License-Identifier: Apache-2.0 */
/*
 * error.c - the library's version and the text of its statuses. Constants, any thread.
 */
#include "client/include/kvpool/kvpool.h"
#include "hal/base/err.h"

const char *
kvp_version(void)
{
	return KVP_VERSION;
}

const char *
kvp_strerror(int status)
{
	return kvp_err_str(status);
}

const char *
kvp_strerrorname(int status)
{
	return kvp_err_name(status);
}
