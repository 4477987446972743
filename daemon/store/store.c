/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What others call: the start, deposits and withdrawals, and the store. No function here ever calls
 * its caller back: the loop does.
 */
#include "daemon/store/store_private.h"

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
#define KEEP_ANSWER_MS   1000
#define STORE_RECORDS_ID 1

/* ---- the start */

/* Reads until the keeper has told everything. */
static int store_read_all(struct gm_store *store, uint64_t until_ns)
{
	int r = 0;
	while (r == 0 && store->phase != KEEP_CONNECTED) {
		struct pollfd p = {.fd = store->link->socket, .events = POLLIN};
		int n = poll(&p, 1, gm_clock_poll_ms(until_ns));
		if (n == 0)
			r = -ETIMEDOUT;
		else if (n > 0)
			r = gm_store_link_receive(store);
		else if (errno != EINTR)
			r = -errno;
	}
	return r;
}

static void store_drop_all(struct gm_store *store)
{
	struct gm_store_item *item, *next;
	HASH_ITER (hh, store->items, item, next)
		gm_store_item_drop(store, item);
}

/* Writes why the keeper that was found is of no use, and what to do. */
static void store_say_silent(const struct gm_store *store, int error, char why[GM_STORE_WHY])
{
	if (store->other)
		snprintf(why, GM_STORE_WHY,
			"%.300s: the keeper (pid %d) serves another gpumemd (pid %d) that is still running; stop that one first: 'kill %d'",
			store->path, (int)store->pid, (int)store->other, (int)store->other);
	else if (error == -EMFILE || error == -ENFILE)
		snprintf(why, GM_STORE_WHY,
			"%.300s: the keeper (pid %d) holds more descriptors than this daemon may open: %s; raise LimitNOFILE= of gpumemd.service to that of gpumemd-keeper.service (elsewhere 'ulimit -n'); the keeper has what clients hold",
			store->path, (int)store->pid, strerror(-error));
	else
		snprintf(why, GM_STORE_WHY, "%.300s: the keeper (pid %d) does not answer: %s; %s",
			store->path, (int)store->pid, strerror(-error),
			store->program ? "end it with 'kill -9', which gives up what it holds"
				       : "run 'systemctl restart gpumemd-keeper'");
}

/* Writes that no keeper listens, for a daemon whose keeper a service manager runs. */
static void store_say_missing(const struct gm_store *store, char why[GM_STORE_WHY])
{
	if (strcmp(store->path, GM_SYSTEM_KEEPER) == 0)
		snprintf(why, GM_STORE_WHY,
			"no keeper listens on " GM_SYSTEM_KEEPER "; start gpumemd-keeper.service");
	else
		snprintf(why, GM_STORE_WHY,
			"no keeper listens on %.300s, where this daemon looks because of the path of its own socket; gpumemd-keeper.service listens on " GM_SYSTEM_KEEPER
			": give this daemon the socket " GM_SYSTEM_SOCKET
			" again, or the keeper --socket with the path above",
			store->path);
}

/* Tries once. */
static int store_try(struct gm_store *store, uint64_t until_ns, char why[GM_STORE_WHY])
{
	int r = gm_store_link_open(store, why);
	if (gm_store_link_is_missing(r) && store->program) {
		r = gm_store_link_start_keeper(store, true, why);
		if (r == 0)
			r = gm_store_link_open(store, why);
	}
	if (r < 0)
		return r;

	r = store_read_all(
		store, gm_u64_max(until_ns, gm_clock_ns() + KEEP_ANSWER_MS * GM_NS_PER_MS));
	if (r < 0) {
		store_say_silent(store, r, why);
		gm_store_link_close(store);
		store_drop_all(store);
	}
	return r;
}

static int store_find_keeper(struct gm_store *store, uint64_t wait_ms, char why[GM_STORE_WHY])
{
	uint64_t until_ns = gm_clock_ns() + wait_ms * GM_NS_PER_MS;
	for (;;) {
		int r = store_try(store, until_ns, why);
		bool soon =
			gm_store_link_is_missing(r) || r == -EBUSY || r == -EPIPE || r == -EAGAIN;
		if (!soon || gm_clock_ns() >= until_ns) {
			if (gm_store_link_is_missing(r) && !store->program)
				store_say_missing(store, why);
			return r;
		}
		poll(NULL, 0, GM_STORE_STARTING_MS);
	}
}

/* ---- what the daemon before left */

/* Adds an item of the store. It is newer than that of the keeper, if both have it. */
static int store_put_left(void *ctx, uint64_t kind, uint64_t id, int fd)
{
	struct gm_store *store = ctx;
	struct gm_store_item *item = gm_store_item_find(store, (enum gm_store_kind)kind, id);
	if (!item)
		item = gm_store_item_add(store, (enum gm_store_kind)kind, id, fd);
	else
		gm_close(item->fd);
	if (!item) {
		gm_close(fd);
		return -ENOMEM;
	}
	gm_store_item_dequeue(store, item);
	item->fd = fd;
	item->owned = true;
	gm_store_link_send(store, item);
	return 0;
}

