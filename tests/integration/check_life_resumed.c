/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/* Sessions that are taken up again: by whom, with which token, and what goes on. */

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/wire/page.h"
#include "tests/integration/life_fixture.h"
#include "tests/integration/raw.h"
#include "tests/tap.h"

/* ---- taking a session up again */

static gpumem_status resume(
	struct gm_raw *raw, uint64_t session, const uint8_t *token, size_t token_bytes)
{
	Gm__Wire__Hello hello = GM__WIRE__HELLO__INIT;
	hello.major = GM_WIRE_MAJOR;
	hello.minor = GM_WIRE_MINOR;
	hello.name = (char *)"back";
	hello.session = session;
	hello.token.data = (uint8_t *)(uintptr_t)token;
	hello.token.len = token_bytes;
	return gm_raw_hello(raw, daemon_.socket, &hello);
}

/* Whatever the daemon answers, the session named was not taken up. */
static void require_not_resumed(uint64_t session, const uint8_t *token, size_t token_bytes)
{
	struct gm_raw raw;
	if (resume(&raw, session, token, token_bytes) == GPUMEM_OK) {
		GM_REQUIRE(!raw.resumed);
		GM_REQUIRE(raw.session != session);
		GM_REQUIRE_EQ(raw.packet->hello_reply->n_leases, 0);
		gm_raw_goodbye(&raw);
	}
	gm_raw_close(&raw);
}

START_TEST(a_session_goes_on_with_its_token_and_its_leases)
{
	struct gm_raw raw, back;
	struct gm_raw_lease lease, again;
	gm_raw_join(&raw, &daemon_);
	take(&raw, &lease);
	uint8_t token[GM_TOKEN_BYTES];
	memcpy(token, raw.token, sizeof(token));
	gm_raw_hang_up(&raw);
	GM_UNTIL(gm_figures_now(&daemon_).quarantined_clients == 1);
	GM_REQUIRE_EQ(resume(&back, raw.session, token, sizeof(token)), GPUMEM_OK);
	GM_REQUIRE(back.resumed);
	GM_REQUIRE_EQ(back.session, raw.session);
	GM_REQUIRE_EQ(back.packet->hello_reply->n_leases, 1);
	GM_REQUIRE_EQ(back.packet->hello_reply->leases[0], lease.id);
	struct gm_figures f = gm_figures_now(&daemon_);
	GM_REQUIRE_EQ(f.quarantined, 0);
	GM_REQUIRE_EQ(f.leased, CHUNKS * GM_CHUNK_MIN);
	/* The same chunks, with what was in them. */
	GM_REQUIRE_EQ(gm_raw_handles(&back, lease.id, 0, &again), GPUMEM_OK);
	GM_REQUIRE_EQ(again.n, lease.n);
	for (size_t i = 0; i < again.n; i++) {
		GM_REQUIRE_EQ(again.chunks[i].id, lease.chunks[i].id);
		GM_REQUIRE(gm_alloc_raw_chunk_is(&again.chunks[i], PATTERN));
	}
	gm_raw_lease_clear(&again);
	gm_raw_lease_clear(&lease);
	GM_REQUIRE_EQ(gm_raw_goodbye(&back), GPUMEM_OK);
	gm_raw_close(&back);
}
END_TEST

/* Loses its connection and comes back, again and again, until it is told to stop. */
static void come_and_go(int channel, void *argument)
{
	const struct gm_daemon *daemon = argument;
	struct gm_raw raw;
	struct gm_raw_lease lease;

	gm_raw_join(&raw, daemon);
	GM_REQUIRE_EQ(gm_raw_lease(&raw, 0, GM_CHUNK_MIN, &lease), GPUMEM_OK);
	gm_text_say_word(channel, 'g');
	while (!gm_raw_readable(channel))
		gm_raw_come_back(&raw, daemon);
	gm_hear_word(channel, 'e');
	gm_raw_lease_clear(&lease);
	GM_REQUIRE_EQ(gm_raw_goodbye(&raw), GPUMEM_OK);
	gm_raw_close(&raw);
}

