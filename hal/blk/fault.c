/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fault.c - fails, delays and forgets on demand, around another engine.
 *
 * Before a write reaches the inner engine, the bytes under it are kept, once for each 4 KiB and
 * flush. A good flush drops what was kept; a power cut puts some of it back. Owner thread only.
 */
#include "hal/blk/fault.h"
#include "hal/base/assert.h"
#include "hal/base/err.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern const struct kvp_blk_ops kvp_blk_threads;

#define FAULT_UNIT   KVP_BLK_ALIGN
#define FAULT_SECTOR 512u

/* kvp_blk_req.eng */
#define FAULT_DUE 0 /* when the answer may go up */
#define FAULT_CUT 1 /* what a short request answers plus 1; 0: not short */

enum unit_state {
	UNIT_CLEAN,
	UNIT_DIRTY,     /* written since the last flush */
	UNIT_IN_DANGER, /* a flush of it failed: a good one does not save it */
};

struct fault_file {
	uint8_t *state; /* enum unit_state, one a unit */
	char **old;     /* the unit's bytes as of the last flush, NULL when clean */
	uint64_t units;
};

struct fault {
	struct kvp_blk_engine engine;
	struct kvp_blk_fault *plan;
	struct kvp_blk_engine *inner;
	struct kvp_blk_engine_cfg cfg; /* its fds, clock, log */
	uint32_t writes;               /* at the inner engine */
	bool flushing;                 /* a flush is there */
	bool dead;                     /* after the power cut */
	struct kvp_list gate;          /* writes and flushes that wait for each other */
	struct kvp_list ended;         /* answers, held back until they are due */
	char *scratch;                 /* io_max bytes, aligned */
	struct fault_file files[KVP_BLK_FILES_MAX];
};

static struct fault *
fault_of(struct kvp_blk_engine *engine)
{
	return kvp_container_of(engine, struct fault, engine);
}

static uint64_t
fault_next(uint64_t *seed)
{
	uint64_t v = *seed += 0x9e3779b97f4a7c15ull;

	v = (v ^ (v >> 30)) * 0xbf58476d1ce4e5b9ull;
	v = (v ^ (v >> 27)) * 0x94d049bb133111ebull;
	return v ^ (v >> 31);
}

static void
fault_files_free(struct fault *f)
{
	for (uint32_t i = 0; i < f->cfg.file_count; i++) {
		struct fault_file *file = &f->files[i];

		for (uint64_t unit = 0; file->old != NULL && unit < file->units; unit++) {
			free(file->old[unit]);
		}
		free(file->old);
		free(file->state);
	}
}

static int
fault_files_new(struct fault *f)
{
	for (uint32_t i = 0; i < f->cfg.file_count; i++) {
		struct fault_file *file = &f->files[i];

		file->units = f->cfg.bytes[i] / FAULT_UNIT;
		file->state = calloc(file->units, sizeof(*file->state));
		file->old = calloc(file->units, sizeof(*file->old));
		if (file->state == NULL || file->old == NULL) {
			return -ENOMEM;
		}
	}
	return 0;
}

static int
fault_open(const struct kvp_blk_engine_cfg *cfg, struct kvp_blk_engine **ret_engine)
{
	struct kvp_blk_fault *plan = cfg->arg;
	const struct kvp_blk_ops *inner = plan->inner != NULL ? plan->inner : &kvp_blk_threads;
	struct fault *f = calloc(1, sizeof(*f));
	struct kvp_blk_engine_cfg inner_cfg = *cfg;
	int ret = -ENOMEM;

	if (f == NULL) {
		return -ENOMEM;
	}
	f->engine.ops = &kvp_blk_fault;
	f->plan = plan;
	f->cfg = *cfg;
	kvp_list_init(&f->gate);
	kvp_list_init(&f->ended);
	f->scratch = aligned_alloc(KVP_BLK_ALIGN, cfg->io_max);
	if (f->scratch == NULL || fault_files_new(f) < 0) {
		goto err_free;
	}
	inner_cfg.arg = NULL;
	ret = inner->open(&inner_cfg, &f->inner);
	if (ret < 0) {
		goto err_free;
	}
	plan->engine = &f->engine;
	*ret_engine = &f->engine;
	return 0;
err_free:
	fault_files_free(f);
	free(f->scratch);
	free(f);
	return ret;
}

static void
fault_close(struct kvp_blk_engine *engine)
{
	struct fault *f = fault_of(engine);

	kvp_assert(kvp_list_empty(&f->gate) && kvp_list_empty(&f->ended));
	f->inner->ops->close(f->inner);
	f->plan->engine = NULL;
	fault_files_free(f);
	free(f->scratch);
	free(f);
}

static int
fault_buf_reg(struct kvp_blk_engine *engine, uint32_t slice, void *base, size_t len)
{
	struct fault *f = fault_of(engine);

	if (f->inner->ops->buf_reg == NULL) {
		return 0;
	}
	return f->inner->ops->buf_reg(f->inner, slice, base, len);
}

static void
fault_buf_dereg(struct kvp_blk_engine *engine, uint32_t slice)
{
	struct fault *f = fault_of(engine);

	if (f->inner->ops->buf_dereg != NULL) {
		f->inner->ops->buf_dereg(f->inner, slice);
	}
}