/* Gives the keeper what the daemon before left with the service manager. */
static int store_take_left(
	struct gm_store *store, int *left, uint64_t wait_ms, char why[GM_STORE_WHY])
{
	uint64_t until_ns = gm_clock_ns() + wait_ms * GM_NS_PER_MS;
	int r = 0;
	if (!left || left[0] < 0)
		return 0;
	for (; *left >= 0; *left = gm_close(*left), left++) {
		int taken = gm_keeper_store_take(*left, store_put_left, store);
		if (taken < 0)
			gm_log(GM_LOG_ERROR,
				"cannot take all that the daemon before left: %s; is LimitNOFILE= lower than before?",
				strerror(-taken));
		if (r == 0)
			r = gm_store_link_flush(store, until_ns);
	}
	gm_keeper_store_forget();
	if (r == 0)
		return 0;
	snprintf(why, GM_STORE_WHY,
		"%.300s: the keeper does not take what the daemon before left: %s", store->path,
		strerror(-r));
	int again = gm_store_leave(store);
	if (again < 0)
		gm_log(GM_LOG_ERROR,
			"cannot leave it with the service manager again: %s; what the keeper lacks is given up",
			strerror(-again));
	return r;
}

int gm_store_leave(struct gm_store *store)
{
	struct gm_keeper_store keeper_store;
	const struct gm_store_item *item;
	int r = gm_keeper_store_begin(&keeper_store);
	if (r < 0)
		return r;
	for (item = store->items; item; item = item->hh.next)
		if (!item->closing)
			gm_keeper_store_add(&keeper_store, item->key.kind, item->key.id, item->fd);
	return gm_keeper_store_end(&keeper_store);
}

/* ---- the store */

/* Opens the store that the keeper has, or makes a new one. */
static int store_open_ledger(struct gm_store *store, uint64_t most, char why[GM_STORE_WHY])
{
	struct gm_store_item *item =
		gm_store_item_find(store, GM_STORE_RECORDS_FILE, STORE_RECORDS_ID);
	if (item) {
		int r = gm_store_records_open(item->fd, &store->records, why);
		if (r == 0) {
			item->owned = false;
			return 0;
		}
		if (r != -EBADMSG) {
			if (r == -EPROTONOSUPPORT)
				strncat(why,
					"; start the newer gpumemd again, or end gpumem-keeper, which gives up all memory",
					GM_STORE_WHY - strlen(why) - 1);
			return r;
		}
		gm_log(GM_LOG_ERROR,
			"%s; nothing that clients hold is known any more. What they use counts as "
			"foreign memory",
			why);
	}

	int r = gm_store_records_new(most, &store->records, why);
	if (r < 0)
		return r;
	if (item)
		gm_store_item_drop(store, item);
	r = gm_store_deposit(store, GM_STORE_RECORDS_FILE, STORE_RECORDS_ID,
		gm_store_records_fd(store->records), NULL);
	if (r < 0)
		snprintf(why, GM_STORE_WHY, "the keeper does not take the store: %s", strerror(-r));
	return r < 0 ? r : 0;
}

static void store_report_ledger(const struct gm_store *store)
{
	struct gm_store_records_state state;
	gm_store_records_get_state(store->records, &state);
	if (state.damaged)
		gm_log(GM_LOG_WARNING,
			"store: %llu of %llu records were damaged; the memory that they were about is "
			"given up",
			(unsigned long long)state.damaged,
			(unsigned long long)(state.records + state.damaged));
}

int gm_store_open(uv_loop_t *loop, const struct gm_store_options *options,
	const struct gm_store_events *events, void *ctx, struct gm_store **ret_keep,
	char why[GM_STORE_WHY])
{
	struct gm_store *store = calloc(1, sizeof(*store));
	if (!store) {
		snprintf(why, GM_STORE_WHY, "out of memory");
		return -ENOMEM;
	}

	store->loop = loop;
	store->events = events;
	store->ctx = ctx;
	store->opening = true;
	store->refs_fd = -1;
	store->path = strdup(options->path);
	store->program = options->program ? strdup(options->program) : NULL;
	uv_timer_init(loop, &store->retry); /* cannot fail */
	store->retry.data = store;
	int r = store->path && (store->program || !options->program) ? 0 : -ENOMEM;
	snprintf(why, GM_STORE_WHY, "out of memory");
	if (r == 0)
		r = store_find_keeper(store, options->wait_ms, why);
	if (r == 0)
		r = store_take_left(store, options->left, options->wait_ms, why);
	if (r == 0)
		r = store_open_ledger(store, options->ledger_most, why);
	if (r < 0) {
		gm_store_close(store, false);
		return r;
	}

	gm_store_refs_open(store);
	store_report_ledger(store);
	gm_store_link_check_ready(store);
	gm_store_link_poll(store, store->queue);
	store->opening = false;
	*ret_keep = store;
	return 0;
}

static void store_on_closed(uv_handle_t *handle)
{
	struct gm_store *store = handle->data;
	free(store->path);
	free(store->program);
	free(store);
}

/* Has the keeper forget everything. One that was started here ends: waits for that, as long as it
 * takes to answer. */
