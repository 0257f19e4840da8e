/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ofi_open.c - choosing a provider, opening and closing an xport.
 */
#include "transport/ofi/ofi.h"

#include "hal/base/assert.h"
#include "hal/base/err.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* Providers that must not be used although they offer what we ask for: their data path is broken
 * or cannot drop one peer for certain. */
static const char *const refused[] = {
	"shm", "udp", "sockets", "efa", "psm2", "psm3", "opx", "ofi_rxm", "ofi_rxd", "rxm", "rxd"};

static bool
provider_refused(const char *name)
{
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		size_t len = strlen(refused[i]);

		for (const char *at = name; (at = strstr(at, refused[i])) != NULL; at += len) {
			bool starts = at == name || at[-1] == ';';

			if (starts && (at[len] == '\0' || at[len] == ';')) {
				return true;
			}
		}
	}
	return false;
}

int
ofi_error(int fi_err)
{
	int err = fi_err < 0 ? -fi_err : fi_err;

	if (err == 0) {
		return 0;
	}
	return err < FI_ERRNO_OFFSET ? -err : -EIO;
}

static int
domain_info(const char *provider, const char *device, const struct kvp_log *log,
	struct fi_info **ret_info)
{
	struct fi_info *hints = ofi_hints(provider, device);
	struct fi_info *list = NULL;
	int ret;

	if (hints == NULL) {
		return -ENOMEM;
	}
	ret = ofi_lib()->getinfo(OFI_API_VERSION, NULL, NULL, 0, hints, &list);
	ofi_lib()->freeinfo(hints);
	if (ret != 0) {
		kvp_warn(log,
			"ofi provider %s device %s: no reliable endpoint with remote memory "
			"access: %s",
			provider, device != NULL ? device : "any", ofi_lib()->strerror(-ret));
		return -KVP_E_NO_PROVIDER;
	}
	*ret_info = ofi_lib()->dupinfo(list); /* the first one alone */
	ofi_lib()->freeinfo(list);
	return *ret_info != NULL ? 0 : -ENOMEM;
}

/* Does what was found carry our largest operation? */
static int
info_check(const struct fi_info *info, const struct kvp_log *log)
{
	size_t iov =
		info->tx_attr->iov_limit < OFI_IOV_MAX ? info->tx_attr->iov_limit : OFI_IOV_MAX;
	uint64_t ops;

	if (provider_refused(info->fabric_attr->prov_name)) {
		kvp_warn(log, "ofi provider %s is refused: it cannot fence one peer or loses data",
			info->fabric_attr->prov_name);
		return -KVP_E_NO_PROVIDER;
	}
	if (iov == 0 || info->ep_attr->max_msg_size == 0 ||
		info->domain_attr->mr_key_size > sizeof(uint64_t)) {
		kvp_warn(log, "ofi provider %s: no scatter lists or keys over 64 bits",
			info->fabric_attr->prov_name);
		return -KVP_E_NO_PROVIDER;
	}
	ops = (KVP_SEGS_MAX + iov - 1) / iov + KVP_BLOCK_LEN_MAX / info->ep_attr->max_msg_size;
	if (info->tx_attr->size < ops) {
		kvp_warn(log, "ofi provider %s: queue of %zu, one operation may need %llu",
			info->fabric_attr->prov_name, info->tx_attr->size, (unsigned long long)ops);
		return -KVP_E_NO_PROVIDER;
	}
	return 0;
}

static void
domain_unref(struct ofi_domain *dom)
{
	if (dom == NULL || atomic_fetch_sub(&dom->refs, 1) != 1) {
		return;
	}
	kvp_assert(atomic_load(&dom->mr_count) == 0);
	if (dom->domain != NULL) {
		(void)fi_close(&dom->domain->fid); /* nothing left to do about a failure */
	}
	if (dom->fabric != NULL) {
		(void)fi_close(&dom->fabric->fid);
	}
	if (dom->info != NULL) {
		ofi_lib()->freeinfo(dom->info);
	}
	free(dom);
}

static int
domain_open(const char *provider, const char *device, const struct kvp_log *log,
	struct ofi_domain **ret_dom)
{
	struct ofi_domain *dom = calloc(1, sizeof(*dom));
	uint32_t version = ofi_lib()->version();
	int ret;

