/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * gpumemctl evict and restore: have a client move evictable buffers to host memory, or back. The client
 * moves them by itself, so gpumemctl asks, and then looks until they are there or the time is over.
 */

#include <stdio.h>
#include <string.h>

#include "common/arith.h"
#include "common/clock.h"
#include "common/text/units.h"
#include "ctl/verb/verb.h"

/* How long to wait between two looks, at first and at most. */
#define EVICT_FIRST_MS 10
#define EVICT_MOST_MS  500

struct evict_answer {
	bool restore;
	uint64_t session;                  /* 0: not found yet */
	uint32_t row;                      /* 0: all buffers of the client */
	uint64_t pid;                      /* as given, if it may be one */
	const char *name;                  /* as given, if it is no number; otherwise NULL */
	bool several;                      /* clients have that name */
	bool hidden;                       /* clients have names that the user may not see */
	bool quarantined;                  /* the client that was found */
	bool process;                      /* it is a pid: all sessions of the process are meant */
	uint64_t buffers, bytes;           /* that the client was asked to move */
	uint64_t left_buffers, left_bytes; /* of them, those that have not moved */
	bool movable;                      /* one of those is neither pinned nor shared */
	uint64_t there_buffers;            /* those that are where they should be */
	bool alive;                        /* the client, when none of them was left */
	uint64_t devices;                  /* a bit for each device that the moved ones are on */
	bool awaited;                      /* a request waits for one of these devices */
};

/* Reads SESSION/ROW, SESSION, PID or NAME. */
static bool evict_parse(const char *word, struct evict_answer *ret)
{
	char first[32];
	const char *slash = strchr(word, '/');
	size_t n = slash ? (size_t)(slash - word) : strlen(word);
	uint64_t number, row = 0;

	if (n == 0)
		return false;
	snprintf(first, sizeof(first), "%.*s", (int)gm_u64_min(n, sizeof(first)), word);
	if (n >= sizeof(first) || gm_parse_u64(first, &number) < 0 || !number) {
		ret->name = word;
		return !slash && word[strspn(word, "0123456789")];
	}
	if (slash && (gm_parse_u64(slash + 1, &row) < 0 || !row || row > UINT32_MAX))
		return false;
	ret->row = (uint32_t)row;
	ret->session = slash ? number : 0;
	ret->pid = number;
	return true;
}

/* Looks through the clients for the one that the user named: by the number of its session, else by its pid, or by its name. By its
 * pid, one of several sessions will do, if it is connected. */
static void evict_take_clients(void *user, const Gm__Wire__Packet *packet)
{
	struct evict_answer *answer = user;

	for (size_t i = 0; i < packet->clients->n_clients; i++) {
		const Gm__Wire__Client *client = packet->clients->clients[i];
		if (answer->name) {
			answer->hidden = answer->hidden || !client->details;
			if (client->left || !client->details || strcmp(client->name, answer->name))
				continue;
			answer->several = answer->several || answer->session;
			answer->session = client->session;
			answer->quarantined = client->quarantined;
			continue;
		}
		bool by_pid = client->pid > 0 && (uint64_t)client->pid == answer->pid;
		if (!client->left &&
			(client->session == answer->pid ||
				(by_pid && (!answer->session || answer->quarantined)))) {
			answer->session = client->session;
			answer->quarantined = client->quarantined;
			answer->process = client->session != answer->pid;
		}
	}
}

static void evict_take(void *user, const Gm__Wire__Packet *packet)
{
	struct evict_answer *answer = user;

	answer->buffers = packet->evict_reply->buffers;
	answer->bytes = packet->evict_reply->bytes;
}

static void evict_take_buffers(void *user, const Gm__Wire__Packet *packet)
{
	struct evict_answer *answer = user;

	for (size_t i = 0; i < packet->buffers->n_buffers; i++) {
		const Gm__Wire__Buffer *buffer = packet->buffers->buffers[i];
		bool whose = answer->process
				     ? buffer->pid > 0 && (uint64_t)buffer->pid == answer->pid
				     : buffer->session == answer->session;
		bool meant = whose && buffer->evictable &&
			     (answer->row ? buffer->row == answer->row
					  : !buffer->pinned && !buffer->shared);
		if (meant && buffer->in_host == answer->restore) {
			answer->left_buffers++;
			answer->left_bytes += buffer->bytes;
			answer->movable |= !buffer->pinned && !buffer->shared;
		}
		if (meant && buffer->in_host != answer->restore) {
			answer->there_buffers++;
			answer->devices |= UINT64_C(1) << buffer->home % 64;
		}
	}
}

static void evict_take_alive(void *user, const Gm__Wire__Packet *packet)
{
	struct evict_answer *answer = user;

	for (size_t i = 0; i < packet->clients->n_clients; i++) {
		const Gm__Wire__Client *client = packet->clients->clients[i];
		bool meant = answer->process
				     ? client->pid > 0 && (uint64_t)client->pid == answer->pid
				     : client->session == answer->session;
		answer->alive = answer->alive || (meant && !client->left && !client->ended);
	}
}

