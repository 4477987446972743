/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is published under a name: it outlives its maker and the daemon, only its audience sees it,
 * and its user pays. */
#include <dirent.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/raw.h"
#include "tests/tap.h"

#define UID_A 54321
#define UID_B 54322
#define OWN   ((uid_t)-1)

static struct gm_daemon daemon_;

static void set_up(void)
{
	gm_daemon_start(&daemon_, NULL);
}

static void tear_down(void)
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
static uint8_t metadata_at(size_t i, uint8_t seed)
{
	return (uint8_t)(i * 31 + i / 4096 + seed);
}

static void put_metadata(struct gm_raw *raw, uint64_t lease, size_t size, uint8_t seed)
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
static bool metadata_is(struct gm_raw *raw, uid_t owner, const char *name, uint64_t lease,
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

static void publish(int channel, void *argument)
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
		gm_raw_chunk_fill(&lease.chunks[i], maker->byte);
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
	gm_say(channel, &status, sizeof(status));
	gm_say(channel, &version, sizeof(version));
	char word;
	gm_hear(channel, &word, 1);
	gm_raw_close(&raw);
}

/* Publishes and dies. Returns the version; 0: refused. */
static uint64_t publish_and_die(const struct maker *maker)
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

static bool is_filled(const struct gm_raw_lease *lease, uint8_t byte)
{
	for (size_t i = 0; i < lease->n; i++)
		if (!gm_raw_chunk_is(&lease->chunks[i], byte))
			return false;
	return lease->n > 0;
}

START_TEST(published_memory_outlives_its_maker_and_the_daemon)
{
	const struct maker maker = {.name = "llama", .byte = 42};
	struct gm_raw reader;
	struct gm_raw_lease lease;

	GM_REQUIRE_EQ(publish_and_die(&maker), 1);
	for (int i = 0; i < 3; i++) {
		GM_UNTIL(gm_figures_now(&daemon_).clients == 0);
		GM_REQUIRE_EQ(gm_figures_now(&daemon_).leases, 1);
		gm_raw_join(&reader, &daemon_);
		GM_REQUIRE_EQ(gm_raw_count_names(&reader), 1);
		GM_REQUIRE_EQ(gm_raw_attach(&reader, OWN, "llama", &lease), GPUMEM_OK);
		GM_REQUIRE_EQ(reader.packet->lease_reply->version, 1);
		GM_REQUIRE(is_filled(&lease, 42));
		GM_REQUIRE_EQ(gm_raw_give_back(&reader, &lease), GPUMEM_OK);
		GM_REQUIRE_EQ(gm_raw_attach(&reader, OWN, "mistral", &lease), GPUMEM_E_NOT_FOUND);
		GM_REQUIRE_EQ(gm_raw_goodbye(&reader), GPUMEM_OK);
		gm_raw_close(&reader);
		if (i == 0) {
			gm_daemon_kill(&daemon_);
		} else {
			gm_daemon_signal(&daemon_, SIGTERM);
			GM_REQUIRE_EQ(gm_daemon_wait(&daemon_), 0);
		}
		GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	}

	gm_raw_observe(&reader, &daemon_);
	GM_REQUIRE_EQ(gm_raw_unpublish(&reader, OWN, "llama"), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_raw_unpublish(&reader, OWN, "llama"), GPUMEM_E_NOT_FOUND);
	GM_REQUIRE_EQ(gm_raw_count_names(&reader), 0);
	GM_UNTIL(gm_figures_now(&daemon_).chunks == 0);
	gm_raw_close(&reader);
}
END_TEST

