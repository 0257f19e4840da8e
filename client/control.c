/* SPDX-License-Identifier: Apache-2.0 */
/*
 * control.c - the mailbox of the loop, and calls on their way there and back.
 *
 * The rpc is given one function to run, however much mail there is. Were the client closed while
 * that function is still queued (a loop that somebody else runs), the control outlives the client
 * until it ran.
 */
#include "client/control.h"
#include "hal/base/assert.h"
#include "hal/base/err.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void
kvp_control_drain(struct kvp_control *control)
{
	for (;;) {
		struct kvp_list *node;
		struct kvp_mail *mail;

		pthread_mutex_lock(&control->lock);
		node = kvp_list_pop_front(&control->box);
		pthread_mutex_unlock(&control->lock);
		if (node == NULL) {
			return;
		}
		mail = kvp_container_of(node, struct kvp_mail, link);
		mail->fn(mail);
	}
}

static void
control_free(struct kvp_control *control)
{
	pthread_mutex_destroy(&control->lock);
	free(control);
}

static void
control_run(void *arg)
{
	struct kvp_control *control = arg;
	bool ended;

	pthread_mutex_lock(&control->lock);
	control->posted = false; /* mail from now on posts again */
	ended = control->ended;
	pthread_mutex_unlock(&control->lock);
	if (ended) {
		control_free(control);
	} else {
		kvp_control_drain(control);
	}
}

void
kvp_control_mail(struct kvp_control *control, struct kvp_mail *mail)
{
	bool post;

	pthread_mutex_lock(&control->lock);
	kvp_assert(!control->ended);
	kvp_list_push_back(&control->box, &mail->link);
	post = !control->posted;
	control->posted = true;
	pthread_mutex_unlock(&control->lock);
	if (post) {
		struct kvp_rpc *rpc = control->client->rpc;

		rpc->ops->post(rpc, control_run, control);
	}
}

static void
control_touch(struct kvp_mail *mail)
{
	struct kvp_control *control = kvp_container_of(mail, struct kvp_control, touch_mail);

	kvp_nodes_touch(control);
}

int
kvp_control_open(struct kvp_client *client, struct kvp_control **ret_control)
{
	struct kvp_control *control = calloc(1, sizeof(*control));
	int err;

	if (control == NULL) {
		return -ENOMEM;
	}
	control->client = client;
	control->touch_mail.fn = control_touch;
	kvp_list_init(&control->box);
	pthread_mutex_init(&control->lock, NULL);
	err = kvp_nodes_open(client, &control->nodes);
	if (err < 0) {
		goto err_free;
	}
	err = kvp_metas_open(client, &control->metas);
	if (err < 0) {
		goto err_close_nodes;
	}
	*ret_control = control;
	return 0;

err_close_nodes:
	kvp_nodes_close(control->nodes);
err_free:
	control_free(control);
	return err;
}

void
kvp_control_end(struct kvp_control *control)
{
	kvp_metas_close(control->metas);
	kvp_nodes_close(control->nodes);
	control->metas = NULL;
	control->nodes = NULL;
}

void
kvp_control_close(struct kvp_control *control, bool loop_closed)
{
	bool queued;

	if (control == NULL) {
		return;
	}
	pthread_mutex_lock(&control->lock);
	queued = control->posted && !loop_closed; /* then control_run() frees it */
	control->ended = true;
	pthread_mutex_unlock(&control->lock);
	if (!queued) {
		control_free(control);
	}
}

/* --- calls
 * ---------------------------------------------------------------------------------------- */

struct kvp_call *
kvp_call_new(struct kvp_client *client, struct kvp_port *port, enum kvp_call_to to, uint16_t type,
	uint8_t *body, size_t len)
{
	struct kvp_call *call = calloc(1, sizeof(*call));

	if (call == NULL) {
		free(body);
		return NULL;
	}
	kvp_list_init(&call->link);
	kvp_list_init(&call->owner_link);
	call->client = client;
	call->port = port != NULL ? kvp_port_again(port) : NULL;
	call->to = to;
	call->type = type;
	call->body = body;
	call->len = len;
	call->sent_ns = kvp_now_ns(client->env);
	return call;
}

void
kvp_call_free(struct kvp_call *call)
{
	if (call == NULL) {
		return;
	}
	kvp_assert(!call->out);
	kvp_peer_unref(call->peer);
	kvp_port_unref(call->port);
	free(call->items);
	free(call->body);
	free(call->answer);
	free(call);
}

/* The loop has it now. */
static void
call_arrived(struct kvp_mail *mail)
{
	struct kvp_call *call = kvp_container_of(mail, struct kvp_call, mail);
	struct kvp_control *control = call->client->control;

	if (control->metas == NULL) {
		kvp_call_answer(call, -KVP_E_CANCELLED, NULL, 0);
	} else if (call->to == KVP_TO_META) {
		kvp_metas_call(control->metas, call);
	} else {
		kvp_nodes_call(control->nodes, call);
	}
}

void
kvp_call_post(struct kvp_call *call)
{
	call->mail.fn = call_arrived;
	kvp_control_mail(call->client->control, &call->mail);
}

void
kvp_call_answer(struct kvp_call *call, int status, const uint8_t *body, size_t len)
{
	kvp_assert(!call->out);
	call->status = status;
	if (status == 0 && len > 0) {
		call->answer = malloc(len);
		if (call->answer != NULL) {
			memcpy(call->answer, body, len);
			call->answer_len = len;
		} else {
			call->status = -ENOMEM;
		}
	}
	if (call->port == NULL || !kvp_port_put(call->port, &call->link)) {
		kvp_call_free(call);
	}
}

void
kvp_call_send(struct kvp_call *call, struct kvp_rpc_link *link, uint64_t deadline_ns,
	void (*done)(struct kvp_rpc_req *req, int status, const uint8_t *body, size_t len))
{
	kvp_assert(!call->out);
	memset(&call->req, 0, sizeof(call->req));
	call->req.type = call->type;
	call->req.deadline_ns = deadline_ns;
	call->req.done = done;
	call->out = true; /* done() clears it */
	link->rpc->ops->call(link, &call->req, call->body, call->len);
}
