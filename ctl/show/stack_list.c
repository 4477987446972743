/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Collects the call stacks of clients, for gpumemctl buffers --stacks. All of it is the clients' word, so
 * every index is checked.
 */
#include "ctl/show/stack_list.h"

#include <stdlib.h>
#include <string.h>

#include "common/arith.h"
#include "common/wire/page.h"
#include "ctl/io/symbols.h"

struct stack_entry {
	uint32_t id;
	uint32_t number; /* for people; 0: no buffer has it */
	uint64_t buffers, bytes;
	size_t first, n;        /* its frames */
	struct gm_table *table; /* the same; NULL: nobody asked for them yet */
};

struct stack_module {
	char *path;
	uint8_t id[GM_SYMBOLS_ID];
	size_t id_bytes;
};

struct stack_session {
	uint64_t id;
	uint32_t uid;
	size_t first, n; /* its stacks */
};

struct gm_stack_list {
	bool no_memory;
	struct stack_session *sessions;
	size_t n_sessions;
	struct stack_module *modules; /* of all sessions */
	size_t n_modules;
	size_t first_module; /* of the session that is being asked about */
	struct stack_entry *entries;
	size_t n_entries;
	struct gm_symbol *frames; /* paths belong to the modules */
	size_t *frame_modules;    /* plus 1; 0: not known */
	size_t n_frames;
	size_t counted;   /* the session that a buffer was counted for last */
	size_t *numbered; /* the stacks that were counted, by their number less 1 */
	uint32_t numbers;
};

struct gm_stack_list *gm_stack_list_new(void)
{
	return calloc(1, sizeof(struct gm_stack_list));
}

void gm_stack_list_free(struct gm_stack_list *list)
{
	if (!list)
		return;
	for (size_t i = 0; i < list->n_modules; i++)
		free(list->modules[i].path);
	for (size_t i = 0; i < list->n_entries; i++)
		gm_table_free(list->entries[i].table);
	free(list->modules);
	free(list->sessions);
	free(list->entries);
	free(list->frames);
	free(list->frame_modules);
	free(list->numbered);
	free(list);
}

/* Makes room for one more element, doubling the array. Returns false if out of memory. */
static bool stack_list_grow(struct gm_stack_list *list, void **array, size_t n, size_t bytes)
{
	if (n & (n - 1))
		return true;
	void *grown = reallocarray(*array, n ? 2 * n : 1, bytes);
	if (grown)
		*array = grown;
	else
		list->no_memory = true;
	return grown != NULL;
}

void gm_stack_list_want(struct gm_stack_list *list, uint64_t session, uint32_t uid)
{
	/* The rows of a client come one after the other. */
	if (list->n_sessions && list->sessions[list->n_sessions - 1].id == session)
		return;
	if (stack_list_grow(
		    list, (void **)&list->sessions, list->n_sessions, sizeof(*list->sessions)))
		list->sessions[list->n_sessions++] =
			(struct stack_session){.id = session, .uid = uid};
}

/* ---- what the daemon says */

static void stack_list_add_module(struct gm_stack_list *list, const Gm__Wire__StackModule *said)
{
	/* They come in their order, without those that are free. */
	while (said->index < GM_BOUND_STACK_MODULES &&
		list->n_modules <= list->first_module + said->index) {
		if (!stack_list_grow(
			    list, (void **)&list->modules, list->n_modules, sizeof(*list->modules)))
			return;
		list->modules[list->n_modules++] = (struct stack_module){0};
	}
	if (said->index >= GM_BOUND_STACK_MODULES)
		return;

	struct stack_module *module = &list->modules[list->first_module + said->index];
	free(module->path);
	module->path = strdup(said->path ? said->path : "");
	list->no_memory |= !module->path;
	module->id_bytes = gm_u64_min(said->build_id.len, sizeof(module->id));
	if (module->id_bytes)
		memcpy(module->id, said->build_id.data, module->id_bytes);
}

