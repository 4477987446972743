/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CORE_ADOPT_TAKE_H
#define GM_CORE_ADOPT_TAKE_H

#include <stdint.h>

#include "daemon/core/adopt_ops.h"
#include "daemon/core/adopt_records.h"

/*
 * Turns a record into the object that it describes. It promises that a record is adopted only if everything that it
 * belongs to was adopted, and if all of them name the same uid. It must never choose which record is next, nor erase one: adopt.c does both.
 */

struct gm_core;

struct gm_adopt_take {
	struct gm_core *core;
	const struct gm_adopt_ops *ops;
	void *ctx;                       /* of ops */
	struct gm_adopt_records records; /* sorted */
};

enum {
	GM_ADOPT_TAKE_E_DAMAGED = 1, /* or it rests on something that was not adopted */
	GM_ADOPT_TAKE_E_UNFINISHED,  /* something that was never brought to its end left it */
	GM_ADOPT_TAKE_E_LOST,        /* its memory is not there, or not all memory of its lease */
	GM_ADOPT_TAKE_E_IPC,         /* a lease on the ipc transport, or a chunk of one */
	GM_ADOPT_TAKE_E_ELSEWHERE,   /* it is about a device that this daemon does not have */
	GM_ADOPT_TAKE_E_CONTRADICTED, /* a limit of which nothing goes together with the configuration */
};

/*
 * Adopts a record. All records that it may depend on must have had their turn. If other kinds depend on this kind,
 * entry->object becomes the new object.
 *
 * Returns 0, one of the outcomes above, a shortage (gm_adopt_is_shortage()), gm_adopt_is_unseen() or gm_adopt_is_unusable().
 * After one of the last three, no further record must be taken.
 */
int gm_adopt_take_record(struct gm_adopt_take *take, uint32_t kind, struct gm_adopt_entry *entry);

#endif
