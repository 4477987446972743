/* SPDX-License-Identifier: Apache-2.0 */
/* Requests whose answer the client did not see, because the daemon was killed. The client sends them again with the
 * same ids, and nothing is granted, taken or undone by that. */
#include <string.h>

#include "tests/integration/raw.h"
#include "tests/tap.h"

static void restart(struct gm_daemon *daemon)
{
	gm_daemon_kill(daemon);
	GM_REQUIRE_EQ(gm_daemon_spawn(daemon), -1);
}

/* ---- shares */

static gpumem_status return_view(struct gm_raw *raw, uint64_t lease, uint64_t view)
{
	Gm__Wire__Return body = GM__WIRE__RETURN__INIT;
	body.lease = lease;
	body.view = view;
	return gm_raw_call(raw, GM_RAW_PACKET(RETURN_CHUNKS, return_chunks, &body));
}

#define OPENS 3

START_TEST(every_open_and_return_may_be_repeated_after_a_kill)
{
	struct gm_daemon daemon;
	struct gm_raw maker, opener;
	struct gm_raw_lease lease, opened;
	uint8_t token[GM_TOKEN_BYTES];

	gm_daemon_start(&daemon, NULL);
	gm_raw_join(&maker, &daemon);
	gm_raw_join(&opener, &daemon);
	GM_REQUIRE_EQ(gm_raw_lease(&maker, 0, GM_CHUNK_MIN, &lease), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_raw_share(&maker, lease.id, GM__WIRE__AUDIENCE__AUDIENCE_DOMAIN, 0, false,
			      token),
		GPUMEM_OK);

	/* Three opens whose answers the client does not see. */
	uint64_t first = opener.next_id;
	for (int round = 0; round < 2; round++) {
		opener.next_id = first;
		for (int i = 0; i < OPENS; i++) {
			GM_REQUIRE_EQ(gm_raw_open(&opener, token, &opened), GPUMEM_OK);
			GM_REQUIRE_EQ(opened.id, lease.id);
			gm_raw_lease_clear(&opened);
		}
		restart(&daemon);
		gm_raw_come_back(&opener, &daemon);
	}

	/* A return whose answer was lost is repeated, and takes no other view with it. */
	opener.next_id = first + OPENS;
	GM_REQUIRE_EQ(return_view(&opener, lease.id, first), GPUMEM_OK);
	restart(&daemon);
	gm_raw_come_back(&opener, &daemon);
	opener.next_id = first + OPENS + 1;
	GM_REQUIRE_EQ(return_view(&opener, lease.id, first), GPUMEM_E_NOT_FOUND);
	for (int i = 1; i < OPENS; i++)
		GM_REQUIRE_EQ(return_view(&opener, lease.id, first + (uint64_t)i), GPUMEM_OK);
	GM_REQUIRE_EQ(return_view(&opener, lease.id, first + 1), GPUMEM_E_NOT_FOUND);

	gm_raw_come_back(&maker, &daemon);
	GM_REQUIRE_EQ(gm_raw_give_back(&maker, &lease), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_figures_now(&daemon).leases, 0);
	GM_REQUIRE_EQ(gm_figures_now(&daemon).leased, 0);
	gm_raw_close(&maker);
	gm_raw_close(&opener);
	gm_daemon_stop(&daemon);
}
END_TEST

START_TEST(a_share_that_is_repeated_after_a_kill_replaces_the_token_that_nobody_knows)
{
	struct gm_daemon daemon;
	struct gm_raw maker, opener;
	struct gm_raw_lease lease, opened;
	uint8_t lost[GM_TOKEN_BYTES], token[GM_TOKEN_BYTES];
	const Gm__Wire__Audience domain = GM__WIRE__AUDIENCE__AUDIENCE_DOMAIN;

	gm_daemon_start(&daemon, NULL);
	gm_raw_join(&maker, &daemon);
	GM_REQUIRE_EQ(gm_raw_lease(&maker, 0, GM_CHUNK_MIN, &lease), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_raw_share(&maker, lease.id, domain, 0, false, token), GPUMEM_OK);

	/* The client does not see this token. It can repeat the request as often as it must. */
	uint64_t id = maker.next_id;
	GM_REQUIRE_EQ(gm_raw_share(&maker, lease.id, domain, 0, false, lost), GPUMEM_OK);
	restart(&daemon);
	gm_raw_come_back(&maker, &daemon);
	gm_raw_join(&opener, &daemon);
	uint64_t records = gm_figures_now(&daemon).records;
	for (int i = 0; i < GM_BOUND_SHARES_PER_CLIENT; i++) {
		uint8_t before[GM_TOKEN_BYTES];
		memcpy(before, lost, sizeof(lost));
		maker.next_id = id;
		GM_REQUIRE_EQ(gm_raw_share(&maker, lease.id, domain, 0, false, lost), GPUMEM_OK);
		if (i < 3)
			GM_REQUIRE_EQ(gm_raw_open(&opener, before, &opened), GPUMEM_E_NOT_FOUND);
	}
	GM_REQUIRE_EQ(gm_figures_now(&daemon).records, records);

	/* Other tokens are not touched, and another request makes another one. */
	GM_REQUIRE_EQ(gm_raw_open(&opener, token, &opened), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_raw_give_back(&opener, &opened), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_raw_share(&maker, lease.id, domain, 0, false, token), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_raw_open(&opener, lost, &opened), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_raw_give_back(&opener, &opened), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_raw_give_back(&maker, &lease), GPUMEM_OK);
	gm_raw_close(&maker);
	gm_raw_close(&opener);
	gm_daemon_stop(&daemon);
}
END_TEST

