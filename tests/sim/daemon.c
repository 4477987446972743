/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything around core. It promises that nothing which core does after the daemon's death has an effect: core is
 * then taken down at leisure, and the store is the copy that was made at the moment of death.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/store/store_records.h"
#include "tests/sim/sim.h"

#define GIB (UINT64_C(1) << 30)

uint64_t sim_roll(struct sim *sim)
{
	sim->random ^= sim->random << 13;
	sim->random ^= sim->random >> 7;
	sim->random ^= sim->random << 17;
	return sim->random >> 11;
}

/* ---- death */

static int copy_store(const struct sim *sim)
{
	int from = gm_store_records_fd(sim->records), to = memfd_create("store", MFD_CLOEXEC);
	char part[65536];
	off_t at = 0;
	ssize_t n;
	while ((n = pread(from, part, sizeof(part), at)) > 0) {
		SIM_MUST(sim, pwrite(to, part, (size_t)n, at) == n, "cannot copy the store");
		at += n;
	}
	return to;
}

static void die(struct sim *sim)
{
	sim->store = copy_store(sim);
	sim->frozen = true;
	sim->deaths++;
}

bool sim_lives(struct sim *sim)
{
	if (!sim->frozen && sim->die_after && --sim->die_after == 0)
		die(sim);
	return !sim->frozen;
}

/* ---- what core asks of the daemon */

static uint64_t now_ns(void *ctx)
{
	return ((struct sim *)ctx)->now;
}

static uint64_t new_id(void *ctx)
{
	return ++((struct sim *)ctx)->last_id;
}

static void random_bytes(void *ctx, void *bytes, size_t n)
{
	for (uint8_t *p = bytes; n-- > 0;)
		*p++ = (uint8_t)sim_roll(ctx);
}

static void device_changed(void *ctx, uint32_t device)
{
}

static void session_changed(void *ctx, struct gm_session *session, uint32_t device)
{
}

static void level_changed(void *ctx, uint32_t device, enum gm_pressure_level level)
{
	(void)sim_lives(ctx);
}

/* Processes say what they could move to host memory: their own evictable buffers that nobody else has. */
static void offer(struct sim *sim)
{
	sim->offered = true;
	for (int i = 0; i < sim->n_procs; i++)
		memset(sim->procs[i].evictable, 0, sizeof(sim->procs[i].evictable));
	for (int i = 0; i < sim->n_leases; i++) {
		const struct sim_lease *l = &sim->leases[i];
		if (l->id && l->evictable && l->maker >= 0 && sim_alone(sim, i, l->maker))
			sim->procs[l->maker].evictable[l->device] += l->bytes;
	}
}

static void use(void *ctx, struct gm_session *session, uint32_t device, struct gm_account_use *ret)
{
	struct sim *sim = ctx;
	if (!sim->offered)
		offer(sim);
	*ret = (struct gm_account_use){.cached = gm_session_held(session, device) / 2};
	for (int i = 0; i < sim->n_procs; i++) {
		struct sim_proc *p = &sim->procs[i];
		if (p->session != gm_session_id(session))
			continue;
		p->said_before[device] = p->said[device];
		ret->evictable = p->said[device] = p->evictable[device];
	}
}

static void reclaim(void *ctx, struct gm_session *session, const struct gm_reclaim_message *ask)
{
	struct sim *sim = ctx;
	if (!sim_lives(sim))
		return;
	for (int i = 0; i < sim->n_procs; i++) {
		struct sim_proc *p = &sim->procs[i];
		if (p->session != gm_session_id(session))
			continue;
		SIM_MUST(sim, p->connected, "process %d is asked for memory, and has no connection",
			p->pid);
		/* Core looks again when it carries out a plan. */
		uint64_t said = p->said[ask->device] > p->said_before[ask->device]
					? p->said[ask->device]
					: p->said_before[ask->device];
		SIM_MUST(sim, ask->spill <= said && ask->spill <= ask->bytes,
			"process %d is to move %llu of %llu, and said that it has %llu", p->pid,
			(unsigned long long)ask->spill, (unsigned long long)ask->bytes,
			(unsigned long long)said);
		SIM_MUST(sim, ask->deadline_ns > sim->now,
			"process %d has no time to return memory", p->pid);
		p->asked[ask->device] += ask->bytes;
		p->spill[ask->device] += ask->spill;
	}
}

