/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm_target.c - the target's side: regions, listening, sessions and their fence.
 *
 * We cannot take a mapping away from a process, only learn that it is gone: every connection of a
 * session gets its own description of the session's lock file with a shared lock on it. Whoever
 * can take that lock exclusively knows that nobody is left. Neither the end of the socket nor a
 * pid says that: a forked child may live on.
 *
 * The thread alone frees peers; others mark them and shut their socket down, which wakes it.
 */
#include "transport/shm/shm.h"

#include "hal/base/addr.h"
#include "hal/base/assert.h"
#include "hal/base/bytes.h"
#include "hal/base/err.h"
#include "hal/os/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define TARGET_ACCEPTS_MAX 16  /* in a row */
#define TARGET_PAUSE_MS    100 /* without accepting, when out of descriptors */
#define TARGET_BACKLOG     128
#define TARGET_SWEEP_MS    1000 /* between looks at locks of an earlier process */

struct shm_session {
	struct kvp_list link;
	uint8_t token[KVP_TOKEN_LEN];
	bool fenced;
	int lock_fd; /* -1: never handed out */
	uint32_t peer_count;
};

/* A connection as the target sees it. */
struct shm_peer {
	struct kvp_list link; /* target.pending (oldest first) or target.peers */
	int sock;
	struct shm_session *session; /* NULL: no hello yet, or fenced */
	bool is_pending;
	uint64_t deadline_ns;
};

struct shm_target {
	const struct kvp_env *env;
	const struct kvp_log *log;
	uint32_t peers_max;
	pthread_mutex_t lock;
	struct shm_mr *regions[SHM_REGIONS_MAX];
	struct kvp_list sessions;
	struct kvp_list pending;
	struct kvp_list peers;
	uint32_t session_count;
	uint32_t pending_count;
	uint32_t peer_count;
	char path[KVP_ADDR_LEN_MAX];
	int listen_fd;
	int wake_fd;
	int epoll_fd;
	bool paused; /* listen_fd is not looked at */
	char lock_prefix[KVP_ADDR_LEN_MAX];
	bool old_locks; /* some of an earlier process are still held */
	uint64_t sweep_ns;
	_Atomic bool stop;
	struct kvp_thread *thread;
};

struct shm_target *
shm_target_new(const struct shm_xport *x)
{
	struct shm_target *t = calloc(1, sizeof(*t));

	if (t == NULL) {
		return NULL;
	}
	t->env = x->env;
	t->log = x->log;
	t->peers_max = x->conns_max;
	(void)snprintf(t->lock_prefix, sizeof(t->lock_prefix), "%s", x->lock_prefix);
	t->listen_fd = -1;
	t->wake_fd = -1;
	t->epoll_fd = -1;
	(void)pthread_mutex_init(&t->lock, NULL); /* never fails on Linux */
	kvp_list_init(&t->sessions);
	kvp_list_init(&t->pending);
	kvp_list_init(&t->peers);
	return t;
}

int
shm_target_region_add(struct shm_target *t, struct shm_mr *mr)
{
	int ret = -ENOSPC;

	pthread_mutex_lock(&t->lock);
	for (uint32_t i = 0; i < SHM_REGIONS_MAX && ret != 0; i++) {
		if (t->regions[i] == NULL) {
			t->regions[i] = mr;
			mr->idx = i;
			ret = 0;
		}
	}
	pthread_mutex_unlock(&t->lock);
	return ret;
}

void
shm_target_region_remove(struct shm_target *t, struct shm_mr *mr)
{
	pthread_mutex_lock(&t->lock);
	kvp_assert(t->regions[mr->idx] == mr);
	t->regions[mr->idx] = NULL;
	pthread_mutex_unlock(&t->lock);
}

/* Every token is looked at whole, so that time tells nothing about a near miss. */
static struct shm_session *
session_find(struct shm_target *t, const uint8_t token[KVP_TOKEN_LEN])
{
	struct shm_session *found = NULL;

	kvp_list_for_each (node, &t->sessions) {
		struct shm_session *session = kvp_container_of(node, struct shm_session, link);

		if (kvp_bytes_equal_secret(session->token, token, KVP_TOKEN_LEN)) {
			found = session; /* the others are looked at all the same */
		}
	}
	return found;
}

