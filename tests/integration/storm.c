/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/* What a worker does until it is killed: see storm.h. It must never wait for another worker, which
 * may be dead. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpumem/gpumem.h"
#include "tests/integration/device.h"
#include "tests/integration/ok.h"
#include "tests/integration/raw.h"
#include "tests/integration/storm.h"

#define MIB (UINT64_C(1) << 20)
#define KIB (UINT64_C(1) << 10)

enum {
	OWN = 3,   /* buffers that a worker holds after it has published them */
	VIEWS = 4, /* that it holds */
	BATCHES = 2,
	ENTRIES = 300,
	REQUESTS = 40,
};
#define WAIT_MS 30000
/* Not there yet: nobody may see it. */
#define HALF UINT64_MAX

struct gm_storm_board *gm_storm_board;

struct view {
	gpumem_buffer *buffer;
	uint64_t stamp;
};

struct slot {
	gpumem_request *request;
	bool buffer; /* it is for a buffer */
	bool much;   /* it may fail: it is for more than there is */
};

struct worker {
	gpumem_session *session;
	unsigned number, seed, user;
	struct view own[OWN], views[VIEWS];
	gpumem_batch *batches[BATCHES];
	struct slot slots[REQUESTS];
};

enum gm_storm_role gm_storm_role_of(unsigned worker)
{
	return (enum gm_storm_role)(worker / GM_STORM_USERS % GM_STORM_ROLES);
}

unsigned gm_storm_user_of(unsigned worker)
{
	return worker % GM_STORM_USERS;
}

const char *gm_storm_name(unsigned user, unsigned name, char text[GM_STORM_NAME_TEXT])
{
	snprintf(text, GM_STORM_NAME_TEXT, "%s %u of %u", name < GM_STORM_KEPT ? "kept" : "loose",
		name, user);
	return text;
}

/* The first of the kept and the first of the loose names are for the other user. */
static bool for_other(unsigned name)
{
	return name == 0 || name == GM_STORM_KEPT;
}

static bool may_read(unsigned reader, unsigned user, unsigned name)
{
	const uid_t *uids = gm_storm_board->uids;
	return uids[reader] == uids[for_other(name) ? !user : user];
}

static unsigned pick(struct worker *worker, unsigned n)
{
	return (unsigned)rand_r(&worker->seed) % n;
}

/* ---- stamps */

struct mark {
	uint64_t stamp, offset;
};

#define MARKS_EVERY (256 * KIB)

static size_t size_of(uint64_t stamp)
{
	static const size_t sizes[] = {64 * KIB, MIB, 2 * MIB, 2 * MIB + 16, 3 * MIB, 5 * MIB};
	return sizes[stamp % (sizeof(sizes) / sizeof(*sizes))];
}

/* Where the marks are: at the beginning, in between, and at the end. */
static size_t next_mark(size_t at, size_t bytes)
{
	size_t last = bytes - sizeof(struct mark), next = at + MARKS_EVERY;
	return at < last && next > last ? last : next;
}

static void write_stamp(gpumem_buffer *buffer, uint64_t stamp)
{
	uint8_t *ptr = gpumem_buffer_ptr(buffer);
	size_t bytes = gpumem_buffer_size(buffer);
	for (size_t at = 0; at < bytes; at = next_mark(at, bytes)) {
		struct mark mark = {stamp, at};
		gm_device_write(ptr + at, &mark, sizeof(mark));
	}
}

/* The one stamp that the buffer has everywhere. */
static uint64_t read_stamp(const gpumem_buffer *buffer)
{
	const uint8_t *ptr = gpumem_buffer_ptr(buffer);
	size_t bytes = gpumem_buffer_size(buffer);
	uint64_t stamp = 0;
	for (size_t at = 0; at < bytes; at = next_mark(at, bytes)) {
		struct mark mark;
		gm_device_read(&mark, ptr + at, sizeof(mark));
		if (at == 0)
			stamp = mark.stamp;
		if (mark.offset != at || mark.stamp != stamp || stamp == 0 || stamp == HALF)
			GM_FAIL("stamp %llu, and at %zu %llu with offset %llu",
				(unsigned long long)stamp, at, (unsigned long long)mark.stamp,
				(unsigned long long)mark.offset);
	}
	GM_REQUIRE(stamp < GM_STORM_STAMPS);
	GM_REQUIRE_EQ(bytes, size_of(stamp));
	return stamp;
}

