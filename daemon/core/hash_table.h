/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CORE_TABLE_H
#define GM_CORE_TABLE_H

/*
 * uthash as core uses it: an insertion that finds no memory leaves the table as it was instead of
 * ending the daemon. Every .c of core includes this before anything that may include uthash.
 *
 * Growing a table moves its items to twice the buckets, so an insertion costs the same on average
 * however many items there are; keys are ids and keyed hashes of our own, so no client can pick
 * colliding ones.
 */
#if defined(UTHASH_H) && !HASH_NONFATAL_OOM
#error "include daemon/core/hash_table.h first"
#endif
#define HASH_NONFATAL_OOM 1
#include <uthash.h>
#include <utlist.h>

/* After HASH_ADD: whether the item is in. */
#define GM_TABLE_ADDED(item) ((item)->hh.tbl != NULL)

#endif
