/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two trees of the C library: of entries by handle, and of mappings by address. Mappings never overlap,
 * so a range compares equal to every mapping that it touches, and searching for a range finds one of
 * them.
 *
 * An entry counts the program's references, the mappings, and calls that are under way (users). It
 * stays in the tree by handle while the program has a reference.
 */
#include "preload/table/preload_handles.h"
#include "common/lock.h"

#include <search.h>
#include <stdlib.h>

struct handles_entry {
	gm_cu_mem handle;
	struct gm_handle_about about;
	size_t references, users;
	bool listed; /* in the tree by handle */
};

struct handles_mapping {
	gm_cu_ptr ptr;
	size_t bytes;
	struct handles_entry *entry;
	struct handles_mapping *next; /* while it is taken out */
};

static struct gm_lock handles_lock = GM_LOCK_INITIALIZER(GM_LOCK_LEAF);
static void *handles_entries, *handles_mappings;

/* ---- all of these with the lock held */

static int handles_compare(const void *a, const void *b)
{
	gm_cu_mem left = ((const struct handles_entry *)a)->handle;
	gm_cu_mem right = ((const struct handles_entry *)b)->handle;

	return left < right ? -1 : left > right;
}

static int handles_compare_ranges(const void *a, const void *b)
{
	const struct handles_mapping *left = a, *right = b;

	if (left->ptr + left->bytes <= right->ptr)
		return -1;
	return left->ptr >= right->ptr + right->bytes;
}

static struct handles_entry *handles_of(gm_cu_mem handle)
{
	const struct handles_entry key = {.handle = handle};
	struct handles_entry *const *found = tfind(&key, &handles_entries, handles_compare);

	return found ? *found : NULL;
}

/* false: the host has no memory. */
static bool handles_list(struct handles_entry *entry, gm_cu_mem handle)
{
	entry->handle = handle;
	void *found = tsearch(entry, &handles_entries, handles_compare);
	entry->listed = found && *(struct handles_entry **)found == entry;
	return entry->listed;
}

static void handles_unlist(struct handles_entry *entry)
{
	if (entry->listed)
		(void)tdelete(entry, &handles_entries, handles_compare);
	entry->listed = false;
}

/* The chunk of an entry that nobody has any more, which ends with it; or NULL. */
static gpumem_chunk *handles_end(struct handles_entry *entry)
{
	if (entry->references || entry->users)
		return NULL;
	gpumem_chunk *chunk = entry->about.chunk;

	handles_unlist(entry);
	free(entry);
	return chunk;
}

/* ---- references */

bool gm_preload_handles_add(gm_cu_mem handle, const struct gm_handle_about *about)
{
	struct handles_entry *entry = calloc(1, sizeof *entry);
	if (!entry)
		return false;
	entry->about = *about;
	entry->references = 1;

	gm_lock(&handles_lock);
	bool listed = handles_list(entry, handle);
	gm_lock_drop(&handles_lock);
	if (!listed)
		free(entry);
	return listed;
}

bool gm_preload_handles_find(gm_cu_mem handle, struct gm_handle_about *ret_about)
{
	gm_lock(&handles_lock);
	const struct handles_entry *entry = handles_of(handle);
	if (entry)
		*ret_about = entry->about;
	gm_lock_drop(&handles_lock);
	return entry;
}

void *gm_preload_handles_use(gm_cu_mem handle, struct gm_handle_about *ret_about)
{
	gm_lock(&handles_lock);
	struct handles_entry *entry = handles_of(handle);
	if (entry) {
		entry->users++;
		*ret_about = entry->about;
	}
	gm_lock_drop(&handles_lock);
	return entry;
}

gpumem_chunk *gm_preload_handles_use_end(void *given)
{
	struct handles_entry *entry = given;

	gm_lock(&handles_lock);
	entry->users--;
	gpumem_chunk *chunk = handles_end(entry);
	gm_lock_drop(&handles_lock);
	return chunk;
}

void gm_preload_handles_ref(gm_cu_mem handle)
{
	gm_lock(&handles_lock);
	struct handles_entry *entry = handles_of(handle);
	if (entry)
		entry->references++;
	gm_lock_drop(&handles_lock);
}