static void maker_left(void *ctx, struct gm_session *session)
{
	struct sim *sim = ctx;
	(void)sim_lives(sim);
	for (int i = 0; i < sim->n_procs; i++)
		if (sim->procs[i].session == gm_session_id(session))
			sim->procs[i].told_left++;
}

static void close_fd(void *ctx, uid_t payer_uid, int fd)
{
	(void)sim_lives(ctx);
	close(fd);
}

static bool in_use(void *ctx, const struct gm_chunk *chunk)
{
	struct sim *sim = ctx;
	(void)sim_lives(sim);
	return sim_chunk(sim, chunk->id)->maps > 0;
}

static void pooled(void *ctx, const struct gm_chunk *chunk)
{
	struct sim *sim = ctx;
	if (!sim_lives(sim))
		return;
	const struct sim_chunk *c = sim_chunk(sim, chunk->id);
	SIM_MUST(sim, !c->maps && !c->banned, "chunk %llu is pooled, and must not be used again",
		(unsigned long long)chunk->id);
}

static void wake_at(void *ctx, uint64_t ns)
{
	struct sim *sim = ctx;
	if (ns < sim->next_tick)
		sim->next_tick = ns;
}

/* A user's sessions and leases end in slices: see sim_daemon_settle(). */
static int work(void *ctx, uid_t payer_uid)
{
	struct sim *sim = ctx;
	(void)sim_lives(sim);
	sim->works[payer_uid - 1000] = true;
	return 0;
}

static int record(
	void *ctx, uint32_t kind, uint64_t id, uint32_t *place, const void *bytes, size_t size)
{
	struct sim *sim = ctx;
	(void)sim_lives(sim);
	if (sim->trace_records)
		sim_say(sim, "%s record %u of %llu at %u", sim->frozen ? "(dead)" : "", kind,
			(unsigned long long)id, *place);
	/* Replacing a record never fails. */
	if (*place == 0 && !sim->frozen && sim->full_after && --sim->full_after == 0) {
		sim->store_full = true;
		return -ENOSPC;
	}
	return gm_store_records_write(sim->records, kind, id, place, bytes, size);
}

static void erase(void *ctx, uint32_t *place)
{
	struct sim *sim = ctx;
	(void)sim_lives(sim);
	if (sim->trace_records)
		sim_say(sim, "%s erase %u", sim->frozen ? "(dead)" : "", *place);
	gm_store_records_erase(sim->records, place);
}

static void event(void *ctx, const struct gm_event *told)
{
	SIM_MUST((struct sim *)ctx, told->text && *told->text, "an event without a text");
}

static const struct gm_core_ops ops = {
	.slice = 2,
	.work = work,
	.create = sim_thread_create,
	.destroy = sim_thread_destroy,
	.now_ns = now_ns,
	.new_id = new_id,
	.random = random_bytes,
	.device_changed = device_changed,
	.session_changed = session_changed,
	.level_changed = level_changed,
	.call_off = sim_thread_call_off,
	.use = use,
	.reclaim = reclaim,
	.probe = sim_thread_probe,
	.in_use = in_use,
	.pooled = pooled,
	.wake_at = wake_at,
	.event = event,
	.record = record,
	.erase = erase,
	.maker_left = maker_left,
	.deposit = sim_item_deposit,
	.withdraw = sim_item_withdraw,
	.close = close_fd,
};

void sim_daemon_settle(struct sim *sim)
{
	bool more = true;
	/* A session of one user may end a lease that another user pays for. */
	while (more && !sim->frozen) {
		more = false;
		for (uint32_t u = 0; u < SIM_UIDS && !sim->frozen; u++) {
			if (!sim->works[u])
				continue;
			sim->works[u] = false;
			if (gm_core_work(sim->core, 1000 + u))
				sim->works[u] = true;
			more = true;
		}
	}
}

/* ---- time */

static void tick(struct sim *sim)
{
	sim->next_tick = UINT64_MAX;
	uint64_t due = gm_core_tick(sim->core);
	if (due < sim->next_tick)
		sim->next_tick = due;
	if (sim->next_tick <= sim->now)
		sim->next_tick = sim->now + 1;
}

