/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blk.h - block files: asynchronous reads, writes and flushes of preallocated segment files, and
 * the contract that every engine under them implements. It knows no block, no key, no format.
 *
 * TWO HALVES Owners of data call kvp_blk_*: that half opens the files, checks, cuts an io into
 *            requests of at most io_max, bounds what is in flight, and continues short ones. An
 *            engine (struct kvp_blk_ops) only carries requests to the device and back.
 * THREADS    One owner thread, from the first post on. open() and buf_reg() before it may be
 *            another thread's, and so may close() once the owner thread has ended.
 * COMPLETION A post that returns 0 calls io->done() exactly once for each io, later, from poll()
 *            or close(), never from the post. done() may post; it must not poll or close.
 * ERRORS     post: -EAGAIN: queue full, nothing was posted, come back after poll(). -EINVAL:
 *            nothing was posted, the caller is wrong, and a log line says how.
 *            status: 0: all len bytes moved. -EIO, -ENOSPC...: the device's own word, or -EIO
 *            where it moved nothing more (end of file) or was interrupted too often; any part
 *            of the range may have been moved. -ECANCELED: cancelled or closed before its end.
 * MEMORY     An io and its bytes belong to this module until done(); after done(), with
 *            whatever status, they are not touched any more. After close() nothing is.
 * ORDER      None between ios in flight; overlapping ones give any mix. Requests go out first
 *            come, first served: who wants reads ahead of writes posts the writes late.
 * FLUSH      Covers the writes to its file whose done() came before the flush was posted. After
 *            a failed flush, no write since the last good one is safe, and a later good flush does
 *            not make it so: the kernel may have dropped it. Write it again.
 * ALLOCATION Nothing allocates after open(), except in the engine fault.
 */
#ifndef KVP_HAL_BLK_BLK_H
#define KVP_HAL_BLK_BLK_H

#include "hal/base/list.h"
#include "hal/base/log.h"
#include "hal/os/env.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KVP_BLK_ALIGN      4096u        /* of offsets, lengths and addresses */
#define KVP_BLK_FILES_MAX  64u          /* segment files of one kvp_blk */
#define KVP_BLK_BUFS_MAX   64u          /* registered buffers */
#define KVP_BLK_SLICE_LEN  (1ull << 30) /* bytes that an engine registers in one piece */
#define KVP_BLK_SLICES_MAX 4096u        /* slices of all buffers together */
#define KVP_BLK_DEPTH_MAX  4096u        /* requests in flight */
#define KVP_BLK_WHY_LEN    256u         /* bytes of a reason with its NUL */
#define KVP_BLK_BUF_NONE   UINT32_MAX   /* memory that is not registered */

struct kvp_blk;

enum kvp_blk_op { KVP_BLK_READ, KVP_BLK_WRITE, KVP_BLK_FLUSH };

/* One operation. Embedded in its owner; zeroed before its first use. */
struct kvp_blk_io {
	void (*done)(struct kvp_blk_io *io);
	int status;   /* see ERRORS; valid inside done() */
	int prov_err; /* the device's last error, for logs only; 0: none */

	/* What to do: the owner sets it, and leaves it alone until done(). */
	enum kvp_blk_op op;
	uint32_t file; /* index into kvp_blk_cfg.files */
	uint32_t buf;  /* what buf_reg gave for addr..addr+len, or KVP_BLK_BUF_NONE */
	void *addr;    /* a flush has no addr, off, len: 0 */
	uint64_t off;
	uint64_t len;

	/* This module's, while posted. */
	struct kvp_list link;
	uint64_t cut;     /* bytes cut into requests so far */
	uint32_t pending; /* requests in flight */
	bool posted;
};

struct kvp_blk_file {
	const char *path;
	uint64_t bytes;     /* > 0; longer files are used up to here and keep their length */
	uint64_t ret_found; /* open() sets it: the length it found, 0: the file is new */
};

struct kvp_blk_cfg {
	const struct kvp_env *env;
	const struct kvp_log *log;
	const char *engine; /* of the registry; NULL, "auto": the first that works here */
	const struct kvp_blk_ops *ops; /* this engine and no other, NULL: by name */
	void *ops_arg;                 /* for ops->open */
	struct kvp_blk_file *files;
	uint32_t file_count; /* 1..KVP_BLK_FILES_MAX */
	bool create;         /* makes missing files, extends short ones, fills holes */
	uint32_t io_max;     /* bytes of one request, 0: 1 MiB */
	uint64_t bytes_max;  /* bytes in flight, >= io_max, 0: 4 MiB */
	uint32_t depth;      /* requests in flight, 0: 64 */
	uint32_t queue_max;  /* ios posted and not done, 0: 1024 */
	uint32_t threads;    /* of the engine threads, 0: 8 */
	char *why;           /* NULL, or KVP_BLK_WHY_LEN bytes: why open() failed, or why "auto" did
			      * not take its first choice; else "" */
};

struct kvp_blk_stats {
	const char *engine;  /* its name */
	bool direct;         /* every file goes round the page cache */
	uint64_t read_bytes; /* that the device moved, those of failed ios included */
	uint64_t write_bytes;
	uint64_t reads; /* ios that ended well */
	uint64_t writes;
	uint64_t flushes;
	uint64_t errors; /* ios that did not, cancelled ones apart */
	uint64_t cancels;
	uint64_t retries;          /* requests sent again: short, EINTR, EAGAIN */
	uint64_t flight_bytes;     /* now */
	uint64_t flight_bytes_max; /* ever */
	uint64_t posted;           /* ios now */
};

