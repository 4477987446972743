/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_RECLAIM_RECLAIM_USER_H
#define GM_RECLAIM_RECLAIM_USER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/backoff.h"
#include "daemon/books/event.h"

/* Who asks for memory. The queue embeds these structs in its requests and lines. */

struct gm_account;
struct gm_ledger_tally;
struct gm_user;

/* What clients did for the requests of one user on one device. It stays while gm_reclaim_backoff_remembers(). */
struct gm_reclaim_user {
	struct gm_user *user; /* a reference */
	uint32_t asks;        /* those of its asks that wait */
	/* Kept by reclaim_backoff.c: clients of other users returned what they do not use, and some of the asks for which they were
	 * asked have not got their memory yet. */
	bool untaken;
	uint16_t disturbing; /* asks for which other users' clients were asked */
	/* Kept by reclaim_run.c: the clients that owe something for this user's asks; among them, those of other
	 * users, and those that were asked to move buffers; and what all of them owe. */
	uint32_t owing, owing_others, moving;
	uint64_t owed;
	/* Kept by reclaim_ask.c: no client had anything to return, to this limit or the device, so reclaim_ask.c asks nobody
	 * before dry_ns. A client is never asked for what it holds itself. So if the asking client held something,
	 * this is true only for its own asks (dry_for). */
	const struct gm_ledger_tally *dry;
	const struct gm_account *dry_for; /* NULL: for all asks of the user */
	uint64_t dry_ns;
	/* Kept by reclaim_backoff.c: what clients of other users moved to host memory for this user, since it held
	 * held_before. If the user kept less than that, which is a failure, they move nothing more for it during the delay. */
	uint64_t moved, held_before;
	struct gm_backoff spill;
	/* Kept by reclaim_backoff.c: clients of other users returned what they do not use. Before backoff_ns, they are asked
	 * again only while the user holds at least `enough`: what it held when it had got that memory. UINT64_MAX: an
	 * ask ended without taking the memory. */
	uint64_t enough, backoff_ns;
	struct gm_reclaim_user *prev, *next; /* of gm_reclaim.users */
};

/* What one account asks clients for: memory of its device, or room under a limit. */
struct gm_reclaim_ask {
	struct gm_account *account;
	struct gm_reclaim_user *user; /* while it waits */
	enum gm_block block;
	const struct gm_ledger_tally *tally; /* GM_BLOCK_LIMIT: of which owner */
	uint64_t exact;                      /* bytes it needs at least */
	uint64_t lacked; /* of them, the most that it lacked when clients were asked */
	/* It fitted, but the device could not make so many bytes of it; 0: that is not so. */
	uint64_t denied;
	uint64_t since_ns;
	uint64_t until_ns;  /* it ends then; UINT64_MAX: never by itself */
	uint64_t again_ns;  /* clients are asked again then */
	uint32_t settled;   /* gm_reclaim.settled when clients were asked on its behalf */
	uint8_t rounds;     /* how often clients were asked on its behalf */
	bool nowait : 1;    /* it may not wait: it is there only while clients are asked */
	bool disturbed : 1; /* other users' clients were asked on its behalf */
	bool rests : 1;     /* other users' clients are not asked before the user's backoff_ns */
	bool spares : 1;    /* others are not asked to move the buffers they have during spill */
};

/* Whether it lacks room on the device, rather than under a limit. */
static inline bool gm_reclaim_ask_wants_device(const struct gm_reclaim_ask *ask)
{
	return ask->block == GM_BLOCK_DEVICE || ask->block == GM_BLOCK_GUARANTEE;
}

/* Whether it lacks something that a client could return. */
static inline bool gm_reclaim_ask_lacks_memory(const struct gm_reclaim_ask *ask)
{
	return ask->block == GM_BLOCK_LIMIT || gm_reclaim_ask_wants_device(ask);
}

#endif
