/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm_open.c - opening and closing an xport of the same host. Needs no library and no device.
 */
#include "transport/shm/shm.h"

#include "hal/base/assert.h"
#include "hal/base/err.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

static void
shm_close(struct kvp_xport *xport)
{
	struct shm_xport *x;

	if (xport == NULL) {
		return;
	}
	x = shm_of(xport);
	kvp_assert(x->conn_count == 0);
	kvp_assert(kvp_list_empty(&x->queue) && kvp_list_empty(&x->ready));
	kvp_assert(atomic_load(&x->mr_count) == 0);
	shm_target_close(x->target);
	if (x->epoll_fd >= 0) {
		(void)close(x->epoll_fd);
	}
	if (x->timer_fd >= 0) {
		(void)close(x->timer_fd);
	}
	free(x->segs);
	free(x);
}

static int
wait_open(struct shm_xport *x)
{
	struct epoll_event event = {.events = EPOLLIN};

	x->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	x->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (x->epoll_fd < 0 || x->timer_fd < 0 ||
		epoll_ctl(x->epoll_fd, EPOLL_CTL_ADD, x->timer_fd, &event) != 0) {
		return -errno;
	}
	return 0;
}

static int
shm_open_xport(const struct kvp_xport_cfg *cfg, struct kvp_xport **ret_xport)
{
	struct shm_xport *x = calloc(1, sizeof(*x));
	int ret;

	if (x == NULL) {
		return -ENOMEM;
	}
	/* Any address works on any xport: sharing needs nothing. */
	kvp_assert(cfg->share == NULL || cfg->share->ops == &kvp_xport_shm);
	x->base.ops = &kvp_xport_shm;
	x->env = cfg->env != NULL ? cfg->env : kvp_env_real();
	x->log = cfg->log;
	x->lock_prefix = cfg->lock_prefix != NULL ? cfg->lock_prefix : "";
	x->io_depth = cfg->io_depth != 0 ? cfg->io_depth : 64;
	x->conns_max = cfg->conns_max != 0 ? cfg->conns_max : 1024;
	x->epoll_fd = -1;
	x->timer_fd = -1;
	kvp_list_init(&x->connecting);
	kvp_list_init(&x->queue);
	kvp_list_init(&x->ready);
	ret = -ENOMEM;
	x->segs = calloc(SHM_SEG_RING, sizeof(x->segs[0]));
	if (x->segs == NULL) {
		goto err_close;
	}
	x->target = shm_target_new(x);
	if (x->target == NULL) {
		goto err_close;
	}
	ret = wait_open(x);
	if (ret != 0) {
		goto err_close;
	}
	*ret_xport = &x->base;
	return 0;

err_close:
	shm_close(&x->base);
	return ret;
}

const struct kvp_xport_ops kvp_xport_shm = {
	.name = "shm",
	.caps = KVP_XPORT_READ | KVP_XPORT_WRITE | KVP_XPORT_ORDERED | KVP_XPORT_LOCAL,
	.open = shm_open_xport,
	.close = shm_close,
	.mr_reg = shm_mr_reg,
	.mr_dereg = shm_mr_dereg,
	.mr_rdesc = shm_mr_rdesc,
	.listen = shm_listen,
	.admit = shm_admit,
	.fence = shm_fence,
	.connect = shm_connect,
	.disconnect = shm_disconnect,
	.read = shm_read,
	.map = shm_map,
	.unmap = shm_unmap,
	.write = shm_write,
	.poll = shm_poll,
	.wait_fd = shm_wait_fd,
};
