/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Call stacks of a client, for gpumemctl buffers --stacks. The daemon passes on what the client's page
 * says, within its bounds: it opens none of the files, and looks up no symbol.
 */
#include "daemon/serve/handlers.h"

#include <stdlib.h>

#include "daemon/serve/answer.h"

/* The cursor: first all modules, then all stacks. */
struct stacks_listing {
	struct gm_answer head;
	uint64_t client;
	uint32_t module, stack; /* the next ones */
};

struct stacks_packet {
	Gm__Wire__StackModule modules[GM_PAGES_MODULES], *module_list[GM_PAGES_MODULES];
	struct gm_page_module module_data[GM_PAGES_MODULES];
	Gm__Wire__Stack stacks[GM_PAGES_STACKS], *stack_list[GM_PAGES_STACKS];
	struct gm_page_stack stack_data[GM_PAGES_STACKS];
	Gm__Wire__StacksReply reply;
};

/* Adds modules. Returns false if there are no more. */
static bool stacks_add_modules(
	const struct gm_pages *pages, struct stacks_listing *at, struct stacks_packet *out)
{
	int n = gm_pages_read_modules(pages, at->module, out->module_data);

	out->reply.modules = out->module_list;
	for (int i = 0; i < n; i++) {
		struct gm_page_module *data = &out->module_data[i];
		Gm__Wire__StackModule *module = &out->modules[out->reply.n_modules];

		if (!data->id_bytes && !data->path[0])
			continue;
		gm__wire__stack_module__init(module);
		module->index = at->module + (uint32_t)i;
		module->path = data->path;
		module->build_id.data = data->id;
		module->build_id.len = data->id_bytes;
		out->module_list[out->reply.n_modules++] = module;
	}
	at->module += n > 0 ? (uint32_t)n : 0;
	return n > 0;
}

static bool stacks_add(
	const struct gm_pages *pages, struct stacks_listing *at, struct stacks_packet *out)
{
	int n = gm_pages_read_stacks(pages, at->stack, out->stack_data);

	out->reply.stacks = out->stack_list;
	for (int i = 0; i < n; i++) {
		struct gm_page_stack *data = &out->stack_data[i];
		Gm__Wire__Stack *stack = &out->stacks[out->reply.n_stacks];

		if (!data->frames)
			continue;
		gm__wire__stack__init(stack);
		stack->id = at->stack + (uint32_t)i + 1;
		stack->n_frames = data->frames;
		stack->frames = data->frame;
		out->stack_list[out->reply.n_stacks++] = stack;
	}
	at->stack += n > 0 ? (uint32_t)n : 0;
	return n > 0;
}

static int stacks_next(struct gm_stream *stream, struct gm_peer *peer)
{
	struct stacks_listing *listing = (struct stacks_listing *)stream;
	struct stacks_listing at = *listing;
	struct stacks_packet out;
	/* The client may have ended since. Then the answer ends, too. */
	const struct gm_client *client =
		gm_clients_find(listing->head.serve->clients, listing->client);

	out.reply = (Gm__Wire__StacksReply)GM__WIRE__STACKS_REPLY__INIT;
	bool more = client && (stacks_add_modules(&client->pages, &at, &out) ||
				      stacks_add(&client->pages, &at, &out));
	int r = gm_answer_emit(stream, peer, more, GM__WIRE__PACKET__BODY_STACKS, &out.reply);
	if (r >= 0) {
		listing->module = at.module;
		listing->stack = at.stack;
	}
	return r;
}

void gm_admin_get_stacks(
	struct gm_serve *serve, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	uint64_t id = packet->get_stacks->session;
	const struct gm_client *client = gm_clients_find(serve->clients, id);

	if (!client) {
		gm_peer_send_failure(
			peer, packet->id, GPUMEM_E_NOT_FOUND, "there is no such session");
		return;
	}
	struct stacks_listing *listing =
		gm_answer_new(serve, peer, packet->id, stacks_next, sizeof(*listing));
	if (!listing) {
		gm_serve_fail_memory(peer, packet->id);
		return;
	}
	if (!gm_answer_may_see(&listing->head, peer, client)) {
		free(listing);
		gm_peer_send_failure(peer, packet->id, GPUMEM_E_DENIED,
			"only its user and administrators see where a client allocated its "
			"buffers");
		return;
	}

	listing->client = id;
	gm_peer_start(peer, &listing->head.stream);
}
