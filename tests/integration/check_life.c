/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Life and death of clients: memory is charged until it is gone, and a chunk that a process may
 * still reach is never given to another.
 */

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/page.h"
#include "tests/integration/raw.h"
#include "tests/tap.h"

#define CHUNKS  4
#define PATTERN 0xa7

static struct gm_daemon daemon_;

static void set_up(void)
{
	gm_daemon_start(&daemon_, NULL);
}

static void tear_down(void)
{
	gm_daemon_stop(&daemon_);
}

/* A lease of CHUNKS chunks, filled. */
static void take(struct gm_raw *raw, struct gm_raw_lease *ret)
{
	GM_REQUIRE_EQ(gm_raw_lease(raw, 0, GM_CHUNK_MIN, ret), GPUMEM_OK);
	while (ret->n < CHUNKS)
		GM_REQUIRE_EQ(gm_raw_grow(raw, ret, GM_CHUNK_MIN), GPUMEM_OK);
	for (size_t i = 0; i < ret->n; i++)
		gm_raw_chunk_fill(&ret->chunks[i], PATTERN);
}

/* A new client takes all the memory there is: none of it may be anybody's old chunk. */
static void require_all_memory_zero(void)
{
	struct gm_raw raw;
	struct gm_raw_lease lease;
	gm_raw_join(&raw, &daemon_);
	uint64_t available = gm_figures_now(&daemon_).available;
	GM_REQUIRE(available >= GM_CHUNK_MIN);
	GM_REQUIRE_EQ(gm_raw_lease(&raw, 0, available, &lease), GPUMEM_OK);
	for (size_t i = 0; i < lease.n; i++) {
		uint8_t *at = gm_raw_map(&lease.chunks[i], false);
		GM_REQUIRE(at != MAP_FAILED);
		/* Holes are known to be zero without reading them. */
		off_t data = lseek(lease.chunks[i].fd, 0, SEEK_DATA);
		for (; data >= 0; data = lseek(lease.chunks[i].fd, data + 4096, SEEK_DATA)) {
			for (size_t k = 0; k < 4096; k++)
				GM_REQUIRE(at[(size_t)data + k] == 0);
		}
		munmap(at, lease.chunks[i].bytes);
	}
	gm_raw_lease_clear(&lease);
	GM_REQUIRE_EQ(gm_raw_goodbye(&raw), GPUMEM_OK);
	gm_raw_close(&raw);
}

START_TEST(what_is_returned_is_pooled_and_given_out_again)
{
	struct gm_raw raw;
	struct gm_raw_lease lease;
	gm_raw_join(&raw, &daemon_);
	take(&raw, &lease);
	struct gm_figures f = gm_figures_now(&daemon_);
	GM_REQUIRE_EQ(f.leased, CHUNKS * GM_CHUNK_MIN);
	GM_REQUIRE_EQ(f.available, f.ceiling - f.leased);
	uint64_t id = lease.id;
	gm_raw_lease_clear(&lease);
	GM_REQUIRE_EQ(gm_raw_return(&raw, id, NULL, 0), GPUMEM_OK);
	f = gm_figures_now(&daemon_);
	GM_REQUIRE_EQ(f.leased, 0);
	GM_REQUIRE_EQ(f.pooled, CHUNKS * GM_CHUNK_MIN);
	GM_REQUIRE_EQ(f.available, f.ceiling);
	GM_REQUIRE_EQ(gm_raw_lease(&raw, 0, GM_CHUNK_MIN, &lease), GPUMEM_OK);
	/* The pool trusts the domain: nobody cleared it. */
	GM_REQUIRE(gm_raw_chunk_is(&lease.chunks[0], PATTERN));
	gm_raw_lease_clear(&lease);
	gm_raw_close(&raw);
}
END_TEST

START_TEST(a_goodbye_gives_everything_back_to_the_pool)
{
	struct gm_raw raw;
	struct gm_raw_lease lease;
	gm_raw_join(&raw, &daemon_);
	take(&raw, &lease);
	gm_raw_lease_clear(&lease);
	GM_REQUIRE_EQ(gm_raw_goodbye(&raw), GPUMEM_OK);
	struct gm_figures f = gm_figures_now(&daemon_);
	GM_REQUIRE_EQ(f.leased + f.quarantined, 0);
	GM_REQUIRE_EQ(f.pooled, CHUNKS * GM_CHUNK_MIN);
	gm_raw_close(&raw);
}
END_TEST

