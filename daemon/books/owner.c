/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owners and how they are written. This file promises that equal owners are equal byte by byte, and
 * that whatever it parses it can format. It must never look up the name of a uid or gid: it says a
 * user's name only if somebody else has looked it up before.
 */
#include "daemon/books/owner.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "common/text/uid_name.h"
#include "common/text/units.h"
#include "daemon/books/token_hash.h"

static const char *const kind_names[GM_OWNER_KINDS] = {
	"uid", "gid", "unit", "container", "client", "session", "run"};

static bool owner_has_name(enum gm_owner_kind kind)
{
	return kind == GM_OWNER_UNIT || kind == GM_OWNER_CONTAINER || kind == GM_OWNER_NAME ||
	       kind == GM_OWNER_RUN;
}

void gm_owner_by_id(enum gm_owner_kind kind, uint64_t id, struct gm_owner *ret_owner)
{
	assert(!owner_has_name(kind));
	memset(ret_owner, 0, sizeof(*ret_owner));
	ret_owner->kind = kind;
	ret_owner->id = id;
}

int gm_owner_by_name(enum gm_owner_kind kind, const char *name, struct gm_owner *ret_owner)
{
	if (!owner_has_name(kind) || !name || !name[0])
		return -EINVAL;
	size_t n = strnlen(name, GM_OWNER_NAME_BYTES + 1);
	if (n > GM_OWNER_NAME_BYTES || !gm_text_ok(name))
		return -EINVAL;

	memset(ret_owner, 0, sizeof(*ret_owner));
	ret_owner->kind = kind;
	memcpy(ret_owner->name, name, n);
	return 0;
}

/* Containers of one user that have the same hash would share a run only if they have its random name, too. */
uint32_t gm_owner_hash(const struct gm_token_hash_key *key, const struct gm_owner *owner)
{
	char text[GM_OWNER_NAME_BYTES + 64];

	snprintf(text, sizeof(text), "%llu:%llu:%s", (unsigned long long)owner->kind,
		(unsigned long long)owner->id, owner->name);
	return (uint32_t)gm_token_hash_text(key, text).h[0];
}

uint64_t gm_owner_run_id(uint32_t uid, const char *container)
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */

	for (; container && *container; container++)
		hash = (hash ^ (unsigned char)*container) * UINT64_C(0x100000001b3);
	return (hash >> 33 << 33) + UINT64_C(1) + uid;
}

static const char *owner_write(const struct gm_owner *owner, char between, char text[GM_OWNER_TEXT])
{
	assert(owner->kind < GM_OWNER_KINDS);
	if (owner_has_name((enum gm_owner_kind)owner->kind))
		snprintf(text, GM_OWNER_TEXT, "%s%c%s", kind_names[owner->kind], between,
			owner->name);
	else
		snprintf(text, GM_OWNER_TEXT, "%s%c%llu", kind_names[owner->kind], between,
			(unsigned long long)owner->id);
	return text;
}

const char *gm_owner_format(const struct gm_owner *owner, char text[GM_OWNER_TEXT])
{
	_Static_assert(GM_OWNER_TEXT >= GM_UID_NAME_TEXT, "a user's name fits");

	if (owner->kind == GM_OWNER_UID)
		return gm_uid_name_say((uid_t)owner->id, text);
	return owner_write(owner, ' ', text);
}

const char *gm_owner_name(const struct gm_owner *owner, char text[GM_OWNER_TEXT])
{
	return owner_write(owner, ':', text);
}

int gm_owner_parse(const char *text, struct gm_owner *ret_owner)
{
	const char *colon = strchr(text, ':');
	if (!colon)
		return -EINVAL;
	for (unsigned kind = 0; kind < GM_OWNER_KINDS; kind++) {
		size_t n = strlen(kind_names[kind]);
		uint64_t id;
		if ((size_t)(colon - text) != n || strncmp(text, kind_names[kind], n) != 0)
			continue;

		if (owner_has_name(kind))
			return gm_owner_by_name(kind, colon + 1, ret_owner);
		if (gm_parse_u64(colon + 1, &id) < 0)
			return -EINVAL;
		/* The last uid and gid mean "none" to the kernel. */
		if (kind != GM_OWNER_SESSION && id >= UINT32_MAX)
			return -EINVAL;
		gm_owner_by_id(kind, id, ret_owner);
		return 0;
	}
	return -EINVAL;
}