static gpumem_status evict_find(
	struct gm_ctl *ctl, struct gm_ctl_conn *conn, struct evict_answer *answer)
{
	if (answer->session)
		return GPUMEM_OK;
	gpumem_status status = gm_ctl_conn_get(conn, GM__WIRE__PACKET__BODY_GET_CLIENTS,
		evict_take_clients, answer, &ctl->trouble);
	if (status == GPUMEM_OK && answer->several)
		return gm_verb_wrong_use(ctl,
			"several clients have the name '%.64s'; name one by its pid or session, as 'gpumemctl clients --columns session,pid,name' shows them",
			answer->name);
	if (status == GPUMEM_OK && answer->quarantined)
		return gm_trouble_set(&ctl->trouble, GPUMEM_E_BUSY,
			"client '%.64s' is in quarantine: it has lost its connection, so it cannot be asked; try again when it has reconnected",
			ctl->options->args[0]);
	if (status == GPUMEM_OK && !answer->session)
		status = gm_verb_no_client(
			ctl, ctl->options->args[0], answer->name && answer->hidden);
	return status;
}

/* Sends the request once. */
static gpumem_status evict_ask_once(
	struct gm_ctl *ctl, struct gm_ctl_conn *conn, struct evict_answer *answer)
{
	Gm__Wire__Evict body = GM__WIRE__EVICT__INIT;
	Gm__Wire__Packet request = GM_WIRE_PACKET(EVICT, evict, &body);

	body.session = answer->session;
	body.row = answer->row;
	body.restore = answer->restore;
	body.process = answer->process;
	return gm_ctl_conn_ask(conn, &request, GM__WIRE__PACKET__BODY_EVICT_REPLY, evict_take,
		answer, &ctl->trouble);
}

/* Counts the buffers that have not moved. */
static gpumem_status evict_look(
	struct gm_ctl *ctl, struct gm_ctl_conn *conn, struct evict_answer *answer)
{
	Gm__Wire__GetBuffers body = GM__WIRE__GET_BUFFERS__INIT;
	Gm__Wire__Packet request = GM_WIRE_PACKET(GET_BUFFERS, get_buffers, &body);

	answer->left_buffers = answer->left_bytes = answer->there_buffers = 0;
	answer->movable = false;
	return gm_ctl_conn_ask(conn, &request, GM__WIRE__PACKET__BODY_BUFFERS, evict_take_buffers,
		answer, &ctl->trouble);
}

static uint64_t evict_until_ms(const struct gm_ctl *ctl)
{
	return gm_u64_plus(gm_clock_ns() / GM_NS_PER_MS, ctl->options->timeout_ms);
}

static bool evict_is_over(uint64_t until_ms)
{
	return gm_clock_ns() / GM_NS_PER_MS >= until_ms;
}

/* Asks the client. While the client has not heard an earlier request about other buffers, the daemon refuses
 * this one although there are buffers to move: then asks again, until the time is over. */
static gpumem_status evict_ask(
	struct gm_ctl *ctl, struct gm_ctl_conn *conn, struct evict_answer *answer)
{
	uint64_t until_ms = evict_until_ms(ctl), pause_ms = EVICT_FIRST_MS;

	for (;;) {
		gpumem_status status = evict_ask_once(ctl, conn, answer);
		if (status != GPUMEM_E_BUSY || evict_is_over(until_ms))
			return status;
		gpumem_status looked = evict_look(ctl, conn, answer);
		if (looked != GPUMEM_OK || !answer->movable)
			return looked != GPUMEM_OK ? looked : status;
		gm_verb_pause(&pause_ms, EVICT_MOST_MS, until_ms);
	}
}

/* Looks until the buffers have moved, or the time is over. */
static gpumem_status evict_await(
	struct gm_ctl *ctl, struct gm_ctl_conn *conn, struct evict_answer *answer)
{
	uint64_t until_ms = evict_until_ms(ctl), pause_ms = EVICT_FIRST_MS;

	for (;;) {
		gpumem_status status = evict_look(ctl, conn, answer);
		if (status != GPUMEM_OK || !answer->left_buffers || evict_is_over(until_ms))
			return status;
		gm_verb_pause(&pause_ms, EVICT_MOST_MS, until_ms);
	}
}

/* A client that has ended has no buffers either, but it may have moved none. */
static gpumem_status evict_check_alive(
	struct gm_ctl *ctl, struct gm_ctl_conn *conn, struct evict_answer *answer)
{
	if (answer->left_buffers)
		return GPUMEM_OK;
	gpumem_status status = gm_ctl_conn_get(
		conn, GM__WIRE__PACKET__BODY_GET_CLIENTS, evict_take_alive, answer, &ctl->trouble);
	if (status == GPUMEM_OK && !answer->alive)
		status = gm_trouble_set(&ctl->trouble, GPUMEM_E_NOT_FOUND,
			"client %llu has ended meanwhile, and its buffers with it",
			(unsigned long long)answer->session);
	return status;
}