START_TEST(a_newer_version_leaves_readers_what_they_have)
{
	struct maker maker = {.name = "llama", .byte = 1, .replace = true};
	struct gm_raw reader, later;
	struct gm_raw_lease old, new;

	GM_REQUIRE_EQ(publish_and_die(&maker), 1);
	gm_raw_join(&reader, &daemon_);
	GM_REQUIRE_EQ(gm_raw_attach(&reader, OWN, "llama", &old), GPUMEM_OK);
	maker.byte = 2;
	GM_REQUIRE_EQ(publish_and_die(&maker), 2);
	maker.replace = false;
	GM_REQUIRE_EQ(publish_and_die(&maker), 0);

	gm_raw_join(&later, &daemon_);
	GM_REQUIRE_EQ(gm_raw_attach(&later, OWN, "llama", &new), GPUMEM_OK);
	GM_REQUIRE(is_filled(&old, 1) && is_filled(&new, 2));
	GM_UNTIL(gm_figures_now(&daemon_).leases == 2);
	GM_REQUIRE_EQ(gm_raw_give_back(&reader, &old), GPUMEM_OK);
	GM_UNTIL(gm_figures_now(&daemon_).leases == 1);
	GM_REQUIRE(is_filled(&new, 2));
	gm_raw_lease_clear(&new);
	gm_raw_close(&reader);
	gm_raw_close(&later);
	gm_raw_observe(&reader, &daemon_);
	GM_REQUIRE_EQ(gm_raw_unpublish(&reader, OWN, "llama"), GPUMEM_OK);
	gm_raw_close(&reader);
}
END_TEST

START_TEST(a_publisher_that_dies_before_leaves_nothing)
{
	/* The name is refused, and the maker dies with what it has filled. */
	const struct maker maker = {.name = "a/b", .byte = 42};
	struct gm_raw raw;

	GM_REQUIRE_EQ(publish_and_die(&maker), 0);
	GM_UNTIL(gm_figures_now(&daemon_).leases == 0);
	gm_raw_observe(&raw, &daemon_);
	GM_REQUIRE_EQ(gm_raw_count_names(&raw), 0);
	gm_raw_close(&raw);
}
END_TEST

/* ---- metadata */

static size_t open_files(void)
{
	char path[64];
	size_t n = 0;
	snprintf(path, sizeof(path), "/proc/%d/fd", (int)daemon_.pid);
	DIR *folder = opendir(path);
	GM_REQUIRE(folder);
	while (readdir(folder))
		n++;
	closedir(folder);
	return n;
}

START_TEST(metadata_outlives_its_maker_and_the_daemon)
{
	/* None, one packet, and all that there may be. */
	const size_t sizes[] = {0, 1, GM_METADATA_PIECE, 300000, GM_LIMIT_METADATA_BYTES};
	struct maker maker = {.name = "llama", .byte = 42, .replace = true};
	struct gm_raw reader;
	struct gm_raw_lease lease;

	gm_raw_observe(&reader, &daemon_);
	uint64_t kept = gm_figures_now(&daemon_).kept, records = gm_figures_now(&daemon_).records;
	gm_raw_close(&reader);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		maker.metadata = sizes[i];
		GM_REQUIRE_EQ(publish_and_die(&maker), i + 1);
		for (int restart = 0; restart < 2; restart++) {
			gm_raw_join(&reader, &daemon_);
			GM_REQUIRE(metadata_is(&reader, OWN, "llama", 0, sizes[i], 42));
			GM_REQUIRE_EQ(gm_figures_now(&daemon_).leases, 1);
			GM_REQUIRE_EQ(gm_raw_attach(&reader, OWN, "llama", &lease), GPUMEM_OK);
			GM_REQUIRE(metadata_is(&reader, OWN, NULL, lease.id, sizes[i], 42));
			GM_REQUIRE_EQ(gm_raw_give_back(&reader, &lease), GPUMEM_OK);
			GM_REQUIRE_EQ(gm_raw_goodbye(&reader), GPUMEM_OK);
			gm_raw_close(&reader);
			gm_daemon_kill(&daemon_);
			GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
		}
	}
	gm_raw_observe(&reader, &daemon_);
	GM_REQUIRE_EQ(gm_raw_unpublish(&reader, OWN, "llama"), GPUMEM_OK);
	gm_raw_close(&reader);
	GM_UNTIL(gm_figures_now(&daemon_).chunks == 0);
	GM_UNTIL(gm_figures_now(&daemon_).kept == kept);
	/* What is counted on a device, and the key, stay. */
	GM_UNTIL(gm_figures_now(&daemon_).records <= records + 2);
}
END_TEST

