/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Attempts to use up what the daemon has, by clients that keep to the protocol: sessions left
 * behind, shares that cannot be opened, surroundings that lack what every process has. Whoever
 * tries is refused in the end, and a witness does not notice.
 */

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/integration/witness.h"
#include "tests/tap.h"

static gpumem_status say_hello(struct gm_raw *raw, const struct gm_daemon *daemon)
{
	Gm__Wire__Hello hello = GM__WIRE__HELLO__INIT;
	hello.major = GM_WIRE_MAJOR;
	return gm_raw_hello(raw, daemon->socket, &hello);
}

START_TEST(sessions_left_without_a_goodbye_count_for_their_user)
{
	enum { MOST = 20 };
	struct gm_witness witness;
	struct gm_raw left[MOST], back;
	struct gm_raw_lease lease;
	uint8_t token[GM_TOKEN_BYTES];
	gm_witness_start(&witness,
		&(struct gm_daemon_options){
			.config = GM_DAEMON_CONFIG_WITH("connections_per_uid = 20\n", "1G")});
	GM_REQUIRE_EQ(gm_raw_share(&witness.raw, witness.lease.id,
			      GM__WIRE__AUDIENCE__AUDIENCE_DOMAIN, 0, false, token),
		GPUMEM_OK);
	/* What is opened is not charged to who opened it: no bound on memory ends this. */
	size_t n = 0;
	gpumem_status status = GPUMEM_OK;
	for (; n < MOST && status == GPUMEM_OK; n++) {
		status = say_hello(&left[n], &witness.daemon);
		if (status == GPUMEM_OK) {
			GM_REQUIRE_EQ(gm_raw_open(&left[n], token, &lease), GPUMEM_OK);
			gm_raw_lease_clear(&lease);
		}
		gm_raw_hang_up(&left[n]);
	}
	GM_REQUIRE_EQ(status, GPUMEM_E_LIMIT);
	GM_REQUIRE_EQ(n, MOST); /* the witness is one, the last was refused */
	gm_witness_served(&witness);
	/* Who comes back for a session is welcome all the same, and makes room by a goodbye. */
	GM_REQUIRE_EQ(gm_raw_resume(&back, &witness.daemon, &left[0]), GPUMEM_OK);
	GM_REQUIRE(back.resumed);
	GM_REQUIRE_EQ(gm_raw_goodbye(&back), GPUMEM_OK);
	gm_raw_close(&back);
	GM_REQUIRE_EQ(say_hello(&back, &witness.daemon), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_raw_goodbye(&back), GPUMEM_OK);
	gm_raw_close(&back);
	for (size_t i = 1; i < MOST - 1; i++) {
		GM_REQUIRE_EQ(gm_raw_resume(&back, &witness.daemon, &left[i]), GPUMEM_OK);
		GM_REQUIRE_EQ(gm_raw_goodbye(&back), GPUMEM_OK);
		gm_raw_close(&back);
	}
	gm_witness_stop(&witness);
}
END_TEST

START_TEST(a_daemon_without_descriptors_loses_no_session_that_comes_back)
{
	struct gm_witness witness;
	struct gm_raw away, back;
	struct gm_raw_lease lease;
	struct rlimit before, limit;
	gm_witness_start(&witness, NULL);
	gm_raw_join(&away, &witness.daemon);
	GM_REQUIRE_EQ(gm_raw_lease(&away, 0, GM_CHUNK_MIN, &lease), GPUMEM_OK);
	uint64_t id = lease.id;
	gm_raw_lease_clear(&lease);
	gm_raw_hang_up(&away);
	GM_UNTIL(gm_figures_now(&witness.daemon).quarantined_clients == 1);
	GM_REQUIRE(prlimit(witness.daemon.pid, RLIMIT_NOFILE, NULL, &before) == 0);
	/* It fails further on each time, and each time the token is as good as before. */
	size_t base = gm_daemon_fds(&witness.daemon), failed = 0;
	gpumem_status status = GPUMEM_E_LIMIT;
	for (rlim_t left = 0; status != GPUMEM_OK; left++) {
		GM_UNTIL(gm_daemon_fds(&witness.daemon) <= base);
		limit = before;
		limit.rlim_cur = base + left;
		GM_REQUIRE(prlimit(witness.daemon.pid, RLIMIT_NOFILE, &limit, NULL) == 0);
		status = gm_raw_resume(&back, &witness.daemon, &away);
		GM_REQUIRE(prlimit(witness.daemon.pid, RLIMIT_NOFILE, &before, NULL) == 0);
		if (status != GPUMEM_OK) {
			/* Who is turned away at the door may find it shut before it read why. */
			GM_REQUIRE(status == GPUMEM_E_LIMIT || status == GPUMEM_E_DISCONNECTED);
			gm_raw_close(&back);
			failed++;
		}
	}
	GM_REQUIRE(failed > 1); /* of its pages, their copies and its events at least */
	GM_REQUIRE(back.resumed);
	GM_REQUIRE_EQ(gm_raw_return(&back, id, NULL, 0), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_raw_goodbye(&back), GPUMEM_OK);
	gm_raw_close(&back);
	gm_witness_stop(&witness);
}
END_TEST

