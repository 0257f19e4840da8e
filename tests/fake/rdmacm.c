/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rdmacm.c - librdmacm for tests: connections between the fake queue pairs of ibverbs.c.
 *
 * Requests, answers and refusals are events of their channel at once; private data is cut and
 * padded as on the wire. Destroying an id with events that were taken but not acknowledged would
 * wait for ever with the real one; here it is counted by fake_live().
 */
#include "tests/fake/fake.h"

#include <endian.h>
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define CHANNEL_MAX 256 /* events of one channel */
#define IDS_MAX     256

struct fake_id {
	struct rdma_cm_id id;
	bool used;
	bool listening;
	bool established;
	struct fake_id *peer;
	uint32_t qp_num;
};

struct fake_event {
	struct rdma_cm_event event;
	uint8_t data[196];
};

struct fake_events {
	struct rdma_event_channel channel;
	struct fake_event *queue[CHANNEL_MAX];
	int count;
};

static struct fake_id *ids[IDS_MAX];
static uint16_t port_last = 20000;

struct ibv_context **
rdma_get_devices(int *ret_count)
{
	struct ibv_context **list = fake_new(2 * sizeof(*list));

	if (list != NULL) {
		list[0] = &fake_context;
		if (ret_count != NULL) {
			*ret_count = 1;
		}
	}
	return fake_unlocked(list);
}

void
rdma_free_devices(struct ibv_context **list)
{
	pthread_mutex_lock(&fake_lock);
	fake_free(list);
	pthread_mutex_unlock(&fake_lock);
}

struct rdma_event_channel *
rdma_create_event_channel(void)
{
	struct fake_events *events = fake_new(sizeof(*events));

	if (events == NULL) {
		return fake_unlocked(NULL);
	}
	events->channel.fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
	CHECK(events->channel.fd >= 0);
	return fake_unlocked(&events->channel);
}

void
rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
	pthread_mutex_lock(&fake_lock);
	CHECK(((struct fake_events *)channel)->count == 0);
	(void)close(channel->fd);
	fake_free(channel);
	pthread_mutex_unlock(&fake_lock);
}

/* Queues an event, with at most room bytes of private data, padded as on the wire. */
static void
event_push(struct fake_id *id, enum rdma_cm_event_type type, int event_status,
	const struct rdma_conn_param *param, uint8_t room)
{
	struct fake_events *events = (struct fake_events *)id->id.channel;
	struct fake_event *event = calloc(1, sizeof(*event));
	uint64_t one = 1;

	CHECK(event != NULL && events->count < CHANNEL_MAX);
	fake_count++;
	event->event.id = &id->id;
	event->event.event = type;
	event->event.status = event_status;
	if (param != NULL) {
		CHECK(param->private_data_len <= room);
		event->event.param.conn = *param;
		memcpy(event->data, param->private_data, param->private_data_len);
		event->event.param.conn.private_data = event->data;
		event->event.param.conn.private_data_len = room;
	}
	events->queue[events->count++] = event;
	CHECK(write(events->channel.fd, &one, sizeof(one)) == sizeof(one));
}

static struct fake_event *
event_take(struct fake_events *events, int idx)
{
	struct fake_event *event = events->queue[idx];
	uint64_t n;

	events->count--;
	memmove(&events->queue[idx], &events->queue[idx + 1],
		(size_t)(events->count - idx) * sizeof(events->queue[0]));
	CHECK(read(events->channel.fd, &n, sizeof(n)) == sizeof(n));
	return event;
}

int
rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **ret_event)
{
	struct fake_events *events = (struct fake_events *)channel;

	pthread_mutex_lock(&fake_lock);
	if (events->count == 0) {
		return fake_status(EAGAIN);
	}
	*ret_event = &event_take(events, 0)->event;
	return fake_status(0);
}

int
rdma_ack_cm_event(struct rdma_cm_event *event)
{
	pthread_mutex_lock(&fake_lock);
	fake_free(event);
	return fake_status(0);
}

const char *
rdma_event_str(enum rdma_cm_event_type type)
{
	static char text[32]; /* tests log from one thread at a time */

	(void)snprintf(text, sizeof(text), "event %d", (int)type);
	return text;
}

