/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_INTEGRATION_NAMES_FIXTURE_H
#define GM_TESTS_INTEGRATION_NAMES_FIXTURE_H

/* A daemon, and clients that publish memory under names, with metadata, and die. */

#include <grp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/integration/raw.h"
#include "tests/tap.h"

#define OWN ((uid_t)-1)

static struct gm_daemon daemon_;

static inline void set_up(void)
{
	gm_daemon_start(&daemon_, NULL);
}

static inline void tear_down(void)
{
	gm_daemon_stop(&daemon_);
}

/* A client that publishes and, if it is told so, waits for a word before it ends. */
struct maker {
	uid_t uid; /* 0: the caller's own */
	const char *name;
	uint8_t byte;
	bool for_others;
	Gm__Wire__Audience audience;
	uint32_t id;
	bool replace, until_unread;
	size_t metadata; /* how many bytes */
	uint64_t lifetime_ms;
};

/* Bytes that differ from place to place. */
static inline uint8_t metadata_at(size_t i, uint8_t seed)
{
	return (uint8_t)(i * 31 + i / 4096 + seed);
}

static inline void put_metadata(struct gm_raw *raw, uint64_t lease, size_t size, uint8_t seed)
{
	uint8_t *all = malloc(size);
	GM_REQUIRE(all);
	for (size_t i = 0; i < size; i++)
		all[i] = metadata_at(i, seed);
	for (size_t at = 0, n; at < size; at += n) {
		n = size - at < GM_METADATA_PIECE ? size - at : GM_METADATA_PIECE;
		GM_REQUIRE_EQ(gm_raw_put_metadata(raw, lease, size, at, all + at, n), GPUMEM_OK);
	}
	free(all);
}

/* Whether the metadata of a name, or of a lease if that is not 0, is all there. */
static inline bool metadata_is(struct gm_raw *raw, uid_t owner, const char *name, uint64_t lease,
	size_t size, uint8_t seed)
{
	uint8_t *data = NULL;
	size_t got = 0, i = 0;
	if (gm_raw_get_metadata(raw, owner, name, lease, &data, &got) != GPUMEM_OK)
		return false;
	while (i < got && i < size && data[i] == metadata_at(i, seed))
		i++;
	free(data);
	return got == size && i == size;
}

static inline void publish(int channel, void *argument)
{
	const struct maker *maker = argument;
	struct gm_raw raw;
	struct gm_raw_lease lease;
	Gm__Wire__Publish what = GM__WIRE__PUBLISH__INIT;
	uint64_t version = 0;

	if (maker->uid) {
		GM_REQUIRE(setgroups(0, NULL) == 0);
		GM_REQUIRE(setresgid(maker->uid, maker->uid, maker->uid) == 0);
		GM_REQUIRE(setresuid(maker->uid, maker->uid, maker->uid) == 0);
	}
	gm_raw_join(&raw, &daemon_);
	GM_REQUIRE_EQ((maker->for_others ? gm_raw_lease_for_others : gm_raw_lease)(
			      &raw, 0, 3 * GM_CHUNK_MIN, &lease),
		GPUMEM_OK);
	for (size_t i = 0; i < lease.n; i++)
		gm_alloc_raw_chunk_fill(&lease.chunks[i], maker->byte);
	what.lease = lease.id;
	what.name = (char *)maker->name;
	what.audience = maker->audience;
	what.audience_id = maker->id;
	what.readers_can_write = true;
	what.replace = maker->replace;
	what.until_unread = maker->until_unread;
	what.lifetime_ms = maker->lifetime_ms;
	what.metadata_bytes = maker->metadata;
	put_metadata(&raw, lease.id, maker->metadata, maker->byte);
	gpumem_status status = gm_raw_publish(&raw, &what, &version);
	gm_text_say(channel, &status, sizeof(status));
	gm_text_say(channel, &version, sizeof(version));
	char word;
	gm_hear(channel, &word, 1);
	gm_raw_close(&raw);
}

/* Publishes and dies. Returns the version; 0: refused. */
static inline uint64_t publish_and_die(const struct maker *maker)
{
	struct gm_worker worker;
	gpumem_status status;
	uint64_t version;
	gm_worker_start(&worker, publish, (void *)maker);
	gm_hear(worker.channel, &status, sizeof(status));
	gm_hear(worker.channel, &version, sizeof(version));
	gm_worker_kill(&worker);
	return status == GPUMEM_OK ? version : 0;
}

static inline bool is_filled(const struct gm_raw_lease *lease, uint8_t byte)
{
	for (size_t i = 0; i < lease->n; i++)
		if (!gm_alloc_raw_chunk_is(&lease->chunks[i], byte))
			return false;
	return lease->n > 0;
}

#endif
