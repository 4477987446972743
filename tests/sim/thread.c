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
	/* The first one has begun. */
	for (size_t i = 1; i < sim->n_jobs[d]; i++) {
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
	for (size_t i = 0; i < sim->n_live; i++) {
		const struct sim_chunk *c = &sim->chunks[sim->live[i]];
		if (c->device == device && (c->daemon || c->keeper || c->maps))
			used += c->bytes;
	}
	return total > used ? total - used : 0;
}

static void run_create(struct sim *sim, struct gm_chunk *chunk, uint32_t luck)
{
	uint32_t d = chunk->device;
	uint64_t left = sim_device_free(sim, d);
	int r = luck == 0 ? -EIO : chunk->bytes > left ? -ENOMEM : 0;
	if (r == 0 && !sim->frozen) {
		*sim_chunk(sim, chunk->id) = (struct sim_chunk){.bytes = chunk->bytes,
			.device = d,
			.daemon = true,
			.keeper = true,
			.lease = -1};
		sim_chunk_live(sim, chunk->id);
	}
	if (r == -ENOMEM && !sim->frozen)
		gm_core_sample(sim->core, d, left);
	gm_core_created(sim->core, chunk, r);
}

static void run_destroy(struct sim *sim, struct gm_chunk *chunk)
{
	if (!sim->frozen)
		sim_chunk(sim, chunk->id)->daemon = false;
	gm_core_destroyed(sim->core, chunk);
}

static void run_sample(struct sim *sim, uint32_t d, bool probes)
{
	gm_core_sample(sim->core, d, sim_device_free(sim, d));
	if (probes)
		gm_core_probed(sim->core, d);
}

void sim_thread_work(struct sim *sim, uint32_t device, uint32_t most, uint32_t luck)
{
	while (most-- > 0 && sim->n_jobs[device] > 0) {
		struct sim_job job = sim->jobs[device][0];
		sim->worked[device] = true;
		/* A new chunk goes to the keeper, and that one gets the old ones first. */
		if (job.kind == JOB_CREATE && sim->keeper_refills && !sim->frozen)
			return;
		memmove(&sim->jobs[device][0], &sim->jobs[device][1],
			--sim->n_jobs[device] * sizeof(job));
		if (job.kind == JOB_CREATE)
			run_create(sim, job.chunk, luck);
		else if (job.kind == JOB_DESTROY)
			run_destroy(sim, job.chunk);
		else
			run_sample(sim, device, job.probe);
		luck = luck * 1103515245u + 12345u;
		luck = luck >> 16 == 0 ? 0 : luck | 1;
	}
}