static void
session_free(struct shm_target *t, struct shm_session *session)
{
	kvp_list_remove(&session->link);
	t->session_count--;
	if (session->lock_fd >= 0) {
		(void)close(session->lock_fd);
	}
	free(session);
}

static int
session_lock_new(const struct shm_target *t, struct shm_session *session, int *ret_fd)
{
	if (session->lock_fd < 0) {
		int ret = shm_lock_new(t->lock_prefix, session->token, &session->lock_fd);

		if (ret != 0) {
			return ret;
		}
	}
	return shm_lock_share(session->lock_fd, ret_fd);
}

static bool
session_uses_lock(void *arg, const char *path)
{
	const struct shm_target *t = arg;

	kvp_list_for_each (node, &t->sessions) {
		struct shm_session *session = kvp_container_of(node, struct shm_session, link);

		if (shm_lock_is(t->lock_prefix, session->token, path)) {
			return true;
		}
	}
	return false;
}

static void
target_sweep(struct shm_target *t)
{
	t->sweep_ns = kvp_now_ns(t->env) + TARGET_SWEEP_MS * KVP_NS_PER_MS;
	t->old_locks = shm_lock_sweep(t->lock_prefix, session_uses_lock, t) > 0;
}

static void
peer_free(struct shm_target *t, struct shm_peer *peer)
{
	kvp_list_remove(&peer->link);
	if (peer->is_pending) {
		t->pending_count--;
	} else {
		t->peer_count--;
	}
	if (peer->session != NULL) {
		peer->session->peer_count--;
	}
	(void)close(peer->sock); /* leaves the epoll set with it */
	free(peer);
}

/* Sends the answer; on a fresh socket there is room for it. */
static int
welcome_send(int sock, const struct shm_welcome *welcome, const int *fds, uint32_t fd_count)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE((1 + SHM_REGIONS_MAX) * sizeof(int))];
	} control = {0};
	struct iovec iov = {.iov_base = (void *)welcome, .iov_len = sizeof(*welcome)};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	if (fd_count > 0) {
		struct cmsghdr *c = &control.align;

		msg.msg_control = control.bytes;
		msg.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
		memcpy(CMSG_DATA(c), fds, fd_count * sizeof(int));
	}
	if (sendmsg(sock, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)sizeof(*welcome)) {
		return -errno;
	}
	return 0;
}

/* The mutex is held: a session that is being fenced gets no new lock. */
static int
peer_welcome(struct shm_target *t, struct shm_peer *peer, struct shm_session *session)
{
	struct shm_welcome welcome = {.magic = SHM_MAGIC, .version = SHM_VERSION};
	int fds[1 + SHM_REGIONS_MAX];
	int ret = session_lock_new(t, session, &fds[0]);

	if (ret != 0) {
		kvp_warn(t->log, "shm session lock: %s", strerror(-ret));
		return -KVP_E_BUSY;
	}
	for (uint32_t i = 0; i < SHM_REGIONS_MAX; i++) {
		const struct shm_mr *mr = t->regions[i];

		if (mr != NULL) {
			uint32_t n = welcome.region_count++;

			welcome.regions[n] = (struct shm_welcome_region){
				.tag = mr->tag, .len = mr->len, .idx = i, .access = mr->access};
			fds[1 + n] = mr->fd_write >= 0 ? mr->fd_write : mr->fd_read;
		}
	}
	ret = welcome_send(peer->sock, &welcome, fds, 1u + welcome.region_count);
	(void)close(fds[0]); /* the peer's copy keeps the lock */
	return ret != 0 ? -KVP_E_BUSY : 0;
}

static int
hello_check(struct shm_target *t, const struct shm_hello *hello, ssize_t len,
	struct shm_session **ret_session)
{
	struct shm_session *session;

	if (len != sizeof(*hello) || hello->magic != SHM_MAGIC || hello->version != SHM_VERSION) {
		return -KVP_E_VERSION;
	}
	session = session_find(t, hello->token);
	if (session == NULL || session->fenced) {
		return -KVP_E_NO_SESSION;
	}
	if (session->peer_count >= SHM_SESSION_PEERS_MAX || t->peer_count >= t->peers_max) {
		return -KVP_E_BUSY;
	}
	*ret_session = session;
	return 0;
}