/* Opens the files, reserves their space on the disk (not sparse, synced) and starts an engine.
 * The caller holds a lock that keeps others away. O_DIRECT where the file system takes it; where
 * not, the page cache is used and one warning says so. May block for long.
 * -KVP_E_NO_PROVIDER: the engine named is not usable here. -ENOSPC and other -errno of a file: what
 * was made or extended by this call is as before. Without create: -ENOENT, -EINVAL when a file is
 * shorter or sparse. -EINVAL: bad cfg. */
int kvp_blk_open(const struct kvp_blk_cfg *cfg, struct kvp_blk **ret_blk);

/* Cancels, waits for the device to answer what it was given, calls the done() of everything that
 * was posted, closes. Posts from there get -ECANCELED. The kernel may hold the files and pin the
 * buffers for some milliseconds more, untouched. NULL is fine. */
void kvp_blk_close(struct kvp_blk *blk);

/* Makes base..base+len (aligned) cheaper for ios that name it, in slices of KVP_BLK_SLICE_LEN. What
 * the kernel refuses (memlock limit) is used unregistered, and one warning says so. The memory
 * must stay mapped until dereg or close. May block while pages are pinned. -EINVAL; -ENOSPC:
 * KVP_BLK_BUFS_MAX or KVP_BLK_SLICES_MAX. */
int kvp_blk_buf_reg(struct kvp_blk *blk, void *base, size_t len, uint32_t *ret_buf);
/* -EBUSY: posted ios use it. */
int kvp_blk_buf_dereg(struct kvp_blk *blk, uint32_t buf);

/* Posts all of them or none. HOT: one system call a batch, none from inside done(). */
int kvp_blk_post(struct kvp_blk *blk, struct kvp_blk_io *const *ios, uint32_t count);

/* Reaps, sends what waited for room, calls done() for at most max ios. Returns how many. */
uint32_t kvp_blk_poll(struct kvp_blk *blk, uint32_t max);

/* Before sleeping: a descriptor that becomes readable when poll() has something to do, the same
 * one until close; -EAGAIN: something is there already, poll first. To be asked before each sleep:
 * it takes back what an earlier wakeup left. The sleep may end with EINTR. */
int kvp_blk_wait_fd(struct kvp_blk *blk);

/* Ends with -ECANCELED, from the next poll(), what did not reach the device yet. An io that is
 * partly there ends when that part has. */
void kvp_blk_cancel(struct kvp_blk *blk);

void kvp_blk_stats(const struct kvp_blk *blk, struct kvp_blk_stats *ret_stats);

/* ---- the engines' half ---- */

/* One request, from the pool of the kvp_blk. */
struct kvp_blk_req {
	struct kvp_list link; /* the engine's, while posted */
	enum kvp_blk_op op;
	uint32_t file;
	int32_t slice; /* a slice that buf_reg took and that covers addr..addr+len; -1: none */
	uint32_t len;  /* bytes; 0: a flush */
	uint64_t off;
	void *addr;
	int32_t res;     /* out: bytes moved, which may be fewer than len, or -errno */
	uint64_t eng[2]; /* the engine's, while posted */

	struct kvp_blk_io *io; /* no engine looks at these */
	uint32_t tries;
};

struct kvp_blk_engine {
	const struct kvp_blk_ops *ops;
};

struct kvp_blk_engine_cfg {
	const struct kvp_env *env;
	const struct kvp_log *log;
	const int *fds; /* stay open and valid until close */
	const uint64_t *bytes;
	uint32_t file_count;
	uint32_t depth; /* requests posted and not reaped, at most */
	uint32_t io_max;
	uint32_t threads;
	void *arg; /* kvp_blk_cfg.ops_arg */
	char *why; /* KVP_BLK_WHY_LEN bytes, never NULL */
};

/* Calls come from one thread, as in THREADS above. */
struct kvp_blk_ops {
	const char *name;

	/* -KVP_E_NO_PROVIDER: not usable on this machine, why says why. -errno. Must not depend on
	 * the thread that calls it. */
	int (*open)(const struct kvp_blk_engine_cfg *cfg, struct kvp_blk_engine **ret_engine);
	/* Nothing is in flight (asserted). Drops the slices that are left. */
	void (*close)(struct kvp_blk_engine *engine);

	/* Both NULL: no use for it. slice < KVP_BLK_SLICES_MAX, len <= KVP_BLK_SLICE_LEN. An error
	 * means that requests will not name this slice. */
	int (*buf_reg)(struct kvp_blk_engine *engine, uint32_t slice, void *base, size_t len);
	void (*buf_dereg)(struct kvp_blk_engine *engine, uint32_t slice);

	/* Takes all of the list over, empties it; never calls back, never blocks on the device. A
	 * request that cannot be started ends with an error in res. A flush covers the writes
	 * of its file that were reaped before. */
	void (*post)(struct kvp_blk_engine *engine, struct kvp_list *reqs);
	/* Appends what has ended, its memory no longer touched, to the list. Does not block. */
	void (*poll)(struct kvp_blk_engine *engine, struct kvp_list *ret_reqs);
	/* As kvp_blk_wait_fd. Never -EAGAIN for ever while poll() brings nothing and nothing is
	 * posted. */
	int (*wait_fd)(struct kvp_blk_engine *engine);
};

/* registry.c: the only place that knows which engines are built in; best first. */
const struct kvp_blk_ops *const *kvp_blk_all(size_t *ret_count);
const struct kvp_blk_ops *kvp_blk_find(const char *name); /* NULL: none of that name */

#endif /* KVP_HAL_BLK_BLK_H */