/* In a long time with a request that waits, there are very many ticks. The last ones come late then. */
#define TICKS_MOST 500

void sim_daemon_pass(struct sim *sim, uint64_t ns)
{
	uint64_t began = sim->now, end = sim->now + ns;
	unsigned ticks = 0;
	for (; sim->next_tick <= end && !sim->frozen && ticks < TICKS_MOST; ticks++) {
		if (sim->next_tick > sim->now)
			sim->now = sim->next_tick;
		tick(sim);
	}
	SIM_MUST(sim, ticks < TICKS_MOST || sim->now - began > ticks * UINT64_C(1000),
		"core wants %u ticks in %llu ns", ticks, (unsigned long long)(sim->now - began));
	sim->now = end;
	if (!sim->frozen)
		tick(sim);
}

/* ---- adoption */

static int adopt_client(void *ctx, uint64_t id, const struct gm_record_client *client,
	gm_domain *ret_domain, bool *ret_pooling)
{
	struct sim *sim = ctx;
	for (int i = 0; i < sim->n_procs; i++) {
		struct sim_proc *p = &sim->procs[i];
		if (!p->alive || p->session != id)
			continue;
		SIM_MUST(sim, client->pid == p->pid, "session %llu has the wrong process",
			(unsigned long long)id);
		*ret_domain = p->domain;
		*ret_pooling = true;
		return 0;
	}
	/* Its process has ended. It is adopted, and then ended, so that what it published stays. */
	SIM_MUST(sim, sim->n_gone < SIM_PROCS, "too many processes have ended");
	sim->gone[sim->n_gone++] = id;
	*ret_domain = client->start_time;
	*ret_pooling = true;
	return 0;
}

static int adopt_chunk(void *ctx, uint64_t id, uint32_t device, uint64_t bytes,
	struct gm_backend_handle *ret_handle)
{
	struct sim *sim = ctx;
	struct sim_chunk *c = sim_chunk(sim, id);
	if (!c->keeper)
		return -ENOENT;
	SIM_MUST(sim, c->device == device && c->bytes == bytes, "chunk %llu changed its size",
		(unsigned long long)id);
	SIM_MUST(sim, !c->daemon, "chunk %llu is adopted twice", (unsigned long long)id);
	c->daemon = true;
	*ret_handle = (struct gm_backend_handle){.fd = -1, .native = id};
	return 0;
}

static void adopt_drop(
	void *ctx, uint64_t id, uint32_t device, uint64_t bytes, struct gm_backend_handle *handle)
{
	sim_chunk(ctx, id)->daemon = false;
}

static const struct gm_adopt_ops adopt_ops = {
	.client = adopt_client,
	.chunk = adopt_chunk,
	.metadata = sim_item_adopt_metadata,
	.word = sim_item_adopt_word,
	.drop = adopt_drop,
};

struct adding {
	struct sim *sim;
	struct gm_adopt *adopt;
};

static void add_record(
	void *ctx, uint32_t kind, uint64_t id, uint32_t place, const void *bytes, size_t size)
{
	struct adding *adding = ctx;
	int r = gm_adopt_add(adding->adopt, kind, id, place, bytes, size);
	SIM_MUST(adding->sim, r == 0, "record %u of %llu cannot be read", kind,
		(unsigned long long)id);
}

static void adopt(struct sim *sim)
{
	struct adding adding = {.sim = sim};
	sim->n_gone = 0;
	struct gm_adopt_result result;
	SIM_MUST(sim, gm_adopt_new(sim->core, &adding.adopt) == 0, "no memory");
	gm_store_records_each(sim->records, 0, add_record, &adding);
	SIM_MUST(sim, gm_core_adopt(adding.adopt, &adopt_ops, sim, &result) == 0, "cannot adopt");
	if (sim->trace_records)
		for (unsigned k = 0; k < GM_RECORD_KINDS; k++)
			sim_say(sim,
				"kind %u: adopted %llu damaged %llu; lost %llu incomplete %llu unfinished %llu",
				k, (unsigned long long)result.adopted[k],
				(unsigned long long)result.damaged[k],
				(unsigned long long)result.lost,
				(unsigned long long)result.incomplete,
				(unsigned long long)result.unfinished);
	for (unsigned kind = 0; kind < GM_RECORD_KINDS; kind++)
		SIM_MUST(sim, result.damaged[kind] == 0 || result.lost,
			"%llu damaged records of kind %u", (unsigned long long)result.damaged[kind],
			kind);
	sim->adopted += result.adopted[GM_RECORD_LEASE];
	sim->given_up += result.incomplete;
	/* Descriptors that adoption did not claim are closed. */
	for (size_t i = 0; i < sim->n_live; i++) {
		struct sim_chunk *c = &sim->chunks[sim->live[i]];
		c->keeper = c->keeper && c->daemon;
	}
	sim_items_close_unclaimed(sim);
}

