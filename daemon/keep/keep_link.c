/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The connection to the keeper. An item that the keeper does not have yet, or is to close, stands in
 * one queue, and is sent when the socket has room. After the keeper has died, that is every item.
 */
#include "daemon/keep/keep_private.h"

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

static int keep_send(struct gm_keep *keep, struct gm_keep_item *item)
{
	struct gm_keeper_message message = {
		.verb = item->closing ? GM_KEEPER_CLOSE : GM_KEEPER_DEPOSIT,
		.kind = (uint32_t)item->key.kind,
		.id = item->key.id,
	};
	int r = gm_seqpacket_send(keep->link->socket, &message, sizeof(message),
		item->closing ? NULL : &item->fd, item->closing ? 0 : 1);
	if (r == 0) {
		item->held = true;
		item->unconfirmed += item->closing;
	}
	GM_STEP("keeper: packet sent");
	return r;
}

int gm_keep_link_send(struct gm_keep *keep, struct gm_keep_item *item)
{
	/* If sending fails because the keeper has died, the loop will see to that. */
	if (keep->phase == KEEP_CONNECTED && !keep->queue && keep_send(keep, item) == 0)
		return 0;
	gm_keep_item_enqueue(keep, item);
	if (keep->phase == KEEP_CONNECTED)
		gm_keep_link_poll(keep, true);
	return GM_KEEP_E_WAIT;
}

static void keep_on_retry(uv_timer_t *timer);

void gm_keep_link_check_ready(struct gm_keep *keep)
{
	if (keep->ready || keep->phase != KEEP_CONNECTED || keep->waiting)
		return;
	keep->ready = true;
	keep->ready_ns = gm_clock_ns();
	if (keep->said_away)
		gm_log(GM_LOG_NOTICE, "the keeper is back (pid %d) and has everything again",
			(int)keep->pid);
	keep->said_away = keep->said_trouble = false;
	if (!keep->opening)
		keep->events->changed(keep->ctx, true);
}

/* Sends what is queued, as far as the socket has room. */
static int keep_flush_some(struct gm_keep *keep)
{
	int r = 0;
	for (int i = 0; i < KEEP_SLICE && keep->queue; i++) {
		struct gm_keep_item *item = keep->queue;
		r = keep_send(keep, item);
		if (r == -EBADF) {
			/* Its owner closed it without a word. */
			gm_keep_item_drop(keep, item);
			r = 0;
			continue;
		}
		if (r < 0)
			break;
		gm_keep_item_dequeue(keep, item);
		if (item->awaited && !item->closing) {
			item->awaited = false;
			keep->events->deposited(keep->ctx, (enum gm_keep_kind)item->key.kind,
				item->key.id, item->user);
		}
	}
	return r;
}

/* Whether the kernel wants fewer descriptors on their way. The socket may have room: polling it would spin. */
static bool keep_is_short_of_room(int error)
{
	return error == -ETOOMANYREFS || error == -ENOMEM || error == -ENOBUFS;
}

/* Asks for a sign of life: a keeper of any version says that it has closed an item that it does not have. */
static int keep_send_question(struct gm_keep *keep)
{
	struct gm_keeper_message message = {.verb = GM_KEEPER_CLOSE};
	int r = gm_seqpacket_send(keep->link->socket, &message, sizeof(message), NULL, 0);
	keep->asked = r == 0;
	return r;
}

static void keep_flush(struct gm_keep *keep)
{
	int r = keep_flush_some(keep);
	if (keep->asking && !keep->asked && !keep->queue)
		r = keep_send_question(keep);

	bool short_of_room = keep_is_short_of_room(r);
	if (short_of_room)
		uv_timer_start(&keep->retry, keep_on_retry, GM_KEEP_STARTING_MS, 0);
	gm_keep_link_poll(keep, (keep->queue || (keep->asking && !keep->asked)) && !short_of_room);
	gm_keep_link_check_ready(keep);
}

int gm_keep_link_flush(struct gm_keep *keep, uint64_t until_ns)
{
	while (keep->queue) {
		int r = keep_flush_some(keep);
		if (r < 0 && r != -EAGAIN && !keep_is_short_of_room(r))
			return r;
		if (gm_clock_ns() >= until_ns)
			return -ETIMEDOUT;
		if (r == 0)
			continue;

		/* The keeper reads nothing while it cannot answer. */
		struct pollfd p = {.fd = keep->link->socket, .events = POLLIN};
		p.events |= r == -EAGAIN ? POLLOUT : 0;
		if (poll(&p, 1, r == -EAGAIN ? gm_clock_poll_ms(until_ns) : GM_KEEP_STARTING_MS) >
				0 &&
			(p.revents & POLLIN))
			r = gm_keep_link_receive(keep);
		if (r < 0 && r != -EAGAIN && !keep_is_short_of_room(r))
			return r;
	}
	return 0;
}

/* ---- the end of a connection */

static void keep_link_on_closed(uv_handle_t *handle)
{
	free(handle->data);
}

