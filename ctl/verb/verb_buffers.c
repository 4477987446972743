/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * gpumemctl buffers: the buffers that clients track. The oldest come first, because they are the
 * most likely leaks.
 */

#include <stdlib.h>

#include "ctl/verb/verb.h"

static const struct gm_column columns[] = {
	{"age_ms", "AGE", GM_COLUMN_RIGHT},
	{"bytes", "SIZE", GM_COLUMN_RIGHT},
	{"device", "DEV", GM_COLUMN_RIGHT},
	{"tag", "TAG", GM_COLUMN_SHRINK},
	{"session", NULL, 0},
	{"pid", "PID", GM_COLUMN_RIGHT},
	{"uid", NULL, 0},
	{NULL, "USER", GM_COLUMN_SHRINK},
	{"client", "CLIENT", GM_COLUMN_SHRINK},
};
enum { COLUMN_AGE, COLUMN_BYTES };

struct buffers_answer {
	struct gm_table *table;
	uint64_t untracked;
};

static void buffers_take(void *user, const Gm__Wire__Packet *packet)
{
	struct buffers_answer *answer = user;
	struct gm_table *table = answer->table;
	const Gm__Wire__BuffersReply *reply = packet->buffers;

	for (size_t i = 0; i < reply->n_buffers; i++) {
		const Gm__Wire__Buffer *buffer = reply->buffers[i];

		gm_table_row(table);
		gm_table_time(table, buffer->age_ms);
		gm_table_size(table, buffer->bytes);
		gm_table_count(table, buffer->device);
		gm_table_text(table, buffer->tag);
		gm_verb_add_client(
			table, buffer->session, buffer->pid, buffer->uid, buffer->client);
	}

	/* Any packet may carry the total. */
	if (reply->untracked > answer->untracked)
		answer->untracked = reply->untracked;
}

static int buffers_compare_age(const void *a, const void *b)
{
	const struct gm_value *x = ((const struct gm_row *)a)->values;
	const struct gm_value *y = ((const struct gm_row *)b)->values;

	if (x[COLUMN_AGE].n != y[COLUMN_AGE].n)
		return x[COLUMN_AGE].n < y[COLUMN_AGE].n ? 1 : -1;
	if (x[COLUMN_BYTES].n != y[COLUMN_BYTES].n)
		return x[COLUMN_BYTES].n < y[COLUMN_BYTES].n ? 1 : -1;
	return 0;
}

static gpumem_status buffers_run(struct gm_ctl *ctl)
{
	Gm__Wire__GetBuffers body = GM__WIRE__GET_BUFFERS__INIT;
	Gm__Wire__Packet request = GM__WIRE__PACKET__INIT;
	struct buffers_answer answer = {.table = GM_TABLE_NEW(columns)};

	body.older_than_ms = ctl->options->older_than_ms;
	request.body_case = GM__WIRE__PACKET__BODY_GET_BUFFERS;
	request.get_buffers = &body;
	gpumem_status status =
		gm_verb_ask(ctl, &request, GM__WIRE__PACKET__BODY_BUFFERS, buffers_take, &answer);
	if (status != GPUMEM_OK) {
		gm_table_free(answer.table);
		return status;
	}

	if (answer.table && answer.table->n_rows)
		qsort(answer.table->rows, answer.table->n_rows, sizeof(*answer.table->rows),
			buffers_compare_age);
	gm_writer_table_or(ctl->writer, "buffers", answer.table,
		ctl->options->given & GM_OPTION_OLDER_THAN ? "No tracked buffer is that old."
							   : "No buffers are tracked.");

	gm_writer_count(ctl->writer, "untracked", answer.untracked);
	gm_writer_notes(ctl->writer);
	if (answer.untracked)
		gm_writer_note(ctl->writer, "untracked", GM_MARK_WARN,
			"%llu more buffer%s found no room in the tables of their clients",
			(unsigned long long)answer.untracked, answer.untracked == 1 ? "" : "s");
	return GPUMEM_OK;
}

const struct gm_verb gm_verb_buffers = {
	.name = "buffers",
	.arguments = "[--older-than TIME]",
	.summary = "tracked buffers, oldest first",
	.help = "  --older-than TIME  show only buffers that are at least this old: 60s, 5min, 2h\n\n"
		"A buffer that is much older than the work it was for may be a leak. The key\n"
		"'track' in gpumemd.conf(5) sets which buffers clients track.\n",
	.takes = GM_OPTION_OLDER_THAN,
	.run = buffers_run,
};
