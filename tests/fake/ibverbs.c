/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ibverbs.c - libibverbs for tests: one device, reliable queue pairs within one process, errors on
 * demand. Together with rdmacm.c it is found as libibverbs.so.1 and librdmacm.so.1.
 *
 * A work request is carried out when it is posted, with the checks of a real device: keys, bounds,
 * rights, whose window it is. What would be undefined with a real one (a full completion queue,
 * destroying what is in use) ends the test. One mutex guards everything.
 */
#include "tests/fake/fake.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#undef ibv_query_port
#undef ibv_reg_mr

#define KEYS_MAX 4096
#define QPS_MAX  256

struct fake_cq {
	struct ibv_cq cq;
	struct ibv_wc *ring;
	int len;
	int head;
	int count;
	int qp_count;
	bool armed;
	int unacked;
};

struct fake_channel {
	struct ibv_comp_channel channel;
	struct fake_cq *cq;
	int events;
};

struct fake_mw {
	struct ibv_mw mw;
	struct fake_qp *qp; /* NULL: not bound */
	uint32_t bound_key;
};

/* A registration or a window, as others name it. */
struct fake_key {
	uint32_t key; /* 0: free */
	uint64_t addr;
	uint64_t len;
	unsigned access;
	struct fake_qp *qp; /* of a window */
	struct ibv_mr *mr;  /* under a window */
	int window_count;   /* over a registration */
};

pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ibv_device device = {.transport_type = IBV_TRANSPORT_IB, .name = "fake0"};
struct ibv_context fake_context = {.device = &device};
static struct fake_key keys[KEYS_MAX];
static struct fake_qp *qps[QPS_MAX];
static uint32_t key_last = 0x1000;
static uint32_t qp_last = 16;
int fake_count;
static struct {
	uint64_t n;
	uint64_t failed;
	int err;
} plans[FAKE_KINDS];

void
fake_fail(enum fake_kind kind, uint64_t n, int err)
{
	pthread_mutex_lock(&fake_lock);
	plans[kind].n = n;
	plans[kind].failed = 0;
	plans[kind].err = err;
	pthread_mutex_unlock(&fake_lock);
}

uint64_t
fake_failed(enum fake_kind kind)
{
	uint64_t failed;

	pthread_mutex_lock(&fake_lock);
	failed = plans[kind].failed;
	pthread_mutex_unlock(&fake_lock);
	return failed;
}

int
fake_live(void)
{
	int n;

	pthread_mutex_lock(&fake_lock);
	n = fake_count;
	pthread_mutex_unlock(&fake_lock);
	return n;
}

/* The fake_lock is held. Sets errno when it is this one's turn. */
bool
fake_fails(enum fake_kind kind)
{
	if (plans[kind].n == 0 || --plans[kind].n > 0) {
		return false;
	}
	plans[kind].failed++;
	errno = plans[kind].err;
	return true;
}

/* A zeroed object, or NULL when this call is to fail. Leaves the fake_lock held. */
void *
fake_new(size_t size)
{
	void *object;

	pthread_mutex_lock(&fake_lock);
	if (fake_fails(FAKE_CALL)) {
		return NULL;
	}
	object = calloc(1, size);
	CHECK(object != NULL);
	fake_count++;
	return object;
}

void
fake_free(void *object)
{
	free(object);
	fake_count--;
	CHECK(fake_count >= 0);
}

void *
fake_unlocked(void *object)
{
	pthread_mutex_unlock(&fake_lock);
	return object;
}

/* -1 with errno, or 0: calls that make nothing. Releases the fake_lock. */
int
fake_status(int err)
{
	pthread_mutex_unlock(&fake_lock);
	if (err != 0) {
		errno = err;
		return -1;
	}
	return 0;
}

int
fake_begin(void)
{
	pthread_mutex_lock(&fake_lock);
	return fake_fails(FAKE_CALL) ? errno : 0;
}

/* Memory. */

static struct fake_key *
key_find(uint32_t key)
{
	for (int i = 0; key != 0 && i < KEYS_MAX; i++) {
		if (keys[i].key == key) {
			return &keys[i];
		}
	}
	return NULL;
}