START_TEST(memory_of_a_client_off_the_socket_stays_charged_while_its_process_lives)
{
	struct gm_raw raw;
	struct gm_raw_lease lease;
	gm_raw_join(&raw, &daemon_);
	take(&raw, &lease);
	uint64_t session = raw.session;
	gm_raw_hang_up(&raw);
	GM_UNTIL(gm_figures_now(&daemon_).quarantined_clients == 1);
	struct gm_figures f = gm_figures_now(&daemon_);
	GM_REQUIRE_EQ(f.leased, 0);
	GM_REQUIRE_EQ(f.quarantined, CHUNKS * GM_CHUNK_MIN);
	GM_REQUIRE_EQ(f.available, f.ceiling - f.quarantined);
	struct gm_client_row row;
	GM_REQUIRE(gm_client_row(&daemon_, session, &row));
	GM_REQUIRE(row.quarantined);
	GM_REQUIRE_EQ(row.held, CHUNKS * GM_CHUNK_MIN);
	GM_REQUIRE_EQ(row.pid, getpid());
	GM_UNTIL(gm_daemon_said(&daemon_, "closed its connection but is still running"));
	require_all_memory_zero();
	/* Untouched by all that. */
	for (size_t i = 0; i < lease.n; i++)
		GM_REQUIRE(gm_raw_chunk_is(&lease.chunks[i], PATTERN));
	gm_raw_lease_clear(&lease);
}
END_TEST

START_TEST(a_client_may_not_have_what_is_quarantined)
{
	struct gm_raw raw, other;
	struct gm_raw_lease lease, more;
	gm_raw_join(&raw, &daemon_);
	take(&raw, &lease);
	gm_raw_hang_up(&raw);
	GM_UNTIL(gm_figures_now(&daemon_).quarantined_clients == 1);
	gm_raw_join(&other, &daemon_);
	struct gm_figures f = gm_figures_now(&daemon_);
	GM_REQUIRE_EQ(gm_raw_lease(&other, 0, f.available + 1, &more), GPUMEM_E_NO_MEMORY);
	GM_REQUIRE_EQ(gm_raw_lease(&other, 0, f.available, &more), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).available, 0);
	gm_raw_lease_clear(&more);
	GM_REQUIRE_EQ(gm_raw_goodbye(&other), GPUMEM_OK);
	gm_raw_close(&other);
	gm_raw_lease_clear(&lease);
}
END_TEST

static void hold_memory(int channel, void *argument)
{
	struct gm_raw raw;
	struct gm_raw_lease lease;
	gm_raw_join(&raw, argument);
	take(&raw, &lease);
	void *at = gm_raw_map(&lease.chunks[0], true);
	GM_REQUIRE(at != MAP_FAILED);
	gm_say(channel, &raw.session, sizeof(raw.session));
	gm_hear_word(channel, 'e');
}

START_TEST(memory_of_a_killed_client_comes_back_and_is_never_reused)
{
	struct gm_worker worker;
	uint64_t session;
	gm_worker_start(&worker, hold_memory, &daemon_);
	gm_hear(worker.channel, &session, sizeof(session));
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).leased, CHUNKS * GM_CHUNK_MIN);
	gm_worker_kill(&worker);
	GM_UNTIL(gm_figures_now(&daemon_).clients == 0);
	GM_UNTIL(gm_figures_now(&daemon_).chunks == 0);
	struct gm_figures f = gm_figures_now(&daemon_);
	GM_REQUIRE_EQ(f.leased + f.quarantined + f.pooled + f.admitted, 0);
	GM_REQUIRE_EQ(f.available, f.ceiling);
	require_all_memory_zero();
}
END_TEST

