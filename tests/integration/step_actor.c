/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/integration/step_actor.h"

#include <string.h>

#include "gpumem/gpumem_managed.h"
#include "gpumem/gpumem_piece.h"
#include "tests/integration/device.h"
#include "tests/integration/ok.h"
#include "tests/tap.h"

enum { BUFFERS = 2, POINTERS = 2, VIEWS = 2 };

struct actor {
	const struct gm_step_part *part;
	gpumem_session *session;
	gpumem_buffer *buffers[BUFFERS], *views[VIEWS];
	void *pointers[POINTERS];
	gpumem_buffer *opened; /* the memory of its second pointer */
	gpumem_piece piece;
};

static const size_t buffer_bytes[] = {6 * MIB, 2 * MIB};
static const size_t pointer_bytes[] = {2 * MIB, 5 * MIB};

/* Marks the first and the last byte. */
static void actor_mark(void *ptr, size_t bytes, uint8_t value)
{
	gm_device_set(ptr, 1, value);
	gm_device_set((uint8_t *)ptr + bytes - 1, 1, value);
}

static void actor_require_mark(const void *ptr, size_t bytes, uint8_t value)
{
	GM_REQUIRE(gm_device_is(ptr, 1, value));
	GM_REQUIRE(gm_device_is((const uint8_t *)ptr + bytes - 1, 1, value));
}

static void actor_check_all(const struct actor *actor)
{
	for (unsigned i = 0; i < BUFFERS; i++)
		if (actor->buffers[i])
			actor_require_mark(gpumem_buffer_ptr(actor->buffers[i]), buffer_bytes[i],
				(uint8_t)(1 + i));
	for (unsigned i = 0; i < POINTERS; i++)
		if (actor->pointers[i])
			actor_require_mark(actor->pointers[i], pointer_bytes[i], (uint8_t)(11 + i));
	for (unsigned i = 0; i < VIEWS; i++)
		if (actor->views[i])
			actor_require_mark(gpumem_buffer_ptr(actor->views[i]), buffer_bytes[0], 1);
	if (actor->opened)
		actor_require_mark(
			(uint8_t *)gpumem_buffer_ptr(actor->opened) + actor->piece.offset,
			pointer_bytes[1], 12);
}

/* A connection is not waited for: a daemon that dies meanwhile is an error, and the program asks
 * again. */
static void actor_join(struct actor *actor)
{
	gpumem_connect_options options = GPUMEM_CONNECT_OPTIONS_INIT;
	options.socket = actor->part->socket;
	options.name = "actor";
	GM_UNTIL(gpumem_connect(&options, &actor->session) == GPUMEM_OK);
}

static void actor_create(struct actor *actor, unsigned i)
{
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	options.flags = GPUMEM_BUFFER_FOR_OTHERS;
	if (i == 0)
		options.flags |= GPUMEM_BUFFER_SIGNALS; /* such a buffer cannot grow */
	else
		options.max_size = 64 * MIB;
	OK(gpumem_buffer_create(actor->session, 0, buffer_bytes[i], &options, &actor->buffers[i]));
	actor_mark(gpumem_buffer_ptr(actor->buffers[i]), buffer_bytes[i], (uint8_t)(1 + i));
}

static void actor_destroy(gpumem_buffer **buffer)
{
	gpumem_buffer_destroy(*buffer);
	*buffer = NULL;
}

static void actor_allocate(struct actor *actor, unsigned i)
{
	OK(gpumem_alloc(actor->session, 0, pointer_bytes[i], NULL, NULL, &actor->pointers[i]));
	actor_mark(actor->pointers[i], pointer_bytes[i], (uint8_t)(11 + i));
}

static void actor_free_all(struct actor *actor)
{
	for (unsigned i = 0; i < POINTERS; i++) {
		OK(gpumem_free(actor->session, actor->pointers[i], GPUMEM_STREAM_DONE));
		actor->pointers[i] = NULL;
	}
}

static void actor_share(struct actor *actor, unsigned i)
{
	gpumem_share_options options = GPUMEM_SHARE_OPTIONS_INIT;
	if (gm_tap_has_users()) {
		options.flags = GPUMEM_READERS_CAN_WRITE;
		options.audience = GPUMEM_AUDIENCE_UID;
		options.id = GM_STRANGER;
	}
	OK(gpumem_share(actor->buffers[i], &options, &actor->part->board->token));
}

/* The metadata of a name takes several packets. */
static uint8_t metadata[150000];