static struct fake_key *
key_new(uint32_t number)
{
	for (int i = 0; i < KEYS_MAX; i++) {
		if (keys[i].key == 0) {
			keys[i] = (struct fake_key){.key = number};
			return &keys[i];
		}
	}
	CHECK(false);
	return NULL;
}

static struct ibv_mr *
mr_new(struct ibv_pd *pd, void *addr, size_t len, unsigned access)
{
	struct ibv_mr *mr = fake_new(sizeof(*mr));
	struct fake_key *key;

	if (mr == NULL) {
		return fake_unlocked(NULL);
	}
	key_last += 0x100;
	*mr = (struct ibv_mr){.context = pd->context,
		.pd = pd,
		.addr = addr,
		.length = len,
		.lkey = key_last,
		.rkey = key_last};
	key = key_new(key_last);
	key->addr = (uintptr_t)addr;
	key->len = len;
	key->access = access;
	return fake_unlocked(mr);
}

struct ibv_mr *
ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t len, int access)
{
	return mr_new(pd, addr, len, (unsigned)access);
}

struct ibv_mr *
ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t len, uint64_t iova, unsigned access)
{
	CHECK(iova == (uintptr_t)addr);
	return mr_new(pd, addr, len, access);
}

int
ibv_dereg_mr(struct ibv_mr *mr)
{
	struct fake_key *key;

	pthread_mutex_lock(&fake_lock);
	key = key_find(mr->lkey);
	CHECK(key != NULL && key->window_count == 0);
	key->key = 0;
	fake_free(mr);
	return fake_status(0);
}

static struct ibv_mw *
mw_alloc(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct fake_mw *mw = fake_new(sizeof(*mw));

	if (mw == NULL) {
		return fake_unlocked(NULL);
	}
	key_last += 0x100;
	mw->mw = (struct ibv_mw){.context = pd->context, .pd = pd, .rkey = key_last, .type = type};
	return fake_unlocked(&mw->mw);
}

static int
mw_dealloc(struct ibv_mw *ibv_mw)
{
	struct fake_mw *mw = (struct fake_mw *)ibv_mw;
	struct fake_key *key;

	pthread_mutex_lock(&fake_lock);
	key = key_find(mw->bound_key);
	if (key != NULL) {
		struct fake_key *under = key_find(key->mr->lkey);

		CHECK(under != NULL);
		under->window_count--;
		key->key = 0;
		mw->qp->window_count--;
	}
	fake_free(mw);
	return fake_status(0);
}

/* Devices, domains, queues. */

struct ibv_device **
ibv_get_device_list(int *ret_count)
{
	struct ibv_device **list = fake_new(2 * sizeof(*list));

	if (list != NULL) {
		list[0] = &device;
		*ret_count = 1;
	}
	return fake_unlocked(list);
}

void
ibv_free_device_list(struct ibv_device **list)
{
	pthread_mutex_lock(&fake_lock);
	fake_free(list);
	pthread_mutex_unlock(&fake_lock);
}

const char *
ibv_get_device_name(struct ibv_device *dev)
{
	return dev->name;
}

int
ibv_query_device(struct ibv_context *ctx, struct ibv_device_attr *attr)
{
	int err = fake_begin();

	(void)ctx;
	/* Small, so that everything is split. */
	*attr = (struct ibv_device_attr){
		.max_mr_size = 8u << 20,
		.max_qp_wr = 1024,
		.device_cap_flags = IBV_DEVICE_MEM_WINDOW_TYPE_2B,
		.max_sge = 5,
		.max_sge_rd = 4,
		.max_cqe = 2048,
		.max_qp_rd_atom = 16,
		.max_qp_init_rd_atom = 16,
		.phys_port_cnt = 1,
	};
	if (getenv("KVP_TEST_NO_WINDOWS") != NULL) {
		attr->device_cap_flags = 0;
	}
	(void)fake_status(0);
	return err;
}

int
ibv_query_port(struct ibv_context *ctx, uint8_t port, struct _compat_ibv_port_attr *ret_attr)
{
	struct ibv_port_attr *attr = (struct ibv_port_attr *)ret_attr;
	int err = fake_begin();

	(void)ctx;
	CHECK(port == 1);
	attr->state = IBV_PORT_ACTIVE;
	attr->active_mtu = IBV_MTU_4096;
	attr->max_msg_sz = 512u << 10;
	attr->gid_tbl_len = 1;
	attr->link_layer = IBV_LINK_LAYER_ETHERNET;
	(void)fake_status(0);
	return err;
}