void gm_keep_link_close(struct gm_keep *keep)
{
	struct gm_keep_link *link = gm_steal_ptr(&keep->link);
	if (!link)
		return;
	uv_poll_stop(&link->poll);
	uv_close((uv_handle_t *)&link->poll, keep_link_on_closed);
	gm_close(link->socket);
	keep->phase = KEEP_AWAY;
	keep->pid = 0;
}

static void keep_drop_closing(struct gm_keep *keep, struct gm_keep_item *item)
{
	bool silent = item->silent;
	struct gm_keep_key key = item->key;
	void *user = item->user;
	gm_keep_item_drop(keep, item);
	if (!silent)
		keep->events->withdrawn(keep->ctx, (enum gm_keep_kind)key.kind, key.id, user);
}

/* The keeper's copies are gone, and with them those that it was to close. */
static void keep_confirm_closed(struct gm_keep *keep)
{
	struct gm_keep_item *item, *next, *closed = NULL;

	keep->copies_gone = true;
	HASH_ITER (hh, keep->items, item, next) {
		item->held = false;
		if (!item->closing)
			continue;
		gm_keep_item_dequeue(keep, item);
		DL_APPEND(closed, item);
	}
	/* Other items may come and go while somebody is told, but not these. */
	DL_FOREACH_SAFE (closed, item, next) {
		DL_DELETE(closed, item);
		keep_drop_closing(keep, item);
	}
}

/*
 * The keeper is gone. The next one gets everything again, and is told once more what to close: a service manager hands it
 * the items that this one left. If this one was started here, it has left nothing.
 */
static void keep_lose(struct gm_keep *keep)
{
	struct gm_keep_item *item, *next;

	gm_keep_link_close(keep);
	keep->restarts += keep->ready;
	keep->ready = keep->copies_gone = keep->asking = false;
	keep->lost_ns = gm_clock_ns();
	if (!keep->said_away)
		gm_log(GM_LOG_WARNING,
			"the keeper is gone; new memory waits until %s; do not stop gpumemd before: what clients hold would be lost",
			keep->program ? "another one has started"
				      : "gpumemd-keeper.service runs again");
	keep->said_away = true;
	keep->events->changed(keep->ctx, false);

	HASH_ITER (hh, keep->items, item, next) {
		item->unconfirmed = 0;
		gm_keep_item_enqueue(keep, item);
	}
	if (keep->program)
		keep_confirm_closed(keep);
	uv_timer_start(&keep->retry, keep_on_retry, 0, 0);
}

/* ---- receiving */

static int keep_take_item(struct gm_keep *keep, const struct gm_keeper_message *message, int fd)
{
	struct gm_keep_item *item =
		gm_keep_item_find(keep, (enum gm_keep_kind)message->kind, message->id);
	if (fd < 0)
		return -EMFILE;
	if (item) {
		gm_close(fd); /* it is in the queue, and replaces what the keeper has */
		return 0;
	}

	item = gm_keep_item_add(keep, (enum gm_keep_kind)message->kind, message->id, fd);
	if (!item) {
		gm_close(fd);
		return -ENOMEM;
	}
	item->held = item->owned = true;
	if (!keep->opening) {
		/* Nobody knows it any more. */
		gm_keep_item_set_closing(keep, item, true);
		item->silent = true;
		gm_keep_item_enqueue(keep, item);
	}
	return 0;
}

static void keep_take_lost(struct gm_keep *keep, const struct gm_keeper_message *message)
{
	struct gm_keep_item *item =
		gm_keep_item_find(keep, (enum gm_keep_kind)message->kind, message->id);
	if (item)
		item->held = false;
	if (!keep->lost++)
		gm_log(GM_LOG_ERROR,
			"the keeper could not take a descriptor: %s; raise LimitNOFILE= of "
			"gpumemd-keeper.service. What it lacks is lost if the daemon dies",
			strerror((int)message->value));
}

static int keep_take_message(
	struct gm_keep *keep, const struct gm_keeper_message *message, struct gm_packet_in *packet)
{
	struct gm_keep_item *item;

	switch (message->verb) {
	case GM_KEEPER_WELCOME:
		keep->capacity = message->id;
		return 0;
	case GM_KEEPER_BUSY:
		keep->other = (pid_t)message->id;
		return -EBUSY;
	case GM_KEEPER_ITEM:
		return keep_take_item(keep, message, gm_fdlist_steal(&packet->fds, 0));
	case GM_KEEPER_DONE:
		keep->phase = KEEP_CONNECTED;
		return 0;
	case GM_KEEPER_CLOSED:
		if (!message->kind && keep->asked) {
			keep->asking = keep->asked = false;
			keep->events->changed(keep->ctx, true);
			return 0;
		}
		item = gm_keep_item_find(keep, (enum gm_keep_kind)message->kind, message->id);
		if (item && item->unconfirmed && --item->unconfirmed == 0 && item->closing &&
			!item->queued)
			keep_drop_closing(keep, item);
		return 0;
	case GM_KEEPER_LOST:
		keep_take_lost(keep, message);
		return 0;
	default: /* of a newer keeper */
		return 0;
	}
}