START_TEST(a_reader_keeps_the_metadata_of_its_version)
{
	struct maker maker = {.name = "llama", .byte = 1, .replace = true, .metadata = 100000};
	struct gm_raw reader, other;
	struct gm_raw_lease old;

	GM_REQUIRE_EQ(publish_and_die(&maker), 1);
	gm_raw_join(&reader, &daemon_);
	GM_REQUIRE_EQ(gm_raw_attach(&reader, OWN, "llama", &old), GPUMEM_OK);
	maker.byte = 2;
	maker.metadata = 5;
	GM_REQUIRE_EQ(publish_and_die(&maker), 2);
	GM_REQUIRE(metadata_is(&reader, OWN, NULL, old.id, 100000, 1));
	GM_REQUIRE(metadata_is(&reader, OWN, "llama", 0, 5, 2));
	/* A lease that a client does not have tells it nothing. */
	uint8_t *data;
	size_t size;
	gm_raw_join(&other, &daemon_);
	GM_REQUIRE_EQ(
		gm_raw_get_metadata(&other, OWN, NULL, old.id, &data, &size), GPUMEM_E_NOT_FOUND);
	gm_raw_close(&other);

	gm_raw_observe(&other, &daemon_);
	GM_REQUIRE_EQ(gm_raw_unpublish(&other, OWN, "llama"), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_raw_get_metadata(&other, OWN, "llama", 0, &data, &size), GPUMEM_E_DENIED);
	gm_raw_close(&other);
	GM_REQUIRE(metadata_is(&reader, OWN, NULL, old.id, 100000, 1));
	GM_REQUIRE_EQ(gm_raw_give_back(&reader, &old), GPUMEM_OK);
	gm_raw_close(&reader);
}
END_TEST

static void send_metadata_and_wait(int channel, void *argument)
{
	struct gm_raw raw;
	struct gm_raw_lease lease;
	char word = 'r';

	gm_raw_join(&raw, &daemon_);
	GM_REQUIRE_EQ(gm_raw_lease(&raw, 0, 3 * GM_CHUNK_MIN, &lease), GPUMEM_OK);
	put_metadata(&raw, lease.id, 1 << 20, 3);
	gm_say(channel, &word, 1);
	gm_hear(channel, &word, 1);
}

START_TEST(a_maker_that_dies_before_it_publishes_leaves_no_metadata)
{
	struct gm_worker worker;
	char word;
	GM_UNTIL(gm_figures_now(&daemon_).clients == 0);
	uint64_t kept = gm_figures_now(&daemon_).kept;
	size_t files = open_files();

	for (int i = 0; i < 3; i++) {
		gm_worker_start(&worker, send_metadata_and_wait, NULL);
		gm_hear(worker.channel, &word, 1);
		gm_worker_kill(&worker);
		GM_UNTIL(gm_figures_now(&daemon_).clients == 0);
		GM_UNTIL(gm_figures_now(&daemon_).chunks == 0);
		GM_UNTIL(gm_figures_now(&daemon_).kept == kept);
	}
	GM_UNTIL(open_files() <= files + 2); /* the observer's connection, perhaps */
}
END_TEST

/* A restart loses what is not published, and the daemon says so. */
START_TEST(metadata_that_a_restart_lost_is_asked_for_again)
{
	struct gm_raw raw;
	struct gm_raw_lease lease;
	Gm__Wire__Publish what = GM__WIRE__PUBLISH__INIT;
	uint64_t version = 77;
	uint8_t piece[1000] = {0};

	gm_raw_join(&raw, &daemon_);
	GM_REQUIRE_EQ(gm_raw_lease(&raw, 0, GM_CHUNK_MIN, &lease), GPUMEM_OK);
	what.lease = lease.id;
	what.name = (char *)"llama";
	what.metadata_bytes = 3000;
	GM_REQUIRE_EQ(gm_raw_put_metadata(&raw, lease.id, 3000, 0, piece, 1000), GPUMEM_OK);
	/* As after a restart: the second piece is not there. */
	GM_REQUIRE_EQ(gm_raw_put_metadata(&raw, lease.id, 3000, 2000, piece, 1000), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_raw_publish(&raw, &what, &version), GPUMEM_OK);
	GM_REQUIRE_EQ(version, 0);
	GM_REQUIRE(raw.packet->publish_reply->resend);
	GM_REQUIRE_EQ(gm_raw_count_names(&raw), 0);
	put_metadata(&raw, lease.id, 3000, 9);
	GM_REQUIRE_EQ(gm_raw_publish(&raw, &what, &version), GPUMEM_OK);
	GM_REQUIRE_EQ(version, 1);
	GM_REQUIRE(!raw.packet->publish_reply->resend);
	GM_REQUIRE(metadata_is(&raw, OWN, "llama", 0, 3000, 9));
	GM_REQUIRE_EQ(gm_raw_unpublish(&raw, OWN, "llama"), GPUMEM_OK);
	gm_raw_lease_clear(&lease);
	gm_raw_close(&raw);
}
END_TEST