int
ibv_query_gid(struct ibv_context *ctx, uint8_t port, int idx, union ibv_gid *gid)
{
	static const union ibv_gid loopback = {
		.raw = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1}};

	(void)ctx;
	CHECK(port == 1 && idx == 0);
	*gid = loopback;
	return fake_status(fake_begin());
}

struct ibv_pd *
ibv_alloc_pd(struct ibv_context *ctx)
{
	struct ibv_pd *pd = fake_new(sizeof(*pd));

	if (pd != NULL) {
		pd->context = ctx;
	}
	return fake_unlocked(pd);
}

int
ibv_dealloc_pd(struct ibv_pd *pd)
{
	pthread_mutex_lock(&fake_lock);
	fake_free(pd);
	return fake_status(0);
}

struct ibv_comp_channel *
ibv_create_comp_channel(struct ibv_context *ctx)
{
	struct fake_channel *channel = fake_new(sizeof(*channel));

	if (channel == NULL) {
		return fake_unlocked(NULL);
	}
	channel->channel.context = ctx;
	channel->channel.fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
	CHECK(channel->channel.fd >= 0);
	return fake_unlocked(&channel->channel);
}

int
ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	pthread_mutex_lock(&fake_lock);
	CHECK(((struct fake_channel *)channel)->cq == NULL);
	(void)close(channel->fd);
	fake_free(channel);
	return fake_status(0);
}

struct ibv_cq *
ibv_create_cq(struct ibv_context *ctx, int len, void *cq_context, struct ibv_comp_channel *channel,
	int vector)
{
	struct fake_cq *cq = fake_new(sizeof(*cq));

	(void)vector;
	if (cq == NULL) {
		return fake_unlocked(NULL);
	}
	cq->cq.context = ctx;
	cq->cq.channel = channel;
	cq->cq.cq_context = cq_context;
	cq->cq.cqe = len;
	cq->len = len;
	cq->ring = calloc((size_t)len, sizeof(cq->ring[0]));
	CHECK(cq->ring != NULL);
	if (channel != NULL) {
		((struct fake_channel *)channel)->cq = cq;
	}
	return fake_unlocked(&cq->cq);
}

int
ibv_destroy_cq(struct ibv_cq *ibv_cq)
{
	struct fake_cq *cq = (struct fake_cq *)ibv_cq;

	pthread_mutex_lock(&fake_lock);
	CHECK(cq->qp_count == 0 && cq->unacked == 0);
	if (ibv_cq->channel != NULL) {
		((struct fake_channel *)ibv_cq->channel)->cq = NULL;
	}
	free(cq->ring);
	fake_free(cq);
	return fake_status(0);
}

static void
cq_push(struct fake_cq *cq, const struct ibv_wc *wc)
{
	uint64_t one = 1;

	CHECK(cq->count < cq->len); /* a real one would lose it and break */
	cq->ring[(cq->head + cq->count) % cq->len] = *wc;
	cq->count++;
	if (cq->armed) {
		cq->armed = false;
		CHECK(write(cq->cq.channel->fd, &one, sizeof(one)) == sizeof(one));
	}
}

static int
cq_poll(struct ibv_cq *ibv_cq, int max, struct ibv_wc *wc)
{
	struct fake_cq *cq = (struct fake_cq *)ibv_cq;
	int n = 0;

	pthread_mutex_lock(&fake_lock);
	if (fake_fails(FAKE_POLL)) {
		(void)fake_status(0);
		return -1;
	}
	while (n < max && cq->count > 0) {
		wc[n++] = cq->ring[cq->head];
		cq->head = (cq->head + 1) % cq->len;
		cq->count--;
	}
	(void)fake_status(0);
	return n;
}

static int
cq_notify(struct ibv_cq *cq, int solicited)
{
	int err = fake_begin();

	CHECK(!solicited && cq->channel != NULL);
	if (err == 0) {
		((struct fake_cq *)cq)->armed = true;
	}
	(void)fake_status(0);
	return err;
}

