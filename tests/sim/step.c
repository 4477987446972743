/* SPDX-License-Identifier: Apache-2.0 */
/* The table of steps, and how often each of them comes. */
#include "tests/sim/sim.h"

static const struct {
	const char *name;
	unsigned weight;
	void (*run)(struct sim *sim, const struct step *s);
} kinds[] = {
	{"connect", 12, sim_step_connect},
	{"ask", 20, sim_step_ask_new},
	{"grow", 6, sim_step_grow},
	{"cancel", 2, sim_step_cancel},
	{"return", 12, sim_step_return},
	{"return chunks", 5, sim_step_return_chunks},
	{"obey", 4, sim_step_obey},
	{"share", 5, sim_step_share},
	{"unshare", 1, sim_step_unshare},
	{"open", 6, sim_step_open},
	{"publish", 4, sim_step_publish},
	{"unpublish", 1, sim_step_unpublish},
	{"attach", 4, sim_step_attach},
	{"disconnect", 3, sim_step_disconnect},
	{"resume", 4, sim_step_resume},
	{"stop", 1, sim_step_stop},
	{"goodbye", 4, sim_step_goodbye},
	{"die", 3, sim_step_die},
	{"let go", 3, sim_step_let_go},
	{"limit", 2, sim_step_limit},
	{"policy", 1, sim_step_policy},
	{"drain", 1, sim_step_drain},
	{"reclaim", 2, sim_step_reclaim},
	{"foreign", 2, sim_step_foreign},
	{"work", 30, sim_step_work},
	{"pass", 12, sim_step_pass},
	{"keeper dies", 1, sim_step_keeper_dies},
	{"refill", 3, sim_step_refill},
	{"daemon dies", 4, sim_step_daemon_dies},
};
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

const char *sim_step_name(uint32_t kind)
{
	return kinds[kind % KINDS].name;
}

uint32_t sim_step_draw(uint32_t number)
{
	unsigned all = 0;
	uint32_t k = 0;
	for (size_t i = 0; i < KINDS; i++)
		all += kinds[i].weight;
	number %= all;
	while (number >= kinds[k].weight)
		number -= kinds[k++].weight;
	return k;
}

void sim_step_run(struct sim *sim, const struct step *step)
{
	kinds[step->kind % KINDS].run(sim, step);
}