/* All of len bytes at off, or an error. The test engine may block. */
static int
fault_move(int fd, bool write, char *buf, uint64_t len, uint64_t off)
{
	while (len > 0) {
		ssize_t ret =
			write ? pwrite(fd, buf, len, (off_t)off) : pread(fd, buf, len, (off_t)off);

		if (ret < 0 && errno == EINTR) {
			continue;
		}
		if (ret <= 0) {
			return ret < 0 ? -errno : -EIO;
		}
		buf += ret;
		off += (uint64_t)ret;
		len -= (uint64_t)ret;
	}
	return 0;
}

/* Keeps what the write is about to cover. */
static int
fault_keep(struct fault *f, const struct kvp_blk_req *req)
{
	struct fault_file *file = &f->files[req->file];
	uint64_t first = req->off / FAULT_UNIT;
	int ret = fault_move(f->cfg.fds[req->file], false, f->scratch, req->len, req->off);

	if (ret < 0) {
		return ret;
	}
	for (uint64_t i = 0; i < req->len / FAULT_UNIT; i++) {
		file->state[first + i] = UNIT_DIRTY;
		if (file->old[first + i] != NULL) {
			continue;
		}
		file->old[first + i] = malloc(FAULT_UNIT);
		if (file->old[first + i] == NULL) {
			return -ENOMEM;
		}
		memcpy(file->old[first + i], f->scratch + i * FAULT_UNIT, FAULT_UNIT);
	}
	return 0;
}

static void
fault_flushed(struct fault_file *file, bool good)
{
	for (uint64_t i = 0; i < file->units; i++) {
		if (file->state[i] != UNIT_DIRTY) {
			continue;
		}
		file->state[i] = good ? UNIT_CLEAN : UNIT_IN_DANGER;
		if (good) {
			free(file->old[i]);
			file->old[i] = NULL;
		}
	}
}

static void
fault_end(struct fault *f, struct kvp_blk_req *req, int32_t res)
{
	req->res = res;
	req->eng[FAULT_DUE] = 0;
	if (f->plan->delay_ns > 0) {
		req->eng[FAULT_DUE] = kvp_now_ns(f->cfg.env) + f->plan->delay_ns;
	}
	if (req->op == KVP_BLK_FLUSH) {
		fault_flushed(&f->files[req->file], res == 0);
	}
	kvp_list_push_back(&f->ended, &req->link);
}

/* Is it this request's turn to fail? */
static bool
fault_takes(struct kvp_blk_fault *plan, const struct kvp_blk_req *req)
{
	if (plan->nth == 0 || (plan->ops != 0 && (plan->ops & (1u << req->op)) == 0)) {
		return false;
	}
	if (plan->nth > 1) {
		plan->nth--;
		return false;
	}
	if (plan->again > 0) {
		plan->again--;
	} else {
		plan->nth = 0;
	}
	plan->failed++;
	return true;
}

static void
fault_forward(struct fault *f, struct kvp_blk_req *req)
{
	struct kvp_list one;

	kvp_list_init(&one);
	kvp_list_push_back(&one, &req->link);
	f->plan->flight++;
	f->inner->ops->post(f->inner, &one);
}

/* Lets through what may go: no write beside a flush. */
static void
fault_pump(struct fault *f)
{
	while (!kvp_list_empty(&f->gate) && !f->flushing) {
		struct kvp_blk_req *req = kvp_container_of(f->gate.next, struct kvp_blk_req, link);
		int ret = 0;

		if (req->op == KVP_BLK_FLUSH && f->writes > 0) {
			return;
		}
		kvp_list_remove(&req->link);
		if (req->op == KVP_BLK_WRITE) {
			ret = fault_keep(f, req);
		}
		if (ret < 0) {
			fault_end(f, req, ret);
			continue;
		}
		if (req->op == KVP_BLK_FLUSH) {
			f->flushing = true;
		} else {
			f->writes++;
		}
		fault_forward(f, req);
	}
}

static void
fault_start(struct fault *f, struct kvp_blk_req *req)
{
	struct kvp_blk_fault *plan = f->plan;
	bool fails = !f->dead && fault_takes(plan, req);

	req->eng[FAULT_CUT] = 0;
	if (f->dead || (fails && (plan->err < 0 || req->op == KVP_BLK_FLUSH))) {
		fault_end(f, req, f->dead || plan->err == 0 ? -EIO : plan->err);
		return;
	}
	if (fails && plan->short_len < req->len) {
		uint32_t whole = plan->short_len - plan->short_len % FAULT_UNIT;

		if (whole == 0) {
			fault_end(f, req, (int32_t)plan->short_len);
			return;
		}
		req->eng[FAULT_CUT] = (uint64_t)req->len << 32 | (plan->short_len + 1u);
		req->len = whole;
	}
	if (req->op == KVP_BLK_READ) {
		fault_forward(f, req);
	} else {
		kvp_list_push_back(&f->gate, &req->link);
	}
}

