/* SPDX-License-Identifier: Apache-2.0 */
/* What a name has besides its memory: metadata, which whoever may attach reads without mapping anything,
 * and a time at which it ends. */
#include <dirent.h>
#include <stdio.h>

#include "tests/integration/names_fixture.h"

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
	const size_t sizes[] = {0, 1, GM_METADATA_PIECE, 300000, GM_BOUND_METADATA_BYTES};
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
	gm_text_say(channel, &word, 1);
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
			      &raw, lease.id, GM_BOUND_METADATA_BYTES + UINT64_C(1), 0, piece, 8),
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
		.name = "llama", .byte = 8, .metadata = GM_BOUND_METADATA_BYTES, .replace = true};
	struct gm_raw deaf, reader;
	Gm__Wire__GetMetadata get = GM__WIRE__GET_METADATA__INIT;

	GM_REQUIRE_EQ(publish_and_die(&maker), 1);
	gm_raw_join(&deaf, &daemon_);
	get.name = (char *)"llama";
	for (int i = 0; i < 32; i++)
		gm_raw_send(&deaf, GM_RAW_PACKET(GET_METADATA, get_metadata, &get));
	gm_raw_join(&reader, &daemon_);
	GM_REQUIRE(metadata_is(&reader, OWN, "llama", 0, GM_BOUND_METADATA_BYTES, 8));
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

int main(void)
{
	Suite *suite = suite_create("names metadata");
	TCase *tc = tcase_create("names metadata");
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, metadata_outlives_its_maker_and_the_daemon);
	tcase_add_test(tc, a_reader_keeps_the_metadata_of_its_version);
	tcase_add_test(tc, a_maker_that_dies_before_it_publishes_leaves_no_metadata);
	tcase_add_test(tc, metadata_that_a_restart_lost_is_asked_for_again);
	tcase_add_test(tc, a_liar_changes_nothing);
	tcase_add_test(tc, a_reader_that_does_not_read_stops_nobody);
	tcase_add_test(tc, a_name_ends_when_its_time_has_come);
	tcase_add_test(tc, the_time_goes_on_while_the_daemon_is_away);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
