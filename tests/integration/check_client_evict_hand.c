/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/* Evictable buffers that people move with gpumemctl: what moves, what is refused, and what gpumemctl says. */

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gpumem/gpumem_region.h"
#include "tests/integration/evict_fixture.h"
#include "tests/tap.h"

/* The names of the evictable buffers, in order of their sizes. */
static void buffer_names(char names[2][64])
{
	char said[512];
	ctl_ok("buffers --csv --no-header --sort bytes --columns buffer,bytes", said);
	GM_REQUIRE_EQ(sscanf(said, "%63[^,],%*s\n%63[^,],", names[0], names[1]), 2);
}

START_TEST(gpumemctl_evicts_and_restores_what_it_is_told)
{
	gpumem_buffer *small = filled(2 * MIB, 1), *large = filled(8 * MIB, 2);
	char names[2][64], line[128], said[512];
	buffer_names(names);

	snprintf(line, sizeof(line), "evict %s", names[0]);
	ctl_ok(line, said);
	GM_REQUIRE(strstr(said, "Moved 1 buffer (2.0M) to host memory"));
	GM_REQUIRE_EQ(gpumem_buffer_location(small), GPUMEM_LOCATION_HOST);
	GM_REQUIRE_EQ(gpumem_buffer_location(large), GPUMEM_LOCATION_DEVICE);
	/* The client returns the device memory after the buffer has moved. Until then, it is listed as slack. */
	GM_UNTIL(leased_on(0) == 8 * MIB);
	ctl_ok("buffers --csv --no-header --sort bytes --columns location", said);
	GM_REQUIRE(strncmp(said, "host\ndevice\n", 12) == 0);
	GM_REQUIRE(ctl(line, said) != 0);
	GM_REQUIRE(strstr(said, "in host memory already"));

	snprintf(line, sizeof(line), "restore %s", names[0]);
	ctl_ok(line, said);
	GM_REQUIRE_EQ(gpumem_buffer_location(small), GPUMEM_LOCATION_DEVICE);

	/* A pinned one is refused by the name of its client, and stays when all are meant. */
	pin(small);
	snprintf(line, sizeof(line), "evict %s", names[0]);
	GM_REQUIRE(ctl(line, said) != 0);
	GM_REQUIRE(strstr(said, "the test") && strstr(said, "pinned"));
	snprintf(line, sizeof(line), "evict %d", (int)getpid());
	ctl_ok(line, said);
	GM_REQUIRE(strstr(said, "Moved 1 buffer (8.0M)"));
	GM_REQUIRE_EQ(gpumem_buffer_location(small), GPUMEM_LOCATION_DEVICE);
	GM_REQUIRE_EQ(gpumem_buffer_location(large), GPUMEM_LOCATION_HOST);
	require(small, 1);
	unpin(small);
	snprintf(line, sizeof(line), "restore %d", (int)getpid());
	ctl_ok(line, said);
	pin(large);
	require(large, 2);
	gpumem_buffer_destroy(small);
	gpumem_buffer_destroy(large);
}
END_TEST

/* As ctl.sh looks at the other verbs, which may be repeated. These two change something each time. */
START_TEST(what_gpumemctl_moved_is_said_to_people_and_to_programs)
{
	static const struct {
		const char *options, *says;
	} ways[] = {
		{"", "Moved 2 buffers (10.0M) to "},
		{"--bytes", "Moved 2 buffers (10485760) to "},
		{"--json", "\"left\": 0"},
		{"--csv", "buffers,bytes,left\n2,10485760,0\n"},
		{"--csv --no-header", "2,10485760,0\n"},
	};
	gpumem_buffer *small = filled(2 * MIB, 1), *large = filled(8 * MIB, 2);
	char line[128], said[512];

	for (size_t i = 0; i < 2 * (sizeof(ways) / sizeof(ways[0])); i++) {
		const char *says = ways[i / 2].says;
		snprintf(line, sizeof(line), "%s %d %s", i % 2 ? "restore" : "evict", (int)getpid(),
			ways[i / 2].options);
		if (ctl(line, said) != 0 || !strstr(said, says) || strchr(said, '\033') ||
			strcspn(said, "\n") > 80)
			GM_FAIL("%s: %s", line, said);
	}
	gpumem_buffer_destroy(small);
	gpumem_buffer_destroy(large);
}
END_TEST

