/* SPDX-License-Identifier: Apache-2.0 */
/* perf_page.c - requests and replies as bytes. What comes from the other side is checked. */
#include "bench/perf_page.h"

#include "hal/base/assert.h"
#include "hal/base/bytes.h"
#include "hal/base/err.h"

#include <errno.h>
#include <string.h>

_Static_assert(KVP_PERF_AT_REQUEST + KVP_PERF_REQUEST_LEN <= KVP_PERF_AT_ASKED, "no overlap");
_Static_assert(KVP_PERF_AT_ASKED + 16 <= KVP_PERF_AT_REPLY, "no overlap");
_Static_assert(KVP_PERF_AT_REPLY + KVP_PERF_REPLY_LEN <= KVP_PERF_AT_ANSWERED, "no overlap");
_Static_assert(KVP_PERF_AT_ANSWERED + 8 <= KVP_PERF_PAGE_LEN, "all of it fits");

void
kvp_perf_request_write(const struct kvp_perf_request *request, uint8_t *buf)
{
	struct kvp_writer w = kvp_writer_over(buf, KVP_PERF_REQUEST_LEN);

	memset(buf, 0, KVP_PERF_REQUEST_LEN);
	kvp_write_u32(&w, request->version);
	kvp_write_u32(&w, request->op);
	kvp_write_u32(&w, request->access);
	kvp_write_u32(&w, request->qps);
	kvp_write_u64(&w, request->len);
	kvp_write_u64(&w, request->size);
	kvp_write_u32(&w, request->blocks);
	kvp_assert(!w.failed);
}

int
kvp_perf_request_read(const uint8_t *buf, struct kvp_perf_request *ret_request)
{
	struct kvp_reader r = kvp_reader_over(buf, KVP_PERF_REQUEST_LEN);

	ret_request->version = kvp_read_u32(&r);
	ret_request->op = kvp_read_u32(&r);
	ret_request->access = kvp_read_u32(&r);
	ret_request->qps = kvp_read_u32(&r);
	ret_request->len = kvp_read_u64(&r);
	ret_request->size = kvp_read_u64(&r);
	ret_request->blocks = kvp_read_u32(&r);
	return ret_request->version == KVP_PERF_PAGE_VERSION ? 0 : -KVP_E_VERSION;
}

void
kvp_perf_reply_write(const struct kvp_perf_reply *reply, uint8_t *buf)
{
	struct kvp_writer w = kvp_writer_over(buf, KVP_PERF_REPLY_LEN);

	memset(buf, 0, KVP_PERF_REPLY_LEN);
	kvp_write_u32(&w, KVP_PERF_PAGE_VERSION);
	kvp_write_i32(&w, reply->status);
	kvp_write_bytes(&w, reply->refused, sizeof(reply->refused));
	kvp_write_bytes(&w, reply->why, sizeof(reply->why));
	kvp_write_u64(&w, reply->wrong_bytes);
	kvp_write_u64(&w, reply->cpu_ns);
	kvp_write_bytes(&w, reply->addr, sizeof(reply->addr));
	kvp_write_bytes(&w, reply->token, sizeof(reply->token));
	kvp_write_u8(&w, reply->rdesc.len);
	kvp_write_bytes(&w, reply->rdesc.bytes, sizeof(reply->rdesc.bytes));
	kvp_assert(!w.failed);
}

int
kvp_perf_reply_read(const uint8_t *buf, struct kvp_perf_reply *ret_reply)
{
	struct kvp_reader r = kvp_reader_over(buf, KVP_PERF_REPLY_LEN);

	if (kvp_read_u32(&r) != KVP_PERF_PAGE_VERSION) {
		return -KVP_E_VERSION;
	}
	ret_reply->status = kvp_read_i32(&r);
	kvp_read_bytes(&r, ret_reply->refused, sizeof(ret_reply->refused));
	kvp_read_bytes(&r, ret_reply->why, sizeof(ret_reply->why));
	ret_reply->wrong_bytes = kvp_read_u64(&r);
	ret_reply->cpu_ns = kvp_read_u64(&r);
	kvp_read_bytes(&r, ret_reply->addr, sizeof(ret_reply->addr));
	kvp_read_bytes(&r, ret_reply->token, sizeof(ret_reply->token));
	ret_reply->rdesc.len = kvp_read_u8(&r);
	kvp_read_bytes(&r, ret_reply->rdesc.bytes, sizeof(ret_reply->rdesc.bytes));
	ret_reply->refused[sizeof(ret_reply->refused) - 1] = '\0';
	ret_reply->why[sizeof(ret_reply->why) - 1] = '\0';
	ret_reply->addr[sizeof(ret_reply->addr) - 1] = '\0';
	return ret_reply->rdesc.len <= KVP_RDESC_LEN_MAX ? 0 : -KVP_E_PROTO;
}