/* The worker takes memory and becomes another program, which keeps the page until the test speaks,
 * and then runs on. */
static void exec_with_page(int channel, void *argument)
{
	struct gm_raw raw;
	struct gm_raw_lease lease;
	gm_raw_join(&raw, argument);
	take(&raw, &lease);
	GM_REQUIRE(dup2(channel, STDIN_FILENO) == STDIN_FILENO);
	GM_REQUIRE(dup2(channel, STDOUT_FILENO) == STDOUT_FILENO);
	GM_REQUIRE(raw.client_page != 9 && dup2(raw.client_page, 9) == 9);
	execl("/bin/sh", "sh", "-c", "printf r; read -r a; exec 9>&-; read -r b", NULL);
	GM_FAIL("exec: %s", strerror(errno));
}

START_TEST(clients_that_come_and_go_do_not_put_off_the_end_of_one_that_called_exec)
{
	enum { GOERS = 4 };
	struct gm_worker goers[GOERS], worker;
	char running;
	int status;
	gm_worker_start(&worker, exec_with_page, &daemon_);
	GM_REQUIRE_EQ(read(worker.channel, &running, 1), 1);
	GM_REQUIRE_EQ(running, 'r');
	GM_UNTIL(gm_figures_now(&daemon_).quarantined_clients == 1);
	for (int i = 0; i < GOERS; i++)
		gm_worker_start(&goers[i], come_and_go, &daemon_);
	for (int i = 0; i < GOERS; i++)
		gm_hear_word(goers[i].channel, 'g');

	GM_REQUIRE_EQ(write(worker.channel, "\n", 1), 1);
	GM_UNTIL(gm_figures_now(&daemon_).clients == GOERS);
	GM_REQUIRE_EQ(waitpid(worker.pid, &status, WNOHANG), 0);

	GM_REQUIRE_EQ(write(worker.channel, "\n", 1), 1);
	GM_REQUIRE(waitpid(worker.pid, &status, 0) == worker.pid);
	close(worker.channel);
	for (int i = 0; i < GOERS; i++) {
		gm_text_say_word(goers[i].channel, 'e');
		gm_worker_join(&goers[i]);
	}
}
END_TEST

START_TEST(a_client_that_is_back_before_its_end_was_seen_takes_its_session_over)
{
	struct gm_raw raw, back;
	struct gm_raw_lease lease;
	gm_raw_join(&raw, &daemon_);
	take(&raw, &lease);
	GM_REQUIRE_EQ(resume(&back, raw.session, raw.token, GM_TOKEN_BYTES), GPUMEM_OK);
	GM_REQUIRE(back.resumed);
	GM_REQUIRE_EQ(back.session, raw.session);
	GM_REQUIRE(!gm_raw_receive(&raw));
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).clients, 1);
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).leased, CHUNKS * GM_CHUNK_MIN);
	GM_REQUIRE_EQ(gm_raw_give_back(&back, &lease), GPUMEM_OK);
	gm_raw_close(&raw);
	gm_raw_close(&back);
}
END_TEST

START_TEST(a_session_that_goes_on_keeps_the_name_that_its_limits_go_by)
{
	struct gm_raw raw, back;
	struct gm_raw_lease lease;
	struct gm_client_row row;
	gm_raw_join(&raw, &daemon_);
	take(&raw, &lease);
	gm_raw_lease_clear(&lease);
	gm_raw_hang_up(&raw);
	Gm__Wire__Hello hello = GM__WIRE__HELLO__INIT;
	hello.major = GM_WIRE_MAJOR;
	hello.name = (char *)"another";
	hello.session = raw.session;
	hello.token.data = raw.token;
	hello.token.len = GM_TOKEN_BYTES;
	GM_REQUIRE_EQ(gm_raw_hello(&back, daemon_.socket, &hello), GPUMEM_OK);
	GM_REQUIRE(back.resumed);
	GM_REQUIRE(gm_client_row(&daemon_, back.session, &row));
	GM_REQUIRE(strcmp(row.name, "raw") == 0);
	GM_REQUIRE_EQ(gm_raw_goodbye(&back), GPUMEM_OK);
	gm_raw_close(&back);
}
END_TEST