static struct fake_id *
id_new(struct rdma_event_channel *channel, void *id_context)
{
	struct fake_id *id = calloc(1, sizeof(*id));

	CHECK(id != NULL);
	fake_count++;
	id->id.channel = channel;
	id->id.context = id_context;
	for (int i = 0; i < IDS_MAX; i++) {
		if (ids[i] == NULL) {
			ids[i] = id;
			return id;
		}
	}
	CHECK(false);
	return NULL;
}

int
rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **ret_id, void *id_context,
	enum rdma_port_space space)
{
	int err = fake_begin();

	CHECK(space == RDMA_PS_TCP);
	if (err == 0) {
		*ret_id = &id_new(channel, id_context)->id;
	}
	return fake_status(err);
}

static void
id_free(struct fake_id *id)
{
	struct fake_events *events = (struct fake_events *)id->id.channel;

	CHECK(id->id.qp == NULL);
	for (int i = events->count - 1; i >= 0; i--) {
		struct fake_event *event = events->queue[i];

		if (event->event.id == &id->id) {
			fake_free(event_take(events, i));
		}
	}
	if (id->peer != NULL) {
		id->peer->peer = NULL;
		if (id->established || id->peer->established) {
			event_push(id->peer, RDMA_CM_EVENT_DISCONNECTED, 0, NULL, 0);
		} else {
			event_push(id->peer, RDMA_CM_EVENT_REJECTED, 28, NULL, 0);
		}
	}
	for (int i = 0; i < IDS_MAX; i++) {
		if (ids[i] == id) {
			ids[i] = NULL;
		}
	}
	fake_free(id);
}

/* Requests that nobody has seen yet go with their listener. */
static void
listener_drain(struct fake_id *id)
{
	struct fake_events *events = (struct fake_events *)id->id.channel;

	for (int i = events->count - 1; i >= 0; i--) {
		struct fake_event *event = events->queue[i];

		if (event->event.listen_id == &id->id) {
			struct fake_id *child = (struct fake_id *)event->event.id;

			fake_free(event_take(events, i));
			id_free(child);
			i = events->count;
		}
	}
}

int
rdma_destroy_id(struct rdma_cm_id *id)
{
	pthread_mutex_lock(&fake_lock);
	listener_drain((struct fake_id *)id);
	id_free((struct fake_id *)id);
	return fake_status(0);
}

static struct fake_id *
listener_find(uint16_t port)
{
	for (int i = 0; i < IDS_MAX; i++) {
		if (ids[i] != NULL && ids[i]->used &&
			ids[i]->id.route.addr.src_sin.sin_port == port) {
			return ids[i];
		}
	}
	return NULL;
}

int
rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr)
{
	int err = fake_begin();
	struct sockaddr_in *in = &id->route.addr.src_sin;

	CHECK(addr->sa_family == AF_INET);
	memcpy(in, addr, sizeof(*in));
	if (in->sin_port == 0) {
		in->sin_port = htobe16(++port_last);
	}
	if (err == 0 && listener_find(in->sin_port) != NULL) {
		err = EADDRINUSE;
	}
	if (err == 0) {
		((struct fake_id *)id)->used = true;
		id->verbs = &fake_context;
		id->port_num = 1;
	}
	return fake_status(err);
}

int
rdma_listen(struct rdma_cm_id *id, int backlog)
{
	int err = fake_begin();

	CHECK(backlog > 0 && ((struct fake_id *)id)->used);
	((struct fake_id *)id)->listening = err == 0;
	return fake_status(err);
}

int
rdma_set_option(struct rdma_cm_id *id, int level, int name, void *value, size_t len)
{
	(void)id;
	CHECK(level == RDMA_OPTION_ID && name == RDMA_OPTION_ID_ACK_TIMEOUT);
	CHECK(value != NULL && len == 1);
	return fake_status(fake_begin());
}

int
rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src, struct sockaddr *dst, int timeout_ms)
{
	int err = fake_begin();

	CHECK(timeout_ms > 0 && (src == NULL || src->sa_family == dst->sa_family));
	if (err != 0) {
		return fake_status(err);
	}
	memcpy(&id->route.addr.dst_sin, dst, sizeof(id->route.addr.dst_sin));
	if (fake_fails(FAKE_EVENT)) {
		event_push((struct fake_id *)id, RDMA_CM_EVENT_ADDR_ERROR, -ENODEV, NULL, 0);
	} else {
		id->verbs = &fake_context;
		id->port_num = 1;
		event_push((struct fake_id *)id, RDMA_CM_EVENT_ADDR_RESOLVED, 0, NULL, 0);
	}
	return fake_status(0);
}

