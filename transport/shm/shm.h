/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm.h - what the files of the shm provider share: an initiator of the same host maps the
 * target's regions and copies. Nobody outside this folder includes it.
 *
 * A connection is a UNIX socket over which the target hands out descriptors once; afterwards it
 * only says that the other side still lives. THREADS An shm_xport belongs to its caller. An
 * shm_target's mutex guards regions, sessions and peers between the target's callers and its
 * thread.
 */
#ifndef KVP_TRANSPORT_SHM_H
#define KVP_TRANSPORT_SHM_H

#include "transport/xport.h"

#include <stdbool.h>

#define SHM_REGIONS_MAX       64u
#define SHM_SESSION_PEERS_MAX 64u   /* connections of one token */
#define SHM_PENDING_MAX       64u   /* connections that have not said hello yet */
#define SHM_HELLO_MS_MAX      1000u /* they may take so long */
#define SHM_CONNECT_MS_MAX    5000u /* until a connection is up */
#define SHM_SEG_RING          4096u /* segments queued per xport, a power of two */
#define SHM_RDESC_LEN         24

/* Initiator to target, once. Little-endian, as all that follows. */
struct shm_hello {
	uint32_t magic;
	uint16_t version;
	uint16_t reserved;
	uint8_t token[KVP_TOKEN_LEN];
};
_Static_assert(sizeof(struct shm_hello) == 24, "a hello is 24 bytes on the wire");

struct shm_welcome_region {
	uint64_t tag; /* random; rdescs carry it, so that one of another target does not fit */
	uint64_t len;
	uint32_t idx;
	uint32_t access; /* KVP_MR_REMOTE_* */
};
_Static_assert(sizeof(struct shm_welcome_region) == 24, "a region is 24 bytes on the wire");

/* Target to initiator, once. With it come descriptors: the session lock, then one a region. */
struct shm_welcome {
	uint32_t magic;
	uint16_t version;
	uint16_t region_count;
	int32_t err; /* 0, or why not: no descriptors then */
	uint32_t reserved;
	struct shm_welcome_region regions[SHM_REGIONS_MAX];
};
_Static_assert(sizeof(struct shm_welcome) == 16 + 24 * SHM_REGIONS_MAX, "no padding");

#define SHM_MAGIC   0x6d68736bu /* "kshm" */
#define SHM_VERSION 1

struct shm_target;

struct shm_xport {
	struct kvp_xport base;
	const struct kvp_env *env;
	const struct kvp_log *log;
	uint32_t io_depth;
	uint32_t conns_max;
	int epoll_fd; /* sockets of connections being made, and the timer */
	int timer_fd; /* runs out with the oldest attempt */
	uint32_t conn_count;
	_Atomic uint32_t mr_count;
	struct kvp_list connecting; /* shm_conn.link, oldest first */
	struct kvp_list queue;      /* kvp_io.link: reads and writes not yet done, in order */
	struct kvp_list ready;      /* kvp_io.link: connects with their status */
	struct kvp_seg *segs;       /* SHM_SEG_RING, those of queue in the same order */
	uint64_t seg_head;          /* next to be filled; counts for ever */
	uint64_t seg_tail;          /* oldest in use */
	const char *lock_prefix;    /* the opener's, read by shm_target_new only */
	struct shm_target *target;
};

struct shm_region {
	struct kvp_mem mem; /* base NULL: unused */
	uint64_t tag;
	uint32_t access;
};

enum shm_conn_state { SHM_CONNECTING, SHM_UP, SHM_DEAD };

struct shm_conn {
	struct shm_xport *x;
	enum shm_conn_state state;
	bool gone;            /* disconnect() was called; freed with the last io */
	int sock;             /* -1 when dead */
	int lock_fd;          /* says to the target that our mappings exist; -1: none */
	uint32_t io_count;    /* in xport.queue or xport.ready */
	struct kvp_list link; /* in xport.connecting */
	uint64_t deadline_ns;
	struct kvp_io *connect_io;
	struct shm_region regions[SHM_REGIONS_MAX];
};

/* Names of kvp_io.prov[] while an io is posted. */
enum { SHM_IO_CONN, SHM_IO_ADDR, SHM_IO_COUNT, SHM_IO_WRITE };

