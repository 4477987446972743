/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Call stacks of allocations. backtrace() gives return addresses. Only a stack that was not seen before
 * is resolved to modules, because that asks the dynamic loader; it is done without the lock held, for
 * the loader has locks of its own.
 */
#include "client/session/session_stacks.h"
#include "common/lock.h"

#include <dlfcn.h>
#include <elf.h>
#include <execinfo.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The frames of this library come first, and are left out. */
#define OWN_FRAMES     16
#define WATCHER_FRAMES 2
#define BUCKETS        1024

struct stack_place {
	void *pc[GM_PAGE_FRAMES];
	uint32_t frames;
	uint32_t refs;
	uint32_t next; /* in its bucket, or of the free ones, plus 1; 0: the last one */
};

struct gm_session_stacks {
	struct gm_page_client *page;
	uintptr_t own_begin, own_end; /* the code of this library, if it is a shared one */
	struct gm_lock lock;
	uint32_t modules;
	uint32_t free;
	uint32_t bucket[BUCKETS];
	struct stack_place places[GM_BOUND_STACKS];
};

/* A frame as the loader knows it. */
struct stack_frame {
	uintptr_t pc;
	uint64_t offset;
	bool known;
	struct gm_page_module module;
};

/* ---- modules */

static bool stacks_find_load(
	const struct dl_phdr_info *info, uintptr_t pc, uintptr_t *ret_begin, uintptr_t *ret_end)
{
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *ph = &info->dlpi_phdr[i];
		uintptr_t begin = info->dlpi_addr + ph->p_vaddr;

		if (ph->p_type != PT_LOAD || pc < begin || pc - begin >= ph->p_memsz)
			continue;
		*ret_begin = begin;
		*ret_end = begin + ph->p_memsz;
		return true;
	}
	return false;
}

static void stacks_copy_id(const struct dl_phdr_info *info, struct gm_page_module *module)
{
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *ph = &info->dlpi_phdr[i];
		const uint8_t *at = (const uint8_t *)(info->dlpi_addr + ph->p_vaddr);
		size_t left = ph->p_memsz;

		/* A note that is not loaded cannot be read here. */
		uintptr_t begin, end;
		if (ph->p_type != PT_NOTE || !stacks_find_load(info, (uintptr_t)at, &begin, &end) ||
			end - (uintptr_t)at < left)
			continue;
		while (left >= sizeof(ElfW(Nhdr))) {
			const ElfW(Nhdr) *note = (const ElfW(Nhdr) *)(const void *)at;
			size_t name = (note->n_namesz + 3U) & ~3U,
			       desc = (note->n_descsz + 3U) & ~3U;
			size_t bytes = sizeof(*note) + name + desc;

			if (bytes > left)
				break;
			if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 &&
				memcmp(at + sizeof(*note), "GNU", 4) == 0 &&
				note->n_descsz <= sizeof(module->id)) {
				module->id_bytes = note->n_descsz;
				memcpy(module->id, at + sizeof(*note) + name, note->n_descsz);
				return;
			}
			at += bytes;
			left -= bytes;
		}
	}
}

static void stacks_copy_path(const char *name, struct gm_page_module *module)
{
	char exe[4096] = "";

	if (!*name && readlink("/proc/self/exe", exe, sizeof(exe) - 1) > 0)
		name = exe;
	if (strlen(name) < sizeof(module->path))
		strcpy(module->path, name);
}

struct stack_search {
	struct stack_frame *frames;
	size_t n;
};

static int stacks_on_module(struct dl_phdr_info *info, size_t size, void *ctx)
{
	struct stack_search *search = ctx;
	struct gm_page_module module = {0};
	bool filled = false;
	uintptr_t begin, end;

	(void)size;
	for (size_t i = 0; i < search->n; i++) {
		struct stack_frame *frame = &search->frames[i];

		if (frame->known || !stacks_find_load(info, frame->pc, &begin, &end))
			continue;
		if (!filled) {
			stacks_copy_id(info, &module);
			stacks_copy_path(info->dlpi_name, &module);
			filled = true;
		}
		frame->known = module.id_bytes || module.path[0];
		frame->offset = frame->pc - info->dlpi_addr;
		memcpy(&frame->module, &module, sizeof(module));
	}
	return 0;
}

static void stacks_resolve(struct stack_frame *frames, void *const *pc, size_t n)
{
	struct stack_search search = {frames, n};

	for (size_t i = 0; i < n; i++) {
		memset(&frames[i], 0, sizeof(frames[i]));
		frames[i].pc = (uintptr_t)pc[i] - 1;
	}
	dl_iterate_phdr(stacks_on_module, &search);
}

