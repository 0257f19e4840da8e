/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpool.h - the pool of KV-cache blocks, for engines. This header is the manual.
 *
 * A *block* is the KV bytes of a fixed number of tokens of one model shard; it is named by a *key*
 * (1 to 64 bytes of your choosing) within a *namespace* (everything that must be equal for two
 * blocks to be interchangeable). The bytes of a key never change: who changes what a key means
 * takes another namespace or a higher epoch of it.
 *
 * THE PROMISE    A get gives exactly the bytes that were put under that key, or a status that says
 *                why not. Never anything else. After an item of a put says 0, every client's next
 *                get of it finds it (until it is evicted, and unless the batch says UNINDEXED).
 * SHAPE          kvp_submit() takes a batch, returns at once; exactly one kvp_completion for it
 *                comes out of its completion queue, whatever happens. Blocking calls on top.
 * ERRORS         int results: 0 or positive is success, else a negative errno or -KVP_E_* code
 *                (kvpool/errors.h); kvp_strerror() has the text. Items have their own status: one
 *                bad key never harms another.
 * DEADLINES      Every operation has one (default 1000 ms). It completes by then plus 10 % or 100
 * ms, whichever is more, whatever the peers do, provided somebody polls its queue. MEMORY Segments
 * must lie in registered memory. From kvp_submit() until the completion the batch's arrays, keys
 * and segments are the library's: do not free or change them. After the completion the library
 * never touches them again, whatever its status was. The destination bytes of an item that did not
 * succeed are undefined. THREADS        A client may be used from any thread. A queue serves one
 * thread at a time (calls on one queue exclude each other); use a queue a thread. Data moves on the
 * threads that call kvp_submit, kvp_cq_poll and kvp_cq_wait: a queue nobody polls does not move.
 *                One thread of the library's own (all signals blocked) does control messages.
 * PROCESS        No signal handler, signal mask, locale, allocator or exit hook is changed. After
 *                fork() the child must not use a client of its parent, except to exit or exec;
 * calls then fail with -EPERM.
 */
#ifndef KVPOOL_H
#define KVPOOL_H

#include <kvpool/errors.h>

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KVP_API __attribute__((visibility("default")))

/* --- library ---------------------------------------------------------------------------------- */

KVP_API const char *kvp_version(void); /* "0.1.0" */

/* Text of a status, static; takes negative codes and 0. Any thread. */
KVP_API const char *kvp_strerror(int status);

/* Name of a status, static: "KVP_E_NOKEY", "EINVAL". */
KVP_API const char *kvp_strerrorname(int status);

/* --- namespaces and keys ------------------------------------------------------------------------
 */

/* The digest of a descriptor: 16 bytes that name the namespace. A plain value. */
struct kvp_namespace {
	uint8_t digest[16];
	uint64_t epoch;
	uint8_t family[16]; /* the digest with epoch 0: what all its epochs have in common */
};

/*
 * Everything that must be equal for blocks to be interchangeable. Strings are UTF-8 without NUL,
 * NULL means "". Unknown numbers are 0. Zero the struct first: fields may be added (struct_size
 * tells which there are).
 */
struct kvp_namespace_desc {
	size_t struct_size;    /* sizeof(struct kvp_namespace_desc) */
	const char *model;     /* required: name or path of the weights */
	const char *revision;  /* of the weights */
	const char *dtype;     /* of the KV cache: "bfloat16", "fp8_e4m3" */
	const char *layout;    /* of the bytes in a block, the connector's word */
	const char *adapter;   /* LoRA or similar */
	const char *tenant;    /* blocks are never shared across tenants */
	const char *hash;      /* how the caller makes keys, with its seed */
	uint32_t block_tokens; /* tokens in a full block */
	uint32_t layer_first;  /* layers in the block: first and count */
	uint32_t layer_count;
	uint32_t head_first; /* KV heads in the block: first and count; 0, 0 for MLA */
	uint32_t head_count;
	uint32_t tp_size; /* tensor parallel size and rank */
	uint32_t tp_rank;
	uint32_t pp_size; /* pipeline parallel size and rank */
	uint32_t pp_rank;
	uint32_t group; /* KV cache group of hybrid models */
	uint64_t epoch; /* raise it to leave all older blocks behind */
};

