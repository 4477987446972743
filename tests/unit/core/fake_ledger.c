/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See fake_ledger.h. It promises that nothing reaches the records after the daemon has died. It must
 * never look into a record.
 */
#include "daemon/books/hash_table.h"
#include "tests/unit/core/fake_ledger.h"

#include <assert.h>
#include <check.h>
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/arith.h"
#include "daemon/lease/session_private.h"
#include "daemon/lease/metadata.h"

/* ---- records */

void fake_ledger_deinit(struct fake_ledger *ledger)
{
	free(ledger->records);
	free(ledger->kept);
	while (ledger->n_deposits > 0)
		close(ledger->deposits[--ledger->n_deposits].fd);
	free(ledger->deposits);
	memset(ledger, 0, sizeof(*ledger));
}

uint64_t fake_ledger_last_id(const struct fake_ledger *ledger)
{
	return ledger->last_id;
}

/* Whether the daemon still lives to do this. */
static bool ledger_lives(struct fake_ledger *ledger)
{
	if (!ledger->stopped)
		ledger->stopped = ++ledger->writes == ledger->stop_at;
	return !ledger->stopped;
}

/* A record has a slot of one of these sizes for good. */
static size_t ledger_room(size_t size)
{
	static const size_t rooms[] = {96, 224, 480, 992, FAKE_RECORD_BYTES};
	size_t i = 0;
	while (rooms[i] < size)
		i++;
	return rooms[i];
}

int fake_ledger_record(struct fake_ledger *ledger, uint32_t kind, uint64_t id, uint32_t *place,
	const void *bytes, size_t size)
{
	ck_assert(kind > 0 && id > 0 && size > 0 && size <= FAKE_RECORD_BYTES);
	if (ledger->full && !*place)
		return -ENOSPC;
	if (!ledger_lives(ledger)) {
		if (!*place)
			*place = UINT32_MAX;
		return 0;
	}

	if (!*place) {
		size_t i = ledger->used;
		while (i < ledger->n && ledger->records[i].kind)
			i++;
		ledger->used = i + 1;
		if (i == ledger->room) {
			ledger->room = 2 * ledger->room + 16;
			ledger->records =
				realloc(ledger->records, ledger->room * sizeof(ledger->records[0]));
			ck_assert_ptr_nonnull(ledger->records);
		}
		if (i == ledger->n)
			ledger->n++;
		ledger->records[i].room = ledger_room(size);
		*place = (uint32_t)i + 1;
	} else {
		const struct fake_record *old = &ledger->records[*place - 1];
		ck_assert(*place <= ledger->n && old->kind == kind && old->id == id);
		ck_assert_uint_le(size, old->room);
	}
	struct fake_record *record = &ledger->records[*place - 1];
	record->kind = kind;
	record->id = id;
	record->size = size;
	memset(record->bytes, 0, sizeof(record->bytes));
	memcpy(record->bytes, bytes, size);
	if (id > ledger->last_id)
		ledger->last_id = id;
	return 0;
}

void fake_ledger_erase(struct fake_ledger *ledger, uint32_t *place)
{
	if (!*place)
		return;
	if (ledger_lives(ledger)) {
		ck_assert(*place <= ledger->n && ledger->records[*place - 1].kind);
		ledger->records[*place - 1].kind = 0;
		ledger->used = gm_u64_min(ledger->used, *place - 1);
	}
	*place = 0;
}

void fake_ledger_created(struct fake_ledger *ledger, const struct gm_chunk *chunk)
{
	if (ledger->stopped)
		return;
	ledger->kept = realloc(ledger->kept, (ledger->n_kept + 1) * sizeof(ledger->kept[0]));
	ck_assert_ptr_nonnull(ledger->kept);
	ledger->kept[ledger->n_kept++] =
		(struct fake_kept){.id = chunk->id, .bytes = chunk->bytes, .device = chunk->device};
	if (chunk->id > ledger->last_id)
		ledger->last_id = chunk->id;
}

static struct fake_kept *ledger_find_kept(struct fake_ledger *ledger, uint64_t id)
{
	for (size_t i = 0; i < ledger->n_kept; i++)
		if (ledger->kept[i].id == id)
			return &ledger->kept[i];
	return NULL;
}

