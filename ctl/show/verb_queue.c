/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * gpumemctl queue: requests that wait for memory, in the order in which the daemon looks at them.
 */

#include <stdio.h>
#include <string.h>

#include "common/arith.h"
#include "common/text/units.h"
#include "common/text/text.h"
#include "ctl/io/user_name.h"
#include "ctl/verb/verb.h"

/* "guarantee, rests 870ms" */
#define QUEUE_WAITS_TEXT (GM_UNITS_TEXT + 24)

static const struct gm_column columns[] = {
	{"device", "DEV", GM_COLUMN_RIGHT},
	{"session", NULL, 0},
	{"pid", "PID", GM_COLUMN_RIGHT},
	{"uid", NULL, 0},
	{"user", "USER", GM_COLUMN_OWNER},
	{"client", "CLIENT", GM_COLUMN_NAME | GM_COLUMN_OPTIONAL},
	{"bytes", "ASKED", GM_COLUMN_RIGHT},
	{"priority", "PRIO", GM_COLUMN_RIGHT | GM_COLUMN_SPARE},
	{"waited_ms", "WAITED", GM_COLUMN_RIGHT | GM_COLUMN_SPARE | GM_COLUMN_LAST},
	{"left_ms", "LEFT", GM_COLUMN_RIGHT | GM_COLUMN_SPARE | GM_COLUMN_LAST},
	{"overtaken", NULL, 0},
	{NULL, "OVERTAKEN", GM_COLUMN_RIGHT | GM_COLUMN_OPTIONAL | GM_COLUMN_SPARE},
	{"nowait", NULL, 0},
	{"block", NULL, 0},
	{NULL, "WAITS FOR", GM_COLUMN_SHRINK},
	{"owner", NULL, 0},
	{"owner_name", "OF", GM_COLUMN_OWNER | GM_COLUMN_OPTIONAL},
	{"rests_ms", NULL, 0},
};

static const char *queue_block_word(Gm__Wire__Block block)
{
	switch (block) {
	case GM__WIRE__BLOCK__BLOCK_LIMIT:
		return "limit";
	case GM__WIRE__BLOCK__BLOCK_DEVICE:
		return "device";
	case GM__WIRE__BLOCK__BLOCK_GUARANTEE:
		return "guarantee";
	case GM__WIRE__BLOCK__BLOCK_CRITICAL:
		return "pressure";
	case GM__WIRE__BLOCK__BLOCK_OVERTAKEN:
		return "overtaken";
	default:
		return NULL;
	}
}

/* The text of WAITS FOR: what the daemon says that the request waits for. */
static const char *queue_waits_for(const Gm__Wire__Waiting *row, char text[QUEUE_WAITS_TEXT])
{
	char left[GM_UNITS_TEXT];
	const char *word = queue_block_word(row->block);

	if (!word || row->rests_ms == 0)
		return word;
	gm_text_duration(row->rests_ms, left);
	/* As in the other columns, the larger unit is enough. */
	left[strcspn(left, " ")] = '\0';
	snprintf(text, QUEUE_WAITS_TEXT, "%s, rests %s", word, left);
	return text;
}

struct queue_answer {
	struct gm_table *table;
	bool resumed;       /* a client that waits has resumed its session */
	uint64_t waited_ms; /* of such clients, the request that has waited for longest */
	uint64_t uptime_ms; /* of the daemon */
};

/* How soon after the start of the daemon clients have repeated their requests. */
#define QUEUE_REPEATED_MS 30000

static void queue_take_status(void *user, const Gm__Wire__Packet *packet)
{
	struct queue_answer *answer = user;

	answer->uptime_ms = packet->status->uptime_ms;
}

