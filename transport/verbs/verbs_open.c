/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs_open.c - choosing a device, opening and closing an xport.
 *
 * Devices are opened by the connection manager's library, because its connections use its own
 * contexts.
 */
#include "transport/verbs/verbs.h"

#include "hal/base/assert.h"
#include "hal/base/err.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* Asked first because the connection manager's library writes to stderr where there is none. */
static bool
device_exists(void)
{
	int count = 0;
	struct ibv_device **list = verbs_lib()->get_device_list(&count);

	if (list == NULL) {
		return false;
	}
	verbs_lib()->free_device_list(list);
	return count > 0;
}

/* Is name this device, or the network interface that it sits on? */
static bool
device_is(struct ibv_context *ctx, const char *name)
{
	const char *own = verbs_lib()->get_device_name(ctx->device);
	char path[160];
	char netdev[64] = "";
	FILE *file;

	if (strcmp(own, name) == 0) {
		return true;
	}
	(void)snprintf(
		path, sizeof(path), "/sys/class/infiniband/%.64s/ports/1/gid_attrs/ndevs/0", own);
	file = fopen(path, "re");
	if (file == NULL) {
		return false;
	}
	if (fgets(netdev, sizeof(netdev), file) != NULL) {
		netdev[strcspn(netdev, "\n")] = '\0';
	}
	(void)fclose(file);
	return netdev[0] != '\0' && strcmp(netdev, name) == 0;
}

/* The first port that is up. */
static bool
device_port(struct ibv_context *ctx, struct verbs_domain *dom)
{
	if (verbs_lib()->query_device(ctx, &dom->attr) != 0) {
		return false;
	}
	for (uint8_t port = 1; port <= dom->attr.phys_port_cnt; port++) {
		memset(&dom->port_attr, 0, sizeof(dom->port_attr));
		if (verbs_lib()->query_port(ctx, port, &dom->port_attr) == 0 &&
			dom->port_attr.state == IBV_PORT_ACTIVE) {
			dom->ctx = ctx;
			dom->port = port;
			return true;
		}
	}
	return false;
}

static int
device_choose(struct verbs_domain *dom, const char *device, const struct kvp_log *log)
{
	bool found = false;

	if (!device_exists()) {
		kvp_info(log, "verbs is not usable: no RDMA device");
		return -KVP_E_NO_PROVIDER;
	}
	dom->devices = verbs_lib()->get_devices(NULL);
	if (dom->devices == NULL) {
		kvp_warn(log, "verbs is not usable: connection manager: %s", strerror(errno));
		return -KVP_E_NO_PROVIDER;
	}
	for (size_t i = 0; dom->devices[i] != NULL && dom->ctx == NULL; i++) {
		if (device == NULL || device_is(dom->devices[i], device)) {
			found = true;
			(void)device_port(dom->devices[i], dom);
		}
	}
	if (dom->ctx == NULL) {
		kvp_warn(log, "verbs device %s: %s", device != NULL ? device : "any",
			found ? "no port is up" : "not found");
		return -KVP_E_NO_PROVIDER;
	}
	return 0;
}

static uint32_t
at_most(uint64_t value, uint32_t max)
{
	return value < max ? (uint32_t)value : max;
}

/* Does the device carry our largest operation? */
static int
limits_set(struct verbs_domain *dom, const struct kvp_log *log)
{
	const struct ibv_device_attr *attr = &dom->attr;
	uint32_t sges = at_most((uint32_t)attr->max_sge, VERBS_SGE_MAX);
	uint64_t need;

	if (attr->max_sge_rd > 0) {
		sges = at_most((uint32_t)attr->max_sge_rd, sges);
	}
	dom->sge_max = sges;
	dom->wr_max = at_most((uint32_t)attr->max_qp_wr, VERBS_WR_MAX);
	dom->msg_len_max = dom->port_attr.max_msg_sz;
	dom->has_windows = (attr->device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B) != 0;
	need = sges > 0 && dom->msg_len_max > 0
		       ? KVP_SEGS_MAX / sges + KVP_BLOCK_LEN_MAX / dom->msg_len_max + 4
		       : UINT64_MAX;
	if (dom->wr_max < need || attr->max_cqe < (int)dom->wr_max) {
		kvp_warn(log,
			"verbs device %s: limit too small: %d work requests of %d segments and "
			"%u bytes, %d completions",
			verbs_lib()->get_device_name(dom->ctx->device), attr->max_qp_wr,
			attr->max_sge, dom->port_attr.max_msg_sz, attr->max_cqe);
		return -KVP_E_NO_PROVIDER;
	}
	return 0;
}

