/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What others call: the start, deposits and withdrawals, and the ledger. No function here ever calls
 * its caller back: the loop does.
 */
#include "daemon/keep/keep_private.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/arith.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/system/path.h"
#include "common/log.h"
#include "common/wire/keeper_store.h"
#include "common/wire/seqpacket.h"

/* How long the keeper has to answer at least, once it was found. */
#define KEEP_ANSWER_MS 1000
#define KEEP_LEDGER_ID 1

/* ---- the start */

/* Reads until the keeper has told everything. */
static int keep_read_all(struct gm_keep *keep, uint64_t until_ns)
{
	int r = 0;
	while (r == 0 && keep->phase != KEEP_CONNECTED) {
		struct pollfd p = {.fd = keep->link->socket, .events = POLLIN};
		int n = poll(&p, 1, gm_clock_poll_ms(until_ns));
		if (n == 0)
			r = -ETIMEDOUT;
		else if (n > 0)
			r = gm_keep_link_receive(keep);
		else if (errno != EINTR)
			r = -errno;
	}
	return r;
}

static void keep_drop_all(struct gm_keep *keep)
{
	struct gm_keep_item *item, *next;
	HASH_ITER (hh, keep->items, item, next)
		gm_keep_item_drop(keep, item);
}

/* Writes why the keeper that was found is of no use, and what to do. */
static void keep_say_silent(const struct gm_keep *keep, int error, char why[GM_KEEP_WHY])
{
	if (keep->other)
		snprintf(why, GM_KEEP_WHY,
			"%.300s: the keeper (pid %d) serves another gpumemd (pid %d) that is still running; stop that one first: 'kill %d'",
			keep->path, (int)keep->pid, (int)keep->other, (int)keep->other);
	else if (error == -EMFILE || error == -ENFILE)
		snprintf(why, GM_KEEP_WHY,
			"%.300s: the keeper (pid %d) holds more descriptors than this daemon may open: %s; raise LimitNOFILE= of gpumemd.service to that of gpumemd-keeper.service (elsewhere 'ulimit -n'); the keeper has what clients hold",
			keep->path, (int)keep->pid, strerror(-error));
	else
		snprintf(why, GM_KEEP_WHY, "%.300s: the keeper (pid %d) does not answer: %s; %s",
			keep->path, (int)keep->pid, strerror(-error),
			keep->program ? "end it with 'kill -9', which gives up what it holds"
				      : "run 'systemctl restart gpumemd-keeper'");
}

/* Writes that no keeper listens, for a daemon whose keeper a service manager runs. */
static void keep_say_missing(const struct gm_keep *keep, char why[GM_KEEP_WHY])
{
	if (strcmp(keep->path, GM_SYSTEM_KEEPER) == 0)
		snprintf(why, GM_KEEP_WHY,
			"no keeper listens on " GM_SYSTEM_KEEPER "; start gpumemd-keeper.service");
	else
		snprintf(why, GM_KEEP_WHY,
			"no keeper listens on %.300s, where this daemon looks because of the path of its own socket; gpumemd-keeper.service listens on " GM_SYSTEM_KEEPER
			": give this daemon the socket " GM_SYSTEM_SOCKET
			" again, or the keeper --socket with the path above",
			keep->path);
}

/* Tries once. */
static int keep_try(struct gm_keep *keep, uint64_t until_ns, char why[GM_KEEP_WHY])
{
	int r = gm_keep_link_open(keep, why);
	if (gm_keep_link_is_missing(r) && keep->program) {
		r = gm_keep_link_start_keeper(keep, true, why);
		if (r == 0)
			r = gm_keep_link_open(keep, why);
	}
	if (r < 0)
		return r;

	r = keep_read_all(keep, gm_max(until_ns, gm_clock_ns() + KEEP_ANSWER_MS * GM_NS_PER_MS));
	if (r < 0) {
		keep_say_silent(keep, r, why);
		gm_keep_link_close(keep);
		keep_drop_all(keep);
	}
	return r;
}