struct shm_mr {
	struct shm_xport *x;
	uint32_t access;
	uint32_t idx; /* of a remotely accessible one */
	uint64_t tag;
	uint64_t len;
	int fd_read;  /* -1: none */
	int fd_write; /* -1: none */
};

static inline struct shm_xport *
shm_of(struct kvp_xport *xport)
{
	return kvp_container_of(xport, struct shm_xport, base);
}

extern const struct kvp_xport_ops kvp_xport_shm;

/* shm_mr.c */
int shm_mr_reg(struct kvp_xport *xport, const struct kvp_mem *mem, uint32_t access,
	struct kvp_mr **ret_mr);
void shm_mr_dereg(struct kvp_mr *mr);
void shm_mr_rdesc(const struct kvp_mr *mr, struct kvp_rdesc *ret_rdesc);

/* shm_target.c */
struct shm_target *shm_target_new(const struct shm_xport *x);
void shm_target_close(struct shm_target *target); /* NULL is fine */
/* Gives mr its index. -ENOSPC: too many. */
int shm_target_region_add(struct shm_target *target, struct shm_mr *mr);
void shm_target_region_remove(struct shm_target *target, struct shm_mr *mr);
int shm_listen(struct kvp_xport *xport, const char *addr, char ret_addr[KVP_ADDR_LEN_MAX]);
int shm_admit(struct kvp_xport *xport, const uint8_t token[KVP_TOKEN_LEN]);
int shm_fence(struct kvp_xport *xport, const uint8_t token[KVP_TOKEN_LEN]);

/* shm_lock.c: prefix "" makes nameless ones. */
#define SHM_LOCK_PATH_LEN (KVP_ADDR_LEN_MAX + 24)
int shm_lock_new(const char *prefix, const uint8_t token[KVP_TOKEN_LEN], int *ret_fd);
/* A new description of it, locked for as long as any copy of that is open. */
int shm_lock_share(int lock_fd, int *ret_fd);
/* True when nobody holds it, and from then on nobody can; its name is gone then. */
bool shm_lock_end(const char *prefix, const uint8_t token[KVP_TOKEN_LEN], int lock_fd);
/* The same by name: 0 also when there is none. -EINPROGRESS, -errno. */
int shm_lock_fence(const char *prefix, const uint8_t token[KVP_TOKEN_LEN]);
/* Removes those that are not used() here and that nobody holds; how many are held. */
uint32_t shm_lock_sweep(const char *prefix, bool (*used)(void *arg, const char *path), void *arg);
/* Is that the path of this token's? */
bool shm_lock_is(const char *prefix, const uint8_t token[KVP_TOKEN_LEN], const char *path);

/* shm_cm.c */
int shm_connect(struct kvp_xport *xport, const char *addr, const uint8_t token[KVP_TOKEN_LEN],
	struct kvp_io *io, struct kvp_conn **ret_conn);
void shm_disconnect(struct kvp_conn *conn);
void shm_conn_free(struct shm_conn *conn);
/* Takes welcomes; fails attempts that took too long. */
void shm_cm_progress(struct shm_xport *x);

/* shm_io.c */
int shm_read(struct kvp_conn *conn, const struct kvp_seg *dst, uint32_t count,
	const struct kvp_rdesc *src, uint64_t off, struct kvp_io *io);
int shm_write(struct kvp_conn *conn, const struct kvp_seg *src, uint32_t count,
	const struct kvp_rdesc *dst, uint64_t off, struct kvp_io *io);
/* Copies what the oldest queued io asks for and sets its status. */
void shm_io_run(struct shm_xport *x, struct kvp_io *io);

int shm_io_region(const struct shm_conn *conn, const struct kvp_rdesc *rdesc, uint64_t off,
	uint64_t len, const struct kvp_mem **ret_mem);

/* shm_view.c */
int shm_map(struct kvp_conn *conn, const struct kvp_rdesc *src, uint64_t off, uint64_t len,
	struct kvp_xport_view *ret_view);
void shm_unmap(struct kvp_xport_view *view);

/* shm_poll.c */
int shm_poll(struct kvp_xport *xport, uint32_t max);
int shm_wait_fd(struct kvp_xport *xport);

#endif /* KVP_TRANSPORT_SHM_H */