static void
domain_unref(struct verbs_domain *dom)
{
	if (dom == NULL || atomic_fetch_sub(&dom->refs, 1) != 1) {
		return;
	}
	kvp_assert(atomic_load(&dom->mr_count) == 0);
	if (dom->pd != NULL) {
		kvp_assert(verbs_lib()->dealloc_pd(dom->pd) == 0); /* something still uses it */
	}
	if (dom->devices != NULL) {
		verbs_lib()->free_devices(dom->devices);
	}
	(void)pthread_mutex_destroy(&dom->lock);
	free(dom);
}

static int
domain_open(const struct verbs_xport *x, const char *device, struct verbs_domain **ret_dom)
{
	struct verbs_domain *dom = calloc(1, sizeof(*dom));
	int ret;

	if (dom == NULL) {
		return -ENOMEM;
	}
	atomic_store(&dom->refs, 1);
	(void)pthread_mutex_init(&dom->lock, NULL); /* never fails on Linux */
	x->env->random(x->env, &dom->id, sizeof(dom->id));
	ret = device_choose(dom, device, x->log);
	if (ret == 0) {
		ret = limits_set(dom, x->log);
	}
	if (ret == 0) {
		dom->pd = verbs_lib()->alloc_pd(dom->ctx);
		if (dom->pd == NULL) {
			kvp_warn(x->log, "verbs protection domain: %s", strerror(errno));
			ret = -KVP_E_NO_PROVIDER;
		}
	}
	if (ret != 0) {
		domain_unref(dom);
		return ret;
	}
	kvp_info(x->log, "verbs device %s port %u mtu %u max message %llu windows %s",
		verbs_lib()->get_device_name(dom->ctx->device), dom->port,
		128u << dom->port_attr.active_mtu, (unsigned long long)dom->msg_len_max,
		dom->has_windows ? "type 2B" : "none");
	*ret_dom = dom;
	return 0;
}

int
verbs_device_addr(const struct verbs_domain *dom, int family, struct sockaddr_storage *ret_addr)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	struct sockaddr_in in = {.sin_family = AF_INET};
	struct sockaddr_in6 in6 = {.sin6_family = AF_INET6};

	for (int i = 0; i < dom->port_attr.gid_tbl_len; i++) {
		union ibv_gid gid;

		if (verbs_lib()->query_gid(dom->ctx, dom->port, i, &gid) != 0) {
			continue;
		}
		if (memcmp(gid.raw, mapped, sizeof(mapped)) == 0) {
			if (family == AF_INET) {
				memcpy(&in.sin_addr, gid.raw + 12, sizeof(in.sin_addr));
				memcpy(ret_addr, &in, sizeof(in));
				return 0;
			}
		} else if (family == AF_INET6 && gid.raw[0] != 0 && gid.raw[0] != 0xfe) {
			memcpy(&in6.sin6_addr, gid.raw, sizeof(in6.sin6_addr));
			memcpy(ret_addr, &in6, sizeof(in6));
			return 0;
		}
	}
	return -EADDRNOTAVAIL;
}

static int
fd_nonblock(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0 ? -errno : 0;
}

struct rdma_event_channel *
verbs_events_open(void)
{
	struct rdma_event_channel *events = verbs_lib()->create_event_channel();

	if (events != NULL && fd_nonblock(events->fd) != 0) {
		verbs_lib()->destroy_event_channel(events);
		return NULL;
	}
	return events;
}

static int
queue_open(struct verbs_xport *x)
{
	const char *what = "event channel";

	x->cq_len = at_most((uint32_t)x->dom->attr.max_cqe, VERBS_CQ_LEN);
	x->events = verbs_events_open();
	if (x->events != NULL) {
		what = "completion channel";
		x->channel = verbs_lib()->create_comp_channel(x->dom->ctx);
	}
	if (x->channel != NULL) {
		what = "completion queue";
		x->cq = verbs_lib()->create_cq(x->dom->ctx, (int)x->cq_len, NULL, x->channel, 0);
	}
	if (x->cq != NULL) {
		what = "landing buffer";
		x->flush_mr = verbs_reg(
			x->dom->pd, x->flush_buf, sizeof(x->flush_buf), IBV_ACCESS_LOCAL_WRITE);
	}
	if (x->flush_mr == NULL) {
		int err = errno;

		kvp_warn(x->log, "verbs %s: %s", what, strerror(err));
		return err == ENOMEM ? -ENOMEM : -KVP_E_NO_PROVIDER;
	}
	return fd_nonblock(x->channel->fd);
}

