/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * gpumemctl queue: requests that wait for memory, in the order in which the daemon looks at them.
 */

#include <stdio.h>
#include <string.h>

#include "common/text/units.h"
#include "common/text/text.h"
#include "ctl/io/user.h"
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
	{"parked", NULL, 0},
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
	case GM__WIRE__BLOCK__BLOCK_TURN:
		return "turn";
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

static void queue_take(void *user, const Gm__Wire__Packet *packet)
{
	struct gm_table *table = user;

	for (size_t i = 0; i < packet->queue->n_requests; i++) {
		const Gm__Wire__Waiting *row = packet->queue->requests[i];
		char owner[GM_USER_OWNER_TEXT], waits_for[QUEUE_WAITS_TEXT];

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
		gm_table_bool(table, row->parked);
		gm_table_text(table, queue_block_word(row->block));
		gm_table_text(table, queue_waits_for(row, waits_for));
		gm_table_text(table, row->owner);
		gm_table_text(table, gm_user_owner(row->owner, owner));
		gm_table_time(table, row->rests_ms);
		gm_table_known(table, row->rests_ms > 0);
	}
}

static gpumem_status queue_run(struct gm_ctl *ctl)
{
	Gm__Wire__GetQueue body = GM__WIRE__GET_QUEUE__INIT;
	Gm__Wire__Packet request = GM_WIRE_PACKET(GET_QUEUE, get_queue, &body);
	struct gm_table *table = GM_TABLE_NEW(columns);

	gpumem_status status =
		gm_verb_ask(ctl, &request, GM__WIRE__PACKET__BODY_QUEUE, queue_take, table);
	if (status != GPUMEM_OK) {
		gm_table_free(table);
		return status;
	}
	gm_writer_table_or(ctl->writer, "queue", table, "No requests are waiting.");
	return GPUMEM_OK;
}

const struct gm_verb gm_verb_queue = {
	.name = "queue",
	.arguments = "",
	.summary = "requests that wait for memory",
	.help = "The list is by priority, then by arrival. Among requests of equal priority, the\n"
		"users take turns. LEFT is the time until a request ends by itself. OVERTAKEN is\n"
		"the number of requests behind it that were granted while it was the first of its\n"
		"user to wait for the device. WAITS FOR says what is missing:\n\n"
		"  device     not enough memory is available\n"
		"  limit      the owner in the column OF may not hold more\n"
		"  guarantee  the memory is kept free for other owners; OF has the largest part\n"
		"  pressure   it is critical, and there are clients of a higher priority\n"
		"  turn       a request ahead of it goes first, for 10 seconds at most\n\n"
		"\"device, rests 1s\": other users' clients returned memory that this user does\n"
		"not hold, and are left alone for 1s at most before they are asked for it.\n",
	.run = queue_run,
};