static int keep_find_keeper(struct gm_keep *keep, uint64_t wait_ms, char why[GM_KEEP_WHY])
{
	uint64_t until_ns = gm_clock_ns() + wait_ms * GM_NS_PER_MS;
	for (;;) {
		int r = keep_try(keep, until_ns, why);
		bool soon =
			gm_keep_link_is_missing(r) || r == -EBUSY || r == -EPIPE || r == -EAGAIN;
		if (!soon || gm_clock_ns() >= until_ns) {
			if (gm_keep_link_is_missing(r) && !keep->program)
				keep_say_missing(keep, why);
			return r;
		}
		poll(NULL, 0, GM_KEEP_STARTING_MS);
	}
}

/* ---- what the daemon before left */

/* Adds an item of the store. It is newer than that of the keeper, if both have it. */
static int keep_put_left(void *ctx, uint64_t kind, uint64_t id, int fd)
{
	struct gm_keep *keep = ctx;
	struct gm_keep_item *item = gm_keep_item_find(keep, (enum gm_keep_kind)kind, id);
	if (!item)
		item = gm_keep_item_add(keep, (enum gm_keep_kind)kind, id, fd);
	else
		gm_close(item->fd);
	if (!item) {
		gm_close(fd);
		return -ENOMEM;
	}
	gm_keep_item_dequeue(keep, item);
	item->fd = fd;
	item->owned = true;
	gm_keep_link_send(keep, item);
	return 0;
}

/* Gives the keeper what the daemon before left with the service manager. */
static int keep_take_left(struct gm_keep *keep, int *left, uint64_t wait_ms, char why[GM_KEEP_WHY])
{
	uint64_t until_ns = gm_clock_ns() + wait_ms * GM_NS_PER_MS;
	int r = 0;
	if (!left || left[0] < 0)
		return 0;
	for (; *left >= 0; *left = gm_close(*left), left++) {
		int taken = gm_keeper_store_take(*left, keep_put_left, keep);
		if (taken < 0)
			gm_log(GM_LOG_ERROR,
				"cannot take all that the daemon before left: %s; is LimitNOFILE= lower than before?",
				strerror(-taken));
		if (r == 0)
			r = gm_keep_link_flush(keep, until_ns);
	}
	gm_keeper_store_forget();
	if (r == 0)
		return 0;
	snprintf(why, GM_KEEP_WHY,
		"%.300s: the keeper does not take what the daemon before left: %s", keep->path,
		strerror(-r));
	int again = gm_keep_leave(keep);
	if (again < 0)
		gm_log(GM_LOG_ERROR,
			"cannot leave it with the service manager again: %s; what the keeper lacks is given up",
			strerror(-again));
	return r;
}

int gm_keep_leave(struct gm_keep *keep)
{
	struct gm_keeper_store store;
	const struct gm_keep_item *item;
	int r = gm_keeper_store_begin(&store);
	if (r < 0)
		return r;
	for (item = keep->items; item; item = item->hh.next)
		if (!item->closing)
			gm_keeper_store_add(&store, item->key.kind, item->key.id, item->fd);
	return gm_keeper_store_end(&store);
}

/* ---- the ledger */

/* Opens the ledger that the keeper has, or makes a new one. */
static int keep_open_ledger(struct gm_keep *keep, uint64_t most, char why[GM_KEEP_WHY])
{
	struct gm_keep_item *item = gm_keep_item_find(keep, GM_KEEP_LEDGER, KEEP_LEDGER_ID);
	if (item) {
		int r = gm_records_open(item->fd, &keep->records, why);
		if (r == 0) {
			item->owned = false;
			return 0;
		}
		if (r != -EBADMSG) {
			if (r == -EPROTONOSUPPORT)
				strncat(why,
					"; start the newer gpumemd again, or end gpumem-keeper, which gives up all memory",
					GM_KEEP_WHY - strlen(why) - 1);
			return r;
		}
		gm_log(GM_LOG_ERROR,
			"%s; nothing that clients hold is known any more. What they use counts as "
			"foreign memory",
			why);
	}

	int r = gm_records_new(most, &keep->records, why);
	if (r < 0)
		return r;
	if (item)
		gm_keep_item_drop(keep, item);
	r = gm_keep_deposit(
		keep, GM_KEEP_LEDGER, KEEP_LEDGER_ID, gm_records_fd(keep->records), NULL);
	if (r < 0)
		snprintf(why, GM_KEEP_WHY, "the keeper does not take the ledger: %s", strerror(-r));
	return r < 0 ? r : 0;
}

