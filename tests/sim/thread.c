/* SPDX-License-Identifier: Apache-2.0 */
/* The threads of the devices: jobs that core has submitted, in order. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/sim.h"

static void push(struct sim *sim, uint32_t d, struct sim_job job)
{
	if (sim->n_jobs[d] == sim->room[d]) {
		sim->room[d] = sim->room[d] * 2 + 64;
		sim->jobs[d] = realloc(sim->jobs[d], sim->room[d] * sizeof(job));
		SIM_MUST(sim, sim->jobs[d], "no memory");
	}
	sim->jobs[d][sim->n_jobs[d]++] = job;
}

/* ---- what core asks of a thread */

void sim_thread_create(void *ctx, struct gm_chunk *chunk, uint64_t turn)
{
	struct sim *sim = ctx;
	struct gm_device_figures f;
	(void)sim_lives(sim);
	gm_core_device_figures(sim->core, chunk->device, &f);
	SIM_MUST(sim,
		sim->frozen || (f.admitted > 0 && !sim->drained[chunk->device]) || chunk->reserve ||
			chunk->retried,
		"chunk %llu is created, and nobody was charged or the device is drained",
		(unsigned long long)chunk->id);
	push(sim, chunk->device, (struct sim_job){.kind = JOB_CREATE, .chunk = chunk});
}

void sim_thread_destroy(void *ctx, struct gm_chunk *chunk)
{
	struct sim *sim = ctx;
	if (sim_lives(sim)) {
		struct sim_chunk *c = sim_chunk(sim, chunk->id);
		SIM_MUST(sim, !c->maps, "chunk %llu is destroyed while %u processes map it",
			(unsigned long long)chunk->id, c->maps);
		SIM_MUST(sim, !c->doomed, "chunk %llu is destroyed twice",
			(unsigned long long)chunk->id);
		c->doomed = true;
		c->keeper = false; /* the daemon waits for the keeper before it destroys a chunk */
		c->left = false;
	}
	push(sim, chunk->device, (struct sim_job){.kind = JOB_DESTROY, .chunk = chunk});
}

bool sim_thread_call_off(void *ctx, struct gm_chunk *chunk)
{
	struct sim *sim = ctx;
	uint32_t d = chunk->device;
	(void)sim_lives(sim);
	/* Some are done, and the first one of the others has begun. */
	for (size_t i = sim->n_done[d] + 1; i < sim->n_jobs[d]; i++) {
		if (sim->jobs[d][i].chunk != chunk)
			continue;
		memmove(&sim->jobs[d][i], &sim->jobs[d][i + 1],
			(--sim->n_jobs[d] - i) * sizeof(sim->jobs[d][0]));
		return true;
	}
	return false;
}

void sim_thread_probe(void *ctx, uint32_t device)
{
	(void)sim_lives(ctx);
	push(ctx, device, (struct sim_job){.kind = JOB_SAMPLE, .probe = true});
}

void sim_thread_sample(struct sim *sim, uint32_t device)
{
	push(sim, device, (struct sim_job){.kind = JOB_SAMPLE});
}

/* ---- doing it */

uint64_t sim_device_free(const struct sim *sim, uint32_t device)
{
	uint64_t used = sim->foreign[device], total = sim->info[device].total;
	for (int i = 0; i < sim->n_procs; i++)
		used += sim->procs[i].declared[device];
	for (size_t i = 0; i < sim->n_live; i++) {
		const struct sim_chunk *c = &sim->chunks[sim->live[i]];
		if (c->device == device && (c->daemon || c->keeper || c->maps))
			used += c->bytes;
	}
	return total > used ? total - used : 0;
}

static int run_create(struct sim *sim, struct gm_chunk *chunk, uint64_t left, uint32_t luck)
{
	int r = luck == 0 ? -EIO : chunk->bytes > left ? -ENOMEM : 0;
	if (r == 0 && !sim->frozen) {
		*sim_chunk(sim, chunk->id) = (struct sim_chunk){.bytes = chunk->bytes,
			.device = chunk->device,
			.daemon = true,
			.keeper = true,
			.unreported = true,
			.lease = -1};
		sim_chunk_live(sim, chunk->id);
	}
	return r;
}

static void report(struct sim *sim, uint32_t d, const struct sim_job *job)
{
	switch (job->kind) {
	case JOB_CREATE:
		if (job->result == 0)
			sim_chunk(sim, job->chunk->id)->unreported = false;
		if (job->result == -ENOMEM)
			sim->denied_ns[d] = sim->now;
		if (job->result == -ENOMEM && !sim->frozen)
			gm_core_sample(sim->core, d, job->left);
		gm_core_created(sim->core, job->chunk, job->result);
		break;
	case JOB_DESTROY:
		gm_core_destroyed(sim->core, job->chunk);
		break;
	case JOB_SAMPLE:
		gm_core_sample(sim->core, d, job->left);
		if (job->probe)
			gm_core_probed(sim->core, d);
	}
	if (!sim->frozen)
		sim_check_admission(sim, d);
}

/* Whether core hears of a finished job: of a creation, when the keeper has the chunk. */
static bool may_report(struct sim *sim, const struct sim_job *job)
{
	return job->kind != JOB_CREATE || job->result != 0 || !sim->keeper_refills ||
	       sim_chunk(sim, job->chunk->id)->keeper;
}

/* Does the next job that is not done. Returns false if there is none, or it has to wait. */
static bool run_job(struct sim *sim, uint32_t d, uint32_t luck)
{
	if (sim->n_done[d] == sim->n_jobs[d])
		return false;
	struct sim_job *job = &sim->jobs[d][sim->n_done[d]];
	/* A new chunk goes to the keeper, and that one gets the old ones first. */
	if (job->kind == JOB_CREATE && sim->keeper_refills && !sim->frozen)
		return false;
	job->left = sim_device_free(sim, d);
	if (job->kind == JOB_CREATE)
		job->result = run_create(sim, job->chunk, job->left, luck);
	else if (job->kind == JOB_DESTROY && !sim->frozen)
		sim_chunk(sim, job->chunk->id)->daemon = false;
	sim->n_done[d]++;
	return true;
}

void sim_thread_work(struct sim *sim, uint32_t device, uint32_t most, uint32_t luck, uint32_t late)
{
	bool did;
	sim->worked[device] |= sim->n_jobs[device] > 0;
	do {
		/* What core does about a report may be the next job. */
		did = most > 0 && run_job(sim, device, luck);
		most -= did;
		luck = luck * 1103515245u + 12345u;
		luck = luck >> 16 == 0 ? 0 : luck | 1;
		while (sim->n_done[device] > late && may_report(sim, &sim->jobs[device][0])) {
			struct sim_job job = sim->jobs[device][0];
			sim->n_done[device]--;
			memmove(&sim->jobs[device][0], &sim->jobs[device][1],
				--sim->n_jobs[device] * sizeof(job));
			report(sim, device, &job);
		}
	} while (did);
}
