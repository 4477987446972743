/* SPDX-License-Identifier: Apache-2.0 */
/* The table of steps, and how often each of them comes. */
#include "tests/sim/sim.h"

static const struct {
	const char *name;
	unsigned weight;
	void (*run)(struct sim *sim, const struct step *s);
	bool repeats; /* its answer can be lost, and then it is done again */
} kinds[] = {
	{"connect", 12, sim_step_connect, false},
	{"ask", 20, sim_step_ask, false},
	{"grow", 6, sim_step_grow, false},
	{"cancel", 2, sim_step_cancel, false},
	{"return", 12, sim_step_return, true},
	{"return chunks", 5, sim_step_return_chunks, true},
	{"return twice", 2, sim_step_return_twice, false},
	{"obey", 4, sim_step_obey, false},
	{"resize", 6, sim_step_resize, true},
	{"evict", 4, sim_step_evict, true},
	{"restore", 3, sim_step_restore, false},
	{"share", 5, sim_step_share, true},
	{"unshare", 1, sim_step_unshare, true},
	{"open", 6, sim_step_open, true},
	{"publish", 4, sim_step_publish, true},
	{"share chunks", 6, sim_step_share_chunks, true},
	{"unshare chunks", 2, sim_step_unshare_chunks, true},
	{"return piece", 2, sim_step_return_piece, true},
	{"read metadata", 4, sim_step_read_metadata, false},
	{"declare", 4, sim_step_declare, false},
	{"declare less", 3, sim_step_declare_less, true},
	{"unpublish", 1, sim_step_unpublish, false},
	{"attach", 4, sim_step_attach, true},
	{"disconnect", 3, sim_step_disconnect, false},
	{"resume", 4, sim_step_resume, false},
	{"stop", 1, sim_step_stop, false},
	{"goodbye", 4, sim_step_goodbye, false},
	{"die", 3, sim_step_die, false},
	{"let go", 3, sim_step_let_go, false},
	{"limit", 2, sim_step_limit, false},
	{"policy", 1, sim_step_policy, false},
	{"drain", 1, sim_step_drain, false},
	{"reclaim", 2, sim_step_reclaim, false},
	{"foreign", 2, sim_step_foreign, false},
	{"work", 30, sim_step_work, false},
	{"pass", 12, sim_step_pass, false},
	{"keeper dies", 1, sim_step_keeper_dies, false},
	{"refill", 3, sim_step_refill, false},
	{"store full", 3, sim_step_store_full, false},
	{"daemon dies", 4, sim_step_daemon_dies, false},
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

bool sim_step_repeats(const struct step *step)
{
	return kinds[step->kind % KINDS].repeats;
}

void sim_step_run(struct sim *sim, const struct step *step)
{
	kinds[step->kind % KINDS].run(sim, step);
}