/* Somebody knows that the name had this version, with this stamp. */
static void note(unsigned user, unsigned name, uint64_t version, uint64_t stamp)
{
	uint64_t as = (version * GM_STORM_USERS + user) * GM_STORM_NAMES + name, before = 0;
	if (!atomic_compare_exchange_strong(&gm_storm_board->seen_as[stamp], &before, as) &&
		before != as)
		GM_FAIL("stamp %llu was version %llu of name %llu, and is version %llu of name %u",
			(unsigned long long)stamp,
			(unsigned long long)(before / GM_STORM_NAMES / GM_STORM_USERS),
			(unsigned long long)(before % GM_STORM_NAMES), (unsigned long long)version,
			name);

	_Atomic uint64_t *newest = &gm_storm_board->newest[user][name];
	uint64_t known = atomic_load(newest);
	while (name < GM_STORM_KEPT && known < version &&
		!atomic_compare_exchange_weak(newest, &known, version))
		;
}

/* ---- names */

static void let_go(struct view *view)
{
	if (!view->buffer)
		return;
	GM_REQUIRE_EQ(read_stamp(view->buffer), view->stamp);
	gpumem_buffer_destroy(view->buffer);
	*view = (struct view){0};
}

/* A buffer for this name. It is in a half-written state for a while. */
static struct view make(struct worker *worker, unsigned name)
{
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	struct view made = {.stamp = atomic_fetch_add(&gm_storm_board->last_stamp, 1) + 1};
	GM_REQUIRE(made.stamp < GM_STORM_STAMPS);
	options.wait_ms = WAIT_MS;
	options.flags = for_other(name) ? GPUMEM_BUFFER_FOR_OTHERS : 0;
	OK(gpumem_buffer_create(worker->session, 0, size_of(made.stamp), &options, &made.buffer));
	write_stamp(made.buffer, HALF);
	write_stamp(made.buffer, made.stamp);
	return made;
}

static void publish(struct worker *worker, unsigned name)
{
	gpumem_publish_options options = GPUMEM_PUBLISH_OPTIONS_INIT;
	struct view made = make(worker, name);
	char text[GM_STORM_NAME_TEXT];
	uint64_t version = 0;

	options.replace = name < GM_STORM_KEPT || pick(worker, 2);
	options.until_unread = name >= GM_STORM_KEPT && pick(worker, 2);
	if (for_other(name)) {
		options.audience = GPUMEM_AUDIENCE_UID;
		options.id = gm_storm_board->uids[!worker->user];
		options.flags = GPUMEM_READERS_CAN_WRITE;
	}
	gpumem_status status = gpumem_publish(made.buffer, gm_storm_name(worker->user, name, text),
		&options, pick(worker, 2) ? NULL : GPUMEM_STREAM_DONE, &version);
	if (status == GPUMEM_E_BUSY && !options.replace) {
		GM_REQUIRE_EQ(gpumem_buffer_version(made.buffer), 0);
		let_go(&made);
		return;
	}
	OK(status);
	note(worker->user, name, version, made.stamp);
	GM_REQUIRE_EQ(gpumem_buffer_version(made.buffer), version);
	gm_storm_board->published++;

	struct view *old = &worker->own[pick(worker, OWN)];
	let_go(old);
	if (pick(worker, 2))
		*old = made;
	else
		let_go(&made);
}

/* NULL: there is no such name now. */
static gpumem_buffer *attach(struct worker *worker, unsigned user, unsigned name)
{
	char text[GM_STORM_NAME_TEXT], whole[GM_STORM_NAME_TEXT + 16];
	gpumem_buffer *buffer = NULL;
	uint64_t known = atomic_load(&gm_storm_board->newest[user][name]);

	snprintf(whole, sizeof(whole), "uid:%u/%s", (unsigned)gm_storm_board->uids[user],
		gm_storm_name(user, name, text));
	gpumem_status status =
		gpumem_attach(worker->session, user == worker->user ? text : whole, &buffer);
	if (status == GPUMEM_E_NOT_FOUND && known == 0)
		return NULL;
	OK(status);
	gm_storm_board->attached++;

	uint64_t version = gpumem_buffer_version(buffer);
	if (version < known)
		GM_FAIL("version %llu of %s came after version %llu", (unsigned long long)version,
			whole, (unsigned long long)known);
	note(user, name, version, read_stamp(buffer));
	return buffer;
}

