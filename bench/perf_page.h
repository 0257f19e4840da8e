/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_page.h - the raw server's control page: memory that its client reads and writes from afar,
 * so that a raw test needs nothing but a transport. The client writes a request, then its number;
 * the server acts, writes the reply, then the same number. The server never calls the client.
 *
 * The ticket is what the client needs to begin: transport, address, token, and the page's
 * descriptors, as one line of text. It is as good as a password: who has it can use the server.
 */
#ifndef KVP_BENCH_PERF_PAGE_H
#define KVP_BENCH_PERF_PAGE_H

#include "transport/xport.h"

#include <stdint.h>

#define KVP_PERF_PAGE_VERSION 1u
#define KVP_PERF_PAGE_LEN     4096u
#define KVP_PERF_REQUEST_LEN  64u
#define KVP_PERF_REPLY_LEN    768u
#define KVP_PERF_TICKET_LEN   1024u /* with its NUL */

/* Places in the page. */
enum {
	KVP_PERF_AT_REQUEST = 0,
	KVP_PERF_AT_ASKED = 1024, /* u64 number of the request; u64 life sign of the client */
	KVP_PERF_AT_REPLY = 2048,
	KVP_PERF_AT_ANSWERED = 3072, /* u64 number of the reply */
};

enum kvp_perf_request_op {
	KVP_PERF_REQ_OPEN = 1,  /* access, qps, len: memory, and a transport for it */
	KVP_PERF_REQ_FILL = 2,  /* size, blocks: what reads shall find */
	KVP_PERF_REQ_CHECK = 3, /* size, blocks: what writes should have left */
	KVP_PERF_REQ_STAT = 4,  /* nothing but the CPU time */
	KVP_PERF_REQ_BYE = 5,   /* no reply */
};

struct kvp_perf_request {
	uint32_t version;
	uint32_t op;
	uint32_t access; /* KVP_MR_REMOTE_READ or _WRITE */
	uint32_t qps;
	uint64_t len;
	uint64_t size;
	uint32_t blocks;
};

struct kvp_perf_reply {
	int32_t status;
	char refused[32]; /* the option that cannot be complied with, empty: none */
	char why[128];
	uint64_t wrong_bytes;
	uint64_t cpu_ns;             /* of the server so far */
	char addr[KVP_ADDR_LEN_MAX]; /* open: of the data */
	uint8_t token[KVP_TOKEN_LEN];
	struct kvp_rdesc rdesc;
};

void kvp_perf_request_write(const struct kvp_perf_request *request, uint8_t *buf);
int kvp_perf_request_read(const uint8_t *buf, struct kvp_perf_request *ret_request);
void kvp_perf_reply_write(const struct kvp_perf_reply *reply, uint8_t *buf);
int kvp_perf_reply_read(const uint8_t *buf, struct kvp_perf_reply *ret_reply);

struct kvp_perf_ticket {
	char transport[KVP_NAME_LEN_MAX];
	char addr[KVP_ADDR_LEN_MAX];
	uint8_t token[KVP_TOKEN_LEN];
	struct kvp_rdesc read_desc;
	struct kvp_rdesc write_desc;
};

void kvp_perf_ticket_format(const struct kvp_perf_ticket *ticket, char buf[KVP_PERF_TICKET_LEN]);
/* -EINVAL; -KVP_E_VERSION when it is another version's. */
int kvp_perf_ticket_parse(const char *text, struct kvp_perf_ticket *ret_ticket);
/* text: a ticket, a file with one, or "-" for stdin. Other lines before it are passed over. */
int kvp_perf_ticket_load(const char *text, struct kvp_perf_ticket *ret_ticket);

#endif /* KVP_BENCH_PERF_PAGE_H */
