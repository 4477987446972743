/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When names end by themselves. This file promises to find the next one at once, and to take a name in
 * or out in a time that hardly grows with their number: the names are a heap, the next one first.
 */
#include "daemon/books/hash_table.h"
#include "daemon/lease/session_private.h"
#include "daemon/lease/name_expiry.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

static void name_expiry_put(struct gm_name_expiries *expiries, size_t at, struct gm_name *name)
{
	expiries->names[at] = name;
	name->expiry_place = at + 1;
}

/* Moves the name at that place to where it belongs. */
static void name_expiry_move(struct gm_name_expiries *expiries, size_t at)
{
	struct gm_name *name = expiries->names[at];

	while (at > 0 && expiries->names[(at - 1) / 2]->expires_ns > name->expires_ns) {
		name_expiry_put(expiries, at, expiries->names[(at - 1) / 2]);
		at = (at - 1) / 2;
	}
	for (size_t child; (child = 2 * at + 1) < expiries->n; at = child) {
		if (child + 1 < expiries->n &&
			expiries->names[child + 1]->expires_ns < expiries->names[child]->expires_ns)
			child++;
		if (expiries->names[child]->expires_ns >= name->expires_ns)
			break;
		name_expiry_put(expiries, at, expiries->names[child]);
	}
	name_expiry_put(expiries, at, name);
}

int gm_name_expiry_make_room(struct gm_core *core)
{
	struct gm_name_expiries *expiries = &core->expiries;
	if (expiries->n < expiries->room)
		return 0;

	size_t room = 2 * expiries->room + 16;
	struct gm_name **names = realloc(expiries->names, room * sizeof(names[0]));
	if (!names)
		return -ENOMEM;
	expiries->names = names;
	expiries->room = room;
	return 0;
}

void gm_name_expiry_set(struct gm_name *name, uint64_t expires_ns)
{
	struct gm_name_expiries *expiries = &name->core->expiries;
	size_t place = name->expiry_place;

	if (place) {
		struct gm_name *last = expiries->names[--expiries->n];
		name->expiry_place = 0;
		if (last != name) {
			name_expiry_put(expiries, place - 1, last);
			name_expiry_move(expiries, place - 1);
		}
	}
	name->expires_ns = expires_ns;
	if (!expires_ns)
		return;

	assert(expiries->n < expiries->room);
	name_expiry_put(expiries, expiries->n++, name);
	name_expiry_move(expiries, name->expiry_place - 1);
	gm_env_need_tick(&name->core->env, expires_ns);
}

uint64_t gm_name_expiry_next(const struct gm_core *core)
{
	return core->expiries.n > 0 ? core->expiries.names[0]->expires_ns : UINT64_MAX;
}
