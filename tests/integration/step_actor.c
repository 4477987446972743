/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/integration/step_actor.h"

#include <poll.h>
#include <string.h>

#include "gpumem/gpumem_evict.h"
#include "gpumem/gpumem_managed.h"
#include "gpumem/gpumem_piece.h"
#include "tests/integration/device.h"
#include "tests/integration/ok.h"
#include "tests/tap.h"

const char *const gm_step_tokens[] = {
	"1j",
	"1b",
	"1a",
	"1A", /* hello, leases, and one that grows */
	"1y",
	"1Y", /* its chunks become leases */
	"1s",
	"2j",
	"2o",
	"2c", /* open, and close */
	"2o",
	"1d*",
	"2c.", /* closed by the opener last */
	"1f",
	"1t", /* chunks come back */
	"1b",
	"1s",
	"2o",
	"1u",
	"2c",
	"1d", /* shared no more */
	"2b",
	"2B",
	"2e",
	"2k", /* killed while it holds something */
	"1e",
	"1e",
	"1E", /* declares memory of its own */
	"1B",
	"1g",
	"1h",
	"1g", /* a buffer grows and shrinks */
	"1q", /* goodbye while it holds something */
	NULL,
};
const char *const gm_step_names[] = {
	"1j",
	"2j",
	"1b",
	"1p",
	"2n",
	"2m",
	"1d*",
	"2c*", /* kept by its name */
	"1r.",
	"1b",
	"1p",
	"1B",
	"1P",
	"1d", /* a newer version */
	"1D*",
	"1r.", /* removed */
	"1b",
	"1U",
	"2n",
	"1d*",
	"2c.", /* removed with the last reader */
	"1b",
	"1p",
	"2n",
	"1d*",
	"1r*",
	"2c.", /* removed before */
	"2k",
	"1q",
	NULL,
};
const char *const gm_step_evictions[] = {
	"1j",
	"1w",
	"1v",
	"1V", /* a buffer goes to host memory, and comes back */
	"1v",
	"1q",
	NULL,
};

/* Its second pointer lies in so many chunks. */
#define PIECE_LEASES 2

void gm_step_expect(struct gm_step_expected *expected, const char *line, uint64_t held)
{
	unsigned who = line[0] == '2';
	bool ends = line[1] == 'q' || line[1] == 'k';
	uint64_t before = expected->held[who];
	expected->held[who] = held;
	if (line[1] == 'j')
		expected->clients++;
	else if (ends)
		expected->clients--;
	if (line[1] == 'e')
		expected->declared[who] += GM_STEP_DECLARED;
	else if (line[1] == 'E')
		expected->declared[who] -= GM_STEP_DECLARED;
	else if (ends)
		expected->declared[who] = 0;
	if (strchr("bBw", line[1]))
		expected->made[who]++;
	else if (strchr("dD", line[1]))
		expected->made[who]--;
	else if (strchr("oOn", line[1]))
		expected->opened[who]++;
	else if (strchr("cC", line[1]))
		expected->opened[who]--;
	else if (line[1] == 'y')
		expected->opened[who] += PIECE_LEASES;
	else if (line[1] == 'Y')
		expected->opened[who] -= PIECE_LEASES;
	else if (ends)
		expected->made[who] = expected->opened[who] = 0;
	if (line[2] == '*')
		expected->left += before - held;
	else if (line[2] == '.')
		expected->left = 0;
}

enum { BUFFERS = 2, POINTERS = 2, VIEWS = 2 };

struct actor {
	const struct gm_step_part *part;
	gpumem_session *session;
	gpumem_buffer *buffers[BUFFERS], *views[VIEWS];
	void *pointers[POINTERS];
	gpumem_buffer *opened; /* the memory of its second pointer */
	gpumem_buffer *evictable;
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
	if (actor->part->slow)
		options.timeout_ms = 10 * GM_PATIENCE_MS;
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

static void actor_create_evictable(struct actor *actor)
{
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	options.flags = GPUMEM_BUFFER_EVICTABLE;
	OK(gpumem_buffer_create(actor->session, 0, buffer_bytes[0], &options, &actor->evictable));
}

static void actor_evict(struct actor *actor)
{
	gpumem_status status;
	GM_UNTIL((status = gpumem_buffer_evict(actor->evictable)) != GPUMEM_E_BUSY);
	OK(status);
	GM_REQUIRE_EQ(gpumem_buffer_location(actor->evictable), GPUMEM_LOCATION_HOST);
}

static void actor_bring_back(struct actor *actor)
{
	OK(gpumem_buffer_pin(actor->evictable, NULL, NULL));
	OK(gpumem_buffer_unpin(actor->evictable, GPUMEM_STREAM_DONE));
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

/* The metadata of a name takes several packets. A slow daemon gets less. */
static uint8_t metadata[150000];
#define METADATA_SLOW 70000
static size_t metadata_bytes(const struct actor *actor)
{
	return actor->part->slow ? METADATA_SLOW : sizeof(metadata);
}

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
	options.metadata_size = metadata_bytes(actor);
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
	GM_REQUIRE(version == 1 && size == metadata_bytes(actor) && !memcmp(data, metadata, size));
	gpumem_metadata_free(data);
	OK(gpumem_buffer_metadata(actor->views[0], &data, &size));
	GM_REQUIRE(size == metadata_bytes(actor) && !memcmp(data, metadata, size));
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
	case 'w':
		actor_create_evictable(actor);
		break;
	case 'v':
		actor_evict(actor);
		break;
	case 'V':
		actor_bring_back(actor);
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
		/* It is killed if the test ends. */
		GM_REQUIRE(poll(&(struct pollfd){.fd = channel, .events = POLLIN}, 1, -1) == 1);
		gm_hear(channel, &word, 1);
		actor_do(&actor, word);
		gpumem_stats_t stats = GPUMEM_STATS_INIT;
		if (actor.session)
			OK(gpumem_stats(actor.session, 0, &stats));
		gm_text_say(channel, &stats.allocated, sizeof(stats.allocated));
	} while (word != 'q');
}