START_TEST(a_session_does_not_go_on_with_a_wrong_or_old_token)
{
	struct gm_raw raw, other, back;
	struct gm_raw_lease lease;
	gm_raw_join(&raw, &daemon_);
	gm_raw_join(&other, &daemon_);
	take(&raw, &lease);
	gm_raw_lease_clear(&lease);
	uint8_t token[GM_TOKEN_BYTES], wrong[GM_TOKEN_BYTES + 1] = {0};
	memcpy(token, raw.token, sizeof(token));
	/* While it is connected a wrong one does not even disturb it. */
	memcpy(wrong, token, sizeof(token));
	wrong[0] ^= 1;
	require_not_resumed(raw.session, wrong, GM_TOKEN_BYTES);
	require_not_resumed(raw.session, other.token, GM_TOKEN_BYTES);
	Gm__Wire__GetDevices get = GM__WIRE__GET_DEVICES__INIT;
	GM_REQUIRE_EQ(gm_raw_call(&raw, GM_RAW_PACKET(GET_DEVICES, get_devices, &get)), GPUMEM_OK);
	gm_raw_hang_up(&raw);
	GM_UNTIL(gm_figures_now(&daemon_).quarantined_clients == 1);
	memcpy(wrong, token, sizeof(token));
	wrong[GM_TOKEN_BYTES - 1] ^= 1;
	require_not_resumed(raw.session, wrong, GM_TOKEN_BYTES);
	require_not_resumed(raw.session, NULL, 0);
	require_not_resumed(raw.session, token, GM_TOKEN_BYTES - 1);
	memcpy(wrong, token, sizeof(token));
	require_not_resumed(raw.session, wrong, GM_TOKEN_BYTES + 1);
	/* The token of another session; the right token for another session. */
	require_not_resumed(raw.session, other.token, GM_TOKEN_BYTES);
	require_not_resumed(other.session, token, GM_TOKEN_BYTES);
	require_not_resumed(UINT64_MAX, token, GM_TOKEN_BYTES);
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).quarantined, CHUNKS * GM_CHUNK_MIN);
	/* The right one works. A resumed session has a new one, and the old one ends with the first
	 * request that shows that the client has read the new one. */
	GM_REQUIRE_EQ(resume(&back, raw.session, token, sizeof(token)), GPUMEM_OK);
	GM_REQUIRE(back.resumed);
	GM_REQUIRE(memcmp(back.token, token, sizeof(token)) != 0);
	gm_raw_hang_up(&back);
	GM_UNTIL(gm_figures_now(&daemon_).quarantined_clients == 1);
	GM_REQUIRE_EQ(resume(&back, raw.session, token, sizeof(token)), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_raw_call(&back, GM_RAW_PACKET(GET_DEVICES, get_devices, &get)), GPUMEM_OK);
	gm_raw_hang_up(&back);
	GM_UNTIL(gm_figures_now(&daemon_).quarantined_clients == 1);
	require_not_resumed(raw.session, token, GM_TOKEN_BYTES);
	GM_REQUIRE_EQ(resume(&raw, back.session, back.token, GM_TOKEN_BYTES), GPUMEM_OK);
	GM_REQUIRE(raw.resumed);
	GM_REQUIRE_EQ(gm_raw_goodbye(&raw), GPUMEM_OK);
	gm_raw_close(&raw);
	gm_raw_close(&other);
}
END_TEST

struct stolen {
	uint64_t session;
	uint8_t token[GM_TOKEN_BYTES];
};

static void steal_session(int channel, void *argument)
{
	struct stolen *stolen = argument;
	require_not_resumed(stolen->session, stolen->token, GM_TOKEN_BYTES);
}