START_TEST(a_pid_means_all_sessions_of_the_process)
{
	static const gpumem_location device = GPUMEM_LOCATION_DEVICE, host = GPUMEM_LOCATION_HOST;
	gpumem_session *other = join("another");
	char line[128], said[512], names[2][64];
	gpumem_buffer *first = filled(2 * MIB, 1), *second = create_in(other, 4 * MIB);
	buffer_names(names);

	snprintf(line, sizeof(line), "evict %d", (int)getpid());
	ctl_ok(line, said);
	GM_REQUIRE(strstr(said, "Moved 2 buffers (6.0M) to host memory"));
	GM_REQUIRE_EQ(gpumem_buffer_location(first), host);
	GM_REQUIRE_EQ(gpumem_buffer_location(second), host);
	snprintf(line, sizeof(line), "restore %d", (int)getpid());
	ctl_ok(line, said);
	GM_REQUIRE(strstr(said, "Moved 2 buffers (6.0M) to the device"));
	GM_REQUIRE_EQ(gpumem_buffer_location(first), device);
	GM_REQUIRE_EQ(gpumem_buffer_location(second), device);

	/* The number of a session means that one. */
	snprintf(line, sizeof(line), "evict %.*s", (int)strcspn(names[1], "/"), names[1]);
	ctl_ok(line, said);
	GM_REQUIRE(strstr(said, "Moved 1 buffer (4.0M) to host memory"));
	GM_REQUIRE_EQ(gpumem_buffer_location(first), device);
	GM_REQUIRE_EQ(gpumem_buffer_location(second), host);

	/* What is left to move is enough, whichever session has it. */
	snprintf(line, sizeof(line), "evict %d", (int)getpid());
	ctl_ok(line, said);
	GM_REQUIRE(strstr(said, "Moved 1 buffer (2.0M) to host memory"));
	GM_REQUIRE(ctl(line, said) != 0);
	GM_REQUIRE(strstr(said, "all 2 evictable buffers of client "));
	GM_REQUIRE(strstr(said, " are in host memory already"));

	gpumem_buffer_destroy(first);
	gpumem_buffer_destroy(second);
	gpumem_disconnect(other);
}
END_TEST

/* A buffer that the daemon did not publish moves like any other. */
START_TEST(a_buffer_whose_name_was_refused_can_be_evicted)
{
	gpumem_buffer *taken = NULL, *buffer = filled(4 * MIB, 6);
	char line[64], said[512];
	OK(gpumem_buffer_create(session, 0, MIB, NULL, &taken));
	OK(gpumem_publish(taken, "taken", NULL, NULL, NULL));
	pin(buffer);
	GM_REQUIRE(gpumem_publish(buffer, "taken", NULL, NULL, NULL) != GPUMEM_OK);
	unpin(buffer);
	snprintf(line, sizeof(line), "evict %d", (int)getpid());
	ctl_ok(line, said);
	GM_REQUIRE_EQ(gpumem_buffer_location(buffer), GPUMEM_LOCATION_HOST);
	gpumem_buffer_destroy(buffer);
	OK(gpumem_unpublish(session, "taken"));
	gpumem_buffer_destroy(taken);
}
END_TEST

START_TEST(gpumemctl_says_what_it_cannot_move)
{
	gpumem_buffer *plain = NULL;
	char line[128], said[512];
	OK(gpumem_buffer_create(session, 0, 2 * MIB, NULL, &plain));
	snprintf(line, sizeof(line), "evict %d", (int)getpid());
	GM_REQUIRE(ctl(line, said) != 0);
	GM_REQUIRE(strstr(said, "no evictable buffer"));
	GM_REQUIRE(!strstr(said, "paused"));
	/* A paused region is the program's to resume. */
	gpumem_region *region = NULL;
	OK(gpumem_region_create(session, 0, "weights", 64 * MIB, NULL, &region));
	void *ptr;
	OK(gpumem_region_alloc(region, 2 * MIB, NULL, NULL, &ptr));
	OK(gpumem_region_pause(session, "weights", GPUMEM_REGION_DROP));
	snprintf(line, sizeof(line), "restore %d", (int)getpid());
	GM_REQUIRE(ctl(line, said) != 0);
	GM_REQUIRE(strstr(said, "; only the program itself can resume its paused region"));
	gpumem_region_destroy(region);
	GM_REQUIRE_EQ(ctl("evict", said), 2);
	GM_REQUIRE_EQ(ctl("evict x/1", said), 2);
	GM_REQUIRE_EQ(ctl("evict x", said), 1);
	GM_REQUIRE(strstr(said, "there is no client 'x'"));
	GM_REQUIRE_EQ(ctl("restore 1/0", said), 2);
	GM_REQUIRE(ctl("evict 1/1", said) != 0);
	GM_REQUIRE(strstr(said, "no such client"));
	GM_REQUIRE(strstr(said, "see gpumemctl clients"));
	gpumem_buffer_destroy(plain);
}
END_TEST