	if (dom == NULL) {
		return -ENOMEM;
	}
	atomic_store(&dom->refs, 1);
	ret = domain_info(provider, device, log, &dom->info);
	if (ret != 0) {
		goto err_unref;
	}
	ret = info_check(dom->info, log);
	if (ret != 0) {
		goto err_unref;
	}
	ret = ofi_lib()->fabric(dom->info->fabric_attr, &dom->fabric, NULL);
	if (ret == 0) {
		ret = fi_domain(dom->fabric, dom->info, &dom->domain, NULL);
	}
	if (ret != 0) {
		kvp_warn(log, "ofi provider %s does not open: %s", provider,
			ofi_lib()->strerror(-ret));
		ret = -KVP_E_NO_PROVIDER;
		goto err_unref;
	}
	kvp_info(log, "ofi provider %s %u.%u device %s libfabric %u.%u",
		dom->info->fabric_attr->prov_name, FI_MAJOR(dom->info->fabric_attr->prov_version),
		FI_MINOR(dom->info->fabric_attr->prov_version), dom->info->domain_attr->name,
		FI_MAJOR(version), FI_MINOR(version));
	*ret_dom = dom;
	return 0;

err_unref:
	domain_unref(dom);
	return ret;
}

int
ofi_cq_open(struct ofi_domain *dom, size_t len, struct fid_cq **ret_cq, int *ret_fd)
{
	struct fi_cq_attr attr = {
		.size = len, .format = FI_CQ_FORMAT_CONTEXT, .wait_obj = FI_WAIT_FD};
	struct fid_cq *cq;
	int ret = fi_cq_open(dom->domain, &attr, &cq, NULL);

	if (ret != 0) {
		return ret;
	}
	ret = fi_control(&cq->fid, FI_GETWAIT, ret_fd);
	if (ret != 0) {
		(void)fi_close(&cq->fid); /* nobody uses it */
		return ret;
	}
	*ret_cq = cq;
	return 0;
}

int
ofi_queue_open(struct ofi_domain *dom, size_t cq_len, const struct kvp_log *log,
	struct ofi_queue *ret_queue)
{
	struct fi_eq_attr eq_attr = {.wait_obj = FI_WAIT_FD};
	struct ofi_queue queue = {.eq_fd = -1, .cq_fd = -1};
	const char *what = "event queue";
	int ret = fi_eq_open(dom->fabric, &eq_attr, &queue.eq, NULL);

	if (ret == 0 && cq_len > 0) {
		what = "completion queue";
		ret = ofi_cq_open(dom, cq_len, &queue.cq, &queue.cq_fd);
	}
	if (ret == 0) {
		what = "descriptor of the event queue";
		ret = fi_control(&queue.eq->fid, FI_GETWAIT, &queue.eq_fd);
	}
	if (ret != 0) {
		kvp_warn(log, "ofi %s: %s", what, ofi_lib()->strerror(-ret));
		ofi_queue_close(&queue);
		return ofi_error(ret);
	}
	*ret_queue = queue;
	return 0;
}

void
ofi_queue_close(struct ofi_queue *queue)
{
	if (queue->cq != NULL) {
		kvp_assert(fi_close(&queue->cq->fid) == 0); /* an endpoint still uses it */
		queue->cq = NULL;
	}
	if (queue->eq != NULL) {
		kvp_assert(fi_close(&queue->eq->fid) == 0);
		queue->eq = NULL;
	}
}

static int
wait_open(struct ofi_xport *x)
{
	struct epoll_event event = {.events = EPOLLIN};

	x->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	x->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (x->epoll_fd < 0 || x->timer_fd < 0) {
		return -errno;
	}
	if (epoll_ctl(x->epoll_fd, EPOLL_CTL_ADD, x->timer_fd, &event) != 0 ||
		epoll_ctl(x->epoll_fd, EPOLL_CTL_ADD, x->queue.eq_fd, &event) != 0) {
		return -errno;
	}
	return 0;
}

static void
limits_set(struct ofi_xport *x, const struct kvp_xport_cfg *cfg)
{
	const struct fi_info *info = x->dom->info;

	x->io_depth = cfg->io_depth != 0 ? cfg->io_depth : 64;
	x->io_depth = x->io_depth < UINT16_MAX ? x->io_depth : UINT16_MAX;
	x->conns_max = cfg->conns_max != 0 ? cfg->conns_max : 1024;
	x->conns_max = x->conns_max < UINT16_MAX ? x->conns_max : UINT16_MAX;
	x->credits_max = (uint32_t)(info->tx_attr->size < 65536 ? info->tx_attr->size : 65536);
	x->iov_max = (uint32_t)(info->tx_attr->iov_limit < OFI_IOV_MAX ? info->tx_attr->iov_limit
								       : OFI_IOV_MAX);
	x->msg_len_max = info->ep_attr->max_msg_size;
}