START_TEST(memory_of_a_client_that_just_exits_comes_back)
{
	struct gm_worker worker;
	uint64_t session;
	gm_worker_start(&worker, hold_memory, &daemon_);
	gm_hear(worker.channel, &session, sizeof(session));
	gm_say_word(worker.channel, 'e');
	gm_worker_join(&worker);
	GM_UNTIL(gm_figures_now(&daemon_).clients == 0);
	GM_UNTIL(gm_figures_now(&daemon_).leased == 0);
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).quarantined, 0);
	/* One line tells of it, although its connection ended before its process did. */
	GM_UNTIL(gm_daemon_said(&daemon_, "ended without a goodbye") == 1);
	GM_REQUIRE_EQ(gm_daemon_said(&daemon_, "closed its connection"), 0);
	require_all_memory_zero();
}
END_TEST

/* The worker forks a child that keeps the socket and a mapping, and tells its pid. */
static void hold_memory_with_a_child(int channel, void *argument)
{
	struct gm_raw raw;
	struct gm_raw_lease lease;
	gm_raw_join(&raw, argument);
	take(&raw, &lease);
	uint8_t *at = gm_raw_map(&lease.chunks[0], true);
	GM_REQUIRE(at != MAP_FAILED);
	pid_t child = fork();
	GM_REQUIRE(child >= 0);
	if (child == 0) {
		/* Lives on when its parent is killed; goes when the test closes its end. */
		gm_say_word(channel, 'c');
		gm_hear_word(channel, 'w');
		/* The dead parent's memory is still here, and writable. */
		GM_REQUIRE(at[GM_CHUNK_MIN - 1] == PATTERN);
		memset(at, PATTERN + 1, GM_CHUNK_MIN);
		gm_say_word(channel, 'd');
		gm_hear_word(channel, 'e');
		_exit(0);
	}
	pause();
}

START_TEST(a_killed_client_is_gone_though_its_forked_child_keeps_the_socket_and_the_memory)
{
	struct gm_worker worker;
	gm_worker_start(&worker, hold_memory_with_a_child, &daemon_);
	gm_hear_word(worker.channel, 'c');
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).leased, CHUNKS * GM_CHUNK_MIN);
	GM_REQUIRE(kill(worker.pid, SIGKILL) == 0);
	/* Gone by its pidfd: the child holds the connection open. */
	GM_UNTIL(gm_figures_now(&daemon_).clients == 0);
	GM_UNTIL(gm_figures_now(&daemon_).leased == 0);
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).pooled, 0);
	/* On a GPU, what the child keeps is no longer the broker's, and still used. */
	if (gm_on_gpu())
		GM_UNTIL(gm_figures_now(&daemon_).foreign == CHUNKS * GM_CHUNK_MIN);
	/* The child writes into the old memory while a new client has all there is. */
	struct gm_raw raw;
	struct gm_raw_lease lease;
	gm_raw_join(&raw, &daemon_);
	GM_REQUIRE_EQ(gm_raw_lease(&raw, 0, gm_figures_now(&daemon_).available, &lease), GPUMEM_OK);
	gm_say_word(worker.channel, 'w');
	gm_hear_word(worker.channel, 'd');
	for (size_t i = 0; i < lease.n; i++)
		GM_REQUIRE_EQ(lseek(lease.chunks[i].fd, 0, SEEK_DATA), -1);
	gm_raw_lease_clear(&lease);
	GM_REQUIRE_EQ(gm_raw_goodbye(&raw), GPUMEM_OK);
	gm_raw_close(&raw);
	gm_say_word(worker.channel, 'e');
	int status;
	GM_REQUIRE(waitpid(worker.pid, &status, 0) == worker.pid);
	close(worker.channel);
}
END_TEST

/* The worker takes memory and becomes another program, which runs until the test lets it end. */
static void exec_with_memory(int channel, void *argument)
{
	struct gm_raw raw;
	struct gm_raw_lease lease;
	gm_raw_join(&raw, argument);
	GM_REQUIRE(mmap(NULL, sizeof(struct gm_page_client), PROT_READ | PROT_WRITE, MAP_SHARED,
			   raw.client_page, 0) != MAP_FAILED);
	take(&raw, &lease);
	GM_REQUIRE(gm_raw_map(&lease.chunks[0], true) != MAP_FAILED);
	GM_REQUIRE(dup2(channel, STDIN_FILENO) == STDIN_FILENO);
	GM_REQUIRE(dup2(channel, STDOUT_FILENO) == STDOUT_FILENO);
	gm_say_word(channel, 'x');
	execl("/bin/sh", "sh", "-c", "printf r; read -r line", NULL);
	GM_FAIL("exec: %s", strerror(errno));
}