static void store_end_keeper(struct gm_store *store)
{
	struct gm_keeper_message end = {.verb = GM_KEEPER_END};
	uint64_t until_ns = gm_clock_ns() + KEEP_ANSWER_MS * GM_NS_PER_MS;
	struct pollfd p = {.fd = store->link->socket, .events = POLLOUT};
	int r;

	while ((r = gm_seqpacket_send(p.fd, &end, sizeof(end), NULL, 0)) == -EAGAIN)
		if (poll(&p, 1, gm_clock_poll_ms(until_ns)) <= 0)
			return;
	p.events = POLLRDHUP;
	if (r == 0 && store->program)
		poll(&p, 1, gm_clock_poll_ms(until_ns));
}

void gm_store_close(struct gm_store *store, bool empty)
{
	if (!store)
		return;
	if (empty && store->phase == KEEP_CONNECTED)
		store_end_keeper(store);
	gm_store_link_close(store);
	store_drop_all(store);
	gm_store_records_free(store->records);
	gm_store_refs_close(store);
	uv_close((uv_handle_t *)&store->retry, store_on_closed);
}

/* ---- what others call */

int gm_store_record(struct gm_store *store, uint32_t kind, uint64_t id, uint32_t *place,
	const void *bytes, size_t size)
{
	return gm_store_records_write(store->records, kind, id, place, bytes, size);
}

void gm_store_erase(struct gm_store *store, uint32_t *place)
{
	uint32_t erased = *place;
	gm_store_records_erase(store->records, place);
	gm_store_refs_erase(store, erased);
}

void gm_store_each_record(
	struct gm_store *store, uint32_t kind, gm_store_records_visit visit, void *ctx)
{
	gm_store_records_each(store->records, kind, visit, ctx);
}

int gm_store_claim(struct gm_store *store, enum gm_store_kind kind, uint64_t id, int *ret_fd)
{
	struct gm_store_item *item = gm_store_item_find(store, kind, id);
	if (!item || !item->owned)
		return -ENOENT;
	item->owned = false;
	*ret_fd = item->fd;
	return 0;
}

void gm_store_each_unclaimed(struct gm_store *store, enum gm_store_kind kind,
	void (*visit)(void *ctx, uint64_t id), void *ctx)
{
	struct gm_store_item *item, *next;
	HASH_ITER (hh, store->items, item, next)
		if (item->owned && !item->closing && item->key.kind == kind)
			visit(ctx, item->key.id);
}

uint64_t gm_store_settle(struct gm_store *store)
{
	struct gm_store_item *item, *next;
	uint64_t n = 0;
	HASH_ITER (hh, store->items, item, next) {
		if (!item->owned || item->closing)
			continue;
		gm_store_item_set_closing(store, item, true);
		item->silent = true;
		gm_store_link_send(store, item);
		n++;
	}
	return n;
}

int gm_store_deposit(
	struct gm_store *store, enum gm_store_kind kind, uint64_t id, int fd, void *user)
{
	struct gm_store_item *item = gm_store_item_find(store, kind, id);
	/* The keeper does what it is told in that order. So whatever it is to close is closed before it
	 * takes another item. */
	uint64_t n = HASH_COUNT(store->items) - store->closing;
	if (!item && store->phase == KEEP_CONNECTED && n >= store->capacity)
		return -ENOSPC;
	if (!item)
		item = gm_store_item_add(store, kind, id, fd);
	if (!item)
		return -ENOMEM;

	gm_store_item_dequeue(store, item);
	if (item->owned)
		gm_close(item->fd);
	gm_store_item_set_closing(store, item, false);
	item->owned = item->silent = false;
	item->fd = fd;
	item->user = user;
	int r = gm_store_link_send(store, item);
	item->awaited = r == GM_STORE_E_WAIT;
	return r;
}

int gm_store_withdraw(struct gm_store *store, enum gm_store_kind kind, uint64_t id, void *user)
{
	struct gm_store_item *item = gm_store_item_find(store, kind, id);
	if (!item || item->closing)
		return 0;
	if (!item->held) {
		gm_store_item_drop(store, item);
		return 0;
	}

	gm_store_item_dequeue(store, item);
	gm_store_item_set_closing(store, item, true);
	item->user = user;
	gm_store_link_send(store, item);
	return GM_STORE_E_WAIT;
}

void gm_store_ask(struct gm_store *store)
{
	store->asking = store->ready;
	store->asked = false;
	if (store->asking)
		gm_store_link_poll(store, true);
}

bool gm_store_is_ready(const struct gm_store *store)
{
	return store->ready && !store->waiting && !store->asking;
}

void gm_store_get_state(const struct gm_store *store, struct gm_store_state *ret)
{
	*ret = (struct gm_store_state){
		.ready = store->ready,
		.pid = store->pid,
		.items = HASH_COUNT(store->items) - (store->refs_fd >= 0),
		.capacity = store->capacity,
		.waiting = store->waiting,
		.restarts = store->restarts,
		.lost = store->lost,
		.ready_ns = store->ready_ns,
		.lost_ns = store->lost_ns,
		.path = store->path,
	};
	gm_store_records_get_state(store->records, &ret->ledger);
}