static int stacks_on_own(struct dl_phdr_info *info, size_t size, void *ctx)
{
	struct gm_session_stacks *stacks = ctx;
	uintptr_t begin, end;

	(void)size;
	if (!stacks_find_load(info, (uintptr_t)&gm_session_stacks_take, &begin, &end))
		return 0;
	/* If the program is linked statically, its own functions are there, too. */
	if (*info->dlpi_name) {
		stacks->own_begin = begin;
		stacks->own_end = end;
	}
	return 1;
}

/* ---- places */

struct gm_session_stacks *gm_session_stacks_new(struct gm_page_client *page)
{
	struct gm_session_stacks *stacks = calloc(1, sizeof(*stacks));
	void *first[1];

	if (!stacks)
		return NULL;
	stacks->page = page;
	gm_lock_init(&stacks->lock, GM_LOCK_LEAF);
	for (uint32_t i = 0; i + 1 < GM_BOUND_STACKS; i++)
		stacks->places[i].next = i + 2;
	stacks->free = 1;

	dl_iterate_phdr(stacks_on_own, stacks);
	/* The first call loads a library, and may fail later. */
	(void)backtrace(first, 1);
	return stacks;
}

void gm_session_stacks_free(struct gm_session_stacks *stacks)
{
	if (!stacks)
		return;
	gm_lock_deinit(&stacks->lock);
	free(stacks);
}

static uint32_t stacks_bucket(void *const *pc, uint32_t n)
{
	uint64_t hash = n;

	for (uint32_t i = 0; i < n; i++)
		hash = (hash ^ (uintptr_t)pc[i]) * UINT64_C(0x9e3779b97f4a7c15);
	return (uint32_t)(hash >> 54);
}

/* Locked. Returns a new reference, or 0. */
static uint32_t stacks_find(
	struct gm_session_stacks *stacks, uint32_t bucket, void *const *pc, uint32_t n)
{
	for (uint32_t id = stacks->bucket[bucket]; id; id = stacks->places[id - 1].next) {
		struct stack_place *place = &stacks->places[id - 1];

		if (place->frames == n && memcmp(place->pc, pc, n * sizeof(*pc)) == 0) {
			place->refs++;
			return id;
		}
	}
	return 0;
}

/* Locked. Returns the index of the module, or GM_BOUND_STACK_MODULES if there is no room for it. */
static uint32_t stacks_module(struct gm_session_stacks *stacks, const struct gm_page_module *module)
{
	struct gm_page_module *known = stacks->page->modules;
	uint32_t i;

	for (i = 0; i < stacks->modules; i++)
		if (known[i].id_bytes == module->id_bytes &&
			memcmp(known[i].id, module->id, sizeof(module->id)) == 0 &&
			strcmp(known[i].path, module->path) == 0)
			return i;
	if (i < GM_BOUND_STACK_MODULES) {
		gm_page_write(&known[i], module, sizeof(*module));
		stacks->modules++;
	}
	return i;
}

/* Locked. */
static uint32_t stacks_add(struct gm_session_stacks *stacks, uint32_t bucket, void *const *pc,
	const struct stack_frame *frames, uint32_t n)
{
	struct gm_page_stack value = {.frames = n};
	uint32_t id = stacks->free;

	if (!id)
		return 0;
	struct stack_place *place = &stacks->places[id - 1];
	stacks->free = place->next;
	memcpy(place->pc, pc, n * sizeof(*pc));
	place->frames = n;
	place->refs = 1;
	place->next = stacks->bucket[bucket];
	stacks->bucket[bucket] = id;

	for (uint32_t i = 0; i < n; i++) {
		uint64_t module = frames[i].known ? stacks_module(stacks, &frames[i].module)
						  : GM_BOUND_STACK_MODULES;
		value.frame[i] =
			module << GM_PAGE_FRAME_SHIFT | (frames[i].offset & GM_PAGE_FRAME_OFFSET);
	}
	gm_page_write(&stacks->page->stacks[id - 1], &value, sizeof(value));
	return id;
}

static bool stacks_is_own(const struct gm_session_stacks *stacks, const void *pc)
{
	return (uintptr_t)pc >= stacks->own_begin && (uintptr_t)pc < stacks->own_end;
}

/* How many frames, from the innermost on, are the library's. Somebody who watches backtrace() itself, such
 * as a sanitizer, may have a frame before them. */
