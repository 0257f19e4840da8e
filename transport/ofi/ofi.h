/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ofi.h - what the files of the ofi provider share: libfabric's FI_EP_MSG endpoints with FI_RMA,
 * one endpoint a connection. Nobody outside this folder includes it.
 *
 * THREADS An ofi_xport belongs to its caller. An ofi_target's mutex guards its sessions and peers;
 * its progress thread reads the event queue under it and the completion queue outside it (the
 * domain is FI_THREAD_SAFE). An ofi_domain may be shared: it is reference counted.
 */
#ifndef KVP_TRANSPORT_OFI_H
#define KVP_TRANSPORT_OFI_H

#include "transport/xport.h"

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <stdatomic.h>
#include <stdbool.h>

#define OFI_API_VERSION       FI_VERSION(1, 17)
#define OFI_IOV_MAX           8     /* segments of one libfabric operation, at most */
#define OFI_CONNECT_MS_MAX    5000u /* until a connection is up */
#define OFI_SESSION_PEERS_MAX 64u   /* connections of one token */
#define OFI_EQ_EVENTS_MAX     64    /* handled in a row before data moves again */
#define OFI_RDESC_LEN         24

/* A connection event with the peer's parameter behind it. */
union ofi_event {
	struct fi_eq_cm_entry entry;
	uint8_t room[sizeof(struct fi_eq_cm_entry) + 256];
};

/* libfabric's few exported functions; the rest goes through its tables. */
struct ofi_lib {
	int (*getinfo)(uint32_t version, const char *node, const char *service, uint64_t flags,
		const struct fi_info *hints, struct fi_info **ret_info);
	void (*freeinfo)(struct fi_info *info);
	struct fi_info *(*dupinfo)(const struct fi_info *info);
	int (*fabric)(struct fi_fabric_attr *attr, struct fid_fabric **ret_fabric, void *context);
	const char *(*strerror)(int err);
	uint32_t (*version)(void);
};

/* An opened device: shared by an xport and those opened with cfg.share. */
struct ofi_domain {
	struct fi_info *info; /* what was chosen, without addresses */
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	_Atomic uint32_t refs;
	_Atomic uint32_t mr_count;
};

/* An event queue and a completion queue with descriptors to sleep on. */
struct ofi_queue {
	struct fid_eq *eq;
	struct fid_cq *cq;
	int eq_fd; /* owned by libfabric */
	int cq_fd; /* same */
};

/* The first bytes of a connection: parameter of fi_connect. Little-endian. */
struct ofi_hello {
	uint32_t magic;
	uint16_t version;
	uint16_t reserved;
	uint8_t token[KVP_TOKEN_LEN];
};
_Static_assert(sizeof(struct ofi_hello) == 24, "a hello is 24 bytes on the wire");
#define OFI_HELLO_MAGIC   0x78766b6fu /* "okvx" */
#define OFI_HELLO_VERSION 1

/* Why a connection was refused: parameter of fi_reject. */
struct ofi_refusal {
	uint32_t magic;
	int32_t err; /* KVP_E_*, negative */
};
_Static_assert(sizeof(struct ofi_refusal) == 8, "a refusal is 8 bytes on the wire");

struct ofi_target;

struct ofi_xport {
	struct kvp_xport base;
	const struct kvp_env *env;
	const struct kvp_log *log;
	struct ofi_domain *dom;
	char *provider; /* owned */
	char *device;   /* owned, NULL: any */
	uint32_t io_depth;
	uint32_t conns_max;
	uint32_t credits_max; /* libfabric operations in flight per connection */
	uint32_t iov_max;
	uint64_t msg_len_max;

	struct ofi_queue queue; /* of events only: each connection has a completion queue */
	int epoll_fd;           /* all queues and the timer */
	int timer_fd;           /* runs out with the oldest connection attempt */
	bool eq_check;          /* the event queue may hold something */
	uint32_t poll_count;
	struct ofi_conn **conns; /* conns_max slots */
	uint32_t conn_count;
	uint32_t conn_gen;          /* of the last connection made */
	struct kvp_list connecting; /* ofi_conn.link, oldest first */
	struct kvp_list open;       /* ofi_conn.open_link: those with an endpoint */
	struct kvp_list ready;      /* kvp_io.link: status is set, done() is due */
	struct ofi_target *target;  /* NULL until listen() */
};

enum ofi_conn_state { OFI_CONNECTING, OFI_UP, OFI_DEAD };

