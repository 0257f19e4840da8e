/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs.h - what the files of the verbs provider share: reliable queue pairs made through the RDMA
 * connection manager, one a connection. Nobody outside this folder includes it.
 *
 * THREADS A verbs_xport belongs to its caller. A verbs_target's mutex guards its sessions and
 * peers. A verbs_domain may be shared: it is reference counted, its mutex guards regions and
 * windows. Order: the target's mutex first.
 */
#ifndef KVP_TRANSPORT_VERBS_H
#define KVP_TRANSPORT_VERBS_H

#include "transport/xport.h"

#include <infiniband/verbs.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdatomic.h>
#include <stdbool.h>

#define VERBS_SGE_MAX           16u   /* segments of one work request, at most */
#define VERBS_WR_MAX            512u  /* work requests in flight per connection, at most */
#define VERBS_CQ_LEN            8192u /* completions of all connections of an xport, at most */
#define VERBS_SLICE_SHIFT       31u   /* memory is registered in pieces of 2 GiB ... */
#define VERBS_SLICES_MAX        14u   /* ... and in larger ones when that gives more than this */
#define VERBS_KEYS_MAX          44u   /* keys of one target: what fits a welcome */
#define VERBS_FLUSH_LEN         64u   /* bytes read back behind a write */
#define VERBS_CONNECT_MS_MAX    5000u /* until a connection is up */
#define VERBS_RESOLVE_MS_MAX    2000  /* of an address, and of a route */
#define VERBS_RETRIES           6     /* 7 would mean for ever */
#define VERBS_ACK_TIMEOUT       16    /* 4.096 us << 16, about 0.27 s a try */
#define VERBS_RD_ATOMIC_MAX     128u  /* reads in flight that we ask for */
#define VERBS_SESSION_PEERS_MAX 64u   /* connections of one token */
#define VERBS_EVENTS_MAX        64    /* connection events handled in a row */
#define VERBS_RDESC_LEN         32

/* The exported functions of libibverbs and librdmacm that we use; the rest are inline and go
 * through the device's own table. */