START_TEST(a_liar_changes_nothing)
{
	struct gm_raw raw;
	struct gm_raw_lease lease;
	Gm__Wire__Publish what = GM__WIRE__PUBLISH__INIT;
	uint64_t version = 0;
	uint8_t piece[8] = {0};

	gm_raw_join(&raw, &daemon_);
	GM_REQUIRE_EQ(gm_raw_lease(&raw, 0, GM_CHUNK_MIN, &lease), GPUMEM_OK);
	GM_REQUIRE_EQ(
		gm_raw_put_metadata(&raw, lease.id, UINT64_MAX, 0, piece, 8), GPUMEM_E_INVALID);
	GM_REQUIRE(strstr(gm_raw_detail(&raw), "16777216"));
	GM_REQUIRE_EQ(gm_raw_put_metadata(
			      &raw, lease.id, GM_LIMIT_METADATA_BYTES + UINT64_C(1), 0, piece, 8),
		GPUMEM_E_INVALID);
	GM_REQUIRE_EQ(
		gm_raw_put_metadata(&raw, lease.id, 8, UINT64_MAX - 3, piece, 8), GPUMEM_E_INVALID);
	GM_REQUIRE_EQ(gm_raw_put_metadata(&raw, lease.id, 8, 0, piece, 0), GPUMEM_E_INVALID);
	GM_REQUIRE_EQ(gm_raw_put_metadata(&raw, lease.id + 1, 8, 0, piece, 8), GPUMEM_E_NOT_FOUND);
	what.lease = lease.id;
	what.name = (char *)"llama";
	what.lifetime_ms = GM_LIFETIME_MS_MAX + 1;
	GM_REQUIRE_EQ(gm_raw_publish(&raw, &what, &version), GPUMEM_E_INVALID);
	what.lifetime_ms = 0;
	what.metadata_bytes = UINT64_MAX;
	GM_REQUIRE_EQ(gm_raw_publish(&raw, &what, &version), GPUMEM_OK);
	GM_REQUIRE(raw.packet->publish_reply->resend);

	put_metadata(&raw, lease.id, 1000, 5);
	what.metadata_bytes = 1000;
	GM_REQUIRE_EQ(gm_raw_publish(&raw, &what, &version), GPUMEM_OK);
	GM_REQUIRE_EQ(version, 1);
	/* Afterwards it cannot be changed, nor can another one be prepared. */
	GM_REQUIRE_EQ(gm_raw_put_metadata(&raw, lease.id, 8, 0, piece, 8), GPUMEM_E_BUSY);
	GM_REQUIRE_EQ(gm_raw_put_metadata(&raw, lease.id, 1000, 1, piece, 8), GPUMEM_E_BUSY);
	GM_REQUIRE(metadata_is(&raw, OWN, "llama", 0, 1000, 5));
	GM_REQUIRE_EQ(gm_raw_unpublish(&raw, OWN, "llama"), GPUMEM_OK);
	gm_raw_lease_clear(&lease);
	gm_raw_close(&raw);
}
END_TEST

