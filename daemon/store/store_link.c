/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The connection to the keeper. An item that the keeper does not have yet, or is to close, stands in
 * one queue, and is sent when the socket has room. After the keeper has died, that is every item.
 */
#include "daemon/store/store_private.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utlist.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/wire/seqpacket.h"
#include "common/step.h"

/* Packets that are sent or read before the loop serves others. */
#define KEEP_SLICE 64
/* How soon to look again for a keeper that somebody else starts, and for one that is not ours. */
#define KEEP_AWAY_MS    50
#define KEEP_FOREIGN_MS 1000
/* Maximum time in which a keeper that a service manager ended is followed by one that has its items, in ns. */
#define KEEP_LEFT_NS (2 * GM_NS_PER_S)
/* The exit status of a keeper that found another one on its socket. */
#define KEEP_EXIT_TAKEN 3

/* ---- sending */

static int store_send(struct gm_store *store, struct gm_store_item *item)
{
	struct gm_keeper_message message = {
		.verb = item->closing ? GM_KEEPER_CLOSE : GM_KEEPER_DEPOSIT,
		.kind = (uint32_t)item->key.kind,
		.id = item->key.id,
	};
	int r = gm_seqpacket_send(store->link->socket, &message, sizeof(message),
		item->closing ? NULL : &item->fd, item->closing ? 0 : 1);
	if (r == 0) {
		item->held = true;
		item->unconfirmed += item->closing;
	}
	GM_STEP("keeper: packet sent");
	return r;
}

int gm_store_link_send(struct gm_store *store, struct gm_store_item *item)
{
	/* If sending fails because the keeper has died, the loop will see to that. */
	if (store->phase == KEEP_CONNECTED && !store->queue && store_send(store, item) == 0)
		return 0;
	gm_store_item_enqueue(store, item);
	if (store->phase == KEEP_CONNECTED)
		gm_store_link_poll(store, true);
	return GM_STORE_E_WAIT;
}

static void store_on_retry(uv_timer_t *timer);

void gm_store_link_check_ready(struct gm_store *store)
{
	if (store->ready || store->phase != KEEP_CONNECTED || store->waiting)
		return;
	store->ready = true;
	store->ready_ns = gm_clock_ns();
	if (store->said_away)
		gm_log(GM_LOG_NOTICE, "the keeper is back (pid %d) and has everything again",
			(int)store->pid);
	store->said_away = store->said_trouble = false;
	if (!store->opening)
		store->events->changed(store->ctx, true);
}

/* Sends what is queued, as far as the socket has room. */
static int store_flush_some(struct gm_store *store)
{
	int r = 0;
	for (int i = 0; i < KEEP_SLICE && store->queue; i++) {
		struct gm_store_item *item = store->queue;
		r = store_send(store, item);
		if (r == -EBADF) {
			/* Its owner closed it without a word. */
			gm_store_item_drop(store, item);
			r = 0;
			continue;
		}
		if (r < 0)
			break;
		gm_store_item_dequeue(store, item);
		if (item->awaited && !item->closing) {
			item->awaited = false;
			store->events->deposited(store->ctx, (enum gm_store_kind)item->key.kind,
				item->key.id, item->user);
		}
	}
	return r;
}

/* Whether the kernel wants fewer descriptors on their way. The socket may have room: polling it would spin. */
static bool store_is_short_of_room(int error)
{
	return error == -ETOOMANYREFS || error == -ENOMEM || error == -ENOBUFS;
}

/* Asks for a sign of life: a keeper of any version says that it has closed an item that it does not have. */
static int store_send_question(struct gm_store *store)
{
	struct gm_keeper_message message = {.verb = GM_KEEPER_CLOSE};
	int r = gm_seqpacket_send(store->link->socket, &message, sizeof(message), NULL, 0);
	store->asked = r == 0;
	return r;
}

static void store_flush(struct gm_store *store)
{
	int r = store_flush_some(store);
	if (store->asking && !store->asked && !store->queue)
		r = store_send_question(store);

	bool short_of_room = store_is_short_of_room(r);
	if (short_of_room)
		uv_timer_start(&store->retry, store_on_retry, GM_STORE_STARTING_MS, 0);
	gm_store_link_poll(
		store, (store->queue || (store->asking && !store->asked)) && !short_of_room);
	gm_store_link_check_ready(store);
}

int gm_store_link_flush(struct gm_store *store, uint64_t until_ns)
{
	while (store->queue) {
		int r = store_flush_some(store);
		if (r < 0 && r != -EAGAIN && !store_is_short_of_room(r))
			return r;
		if (gm_clock_ns() >= until_ns)
			return -ETIMEDOUT;
		if (r == 0)
			continue;

		/* The keeper reads nothing while it cannot answer. */
		struct pollfd p = {.fd = store->link->socket, .events = POLLIN};
		p.events |= r == -EAGAIN ? POLLOUT : 0;
		if (poll(&p, 1, r == -EAGAIN ? gm_clock_poll_ms(until_ns) : GM_STORE_STARTING_MS) >
				0 &&
			(p.revents & POLLIN))
			r = gm_store_link_receive(store);
		if (r < 0 && r != -EAGAIN && !store_is_short_of_room(r))
			return r;
	}
	return 0;
}