struct verbs_lib {
	struct ibv_device **(*get_device_list)(int *ret_count);
	void (*free_device_list)(struct ibv_device **list);
	const char *(*get_device_name)(struct ibv_device *device);
	int (*query_device)(struct ibv_context *ctx, struct ibv_device_attr *ret_attr);
	int (*query_port)(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *ret_attr);
	int (*query_gid)(struct ibv_context *ctx, uint8_t port, int idx, union ibv_gid *ret_gid);
	struct ibv_pd *(*alloc_pd)(struct ibv_context *ctx);
	int (*dealloc_pd)(struct ibv_pd *pd);
	struct ibv_mr *(*reg_mr)(struct ibv_pd *pd, void *addr, size_t len, int access);
	/* NULL in old libraries. Takes the optional access flags, drops those not offered. */
	struct ibv_mr *(*reg_mr_iova2)(
		struct ibv_pd *pd, void *addr, size_t len, uint64_t iova, unsigned access);
	int (*dereg_mr)(struct ibv_mr *mr);
	struct ibv_comp_channel *(*create_comp_channel)(struct ibv_context *ctx);
	int (*destroy_comp_channel)(struct ibv_comp_channel *channel);
	struct ibv_cq *(*create_cq)(struct ibv_context *ctx, int len, void *cq_context,
		struct ibv_comp_channel *channel, int vector);
	int (*destroy_cq)(struct ibv_cq *cq);
	int (*get_cq_event)(
		struct ibv_comp_channel *channel, struct ibv_cq **ret_cq, void **ret_ctx);
	void (*ack_cq_events)(struct ibv_cq *cq, unsigned count);
	struct ibv_qp *(*create_qp)(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
	int (*modify_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
	int (*destroy_qp)(struct ibv_qp *qp);
	const char *(*wc_status_str)(enum ibv_wc_status status);

	struct ibv_context **(*get_devices)(int *ret_count);
	void (*free_devices)(struct ibv_context **list);
	struct rdma_event_channel *(*create_event_channel)(void);
	void (*destroy_event_channel)(struct rdma_event_channel *channel);
	int (*create_id)(struct rdma_event_channel *channel, struct rdma_cm_id **ret_id,
		void *context, enum rdma_port_space space);
	int (*destroy_id)(struct rdma_cm_id *id);
	int (*bind_addr)(struct rdma_cm_id *id, struct sockaddr *addr);
	int (*resolve_addr)(
		struct rdma_cm_id *id, struct sockaddr *src, struct sockaddr *dst, int ms);
	int (*resolve_route)(struct rdma_cm_id *id, int ms);
	int (*cm_create_qp)(
		struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
	int (*init_qp_attr)(struct rdma_cm_id *id, struct ibv_qp_attr *attr, int *ret_mask);
	int (*connect)(struct rdma_cm_id *id, struct rdma_conn_param *param);
	int (*listen)(struct rdma_cm_id *id, int backlog);
	int (*accept)(struct rdma_cm_id *id, struct rdma_conn_param *param);
	int (*reject)(struct rdma_cm_id *id, const void *data, uint8_t len);
	int (*disconnect)(struct rdma_cm_id *id);
	int (*get_cm_event)(struct rdma_event_channel *channel, struct rdma_cm_event **ret_event);
	int (*ack_cm_event)(struct rdma_cm_event *event);
	const char *(*event_str)(enum rdma_cm_event_type event);
	int (*set_option)(struct rdma_cm_id *id, int level, int name, void *value, size_t len);
};

struct verbs_mr;

/* An opened device: shared by an xport and those opened with cfg.share. */
struct verbs_domain {
	struct ibv_context **devices; /* the list that keeps ctx open */
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_device_attr attr;
	struct ibv_port_attr port_attr;
	uint8_t port;
	bool has_windows; /* type 2B */
	uint32_t sge_max;
	uint32_t wr_max;
	uint64_t msg_len_max;
	uint64_t id; /* random; rdescs carry it, so that one of another target does not fit */
	pthread_mutex_t lock;
	struct verbs_mr *keys[VERBS_KEYS_MAX]; /* who has this place in the welcome; NULL: free */
	_Atomic uint32_t refs;
	_Atomic uint32_t mr_count;
};

/* The private data of a connection request. Little-endian, as all that follows. */
struct verbs_hello {
	uint32_t magic;
	uint16_t version;
	uint16_t reserved;
	uint8_t token[KVP_TOKEN_LEN];
};
_Static_assert(sizeof(struct verbs_hello) == 24, "a hello is 24 bytes on the wire");

/* The private data of an acceptance: the keys that this one connection may use. */
struct verbs_welcome {
	uint32_t magic;
	uint16_t version;
	uint16_t key_count;
	uint64_t id; /* the target's */
	uint32_t keys[VERBS_KEYS_MAX];
};
_Static_assert(sizeof(struct verbs_welcome) == 16 + 4 * VERBS_KEYS_MAX, "no padding");
_Static_assert(sizeof(struct verbs_welcome) <= 196, "private data of an acceptance");

/* The private data of a refusal. */
struct verbs_refusal {
	uint32_t magic;
	int32_t err; /* KVP_E_*, negative */
};
_Static_assert(sizeof(struct verbs_refusal) == 8, "a refusal is 8 bytes on the wire");
#define VERBS_MAGIC   0x7876766bu /* "kvvx" */
#define VERBS_VERSION 1

struct verbs_target;

struct verbs_xport {
	struct kvp_xport base;
	const struct kvp_env *env;
	const struct kvp_log *log;
	struct verbs_domain *dom;
	bool has_device; /* the caller named one: connections start at its address */
	uint32_t io_depth;
	uint32_t conns_max;

	struct rdma_event_channel *events;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	uint32_t cq_len;
	uint32_t cq_used;  /* work requests that may still leave an entry in cq */
	uint32_t cq_stale; /* those of them whose queue pair is gone */
	bool cq_armed;     /* an entry writes, or has written, to channel */
	bool cm_check;     /* the event channel may hold something */
	int epoll_fd;      /* both channels and the timer */
	int timer_fd;      /* runs out with the oldest connection attempt */
	uint32_t poll_count;
	uint8_t flush_buf[VERBS_FLUSH_LEN]; /* where reads behind writes land */
	struct ibv_mr *flush_mr;
	struct ibv_send_wr *wrs; /* dom->wr_max, for the post being made */
	struct ibv_sge *sges;    /* sge_count */
	uint32_t sge_count;
	struct verbs_conn **conns; /* conns_max slots */
	uint32_t conn_count;
	uint32_t conn_gen;           /* of the last connection made */
	struct kvp_list connecting;  /* verbs_conn.link, oldest first */
	struct kvp_list ready;       /* kvp_io.link: status is set, done() is due */
	struct verbs_target *target; /* NULL until listen() */
};

enum verbs_conn_state { VERBS_CONNECTING, VERBS_UP, VERBS_DEAD };

/* DEAD means that the queue pair is destroyed: nothing posted on it touches memory any more. */
struct verbs_conn {
	struct verbs_xport *x;
	struct rdma_cm_id *id; /* NULL when DEAD */
	enum verbs_conn_state state;
	bool gone;  /* disconnect() was called; freed with the last io */
	bool bound; /* starts at our device's address */
	uint32_t idx;
	uint32_t gen;
	uint32_t credits;       /* work requests that may still be posted */
	uint32_t io_count;      /* posted or in xport.ready */
	uint32_t slot_count;    /* free ones */
	struct kvp_list link;   /* in xport.connecting */
	struct kvp_list posted; /* kvp_io.link */
	uint64_t deadline_ns;
	struct kvp_io *connect_io;
	struct kvp_io **slots; /* io_depth */
	uint16_t *slot_free;   /* stack of slot numbers */
	struct sockaddr_storage dst;
	uint8_t token[KVP_TOKEN_LEN];
	uint64_t target_id;
	uint32_t key_count;
	uint32_t keys[VERBS_KEYS_MAX]; /* as the target gave them to this connection */
};

/* Names of kvp_io.prov[] while an io is posted. */
enum { VERBS_IO_CONN, VERBS_IO_OPS, VERBS_IO_SLOT };

struct verbs_mr {
	struct verbs_domain *dom;
	uint64_t base;
	uint64_t len;
	uint32_t access;
	uint32_t shift; /* slice i starts at i << shift */
	uint32_t slice_count;
	uint32_t key_first; /* place of slice 0 in the welcome; remotely accessible ones only */
	struct kvp_list windows; /* verbs_window.mr_link, under dom->lock */
	struct ibv_mr *slices[VERBS_SLICES_MAX];
};

/* A slice opened to one peer for writing. On both lists or none. */
struct verbs_window {
	struct kvp_list mr_link;
	struct kvp_list peer_link;
	struct ibv_mw *mw;
};

static inline struct verbs_xport *
verbs_of(struct kvp_xport *xport)
{
	return kvp_container_of(xport, struct verbs_xport, base);
}

extern const struct kvp_xport_ops kvp_xport_verbs;

/* verbs_lib.c. The functions are valid once an xport is open. */
const struct verbs_lib *verbs_lib(void);
/* -KVP_E_NO_PROVIDER: absent or too old; logged. Any thread. */
int verbs_lib_load(const struct kvp_log *log);

/* verbs_open.c */
int verbs_open(const struct kvp_xport_cfg *cfg, struct kvp_xport **ret_xport);
void verbs_close(struct kvp_xport *xport);
/* An event channel that does not block. NULL: errno says why. */
struct rdma_event_channel *verbs_events_open(void);
/* An IP address of the opened device. -EADDRNOTAVAIL: none of that family. */
int verbs_device_addr(
	const struct verbs_domain *dom, int family, struct sockaddr_storage *ret_addr);

/* verbs_mr.c */
int verbs_mr_reg(struct kvp_xport *xport, const struct kvp_mem *mem, uint32_t access,
	struct kvp_mr **ret_mr);
void verbs_mr_dereg(struct kvp_mr *mr);
void verbs_mr_rdesc(const struct kvp_mr *mr, struct kvp_rdesc *ret_rdesc);
/* NULL: errno says why. With relaxed ordering where the device offers it. */
struct ibv_mr *verbs_reg(struct ibv_pd *pd, void *addr, size_t len, int access);
/* Takes the window from its peer and its memory, and frees it. dom->lock is held. */
void verbs_window_free(struct verbs_window *window);

/* verbs_target.c */
int verbs_listen(struct kvp_xport *xport, const char *addr, char ret_addr[KVP_ADDR_LEN_MAX]);
int verbs_admit(struct kvp_xport *xport, const uint8_t token[KVP_TOKEN_LEN]);
int verbs_fence(struct kvp_xport *xport, const uint8_t token[KVP_TOKEN_LEN]);
void verbs_target_close(struct verbs_target *target);

/* verbs_cm.c */
/* Resolves "host:port" (may block on the resolver). passive: an address to listen on. */
int verbs_addr_of(const struct verbs_xport *x, const char *addr, bool passive,
	struct sockaddr_storage *ret_addr);
int verbs_connect(struct kvp_xport *xport, const char *addr, const uint8_t token[KVP_TOKEN_LEN],
	struct kvp_io *io, struct kvp_conn **ret_conn);
void verbs_disconnect(struct kvp_conn *conn);
/* Destroys the queue pair and makes every posted io ready with this status. Dead: nothing. */
void verbs_conn_fail(struct verbs_conn *conn, int status, int prov_err);
void verbs_conn_free(struct verbs_conn *conn);
/* Handles connection events; fails attempts that took too long. */
void verbs_cm_progress(struct verbs_xport *x);

/* verbs_io.c */
int verbs_read(struct kvp_conn *conn, const struct kvp_seg *dst, uint32_t count,
	const struct kvp_rdesc *src, uint64_t off, struct kvp_io *io);
int verbs_write(struct kvp_conn *conn, const struct kvp_seg *src, uint32_t count,
	const struct kvp_rdesc *dst, uint64_t off, struct kvp_io *io);
void verbs_io_complete(struct verbs_xport *x, const struct ibv_wc *wc);

/* verbs_poll.c */
int verbs_poll(struct kvp_xport *xport, uint32_t max);
int verbs_wait_fd(struct kvp_xport *xport);

#endif /* KVP_TRANSPORT_VERBS_H */