/* Something arrived, or the peer is gone. The mutex is held. */
static void
peer_event(struct shm_target *t, struct shm_peer *peer)
{
	struct shm_welcome refusal = {.magic = SHM_MAGIC, .version = SHM_VERSION};
	struct shm_session *session = NULL;
	struct shm_hello hello;
	ssize_t len = recv(peer->sock, &hello, sizeof(hello), MSG_DONTWAIT | MSG_TRUNC);

	if (len < 0 && (errno == EAGAIN || errno == EINTR)) {
		return;
	}
	if (len <= 0 || !peer->is_pending) { /* nobody says anything after hello */
		peer_free(t, peer);
		return;
	}
	refusal.err = hello_check(t, &hello, len, &session);
	if (refusal.err == 0) {
		refusal.err = peer_welcome(t, peer, session);
	}
	if (refusal.err != 0) {
		kvp_info(t->log, "shm connection refused: %s", kvp_err_str(refusal.err));
		(void)welcome_send(peer->sock, &refusal, NULL, 0); /* it is closed anyway */
		peer_free(t, peer);
		return;
	}
	kvp_list_remove(&peer->link);
	t->pending_count--;
	peer->is_pending = false;
	peer->session = session;
	session->peer_count++;
	t->peer_count++;
	kvp_list_push_back(&t->peers, &peer->link);
}

static void
target_pause(struct shm_target *t, bool paused)
{
	struct epoll_event event = {.events = paused ? 0 : EPOLLIN, .data.ptr = &t->listen_fd};

	t->paused = paused;
	kvp_assert(epoll_ctl(t->epoll_fd, EPOLL_CTL_MOD, t->listen_fd, &event) == 0);
}

static void
peer_new(struct shm_target *t, int sock)
{
	struct shm_peer *peer = calloc(1, sizeof(*peer));
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = peer};

	if (peer == NULL || epoll_ctl(t->epoll_fd, EPOLL_CTL_ADD, sock, &event) != 0) {
		(void)close(sock);
		free(peer);
		return;
	}
	peer->sock = sock;
	peer->is_pending = true;
	peer->deadline_ns = kvp_now_ns(t->env) + SHM_HELLO_MS_MAX * KVP_NS_PER_MS;
	t->pending_count++;
	kvp_list_push_back(&t->pending, &peer->link);
}