START_TEST(exec_returns_the_memory_though_the_process_lives_on)
{
	struct gm_worker worker;
	char running;
	int status;
	gm_worker_start(&worker, exec_with_memory, &daemon_);
	gm_hear_word(worker.channel, 'x');
	GM_REQUIRE_EQ(read(worker.channel, &running, 1), 1);
	GM_REQUIRE_EQ(running, 'r');

	GM_UNTIL(gm_figures_now(&daemon_).clients == 0);
	GM_UNTIL(gm_figures_now(&daemon_).chunks == 0);
	struct gm_figures f = gm_figures_now(&daemon_);
	GM_REQUIRE_EQ(f.leased + f.quarantined + f.pooled, 0);
	GM_REQUIRE_EQ(f.quarantined_clients, 0);
	require_all_memory_zero();
	GM_REQUIRE_EQ(waitpid(worker.pid, &status, WNOHANG), 0);

	GM_REQUIRE_EQ(write(worker.channel, "\n", 1), 1);
	GM_REQUIRE(waitpid(worker.pid, &status, 0) == worker.pid);
	close(worker.channel);
}
END_TEST

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
		GM_REQUIRE(gm_raw_chunk_is(&again.chunks[i], PATTERN));
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
	int page = raw.client_page;
	gm_say_word(channel, 'g');
	while (!gm_raw_readable(channel)) {
		uint64_t session = raw.session;
		uint8_t token[GM_TOKEN_BYTES];

		memcpy(token, raw.token, sizeof(token));
		gm_raw_hang_up(&raw);
		GM_REQUIRE_EQ(resume(&raw, session, token, sizeof(token)), GPUMEM_OK);
		GM_REQUIRE(raw.resumed);
		close(page);
		page = raw.client_page;
	}
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
		gm_say_word(goers[i].channel, 'e');
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

/* ---- at random */

static void live_dangerously(int channel, void *argument)
{
	unsigned seed;
	gm_hear(channel, &seed, sizeof(seed));
	struct gm_raw raw;
	gm_raw_join(&raw, argument);
	gm_say_word(channel, 'r');
	struct gm_raw_lease leases[8] = {0};
	uint8_t token[GM_TOKEN_BYTES] = {0};
	for (;;) {
		size_t i = (size_t)rand_r(&seed) % 8;
		struct gm_raw_lease view;
		switch (rand_r(&seed) % 6) {
		case 0:
		case 1:
			if (!leases[i].id)
				gm_raw_lease(&raw, 0, 1 + (uint64_t)rand_r(&seed) % (16 << 20),
					&leases[i]);
			break;
		case 2:
			if (leases[i].id)
				gm_raw_grow(
					&raw, &leases[i], 1 + (uint64_t)rand_r(&seed) % (8 << 20));
			break;
		case 3:
			if (leases[i].id) {
				/* To return is to say that nothing of it is held here any more: on
				 * a GPU what is would be foreign. */
				uint64_t id = leases[i].id;
				gm_raw_lease_clear(&leases[i]);
				gm_raw_return(&raw, id, NULL, 0);
			}
			break;
		case 4:
			if (leases[i].id)
				gm_raw_share(&raw, leases[i].id,
					GM__WIRE__AUDIENCE__AUDIENCE_DOMAIN, 0, rand_r(&seed) & 1,
					token);
			break;
		case 5:
			if (gm_raw_open(&raw, token, &view) == GPUMEM_OK) {
				uint64_t id = view.id;
				gm_raw_lease_clear(&view);
				if (rand_r(&seed) & 1)
					gm_raw_return(&raw, id, NULL, 0);
			}
			break;
		}
	}
}