START_TEST(an_open_that_fails_leaves_nothing_open)
{
	struct gm_witness witness;
	struct gm_raw opener;
	struct gm_raw_lease lease;
	struct rlimit before, limit;
	uint8_t token[GM_TOKEN_BYTES];
	gm_witness_start(&witness, NULL);
	gm_raw_join(&opener, &witness.daemon);
	GM_REQUIRE_EQ(gm_raw_share(&witness.raw, witness.lease.id,
			      GM__WIRE__AUDIENCE__AUDIENCE_DOMAIN, 0, true, token),
		GPUMEM_OK);
	/* A read-only handle is a file descriptor more, and the daemon has none. */
	GM_REQUIRE(prlimit(witness.daemon.pid, RLIMIT_NOFILE, NULL, &before) == 0);
	limit = before;
	limit.rlim_cur = 3;
	GM_REQUIRE(prlimit(witness.daemon.pid, RLIMIT_NOFILE, &limit, NULL) == 0);
	gpumem_status status = gm_raw_open(&opener, token, &lease);
	GM_REQUIRE(prlimit(witness.daemon.pid, RLIMIT_NOFILE, &before, NULL) == 0);
	/* On a GPU read-only is a request, and the handle the one there is: nothing to fail. */
	GM_REQUIRE_EQ(status, gm_on_gpu() ? GPUMEM_OK : GPUMEM_E_LIMIT);
	if (status == GPUMEM_OK)
		gm_raw_lease_clear(&lease);
	struct gm_client_row row;
	GM_REQUIRE(gm_client_row(&witness.daemon, opener.session, &row));
	GM_REQUIRE_EQ(row.leases, status == GPUMEM_OK);
	GM_REQUIRE_EQ(gm_raw_open(&opener, token, &lease), GPUMEM_OK);
	GM_REQUIRE(lease.read_only);
	gm_raw_lease_clear(&lease);
	GM_REQUIRE_EQ(gm_raw_goodbye(&opener), GPUMEM_OK);
	gm_raw_close(&opener);
	gm_witness_stop(&witness);
}
END_TEST

START_TEST(a_daemon_started_without_standard_files_logs_into_none_of_its_own)
{
	const char *runner[] = {"sh", "-c", "exec \"$@\" <&- >&- 2>&-", "sh", NULL};
	struct gm_witness witness;
	gm_witness_start(&witness, &(struct gm_daemon_options){.runner = runner});
	for (int i = 0; i < 3; i++) {
		char path[64], to[64];
		snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)witness.daemon.pid, i);
		ssize_t n = readlink(path, to, sizeof(to) - 1);
		GM_REQUIRE(n > 0);
		to[n] = '\0';
		GM_REQUIRE(strcmp(to, "/dev/null") == 0);
	}
	/* More lines than a pipe takes: each of these is logged. */
	for (int i = 0; i < 1500; i++) {
		struct gm_raw rude;
		gpumem_status last;
		GM_REQUIRE(gm_raw_connect(&rude, witness.daemon.socket) == 0);
		GM_REQUIRE(gm_raw_send_bytes(&rude, "\xff\xff", 2, NULL, 0) == 0);
		gm_raw_drain(&rude, &last);
		GM_REQUIRE_EQ(last, GPUMEM_E_PROTOCOL);
		gm_raw_close(&rude);
	}
	gm_witness_stop(&witness);
}
END_TEST

/* What a stranger sends is nonsense, so it is dropped, and each drop makes a line. */
static void send_nonsense(int channel, void *argument)
{
	const struct gm_daemon *daemon = argument;

	(void)channel;
	gm_become_stranger_if_possible();
	for (int i = 0; i < 2000; i++) {
		gpumem_status last;
		struct gm_raw raw;
		GM_REQUIRE_EQ(gm_raw_connect(&raw, daemon->socket), 0);
		GM_REQUIRE_EQ(gm_raw_send_bytes(&raw, "nonsense", 8, NULL, 0), 0);
		gm_raw_drain(&raw, &last);
		gm_raw_close(&raw);
	}
}

START_TEST(a_log_that_nobody_reads_stops_nothing)
{
	/* The reader of the daemon's stderr sleeps, and the pipe is full from the start. */
	static const char *const runner[] = {"bash", "-c",
		"exec 2> >(exec setpriv --pdeathsig KILL sleep 1000); "
		"head -c 65536 /dev/zero >&2; exec \"$@\"",
		"bash", NULL};
	struct gm_witness witness;
	struct gm_worker worker;

	gm_witness_start(&witness, &(struct gm_daemon_options){.runner = runner});
	gm_worker_start(&worker, send_nonsense, &witness.daemon);
	gm_worker_join(&worker);
	gm_witness_served(&witness);
	gm_witness_stop(&witness);
}
END_TEST

START_TEST(one_user_cannot_flood_the_log)
{
	struct gm_witness witness;
	struct gm_worker worker;

	gm_witness_start(&witness, NULL);
	gm_worker_start(&worker, send_nonsense, &witness.daemon);
	gm_worker_join(&worker);
	gm_witness_served(&witness);
	/* Some lines, then one in ten seconds; under a sanitizer it takes a few of those. */
	GM_REQUIRE(gm_daemon_said(&witness.daemon, "dropped: ") > 0);
	GM_REQUIRE(gm_daemon_said(&witness.daemon, "dropped") < 1000);
	gm_witness_stop(&witness);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("siege");
	TCase *tc = tcase_create("siege");
	tcase_set_timeout(tc, 180);
	tcase_add_test(tc, sessions_left_without_a_goodbye_count_for_their_user);
	tcase_add_test(tc, a_daemon_without_descriptors_loses_no_session_that_comes_back);
	tcase_add_test(tc, an_open_that_fails_leaves_nothing_open);
	tcase_add_test(tc, a_daemon_started_without_standard_files_logs_into_none_of_its_own);
	tcase_add_test(tc, a_log_that_nobody_reads_stops_nothing);
	tcase_add_test(tc, one_user_cannot_flood_the_log);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