/* ---- the end of a connection */

static void store_link_on_closed(uv_handle_t *handle)
{
	free(handle->data);
}

void gm_store_link_close(struct gm_store *store)
{
	struct gm_store_link *link = gm_steal_ptr(&store->link);
	if (!link)
		return;
	uv_poll_stop(&link->poll);
	uv_close((uv_handle_t *)&link->poll, store_link_on_closed);
	gm_close(link->socket);
	store->phase = KEEP_AWAY;
	store->pid = 0;
}

static void store_drop_closing(struct gm_store *store, struct gm_store_item *item)
{
	bool silent = item->silent;
	struct gm_store_key key = item->key;
	void *user = item->user;
	gm_store_item_drop(store, item);
	if (!silent)
		store->events->withdrawn(store->ctx, (enum gm_store_kind)key.kind, key.id, user);
}

/* The keeper's copies are gone, and with them those that it was to close. */
static void store_confirm_closed(struct gm_store *store)
{
	struct gm_store_item *item, *next, *closed = NULL;

	store->copies_gone = true;
	HASH_ITER (hh, store->items, item, next) {
		item->held = false;
		if (!item->closing)
			continue;
		gm_store_item_dequeue(store, item);
		DL_APPEND(closed, item);
	}
	/* Other items may come and go while somebody is told, but not these. */
	DL_FOREACH_SAFE (closed, item, next) {
		DL_DELETE(closed, item);
		store_drop_closing(store, item);
	}
}

/*
 * The keeper is gone. The next one gets everything again, and is told once more what to close: a service manager hands it
 * the items that this one left. If this one was started here, it has left nothing.
 */
static void store_lose(struct gm_store *store)
{
	struct gm_store_item *item, *next;

	gm_store_link_close(store);
	store->restarts += store->ready;
	store->ready = store->copies_gone = store->asking = false;
	store->lost_ns = gm_clock_ns();
	if (!store->said_away)
		gm_log(GM_LOG_WARNING,
			"the keeper is gone; new memory waits until %s; do not stop gpumemd before: what clients hold would be lost",
			store->program ? "another one has started"
				       : "gpumemd-keeper.service runs again");
	store->said_away = true;
	store->events->changed(store->ctx, false);

	HASH_ITER (hh, store->items, item, next) {
		item->unconfirmed = 0;
		gm_store_item_enqueue(store, item);
	}
	if (store->program)
		store_confirm_closed(store);
	uv_timer_start(&store->retry, store_on_retry, 0, 0);
}

/* ---- receiving */

static int store_take_item(struct gm_store *store, const struct gm_keeper_message *message, int fd)
{
	struct gm_store_item *item =
		gm_store_item_find(store, (enum gm_store_kind)message->kind, message->id);
	if (fd < 0)
		return -EMFILE;
	if (item) {
		gm_close(fd); /* it is in the queue, and replaces what the keeper has */
		return 0;
	}

	item = gm_store_item_add(store, (enum gm_store_kind)message->kind, message->id, fd);
	if (!item) {
		gm_close(fd);
		return -ENOMEM;
	}
	item->held = item->owned = true;
	if (!store->opening) {
		/* Nobody knows it any more. */
		gm_store_item_set_closing(store, item, true);
		item->silent = true;
		gm_store_item_enqueue(store, item);
	}
	return 0;
}

static void store_take_lost(struct gm_store *store, const struct gm_keeper_message *message)
{
	struct gm_store_item *item =
		gm_store_item_find(store, (enum gm_store_kind)message->kind, message->id);
	if (item)
		item->held = false;
	if (!store->lost++)
		gm_log(GM_LOG_ERROR,
			"the keeper could not take a descriptor: %s; raise LimitNOFILE= of "
			"gpumemd-keeper.service. What it lacks is lost if the daemon dies",
			strerror((int)message->value));
}

static int store_take_message(struct gm_store *store, const struct gm_keeper_message *message,
	struct gm_conn_packet *packet)
{
	struct gm_store_item *item;

	switch (message->verb) {
	case GM_KEEPER_WELCOME:
		store->capacity = message->id;
		return 0;
	case GM_KEEPER_BUSY:
		store->other = (pid_t)message->id;
		return -EBUSY;
	case GM_KEEPER_ITEM:
		return store_take_item(store, message, gm_fdlist_steal(&packet->fds, 0));
	case GM_KEEPER_DONE:
		store->phase = KEEP_CONNECTED;
		return 0;
	case GM_KEEPER_CLOSED:
		if (!message->kind && store->asked) {
			store->asking = store->asked = false;
			store->events->changed(store->ctx, true);
			return 0;
		}
		item = gm_store_item_find(store, (enum gm_store_kind)message->kind, message->id);
		if (item && item->unconfirmed && --item->unconfirmed == 0 && item->closing &&
			!item->queued)
			store_drop_closing(store, item);
		return 0;
	case GM_KEEPER_LOST:
		store_take_lost(store, message);
		return 0;
	default: /* of a newer keeper */
		return 0;
	}
}

