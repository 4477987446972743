/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CORE_HASH_TABLE_H
#define GM_CORE_HASH_TABLE_H

/*
 * uthash as core uses it: an insertion for which there is no memory leaves the table as it was
 * instead of ending the daemon. A .c file that uses a table must include this header before any
 * other that may include uthash.
 *
 * A table grows by doubling its buckets, so an insertion costs the same on average however many
 * items there are. The keys are ids and keyed hashes that the daemon makes, so no client can choose
 * keys that collide.
 */
#if defined(UTHASH_H) && !HASH_NONFATAL_OOM
#error "include daemon/core/hash_table.h first"
#endif
#define HASH_NONFATAL_OOM 1
#include <uthash.h>
#include <utlist.h>

/* After HASH_ADD: whether the item is in the table. */
#define GM_TABLE_ADDED(item) ((item)->hh.tbl != NULL)

#endif