/* One asks very often, and reads none of it. */
START_TEST(a_reader_that_does_not_read_stops_nobody)
{
	struct maker maker = {
		.name = "llama", .byte = 8, .metadata = GM_LIMIT_METADATA_BYTES, .replace = true};
	struct gm_raw deaf, reader;
	Gm__Wire__GetMetadata get = GM__WIRE__GET_METADATA__INIT;

	GM_REQUIRE_EQ(publish_and_die(&maker), 1);
	gm_raw_join(&deaf, &daemon_);
	get.name = (char *)"llama";
	for (int i = 0; i < 32; i++)
		gm_raw_send(&deaf, GM_RAW_PACKET(GET_METADATA, get_metadata, &get));
	gm_raw_join(&reader, &daemon_);
	GM_REQUIRE(metadata_is(&reader, OWN, "llama", 0, GM_LIMIT_METADATA_BYTES, 8));
	/* The answers that it did not read end with the version. */
	maker.metadata = 10;
	maker.byte = 9;
	GM_REQUIRE_EQ(publish_and_die(&maker), 2);
	GM_REQUIRE(metadata_is(&reader, OWN, "llama", 0, 10, 9));
	GM_REQUIRE(gm_raw_receive(&deaf));
	while (deaf.packet->body_case == GM__WIRE__PACKET__BODY_METADATA_REPLY)
		GM_REQUIRE(gm_raw_receive(&deaf));
	GM_REQUIRE_EQ(deaf.packet->body_case, GM__WIRE__PACKET__BODY_FAILURE);
	GM_REQUIRE_EQ(deaf.packet->failure->status, GPUMEM_E_BUSY);
	gm_raw_close(&deaf);
	GM_REQUIRE_EQ(gm_raw_unpublish(&reader, OWN, "llama"), GPUMEM_OK);
	gm_raw_close(&reader);
}
END_TEST

/* ---- names that end by themselves */

START_TEST(a_name_ends_when_its_time_has_come)
{
	struct maker maker = {.name = "llama", .byte = 6, .lifetime_ms = 3600000, .metadata = 9};
	struct gm_raw reader;
	struct gm_raw_lease lease;

	GM_REQUIRE_EQ(publish_and_die(&maker), 1);
	gm_raw_join(&reader, &daemon_);
	GM_REQUIRE_EQ(gm_raw_attach(&reader, OWN, "llama", &lease), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_raw_count_names(&reader), 1);
	const Gm__Wire__Name *name = reader.packet->names->names[0];
	GM_REQUIRE(name->left_ms > 0 && name->left_ms <= 3600001);
	GM_REQUIRE_EQ(name->metadata_bytes, 9);
	GM_REQUIRE_EQ(gm_raw_expire(&reader, OWN, "mistral", 1), GPUMEM_E_NOT_FOUND);
	GM_REQUIRE_EQ(gm_raw_expire(&reader, OWN, "a/b", 1), GPUMEM_E_NOT_FOUND);
	GM_REQUIRE_EQ(gm_raw_expire(&reader, OWN, "llama", UINT64_MAX), GPUMEM_E_INVALID);
	GM_REQUIRE_EQ(gm_raw_expire(&reader, OWN, "llama", 0), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_raw_count_names(&reader), 1);
	GM_REQUIRE_EQ(reader.packet->names->names[0]->left_ms, 0);
	GM_REQUIRE_EQ(gm_raw_expire(&reader, OWN, "llama", 1), GPUMEM_OK);
	GM_UNTIL(gm_raw_count_names(&reader) == 0);

	/* The reader keeps what it has. */
	GM_REQUIRE(is_filled(&lease, 6));
	GM_REQUIRE(metadata_is(&reader, OWN, NULL, lease.id, 9, 6));
	GM_REQUIRE_EQ(gm_raw_give_back(&reader, &lease), GPUMEM_OK);
	GM_UNTIL(gm_figures_now(&daemon_).chunks == 0);
	gm_raw_close(&reader);
}
END_TEST

START_TEST(the_time_goes_on_while_the_daemon_is_away)
{
	const struct maker soon = {.name = "soon", .byte = 1, .lifetime_ms = 300};
	const struct maker later = {.name = "later", .byte = 2, .lifetime_ms = 3600000};
	struct gm_raw raw;

	GM_REQUIRE_EQ(publish_and_die(&soon), 1);
	GM_REQUIRE_EQ(publish_and_die(&later), 1);
	gm_daemon_kill(&daemon_);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	gm_raw_observe(&raw, &daemon_);
	GM_UNTIL(gm_raw_count_names(&raw) == 1);
	GM_REQUIRE(strcmp(raw.packet->names->names[0]->name, "later") == 0);
	GM_REQUIRE(raw.packet->names->names[0]->left_ms <= 3600001);
	GM_UNTIL(gm_figures_now(&daemon_).leases == 1);
	GM_REQUIRE_EQ(gm_raw_unpublish(&raw, OWN, "later"), GPUMEM_OK);
	gm_raw_close(&raw);
}
END_TEST