int
ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **ret_cq, void **ret_context)
{
	struct fake_cq *cq = ((struct fake_channel *)channel)->cq;
	uint64_t n;

	if (read(channel->fd, &n, sizeof(n)) != sizeof(n)) {
		return -1;
	}
	pthread_mutex_lock(&fake_lock);
	cq->unacked++;
	*ret_cq = &cq->cq;
	*ret_context = cq->cq.cq_context;
	return fake_status(0);
}

void
ibv_ack_cq_events(struct ibv_cq *cq, unsigned count)
{
	pthread_mutex_lock(&fake_lock);
	((struct fake_cq *)cq)->unacked -= (int)count;
	pthread_mutex_unlock(&fake_lock);
}

struct ibv_qp *
ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct fake_qp *qp = fake_new(sizeof(*qp));

	if (qp == NULL) {
		return fake_unlocked(NULL);
	}
	CHECK(attr->qp_type == IBV_QPT_RC && attr->cap.max_send_wr <= 1024);
	qp->qp.context = pd->context;
	qp->qp.pd = pd;
	qp->qp.send_cq = attr->send_cq;
	qp->qp.recv_cq = attr->recv_cq;
	qp->qp.qp_num = ++qp_last;
	qp->qp.state = IBV_QPS_RESET;
	qp->sge_max = (int)attr->cap.max_send_sge;
	((struct fake_cq *)attr->send_cq)->qp_count++;
	for (int i = 0; i < QPS_MAX; i++) {
		if (qps[i] == NULL) {
			qps[i] = qp;
			return fake_unlocked(&qp->qp);
		}
	}
	CHECK(false);
	return NULL;
}

int
ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	int err = fake_begin();

	CHECK(mask & IBV_QP_STATE);
	if (err == 0) {
		qp->state = attr->qp_state;
	}
	(void)fake_status(0);
	return err;
}

int
ibv_destroy_qp(struct ibv_qp *ibv_qp)
{
	struct fake_qp *qp = (struct fake_qp *)ibv_qp;

	pthread_mutex_lock(&fake_lock);
	CHECK(qp->window_count == 0); /* takes a minute with some drivers */
	((struct fake_cq *)ibv_qp->send_cq)->qp_count--;
	if (qp->peer != NULL) {
		qp->peer->peer = NULL;
	}
	for (int i = 0; i < QPS_MAX; i++) {
		if (qps[i] == qp) {
			qps[i] = NULL;
		}
	}
	fake_free(qp);
	return fake_status(0);
}

const char *
ibv_wc_status_str(enum ibv_wc_status wc_status)
{
	return wc_status == IBV_WC_SUCCESS ? "success" : "an error";
}

struct fake_qp *
fake_qp_find(uint32_t qp_num)
{
	for (int i = 0; i < QPS_MAX; i++) {
		if (qps[i] != NULL && qps[i]->qp.qp_num == qp_num) {
			return qps[i];
		}
	}
	return NULL;
}

/* Work requests. */

static bool
key_covers(const struct fake_key *key, uint64_t addr, uint64_t len)
{
	return addr >= key->addr && len <= key->len && addr - key->addr <= key->len - len;
}

/* What a device would say to this request. */
static enum ibv_wc_status
wr_check(const struct fake_qp *qp, const struct ibv_send_wr *wr, uint64_t len)
{
	bool write = wr->opcode == IBV_WR_RDMA_WRITE;
	const struct fake_key *remote = key_find(wr->wr.rdma.rkey);

	for (int i = 0; i < wr->num_sge; i++) {
		const struct fake_key *local = key_find(wr->sg_list[i].lkey);

		if (local == NULL ||
			!key_covers(local, wr->sg_list[i].addr, wr->sg_list[i].length) ||
			(!write && (local->access & IBV_ACCESS_LOCAL_WRITE) == 0)) {
			return IBV_WC_LOC_PROT_ERR;
		}
	}
	if (len > 512u << 10) {
		return IBV_WC_LOC_LEN_ERR;
	}
	if (qp->peer == NULL) {
		return IBV_WC_RETRY_EXC_ERR;
	}
	if (remote == NULL || !key_covers(remote, wr->wr.rdma.remote_addr, len) ||
		(remote->qp != NULL && remote->qp != qp->peer) ||
		(remote->access & (write ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_READ)) ==
			0) {
		return IBV_WC_REM_ACCESS_ERR;
	}
	return IBV_WC_SUCCESS;
}

