/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists the names that this process may see. The answer comes in several packets. It is kept until it is
 * complete, so that the program's function runs without any lock, and sees each name once also if the
 * daemon restarts meanwhile.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/session/gpumem_session.h"
#include "client/session/session_call.h"
#include "common/cancel.h"
#include "common/bounds.h"

struct names_row {
	char name[GM_BOUND_NAME_BYTES + 1], tag[GM_BOUND_NAME_BYTES + 1];
	gpumem_name info; /* without its texts */
};

struct names_call {
	struct gm_conn_request call;
	struct names_row *rows;
	size_t n, room;
};

static int names_reserve(struct names_call *call, size_t more)
{
	if (more <= call->room - call->n)
		return 0;
	size_t room = 2 * call->room + more;
	struct names_row *rows = realloc(call->rows, room * sizeof(*rows));
	if (!rows)
		return -ENOMEM;
	call->rows = rows;
	call->room = room;
	return 0;
}

static int names_add(struct names_call *call, const Gm__Wire__Name *name)
{
	struct names_row *row = &call->rows[call->n];

	if (strlen(name->name) >= sizeof(row->name) || strlen(name->tag) >= sizeof(row->tag))
		return -EPROTO;
	*row = (struct names_row){.info = GPUMEM_NAME_INIT};
	strcpy(row->name, name->name);
	strcpy(row->tag, name->tag);
	row->info.owner = name->owner;
	row->info.version = name->version;
	row->info.device = name->device;
	row->info.bytes = name->user_bytes;
	row->info.metadata_bytes = name->metadata_bytes;
	row->info.readers = name->readers;
	row->info.own = name->whose == GM__WIRE__WHOSE__WHOSE_UNSAID
				? name->owner == geteuid()
				: name->whose == GM__WIRE__WHOSE__WHOSE_ASKERS;
	call->n++;
	return 0;
}

static int names_take(
	struct gm_conn_request *base, const Gm__Wire__Packet *packet, struct gm_conn_packet *in)
{
	struct names_call *call = (struct names_call *)base;
	const Gm__Wire__NamesReply *reply = packet->names;

	if (packet->body_case != GM__WIRE__PACKET__BODY_NAMES)
		return -EPROTO;
	int r = names_reserve(call, reply->n_names);
	for (size_t i = 0; r == 0 && i < reply->n_names; i++)
		r = names_add(call, reply->names[i]);
	return r;
}

static void names_late(struct gm_conn_request *base)
{
	struct names_call *call = (struct names_call *)base;

	if (call)
		free(call->rows);
	free(call);
}

static int names_repeat(struct gm_conn_request *base)
{
	((struct names_call *)base)->n = 0;
	return 0;
}

static const struct gm_conn_request_ops names_ops = {
	.take = names_take, .late = names_late, .repeat = names_repeat};

gpumem_status gpumem_names(gpumem_session *session, gpumem_name_fn fn, void *user)
{
	GM_UNCANCELLED;

	if (!gm_session_ok(session))
		return gm_session_refused(session);
	if (!fn)
		return gm_error(GPUMEM_E_INVALID, "fn must not be NULL");
	struct names_call *call = calloc(1, sizeof(*call));
	if (!call)
		return gm_error(GPUMEM_E_HOST_MEMORY, "no memory for a request");
	call->call.ops = &names_ops;

	Gm__Wire__GetNames body = GM__WIRE__GET_NAMES__INIT;
	Gm__Wire__Packet packet = GM_WIRE_PACKET(GET_NAMES, get_names, &body);
	struct gm_conn_request *base = &call->call;
	gpumem_status status = gm_session_call(session, NULL, &packet, &base);
	for (size_t i = 0; !status && i < call->n; i++) {
		struct names_row *row = &call->rows[i];

		row->info.name = row->name;
		row->info.tag = row->tag;
		fn(user, &row->info);
	}
	names_late(base);
	return status;
}