static int stacks_own_frames(const struct gm_session_stacks *stacks, void *const *pc, int all)
{
	int own = 0;

	while (own < all && own < WATCHER_FRAMES && !stacks_is_own(stacks, pc[own]))
		own++;
	if (own == all || !stacks_is_own(stacks, pc[own]))
		return 0;
	while (own < all && own < OWN_FRAMES && stacks_is_own(stacks, pc[own]))
		own++;
	return own;
}

uint32_t gm_session_stacks_take(struct gm_session_stacks *stacks)
{
	void *pc[OWN_FRAMES + GM_PAGE_FRAMES];
	struct stack_frame frames[GM_PAGE_FRAMES];
	int own, all;

	if (!stacks)
		return 0;
	all = backtrace(pc, OWN_FRAMES + GM_PAGE_FRAMES);
	own = stacks_own_frames(stacks, pc, all);
	uint32_t n = (uint32_t)(all - own < GM_PAGE_FRAMES ? all - own : GM_PAGE_FRAMES);
	if (!n)
		return 0;

	uint32_t bucket = stacks_bucket(pc + own, n);
	gm_lock(&stacks->lock);
	uint32_t id = stacks_find(stacks, bucket, pc + own, n);
	gm_lock_drop(&stacks->lock);
	if (id)
		return id;

	stacks_resolve(frames, pc + own, n);
	gm_lock(&stacks->lock);
	id = stacks_find(stacks, bucket, pc + own, n);
	if (!id)
		id = stacks_add(stacks, bucket, pc + own, frames, n);
	gm_lock_drop(&stacks->lock);
	return id;
}

void gm_session_stacks_ref(struct gm_session_stacks *stacks, uint32_t stack)
{
	if (!stacks || !stack)
		return;
	gm_lock(&stacks->lock);
	stacks->places[stack - 1].refs++;
	gm_lock_drop(&stacks->lock);
}

void gm_session_stacks_drop(struct gm_session_stacks *stacks, uint32_t stack)
{
	static const struct gm_page_stack nothing;

	if (!stacks || !stack)
		return;
	gm_lock(&stacks->lock);
	struct stack_place *place = &stacks->places[stack - 1];
	if (--place->refs == 0) {
		uint32_t *at = &stacks->bucket[stacks_bucket(place->pc, place->frames)];
		while (*at != stack)
			at = &stacks->places[*at - 1].next;
		*at = place->next;
		place->next = stacks->free;
		stacks->free = stack;
		gm_page_write(&stacks->page->stacks[stack - 1], &nothing, sizeof(nothing));
	}
	gm_lock_drop(&stacks->lock);
}

void gm_session_stacks_hold(struct gm_session_stacks *stacks)
{
	if (stacks)
		gm_lock(&stacks->lock);
}

void gm_session_stacks_release(struct gm_session_stacks *stacks)
{
	if (stacks)
		gm_lock_drop(&stacks->lock);
}

/* ---- as text */

/* The exported symbol that the address lies in, or NULL. */
static const char *stacks_symbol(uintptr_t pc)
{
	const ElfW(Sym) *symbol = NULL;
	Dl_info info;

	if (!dladdr1((void *)pc, &info, (void **)&symbol, RTLD_DL_SYMENT) || !info.dli_sname ||
		!symbol || pc - (uintptr_t)info.dli_saddr >= symbol->st_size)
		return NULL;
	return info.dli_sname;
}

void gm_session_stacks_text(
	struct gm_session_stacks *stacks, uint32_t stack, char text[GM_STACK_TEXT])
{
	struct stack_place place = {0};
	struct gm_page_stack frames;
	size_t at = 0;

	text[0] = '\0';
	if (!stacks || !stack)
		return;
	gm_lock(&stacks->lock);
	memcpy(&place, &stacks->places[stack - 1], sizeof(place));
	memcpy(&frames, &stacks->page->stacks[stack - 1], sizeof(frames));
	uint32_t modules = stacks->modules;
	gm_lock_drop(&stacks->lock);

	/* Whoever had it may have freed its memory meanwhile. */
	for (uint32_t i = 0; place.refs && i < place.frames && at < GM_STACK_TEXT; i++) {
		uint64_t module = frames.frame[i] >> GM_PAGE_FRAME_SHIFT;
		const char *path = module < modules ? stacks->page->modules[module].path : "";
		const char *symbol = stacks_symbol((uintptr_t)place.pc[i] - 1);

		at += (size_t)snprintf(text + at, GM_STACK_TEXT - at, "%s+0x%llx%s%.90s%s\n",
			*path ? path : "?",
			(unsigned long long)(frames.frame[i] & GM_PAGE_FRAME_OFFSET),
			symbol ? " (" : "", symbol ? symbol : "", symbol ? ")" : "");
	}
}