int
rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms)
{
	int err = fake_begin();
	bool lost = err == 0 && fake_fails(FAKE_EVENT);

	CHECK(timeout_ms > 0 && id->verbs != NULL);
	if (err == 0) {
		event_push((struct fake_id *)id,
			lost ? RDMA_CM_EVENT_ROUTE_ERROR : RDMA_CM_EVENT_ROUTE_RESOLVED,
			lost ? -ETIMEDOUT : 0, NULL, 0);
	}
	return fake_status(err);
}

int
rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	CHECK(id->verbs == pd->context && id->qp == NULL);
	id->qp = ibv_create_qp(pd, attr);
	if (id->qp == NULL) {
		return -1;
	}
	id->qp->state = IBV_QPS_INIT;
	return 0;
}

int
rdma_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *attr, int *ret_mask)
{
	int err = fake_begin();

	(void)id;
	(void)attr;
	*ret_mask = IBV_QP_STATE;
	return fake_status(err);
}

int
rdma_connect(struct rdma_cm_id *ibv_id, struct rdma_conn_param *param)
{
	int err = fake_begin();
	struct fake_id *id = (struct fake_id *)ibv_id;
	struct fake_id *listener = listener_find(ibv_id->route.addr.dst_sin.sin_port);
	struct fake_id *child;
	struct fake_events *events;

	CHECK(ibv_id->qp != NULL && param->retry_count < 7);
	if (err != 0) {
		return fake_status(err);
	}
	if (listener == NULL || !listener->listening) {
		event_push(id, RDMA_CM_EVENT_REJECTED, 8, NULL, 0);
		return fake_status(0);
	}
	if (fake_fails(FAKE_EVENT)) {
		event_push(id, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, NULL, 0);
		return fake_status(0);
	}
	child = id_new(listener->id.channel, listener->id.context);
	child->id.verbs = &fake_context;
	child->id.port_num = 1;
	child->peer = id;
	id->peer = child;
	event_push(child, RDMA_CM_EVENT_CONNECT_REQUEST, 0, param, 56);
	events = (struct fake_events *)listener->id.channel;
	events->queue[events->count - 1]->event.listen_id = &listener->id;
	return fake_status(0);
}

int
rdma_accept(struct rdma_cm_id *ibv_id, struct rdma_conn_param *param)
{
	int err = fake_begin();
	struct fake_id *id = (struct fake_id *)ibv_id;
	struct fake_qp *own = fake_qp_find(param->qp_num);

	CHECK(own != NULL && own->qp.state == IBV_QPS_RTS);
	if (err == 0 && id->peer == NULL) {
		err = ECONNRESET;
	}
	if (err == 0) {
		struct fake_qp *other = (struct fake_qp *)id->peer->id.qp;

		own->peer = other;
		other->peer = own;
		other->qp.state = IBV_QPS_RTS;
		id->established = true;
		id->peer->established = true;
		event_push(id->peer, RDMA_CM_EVENT_ESTABLISHED, 0, param, 196);
		event_push(id, RDMA_CM_EVENT_ESTABLISHED, 0, NULL, 0);
	}
	return fake_status(err);
}

int
rdma_reject(struct rdma_cm_id *ibv_id, const void *data, uint8_t len)
{
	int err = fake_begin();
	struct fake_id *id = (struct fake_id *)ibv_id;
	const struct rdma_conn_param param = {.private_data = data, .private_data_len = len};

	if (err == 0 && id->peer != NULL) {
		event_push(id->peer, RDMA_CM_EVENT_REJECTED, 28, &param, 148);
		id->peer->peer = NULL;
		id->peer = NULL;
	}
	return fake_status(err);
}

int
rdma_disconnect(struct rdma_cm_id *ibv_id)
{
	int err = fake_begin();
	struct fake_id *id = (struct fake_id *)ibv_id;

	if (ibv_id->qp != NULL) {
		ibv_id->qp->state = IBV_QPS_ERR;
	}
	if (err == 0 && id->peer != NULL) {
		event_push(id->peer, RDMA_CM_EVENT_DISCONNECTED, 0, NULL, 0);
		event_push(id, RDMA_CM_EVENT_DISCONNECTED, 0, NULL, 0);
		id->peer->peer = NULL;
		id->peer = NULL;
	}
	return fake_status(err);
}