static void
fault_post(struct kvp_blk_engine *engine, struct kvp_list *reqs)
{
	struct fault *f = fault_of(engine);
	struct kvp_list *link;

	while ((link = kvp_list_pop_front(reqs)) != NULL) {
		fault_start(f, kvp_container_of(link, struct kvp_blk_req, link));
	}
	fault_pump(f);
}

static void
fault_reap(struct fault *f)
{
	struct kvp_list reaped;
	struct kvp_list *link;

	kvp_list_init(&reaped);
	f->inner->ops->poll(f->inner, &reaped);
	while ((link = kvp_list_pop_front(&reaped)) != NULL) {
		struct kvp_blk_req *req = kvp_container_of(link, struct kvp_blk_req, link);
		bool whole = req->res == (int32_t)req->len;
		uint64_t cut = req->eng[FAULT_CUT];

		f->plan->flight--;
		if (req->op == KVP_BLK_FLUSH) {
			f->flushing = false;
		} else if (req->op == KVP_BLK_WRITE) {
			f->writes--;
		}
		if (cut != 0) {
			req->len = (uint32_t)(cut >> 32);
			req->res = whole ? (int32_t)((uint32_t)cut - 1) : req->res;
		}
		fault_end(f, req, req->res);
	}
}

static void
fault_poll(struct kvp_blk_engine *engine, struct kvp_list *ret_reqs)
{
	struct fault *f = fault_of(engine);
	uint64_t now = 0;

	fault_reap(f);
	fault_pump(f);
	kvp_list_for_each_safe (link, &f->ended) {
		struct kvp_blk_req *req = kvp_container_of(link, struct kvp_blk_req, link);

		if (req->eng[FAULT_DUE] > 0 && now == 0) {
			now = kvp_now_ns(f->cfg.env);
		}
		if (req->eng[FAULT_DUE] <= now) {
			kvp_list_remove(link);
			kvp_list_push_back(ret_reqs, link);
		}
	}
}

static int
fault_wait_fd(struct kvp_blk_engine *engine)
{
	struct fault *f = fault_of(engine);

	if (!kvp_list_empty(&f->ended)) {
		return -EAGAIN; /* late ones too: nothing else would wake for them */
	}
	return f->inner->ops->wait_fd(f->inner);
}

/* Puts one unit as the power cut leaves it. */
static int
fault_tear(const struct fault *f, uint32_t idx, uint64_t unit, uint64_t *seed)
{
	const char *old = f->files[idx].old[unit];
	uint64_t off = unit * FAULT_UNIT;
	uint64_t kind = fault_next(seed) % 3;
	uint64_t sectors = kind == 0 ? 0 : kind == 1 ? UINT64_MAX : fault_next(seed);
	int ret;

	if (sectors == 0) {
		return 0; /* all new */
	}
	ret = fault_move(f->cfg.fds[idx], false, f->scratch, FAULT_UNIT, off);
	if (ret < 0) {
		return ret;
	}
	for (uint32_t i = 0; i < FAULT_UNIT / FAULT_SECTOR; i++) {
		if ((sectors >> i & 1) != 0) {
			memcpy(f->scratch + i * FAULT_SECTOR, old + i * FAULT_SECTOR, FAULT_SECTOR);
		}
	}
	return fault_move(f->cfg.fds[idx], true, f->scratch, FAULT_UNIT, off);
}

/* Everything in flight is answered, with an error. */
static void
fault_drain(struct fault *f)
{
	struct kvp_list *link;

	while (f->plan->flight > 0) {
		struct pollfd pfd = {.fd = f->inner->ops->wait_fd(f->inner), .events = POLLIN};

		if (pfd.fd >= 0) {
			(void)poll(&pfd, 1, -1); /* EINTR: the loop comes again */
		}
		/* What waits at the gate never went out. */
		fault_reap(f);
	}
	while ((link = kvp_list_pop_front(&f->gate)) != NULL) {
		kvp_list_push_back(&f->ended, link);
	}
	kvp_list_for_each (ended, &f->ended) {
		struct kvp_blk_req *req = kvp_container_of(ended, struct kvp_blk_req, link);

		req->res = -EIO;
		req->eng[FAULT_DUE] = 0;
	}
}

int
kvp_blk_fault_power_cut(struct kvp_blk_fault *plan, uint64_t seed)
{
	struct fault *f;
	int ret = 0;

	kvp_assert(plan->engine != NULL);
	f = fault_of(plan->engine);
	kvp_assert(!f->dead);
	fault_drain(f);
	f->dead = true;
	for (uint32_t i = 0; i < f->cfg.file_count; i++) {
		for (uint64_t unit = 0; unit < f->files[i].units; unit++) {
			if (f->files[i].state[unit] != UNIT_CLEAN && ret == 0) {
				ret = fault_tear(f, i, unit, &seed);
			}
		}
	}
	return ret;
}

const struct kvp_blk_ops kvp_blk_fault = {
	.name = "fault",
	.open = fault_open,
	.close = fault_close,
	.buf_reg = fault_buf_reg,
	.buf_dereg = fault_buf_dereg,
	.post = fault_post,
	.poll = fault_poll,
	.wait_fd = fault_wait_fd,
};