void fake_ledger_destroyed(struct fake_ledger *ledger, const struct gm_chunk *chunk)
{
	struct fake_kept *kept = ledger_find_kept(ledger, chunk->id);
	if (!ledger->stopped) {
		ck_assert_ptr_nonnull(kept);
		*kept = ledger->kept[--ledger->n_kept];
	}
}

static struct fake_deposit *ledger_find_deposit(struct fake_ledger *ledger, uint64_t id)
{
	for (size_t i = 0; i < ledger->n_deposits; i++)
		if (ledger->deposits[i].id == id)
			return &ledger->deposits[i];
	return NULL;
}

int fake_ledger_deposit(struct fake_ledger *ledger, enum gm_store_kind kind, uint64_t id, int fd,
	struct gm_request *request)
{
	if (ledger->refuses_deposits < 0) {
		int r = ledger->refuses_deposits;
		if (ledger->refusals && --ledger->refusals == 0)
			ledger->refuses_deposits = 0;
		return r;
	}
	if (!ledger_lives(ledger))
		return 0;
	ledger->deposits =
		realloc(ledger->deposits, (ledger->n_deposits + 1) * sizeof(ledger->deposits[0]));
	ck_assert_ptr_nonnull(ledger->deposits);
	ck_assert_ptr_null(ledger_find_deposit(ledger, id));
	ledger->deposits[ledger->n_deposits++] =
		(struct fake_deposit){.kind = kind, .id = id, .fd = dup(fd), .claimed = true};
	if (id > ledger->last_id)
		ledger->last_id = id;
	if (kind != GM_STORE_CONTROL_BLOCK || !ledger->refuses_deposits)
		return 0;
	ledger->awaited = request;
	return GM_DEPOSIT_WAITS;
}

void fake_ledger_withdraw(struct fake_ledger *ledger, uint64_t id)
{
	if (!ledger_lives(ledger))
		return;
	struct fake_deposit *deposit = ledger_find_deposit(ledger, id);
	ck_assert_ptr_nonnull(deposit);
	close(deposit->fd);
	*deposit = ledger->deposits[--ledger->n_deposits];
}

struct fake_record *fake_ledger_find(struct fake_ledger *ledger, uint32_t kind, size_t n)
{
	for (size_t i = 0; i < ledger->n; i++)
		if (ledger->records[i].kind == kind && n-- == 0)
			return &ledger->records[i];
	return NULL;
}

size_t fake_ledger_count(const struct fake_ledger *ledger, uint32_t kind)
{
	size_t n = 0;
	for (size_t i = 0; i < ledger->n; i++)
		n += ledger->records[i].kind == kind;
	return n;
}

/* ---- sessions */

struct gm_session *fake_ledger_join(
	struct fake_core *fake, uid_t uid, const char *unit, uint8_t ret_token[GM_TOKEN_BYTES])
{
	return fake_ledger_join_run(fake, uid, unit, NULL, 0, ret_token);
}

struct gm_session *fake_ledger_join_run(struct fake_core *fake, uid_t uid, const char *unit,
	const char *run, uint64_t max, uint8_t ret_token[GM_TOKEN_BYTES])
{
	struct gm_session_info info = {.pid = 1000 + (pid_t)uid,
		.uid = uid,
		.gid = uid,
		.domain = uid,
		.pooling = true,
		.unit = unit,
		.name = "worker",
		.run = run,
		.run_limit = {.set = max ? GM_LIMIT_MAX : 0, .max = max}};
	struct gm_session *session;
	ck_assert_int_eq(gm_session_new(fake->core, &info, ret_token, &session), 0);

	ck_assert_int_eq(gm_session_keep(session, 1, false), 0);
	return session;
}