static void stack_list_add_frame(struct gm_stack_list *list, uint64_t frame)
{
	size_t module = (size_t)(frame >> GM_PAGE_FRAME_SHIFT);

	if (!stack_list_grow(list, (void **)&list->frames, list->n_frames, sizeof(*list->frames)) ||
		!stack_list_grow(list, (void **)&list->frame_modules, list->n_frames,
			sizeof(*list->frame_modules)))
		return;
	bool known =
		module < GM_BOUND_STACK_MODULES && module < list->n_modules - list->first_module;
	list->frame_modules[list->n_frames] = known ? list->first_module + module + 1 : 0;
	list->frames[list->n_frames++] = (struct gm_symbol){.offset = frame & GM_PAGE_FRAME_OFFSET};
}

static void stack_list_take(void *user, const Gm__Wire__Packet *packet)
{
	struct gm_stack_list *list = user;
	const Gm__Wire__StacksReply *reply = packet->stacks;

	for (size_t i = 0; i < reply->n_modules; i++)
		stack_list_add_module(list, reply->modules[i]);
	for (size_t i = 0; i < reply->n_stacks; i++) {
		const Gm__Wire__Stack *stack = reply->stacks[i];
		struct stack_entry entry = {.id = stack->id, .first = list->n_frames};

		for (size_t k = 0; k < gm_u64_min(stack->n_frames, (size_t)GM_PAGE_FRAMES); k++)
			stack_list_add_frame(list, stack->frames[k]);
		entry.n = list->n_frames - entry.first;
		if (stack_list_grow(
			    list, (void **)&list->entries, list->n_entries, sizeof(*list->entries)))
			list->entries[list->n_entries++] = entry;
	}
}

/* Resolves the frames of one session. Modules may have moved in memory before. */
static void stack_list_resolve(struct gm_stack_list *list, size_t first, uint32_t uid)
{
	for (size_t i = first; i < list->n_frames; i++) {
		size_t at = list->frame_modules[i];
		const struct stack_module *module = at ? &list->modules[at - 1] : NULL;

		if (!module || !module->path)
			continue;
		list->frames[i].path = module->path;
		list->frames[i].id_bytes = module->id_bytes;
		memcpy(list->frames[i].id, module->id, module->id_bytes);
	}
	if (list->n_frames > first)
		gm_symbols_find((uid_t)uid, list->frames + first, list->n_frames - first);
}

gpumem_status gm_stack_list_ask(
	struct gm_stack_list *list, struct gm_ctl *ctl, struct gm_ctl_conn *conn)
{
	for (size_t i = 0; i < list->n_sessions && !list->no_memory; i++) {
		Gm__Wire__GetStacks body = GM__WIRE__GET_STACKS__INIT;
		Gm__Wire__Packet request = GM_WIRE_PACKET(GET_STACKS, get_stacks, &body);
		size_t first = list->n_frames;

		list->sessions[i].first = list->n_entries;
		body.session = list->sessions[i].id;
		list->first_module = list->n_modules;
		gpumem_status status = gm_ctl_conn_ask(conn, &request,
			GM__WIRE__PACKET__BODY_STACKS, stack_list_take, list, &ctl->trouble);
		if (status == GPUMEM_E_NOT_FOUND)
			continue;
		if (status != GPUMEM_OK)
			return status;
		list->sessions[i].n = list->n_entries - list->sessions[i].first;
		stack_list_resolve(list, first, list->sessions[i].uid);
	}
	return list->no_memory ? gm_trouble_set(&ctl->trouble, GPUMEM_E_HOST_MEMORY,
					 "no memory for the call stacks")
			       : GPUMEM_OK;
}

/* ---- for the verb */

/* The rows of a client come one after the other, so this seldom looks further than at the last one. */
static const struct stack_session *stack_list_session(struct gm_stack_list *list, uint64_t id)
{
	for (size_t tried = 0; tried < list->n_sessions; tried++) {
		const struct stack_session *session = &list->sessions[list->counted];

		if (session->id == id)
			return session;
		list->counted = (list->counted + 1) % list->n_sessions;
	}
	return NULL;
}