/* Makes the namespace of a descriptor: SHA-256 over its canonical bytes, cut to 128 bits; equal on
 * every host and release. -KVP_E_NAMESPACE: no model, a string over 1023 bytes, struct_size off.
 * Any thread, no client needed. */
KVP_API int kvp_namespace_make(
	const struct kvp_namespace_desc *desc, struct kvp_namespace *ret_namespace);

#define KVP_CHAIN_KEY_LEN 16

/*
 * Keys of the full blocks of a prompt, each depending on all tokens before it:
 *   key[i] = SHA-256("kvpool-chain-1" || namespace digest || key[i-1] or 16 zero bytes ||
 *            tokens of block i as 32-bit little endian) cut to 16 bytes.
 * parent: key of the block before tokens[0], NULL at the start of a prompt. ret_keys has room for
 * token_count / block_tokens keys of KVP_CHAIN_KEY_LEN bytes; a partial last block has none.
 * Returns the number of keys, or -EINVAL. Any thread.
 */
KVP_API int kvp_chain_keys(const struct kvp_namespace *ns, const uint8_t *parent,
	const uint32_t *tokens, size_t token_count, uint32_t block_tokens,
	uint8_t (*ret_keys)[KVP_CHAIN_KEY_LEN]);

/* --- client --------------------------------------------------------------------------------------
 */

struct kvp_client;

enum kvp_log_severity { KVP_LOG_IS_ERROR, KVP_LOG_IS_WARN, KVP_LOG_IS_INFO, KVP_LOG_IS_DEBUG };

struct kvp_client_options {
	size_t struct_size;    /* sizeof(struct kvp_client_options) */
	const char *meta;      /* addresses of metadata servers, comma separated: "host:7480". NULL:
				* KVP_META, else "unix:/run/kvpool/kvpool-meta.sock" */
	const char *node;      /* control address of the home node, where puts go. NULL: KVP_NODE,
				* else "unix:/run/kvpool/kvpoold.sock"; "none": no puts */
	const char *transport; /* "auto" (NULL): same host shm, else ofi; or a name: only that one,
				* an operation that cannot use it fails */
	const char *name;      /* of this client, for the servers' logs; NULL: the program's */
	uint32_t deadline_ms;  /* default of operations; 0: 1000 */
	uint32_t spin_us;      /* kvp_cq_wait polls so long before it sleeps; default 0 */
	uint32_t cache_locations; /* entries of the location cache; 0: 262144 */
	uint32_t verify;          /* enum kvp_verify; default sampled */
	uint32_t checksum;        /* enum kvp_checksum */
	/* Lines of the log, from any thread of ours or yours that is inside a call. NULL: warnings
	 * and errors go to stderr, rate limited. */
	void (*log)(void *arg, enum kvp_log_severity severity, const char *line);
	void *log_arg;
};

enum kvp_verify {
	KVP_VERIFY_SAMPLED = 0, /* payload checksum of one DRAM read in 64 */
	KVP_VERIFY_OFF = 1,
	KVP_VERIFY_ALWAYS = 2,
};

enum kvp_checksum {
	KVP_CHECKSUM_CLIENT = 0, /* hashed here, while the bytes are written */
	KVP_CHECKSUM_NONE = 1,   /* the block stays unhashed until its node hashes it */
};

/*
 * Starts a client: returns at once and connects in the background; operations wait for that within
 * their deadlines. options may be NULL. -KVP_E_CONFIG: a bad option, named in the log; -ENOMEM,
 * -EAGAIN.
 */
KVP_API int kvp_client_open(
	const struct kvp_client_options *options, struct kvp_client **ret_client);

/*
 * Ends it: operations still out complete with -KVP_E_CANCELLED into their queues first, and those
 * queues, the regions and the client are freed: nothing made from it may be used afterwards, and
 * no other call on it may be running. NULL is fine. Blocks up to 1 s.
 */
