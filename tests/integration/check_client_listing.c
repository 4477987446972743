/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * What the daemon tells others of the memory of a program: its large buffers, with tag and size.
 */

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "common/types.h"
#include "tests/integration/client_fixture.h"
#include "tests/integration/device.h"
#include "tests/bound.h"
#include "tests/tap.h"

static size_t listed(uint64_t *ret_untracked, char tag[64])
{
	struct gm_raw raw;
	size_t n = 0;
	*ret_untracked = 0;
	gm_raw_observe(&raw, &daemon_);
	Gm__Wire__GetBuffers get = GM__WIRE__GET_BUFFERS__INIT;
	GM_REQUIRE_EQ(gm_raw_call(&raw, GM_RAW_PACKET(GET_BUFFERS, get_buffers, &get)), GPUMEM_OK);
	for (;;) {
		n += raw.packet->buffers->n_buffers;
		*ret_untracked += raw.packet->buffers->untracked;
		if (raw.packet->buffers->n_buffers > 0)
			snprintf(tag, 64, "%s", raw.packet->buffers->buffers[0]->tag);
		if (!raw.packet->more)
			break;
		GM_REQUIRE(gm_raw_receive(&raw));
	}
	gm_raw_close(&raw);
	return n;
}

/* Has what is alive now listed: the library's thread would do so in its own time. */
static void publish(gpumem_session *s)
{
	gpumem_stats_t stats = GPUMEM_STATS_INIT;
	OK(gpumem_stats(s, 0, &stats));
}

START_TEST(large_buffers_are_listed_with_tag_and_size)
{
	void *p, *q;
	char tag[64] = "";
	uint64_t untracked;
	gpumem_alloc_options options = GPUMEM_ALLOC_OPTIONS_INIT;
	options.tag = "leaked?";
	OK(gpumem_alloc(session, 0, GM_TRACK_LARGE_BYTES, NULL, &options, &p));
	OK(gpumem_alloc(session, 0, GM_TRACK_LARGE_BYTES - 1, NULL, NULL,
		&q)); /* too small to be tracked */
	publish(session);
	GM_REQUIRE_EQ(listed(&untracked, tag), 1);
	GM_REQUIRE(strcmp(tag, "leaked?") == 0);
	OK(gpumem_free(session, p, NULL));
	GM_REQUIRE_EQ(listed(&untracked, tag), 0);
	/* Nobody need ask: it is so after a while. */
	OK(gpumem_alloc(session, 0, GM_TRACK_LARGE_BYTES, NULL, &options, &p));
	GM_UNTIL(listed(&untracked, tag) == 1);
	OK(gpumem_free(session, p, NULL));
	GM_REQUIRE_EQ(listed(&untracked, tag), 0);
	OK(gpumem_free(session, q, NULL));
}
END_TEST

START_TEST(buffers_past_the_table_are_counted_and_not_listed)
{
	GM_BOUND_TEST(TRACKED_BUFFERS);
	enum { N = GM_BOUND_TRACKED_BUFFERS + 1 };
	static void *p[N];
	gpumem_session *s;
	gm_daemon_reload(&daemon_, GM_DAEMON_CONFIG_WITH("track = all\n", "1G"));
	s = join("tracked");
	char tag[64];
	uint64_t untracked = 0;
	for (int i = 0; i < N; i++)
		OK(gpumem_alloc(s, 0, 512, NULL, NULL, &p[i]));
	publish(s);
	GM_REQUIRE_EQ(listed(&untracked, tag), GM_BOUND_TRACKED_BUFFERS);
	GM_REQUIRE_EQ(untracked, 1);
	/* Free one that was not listed or one that was: all that are alive are told. */
	OK(gpumem_free(s, p[0], GPUMEM_STREAM_DONE));
	publish(s);
	GM_REQUIRE_EQ(listed(&untracked, tag), GM_BOUND_TRACKED_BUFFERS);
	GM_REQUIRE_EQ(untracked, 0);
	for (int i = 1; i < N; i++)
		OK(gpumem_free(s, p[i], GPUMEM_STREAM_DONE));
	publish(s);
	GM_REQUIRE_EQ(listed(&untracked, tag), 0);
	GM_REQUIRE_EQ(untracked, 0);
	gpumem_disconnect(s);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client listing");
	TCase *tc = tcase_create("client listing");
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_set_timeout(tc, 180);
	tcase_add_test(tc, large_buffers_are_listed_with_tag_and_size);
	tcase_add_test(tc, buffers_past_the_table_are_counted_and_not_listed);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
