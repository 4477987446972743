/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/* What one user has of the memory of another: nothing, unless it was shared. */

#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/raw.h"
#include "tests/integration/share_fixture.h"
#include "tests/tap.h"

/* ---- trust domains */

START_TEST(what_one_uid_returned_is_never_given_to_another)
{
	struct gm_worker a, b;
	struct person who_a = {UID_A, 0}, who_b = {UID_B, 0};
	gm_worker_start(&a, obey, &who_a);
	gm_worker_start(&b, obey, &who_b);
	/* All the memory there is, so that B cannot be served but by what A had. */
	uint64_t all = gm_figures_now(&daemon_).available;
	for (int round = 0; round < 2; round++) {
		GM_REQUIRE_EQ(TELL(a, .verb = LEASE, .bytes = all).status, GPUMEM_OK);
		GM_REQUIRE_EQ(TELL(a, .verb = FILL, .byte = 0xaa).status, GPUMEM_OK);
		GM_REQUIRE_EQ(TELL(a, .verb = RETURN).status, GPUMEM_OK);
		GM_REQUIRE_EQ(TELL(b, .verb = LEASE, .bytes = all).status, GPUMEM_OK);
		GM_REQUIRE(TELL(b, .verb = IS, .byte = 0).yes);
		GM_REQUIRE_EQ(TELL(b, .verb = FILL, .byte = 0xbb).status, GPUMEM_OK);
		GM_REQUIRE_EQ(TELL(b, .verb = RETURN).status, GPUMEM_OK);
	}
	end(&a);
	end(&b);
}
END_TEST

START_TEST(what_a_uid_returned_is_pooled_for_its_other_processes)
{
	struct gm_worker a, b;
	struct person who = {UID_A, 0};
	gm_worker_start(&a, obey, &who);
	gm_worker_start(&b, obey, &who);
	GM_REQUIRE_EQ(TELL(a, .verb = LEASE, .bytes = GM_CHUNK_MIN).status, GPUMEM_OK);
	TELL(a, .verb = FILL, .byte = 0xaa);
	GM_REQUIRE_EQ(TELL(a, .verb = RETURN).status, GPUMEM_OK);
	GM_REQUIRE_EQ(TELL(b, .verb = LEASE, .bytes = GM_CHUNK_MIN).status, GPUMEM_OK);
	GM_REQUIRE(TELL(b, .verb = IS, .byte = 0xaa).yes);
	end(&a);
	end(&b);
}
END_TEST

START_TEST(with_trust_client_nothing_returned_is_given_to_anybody)
{
	gm_daemon_configure(&daemon_, GM_DAEMON_CONFIG_WITH("trust = client\n", "64M"));
	gm_daemon_kill(&daemon_);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	struct gm_worker a, b;
	struct person who = {UID_A, 0};
	gm_worker_start(&a, obey, &who);
	gm_worker_start(&b, obey, &who);
	uint64_t all = gm_figures_now(&daemon_).available;
	GM_REQUIRE_EQ(TELL(a, .verb = LEASE, .bytes = all).status, GPUMEM_OK);
	TELL(a, .verb = FILL, .byte = 0xaa);
	GM_REQUIRE_EQ(TELL(a, .verb = RETURN).status, GPUMEM_OK);
	GM_REQUIRE_EQ(TELL(b, .verb = LEASE, .bytes = all).status, GPUMEM_OK);
	GM_REQUIRE(TELL(b, .verb = IS, .byte = 0).yes);
	end(&a);
	end(&b);
}
END_TEST

/* ---- memory that a process keeps although it is nobody's */

#define STEP (16 * 1024 * 1024)

static const char limited[] = GM_DAEMON_CONFIG_WITH(
	"", "256M") "[limit uid:54321]\nmax = 64M\n[limit uid:54322]\nmax = 64M\n";

static void restart_limited(void)
{
	gm_daemon_configure(&daemon_, limited);
	gm_daemon_kill(&daemon_);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
}

/*
 * Leases memory and hands it to a forked child, again and again, each time in a process that then
 * exits. The children keep the memory mapped until the channel closes. Tells how often it worked.
 */
static void fork_and_exit(int channel, void *argument)
{
	become(UID_A, 0);
	int rounds = 0;
	for (gpumem_status status = GPUMEM_OK; status == GPUMEM_OK && rounds < 12; rounds++) {
		int outcome[2];
		GM_REQUIRE(pipe2(outcome, O_CLOEXEC) == 0);
		pid_t leaser = fork();
		GM_REQUIRE(leaser >= 0);
		if (leaser == 0) {
			struct gm_raw raw;
			struct gm_raw_lease lease;
			gm_raw_join(&raw, &daemon_);
			status = gm_raw_lease(&raw, 0, STEP, &lease);
			void *at = status == GPUMEM_OK
					   ? gm_raw_map(&lease.chunks[0], *(bool *)argument)
					   : NULL;
			GM_REQUIRE(at != MAP_FAILED);
			if (status == GPUMEM_OK && fork() == 0) {
				char word;
				close(outcome[1]);
				gm_raw_lease_clear(&lease);
				(void)!recv(channel, &word, 1, MSG_PEEK);
				_exit(0);
			}
			GM_REQUIRE(write(outcome[1], &status, sizeof(status)) == sizeof(status));
			_exit(0);
		}
		GM_REQUIRE(read(outcome[0], &status, sizeof(status)) == sizeof(status));
		GM_REQUIRE(waitpid(leaser, NULL, 0) == leaser);
		close(outcome[0]);
		close(outcome[1]);
		GM_UNTIL(gm_figures_now(&daemon_).clients == 0);
		rounds -= status != GPUMEM_OK;
	}
	gm_text_say(channel, &rounds, sizeof(rounds));
	char word;
	(void)!recv(channel, &word, 1, MSG_PEEK);
}