/* DEAD means that the endpoint is closed: nothing posted on it touches memory any more. */
struct ofi_conn {
	struct ofi_xport *x;
	struct fid_ep *ep; /* NULL when DEAD */
	/* Its own, gone with the endpoint: closing one in the middle of a read leaves libfabric
	 * 1.17's tcp provider with the same transfer twice in the free list of its queue (freed
	 * from the list of reads and as the one being received), so two later operations of any
	 * endpoint on that queue would share it. */
	struct fid_cq *cq; /* NULL when DEAD */
	int cq_fd;         /* owned by libfabric */
	enum ofi_conn_state state;
	bool gone; /* disconnect() was called; freed with the last io */
	uint32_t idx;
	uint32_t gen;
	uint32_t credits;
	uint32_t io_count;    /* posted or in xport.ready */
	uint32_t slot_count;  /* free ones */
	struct kvp_list link; /* in xport.connecting */
	struct kvp_list open_link;
	struct kvp_list posted; /* kvp_io.link */
	uint64_t deadline_ns;
	struct kvp_io *connect_io;
	struct kvp_io **slots; /* io_depth */
	uint16_t *slot_free;   /* stack of slot numbers */
};

/* Names of kvp_io.prov[] while an io is posted. */
enum { OFI_IO_CONN, OFI_IO_PENDING, OFI_IO_SLOT };

struct ofi_mr {
	struct ofi_domain *dom;
	struct fid_mr *mr; /* NULL: local and not needed */
	void *desc;
	uint64_t key;
	uint64_t base; /* address that peers add offsets to */
	uint64_t len;
};

static inline struct ofi_xport *
ofi_of(struct kvp_xport *xport)
{
	return kvp_container_of(xport, struct ofi_xport, base);
}

extern const struct kvp_xport_ops kvp_xport_ofi;

/* ofi_lib.c. -KVP_E_NO_PROVIDER: *ret_error says why. The first call takes a while. */
int ofi_lib_load(const char **ret_error);
const struct ofi_lib *ofi_lib(void); /* after a successful load */
/* What we ask of any provider. device may be NULL. NULL: out of memory. */
struct fi_info *ofi_hints(const char *provider, const char *device);

/* ofi_open.c */
int ofi_open(const struct kvp_xport_cfg *cfg, struct kvp_xport **ret_xport);
void ofi_close(struct kvp_xport *xport);
/* libfabric's positive or negative code as ours. */
int ofi_error(int fi_err);
/* cq_len 0: no completion queue. */
int ofi_queue_open(struct ofi_domain *dom, size_t cq_len, const struct kvp_log *log,
	struct ofi_queue *ret_queue);
int ofi_cq_open(struct ofi_domain *dom, size_t len, struct fid_cq **ret_cq, int *ret_fd);
void ofi_queue_close(struct ofi_queue *queue);

/* ofi_mr.c */
int ofi_mr_reg(struct kvp_xport *xport, const struct kvp_mem *mem, uint32_t access,
	struct kvp_mr **ret_mr);
void ofi_mr_dereg(struct kvp_mr *mr);
void ofi_mr_rdesc(const struct kvp_mr *mr, struct kvp_rdesc *ret_rdesc);

/* ofi_target.c */
int ofi_listen(struct kvp_xport *xport, const char *addr, char ret_addr[KVP_ADDR_LEN_MAX]);
int ofi_admit(struct kvp_xport *xport, const uint8_t token[KVP_TOKEN_LEN]);
int ofi_fence(struct kvp_xport *xport, const uint8_t token[KVP_TOKEN_LEN]);
void ofi_target_close(struct ofi_target *target);

/* ofi_cm.c */
/* Resolves "host:port" (may block on the resolver). flags: FI_SOURCE for an address of ours. */
int ofi_info_of(struct ofi_xport *x, const char *addr, uint64_t flags, struct fi_info **ret_info);
int ofi_connect(struct kvp_xport *xport, const char *addr, const uint8_t token[KVP_TOKEN_LEN],
	struct kvp_io *io, struct kvp_conn **ret_conn);
void ofi_disconnect(struct kvp_conn *conn);
/* Closes the endpoint and makes every posted io ready with this status. Dead already: nothing. */
void ofi_conn_fail(struct ofi_conn *conn, int status, int prov_err);
void ofi_conn_free(struct ofi_conn *conn);
/* Reads connection events; fails attempts that took too long. */
void ofi_cm_progress(struct ofi_xport *x);

/* ofi_io.c */
int ofi_read(struct kvp_conn *conn, const struct kvp_seg *dst, uint32_t count,
	const struct kvp_rdesc *src, uint64_t off, struct kvp_io *io);
int ofi_write(struct kvp_conn *conn, const struct kvp_seg *src, uint32_t count,
	const struct kvp_rdesc *dst, uint64_t off, struct kvp_io *io);
/* One libfabric operation of this context completed, or failed when err is not 0. */
void ofi_io_complete(struct ofi_xport *x, uint64_t context, int err, int prov_err);

/* ofi_poll.c */
int ofi_poll(struct kvp_xport *xport, uint32_t max);
int ofi_wait_fd(struct kvp_xport *xport);

#endif /* KVP_TRANSPORT_OFI_H */