static void actor_publish(struct actor *actor, unsigned i, bool until_unread)
{
	gpumem_publish_options options = GPUMEM_PUBLISH_OPTIONS_INIT;
	if (gm_tap_has_users()) {
		options.flags = GPUMEM_READERS_CAN_WRITE;
		options.audience = GPUMEM_AUDIENCE_UID;
		options.id = GM_STRANGER;
	}
	options.replace = i;
	options.until_unread = until_unread;
	options.metadata = metadata;
	options.metadata_size = sizeof(metadata);
	options.expires_s = 3600;
	memset(metadata, 7, sizeof(metadata));
	uint64_t version = 0;
	OK(gpumem_publish(actor->buffers[i], "llama", &options, GPUMEM_STREAM_DONE, &version));
	GM_REQUIRE_EQ(version, 1 + i);
}

static void actor_read_metadata(struct actor *actor)
{
	void *data;
	size_t size;
	uint64_t version = 0;
	memset(metadata, 7, sizeof(metadata));
	OK(gpumem_metadata_read(actor->session, actor->part->board->name, &data, &size, &version));
	GM_REQUIRE(version == 1 && size == sizeof(metadata) && !memcmp(data, metadata, size));
	gpumem_metadata_free(data);
	OK(gpumem_buffer_metadata(actor->views[0], &data, &size));
	GM_REQUIRE(size == sizeof(metadata) && !memcmp(data, metadata, size));
	gpumem_metadata_free(data);
}

static void actor_do(struct actor *actor, char word)
{
	gpumem_token token;
	switch (word) {
	case 'j':
		actor_join(actor);
		break;
	case 'b':
	case 'B':
		actor_create(actor, word == 'B');
		break;
	case 'd':
	case 'D':
		actor_destroy(&actor->buffers[word == 'D']);
		break;
	case 'g': /* its second buffer grows, and becomes what it was */
		OK(gpumem_buffer_resize(actor->buffers[1], 11 * MIB, NULL, NULL));
		break;
	case 'h':
		OK(gpumem_buffer_resize(
			actor->buffers[1], buffer_bytes[1], GPUMEM_STREAM_DONE, NULL));
		break;
	case 'a':
	case 'A':
		actor_allocate(actor, word == 'A');
		break;
	case 'f':
		actor_free_all(actor);
		break;
	case 't':
		OK(gpumem_trim(actor->session, NULL));
		break;
	case 's':
		actor_share(actor, 0);
		break;
	case 'u':
		OK(gpumem_unshare(actor->buffers[0]));
		break;
	case 'o':
	case 'O':
		OK(gpumem_open(
			actor->session, &actor->part->board->token, &actor->views[word == 'O']));
		break;
	case 'p':
	case 'P': /* replaces what 'p' has published */
		actor_publish(actor, word == 'P', false);
		break;
	case 'U':
		actor_publish(actor, 0, true);
		break;
	case 'n':
		OK(gpumem_attach(actor->session, actor->part->board->name, &actor->views[0]));
		break;
	case 'r':
		OK(gpumem_unpublish(actor->session, "llama"));
		break;
	case 'x': /* its own buffer, by a token of its own */
		OK(gpumem_share(actor->buffers[0], NULL, &token));
		OK(gpumem_open(actor->session, &token, &actor->views[0]));
		break;
	case 'y': /* its own pointers, and opens the second */
		for (unsigned i = 0; i < POINTERS; i++)
			OK(gpumem_share_ptr(actor->session, actor->pointers[i], &actor->piece));
		OK(gpumem_open_piece(actor->session, &actor->piece, &actor->opened));
		break;
	case 'Y':
		actor_destroy(&actor->opened);
		break;
	case 'm':
		actor_read_metadata(actor);
		break;
	case 'e': /* memory of its own making */
		OK(gpumem_declare(actor->session, 0, GM_STEP_DECLARED, 0));
		break;
	case 'E':
		OK(gpumem_undeclare(actor->session, 0, GM_STEP_DECLARED));
		break;
	case 'c':
	case 'C':
		actor_destroy(&actor->views[word == 'C']);
		break;
	case 'q':
		gpumem_disconnect(actor->session);
		*actor = (struct actor){.part = actor->part};
		break;
	}
	actor_check_all(actor);
}

void gm_step_work(int channel, void *argument)
{
	struct actor actor = {.part = argument};
	char word;
	if (actor.part->stranger)
		gm_become_stranger_if_possible();
	do {
		gm_hear(channel, &word, 1);
		actor_do(&actor, word);
		gpumem_stats_t stats = GPUMEM_STATS_INIT;
		if (actor.session)
			OK(gpumem_stats(actor.session, 0, &stats));
		gm_say(channel, &stats.allocated, sizeof(stats.allocated));
	} while (word != 'q');
}