/* What is to be opened: the shared domain or a new one. */
static int
domain_get(struct ofi_xport *x, const struct kvp_xport_cfg *cfg)
{
	if (cfg->share != NULL) {
		kvp_assert(cfg->share->ops == &kvp_xport_ofi);
		x->dom = ofi_of(cfg->share)->dom;
		atomic_fetch_add(&x->dom->refs, 1);
		return 0;
	}
	if (provider_refused(x->provider)) {
		kvp_warn(cfg->log,
			"ofi provider %s is refused: it cannot fence one peer or loses data",
			x->provider);
		return -KVP_E_NO_PROVIDER;
	}
	return domain_open(x->provider, x->device, cfg->log, &x->dom);
}

int
ofi_open(const struct kvp_xport_cfg *cfg, struct kvp_xport **ret_xport)
{
	const char *provider = cfg->provider != NULL ? cfg->provider : "tcp";
	const char *lib_error = NULL;
	struct ofi_xport *x;
	int ret = -ENOMEM;

	if (ofi_lib_load(&lib_error) != 0) {
		kvp_warn(cfg->log, "ofi is not usable: %s", lib_error);
		return -KVP_E_NO_PROVIDER;
	}
	x = calloc(1, sizeof(*x));
	if (x == NULL) {
		return -ENOMEM;
	}
	x->base.ops = &kvp_xport_ofi;
	x->env = cfg->env != NULL ? cfg->env : kvp_env_real();
	x->log = cfg->log;
	x->epoll_fd = -1;
	x->timer_fd = -1;
	kvp_list_init(&x->connecting);
	kvp_list_init(&x->open);
	kvp_list_init(&x->ready);
	x->provider = strdup(provider);
	x->device = cfg->device != NULL ? strdup(cfg->device) : NULL;
	if (x->provider == NULL || (cfg->device != NULL && x->device == NULL)) {
		goto err_close;
	}
	ret = domain_get(x, cfg);
	if (ret != 0) {
		goto err_close;
	}
	limits_set(x, cfg);
	x->conns = calloc(x->conns_max, sizeof(x->conns[0]));
	if (x->conns == NULL) {
		ret = -ENOMEM;
		goto err_close;
	}
	ret = ofi_queue_open(x->dom, 0, cfg->log, &x->queue);
	if (ret != 0) {
		goto err_close;
	}
	ret = wait_open(x);
	if (ret != 0) {
		goto err_close;
	}
	*ret_xport = &x->base;
	return 0;

err_close:
	ofi_close(&x->base);
	return ret;
}

void
ofi_close(struct kvp_xport *xport)
{
	struct ofi_xport *x;

	if (xport == NULL) {
		return;
	}
	x = ofi_of(xport);
	kvp_assert(x->conn_count == 0);
	kvp_assert(kvp_list_empty(&x->ready));
	ofi_target_close(x->target);
	ofi_queue_close(&x->queue);
	if (x->epoll_fd >= 0) {
		(void)close(x->epoll_fd);
	}
	if (x->timer_fd >= 0) {
		(void)close(x->timer_fd);
	}
	domain_unref(x->dom);
	free(x->conns);
	free(x->provider);
	free(x->device);
	free(x);
}

const struct kvp_xport_ops kvp_xport_ofi = {
	.name = "ofi",
	/* Not ORDERED: tcp fetches in order today, but zero-copy sends would not. */
	.caps = KVP_XPORT_READ | KVP_XPORT_WRITE,
	.open = ofi_open,
	.close = ofi_close,
	.mr_reg = ofi_mr_reg,
	.mr_dereg = ofi_mr_dereg,
	.mr_rdesc = ofi_mr_rdesc,
	.listen = ofi_listen,
	.admit = ofi_admit,
	.fence = ofi_fence,
	.connect = ofi_connect,
	.disconnect = ofi_disconnect,
	.read = ofi_read,
	.write = ofi_write,
	.poll = ofi_poll,
	.wait_fd = ofi_wait_fd,
};