void fake_ledger_split_client(struct fake_ledger *ledger, size_t n)
{
	struct fake_record *record = fake_ledger_find(ledger, GM_RECORD_CLIENT, n);
	const struct gm_record_client *client = (const void *)record->bytes;
	struct gm_record_session session = {
		.token = client->token,
		.former = client->former,
		.pid = client->pid,
		.gid = client->gid,
		.domain = client->domain,
		.payer_uid = client->payer_uid,
		.run_max = client->run_max,
		.run_priority = client->run_priority,
		.run_set = client->run_set,
	};
	uint64_t id = client->head.id;
	uint32_t place = 0;
	gm_record_begin(&session.head, GM_RECORD_SESSION, id, sizeof(session), client->head.uid);
	session.head.format = GM_RECORD_FORMAT_ONE_CLIENT - 1;
	memcpy(session.name, client->name, sizeof(client->name));
	memcpy(session.unit, client->unit, sizeof(client->unit));
	memcpy(session.container, client->container, sizeof(client->container));
	memcpy(session.run, client->run, sizeof(client->run));

	struct gm_record *head = (void *)record->bytes;
	head->format = session.head.format;
	record->size = head->size = offsetof(struct gm_record_client, run_set) + sizeof(uint32_t);
	memset((char *)record->bytes + record->size - sizeof(uint32_t), 0,
		sizeof(record->bytes) - record->size + sizeof(uint32_t));
	bool stopped = ledger->stopped;
	ledger->stopped = false;
	ck_assert_int_eq(fake_ledger_record(
				 ledger, GM_RECORD_SESSION, id, &place, &session, sizeof(session)),
		0);
	ledger->stopped = stopped;
}

void fake_ledger_leave(struct fake_core *fake, struct gm_session *session, bool died)
{
	(void)fake;
	if (died)
		gm_session_end_died(session);
	else
		gm_session_end_unmapped(session);
}

/* ---- adoption */

struct ledger_adopting {
	struct fake_core *fake;
	bool strict;
};

static int ledger_adopt_client(void *ctx, uint64_t id, const struct gm_record_client *record,
	gm_domain *ret_domain, bool *ret_pooling)
{
	struct ledger_adopting *adopting = ctx;
	if (adopting->fake->ledger->short_of)
		return adopting->fake->ledger->short_of;
	/* ck_assert() allocates, and memory may be short here. */
	assert(record->head.id == id);
	*ret_domain = record->head.uid + UINT64_C(1);
	*ret_pooling = true;
	return 0;
}

static int ledger_adopt_chunk(void *ctx, uint64_t id, uint32_t device, uint64_t bytes,
	struct gm_backend_handle *ret_handle)
{
	struct ledger_adopting *adopting = ctx;
	struct fake_core *fake = adopting->fake;
	struct fake_kept *kept = ledger_find_kept(fake->ledger, id);
	if (adopting->strict)
		ck_assert(kept && kept->device == device && kept->bytes == bytes);
	if (!kept || kept->device != device || kept->bytes != bytes)
		return -EINVAL;
	fake->backend_bytes[device] += bytes;
	fake->backend_chunks[device]++;
	*ret_handle = (struct gm_backend_handle){.fd = -1, .native = id};
	return 0;
}

static int ledger_adopt_metadata(void *ctx, uint64_t id, int *ret_fd)
{
	struct ledger_adopting *adopting = ctx;
	const struct fake_deposit *deposit = ledger_find_deposit(adopting->fake->ledger, id);
	if (!deposit)
		return -ENOENT;
	*ret_fd = dup(deposit->fd);
	return 0;
}

static int ledger_adopt_word(void *ctx, uint64_t id, int *ret_fd)
{
	struct ledger_adopting *adopting = ctx;
	struct fake_deposit *deposit = ledger_find_deposit(adopting->fake->ledger, id);
	if (!deposit || deposit->kind != GM_STORE_CONTROL_BLOCK)
		return -ENOENT;
	deposit->claimed = true;
	*ret_fd = dup(deposit->fd);
	return 0;
}

static void ledger_drop_chunk(
	void *ctx, uint64_t id, uint32_t device, uint64_t bytes, struct gm_backend_handle *handle)
{
	struct ledger_adopting *adopting = ctx;
	adopting->fake->backend_bytes[device] -= bytes;
	adopting->fake->backend_chunks[device]--;
}