KVP_API void kvp_client_close(struct kvp_client *client);

/* --- memory --------------------------------------------------------------------------------------
 */

/* Allows I/O in [addr, addr+len). The same range may be registered again: it is counted. Ranges may
 * touch but not partly overlap (-EEXIST). A segment must lie in one range. -ENOMEM, -EINVAL; may
 * block for milliseconds per GB with RDMA. */
KVP_API int kvp_memory_register(struct kvp_client *client, void *addr, size_t len);

/* Takes one registration back. The last one waits until no operation uses the range: until
 * timeout_ms, then -KVP_E_TIMEOUT and it stays registered. New operations in it are refused from
 * the call on. Other threads must keep polling, or the queues must be idle. -KVP_E_NOT_REGISTERED.
 */
KVP_API int kvp_memory_unregister(
	struct kvp_client *client, void *addr, size_t len, uint32_t timeout_ms);

/* --- completion queues
 * ----------------------------------------------------------------------------- */

struct kvp_cq;

/* One completion: of one submitted batch. */
struct kvp_completion {
	uint64_t tag;      /* the batch's */
	int status;        /* 0: look at the items; else why no item could be done at all */
	uint32_t ok_count; /* items with status 0 */
	uint32_t prefix;   /* items with status 0 (put: or EXISTS) before the first other one */
	uint32_t flags;    /* KVP_DONE_* */
	uint64_t bytes;    /* payload bytes moved */
	uint64_t lease;    /* lease, view: what kvp_release takes; 0: nothing is held */
	uint32_t lease_ms; /* from now on it lasts at least so long */
	uint32_t reserved; /* 0 */
};

#define KVP_DONE_UNINDEXED                                                                         \
	1u /* put: stored, but no metadata server confirmed it in time; other                      \
	    * clients find it a little later */

/* depth: batches that may be out at a time on it, 1..4096; 0: 256. -ENOMEM, -EMFILE. */
KVP_API int kvp_cq_open(struct kvp_client *client, uint32_t depth, struct kvp_cq **ret_cq);

/* Cancels what is still out on it, without further completions. NULL is fine. */
KVP_API void kvp_cq_close(struct kvp_cq *cq);

/* An eventfd that becomes readable when there is something for kvp_cq_poll to do. Sleep on it only
 * after kvp_cq_poll returned 0; it may wake you for nothing. Do not read it: kvp_cq_poll resets it.
 */
KVP_API int kvp_cq_fd(const struct kvp_cq *cq);

/* Moves data, takes up to max completions. Returns how many, 0 when none is ready. Never sleeps; a
 * call does a bounded amount of work (it may copy some MiB on the same host). -EPERM after fork. */
KVP_API int kvp_cq_poll(struct kvp_cq *cq, struct kvp_completion *ret_done, uint32_t max);

/* The same, sleeping until there is at least one or timeout_ms passed: then 0. */
KVP_API int kvp_cq_wait(
	struct kvp_cq *cq, struct kvp_completion *ret_done, uint32_t max, uint32_t timeout_ms);

/* --- batches
 * ---------------------------------------------------------------------------------------- */

enum kvp_opcode {
	KVP_GET = 1, /* read blocks into segments */
	KVP_PUT = 2, /* store blocks from segments, at the home node, if not there yet */
	KVP_MATCH =
		3, /* which of these keys, in order, does the pool hold? stops at the first miss */
	KVP_DELETE = 4, /* free the copies known now */
	KVP_LEASE = 5,  /* as match, and what is found stays where it is for lease_ms: neither
			 * eviction nor delete takes it, so a get within that time finds it */
	KVP_TOUCH = 6, /* these blocks were of use: eviction takes others first. Advice, sent within
			* 100 ms, lost when there is too much of it */
	KVP_VIEW = 7,  /* as lease, and each block of a node on this host can be read in place */
};