static void queue_take(void *user, const Gm__Wire__Packet *packet)
{
	struct queue_answer *answer = user;
	struct gm_table *table = answer->table;

	for (size_t i = 0; i < packet->queue->n_requests; i++) {
		const Gm__Wire__Waiting *row = packet->queue->requests[i];
		char owner[GM_USER_NAME_OWNER_TEXT], waits_for[QUEUE_WAITS_TEXT];

		if (row->resumed)
			answer->waited_ms = gm_u64_max(answer->waited_ms, row->waited_ms);
		answer->resumed = answer->resumed || row->resumed;
		gm_table_row(table);
		gm_table_count(table, row->device);
		gm_verb_add_client(table, row->session, row->pid, row->uid, row->client);
		gm_table_size(table, row->bytes);
		gm_table_signed(table, row->priority);
		gm_table_time(table, row->waited_ms);
		gm_table_time(table, row->left_ms);
		gm_table_known(table, row->left_ms != UINT64_MAX);
		gm_table_count(table, row->overtaken);
		gm_table_count(table, row->overtaken);
		gm_table_known(table, row->overtaken > 0);
		gm_table_bool(table, row->nowait);
		gm_table_text(table, queue_block_word(row->block));
		gm_table_text(table, queue_waits_for(row, waits_for));
		gm_table_text(table, row->owner);
		gm_table_text(table, gm_user_name_owner(row->owner, owner));
		gm_table_time(table, row->rests_ms);
		gm_table_known(table, row->rests_ms > 0);
	}
}

static gpumem_status queue_ask(struct gm_ctl *ctl, struct queue_answer *answer)
{
	struct gm_ctl_conn *conn = NULL;

	gpumem_status status = gm_verb_connect(ctl, &conn);
	if (status == GPUMEM_OK)
		status = gm_ctl_conn_get(
			conn, GM__WIRE__PACKET__BODY_GET_QUEUE, queue_take, answer, &ctl->trouble);
	if (status == GPUMEM_OK && answer->resumed)
		status = gm_ctl_conn_get(conn, GM__WIRE__PACKET__BODY_GET_STATUS, queue_take_status,
			answer, &ctl->trouble);
	gm_ctl_conn_free(conn);
	return status;
}

static gpumem_status queue_run(struct gm_ctl *ctl)
{
	struct queue_answer answer = {.table = GM_TABLE_NEW(columns)};
	char since[GM_UNITS_TEXT];

	gpumem_status status = queue_ask(ctl, &answer);
	if (status != GPUMEM_OK) {
		gm_table_free(answer.table);
		return status;
	}
	gm_writer_table_or(ctl->writer, "queue", answer.table, "No requests are waiting.");
	gm_writer_notes(ctl->writer);
	/* Such a client has repeated a request that an earlier daemon had. */
	if (answer.resumed && answer.uptime_ms - gm_u64_min(answer.waited_ms, answer.uptime_ms) <
				      QUEUE_REPEATED_MS)
		gm_writer_note(ctl->writer, "restart", GM_MARK_WARN,
			"the daemon started %s ago; for requests that clients with an older library repeated then, WAITED, OVERTAKEN and the order of arrival count from then",
			gm_text_duration(answer.uptime_ms, since));
	return GPUMEM_OK;
}

const struct gm_verb gm_verb_queue = {
	.name = "queue",
	.arguments = "",
	.summary = "requests that wait for memory",
	.help = "The list is by priority, then by arrival. Among requests of equal priority, the\n"
		"users take turns. LEFT is the time until a request ends by itself. OVERTAKEN is\n"
		"the number of requests behind it that were granted while it was the first of its\n"
		"user to wait for the device. When the daemon restarts, clients repeat their\n"
		"requests: LEFT goes on, but arrival, WAITED and OVERTAKEN count from then.\n"
		"WAITS FOR says what is missing:\n\n"
		"  device     not enough memory is available\n"
		"  limit      the owner in the column OF may not hold more\n"
		"  guarantee  the memory is kept free for other owners; OF has the largest part\n"
		"  pressure   it is critical, and there are clients of a higher priority\n"
		"  turn       a request ahead of it goes first, for 10 seconds at most\n\n"
		"\"device, rests 1s\": other users' clients returned memory that this user does\n"
		"not hold, and are left alone for 1s at most before they are asked for it.\n",
	.run = queue_run,
};