static int
wait_open(struct verbs_xport *x)
{
	struct epoll_event event = {.events = EPOLLIN};

	x->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	x->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (x->epoll_fd < 0 || x->timer_fd < 0 ||
		epoll_ctl(x->epoll_fd, EPOLL_CTL_ADD, x->timer_fd, &event) != 0 ||
		epoll_ctl(x->epoll_fd, EPOLL_CTL_ADD, x->events->fd, &event) != 0 ||
		epoll_ctl(x->epoll_fd, EPOLL_CTL_ADD, x->channel->fd, &event) != 0) {
		return -errno;
	}
	return 0;
}

/* What is to be opened: the shared domain or a new one. */
static int
domain_get(struct verbs_xport *x, const struct kvp_xport_cfg *cfg)
{
	if (cfg->share != NULL) {
		kvp_assert(cfg->share->ops == &kvp_xport_verbs);
		x->dom = verbs_of(cfg->share)->dom;
		x->has_device = verbs_of(cfg->share)->has_device;
		atomic_fetch_add(&x->dom->refs, 1);
		return 0;
	}
	x->has_device = cfg->device != NULL;
	return domain_open(x, cfg->device, &x->dom);
}

static int
tables_open(struct verbs_xport *x, const struct kvp_xport_cfg *cfg)
{
	x->io_depth = at_most(cfg->io_depth != 0 ? cfg->io_depth : 64, UINT16_MAX);
	x->conns_max = at_most(cfg->conns_max != 0 ? cfg->conns_max : 1024, UINT16_MAX);
	x->sge_count = KVP_SEGS_MAX + 2 * x->dom->wr_max; /* a split adds one on each side */
	x->conns = calloc(x->conns_max, sizeof(x->conns[0]));
	x->wrs = calloc(x->dom->wr_max, sizeof(x->wrs[0]));
	x->sges = calloc(x->sge_count, sizeof(x->sges[0]));
	return x->conns != NULL && x->wrs != NULL && x->sges != NULL ? 0 : -ENOMEM;
}

int
verbs_open(const struct kvp_xport_cfg *cfg, struct kvp_xport **ret_xport)
{
	struct verbs_xport *x;
	int ret;

	ret = verbs_lib_load(cfg->log);
	if (ret != 0) {
		return ret;
	}
	x = calloc(1, sizeof(*x));
	if (x == NULL) {
		return -ENOMEM;
	}
	x->base.ops = &kvp_xport_verbs;
	x->env = cfg->env != NULL ? cfg->env : kvp_env_real();
	x->log = cfg->log;
	x->epoll_fd = -1;
	x->timer_fd = -1;
	kvp_list_init(&x->connecting);
	kvp_list_init(&x->ready);
	ret = domain_get(x, cfg);
	if (ret == 0) {
		ret = tables_open(x, cfg);
	}
	if (ret == 0) {
		ret = queue_open(x);
	}
	if (ret == 0) {
		ret = wait_open(x);
	}
	if (ret != 0) {
		verbs_close(&x->base);
		return ret;
	}
	*ret_xport = &x->base;
	return 0;
}

void
verbs_close(struct kvp_xport *xport)
{
	struct verbs_xport *x;

	if (xport == NULL) {
		return;
	}
	x = verbs_of(xport);
	kvp_assert(x->conn_count == 0);
	kvp_assert(kvp_list_empty(&x->ready));
	verbs_target_close(x->target);
	if (x->flush_mr != NULL) {
		kvp_assert(verbs_lib()->dereg_mr(x->flush_mr) == 0);
	}
	if (x->cq != NULL) {
		kvp_assert(verbs_lib()->destroy_cq(x->cq) == 0);
	}
	if (x->channel != NULL) {
		kvp_assert(verbs_lib()->destroy_comp_channel(x->channel) == 0);
	}
	if (x->events != NULL) {
		verbs_lib()->destroy_event_channel(x->events);
	}
	if (x->epoll_fd >= 0) {
		(void)close(x->epoll_fd);
	}
	if (x->timer_fd >= 0) {
		(void)close(x->timer_fd);
	}
	domain_unref(x->dom);
	free(x->conns);
	free(x->wrs);
	free(x->sges);
	free(x);
}

const struct kvp_xport_ops kvp_xport_verbs = {
	.name = "verbs",
	/* Not ORDERED: requests are executed in order, memory is fetched in any. */
	.caps = KVP_XPORT_READ | KVP_XPORT_WRITE,
	.open = verbs_open,
	.close = verbs_close,
	.mr_reg = verbs_mr_reg,
	.mr_dereg = verbs_mr_dereg,
	.mr_rdesc = verbs_mr_rdesc,
	.listen = verbs_listen,
	.admit = verbs_admit,
	.fence = verbs_fence,
	.connect = verbs_connect,
	.disconnect = verbs_disconnect,
	.read = verbs_read,
	.write = verbs_write,
	.poll = verbs_poll,
	.wait_fd = verbs_wait_fd,
};