int gm_store_link_receive(struct gm_store *store)
{
	for (int i = 0; i < KEEP_SLICE; i++) {
		struct gm_keeper_message message = {0};
		struct gm_conn_packet packet;
		int r = gm_seqpacket_receive(
			store->link->socket, &message, sizeof(message), &packet);
		if (r == -EAGAIN)
			return 0;
		if (r < 0)
			return r;

		if (packet.n < sizeof(message))
			r = -EBADMSG;
		else
			r = store_take_message(store, &message, &packet);
		gm_fdlist_deinit(&packet.fds);
		if (r < 0)
			return r;
	}
	return 0;
}

static void store_on_poll(uv_poll_t *poll, int status, int events)
{
	struct gm_store_link *link = poll->data;
	struct gm_store *store = link->store;

	if (status < 0 || gm_store_link_receive(store) < 0) {
		store_lose(store);
		return;
	}
	if (store->phase == KEEP_CONNECTED)
		store_flush(store);
}

void gm_store_link_poll(struct gm_store *store, bool writable)
{
	uv_poll_start(&store->link->poll,
		UV_READABLE | UV_DISCONNECT | (writable ? UV_WRITABLE : 0), store_on_poll);
}

/* ---- finding a keeper */

int gm_store_link_open(struct gm_store *store, char why[GM_STORE_FIND_WHY])
{
	GM_AUTO_FD int socket = -1;
	struct gm_keeper_message hello = {.verb = GM_KEEPER_HELLO, .value = GM_KEEPER_VERSION};
	pid_t pid = 0;
	int r = gm_store_find(store->path, &socket, &pid, why);
	if (r < 0)
		return r;
	/* A keeper that is busy may have closed the connection by now, and has said why. */
	r = gm_seqpacket_send(socket, &hello, sizeof(hello), NULL, 0);
	if (r < 0 && r != -EPIPE)
		return r;

	struct gm_store_link *link = calloc(1, sizeof(*link));
	if (!link)
		return -ENOMEM;
	r = uv_poll_init(store->loop, &link->poll, socket);
	if (r < 0) {
		free(link);
		return r;
	}
	link->poll.data = link;
	link->store = store;
	link->socket = gm_steal_fd(&socket);
	store->link = link;
	store->phase = KEEP_GREETING;
	store->other = 0;
	store->pid = pid;
	return 0;
}

bool gm_store_link_is_missing(int error)
{
	return error == -ENOENT || error == -ECONNREFUSED;
}

int gm_store_link_start_keeper(struct gm_store *store, bool wait, char why[GM_STORE_WHY])
{
	int r = 0, status = 0;
	if (!store->starter)
		r = gm_store_find_start(store->program, store->path, &store->starter);
	if (r < 0) {
		store->starter = 0;
		snprintf(why, GM_STORE_WHY,
			"cannot start %.300s: %s; is gpumemd installed as a whole?", store->program,
			strerror(-r));
		return r;
	}

	pid_t ended;
	do
		ended = waitpid(store->starter, &status, wait ? 0 : WNOHANG);
	while (ended < 0 && errno == EINTR);
	if (ended == 0)
		return 0;
	store->starter = 0;
	if (ended < 0 || (WIFEXITED(status) && (WEXITSTATUS(status) == 0 ||
						       WEXITSTATUS(status) == KEEP_EXIT_TAKEN)))
		return 0;
	snprintf(why, GM_STORE_WHY,
		"%.300s could not start on %.300s; it says why on standard error", store->program,
		store->path);
	return -ECHILD;
}

static void store_on_retry(uv_timer_t *timer)
{
	struct gm_store *store = timer->data;
	char why[GM_STORE_WHY] = "";
	uint64_t next_ms = KEEP_AWAY_MS;

	if (store->phase == KEEP_CONNECTED) {
		store_flush(store);
		return;
	}
	if (store->phase == KEEP_GREETING)
		return;
	if (!store->copies_gone && gm_clock_ns() - store->lost_ns > KEEP_LEFT_NS)
		store_confirm_closed(store);

	int r = store->starter ? -ENOENT : gm_store_link_open(store, why);
	if (r == 0) {
		gm_store_link_poll(store, false);
		return;
	}
	if (r == -EPERM) {
		next_ms = KEEP_FOREIGN_MS;
	} else if (gm_store_link_is_missing(r) && store->program) {
		r = gm_store_link_start_keeper(store, false, why);
		next_ms = r == 0 ? GM_STORE_STARTING_MS : KEEP_FOREIGN_MS;
	}
	if (next_ms == KEEP_FOREIGN_MS && !store->said_trouble)
		gm_log(GM_LOG_ERROR, "%s", why);
	store->said_trouble = store->said_trouble || next_ms == KEEP_FOREIGN_MS;
	uv_timer_start(&store->retry, store_on_retry, next_ms, 0);
}