static void keep_report_ledger(const struct gm_keep *keep)
{
	struct gm_records_state state;
	gm_records_get_state(keep->records, &state);
	if (state.damaged)
		gm_log(GM_LOG_WARNING,
			"ledger: %llu of %llu records were damaged; the memory that they were about is "
			"given up",
			(unsigned long long)state.damaged,
			(unsigned long long)(state.records + state.damaged));
}

int gm_keep_open(uv_loop_t *loop, const struct gm_keep_options *options,
	const struct gm_keep_events *events, void *ctx, struct gm_keep **ret_keep,
	char why[GM_KEEP_WHY])
{
	struct gm_keep *keep = calloc(1, sizeof(*keep));
	if (!keep) {
		snprintf(why, GM_KEEP_WHY, "out of memory");
		return -ENOMEM;
	}

	keep->loop = loop;
	keep->events = events;
	keep->ctx = ctx;
	keep->opening = true;
	keep->refs_fd = -1;
	keep->path = strdup(options->path);
	keep->program = options->program ? strdup(options->program) : NULL;
	uv_timer_init(loop, &keep->retry); /* cannot fail */
	keep->retry.data = keep;
	int r = keep->path && (keep->program || !options->program) ? 0 : -ENOMEM;
	snprintf(why, GM_KEEP_WHY, "out of memory");
	if (r == 0)
		r = keep_find_keeper(keep, options->wait_ms, why);
	if (r == 0)
		r = keep_take_left(keep, options->left, options->wait_ms, why);
	if (r == 0)
		r = keep_open_ledger(keep, options->ledger_most, why);
	if (r < 0) {
		gm_keep_close(keep, false);
		return r;
	}

	gm_keep_refs_open(keep);
	keep_report_ledger(keep);
	gm_keep_link_check_ready(keep);
	gm_keep_link_poll(keep, keep->queue);
	keep->opening = false;
	*ret_keep = keep;
	return 0;
}

static void keep_on_closed(uv_handle_t *handle)
{
	struct gm_keep *keep = handle->data;
	free(keep->path);
	free(keep->program);
	free(keep);
}

/* Has the keeper forget everything. One that was started here ends: waits for that, as long as it
 * takes to answer. */
static void keep_end_keeper(struct gm_keep *keep)
{
	struct gm_keeper_message end = {.verb = GM_KEEPER_END};
	uint64_t until_ns = gm_clock_ns() + KEEP_ANSWER_MS * GM_NS_PER_MS;
	struct pollfd p = {.fd = keep->link->socket, .events = POLLOUT};
	int r;

	while ((r = gm_seqpacket_send(p.fd, &end, sizeof(end), NULL, 0)) == -EAGAIN)
		if (poll(&p, 1, gm_clock_poll_ms(until_ns)) <= 0)
			return;
	p.events = POLLRDHUP;
	if (r == 0 && keep->program)
		poll(&p, 1, gm_clock_poll_ms(until_ns));
}

void gm_keep_close(struct gm_keep *keep, bool empty)
{
	if (!keep)
		return;
	if (empty && keep->phase == KEEP_CONNECTED)
		keep_end_keeper(keep);
	gm_keep_link_close(keep);
	keep_drop_all(keep);
	gm_records_free(keep->records);
	gm_keep_refs_close(keep);
	uv_close((uv_handle_t *)&keep->retry, keep_on_closed);
}

/* ---- what others call */

int gm_keep_record(struct gm_keep *keep, uint32_t kind, uint64_t id, uint32_t *place,
	const void *bytes, size_t size)
{
	return gm_records_write(keep->records, kind, id, place, bytes, size);
}