static void ledger_contradicts(void *ctx, const struct gm_owner *owner, uint32_t device,
	const struct gm_limit_values *set, const struct gm_limit_values *now, const char *why)
{
	struct fake_ledger *to = ((struct ledger_adopting *)ctx)->fake->ledger;
	to->contradictions++;
	snprintf(to->why, sizeof(to->why), "%s", why);
}

static const struct gm_adopt_ops ledger_adopt_ops = {
	.client = ledger_adopt_client,
	.chunk = ledger_adopt_chunk,
	.metadata = ledger_adopt_metadata,
	.word = ledger_adopt_word,
	.limit = ledger_contradicts,
	.drop = ledger_drop_chunk,
};

/* What is pooled ends with the daemon, and so does what no record is for. */
static void ledger_drop_unclaimed(struct fake_core *fake)
{
	struct fake_ledger *ledger = fake->ledger;
	for (size_t i = 0; i < ledger->n_kept;) {
		struct gm_chunk *chunk;
		HASH_FIND(hh, *gm_env_chunks(&fake->core->env, ledger->kept[i].id),
			&ledger->kept[i].id, sizeof(uint64_t), chunk);
		/* One that adoption itself destroys is still on its way. */
		for (size_t j = 0; !chunk && j < fake->n_jobs; j++)
			if (fake->jobs[j].chunk->id == ledger->kept[i].id)
				chunk = fake->jobs[j].chunk;
		if (chunk)
			i++;
		else
			ledger->kept[i] = ledger->kept[--ledger->n_kept];
	}
	for (size_t i = 0; i < ledger->n_deposits;) {
		const struct fake_deposit *deposit = &ledger->deposits[i];
		char byte;
		if (deposit->kind == GM_STORE_CONTROL_BLOCK
				? deposit->claimed
				: gm_core_read_metadata(fake->core, deposit->id, 0, &byte, 1) ==
					  0) {
			i++;
			continue;
		}
		close(ledger->deposits[i].fd);
		ledger->deposits[i] = ledger->deposits[--ledger->n_deposits];
	}
}

static void ledger_adopt_all(
	struct fake_core *fake, bool strict, struct gm_adopt_result *ret_result)
{
	struct fake_ledger *ledger = fake->ledger;
	struct ledger_adopting adopting = {.fake = fake, .strict = strict};
	struct gm_adopt *adopt;
	for (size_t i = 0; i < ledger->n_deposits; i++)
		ledger->deposits[i].claimed = false;
	ck_assert_int_eq(gm_adopt_new(fake->core, &adopt), 0);
	for (size_t i = 0; i < ledger->n; i++)
		if (ledger->records[i].kind)
			ck_assert_int_eq(gm_adopt_add(adopt, ledger->records[i].kind,
						 ledger->records[i].id, (uint32_t)i + 1,
						 ledger->records[i].bytes, ledger->records[i].size),
				0);
	if (ledger->shortage)
		ledger->shortage(true);
	int r = gm_core_adopt(adopt, &ledger_adopt_ops, &adopting, ret_result);
	if (ledger->shortage) {
		ledger->shortage_result = r;
		ledger->shortage(false);
		return;
	}
	ck_assert_int_eq(r, ledger->short_of);
}

/* Of daemons that could not adopt: nothing may be asked of them any more, not even to be freed. */
static struct gm_core *volatile ledger_ended[1024];
static size_t ledger_n_ended;