int gm_keep_link_receive(struct gm_keep *keep)
{
	for (int i = 0; i < KEEP_SLICE; i++) {
		struct gm_keeper_message message = {0};
		struct gm_packet_in packet;
		int r = gm_seqpacket_receive(
			keep->link->socket, &message, sizeof(message), &packet);
		if (r == -EAGAIN)
			return 0;
		if (r < 0)
			return r;

		if (packet.n < sizeof(message))
			r = -EBADMSG;
		else
			r = keep_take_message(keep, &message, &packet);
		gm_fdlist_deinit(&packet.fds);
		if (r < 0)
			return r;
	}
	return 0;
}

static void keep_on_poll(uv_poll_t *poll, int status, int events)
{
	struct gm_keep_link *link = poll->data;
	struct gm_keep *keep = link->keep;

	if (status < 0 || gm_keep_link_receive(keep) < 0) {
		keep_lose(keep);
		return;
	}
	if (keep->phase == KEEP_CONNECTED)
		keep_flush(keep);
}

void gm_keep_link_poll(struct gm_keep *keep, bool writable)
{
	uv_poll_start(&keep->link->poll, UV_READABLE | UV_DISCONNECT | (writable ? UV_WRITABLE : 0),
		keep_on_poll);
}

/* ---- finding a keeper */

int gm_keep_link_open(struct gm_keep *keep, char why[GM_KEEP_FIND_WHY])
{
	GM_AUTO_FD int socket = -1;
	struct gm_keeper_message hello = {.verb = GM_KEEPER_HELLO, .value = GM_KEEPER_VERSION};
	pid_t pid = 0;
	int r = gm_keep_find(keep->path, &socket, &pid, why);
	if (r < 0)
		return r;
	/* A keeper that is busy may have closed the connection by now, and has said why. */
	r = gm_seqpacket_send(socket, &hello, sizeof(hello), NULL, 0);
	if (r < 0 && r != -EPIPE)
		return r;

	struct gm_keep_link *link = calloc(1, sizeof(*link));
	if (!link)
		return -ENOMEM;
	r = uv_poll_init(keep->loop, &link->poll, socket);
	if (r < 0) {
		free(link);
		return r;
	}
	link->poll.data = link;
	link->keep = keep;
	link->socket = gm_steal_fd(&socket);
	keep->link = link;
	keep->phase = KEEP_GREETING;
	keep->other = 0;
	keep->pid = pid;
	return 0;
}

bool gm_keep_link_is_missing(int error)
{
	return error == -ENOENT || error == -ECONNREFUSED;
}

int gm_keep_link_start_keeper(struct gm_keep *keep, bool wait, char why[GM_KEEP_WHY])
{
	int r = 0, status = 0;
	if (!keep->starter)
		r = gm_keep_find_start(keep->program, keep->path, &keep->starter);
	if (r < 0) {
		keep->starter = 0;
		snprintf(why, GM_KEEP_WHY,
			"cannot start %.300s: %s; is gpumemd installed as a whole?", keep->program,
			strerror(-r));
		return r;
	}

	pid_t ended;
	do
		ended = waitpid(keep->starter, &status, wait ? 0 : WNOHANG);
	while (ended < 0 && errno == EINTR);
	if (ended == 0)
		return 0;
	keep->starter = 0;
	if (ended < 0 || (WIFEXITED(status) && (WEXITSTATUS(status) == 0 ||
						       WEXITSTATUS(status) == KEEP_EXIT_TAKEN)))
		return 0;
	snprintf(why, GM_KEEP_WHY,
		"%.300s could not start on %.300s; it says why on standard error", keep->program,
		keep->path);
	return -ECHILD;
}

static void keep_on_retry(uv_timer_t *timer)
{
	struct gm_keep *keep = timer->data;
	char why[GM_KEEP_WHY] = "";
	uint64_t next_ms = KEEP_AWAY_MS;

	if (keep->phase == KEEP_CONNECTED) {
		keep_flush(keep);
		return;
	}
	if (keep->phase == KEEP_GREETING)
		return;
	if (!keep->copies_gone && gm_clock_ns() - keep->lost_ns > KEEP_LEFT_NS)
		keep_confirm_closed(keep);

	int r = keep->starter ? -ENOENT : gm_keep_link_open(keep, why);
	if (r == 0) {
		gm_keep_link_poll(keep, false);
		return;
	}
	if (r == -EPERM) {
		next_ms = KEEP_FOREIGN_MS;
	} else if (gm_keep_link_is_missing(r) && keep->program) {
		r = gm_keep_link_start_keeper(keep, false, why);
		next_ms = r == 0 ? GM_KEEP_STARTING_MS : KEEP_FOREIGN_MS;
	}
	if (next_ms == KEEP_FOREIGN_MS && !keep->said_trouble)
		gm_log(GM_LOG_ERROR, "%s", why);
	keep->said_trouble = keep->said_trouble || next_ms == KEEP_FOREIGN_MS;
	uv_timer_start(&keep->retry, keep_on_retry, next_ms, 0);
}
