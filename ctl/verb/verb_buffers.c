/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * gpumemctl buffers: the buffers that clients track. The oldest come first, because they are the
 * most likely leaks.
 */

#include "ctl/verb/verb.h"

static const struct gm_column columns[] = {
	{"age_ms", "AGE", GM_COLUMN_RIGHT},
	{"bytes", "SIZE", GM_COLUMN_RIGHT},
	{"device", "DEV", GM_COLUMN_RIGHT},
	{"tag", "TAG", GM_COLUMN_SHRINK},
	{"session", NULL, GM_COLUMN_RIGHT},
	{"pid", "PID", GM_COLUMN_RIGHT},
	{"uid", NULL, GM_COLUMN_RIGHT},
	{"user", "USER", GM_COLUMN_SHRINK},
	{"client", "CLIENT", GM_COLUMN_SHRINK},
};

struct buffers_answer {
	const struct gm_options *options;
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

		if (!gm_verb_wants(answer->options, buffer->device, buffer->uid, buffer->client))
			continue;
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

static gpumem_status buffers_ask(struct gm_ctl *ctl, struct buffers_answer *answer)
{
	Gm__Wire__GetBuffers body = GM__WIRE__GET_BUFFERS__INIT;
	Gm__Wire__Packet request = GM__WIRE__PACKET__INIT;
	struct gm_ctl_conn *conn;

	gpumem_status status = gm_verb_connect(ctl, &conn);
	if (status != GPUMEM_OK)
		return status;

	body.older_than_ms = ctl->options->older_than_ms;
	request.body_case = GM__WIRE__PACKET__BODY_GET_BUFFERS;
	request.get_buffers = &body;
	status = gm_verb_require_device(ctl, conn);
	if (status == GPUMEM_OK)
		status = gm_ctl_conn_ask(conn, &request, GM__WIRE__PACKET__BODY_BUFFERS,
			buffers_take, answer, &ctl->trouble);
	gm_ctl_conn_free(conn);
	return status;
}

static gpumem_status buffers_run(struct gm_ctl *ctl)
{
	struct buffers_answer answer = {.options = ctl->options, .table = GM_TABLE_NEW(columns)};

	gpumem_status status = buffers_ask(ctl, &answer);
	if (status != GPUMEM_OK) {
		gm_table_free(answer.table);
		return status;
	}

	gm_view_apply(&ctl->options->view, answer.table);
	gm_writer_table_or(ctl->writer, "buffers", answer.table,
		ctl->options->given & ~(unsigned)GM_OPTION_OLDER_THAN ? "No tracked buffer matches."
		: ctl->options->given ? "No tracked buffer is that old."
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
	.help = "  --older-than TIME     only buffers that are at least this old: 60s, 2h\n" GM_VERB_HELP_OF_LISTS
		"\nA buffer that is much older than the work it was for may be a leak. The key\n"
		"'track' in gpumemd.conf(5) sets which buffers clients track.\n",
	.takes = GM_OPTION_OLDER_THAN | GM_OPTIONS_OF_LISTS,
	.columns = columns,
	.n_columns = sizeof(columns) / sizeof(*columns),
	.sort = "-age_ms,-bytes",
	.run = buffers_run,
};