void fake_ledger_start(struct fake_core *fake, const struct gm_core_device_info *devices,
	uint32_t n_devices, bool strict, struct gm_adopt_result *ret_result)
{
	struct fake_ledger *ledger = fake->ledger;
	uint64_t now = fake->now, random = fake->random;
	bool in_use = fake->in_use;

	ledger->stopped = false;
	ledger->stop_at = ledger->dies_at_start ? ledger->writes + ledger->dies_at_start : 0;
	ledger->dies_at_start = 0;
	fake_core_init_keeping(fake, ledger);
	if (ledger->short_of || ledger->shortage) {
		for (uint32_t d = 0; d < n_devices; d++)
			fake_core_add(fake, &devices[d]);
		ledger_adopt_all(fake, strict, ret_result);
		ck_assert_uint_lt(ledger_n_ended, sizeof(ledger_ended) / sizeof(*ledger_ended));
		ledger_ended[ledger_n_ended++] = fake->core;
		free(fake->jobs);
		ledger->short_of = 0;
		ledger->shortage = NULL;
		fake_core_init_keeping(fake, ledger);
	}
	fake->now = now;
	fake->random = random + 1;
	fake->in_use = in_use;
	for (uint32_t d = 0; d < n_devices; d++)
		fake_core_add(fake, &devices[d]);
	char detail[GM_DETAIL_BYTES];
	if (ledger->n_rules > 0)
		ck_assert_int_eq(
			gm_core_configure(fake->core, NULL, ledger->rules, ledger->n_rules, detail),
			GPUMEM_OK);
	ledger_adopt_all(fake, strict, ret_result);
	ledger_drop_unclaimed(fake);
	gm_core_end_adoption(fake->core);
	fake_core_run(fake);
}

void fake_ledger_restart(struct fake_core *fake, const struct gm_core_device_info *devices,
	uint32_t n_devices, bool strict, struct gm_adopt_result *ret_result)
{
	struct fake_ledger *ledger = fake->ledger;
	uint64_t last_id = fake->last_id;
	ledger->stopped = true;
	fake_core_deinit(fake);
	if (last_id > ledger->last_id)
		ledger->last_id = last_id;
	fake_ledger_start(fake, devices, n_devices, strict, ret_result);
}

/* ---- the books */

static char *books_add(struct fake_books *books)
{
	books->lines = realloc(books->lines, (books->n + 1) * sizeof(books->lines[0]));
	ck_assert_ptr_nonnull(books->lines);
	memset(books->lines[books->n], 0, sizeof(books->lines[0]));
	return books->lines[books->n++];
}

#define LINE sizeof(((struct fake_books *)NULL)->lines[0])

static void books_add_lease(struct fake_books *books, const struct gm_lease *lease)
{
	unsigned uid = lease->orphan->info.uid;
	uint64_t bytes = 0;
	snprintf(books_add(books), LINE,
		"lease %" PRIu64 " maker %" PRIu64 " uid %u device %u made %u grants %" PRIu64
		" next %" PRIu64 " opens %u tag %s",
		lease->id, lease->maker ? lease->maker->payer.id : 0, uid, lease->device->number,
		lease->maker ? lease->own.count : 0, lease->grants, lease->next_index,
		lease->n_opens, lease->tag);
	for (const struct gm_chunk *c = lease->chunks; c; c = c->next) {
		ck_assert_ptr_eq(c->lease, lease);
		ck_assert_uint_eq(c->payer_uid, uid);
		bytes += c->bytes;
		snprintf(books_add(books), LINE,
			"chunk %" PRIu64 " lease %" PRIu64 " index %" PRIu64 " bytes %" PRIu64
			" device %u uid %u asked %" PRIu64,
			c->id, lease->id, c->index, c->bytes, c->device, c->payer_uid, c->asked);
	}
	ck_assert_uint_eq(bytes, lease->bytes);
	for (const struct gm_ref *h = lease->refs; h; h = h->next) {
		uint32_t count = h == &lease->own ? lease->made : 0;
		for (const struct gm_ref_entry *o = h->opens; o; count++, o = o->next)
			snprintf(books_add(books), LINE,
				"hold %" PRIu64 " by %" PRIu64 "%s asked %" PRIu64, lease->id,
				h->session->payer.id, o->read_only ? " read-only" : "", o->asked);
		ck_assert_uint_eq(count, h->count);
	}
	for (const struct gm_token *s = lease->shares; s; s = s->next)
		snprintf(books_add(books), LINE,
			"share %" PRIx64 "%" PRIx64 " of %" PRIu64 " for %d %u%s", s->hash.h[0],
			s->hash.h[1], lease->id, (int)s->options.audience, s->options.id,
			s->options.read_only ? " read-only" : "");
}