void gm_keep_erase(struct gm_keep *keep, uint32_t *place)
{
	uint32_t erased = *place;
	gm_records_erase(keep->records, place);
	gm_keep_refs_erase(keep, erased);
}

void gm_keep_each_record(struct gm_keep *keep, uint32_t kind, gm_records_visit visit, void *ctx)
{
	gm_records_each(keep->records, kind, visit, ctx);
}

int gm_keep_claim(struct gm_keep *keep, enum gm_keep_kind kind, uint64_t id, int *ret_fd)
{
	struct gm_keep_item *item = gm_keep_item_find(keep, kind, id);
	if (!item || !item->owned)
		return -ENOENT;
	item->owned = false;
	*ret_fd = item->fd;
	return 0;
}

void gm_keep_each_unclaimed(struct gm_keep *keep, enum gm_keep_kind kind,
	void (*visit)(void *ctx, uint64_t id), void *ctx)
{
	struct gm_keep_item *item, *next;
	HASH_ITER (hh, keep->items, item, next)
		if (item->owned && !item->closing && item->key.kind == kind)
			visit(ctx, item->key.id);
}

uint64_t gm_keep_settle(struct gm_keep *keep)
{
	struct gm_keep_item *item, *next;
	uint64_t n = 0;
	HASH_ITER (hh, keep->items, item, next) {
		if (!item->owned || item->closing)
			continue;
		gm_keep_item_set_closing(keep, item, true);
		item->silent = true;
		gm_keep_link_send(keep, item);
		n++;
	}
	return n;
}

int gm_keep_deposit(struct gm_keep *keep, enum gm_keep_kind kind, uint64_t id, int fd, void *user)
{
	struct gm_keep_item *item = gm_keep_item_find(keep, kind, id);
	/* The keeper does what it is told in that order. So whatever it is to close is closed before it
	 * takes another item. */
	uint64_t n = HASH_COUNT(keep->items) - keep->closing;
	if (!item && keep->phase == KEEP_CONNECTED && n >= keep->capacity)
		return -ENOSPC;
	if (!item)
		item = gm_keep_item_add(keep, kind, id, fd);
	if (!item)
		return -ENOMEM;

	gm_keep_item_dequeue(keep, item);
	if (item->owned)
		gm_close(item->fd);
	gm_keep_item_set_closing(keep, item, false);
	item->owned = item->silent = false;
	item->fd = fd;
	item->user = user;
	int r = gm_keep_link_send(keep, item);
	item->awaited = r == GM_KEEP_E_WAIT;
	return r;
}

int gm_keep_withdraw(struct gm_keep *keep, enum gm_keep_kind kind, uint64_t id, void *user)
{
	struct gm_keep_item *item = gm_keep_item_find(keep, kind, id);
	if (!item || item->closing)
		return 0;
	if (!item->held) {
		gm_keep_item_drop(keep, item);
		return 0;
	}

	gm_keep_item_dequeue(keep, item);
	gm_keep_item_set_closing(keep, item, true);
	item->user = user;
	gm_keep_link_send(keep, item);
	return GM_KEEP_E_WAIT;
}

void gm_keep_ask(struct gm_keep *keep)
{
	keep->asking = keep->ready;
	keep->asked = false;
	if (keep->asking)
		gm_keep_link_poll(keep, true);
}

bool gm_keep_is_ready(const struct gm_keep *keep)
{
	return keep->ready && !keep->waiting && !keep->asking;
}

void gm_keep_get_state(const struct gm_keep *keep, struct gm_keep_state *ret)
{
	*ret = (struct gm_keep_state){
		.ready = keep->ready,
		.pid = keep->pid,
		.items = HASH_COUNT(keep->items) - (keep->refs_fd >= 0),
		.capacity = keep->capacity,
		.waiting = keep->waiting,
		.restarts = keep->restarts,
		.lost = keep->lost,
		.ready_ns = keep->ready_ns,
		.lost_ns = keep->lost_ns,
		.path = keep->path,
	};
	gm_records_get_state(keep->records, &ret->ledger);
}