uint32_t gm_stack_list_count(
	struct gm_stack_list *list, uint64_t session, uint32_t stack, uint64_t bytes)
{
	const struct stack_session *owner = stack_list_session(list, session);

	for (size_t i = 0; owner && i < owner->n; i++) {
		struct stack_entry *entry = &list->entries[owner->first + i];

		if (entry->id != stack)
			continue;
		if (!entry->number) {
			if (!stack_list_grow(list, (void **)&list->numbered, list->numbers,
				    sizeof(*list->numbered)))
				return 0;
			list->numbered[list->numbers] = owner->first + i;
			entry->number = ++list->numbers;
		}
		entry->buffers++;
		entry->bytes += bytes;
		return entry->number;
	}
	return 0;
}

/* clang-format off */
#define FRAME_COLUMNS \
	{"function", NULL, 0}, {"file", NULL, 0}, {"line", NULL, 0}, {"module", NULL, 0}, {"offset", NULL, 0}
/* clang-format on */
static const struct gm_column frame_columns[] = {FRAME_COLUMNS};

static void stack_list_put_frame(struct gm_table *table, const struct gm_symbol *frame)
{
	gm_table_text(table, frame->function);
	gm_table_text(table, frame->file);
	gm_table_count(table, frame->line);
	gm_table_known(table, frame->line != 0);
	gm_table_text(table, frame->path);
	gm_table_count(table, frame->offset);
}

const struct gm_table *gm_stack_list_frames(struct gm_stack_list *list, uint32_t number)
{
	struct stack_entry *entry = &list->entries[list->numbered[number - 1]];
	if (entry->table)
		return entry->table;

	struct gm_table *table = entry->table = GM_TABLE_NEW(frame_columns);
	for (size_t i = 0; i < entry->n; i++) {
		gm_table_row(table);
		stack_list_put_frame(table, &list->frames[entry->first + i]);
	}
	return table;
}

struct gm_table *gm_stack_list_table(const struct gm_stack_list *list)
{
	static const struct gm_column numbered_columns[] = {
		{"stack", NULL, 0}, {"frame", NULL, 0}, FRAME_COLUMNS};
	struct gm_table *table = GM_TABLE_NEW(numbered_columns);

	for (uint32_t number = 1; number <= list->numbers; number++) {
		const struct stack_entry *entry = &list->entries[list->numbered[number - 1]];

		for (size_t i = 0; i < entry->n; i++) {
			gm_table_row(table);
			gm_table_count(table, number);
			gm_table_count(table, i);
			stack_list_put_frame(table, &list->frames[entry->first + i]);
		}
	}
	return table;
}

/* The last part of a path. */
static const char *stack_list_base(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

static void stack_list_write_frame(
	const struct gm_symbol *frame, size_t index, struct gm_writer *writer)
{
	const char *module = frame->path && *frame->path ? stack_list_base(frame->path) : "?";

	if (frame->line)
		gm_writer_line(writer, "", "  #%-2zu %.40s (%.28s:%u)", index, frame->function,
			stack_list_base(frame->file), frame->line);
	else if (*frame->function)
		gm_writer_line(
			writer, "", "  #%-2zu %.40s (%.28s)", index, frame->function, module);
	else
		gm_writer_line(writer, "", "  #%-2zu %.40s+0x%llx", index, module,
			(unsigned long long)frame->offset);
}

void gm_stack_list_write(const struct gm_stack_list *list, struct gm_writer *writer)
{
	char text[GM_UNITS_TEXT];

	for (uint32_t number = 1; number <= list->numbers; number++) {
		const struct stack_entry *entry = &list->entries[list->numbered[number - 1]];

		gm_writer_blank_line(writer);
		gm_writer_line(writer, "", "stack %u: %s in %llu buffer%s", number,
			gm_writer_bytes(writer, entry->bytes, text),
			(unsigned long long)entry->buffers, entry->buffers == 1 ? "" : "s");
		for (size_t i = 0; i < entry->n; i++)
			stack_list_write_frame(&list->frames[entry->first + i], i, writer);
	}
}
