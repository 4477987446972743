/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * gpumemctl queue: requests that wait for memory, in the order in which the daemon looks at them.
 */

#include "ctl/io/user.h"
#include "ctl/verb/verb.h"

static const struct gm_column columns[] = {
	{"device", "DEV", GM_COLUMN_RIGHT},
	{"session", NULL, 0},
	{"pid", "PID", GM_COLUMN_RIGHT},
	{"uid", NULL, 0},
	{"user", "USER", 0},
	{"client", "CLIENT", GM_COLUMN_SHRINK | GM_COLUMN_OPTIONAL},
	{"bytes", "ASKED", GM_COLUMN_RIGHT},
	{"priority", "PRIO", GM_COLUMN_RIGHT},
	{"waited_ms", "WAITED", GM_COLUMN_RIGHT},
	{"left_ms", "LEFT", GM_COLUMN_RIGHT},
	{"overtaken", "OVERTAKEN", GM_COLUMN_RIGHT},
	{"parked", NULL, 0},
	{"block", "WAITS FOR", 0},
	{"owner", NULL, 0},
	{"owner_name", "OF", GM_COLUMN_SHRINK | GM_COLUMN_OPTIONAL},
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

static void queue_take(void *user, const Gm__Wire__Packet *packet)
{
	struct gm_table *table = user;

	for (size_t i = 0; i < packet->queue->n_requests; i++) {
		const Gm__Wire__Waiting *row = packet->queue->requests[i];
		char owner[GM_USER_OWNER_TEXT];

		gm_table_row(table);
		gm_table_count(table, row->device);
		gm_verb_add_client(table, row->session, row->pid, row->uid, row->client);
		gm_table_size(table, row->bytes);
		gm_table_signed(table, row->priority);
		gm_table_time(table, row->waited_ms);
		gm_table_time(table, row->left_ms);
		gm_table_known(table, row->left_ms != UINT64_MAX);
		gm_table_count(table, row->overtaken);
		gm_table_bool(table, row->parked);
		gm_table_text(table, queue_block_word(row->block));
		gm_table_text(table, row->owner);
		gm_table_text(table, gm_user_owner(row->owner, owner));
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
		"  guarantee  the memory is kept free for other owners\n"
		"  pressure   it is critical, and there are clients of a higher priority\n"
		"  turn       a request ahead of it goes first, for 10 seconds at most\n",
	.run = queue_run,
};