/* Where an item was found or went. */
enum kvp_medium {
	KVP_MEDIUM_NONE = 0,
	KVP_MEDIUM_DRAM = 1,
	KVP_MEDIUM_SSD = 2,
	KVP_MEDIUM_HBM = 3
};

struct kvp_item {
	/* in */
	const void *key; /* 1..64 bytes */
	const struct iovec
		*segs;      /* get: destination, put: source; in the order of the block's bytes */
	uint32_t seg_count; /* get, put: 1..256; others: 0 */
	uint8_t key_len;    /* bytes */
	uint8_t parent_len; /* put: 0 means the item before it in the batch, if position > 0 */
	uint16_t reserved;  /* 0 */
	const void *parent; /* put: key of the block before, when that is not in the batch */
	uint32_t position;  /* put, get: tokens of the prompt before this block */
	uint32_t tokens;    /* put: tokens in it; 0: not known */
	/* out, written before the completion */
	int status;     /* 0, or: get, match, lease, view, touch -KVP_E_NOKEY; put
			 * -KVP_E_EXISTS (the pool has it: as good as stored),
			 * -KVP_E_IN_PROGRESS, -KVP_E_NO_SPACE (nothing can be evicted, or the
			 * namespace's quota is reached), -KVP_E_EPOCH; lease, view
			 * -KVP_E_BUSY (leases hold too much already); delete -KVP_E_BUSY (a
			 * lease holds it); view -KVP_E_NO_PROVIDER (not on this host); any
			 * -KVP_E_KEY_LEN, -KVP_E_NOT_REGISTERED, -KVP_E_SIZE, -KVP_E_TIMEOUT,
			 * -KVP_E_META_DOWN, -KVP_E_NODEDOWN ... */
	uint8_t medium; /* enum kvp_medium: where it was found or went */
	uint8_t local;  /* 1: by shared memory of this host */
	uint16_t reserved_out;
	struct kvp_view *view; /* view: yours, with status 0; else NULL */
};

/* What the items have in common; informs eviction and prefetch, never correctness. */
struct kvp_context {
	uint64_t conversation; /* 0: not known */
	uint32_t turn;
	uint32_t service_class; /* 0: default */
};

struct kvp_batch {
	enum kvp_opcode op;
	uint32_t item_count; /* 1..65536 */
	struct kvp_item *items;
	const struct kvp_namespace *ns; /* copied */
	struct kvp_context context;
	uint32_t deadline_ms; /* 0: the client's default */
	uint32_t flags;       /* KVP_BATCH_* */
	uint64_t tag;         /* comes back in the completion */
	uint32_t lease_ms; /* lease, view: for how long, at least 1; nodes may give less (60 s) */
	uint32_t reserved; /* 0 */
};

#define KVP_BATCH_LOCAL_COMMIT                                                                     \
	1u                  /* put: complete after the node's commit, do not wait for metas        \
			     */
#define KVP_BATCH_PREFIX 2u /* get: items after the first miss are not read: -KVP_E_NOKEY */

/*
 * Queues a batch and starts it. 0, and one completion will come; or, with no completion to come:
 * -EINVAL (op, counts, flags), -EAGAIN (depth reached: poll first), -EPERM (after fork),
 * -KVP_E_CANCELLED (closing). Wrong items do not fail the batch: they complete with their status.
 * The length of a block is the sum of its segments: a get of another length gives -KVP_E_SIZE.
 */
KVP_API int kvp_submit(struct kvp_cq *cq, const struct kvp_batch *batch);

/*
 * Takes back the batches of this tag that have no I/O under way: each completes with
 * -KVP_E_CANCELLED. Returns how many; 0: none of that tag, or it is too late for it, and it
 * completes as it would have. -EPERM after fork.
 */
KVP_API int kvp_cancel(struct kvp_cq *cq, uint64_t tag);

/*
 * Waits until no operation of the queue will touch [addr, addr+len) any more, moving the queue on
 * meanwhile; completions stay in it. 0, -KVP_E_TIMEOUT, -EINVAL, -EPERM. Others must not submit
 * new operations there.
 */
