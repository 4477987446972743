/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Clients that say that they returned pinned host memory made of memfds, or die, and keep it all the same.
 * It is memory of the daemon's cgroup, so the daemon must know of it: host_limit bounds it, and its user
 * is charged, until it is let go.
 */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/wire/seqpacket.h"
#include "tests/integration/raw.h"
#include "tests/tap.h"

#define MIB    UINT64_C(0x100000)
#define LIMIT  (64 * MIB)
#define PINNED 1 /* the number of that device */

static struct gm_daemon daemon_;

static void set_up(void)
{
	gm_daemon_start(&daemon_,
		&(struct gm_daemon_options){
			.config = "[gpumemd]\nfraction = 1.0\nmin_free = 0\nreserve = 0\n"
				  "max_pool = 100%\nhost_limit = 64M\n[device 0]\nsize = 1G\n"});
}

static void tear_down(void)
{
	gm_daemon_stop(&daemon_);
}

static uint64_t orphaned(void)
{
	struct gm_figures f;
	gm_figures_of(&daemon_, PINNED, &f);
	return f.orphaned;
}

/* All of it can be had, and goes back. */
static void all_is_there(void)
{
	struct gm_raw raw;
	struct gm_raw_lease lease;

	gm_raw_join(&raw, &daemon_);
	GM_REQUIRE_EQ(gm_raw_lease(&raw, PINNED, LIMIT, &lease), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_raw_give_back(&raw, &lease), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_raw_goodbye(&raw), GPUMEM_OK);
	gm_raw_close(&raw);
}

START_TEST(a_client_that_keeps_what_it_returned_pays_for_it)
{
	struct gm_raw raw;
	struct gm_raw_lease kept, more;

	gm_raw_join(&raw, &daemon_);
	GM_REQUIRE_EQ(gm_raw_lease(&raw, PINNED, LIMIT / 2, &kept), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_raw_return(&raw, kept.id, NULL, 0), GPUMEM_OK);
	GM_REQUIRE_EQ(orphaned(), LIMIT / 2);
	GM_REQUIRE_EQ(gm_raw_lease(&raw, PINNED, LIMIT / 2 + 2 * MIB, &more), GPUMEM_E_NO_MEMORY);

	/* Nor is it given to anybody else meanwhile. */
	GM_REQUIRE_EQ(gm_raw_lease(&raw, PINNED, LIMIT / 2, &more), GPUMEM_OK);
	for (size_t i = 0; i < kept.n; i++)
		gm_alloc_raw_chunk_fill(&kept.chunks[i], 7);
	for (size_t i = 0; i < more.n; i++)
		GM_REQUIRE(gm_alloc_raw_chunk_is(&more.chunks[i], 0));
	GM_REQUIRE_EQ(gm_raw_give_back(&raw, &more), GPUMEM_OK);
	gm_raw_lease_clear(&kept);
	GM_UNTIL(orphaned() == 0);
	GM_REQUIRE_EQ(gm_raw_goodbye(&raw), GPUMEM_OK);
	gm_raw_close(&raw);
	all_is_there();
}
END_TEST

/* Leases, hands the memory to the test, or a path to it (O_PATH), and ends. */
static void hand_over(int channel, void *argument)
{
	const bool *path = argument;
	struct gm_raw raw;
	struct gm_raw_lease lease;
	char name[64];

	gm_raw_join(&raw, &daemon_);
	GM_REQUIRE_EQ(gm_raw_lease(&raw, PINNED, LIMIT / 4, &lease), GPUMEM_OK);
	GM_REQUIRE_EQ(lease.n, 1);
	gm_alloc_raw_chunk_fill(&lease.chunks[0], 1);
	snprintf(name, sizeof(name), "/proc/self/fd/%d", lease.chunks[0].fd);
	int fd = *path ? open(name, O_PATH | O_CLOEXEC) : lease.chunks[0].fd;
	GM_REQUIRE(fd >= 0);
	GM_REQUIRE_EQ(gm_seqpacket_send(channel, "f", 1, &fd, 1), 0);
	gm_hear_word(channel, 'e');
}

/* A process hands over the descriptor of its memory and ends. Returns the descriptor. */
static int handed_over(bool path)
{
	struct gm_conn_packet in;
	struct gm_worker worker;
	char word;
	int r;

	gm_worker_start(&worker, hand_over, &path);
	do
		r = gm_seqpacket_receive(worker.channel, &word, 1, &in);
	while (r == -EAGAIN);
	GM_REQUIRE_EQ(r, 0);
	int fd = gm_fdlist_steal(&in.fds, 0);
	GM_REQUIRE(fd >= 0);
	gm_fdlist_deinit(&in.fds);
	gm_text_say_word(worker.channel, 'e');
	gm_worker_join(&worker);
	return fd;
}

/* One process after the other takes a quarter of host_limit. The fifth one gets nothing. */
START_TEST(processes_that_hand_memory_on_and_die_do_not_pass_host_limit)
{
	struct gm_raw_lease lease;
	struct gm_raw raw;
	int kept[4];

	for (int i = 0; i < 4; i++) {
		kept[i] = handed_over(false);
		GM_UNTIL(orphaned() == (uint64_t)(i + 1) * LIMIT / 4);
	}
	gm_raw_join(&raw, &daemon_);
	GM_REQUIRE_EQ(gm_raw_lease(&raw, PINNED, 2 * MIB, &lease), GPUMEM_E_NO_MEMORY);
	GM_REQUIRE_EQ(gm_raw_goodbye(&raw), GPUMEM_OK);
	gm_raw_close(&raw);

	for (int i = 0; i < 4; i++)
		close(kept[i]);
	GM_UNTIL(orphaned() == 0);
	all_is_there();
}
END_TEST

START_TEST(a_path_to_memory_keeps_nothing_of_it)
{
	int path = handed_over(true);
	struct stat st;

	GM_UNTIL(fstat(path, &st) == 0 && st.st_blocks == 0);
	GM_REQUIRE_EQ(orphaned(), 0);
	close(path);
	all_is_there();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("pinned kept");
	TCase *tc = tcase_create("pinned kept");
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_set_timeout(tc, 300);
	tcase_add_test(tc, a_client_that_keeps_what_it_returned_pays_for_it);
	tcase_add_test(tc, processes_that_hand_memory_on_and_die_do_not_pass_host_limit);
	tcase_add_test(tc, a_path_to_memory_keeps_nothing_of_it);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
