/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * The tables of gpumemctl add up. Real workers make blocks and buffers of all kinds. Then, for each
 * client and device, the rows of gpumemctl buffers sum up to what gpumemctl clients shows as held.
 */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/integration/client_fixture.h"
#include "tests/tap.h"

#define MOST 64

/* What one client has on one device. */
struct sum {
	uint64_t session, device, bytes;
};
struct sums {
	struct sum list[MOST];
	size_t n;
};

static void sums_add(struct sums *sums, uint64_t session_id, uint64_t device, uint64_t bytes)
{
	for (size_t i = 0; i < sums->n; i++)
		if (sums->list[i].session == session_id && sums->list[i].device == device) {
			sums->list[i].bytes += bytes;
			return;
		}
	GM_REQUIRE(sums->n < MOST);
	sums->list[sums->n++] = (struct sum){session_id, device, bytes};
}

static FILE *ctl_run(const char *arguments)
{
	char command[1024];
	const char *build = getenv("top_builddir");

	snprintf(command, sizeof(command), "%s/ctl/gpumemctl --socket %s --csv --no-header %s",
		build ? build : ".", daemon_.socket, arguments);
	FILE *out = popen(command, "re");
	GM_REQUIRE(out != NULL);
	return out;
}

/* How many lines begin like this. */
static size_t ctl_count(const char *arguments, const char *start)
{
	size_t n = 0;
	char line[256];
	FILE *out = ctl_run(arguments);

	while (fgets(line, sizeof(line), out))
		n += strncmp(line, start, strlen(start)) == 0;
	GM_REQUIRE_EQ(pclose(out), 0);
	return n;
}

/* Runs gpumemctl and adds up lines of "session,device,bytes". */
static struct sums ctl_sums(const char *arguments)
{
	struct sums sums = {.n = 0};
	char line[256];
	FILE *out = ctl_run(arguments);

	while (fgets(line, sizeof(line), out)) {
		uint64_t id, device, bytes;
		/* A client that holds nothing is on no device. */
		if (sscanf(line, "%" SCNu64 ",%" SCNu64 ",%" SCNu64, &id, &device, &bytes) == 3)
			sums_add(&sums, id, device, bytes);
	}
	GM_REQUIRE_EQ(pclose(out), 0);
	return sums;
}

/* Whether both tables say the same. They are read one after the other, so ask again if not. */
static bool tables_agree(size_t expected)
{
	struct sums held = ctl_sums("clients --columns session,device,held");
	struct sums rows = ctl_sums("buffers --columns session,device,bytes");

	if (held.n != expected || rows.n != expected)
		return false;
	for (size_t i = 0; i < held.n; i++) {
		bool found = false;
		for (size_t j = 0; j < rows.n; j++)
			found = found || (held.list[i].session == rows.list[j].session &&
						 held.list[i].device == rows.list[j].device &&
						 held.list[i].bytes == rows.list[j].bytes);
		if (!found)
			return false;
	}
	return true;
}

static void pinned_set_up(void)
{
	gm_daemon_start(&daemon_,
		&(struct gm_daemon_options){
			.config = "[gpumemd]\nfraction = 1.0\nmin_free = 0\nreserve = 0\n"
				  "host_limit = 256M\ntrack = large\n[device 0]\nsize = 1G\n"});
	session = join("the maker");
}

struct made {
	void *small[100], *large, *pinned, *cached;
	gpumem_buffer *buffer;
};

/* Blocks below and above what is tracked, with sizes that leave a rest, and a freed one. */
static void make_all(gpumem_session *s, struct made *made)
{
	gpumem_stats_t stats = GPUMEM_STATS_INIT;

	for (size_t i = 0; i < 100; i++)
		OK(gpumem_alloc(s, 0, 1000 + 777 * i, NULL, NULL, &made->small[i]));
	OK(gpumem_alloc(s, 0, 5 * MIB + 4097, NULL, NULL, &made->large));
	OK(gpumem_alloc(s, 0, 7 * MIB, NULL, NULL, &made->cached));
	OK(gpumem_free(s, made->cached, GPUMEM_STREAM_DONE));
	OK(gpumem_host_alloc(s, 3 * MIB + 1, NULL, &made->pinned));
	OK(gpumem_buffer_create(s, 0, 9 * MIB + 13, NULL, &made->buffer));
	OK(gpumem_stats(s, 0, &stats));
	OK(gpumem_stats(s, GPUMEM_DEVICE_HOST, &stats));
}

static void free_all(gpumem_session *s, struct made *made)
{
	for (size_t i = 0; i < 100; i++)
		OK(gpumem_free(s, made->small[i], GPUMEM_STREAM_DONE));
	OK(gpumem_free(s, made->large, GPUMEM_STREAM_DONE));
	OK(gpumem_host_free(s, made->pinned));
	gpumem_buffer_destroy(made->buffer);
}