/* ---- several users */

struct look {
	uid_t uid;
	uid_t owner;
};

struct seen {
	gpumem_status attach, metadata, expire, unpublish;
	size_t names;
	bool filled;
};

static void look(int channel, void *argument)
{
	const struct look *who = argument;
	struct gm_raw raw;
	struct gm_raw_lease lease;
	struct seen seen = {0};

	GM_REQUIRE(setgroups(0, NULL) == 0);
	GM_REQUIRE(setresgid(who->uid, who->uid, who->uid) == 0);
	GM_REQUIRE(setresuid(who->uid, who->uid, who->uid) == 0);
	gm_raw_join(&raw, &daemon_);
	seen.names = gm_raw_count_names(&raw);
	seen.attach = gm_raw_attach(&raw, who->owner, "llama", &lease);
	if (seen.attach == GPUMEM_OK)
		seen.filled = is_filled(&lease, 7);
	gm_raw_lease_clear(&lease);
	uint8_t *data = NULL;
	size_t size;
	seen.metadata = gm_raw_get_metadata(&raw, who->owner, "llama", 0, &data, &size);
	free(data);
	if (seen.metadata == GPUMEM_OK)
		GM_REQUIRE(metadata_is(&raw, who->owner, "llama", 0, 70000, 7));
	seen.expire = gm_raw_expire(&raw, who->owner, "llama", 3600000);
	seen.unpublish = gm_raw_unpublish(&raw, who->owner, "llama");
	gm_say(channel, &seen, sizeof(seen));
	gm_raw_close(&raw);
}

static struct seen what_sees(uid_t uid, uid_t owner)
{
	struct look who = {uid, owner};
	struct gm_worker worker;
	struct seen seen;
	gm_worker_start(&worker, look, &who);
	gm_hear(worker.channel, &seen, sizeof(seen));
	gm_worker_join(&worker);
	return seen;
}

START_TEST(only_the_audience_sees_a_name)
{
	struct maker maker = {.uid = UID_A, .name = "llama", .byte = 7, .metadata = 70000};

	/* For the domain. */
	GM_REQUIRE_EQ(publish_and_die(&maker), 1);
	struct seen seen = what_sees(UID_B, UID_A);
	GM_REQUIRE_EQ(seen.names, 0);
	GM_REQUIRE_EQ(seen.attach, GPUMEM_E_NOT_FOUND);
	GM_REQUIRE_EQ(seen.metadata, GPUMEM_E_NOT_FOUND);
	GM_REQUIRE_EQ(seen.expire, GPUMEM_E_DENIED);
	GM_REQUIRE_EQ(seen.unpublish, GPUMEM_E_DENIED);
	GM_REQUIRE_EQ(what_sees(UID_B, OWN).attach, GPUMEM_E_NOT_FOUND);

	/* For a uid: not if it was not made for others. */
	maker.replace = true;
	maker.audience = GM__WIRE__AUDIENCE__AUDIENCE_UID;
	maker.id = UID_B;
	GM_REQUIRE_EQ(publish_and_die(&maker), 0);
	maker.for_others = true;
	GM_REQUIRE_EQ(publish_and_die(&maker), 2);
	seen = what_sees(UID_B, UID_A);
	GM_REQUIRE_EQ(seen.names, 1);
	GM_REQUIRE_EQ(seen.attach, GPUMEM_OK);
	GM_REQUIRE(seen.filled);
	GM_REQUIRE_EQ(seen.metadata, GPUMEM_OK);
	GM_REQUIRE_EQ(seen.expire, GPUMEM_E_DENIED);
	GM_REQUIRE_EQ(seen.unpublish, GPUMEM_E_DENIED);
	seen = what_sees(UID_B + 1, UID_A);
	GM_REQUIRE_EQ(seen.names, 0);
	GM_REQUIRE_EQ(seen.attach, GPUMEM_E_NOT_FOUND);
	GM_REQUIRE_EQ(seen.metadata, GPUMEM_E_NOT_FOUND);

	/* Its owner removes it. */
	seen = what_sees(UID_A, OWN);
	GM_REQUIRE_EQ(seen.names, 1);
	GM_REQUIRE_EQ(seen.attach, GPUMEM_E_NOT_FOUND);
	GM_REQUIRE_EQ(seen.expire, GPUMEM_OK);
	GM_REQUIRE_EQ(seen.unpublish, GPUMEM_OK);
	GM_UNTIL(gm_figures_now(&daemon_).leases == 0);
}
END_TEST