static void books_add_orphaned(struct fake_books *books, const struct gm_chunk *c)
{
	if (c->state != GM_CHUNK_ORPHANED)
		return;
	const struct gm_orphan_info *info = &c->orphan->info;
	snprintf(books_add(books), LINE,
		"orphaned %" PRIu64 " bytes %" PRIu64 " device %u uid %u unit %s", c->id, c->bytes,
		c->device, info->uid, info->unit ? info->unit : "");
}

static bool books_add_limit(void *ctx, const struct gm_limit_info *info)
{
	char owner[GM_OWNER_TEXT];
	if (info->run_time.set)
		snprintf(books_add(ctx), LINE,
			"limit %.100s device %u set %u max %" PRIu64 " guarantee %" PRIu64
			" priority %d",
			gm_owner_name(&info->owner, owner), info->device, info->run_time.set,
			info->run_time.max, info->run_time.guarantee, info->run_time.priority);
	return true;
}

static int books_compare(const void *a, const void *b)
{
	return strcmp(a, b);
}

void fake_books_read(const struct fake_core *fake, struct fake_books *ret_books)
{
	const struct gm_env *env = &fake->core->env;
	struct gm_limit_place place = {0};
	memset(ret_books, 0, sizeof(*ret_books));
	for (const struct gm_account_payer *p = env->payers; p; p = p->hh.next) {
		const struct gm_session *s = p->session;
		if (s)
			snprintf(books_add(ret_books), LINE,
				"session %" PRIu64 " uid %u gid %u unit %s name %s", p->id,
				s->info.uid, s->info.gid, s->info.unit ? s->info.unit : "",
				s->info.name ? s->info.name : "");
		for (uint32_t d = 0; d < env->n_devices && s; d++)
			if (p->accounts[d].declared)
				snprintf(books_add(ret_books), LINE,
					"declared by %" PRIu64 " device %u bytes %" PRIu64, p->id,
					d, p->accounts[d].declared);
		for (const struct gm_ref *h = s ? s->refs : NULL; h; h = h->hh.next)
			if (h->lease->refs == h)
				books_add_lease(ret_books, h->lease);
	}
	for (const struct gm_name *n = fake->core->names; n; n = n->hh.next) {
		struct gm_metadata_info metadata;
		gm_lease_metadata(n->lease, &metadata);
		snprintf(books_add(ret_books), LINE,
			"name %u/%s version %" PRIu64 " of %" PRIu64
			" for %d %u%s%s metadata %" PRIu64 " bytes %" PRIu64 " version %" PRIu64
			" expires %" PRIu64,
			n->uid, n->text, n->version, n->lease->id, (int)n->share.audience,
			n->share.id, n->share.read_only ? " read-only" : "",
			n->until_unread ? " until unread" : "", metadata.id, metadata.size,
			metadata.version, n->expires_ns);
		ck_assert_ptr_eq(n->lease->name, n);
		if (!n->lease->refs)
			books_add_lease(ret_books, n->lease);
	}
	for (size_t i = 0; i < GM_ENV_TABLES; i++)
		for (const struct gm_chunk *c = env->chunks[i]; c; c = c->hh.next)
			books_add_orphaned(ret_books, c);
	gm_core_limit_each(fake->core, &place, books_add_limit, ret_books);
	if (ret_books->n > 0)
		qsort(ret_books->lines, ret_books->n, sizeof(ret_books->lines[0]), books_compare);
}

void fake_books_deinit(struct fake_books *books)
{
	free(books->lines);
	memset(books, 0, sizeof(*books));
}

bool fake_books_has(const struct fake_books *books, const char *line)
{
	return books->n > 0 &&
	       bsearch(line, books->lines, books->n, sizeof(books->lines[0]), books_compare);
}

void fake_books_equal(const struct fake_books *a, const struct fake_books *b)
{
	for (size_t i = 0; i < a->n; i++)
		ck_assert_msg(fake_books_has(b, a->lines[i]), "missing: %s", a->lines[i]);
	for (size_t i = 0; i < b->n; i++)
		ck_assert_msg(fake_books_has(a, b->lines[i]), "too much: %s", b->lines[i]);
	ck_assert_uint_eq(a->n, b->n);
}