/* Joins as a client that has evictable buffers by its own word: the first on its device, the second, if wanted, in host memory. */
static void join_by_word(struct gm_raw *raw, bool second)
{
	struct gm_raw_lease lease;
	gm_raw_join(raw, &daemon_);
	struct gm_page_client *page =
		mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, raw->client_page, 0);
	GM_REQUIRE(page != MAP_FAILED);

	for (uint32_t i = 0; i <= second; i++) {
		GM_REQUIRE_EQ(gm_raw_lease(raw, i, 2 * MIB, &lease), GPUMEM_OK);
		gm_raw_lease_clear(&lease);
		struct gm_page_row *row = &page->rows[i];
		gm_page_write_begin(&row->seq);
		row->bytes = 2 * MIB;
		row->born_ns = gm_monotonic_ns();
		row->place = GM_PAGE_PLACE_EVICTABLE | (i ? GM_PAGE_PLACE_HOST : 0);
		gm_page_write_end(&row->seq);
	}
	munmap(page, sizeof(*page));
}

static void hear_evict(struct gm_raw *raw)
{
	do
		GM_REQUIRE(gm_raw_receive_event(raw));
	while (raw->event.kind != GM_PAGE_EVENT_EVICT);
}

static void die_when_asked(int channel, void *argument)
{
	struct gm_raw raw;
	join_by_word(&raw, false);
	gm_text_say_word(channel, 'h');
	hear_evict(&raw);
	_exit(0);
}

static gpumem_status ask(struct gm_raw *asker, uint64_t client, uint32_t row, bool restore)
{
	Gm__Wire__Evict body = GM__WIRE__EVICT__INIT;
	body.session = client;
	body.row = row;
	body.restore = restore;
	return gm_raw_call(asker, GM_RAW_PACKET(EVICT, evict, &body));
}

START_TEST(what_is_said_later_about_the_same_buffers_counts)
{
	struct gm_raw asker, client;
	join_by_word(&client, true);
	gm_raw_observe(&asker, &daemon_);
	GM_REQUIRE_EQ(ask(&asker, client.session, 0, false), GPUMEM_OK);
	GM_REQUIRE_EQ(ask(&asker, client.session, 0, true), GPUMEM_OK);
	GM_REQUIRE_EQ(ask(&asker, client.session, 1, false), GPUMEM_E_BUSY);
	hear_evict(&client);
	while (!client.event.restore)
		hear_evict(&client);
	GM_REQUIRE_EQ(client.event.row, 0);
	gm_raw_close(&asker);
	gm_raw_close(&client);
}
END_TEST

START_TEST(a_client_that_dies_when_it_is_asked_has_moved_nothing)
{
	struct gm_worker worker;
	char line[64], said[512];
	start_worker(&worker, die_when_asked);
	gm_hear_word(worker.channel, 'h');
	snprintf(line, sizeof(line), "evict %d", (int)worker.pid);
	GM_REQUIRE_EQ(ctl(line, said), 1);
	GM_REQUIRE(strstr(said, "has ended meanwhile"));
	gm_worker_join(&worker);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client evict by hand");
	TCase *tc = tcase_create("by hand");
	tcase_set_timeout(tc, 0);
	tcase_add_checked_fixture(tc, set_up_small, tear_down);
	tcase_add_test(tc, gpumemctl_evicts_and_restores_what_it_is_told);
	tcase_add_test(tc, what_gpumemctl_moved_is_said_to_people_and_to_programs);
	tcase_add_test(tc, a_pid_means_all_sessions_of_the_process);
	tcase_add_test(tc, a_buffer_whose_name_was_refused_can_be_evicted);
	tcase_add_test(tc, gpumemctl_says_what_it_cannot_move);
	tcase_add_test(tc, what_is_said_later_about_the_same_buffers_counts);
	tcase_add_test(tc, a_client_that_dies_when_it_is_asked_has_moved_nothing);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