static void look(struct worker *worker)
{
	struct view *view = &worker->views[pick(worker, VIEWS)];
	unsigned user = pick(worker, GM_STORM_USERS), name = pick(worker, GM_STORM_NAMES);

	let_go(view);
	if (!may_read(worker->user, user, name))
		return;
	view->buffer = attach(worker, user, name);
	if (view->buffer)
		view->stamp = read_stamp(view->buffer);
}

static void remove_one(struct worker *worker)
{
	char text[GM_STORM_NAME_TEXT];
	unsigned name = GM_STORM_KEPT + pick(worker, GM_STORM_LOOSE);
	gpumem_status status =
		gpumem_unpublish(worker->session, gm_storm_name(worker->user, name, text));
	if (status == GPUMEM_E_NOT_FOUND)
		return;
	OK(status);
	gm_storm_board->removed++;
}

/* ---- batches */

static uint8_t entry_byte(size_t index)
{
	return (uint8_t)(1 + index % 255);
}

static void end_batch(gpumem_batch **batch)
{
	if (!*batch)
		return;
	for (size_t i = 0; i < gpumem_batch_count(*batch); i += 7) {
		const uint8_t *ptr = gpumem_batch_ptr(*batch, i);
		GM_REQUIRE(!ptr || gm_device_is(ptr, gpumem_batch_size(*batch, i), entry_byte(i)));
	}
	gpumem_batch_destroy(*batch);
	*batch = NULL;
}

static void make_batch(struct worker *worker)
{
	gpumem_batch **batch = &worker->batches[pick(worker, BATCHES)];
	gpumem_batch_options options = GPUMEM_BATCH_OPTIONS_INIT;
	gpumem_batch_entry entries[ENTRIES] = {0};
	size_t n = 1 + pick(worker, ENTRIES);

	end_batch(batch);
	for (size_t i = 0; i < n; i++)
		entries[i].bytes = 1 + pick(worker, 20000);
	options.wait_ms = WAIT_MS;
	OK(gpumem_batch_create(worker->session, 0, entries, n, &options, batch));
	gm_storm_board->batches++;
	for (size_t i = 0; i < n; i += 7)
		gm_device_set(gpumem_batch_ptr(*batch, i), entries[i].bytes, entry_byte(i));
}

static void free_a_part(struct worker *worker)
{
	gpumem_batch *batch = worker->batches[pick(worker, BATCHES)];
	for (size_t i = pick(worker, 5); batch && i < gpumem_batch_count(batch); i += 2)
		if (gpumem_batch_ptr(batch, i))
			OK(gpumem_batch_free_entry(batch, i, GPUMEM_STREAM_DONE));
}

/* ---- requests */

/* Whether a kept name was published, which keeps a part of the device to the end. Until then all of it may be
 * free, and the worker that got it would wait for itself. */
static bool some_is_kept(void)
{
	for (unsigned user = 0; user < GM_STORM_USERS; user++)
		for (unsigned name = 0; name < GM_STORM_KEPT; name++)
			if (atomic_load(&gm_storm_board->newest[user][name]) > 0)
				return true;
	return false;
}

/* For all of the device, which is never free then: such a request waits. */
static uint64_t whole_device(struct worker *worker)
{
	gpumem_device_info_t info = GPUMEM_DEVICE_INFO_INIT;
	OK(gpumem_device_info(worker->session, 0, &info));
	return info.capacity;
}

static void begin(struct worker *worker, struct slot *slot)
{
	static const size_t sizes[] = {1000, 40000, 2 * MIB, 3 * MIB};
	gpumem_alloc_options alloc = GPUMEM_ALLOC_OPTIONS_INIT;
	gpumem_buffer_options buffer = GPUMEM_BUFFER_OPTIONS_INIT;

	*slot = (struct slot){
		.buffer = pick(worker, 2), .much = pick(worker, 3) == 0 && some_is_kept()};
	size_t bytes = slot->much ? whole_device(worker) : sizes[pick(worker, 4)];
	alloc.wait_ms = buffer.wait_ms = slot->much ? 1 + pick(worker, 200) : WAIT_MS;
	if (slot->buffer)
		OK(gpumem_buffer_create_begin(worker->session, 0, bytes, &buffer, &slot->request));
	else
		OK(gpumem_alloc_begin(worker->session, 0, bytes, NULL, &alloc, &slot->request));
	gm_storm_board->begun++;
}