/* Who connects and says nothing is dropped in favour of who comes next. */
static void
target_accept(struct shm_target *t)
{
	for (int i = 0; i < TARGET_ACCEPTS_MAX; i++) {
		int sock = accept4(t->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (sock < 0) {
			if (errno == EMFILE || errno == ENFILE || errno == ENOMEM ||
				errno == ENOBUFS) {
				kvp_warn(t->log, "shm accept: %s", strerror(errno));
				target_pause(t, true);
			}
			return;
		}
		peer_new(t, sock);
		if (t->pending_count > SHM_PENDING_MAX) {
			/* It may have spoken meanwhile: then this answers it. */
			struct shm_peer *oldest =
				kvp_container_of(t->pending.next, struct shm_peer, link);

			peer_event(t, oldest);
			if (t->pending_count > SHM_PENDING_MAX) {
				peer_free(t, oldest);
			}
		}
	}
}

/* How long to sleep, after dropping those who were silent for too long. */
static int
target_timeout(struct shm_target *t)
{
	uint64_t now = kvp_now_ns(t->env);
	int idle = t->paused ? TARGET_PAUSE_MS : t->old_locks ? TARGET_SWEEP_MS : -1;

	if (t->old_locks && now >= t->sweep_ns) {
		target_sweep(t);
	}

	while (!kvp_list_empty(&t->pending)) {
		struct shm_peer *peer = kvp_container_of(t->pending.next, struct shm_peer, link);

		if (now < peer->deadline_ns) {
			return t->paused ? TARGET_PAUSE_MS
					 : (int)((peer->deadline_ns - now) / KVP_NS_PER_MS) + 1;
		}
		peer_free(t, peer);
	}
	return idle;
}

/* Peers before the listener: accepting may free one whose event is still in the array. */
static void
target_events(struct shm_target *t, const struct epoll_event *events, int count)
{
	bool accept = t->paused;

	if (t->paused) {
		target_pause(t, false);
	}
	for (int i = 0; i < count; i++) {
		if (events[i].data.ptr == &t->listen_fd) {
			accept = true;
		} else if (events[i].data.ptr != &t->wake_fd) {
			peer_event(t, events[i].data.ptr);
		}
	}
	if (accept) {
		target_accept(t);
	}
}

static void
target_run(void *arg)
{
	struct shm_target *t = arg;
	struct epoll_event events[32];
	int timeout = -1;

	while (!atomic_load(&t->stop)) {
		int count = epoll_wait(t->epoll_fd, events, 32, timeout);

		pthread_mutex_lock(&t->lock);
		target_events(t, events, count > 0 ? count : 0);
		timeout = target_timeout(t);
		pthread_mutex_unlock(&t->lock);
	}
}

/* Removes the socket file of a target that is gone. -EADDRINUSE: somebody listens there. */
static int
path_clear(const char *path, const struct sockaddr_un *sa)
{
	struct stat st;
	int probe;
	int ret;

	if (lstat(path, &st) != 0) {
		return errno == ENOENT ? 0 : -errno;
	}
	if (!S_ISSOCK(st.st_mode)) {
		return -EADDRINUSE;
	}
	probe = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (probe < 0) {
		return -errno;
	}
	ret = connect(probe, (const struct sockaddr *)sa, sizeof(*sa)) == 0 ? -EADDRINUSE : -errno;
	(void)close(probe);
	if (ret != -ECONNREFUSED) {
		return ret == -EAGAIN || ret == -EPROTOTYPE ? -EADDRINUSE : ret;
	}
	return unlink(path) == 0 || errno == ENOENT ? 0 : -errno;
}

static int
target_bind(struct shm_target *t, const char *path)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	int ret;

	if (strlen(path) >= sizeof(sa.sun_path)) {
		return -ENAMETOOLONG;
	}
	memcpy(sa.sun_path, path, strlen(path));
	ret = path_clear(path, &sa);
	if (ret != 0) {
		return ret;
	}
	t->listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (t->listen_fd < 0) {
		return -errno;
	}
	/* Before bind, so that the file never has a wider mode; after it, whatever the umask. */
	if (fchmod(t->listen_fd, 0660) != 0 ||
		bind(t->listen_fd, (const struct sockaddr *)&sa, sizeof(sa)) != 0) {
		return -errno;
	}
	(void)snprintf(
		t->path, sizeof(t->path), "%s", path); /* from here on it is ours to unlink */
	if (chmod(path, 0660) != 0 || listen(t->listen_fd, TARGET_BACKLOG) != 0) {
		return -errno;
	}
	return 0;
}

static int
target_wait_open(struct shm_target *t)
{
	struct epoll_event listener = {.events = EPOLLIN, .data.ptr = &t->listen_fd};
	struct epoll_event wake = {.events = EPOLLIN, .data.ptr = &t->wake_fd};

	t->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	t->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (t->epoll_fd < 0 || t->wake_fd < 0 ||
		epoll_ctl(t->epoll_fd, EPOLL_CTL_ADD, t->listen_fd, &listener) != 0 ||
		epoll_ctl(t->epoll_fd, EPOLL_CTL_ADD, t->wake_fd, &wake) != 0) {
		return -errno;
	}
	return 0;
}

static void
fd_close(int *fd)
{
	if (*fd >= 0) {
		(void)close(*fd);
		*fd = -1;
	}
}

/* Back to before listen(). */
static void
target_unlisten(struct shm_target *t)
{
	if (t->path[0] != '\0') {
		(void)unlink(t->path); /* gone already is as good */
		t->path[0] = '\0';
	}
	fd_close(&t->listen_fd);
	fd_close(&t->wake_fd);
	fd_close(&t->epoll_fd);
}