static void evict_take_queue(void *user, const Gm__Wire__Packet *packet)
{
	struct evict_answer *answer = user;

	for (size_t i = 0; i < packet->queue->n_requests; i++)
		if (answer->devices & UINT64_C(1) << packet->queue->requests[i]->device % 64)
			answer->awaited = true;
}

/* Finds out whether the restored buffers may be evicted again soon. */
static gpumem_status evict_look_at_queue(
	struct gm_ctl *ctl, struct gm_ctl_conn *conn, struct evict_answer *answer)
{
	if (!answer->restore || answer->buffers <= answer->left_buffers)
		return GPUMEM_OK;
	return gm_ctl_conn_get(
		conn, GM__WIRE__PACKET__BODY_GET_QUEUE, evict_take_queue, answer, &ctl->trouble);
}

static void evict_tell(struct gm_ctl *ctl, const struct evict_answer *answer)
{
	uint64_t moved = gm_u64_minus(answer->buffers, answer->left_buffers);
	uint64_t bytes = gm_u64_minus(answer->bytes, answer->left_bytes);
	char text[GM_UNITS_TEXT];

	gm_writer_count(ctl->writer, "buffers", moved);
	gm_writer_size(ctl->writer, "bytes", bytes);
	gm_writer_count(ctl->writer, "left", answer->left_buffers);
	if (!answer->buffers && !answer->left_buffers) {
		gm_writer_line(ctl->writer, "",
			!answer->there_buffers
				? "Nothing to move: there is no evictable buffer that is neither pinned nor shared."
			: answer->restore
				? "Nothing to move: %llu buffer%s on the device already."
				: "Nothing to move: %llu buffer%s in host memory already.",
			(unsigned long long)answer->there_buffers,
			answer->there_buffers == 1 ? " is" : "s are");
		return;
	}
	gm_writer_line(ctl->writer, "", "Moved %llu buffer%s (%s) to %s.",
		(unsigned long long)moved, moved == 1 ? "" : "s",
		gm_writer_bytes(ctl->writer, bytes, text),
		answer->restore ? "the device" : "host memory");
	if (answer->left_buffers) {
		gm_writer_line(ctl->writer, "",
			"%llu did not move: the device still uses them, there is no %s left, or the client does not respond.",
			(unsigned long long)answer->left_buffers,
			answer->restore ? "device memory" : "pinned host memory");
		ctl->status = GPUMEM_E_BUSY;
	}
	gm_writer_notes(ctl->writer);
	if (answer->awaited)
		gm_writer_note(ctl->writer, "queue", GM_MARK_WARN,
			"a request waits for this device, so the buffers may be moved to host memory again; see 'gpumemctl queue'");
}

static gpumem_status evict_move(struct gm_ctl *ctl, bool restore)
{
	struct evict_answer answer = {.restore = restore};
	struct gm_ctl_conn *conn;

	if (!ctl->options->n_args || !evict_parse(ctl->options->args[0], &answer))
		return gm_verb_wrong_use(ctl,
			"'%s' needs a client, by its pid, session or name, or a buffer, as 'gpumemctl buffers' shows them",
			restore ? "restore" : "evict");

	gpumem_status status = gm_verb_connect(ctl, &conn);
	if (status != GPUMEM_OK)
		return status;
	status = evict_find(ctl, conn, &answer);
	if (status == GPUMEM_OK)
		status = evict_ask(ctl, conn, &answer);
	if (status == GPUMEM_OK)
		status = evict_await(ctl, conn, &answer);
	if (status == GPUMEM_OK)
		status = evict_check_alive(ctl, conn, &answer);
	if (status == GPUMEM_OK)
		status = evict_look_at_queue(ctl, conn, &answer);
	gm_ctl_conn_free(conn);
	if (status == GPUMEM_OK)
		evict_tell(ctl, &answer);
	return status;
}

static gpumem_status evict_run(struct gm_ctl *ctl)
{
	return evict_move(ctl, false);
}

static gpumem_status evict_run_restore(struct gm_ctl *ctl)
{
	return evict_move(ctl, true);
}

const struct gm_verb gm_verb_evict = {
	.name = "evict",
	.arguments = "CLIENT | BUFFER",
	.summary = "move evictable buffers to host memory",
	.help = "CLIENT is a pid, the number of a session, or the name of one client; all its\n"
		"evictable buffers move that are not pinned or shared. A pid means all sessions\n"
		"of that process. BUFFER is one buffer, as 'gpumemctl buffers' shows it:\n"
		"SESSION/NUMBER. Their memory goes to the pool of the device. A buffer comes\n"
		"back when its program pins it. You may move buffers of your own processes, and\n"
		"administrators may move all.\n",
	.max_args = 1,
	.run = evict_run,
};

const struct gm_verb gm_verb_restore = {
	.name = "restore",
	.arguments = "CLIENT | BUFFER",
	.summary = "move evicted buffers back to their device",
	.help = "CLIENT and BUFFER are as for 'gpumemctl evict'. Buffers move back as long as the\n"
		"device has room for them.\n",
	.max_args = 1,
	.run = evict_run_restore,
};
