/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memfds of core's that the keeper has copies of: metadata of names, and control blocks. A keeper that is being filled
 * takes no metadata, and takes control blocks later.
 */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "tests/sim/sim.h"

static struct sim_item *find(struct sim *sim, enum gm_store_kind kind, uint64_t id)
{
	for (int i = 0; i < sim->n_items; i++)
		if (sim->items[i].fd >= 0 && sim->items[i].kind == kind && sim->items[i].id == id)
			return &sim->items[i];
	return NULL;
}

static void drop(struct sim_item *item)
{
	close(item->fd);
	*item = (struct sim_item){.fd = -1};
}

/* ---- what core asks of the keeper */

int sim_item_deposit(
	void *ctx, enum gm_store_kind kind, uint64_t id, int fd, struct gm_request *request)
{
	struct sim *sim = ctx;
	int i = 0;
	if (!sim_lives(sim))
		return 0;
	SIM_MUST(sim, !find(sim, kind, id), "item %llu is kept twice", (unsigned long long)id);
	if (sim->keeper_refills && kind == GM_STORE_METADATA)
		return -EAGAIN;
	if (sim_roll(sim) % 64 == 0) {
		sim->keeper_full = true;
		return -ENOSPC;
	}
	while (i < sim->n_items && sim->items[i].fd >= 0)
		i++;
	SIM_MUST(sim, i < SIM_ITEMS, "too many items");
	sim->n_items = i < sim->n_items ? sim->n_items : i + 1;
	sim->items[i] = (struct sim_item){.kind = kind,
		.id = id,
		.fd = fcntl(fd, F_DUPFD_CLOEXEC, 0),
		.keeper = !sim->keeper_refills,
		.request = sim->keeper_refills ? request : NULL};
	SIM_MUST(sim, sim->items[i].fd >= 0, "no descriptor");
	return sim->keeper_refills ? GM_DEPOSIT_WAITS : 0;
}

void sim_item_withdraw(void *ctx, enum gm_store_kind kind, uint64_t id)
{
	struct sim *sim = ctx;
	if (!sim_lives(sim))
		return;
	struct sim_item *item = find(sim, kind, id);
	SIM_MUST(sim, item, "item %llu is withdrawn, and the keeper does not have it",
		(unsigned long long)id);
	drop(item);
}

static int adopt(struct sim *sim, enum gm_store_kind kind, uint64_t id, int *ret_fd)
{
	struct sim_item *item = find(sim, kind, id);
	if (!item)
		return -ENOENT;
	item->claimed = true;
	*ret_fd = fcntl(item->fd, F_DUPFD_CLOEXEC, 0);
	return *ret_fd < 0 ? -errno : 0;
}

int sim_item_adopt_metadata(void *ctx, uint64_t id, int *ret_fd)
{
	return adopt(ctx, GM_STORE_METADATA, id, ret_fd);
}

int sim_item_adopt_word(void *ctx, uint64_t id, int *ret_fd)
{
	return adopt(ctx, GM_STORE_CONTROL_BLOCK, id, ret_fd);
}

/* ---- the keeper */

void sim_items_forget(struct sim *sim)
{
	for (int i = 0; i < sim->n_items; i++)
		sim->items[i].keeper = false;
}

void sim_items_fill(struct sim *sim)
{
	for (int i = 0; i < sim->n_items && !sim->frozen; i++) {
		struct gm_request *request = sim->items[i].request;
		sim->items[i].keeper = sim->items[i].fd >= 0;
		sim->items[i].request = NULL;
		if (request)
			gm_core_control_block_deposited(sim->core, request);
	}
}

void sim_items_lose(struct sim *sim)
{
	for (int i = 0; i < sim->n_items; i++) {
		struct sim_item *item = &sim->items[i];
		item->request = NULL;
		item->claimed = false;
		if (item->fd < 0 || item->keeper)
			continue;
		sim_model_lose_item(sim, item->kind, item->id);
		drop(item);
	}
}

void sim_items_close_unclaimed(struct sim *sim)
{
	for (int i = 0; i < sim->n_items; i++)
		if (sim->items[i].fd >= 0 && !sim->items[i].claimed)
			drop(&sim->items[i]);
}

void sim_items_end(struct sim *sim)
{
	for (int i = 0; i < sim->n_items; i++)
		SIM_MUST(sim, sim->items[i].fd < 0, "item %llu is left at the end",
			(unsigned long long)sim->items[i].id);
}