int
shm_listen(struct kvp_xport *xport, const char *addr, char ret_addr[KVP_ADDR_LEN_MAX])
{
	struct shm_target *t = shm_of(xport)->target;
	struct kvp_addr parsed;
	int ret = kvp_addr_parse(addr, 0, &parsed);

	if (ret != 0 || !parsed.is_unix) {
		return ret != 0 ? ret : -EINVAL;
	}
	kvp_assert(t->thread == NULL);
	target_sweep(t); /* nobody else uses it yet */
	ret = target_bind(t, parsed.host);
	if (ret == 0) {
		ret = target_wait_open(t);
	}
	if (ret == 0) {
		ret = kvp_thread_start("kvp-shm", target_run, t, &t->thread);
	}
	if (ret != 0) {
		target_unlisten(t);
		return ret;
	}
	(void)snprintf(ret_addr, KVP_ADDR_LEN_MAX, "%s", t->path);
	return 0;
}

int
shm_admit(struct kvp_xport *xport, const uint8_t token[KVP_TOKEN_LEN])
{
	struct shm_target *t = shm_of(xport)->target;
	struct shm_session *session;
	int ret = 0;

	pthread_mutex_lock(&t->lock);
	session = session_find(t, token);
	if (session != NULL) {
		ret = session->fenced ? -KVP_E_BUSY : 0;
		goto out;
	}
	ret = -KVP_E_BUSY;
	if (t->session_count >= KVP_SESSIONS_MAX) {
		goto out;
	}
	ret = -ENOMEM;
	session = calloc(1, sizeof(*session));
	if (session == NULL) {
		goto out;
	}
	session->lock_fd = -1;
	memcpy(session->token, token, KVP_TOKEN_LEN);
	kvp_list_push_back(&t->sessions, &session->link);
	t->session_count++;
	ret = 0;
out:
	pthread_mutex_unlock(&t->lock);
	return ret;
}

/* The mutex is held. */
static int
session_fence(struct shm_target *t, struct shm_session *session)
{
	if (!session->fenced) {
		session->fenced = true;
		kvp_list_for_each (node, &t->peers) {
			struct shm_peer *peer = kvp_container_of(node, struct shm_peer, link);

			if (peer->session == session) {
				peer->session = NULL;
				session->peer_count--;
				(void)shutdown(peer->sock, SHUT_RDWR); /* the thread frees it */
			}
		}
		kvp_assert(session->peer_count == 0);
	}
	if (session->lock_fd >= 0 &&
		!shm_lock_end(t->lock_prefix, session->token, session->lock_fd)) {
		return -EINPROGRESS;
	}
	session_free(t, session);
	return 0;
}

int
shm_fence(struct kvp_xport *xport, const uint8_t token[KVP_TOKEN_LEN])
{
	struct shm_target *t = shm_of(xport)->target;
	struct shm_session *session;
	int ret;

	pthread_mutex_lock(&t->lock);
	session = session_find(t, token);
	ret = session != NULL ? session_fence(t, session) : shm_lock_fence(t->lock_prefix, token);
	pthread_mutex_unlock(&t->lock);
	return ret;
}

void
shm_target_close(struct shm_target *t)
{
	uint64_t one = 1;

	if (t == NULL) {
		return;
	}
	if (t->thread != NULL) {
		atomic_store(&t->stop, true);
		kvp_assert(write(t->wake_fd, &one, sizeof(one)) == sizeof(one));
		kvp_thread_join(t->thread);
	}
	while (!kvp_list_empty(&t->pending)) {
		peer_free(t, kvp_container_of(t->pending.next, struct shm_peer, link));
	}
	while (!kvp_list_empty(&t->peers)) {
		peer_free(t, kvp_container_of(t->peers.next, struct shm_peer, link));
	}
	while (!kvp_list_empty(&t->sessions)) {
		struct shm_session *session =
			kvp_container_of(t->sessions.next, struct shm_session, link);

		/* What is still held says so to whoever listens here next. */
		(void)(session->lock_fd >= 0 &&
			shm_lock_end(t->lock_prefix, session->token, session->lock_fd));
		session_free(t, session);
	}
	target_unlisten(t);
	(void)pthread_mutex_destroy(&t->lock);
	free(t);
}