static void new_core(struct sim *sim)
{
	SIM_MUST(sim, gm_core_new(&ops, sim, &sim->core) == 0, "no core");
	sim->next_tick = 0;
	gm_core_begin_adoption(sim->core);
	for (uint32_t d = 0; d < SIM_DEVICES; d++) {
		uint32_t number;
		sim->info[d].free_bytes = sim_device_free(sim, d);
		SIM_MUST(sim, gm_core_add_device(sim->core, &sim->info[d], &number) == 0,
			"no device");
	}
}

void sim_daemon_start(struct sim *sim)
{
	char why[GM_STORE_RECORDS_WHY];
	SIM_MUST(sim, gm_store_records_new(0, &sim->records, why) == 0, "%s", why);
	sim->now = 1;
	for (uint32_t d = 0; d < SIM_DEVICES; d++) {
		sim->info[d] = (struct gm_core_device_info){.total = (d + 1) * GIB,
			.transport_fd = true,
			.policy = {.fraction = 1,
				.max_pool = GIB / 2,
				.pooling = true,
				.level_ppm = {600000, 800000, 950000},
				.hysteresis_ppm = 50000,
				.dwell_ns = 1000000000}};
		memset(sim->info[d].uuid, 1 + (int)d, sizeof(sim->info[d].uuid));
	}
	new_core(sim);
	gm_core_end_adoption(sim->core);
}

static void take_down(struct sim *sim)
{
	sim->keeper_refills = false;
	memset(sim->works, 0, sizeof(sim->works));
	gm_core_shutdown(sim->core);
	for (bool more = true; more;) {
		more = false;
		for (uint32_t d = 0; d < SIM_DEVICES; d++) {
			more |= sim->n_jobs[d] > 0;
			sim_thread_work(sim, d, UINT32_MAX, 1, 0);
		}
	}
	SIM_MUST(sim, gm_core_idle(sim->core), "core is not idle at its end");
	gm_core_free(sim->core);
	gm_store_records_free(sim->records);
}

void sim_daemon_restart(struct sim *sim)
{
	char why[GM_STORE_RECORDS_WHY];
	if (!sim->frozen)
		die(sim);
	take_down(sim);
	/* Its descriptors went with it. */
	for (size_t i = 0; i < sim->n_live; i++)
		sim->chunks[sim->live[i]].daemon = false;
	sim_model_lose(sim);
	sim_items_lose(sim);

	SIM_MUST(sim, gm_store_records_open(sim->store, &sim->records, why) == 0, "%s", why);
	sim->frozen = false;
	sim->die_after = sim->full_after = 0;
	new_core(sim);
	adopt(sim);
	for (uint32_t d = 0; d < SIM_DEVICES; d++)
		gm_core_sample(sim->core, d, sim_device_free(sim, d));
	gm_core_end_adoption(sim->core);
	for (size_t i = 0; i < sim->n_gone; i++) {
		struct gm_session *session = gm_core_find_session(sim->core, sim->gone[i]);
		if (session)
			gm_session_end_died(session);
	}
}

void sim_daemon_end(struct sim *sim)
{
	take_down(sim);
	for (size_t i = 0; i < sim->n_live; i++)
		SIM_MUST(sim, !sim->chunks[sim->live[i]].daemon, "chunk %llu is left at the end",
			(unsigned long long)sim->live[i]);
	sim_items_end(sim);
	for (uint32_t d = 0; d < SIM_DEVICES; d++)
		free(sim->jobs[d]);
}