/* Opens the shared buffer, which somebody else pays for, and makes memory of its own. */
static void opener(int channel, void *argument)
{
	gpumem_session *s = join("the opener");
	struct made made;
	gpumem_buffer *opened;
	gpumem_token token;

	gm_hear(channel, &token, sizeof(token));
	OK(gpumem_open(s, &token, &opened));
	make_all(s, &made);
	gm_text_say_word(channel, 'm');

	gm_hear_word(channel, 'e');
	gpumem_buffer_destroy(opened);
	free_all(s, &made);
	gpumem_disconnect(s);
}

START_TEST(the_rows_of_buffers_sum_up_to_what_each_client_holds)
{
	struct gm_worker worker;
	struct made made;
	gpumem_token token;

	/* CUDA does not work after a fork, so the other process comes first. */
	start_worker(&worker, opener);
	make_all(session, &made);
	OK(gpumem_share(made.buffer, NULL, &token));
	gm_text_say(worker.channel, &token, sizeof(token));
	gm_hear_word(worker.channel, 'm');

	/* Two clients, each with memory on the device and in pinned memory. */
	GM_UNTIL(tables_agree(4));

	gm_text_say_word(worker.channel, 'e');
	gm_worker_join(&worker);
	free_all(session, &made);
}
END_TEST

/* Makes a buffer, shares it, and leaves when told. */
static void maker(int channel, void *argument)
{
	gpumem_session *s = join("who leaves");
	gpumem_buffer *buffer;
	gpumem_token token;

	OK(gpumem_buffer_create(s, 0, 64 * MIB, NULL, &buffer));
	OK(gpumem_share(buffer, NULL, &token));
	gm_text_say(channel, &token, sizeof(token));
	gm_hear_word(channel, 'e');
	_exit(0);
}

/* Without a client, the buffer is neither small nor anybody's cache. */
START_TEST(a_buffer_whose_maker_left_has_a_row_of_its_own)
{
	struct gm_worker worker;
	gpumem_buffer *opened;
	gpumem_token token;

	start_worker(&worker, maker);
	gm_hear(worker.channel, &token, sizeof(token));
	OK(gpumem_open(session, &token, &opened));
	gm_text_say_word(worker.channel, 'e');
	gm_worker_join(&worker);

	GM_UNTIL(tables_agree(1));
	GM_REQUIRE_EQ(ctl_count("buffers --columns kind,bytes", "left,67108864"), 1);

	gpumem_buffer_destroy(opened);
}
END_TEST

/* The sums stay right while a buffer grows, and the table shows how it does. */
START_TEST(a_buffer_that_grows_is_listed_with_its_policy_and_its_use)
{
	static const char columns[] = "buffers --columns kind,tag,bytes,used_bytes,max_bytes,"
				      "growth_factor,growth_step,growth_ceiling";
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	gpumem_buffer_policy policy = {sizeof(policy), 1.5, 4 * MIB, 48 * MIB};
	gpumem_buffer *buffer, *plain;

	options.tag = "kv";
	options.max_size = 64 * MIB;
	OK(gpumem_buffer_create(session, 0, 2 * MIB, &options, &buffer));
	options.tag = "plain";
	options.max_size = 0;
	OK(gpumem_buffer_create(session, 0, 2 * MIB, &options, &plain));
	GM_REQUIRE_EQ(ctl_count(columns, "buffer,kv,2097152,,67108864,,,\n"), 1);

	OK(gpumem_buffer_set_policy(buffer, &policy));
	OK(gpumem_buffer_resize(buffer, 9 * MIB, NULL, NULL));
	OK(gpumem_buffer_report_use(buffer, 5 * MIB));
	GM_REQUIRE_EQ(ctl_count(columns,
			      "buffer,kv,9437184,5242880,67108864,1.500000,4194304,50331648\n"),
		1);
	GM_REQUIRE_EQ(ctl_count(columns, "buffer,plain,2097152,,,,,\n"), 1);
	GM_UNTIL(tables_agree(1));
	OK(gpumem_buffer_resize(buffer, 3 * MIB, NULL, NULL));
	GM_UNTIL(tables_agree(1));
	gpumem_buffer_destroy(buffer);
	gpumem_buffer_destroy(plain);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ctl sums");
	TCase *tc = tcase_create("ctl sums");

	tcase_add_checked_fixture(tc, pinned_set_up, tear_down);
	tcase_set_timeout(tc, 180);
	tcase_add_test(tc, a_buffer_whose_maker_left_has_a_row_of_its_own);
	tcase_add_test(tc, the_rows_of_buffers_sum_up_to_what_each_client_holds);
	tcase_add_test(tc, a_buffer_that_grows_is_listed_with_its_policy_and_its_use);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