START_TEST(workers_killed_at_any_point_leave_nothing_behind)
{
	enum { WORKERS = 4, KILLS = 60 };
	struct gm_worker workers[WORKERS];
	unsigned seed = 99;
	for (int i = 0; i < WORKERS; i++) {
		unsigned s = (unsigned)rand_r(&seed);
		gm_worker_start(&workers[i], live_dangerously, &daemon_);
		gm_say(workers[i].channel, &s, sizeof(s));
		gm_hear_word(workers[i].channel, 'r');
	}
	for (int kills = 0; kills < KILLS; kills++) {
		/* A few questions asked meanwhile make for a random point to kill at. */
		for (int n = rand_r(&seed) % 12; n >= 0; n--) {
			struct gm_figures f = gm_figures_now(&daemon_);
			GM_REQUIRE(f.leased + f.quarantined + f.admitted <= f.ceiling);
			GM_REQUIRE(f.leased + f.quarantined + f.admitted + f.pooled <= f.ceiling);
		}
		struct gm_worker *w = &workers[rand_r(&seed) % WORKERS];
		gm_worker_kill(w);
		unsigned s = (unsigned)rand_r(&seed);
		gm_worker_start(w, live_dangerously, &daemon_);
		gm_say(w->channel, &s, sizeof(s));
		gm_hear_word(w->channel, 'r');
	}
	for (int i = 0; i < WORKERS; i++)
		gm_worker_kill(&workers[i]);
	GM_UNTIL(gm_figures_now(&daemon_).clients == 0);
	GM_UNTIL(gm_figures_now(&daemon_).leased == 0);
	GM_UNTIL(gm_figures_now(&daemon_).admitted == 0);
	struct gm_figures f = gm_figures_now(&daemon_);
	GM_REQUIRE_EQ(f.quarantined, 0);
	GM_REQUIRE_EQ(f.leases, 0);
	GM_REQUIRE_EQ(f.quarantined_clients, 0);
	GM_REQUIRE_EQ(f.available, f.ceiling);
	GM_REQUIRE(f.pooled <= f.ceiling);
	/* All of it can be had. */
	struct gm_raw raw;
	struct gm_raw_lease lease;
	gm_raw_join(&raw, &daemon_);
	GM_REQUIRE_EQ(gm_raw_lease(&raw, 0, f.available, &lease), GPUMEM_OK);
	GM_REQUIRE_EQ(lease.bytes, f.available);
	gm_raw_lease_clear(&lease);
	gm_raw_close(&raw);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("life");
	TCase *tc = tcase_create("life");
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_set_timeout(tc, 180);
	tcase_add_test(tc, what_is_returned_is_pooled_and_given_out_again);
	tcase_add_test(tc, a_goodbye_gives_everything_back_to_the_pool);
	tcase_add_test(tc, memory_of_a_client_off_the_socket_stays_charged_while_its_process_lives);
	tcase_add_test(tc, a_client_may_not_have_what_is_quarantined);
	tcase_add_test(tc, memory_of_a_killed_client_comes_back_and_is_never_reused);
	tcase_add_test(tc, memory_of_a_client_that_just_exits_comes_back);
	tcase_add_test(tc,
		a_killed_client_is_gone_though_its_forked_child_keeps_the_socket_and_the_memory);
	tcase_add_test(tc, exec_returns_the_memory_though_the_process_lives_on);
	tcase_add_test(tc, clients_that_come_and_go_do_not_put_off_the_end_of_one_that_called_exec);
	tcase_add_test(tc, a_session_goes_on_with_its_token_and_its_leases);
	tcase_add_test(tc, a_client_that_is_back_before_its_end_was_seen_takes_its_session_over);
	tcase_add_test(tc, a_session_that_goes_on_keeps_the_name_that_its_limits_go_by);
	tcase_add_test(tc, a_session_does_not_go_on_with_a_wrong_or_old_token);
	tcase_add_test(tc, a_session_is_not_taken_up_by_another_process_with_the_right_token);
	tcase_add_test(tc, replies_and_events_carry_one_rising_sequence_and_one_generation);
	tcase_add_test(tc, workers_killed_at_any_point_leave_nothing_behind);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