/* ---- names */

static uint64_t publish(struct gm_raw *raw, uint64_t lease, bool until_unread)
{
	Gm__Wire__Publish what = GM__WIRE__PUBLISH__INIT;
	uint64_t version = 0;
	what.lease = lease;
	what.name = (char *)"llama";
	what.replace = true;
	what.until_unread = until_unread;
	GM_REQUIRE_EQ(gm_raw_publish(raw, &what, &version), GPUMEM_OK);
	return version;
}

/* The name was replaced, or its last reader has left, before the publisher is back. */
START_TEST(a_publish_that_is_repeated_after_a_kill_undoes_nothing)
{
	struct gm_daemon daemon;
	struct gm_raw maker, other;
	struct gm_raw_lease first, second, seen;

	gm_daemon_start(&daemon, NULL);
	gm_raw_join(&maker, &daemon);
	GM_REQUIRE_EQ(gm_raw_lease(&maker, 0, GM_CHUNK_MIN, &first), GPUMEM_OK);
	uint64_t id = maker.next_id;
	GM_REQUIRE_EQ(publish(&maker, first.id, _i), 1);
	restart(&daemon);

	gm_raw_join(&other, &daemon);
	if (_i) {
		GM_REQUIRE_EQ(gm_raw_attach(&other, (uid_t)-1, "llama", &second), GPUMEM_OK);
	} else {
		GM_REQUIRE_EQ(gm_raw_lease(&other, 0, GM_CHUNK_MIN, &second), GPUMEM_OK);
		GM_REQUIRE_EQ(publish(&other, second.id, false), 2);
	}
	GM_REQUIRE_EQ(gm_raw_give_back(&other, &second), GPUMEM_OK);

	gm_raw_come_back(&maker, &daemon);
	for (int i = 0; i < 2; i++) {
		maker.next_id = id;
		GM_REQUIRE_EQ(publish(&maker, first.id, _i), 1);
	}
	GM_REQUIRE_EQ(gm_raw_attach(&other, (uid_t)-1, "llama", &seen),
		_i ? GPUMEM_E_NOT_FOUND : GPUMEM_OK);
	if (!_i) {
		GM_REQUIRE_EQ(other.packet->lease_reply->version, 2);
		GM_REQUIRE(seen.id != first.id);
		GM_REQUIRE_EQ(gm_raw_give_back(&other, &seen), GPUMEM_OK);
	}

	/* Another request is another one. */
	GM_REQUIRE_EQ(publish(&maker, first.id, false), _i ? 1 : 3);
	GM_REQUIRE_EQ(gm_raw_unpublish(&maker, (uid_t)-1, "llama"), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_raw_give_back(&maker, &first), GPUMEM_OK);
	GM_UNTIL(gm_figures_now(&daemon).leases == 0);
	gm_raw_close(&maker);
	gm_raw_close(&other);
	gm_daemon_stop(&daemon);
}
END_TEST

START_TEST(an_attach_that_is_repeated_after_a_kill_brings_the_version_that_it_had)
{
	struct gm_daemon daemon;
	struct gm_raw maker, reader;
	struct gm_raw_lease first, second, seen;

	gm_daemon_start(&daemon, NULL);
	gm_raw_join(&maker, &daemon);
	gm_raw_join(&reader, &daemon);
	GM_REQUIRE_EQ(gm_raw_lease(&maker, 0, GM_CHUNK_MIN, &first), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_raw_lease(&maker, 0, GM_CHUNK_MIN, &second), GPUMEM_OK);
	GM_REQUIRE_EQ(publish(&maker, first.id, false), 1);

	/* The reader does not see this answer, and the name means another lease when it is back. */
	uint64_t id = reader.next_id;
	GM_REQUIRE_EQ(gm_raw_attach(&reader, (uid_t)-1, "llama", &seen), GPUMEM_OK);
	gm_raw_lease_clear(&seen);
	GM_REQUIRE_EQ(publish(&maker, second.id, false), 2);
	restart(&daemon);
	gm_raw_come_back(&reader, &daemon);
	reader.next_id = id;
	GM_REQUIRE_EQ(gm_raw_attach(&reader, (uid_t)-1, "llama", &seen), GPUMEM_OK);
	GM_REQUIRE_EQ(seen.id, first.id);
	GM_REQUIRE_EQ(reader.packet->lease_reply->version, 1);

	GM_REQUIRE_EQ(gm_raw_give_back(&reader, &seen), GPUMEM_OK);
	gm_raw_come_back(&maker, &daemon);
	GM_REQUIRE_EQ(gm_raw_unpublish(&maker, (uid_t)-1, "llama"), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_raw_give_back(&maker, &first), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_raw_give_back(&maker, &second), GPUMEM_OK);
	GM_UNTIL(gm_figures_now(&daemon).leases == 0);
	gm_raw_close(&maker);
	gm_raw_close(&reader);
	gm_daemon_stop(&daemon);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("repeats");
	TCase *tc = tcase_create("repeats");
	tcase_set_timeout(tc, 120); /* daemons start and end many times */
	tcase_add_test(tc, every_open_and_return_may_be_repeated_after_a_kill);
	tcase_add_test(
		tc, a_share_that_is_repeated_after_a_kill_replaces_the_token_that_nobody_knows);
	tcase_add_loop_test(tc, a_publish_that_is_repeated_after_a_kill_undoes_nothing, 0, 2);
	tcase_add_test(tc, an_attach_that_is_repeated_after_a_kill_brings_the_version_that_it_had);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