KVP_API int kvp_drain(struct kvp_cq *cq, const void *addr, size_t len, uint32_t timeout_ms);

/* --- leases and views ----------------------------------------------------------------------------
 *
 * A lease ends when it is released, when its time is over, or when this client's connection to the
 * node breaks; the nodes end those of dead clients at once, and operators can end any. What it
 * held is then evicted like everything else. So a get after it may be a miss, and is never wrong.
 */

/* Gives a lease of a completion back. Never fails and never blocks; once more, or late, is fine. */
KVP_API void kvp_release(struct kvp_client *client, uint64_t lease);

struct kvp_view;

/* The block's bytes, to be read only, and their number (ret_len NULL: not wanted). They stay
 * readable until the view is released, whatever happens meanwhile. */
KVP_API const void *kvp_view_data(const struct kvp_view *view, uint64_t *ret_len);

/* 1: everything read of the data so far was the block. 0: it is not certain, drop what was made of
 * it. Ask after use: while the lease lasts the answer is 1. Any thread. */
KVP_API int kvp_view_valid(const struct kvp_view *view);

/* Ends it; with the last one of a batch the lease. Before the client is closed. NULL is fine. */
KVP_API void kvp_view_release(struct kvp_view *view);

/* --- blocking
 * ---------------------------------------------------------------------------------------- */

/*
 * Submits on the client's own queue and waits. Returns the completion's status, and *ret_done
 * (NULL: not wanted). Any number of threads; they take turns.
 */
KVP_API int kvp_run(
	struct kvp_client *client, const struct kvp_batch *batch, struct kvp_completion *ret_done);

/* One block, contiguous. Status of the item. buf must be registered. */
KVP_API int kvp_get(struct kvp_client *client, const struct kvp_namespace *ns, const void *key,
	size_t key_len, void *buf, size_t len);
KVP_API int kvp_put(struct kvp_client *client, const struct kvp_namespace *ns, const void *key,
	size_t key_len, const void *buf, size_t len);
KVP_API int kvp_delete(
	struct kvp_client *client, const struct kvp_namespace *ns, const void *key, size_t key_len);

/*
 * Older epochs of a namespace are over: ns is the one with the new epoch (kvp_namespace_make).
 * Every node that is known forgets the blocks of older epochs, a few at a time, and refuses their
 * writers with -KVP_E_EPOCH, also after a restart. 0: all have; else the first error: a node that
 * was not reached learns it with the first put of the new epoch. Readers of the new epoch see no
 * older block in any case. -KVP_E_EPOCH: a node knows a newer one; -KVP_E_NAMESPACE: epoch 0.
 */
KVP_API int kvp_clear(
	struct kvp_client *client, const struct kvp_namespace *ns, uint32_t timeout_ms);

/* How many of these keys, from the first on, the pool holds; or a negative error. keys: key_count
 * times key_len bytes, packed. */
KVP_API int kvp_match(struct kvp_client *client, const struct kvp_namespace *ns, const void *keys,
	size_t key_len, uint32_t key_count);

/* --- statistics
 * --------------------------------------------------------------------------------------- */

/* Since open; monotonic. struct_size as above. */
struct kvp_client_stats {
	size_t struct_size;
	uint64_t gets, get_hits, get_misses, get_errors; /* items; gets = hits + misses + errors */
	uint64_t puts, put_stored, put_exists, put_errors;
	uint64_t bytes_read_local, bytes_read_remote, bytes_written_local, bytes_written_remote;
	uint64_t stale;         /* reads that met a changed entry and looked the key up again */
	uint64_t bad_checksums; /* reads whose payload did not match: dropped */
	uint64_t lookups;       /* keys asked of metadata servers */
	uint64_t cache_hits;    /* keys found in the location cache */
	uint64_t reconnects;
	uint64_t unindexed;
};
KVP_API void kvp_client_stats_get(struct kvp_client *client, struct kvp_client_stats *ret_stats);

#ifdef __cplusplus
}
#endif

#endif /* KVPOOL_H */