/* Says whether the user gets so much memory. */
static void ask(int channel, void *argument)
{
	const struct maker *who = argument;
	struct gm_raw raw;
	struct gm_raw_lease lease;

	GM_REQUIRE(setgroups(0, NULL) == 0);
	GM_REQUIRE(setresgid(who->uid, who->uid, who->uid) == 0);
	GM_REQUIRE(setresuid(who->uid, who->uid, who->uid) == 0);
	gm_raw_join(&raw, &daemon_);
	gpumem_status status = gm_raw_lease(&raw, 0, 3 * GM_CHUNK_MIN, &lease);
	gm_say(channel, &status, sizeof(status));
	gm_raw_lease_clear(&lease);
	gm_raw_close(&raw);
}

START_TEST(the_publisher_pays)
{
	struct maker maker = {.uid = UID_A, .name = "llama", .byte = 7, .metadata = 70000};
	struct gm_worker worker;
	gpumem_status status;

	gm_daemon_configure(
		&daemon_, GM_DAEMON_CONFIG_WITH("", "256M") "[limit uid:54321]\nmax = 10M\n");
	gm_daemon_kill(&daemon_);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	GM_REQUIRE_EQ(publish_and_die(&maker), 1);
	GM_UNTIL(gm_figures_now(&daemon_).clients == 0);

	/* A name has 6 of its 10 MiB, before and after a restart. */
	for (int i = 0; i < 2; i++) {
		gm_worker_start(&worker, ask, &maker);
		gm_hear(worker.channel, &status, sizeof(status));
		GM_REQUIRE_EQ(status, GPUMEM_E_LIMIT);
		gm_worker_join(&worker);
		gm_daemon_kill(&daemon_);
		GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	}
	GM_REQUIRE_EQ(what_sees(UID_A, OWN).unpublish, GPUMEM_OK);
	GM_UNTIL(gm_figures_now(&daemon_).leases == 0);
	gm_worker_start(&worker, ask, &maker);
	gm_hear(worker.channel, &status, sizeof(status));
	GM_REQUIRE_EQ(status, GPUMEM_OK);
	gm_worker_join(&worker);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("names");
	TCase *tc = tcase_create("names");
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, published_memory_outlives_its_maker_and_the_daemon);
	tcase_add_test(tc, a_newer_version_leaves_readers_what_they_have);
	tcase_add_test(tc, a_publisher_that_dies_before_leaves_nothing);
	tcase_add_test(tc, metadata_outlives_its_maker_and_the_daemon);
	tcase_add_test(tc, a_reader_keeps_the_metadata_of_its_version);
	tcase_add_test(tc, a_maker_that_dies_before_it_publishes_leaves_no_metadata);
	tcase_add_test(tc, metadata_that_a_restart_lost_is_asked_for_again);
	tcase_add_test(tc, a_liar_changes_nothing);
	tcase_add_test(tc, a_reader_that_does_not_read_stops_nobody);
	tcase_add_test(tc, a_name_ends_when_its_time_has_come);
	tcase_add_test(tc, the_time_goes_on_while_the_daemon_is_away);
	if (GM_TAP_WITH_USERS(only_the_audience_sees_a_name))
		tcase_add_test(tc, only_the_audience_sees_a_name);
	if (GM_TAP_WITH_USERS(the_publisher_pays))
		tcase_add_test(tc, the_publisher_pays);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