/* For mappings that can be written (0) and that can only be read (1). */
START_TEST(memory_that_forked_children_keep_counts_for_their_uid_until_they_end)
{
	struct gm_worker attacker, victim;
	struct person b = {UID_B, 0};
	bool writable = _i == 0;
	int rounds;
	restart_limited();
	gm_worker_start(&attacker, fork_and_exit, &writable);
	gm_hear(attacker.channel, &rounds, sizeof(rounds));
	GM_REQUIRE_EQ(rounds, 4); /* 64M in all, as the limit says */
	struct gm_figures f = gm_figures_now(&daemon_);
	GM_REQUIRE_EQ(f.orphaned, 4 * STEP);
	GM_REQUIRE_EQ(f.quarantined, 4 * STEP);
	GM_REQUIRE_EQ(f.available, f.ceiling - 4 * STEP);
	GM_REQUIRE_EQ(gm_left_by(&daemon_, UID_A), 4 * STEP);

	/* Another uid is not charged for it. */
	gm_worker_start(&victim, obey, &b);
	GM_REQUIRE_EQ(TELL(victim, .verb = LEASE, .bytes = 4 * STEP).status, GPUMEM_OK);
	GM_REQUIRE(TELL(victim, .verb = IS, .byte = 0).yes);
	end(&victim);

	/* The children end: it comes back, and is not pooled. */
	gm_worker_kill(&attacker);
	GM_UNTIL(gm_figures_now(&daemon_).orphaned == 0);
	GM_UNTIL(gm_figures_now(&daemon_).chunks == 0);
	GM_REQUIRE_EQ(gm_left_by(&daemon_, UID_A), 0);
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).pooled, 0);
}
END_TEST

/* Says falsely that it has unmapped what it returns. */
static void return_falsely(int channel, void *argument)
{
	become(UID_A, 0);
	struct gm_raw raw;
	struct gm_raw_lease lease;
	int rounds = 0;
	gm_raw_join(&raw, &daemon_);
	while (rounds < 12 && gm_raw_lease(&raw, 0, STEP, &lease) == GPUMEM_OK) {
		GM_REQUIRE(gm_raw_map(&lease.chunks[0], true) != MAP_FAILED);
		uint64_t id = lease.id;
		gm_raw_lease_clear(&lease);
		GM_REQUIRE_EQ(gm_raw_return(&raw, id, NULL, 0), GPUMEM_OK);
		rounds++;
	}
	gm_text_say(channel, &rounds, sizeof(rounds));
	gm_hear_word(channel, 'e');
}

START_TEST(memory_that_is_returned_falsely_stays_charged_and_is_never_pooled)
{
	struct gm_worker liar;
	int rounds;
	restart_limited();
	gm_worker_start(&liar, return_falsely, NULL);
	gm_hear(liar.channel, &rounds, sizeof(rounds));
	GM_REQUIRE_EQ(rounds, 4);
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).pooled, 0);
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).orphaned, 4 * STEP);
	GM_REQUIRE_EQ(gm_left_by(&daemon_, UID_A), 4 * STEP);
	gm_text_say_word(liar.channel, 'e');
	gm_worker_join(&liar);
	GM_UNTIL(gm_figures_now(&daemon_).orphaned == 0);
	GM_UNTIL(gm_figures_now(&daemon_).chunks == 0);
}
END_TEST

/* ---- what others may see */

static void look_around(int channel, void *argument)
{
	struct person who = {UID_B, 0};
	uint64_t session;
	gm_hear(channel, &session, sizeof(session));
	become(who.uid, 0);
	struct gm_client_row row;
	GM_REQUIRE(gm_client_row(&daemon_, session, &row));
	GM_REQUIRE(!row.details);
	GM_REQUIRE_EQ(row.held, GM_CHUNK_MIN);
	GM_REQUIRE(strcmp(row.name, "") == 0);
	struct gm_raw raw;
	gm_raw_observe(&raw, &daemon_);
	Gm__Wire__Trim trim = GM__WIRE__TRIM__INIT;
	trim.all_devices = true;
	GM_REQUIRE_EQ(gm_raw_call(&raw, GM_RAW_PACKET(TRIM, trim, &trim)), GPUMEM_E_DENIED);
	gm_raw_close(&raw);
}

START_TEST(an_ordinary_user_sees_totals_and_changes_nothing)
{
	struct gm_worker holder, looker;
	struct person who = {UID_A, 0};
	gm_worker_start(&holder, obey, &who);
	struct report lease = TELL(holder, .verb = LEASE, .bytes = GM_CHUNK_MIN);
	gm_worker_start(&looker, look_around, NULL);
	gm_text_say(looker.channel, &lease.session, sizeof(lease.session));
	gm_worker_join(&looker);
	end(&holder);
}
END_TEST

int main(void)
{
	if (!gm_tap_has_users()) {
		printf("1..0 # SKIP needs root, for processes of several users\n");
		return 0;
	}
	Suite *suite = suite_create("domains");
	TCase *tc = tcase_create("domains");
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, what_one_uid_returned_is_never_given_to_another);
	tcase_add_test(tc, what_a_uid_returned_is_pooled_for_its_other_processes);
	tcase_add_test(tc, with_trust_client_nothing_returned_is_given_to_anybody);
	/* On a GPU nobody can tell who maps a chunk. */
	if (!gm_on_gpu()) {
		tcase_add_loop_test(tc,
			memory_that_forked_children_keep_counts_for_their_uid_until_they_end, 0, 2);
		tcase_add_test(
			tc, memory_that_is_returned_falsely_stays_charged_and_is_never_pooled);
	}
	tcase_add_test(tc, an_ordinary_user_sees_totals_and_changes_nothing);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
