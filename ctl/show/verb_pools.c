/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * gpumemctl pools: how well the pool of each device serves, and the free chunks in it.
 */

#include "common/figures.h"
#include "ctl/io/device_table.h"
#include "ctl/io/user_name.h"
#include "ctl/verb/verb.h"

#define POOLS_PLACE_CORE(name, unit, column, ...) POOLS_##name = (column),
#define POOLS_PLACE_OTHER(name, column, ...)      POOLS_##name = (column),
enum pools_columns { GM_POOL_FIGURES(POOLS_PLACE_CORE, POOLS_PLACE_OTHER) };

#define POOLS_TITLE_CORE(name, unit, column, title, note) \
	[POOLS_##name] = {#name, title, GM_COLUMN_RIGHT},
#define POOLS_TITLE_OTHER(name, column, title, note) \
	[POOLS_##name] = {#name, title, GM_COLUMN_RIGHT},

static const struct gm_column total_columns[] = {
	{"device", "DEV", GM_COLUMN_RIGHT}, GM_POOL_FIGURES(POOLS_TITLE_CORE, POOLS_TITLE_OTHER)};

static const struct gm_column bucket_columns[] = {
	{"device", "DEV", GM_COLUMN_RIGHT},
	{"transport", "TRANSPORT", 0},
	{"chunk_bytes", "CHUNK", GM_COLUMN_RIGHT},
	{"chunks", "CHUNKS", GM_COLUMN_RIGHT},
	{"bytes", "SIZE", GM_COLUMN_RIGHT},
	{"oldest_ms", "IDLE", GM_COLUMN_RIGHT},
	{"decay_ms", "GOES IN", GM_COLUMN_RIGHT},
	{"domain", NULL, 0},
	{"domain_name", "DOMAIN", GM_COLUMN_SHRINK},
};

struct pools_answer {
	struct gm_table *totals, *buckets;
};

static void pools_add_totals(struct gm_table *table, const Gm__Wire__PoolTotals *totals)
{
	double chunks = (double)totals->hits + (double)totals->misses;

	gm_table_row(table);
	gm_table_count(table, totals->device);
#define POOLS_ADD(name, unit, ...) \
	gm_table_at(table, POOLS_##name); \
	gm_table_##unit(table, totals->name);
	GM_POOL_FIGURES(POOLS_ADD, GM_FIGURE_SKIP)
#undef POOLS_ADD
	if (totals->pool_decay_ms == 0) {
		gm_table_at(table, POOLS_pool_decay_ms);
		gm_table_none(table);
	}
	gm_table_at(table, POOLS_hit_rate);
	gm_table_share(
		table, chunks > 0 ? (uint64_t)((double)totals->hits / chunks * 1e6 + 0.5) : 0);
	gm_table_known(table, chunks > 0);
	gm_table_at(table, sizeof(total_columns) / sizeof(*total_columns));
}

static void pools_add_bucket(struct gm_table *table, const Gm__Wire__PoolBucket *bucket)
{
	char domain[GM_USER_NAME_OWNER_TEXT];
	uint64_t bytes;

	if (__builtin_mul_overflow(bucket->chunk_bytes, bucket->chunks, &bytes))
		bytes = UINT64_MAX;

	gm_table_row(table);
	gm_table_count(table, bucket->device);
	gm_table_text(table, gm_device_transport(bucket->transport));
	gm_table_size(table, bucket->chunk_bytes);
	gm_table_count(table, bucket->chunks);
	gm_table_size(table, bytes);
	gm_table_time(table, bucket->oldest_ms);
	gm_table_left(table, bucket->decay_ms);
	gm_table_known(table, bucket->decays);
	gm_table_text(table, bucket->domain);
	gm_table_text(table, gm_user_name_sentence(bucket->domain, domain, sizeof(domain)));
}

static void pools_take(void *user, const Gm__Wire__Packet *packet)
{
	struct pools_answer *answer = user;

	for (size_t i = 0; i < packet->pools->n_totals; i++)
		pools_add_totals(answer->totals, packet->pools->totals[i]);
	for (size_t i = 0; i < packet->pools->n_buckets; i++)
		pools_add_bucket(answer->buckets, packet->pools->buckets[i]);
}

static gpumem_status pools_run(struct gm_ctl *ctl)
{
	struct pools_answer answer = {
		.totals = GM_TABLE_NEW(total_columns),
		.buckets = GM_TABLE_NEW(bucket_columns),
	};

	gpumem_status status =
		gm_verb_get(ctl, GM__WIRE__PACKET__BODY_GET_POOLS, pools_take, &answer);
	if (status != GPUMEM_OK) {
		gm_table_free(answer.totals);
		gm_table_free(answer.buckets);
		return status;
	}

	gm_writer_table(ctl->writer, "pools", answer.totals);
	gm_writer_blank_line(ctl->writer);
	gm_writer_table_or(ctl->writer, "buckets", answer.buckets, "No chunks are pooled.");
	return GPUMEM_OK;
}

const struct gm_verb gm_verb_pools = {
	.name = "pools",
	.arguments = "",
	.summary = "free chunks that are kept for reuse",
	.help = "Shows how well the pool of each device serves, and the free chunks in it by\n"
		"transport, size and trust domain. HITS are chunks that came from the pool,\n"
		"MISSES are chunks that had to be created. RETURNS are chunks that clients gave\n"
		"back to it, and RELEASED those that went from it to the device. PEAK is the most\n"
		"that it has held, MAX the most that it may hold, and RESERVE how much memory\n"
		"that was never leased the daemon keeps ready in it.\n\n"
		"A used chunk can only be leased again within its own trust domain; otherwise it\n"
		"goes back to the device. A chunk that is marked \"fresh\" was never leased, and\n"
		"any client can get it. IDLE is how long the oldest chunk of a row has been in\n"
		"the pool. GOES IN is the time until the next one of them goes back to the device\n"
		"because nobody took it (pool_decay); the reserve stays.\n",
	.run = pools_run,
};