START_TEST(a_session_is_not_taken_up_by_another_process_with_the_right_token)
{
	struct gm_raw raw, back;
	struct gm_raw_lease lease;
	gm_raw_join(&raw, &daemon_);
	take(&raw, &lease);
	struct stolen stolen = {.session = raw.session};
	memcpy(stolen.token, raw.token, sizeof(stolen.token));
	gm_raw_hang_up(&raw);
	GM_UNTIL(gm_figures_now(&daemon_).quarantined_clients == 1);
	struct gm_worker worker;
	gm_worker_start(&worker, steal_session, &stolen);
	gm_worker_join(&worker);
	GM_REQUIRE_EQ(resume(&back, stolen.session, stolen.token, GM_TOKEN_BYTES), GPUMEM_OK);
	GM_REQUIRE(back.resumed);
	gm_raw_lease_clear(&lease);
	GM_REQUIRE_EQ(gm_raw_goodbye(&back), GPUMEM_OK);
	gm_raw_close(&back);
}
END_TEST

/* ---- order */

START_TEST(replies_and_events_carry_one_rising_sequence_and_one_generation)
{
	gm_daemon_configure(&daemon_,
		GM_DAEMON_CONFIG_WITH("pressure_dwell = 0s\npressure_hysteresis = 0\n", "64M"));
	gm_daemon_kill(&daemon_);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	struct gm_raw a, b;
	struct gm_raw_lease lease;
	gm_raw_join(&a, &daemon_);
	uint64_t generation = a.generation, last = a.sequence;
	GM_REQUIRE(generation != 0 && last != 0);
	gm_raw_join(&b, &daemon_);
	GM_REQUIRE_EQ(b.generation, generation);
	GM_REQUIRE(b.sequence > last);
	last = b.sequence;
	/* From empty to full: the level changes, and whoever listens hears of it. */
	GM_REQUIRE_EQ(gm_raw_lease(&a, 0, gm_figures_now(&daemon_).available, &lease), GPUMEM_OK);
	GM_REQUIRE(a.sequence > last);
	last = a.sequence;
	GM_REQUIRE(gm_raw_receive_event(&b));
	GM_REQUIRE_EQ(b.event.kind, GM_PAGE_EVENT_PRESSURE);
	GM_REQUIRE_EQ(b.event.level, 3);
	GM_REQUIRE_EQ(b.generation, generation);
	uint64_t event_b = b.sequence;
	GM_REQUIRE(gm_raw_receive_event(&a));
	GM_REQUIRE_EQ(a.event.kind, GM_PAGE_EVENT_PRESSURE);
	GM_REQUIRE(a.sequence != event_b && a.sequence != last && event_b != last);
	uint64_t high = a.sequence > event_b ? a.sequence : event_b;
	if (last > high)
		high = last;
	/* What is asked after an event was read is answered after it. */
	gm_raw_lease_clear(&lease);
	GM_REQUIRE_EQ(gm_raw_goodbye(&a), GPUMEM_OK);
	GM_REQUIRE(a.sequence > high);
	gm_raw_close(&a);
	gm_raw_close(&b);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("resumed");
	TCase *tc = tcase_create("resumed");
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_set_timeout(tc, 180);
	tcase_add_test(tc, clients_that_come_and_go_do_not_put_off_the_end_of_one_that_called_exec);
	tcase_add_test(tc, a_session_goes_on_with_its_token_and_its_leases);
	tcase_add_test(tc, a_client_that_is_back_before_its_end_was_seen_takes_its_session_over);
	tcase_add_test(tc, a_session_that_goes_on_keeps_the_name_that_its_limits_go_by);
	tcase_add_test(tc, a_session_does_not_go_on_with_a_wrong_or_old_token);
	tcase_add_test(tc, a_session_is_not_taken_up_by_another_process_with_the_right_token);
	tcase_add_test(tc, replies_and_events_carry_one_rising_sequence_and_one_generation);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