static enum ibv_wc_status
wr_move(struct fake_qp *qp, const struct ibv_send_wr *wr)
{
	uint64_t len = 0;
	char *remote = (char *)(uintptr_t)wr->wr.rdma.remote_addr;
	enum ibv_wc_status ret;

	for (int i = 0; i < wr->num_sge; i++) {
		len += wr->sg_list[i].length;
	}
	ret = wr_check(qp, wr, len);
	for (int i = 0; ret == IBV_WC_SUCCESS && i < wr->num_sge; i++) {
		char *local = (char *)(uintptr_t)wr->sg_list[i].addr;

		if (wr->opcode == IBV_WR_RDMA_WRITE) {
			memcpy(remote, local, wr->sg_list[i].length);
		} else {
			memcpy(local, remote, wr->sg_list[i].length);
		}
		remote += wr->sg_list[i].length;
	}
	return ret;
}

static enum ibv_wc_status
wr_bind(struct fake_qp *qp, const struct ibv_send_wr *wr)
{
	const struct ibv_mw_bind_info *info = &wr->bind_mw.bind_info;
	struct fake_mw *mw = (struct fake_mw *)wr->bind_mw.mw;
	struct fake_key *under = key_find(info->mr->lkey);
	struct fake_key *key;

	if (under == NULL || !key_covers(under, info->addr, info->length) ||
		(under->access & IBV_ACCESS_MW_BIND) == 0 || mw->qp != NULL) {
		return IBV_WC_MW_BIND_ERR;
	}
	key = key_new(wr->bind_mw.rkey);
	key->addr = info->addr;
	key->len = info->length;
	key->access = info->mw_access_flags;
	key->qp = qp;
	key->mr = info->mr;
	under->window_count++;
	qp->window_count++;
	mw->qp = qp;
	mw->bound_key = wr->bind_mw.rkey;
	return IBV_WC_SUCCESS;
}

static enum ibv_wc_status
wr_run(struct fake_qp *qp, const struct ibv_send_wr *wr)
{
	if (qp->qp.state == IBV_QPS_ERR) {
		return IBV_WC_WR_FLUSH_ERR;
	}
	if (fake_fails(FAKE_COMPLETION)) {
		return IBV_WC_RETRY_EXC_ERR;
	}
	if (wr->opcode == IBV_WR_BIND_MW) {
		return wr_bind(qp, wr);
	}
	CHECK(wr->num_sge <= qp->sge_max && wr->num_sge > 0);
	return wr_move(qp, wr);
}

static int
qp_post_send(struct ibv_qp *ibv_qp, struct ibv_send_wr *wr, struct ibv_send_wr **ret_bad)
{
	struct fake_qp *qp = (struct fake_qp *)ibv_qp;
	int err = 0;

	pthread_mutex_lock(&fake_lock);
	CHECK(ibv_qp->state == IBV_QPS_RTS || ibv_qp->state == IBV_QPS_ERR);
	for (; wr != NULL && err == 0; wr = err == 0 ? wr->next : wr) {
		struct ibv_wc wc = {.wr_id = wr->wr_id, .qp_num = ibv_qp->qp_num};

		if (fake_fails(FAKE_CALL)) {
			err = errno;
			*ret_bad = wr;
			continue;
		}
		wc.status = wr_run(qp, wr);
		if (wc.status != IBV_WC_SUCCESS) {
			ibv_qp->state = IBV_QPS_ERR;
		}
		if (wc.status != IBV_WC_SUCCESS || (wr->send_flags & IBV_SEND_SIGNALED) != 0) {
			cq_push((struct fake_cq *)ibv_qp->send_cq, &wc);
		}
	}
	(void)fake_status(0);
	return err;
}

static __attribute__((constructor)) void
context_init(void)
{
	fake_context.ops.alloc_mw = mw_alloc;
	fake_context.ops.dealloc_mw = mw_dealloc;
	fake_context.ops.poll_cq = cq_poll;
	fake_context.ops.req_notify_cq = cq_notify;
	fake_context.ops.post_send = qp_post_send;
}