static void take(struct worker *worker, struct slot *slot)
{
	gpumem_buffer *buffer = NULL;
	void *ptr = NULL;
	gpumem_status status = slot->buffer ? gpumem_buffer_take(slot->request, &buffer)
					    : gpumem_alloc_take(slot->request, &ptr);
	if (status == GPUMEM_E_BUSY)
		return;
	slot->request = NULL;
	if (status != GPUMEM_OK && !slot->much)
		OK(status);
	gpumem_buffer_destroy(buffer);
	if (ptr)
		OK(gpumem_free(worker->session, ptr, GPUMEM_STREAM_DONE));
}

static void drop(struct slot *slot)
{
	gpumem_request_cancel(slot->request);
	slot->request = NULL;
}

/* Begins many requests, takes some and drops others, in whatever state they are. */
static void ask(struct worker *worker)
{
	unsigned n = 1 + pick(worker, REQUESTS);
	for (unsigned i = 0; i < n; i++) {
		struct slot *slot = &worker->slots[i];
		if (!slot->request)
			begin(worker, slot);
		else if (pick(worker, 3) == 0)
			drop(slot);
		else if (pick(worker, 3) == 0)
			(void)gpumem_request_wait(slot->request, pick(worker, 3));
		else
			take(worker, slot);
	}
	OK(gpumem_dispatch(worker->session, NULL));
}

/* ---- one worker */

static void step(struct worker *worker)
{
	/* Of ten steps: to publish a kept name, a loose one, to attach. */
	static const unsigned shares[GM_STORM_ROLES][3] = {{1, 3, 1}, {5, 1, 1}, {0, 0, 7}};
	const unsigned *share = shares[gm_storm_role_of(worker->number)];
	unsigned n = pick(worker, 10);

	if (n < share[0])
		publish(worker, pick(worker, GM_STORM_KEPT));
	else if (n < share[0] + share[1])
		publish(worker, GM_STORM_KEPT + pick(worker, GM_STORM_LOOSE));
	else if (n < share[0] + share[1] + share[2])
		look(worker);
	else if (n == 9)
		ask(worker);
	else if (n == 8)
		pick(worker, 2) ? make_batch(worker) : free_a_part(worker);
	else if (pick(worker, 4) == 0)
		OK(gpumem_trim(worker->session, NULL));
	else
		remove_one(worker);
	gm_storm_board->steps[worker->number]++;
}

static void give_all(struct worker *worker)
{
	for (unsigned i = 0; i < OWN; i++)
		let_go(&worker->own[i]);
	for (unsigned i = 0; i < VIEWS; i++)
		let_go(&worker->views[i]);
	for (unsigned i = 0; i < BATCHES; i++)
		end_batch(&worker->batches[i]);
	for (unsigned i = 0; i < REQUESTS; i++)
		if (worker->slots[i].request)
			drop(&worker->slots[i]);
	gpumem_disconnect(worker->session);
}

/* gpumem_connect() does not wait for a daemon that is away. */
static void join(struct worker *worker, const struct gm_storm_worker *as)
{
	static const char *const names[] = {"maker", "publisher", "reader"};
	gpumem_connect_options options = GPUMEM_CONNECT_OPTIONS_INIT;

	*worker = (struct worker){
		.number = as->number, .seed = as->seed, .user = gm_storm_user_of(as->number)};
	if (gm_storm_board->uids[worker->user] != geteuid())
		gm_become_stranger();
	options.socket = gm_storm_board->daemon->socket;
	options.name = names[gm_storm_role_of(as->number)];
	GM_UNTIL(gpumem_connect(&options, &worker->session) == GPUMEM_OK);
}

void gm_storm_work(int channel, void *argument)
{
	struct worker worker;
	char word;

	join(&worker, argument);
	while (!gm_raw_readable(channel))
		step(&worker);
	gm_hear(channel, &word, 1);
	if (word == 'e')
		give_all(&worker);
}

void gm_storm_find_kept(int channel, void *argument)
{
	struct worker worker;

	join(&worker, argument);
	for (unsigned user = 0; user < GM_STORM_USERS; user++)
		for (unsigned name = 0; name < GM_STORM_KEPT; name++)
			if (may_read(worker.user, user, name))
				gpumem_buffer_destroy(attach(&worker, user, name));
	give_all(&worker);
}