bool gm_preload_handles_release_begin(gm_cu_mem handle, void **ret_entry)
{
	gm_lock(&handles_lock);
	struct handles_entry *entry = handles_of(handle);
	if (entry) {
		entry->users++;
		if (--entry->references == 0)
			handles_unlist(entry);
	}
	gm_lock_drop(&handles_lock);
	*ret_entry = entry;
	return entry;
}

gpumem_chunk *gm_preload_handles_release_end(void *given, gm_cu_mem handle, bool released)
{
	struct handles_entry *entry = given;

	gm_lock(&handles_lock);
	/* If the host has no memory to list it again, the chunk stays with the process. */
	if (!released && entry->references++ == 0)
		(void)handles_list(entry, handle);
	entry->users--;
	gpumem_chunk *chunk = handles_end(entry);
	gm_lock_drop(&handles_lock);
	return chunk;
}

/* ---- mappings */

bool gm_preload_handles_map_begin(gm_cu_mem handle, gm_cu_ptr ptr, size_t bytes, void **ret_mapping)
{
	struct handles_mapping *mapping = calloc(1, sizeof *mapping);
	if (!mapping)
		return false;
	*mapping = (struct handles_mapping){.ptr = ptr, .bytes = bytes};

	gm_lock(&handles_lock);
	mapping->entry = handles_of(handle);
	if (mapping->entry)
		mapping->entry->users++;
	bool ours = mapping->entry;
	gm_lock_drop(&handles_lock);
	if (!ours)
		free(mapping);
	*ret_mapping = ours ? mapping : NULL;
	return true;
}

gpumem_chunk *gm_preload_handles_map_end(void *given, bool mapped)
{
	struct handles_mapping *mapping = given;
	struct handles_entry *entry = mapping->entry;
	gpumem_chunk *chunk = NULL;

	gm_lock(&handles_lock);
	if (!mapped) {
		entry->users--;
		chunk = handles_end(entry);
	} else if (tsearch(mapping, &handles_mappings, handles_compare_ranges)) {
		mapping = NULL;
	}
	/* If the host has no memory for the tree, the chunk stays with the process. */
	gm_lock_drop(&handles_lock);
	free(mapping);
	return chunk;
}

void *gm_preload_handles_unmap_begin(gm_cu_ptr ptr, size_t bytes)
{
	const struct handles_mapping key = {.ptr = ptr, .bytes = bytes};
	struct handles_mapping *list = NULL, *const * found;

	if (!bytes || ptr + bytes < ptr)
		return NULL;
	gm_lock(&handles_lock);
	while ((found = tfind(&key, &handles_mappings, handles_compare_ranges))) {
		struct handles_mapping *mapping = *found;
		(void)tdelete(mapping, &handles_mappings, handles_compare_ranges);
		mapping->next = list;
		list = mapping;
	}
	gm_lock_drop(&handles_lock);
	return list;
}

gpumem_chunk *gm_preload_handles_unmap_end(void **list, bool unmapped)
{
	struct handles_mapping *mapping = *list;
	gpumem_chunk *chunk = NULL;

	*list = mapping->next;
	gm_lock(&handles_lock);
	if (unmapped) {
		mapping->entry->users--;
		chunk = handles_end(mapping->entry);
	} else if (tsearch(mapping, &handles_mappings, handles_compare_ranges)) {
		mapping = NULL;
	}
	gm_lock_drop(&handles_lock);
	free(mapping);
	return chunk;
}

void *gm_preload_handles_retain_begin(gm_cu_ptr ptr)
{
	const struct handles_mapping key = {.ptr = ptr, .bytes = 1};

	gm_lock(&handles_lock);
	struct handles_mapping *const *found =
		tfind(&key, &handles_mappings, handles_compare_ranges);
	struct handles_entry *entry = found ? (*found)->entry : NULL;
	if (entry)
		entry->users++;
	gm_lock_drop(&handles_lock);
	return entry;
}

gpumem_chunk *gm_preload_handles_retain_end(void *given, gm_cu_mem handle, bool retained)
{
	struct handles_entry *entry = given;

	gm_lock(&handles_lock);
	if (retained && entry->references++ == 0)
		(void)handles_list(entry, handle);
	entry->users--;
	gpumem_chunk *chunk = handles_end(entry);
	gm_lock_drop(&handles_lock);
	return chunk;
}
