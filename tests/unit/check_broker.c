/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The daemon as a whole, as its own process, over its own socket: what a client gets, what becomes
 * of its memory, and what the daemon does when it is told to start, reload and stop. Its readiness
 * is waited for as a service manager does.
 */

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/page.h"
#include "tests/limit.h"
#include "tests/tap.h"
#include "tests/unit/wire_client.h"

#define MIB UINT64_C(0x100000)

static char folder[64], path[96], conf[96], gate[96];
static pid_t daemon_pid;
static int notify = -1;
static const char *const plain =
	"[gpumemd]\nbackend = host\nfraction = 1\nmin_free = 0\nreserve = 0\nmax_pool = 100%\n"
	"host_limit = 0\n[device 0]\nsize = 256M\n";

static void write_file(const char *name, const char *text)
{
	FILE *out = fopen(name, "w");
	ck_assert_ptr_nonnull(out);
	ck_assert_int_ge(fputs(text, out), 0);
	ck_assert_int_eq(fclose(out), 0);
}

static void setup(void)
{
	strcpy(folder, "/tmp/gpumem-broker-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/socket", folder);
	snprintf(conf, sizeof(conf), "%s/conf", folder);
	snprintf(gate, sizeof(gate), "%s/gate", folder);
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	snprintf(address.sun_path, sizeof(address.sun_path), "%s/notify", folder);
	notify = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(notify, (struct sockaddr *)&address, sizeof(address)), 0);
	setenv("NOTIFY_SOCKET", address.sun_path, 1);
}

/* Waits until the daemon tells its manager that. */
static void wait_for(const char *word)
{
	char text[512];
	do {
		ssize_t n = recv(notify, text, sizeof(text) - 1, 0);
		ck_assert_int_gt(n, 0);
		text[n] = '\0';
	} while (!strstr(text, word));
}

static pid_t spawn(const char *stderr_to, rlim_t fds)
{
	const char *build = getenv("top_builddir");
	char program[4096];
	snprintf(program, sizeof(program), "%s/daemon/gpumemd", build ? build : ".");
	pid_t child = fork();
	if (child == 0) {
		const struct rlimit few = {fds, fds};
		int to = open(stderr_to, O_WRONLY | O_CREAT | O_TRUNC, 0600);
		if (to < 0 || dup2(to, STDERR_FILENO) < 0)
			_exit(99);
		if (fds && setrlimit(RLIMIT_NOFILE, &few) < 0)
			_exit(99);
		execl(program, program, "--config", conf, "--socket", path, "-v", (char *)NULL);
		_exit(99);
	}
	return child;
}

static void start_with(const char *text, rlim_t fds)
{
	char log[96];
	snprintf(log, sizeof(log), "%s/log", folder);
	write_file(conf, text);
	daemon_pid = spawn(log, fds);
	wait_for("READY=1");
}

static void start(void)
{
	start_with(plain, 0);
}

static bool log_says(const char *what)
{
	char log[96], text[65536];
	snprintf(log, sizeof(log), "%s/log", folder);
	FILE *in = fopen(log, "r");
	ck_assert_ptr_nonnull(in);
	size_t n = fread(text, 1, sizeof(text) - 1, in);
	fclose(in);
	text[n] = '\0';
	return strstr(text, what);
}

/* Ends as it was told to; under a sanitizer that also means that nothing was left. */
static void stop(void)
{
	int status;
	ck_assert_int_eq(kill(daemon_pid, SIGTERM), 0);
	ck_assert_int_eq(waitpid(daemon_pid, &status, 0), daemon_pid);
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", status);
	ck_assert_int_eq(access(path, F_OK), -1);
	daemon_pid = 0;
}

static void teardown(void)
{
	static const char *const names[] = {
		"socket", "socket.lock", "conf", "log", "log2", "notify", "generation", "gate"};
	if (daemon_pid)
		stop();
	close(notify);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		char name[96];
		snprintf(name, sizeof(name), "%s/%s", folder, names[i]);
		unlink(name);
	}
	ck_assert_int_eq(rmdir(folder), 0);
}

/* Round trips until the device's figures are so: nobody sleeps, the daemon answers each. */
static void wait_until_charged(struct wire_client *observer, uint64_t leased, uint64_t quarantined)
{
	for (;;) {
		const Gm__Wire__Device *device = wire_status(observer)->devices[0];
		if (device->leased == leased && device->quarantined == quarantined)
			return;
	}
}

START_TEST(a_client_gets_memory_that_it_can_map_and_gives_it_back)
{
	start();
	struct wire_client *client = wire_join(path, false);
	ck_assert_uint_ne(client->session, 0);
	ck_assert_int_ge(client->client_page, 0);
	const struct gm_page_daemon *page =
		mmap(NULL, sizeof(*page), PROT_READ, MAP_SHARED, client->daemon_page, 0);
	ck_assert_ptr_ne(page, MAP_FAILED);
	ck_assert_uint_eq(page->header.session, client->session);
	ck_assert_uint_eq(page->devices[0].total, 256 * MIB);

	wire_send_lease(client, 0, 3 * MIB);
	Gm__Wire__Packet *answer = wire_receive(client);
	ck_assert_int_eq(answer->body_case, GM__WIRE__PACKET__BODY_LEASE_REPLY);
	const Gm__Wire__LeaseReply *reply = answer->lease_reply;
	uint64_t lease = reply->lease, sum = 0;
	ck_assert_uint_eq(reply->bytes, 4 * MIB);
	ck_assert_uint_eq(reply->user_bytes, 3 * MIB);
	ck_assert_uint_eq(client->in.fds.n, reply->n_chunks);
	ck_assert_uint_eq(answer->fds, reply->n_chunks);
	for (size_t i = 0; i < reply->n_chunks; i++) {
		struct stat st;
		ck_assert_int_eq(fstat(client->in.fds.fds[i], &st), 0);
		ck_assert_uint_eq((uint64_t)st.st_size, reply->chunks[i]->bytes);
		ck_assert_int_eq(ftruncate(client->in.fds.fds[i], 0), -1);
		sum += reply->chunks[i]->bytes;
	}
	ck_assert_uint_eq(sum, 4 * MIB);
	ck_assert_uint_eq(page->devices[0].held, 4 * MIB); /* at once */
	char *at =
		mmap(NULL, 2 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, client->in.fds.fds[0], 0);
	ck_assert_ptr_ne(at, MAP_FAILED);
	at[0] = 'x';
	munmap(at, 2 * MIB);

	answer = wire_return(client, lease);
	ck_assert_int_eq(answer->body_case, GM__WIRE__PACKET__BODY_DONE);
	ck_assert_uint_eq(page->devices[0].held, 0);
	wire_expect_failure(wire_return(client, lease), GPUMEM_E_NOT_FOUND);
	ck_assert_uint_eq(wire_status(client)->devices[0]->pooled, 4 * MIB);
	munmap((void *)page, sizeof(*page));
	wire_close(client);
}
END_TEST

START_TEST(what_is_asked_wrongly_is_answered_and_changes_nothing)
{
	start();
	struct wire_client *client = wire_join(path, false), *other = wire_join(path, false);
	static const uint64_t sizes[] = {0, UINT64_C(1) << 63, UINT64_MAX, (UINT64_C(1) << 46) + 1};
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		wire_send_lease(client, 0, sizes[i]);
		wire_expect_failure(wire_receive(client), GPUMEM_E_INVALID);
	}
	wire_send_lease(client, 1, MIB);
	wire_expect_failure(wire_receive(client), GPUMEM_E_NOT_FOUND);
	wire_send_lease(client, 0, 257 * MIB);
	wire_expect_failure(wire_receive(client), GPUMEM_E_NO_MEMORY);
	wire_expect_failure(wire_return(client, 4711), GPUMEM_E_NOT_FOUND);
	uint64_t lease = wire_lease(client, MIB);
	wire_expect_failure(wire_return(other, lease), GPUMEM_E_NOT_FOUND);

	Gm__Wire__Lease body = GM__WIRE__LEASE__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	packet.body_case = GM__WIRE__PACKET__BODY_LEASE;
	packet.lease = &body;
	body.bytes = MIB;
	body.transport = GM__WIRE__TRANSPORT__TRANSPORT_IPC;
	wire_expect_failure(wire_call(client, &packet), GPUMEM_E_UNSUPPORTED);
	body.transport = (Gm__Wire__Transport)77;
	wire_expect_failure(wire_call(client, &packet), GPUMEM_E_INVALID);
	body.transport = GM__WIRE__TRANSPORT__TRANSPORT_AUTO;
	body.tag = (char *)"bell\a";
	wire_expect_failure(wire_call(client, &packet), GPUMEM_E_INVALID);
	ck_assert_uint_eq(wire_status(client)->leases, 1);
	wire_close(client);
	wire_close(other);
}
END_TEST

START_TEST(the_hello_comes_first_once_and_in_the_same_major)
{
	start();
	struct wire_client *client = wire_connect(path);
	wire_send_lease(client, 0, MIB);
	wire_expect_failure(wire_receive(client), GPUMEM_E_PROTOCOL);
	ck_assert_ptr_null(wire_receive(client));
	wire_close(client);

	client = wire_connect(path);
	Gm__Wire__Hello hello = GM__WIRE__HELLO__INIT;
	hello.major = GM_WIRE_MAJOR + 1;
	wire_expect_failure(wire_hello_as(client, &hello), GPUMEM_E_VERSION);
	ck_assert_ptr_null(wire_receive(client));
	wire_close(client);

	client = wire_connect(path);
	hello.major = GM_WIRE_MAJOR;
	hello.minor = GM_WIRE_MINOR + 100; /* a newer minor is fine */
	ck_assert_int_eq(
		wire_hello_as(client, &hello)->body_case, GM__WIRE__PACKET__BODY_HELLO_REPLY);
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	packet.body_case = GM__WIRE__PACKET__BODY_HELLO;
	packet.hello = &hello;
	wire_expect_failure(wire_call(client, &packet), GPUMEM_E_PROTOCOL);
	wire_close(client);

	GM_LIMIT_TEST(NAME_BYTES);
	char name[GM_LIMIT_NAME_BYTES + 2];
	memset(name, 'n', sizeof(name));
	name[GM_LIMIT_NAME_BYTES + 1] = '\0';
	client = wire_connect(path);
	hello.name = name;
	wire_expect_failure(wire_hello_as(client, &hello), GPUMEM_E_INVALID);
	wire_close(client);
}
END_TEST

START_TEST(an_observer_sees_and_holds_nothing)
{
	start();
	struct wire_client *observer = wire_join(path, true);
	ck_assert_uint_eq(observer->session, 0);
	ck_assert_int_eq(observer->events, -1);
	ck_assert_uint_eq(wire_status(observer)->clients, 0);
	wire_send_lease(observer, 0, MIB);
	wire_expect_failure(wire_receive(observer), GPUMEM_E_DENIED);
	wire_close(observer);
}
END_TEST

START_TEST(a_goodbye_gives_everything_back_to_the_pool)
{
	start();
	struct wire_client *client = wire_join(path, false), *observer = wire_join(path, true);
	wire_lease(client, 8 * MIB);
	Gm__Wire__Goodbye body = GM__WIRE__GOODBYE__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	packet.body_case = GM__WIRE__PACKET__BODY_GOODBYE;
	packet.goodbye = &body;
	ck_assert_int_eq(wire_call(client, &packet)->body_case, GM__WIRE__PACKET__BODY_DONE);
	Gm__Wire__StatusReply *status = wire_status(observer);
	ck_assert_uint_eq(status->clients, 0);
	ck_assert_uint_eq(status->devices[0]->leased, 0);
	ck_assert_uint_eq(status->devices[0]->pooled, 8 * MIB);
	wire_send_lease(client, 0, MIB);
	wire_expect_failure(wire_receive(client), GPUMEM_E_DENIED);
	wire_close(client);
	wire_close(observer);
}
END_TEST

/* A worker that holds 8 MiB and waits; its forked child, if wanted, keeps a copy of its socket. */
static pid_t worker(bool with_child, int *ret_child_alive)
{
	int ready[2], alive[2];
	ck_assert_int_eq(pipe2(ready, O_CLOEXEC), 0);
	ck_assert_int_eq(pipe2(alive, O_CLOEXEC), 0);
	pid_t pid = fork();
	if (pid == 0) {
		struct wire_client *client = wire_join(path, false);
		wire_lease(client, 8 * MIB);
		if (with_child && fork() == 0) {
			char byte;
			close(alive[1]);
			_exit(read(alive[0], &byte, 1) == 0 ? 0 : 1);
		}
		if (write(ready[1], "r", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	char byte;
	ck_assert_int_eq(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	close(ready[1]);
	close(alive[0]);
	*ret_child_alive = alive[1];
	return pid;
}

static void check_killed(bool with_child)
{
	int child_alive;
	start();
	struct wire_client *observer = wire_join(path, true);
	pid_t pid = worker(with_child, &child_alive);
	wait_until_charged(observer, 8 * MIB, 0);
	ck_assert_int_eq(kill(pid, SIGKILL), 0);
	wait_until_charged(observer, 0, 0);
	Gm__Wire__StatusReply *status = wire_status(observer);
	ck_assert_uint_eq(status->clients, 0);
	ck_assert_uint_eq(status->devices[0]->pooled, 0); /* released, never reused */
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	close(child_alive);
	wire_close(observer);
}

START_TEST(a_killed_clients_memory_is_released)
{
	check_killed(false);
}
END_TEST

START_TEST(a_killed_client_is_gone_though_its_forked_child_keeps_the_socket)
{
	check_killed(true);
}
END_TEST

static Gm__Wire__Packet *take_up(
	struct wire_client *client, uint64_t session, const uint8_t *token, size_t n)
{
	Gm__Wire__Hello hello = GM__WIRE__HELLO__INIT;
	hello.major = GM_WIRE_MAJOR;
	hello.session = session;
	hello.token.data = (uint8_t *)token;
	hello.token.len = n;
	return wire_hello_as(client, &hello);
}

START_TEST(a_client_off_the_socket_is_quarantined_and_comes_back_with_its_token)
{
	start();
	struct wire_client *observer = wire_join(path, true), *client = wire_join(path, false);
	uint64_t lease = wire_lease(client, 8 * MIB), session = client->session;
	uint8_t token[GM_TOKEN_BYTES], wrong[GM_TOKEN_BYTES] = {0};
	memcpy(token, client->token, sizeof(token));
	wire_close(client);
	wait_until_charged(observer, 0, 8 * MIB);
	ck_assert_uint_eq(wire_status(observer)->quarantined_clients, 1);

	client = wire_connect(path);
	wire_expect_failure(take_up(client, session, wrong, sizeof(wrong)), GPUMEM_E_DENIED);
	wire_close(client);
	client = wire_connect(path);
	wire_expect_failure(take_up(client, session, token, 3), GPUMEM_E_INVALID);
	wire_close(client);
	/* Another process does not get it, token or not. */
	pid_t pid = fork();
	if (pid == 0) {
		struct wire_client *thief = wire_connect(path);
		Gm__Wire__Packet *answer = take_up(thief, session, token, sizeof(token));
		_exit(answer && answer->body_case == GM__WIRE__PACKET__BODY_FAILURE ? 0 : 1);
	}
	int status;
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);

	client = wire_connect(path);
	Gm__Wire__Packet *answer = take_up(client, session, token, sizeof(token));
	ck_assert_int_eq(answer->body_case, GM__WIRE__PACKET__BODY_HELLO_REPLY);
	ck_assert(answer->hello_reply->resumed);
	ck_assert_uint_eq(answer->hello_reply->session, session);
	ck_assert_uint_eq(answer->hello_reply->n_leases, 1);
	ck_assert_uint_eq(answer->hello_reply->leases[0], lease);
	ck_assert_int_ge(client->client_page, 0);
	wait_until_charged(observer, 8 * MIB, 0);
	/* Once more, before the daemon can have seen the end of the connection. */
	memcpy(token, client->token, sizeof(token));
	struct wire_client *again = wire_connect(path);
	answer = take_up(again, session, token, sizeof(token));
	ck_assert_int_eq(answer->body_case, GM__WIRE__PACKET__BODY_HELLO_REPLY);
	ck_assert(answer->hello_reply->resumed);
	ck_assert_int_eq(wire_return(again, lease)->body_case, GM__WIRE__PACKET__BODY_DONE);
	wait_until_charged(observer, 0, 0);
	ck_assert_ptr_null(wire_receive(client));
	wire_close(client);
	wire_close(again);
	/* Nothing left: it ends with its connection, and cannot be taken up. */
	while (wire_status(observer)->clients)
		;
	client = wire_connect(path);
	answer = take_up(client, session, token, sizeof(token));
	ck_assert_int_eq(answer->body_case, GM__WIRE__PACKET__BODY_HELLO_REPLY);
	ck_assert(!answer->hello_reply->resumed);
	ck_assert_uint_ne(client->session, session);
	wire_close(client);
	wire_close(observer);
}
END_TEST

START_TEST(a_quarantined_client_that_dies_is_released)
{
	start();
	struct wire_client *observer = wire_join(path, true);
	int hold[2];
	ck_assert_int_eq(pipe2(hold, O_CLOEXEC), 0);
	pid_t pid = fork();
	if (pid == 0) {
		char byte;
		struct wire_client *client = wire_join(path, false);
		wire_lease(client, 8 * MIB);
		wire_close(client);
		close(hold[1]);
		_exit(read(hold[0], &byte, 1) == 0 ? 0 : 1);
	}
	wait_until_charged(observer, 0, 8 * MIB);
	close(hold[1]);
	wait_until_charged(observer, 0, 0);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	close(hold[0]);
	wire_close(observer);
}
END_TEST

START_TEST(a_pool_hit_is_answered_while_the_backend_is_busy_with_a_miss)
{
	ck_assert_int_eq(mkfifo(gate, 0600), 0);
	setenv("GPUMEM_TEST_HOST_GATE", gate, 1);
	start();
	int door = open(gate, O_RDWR | O_CLOEXEC);
	ck_assert_int_eq(write(door, "1", 1), 1);
	struct wire_client *client = wire_join(path, false), *other = wire_join(path, false);
	wire_return(client, wire_lease(client, 2 * MIB));
	/* So large that the pooled chunk is too small to be part of it. */
	uint64_t miss = wire_send_lease(client, 0, 160 * MIB);
	uint64_t hit = wire_send_lease(client, 0, 2 * MIB);
	Gm__Wire__Packet *answer = wire_receive(client);
	ck_assert_uint_eq(answer->id, hit);
	ck_assert_int_eq(answer->body_case, GM__WIRE__PACKET__BODY_LEASE_REPLY);
	ck_assert_uint_eq(wire_status(other)->devices[0]->admitted, 160 * MIB);
	/* A client that leaves takes its waiting request along. */
	wire_send_lease(other, 0, 32 * MIB);
	ck_assert_uint_eq(wire_status(client)->devices[0]->admitted, 192 * MIB);
	wire_close(other);
	while (wire_status(client)->clients > 1)
		;
	ck_assert_int_eq(write(door, "22222222222222222222222222222222", 32), 32);
	answer = wire_receive(client);
	ck_assert_uint_eq(answer->id, miss);
	ck_assert_int_eq(answer->body_case, GM__WIRE__PACKET__BODY_LEASE_REPLY);
	wait_until_charged(client, 162 * MIB, 0);
	wire_close(client);
	close(door);
}
END_TEST

START_TEST(a_daemon_whose_backend_is_stuck_still_ends)
{
	ck_assert_int_eq(mkfifo(gate, 0600), 0);
	setenv("GPUMEM_TEST_HOST_GATE", gate, 1);
	start();
	struct wire_client *client = wire_join(path, false);
	wire_send_lease(client, 0, 2 * MIB);
	while (wire_status(client)->devices[0]->admitted == 0)
		;
	stop();
	wire_close(client);
}
END_TEST

START_TEST(a_creation_that_fails_is_answered_and_the_next_one_works)
{
	setenv("GPUMEM_TEST_HOST_FAIL", "1+", 1);
	start();
	struct wire_client *client = wire_join(path, false);
	wire_send_lease(client, 0, 2 * MIB);
	wire_expect_failure(wire_receive(client), GPUMEM_E_NO_MEMORY);
	ck_assert_uint_eq(wire_status(client)->devices[0]->admitted, 0);
	wire_close(client);
}
END_TEST

START_TEST(a_long_lease_comes_in_several_packets_and_can_be_asked_for_again)
{
	start();
	struct wire_client *client = wire_join(path, false);
	uint64_t lease = wire_lease(client, 2 * MIB);
	for (int i = 1; i < GM_LIMIT_PACKET_FDS + 6; i++) {
		Gm__Wire__Grow grow = GM__WIRE__GROW__INIT;
		Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
		grow.lease = lease;
		grow.bytes = 2 * MIB;
		packet.body_case = GM__WIRE__PACKET__BODY_GROW;
		packet.grow = &grow;
		Gm__Wire__Packet *answer = wire_call(client, &packet);
		ck_assert_int_eq(answer->body_case, GM__WIRE__PACKET__BODY_LEASE_REPLY);
		ck_assert_uint_eq(answer->lease_reply->n_chunks, 1);
		ck_assert_uint_eq(answer->lease_reply->chunks[0]->index, (uint64_t)i);
	}
	for (int round = 0; round < 3; round++) {
		Gm__Wire__GetHandles body = GM__WIRE__GET_HANDLES__INIT;
		Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
		uint64_t next = 0;
		body.lease = lease;
		packet.body_case = GM__WIRE__PACKET__BODY_GET_HANDLES;
		packet.get_handles = &body;
		Gm__Wire__Packet *answer = wire_call(client, &packet);
		for (;;) {
			ck_assert_int_eq(answer->body_case, GM__WIRE__PACKET__BODY_LEASE_REPLY);
			ck_assert_uint_le(client->in.fds.n, GM_LIMIT_PACKET_FDS);
			ck_assert_uint_eq(client->in.fds.n, answer->lease_reply->n_chunks);
			for (size_t i = 0; i < answer->lease_reply->n_chunks; i++)
				ck_assert_uint_eq(answer->lease_reply->chunks[i]->index, next++);
			if (!answer->more)
				break;
			answer = wire_receive(client);
		}
		ck_assert_uint_eq(next, GM_LIMIT_PACKET_FDS + 6);
	}
	wire_close(client);
}
END_TEST

START_TEST(a_read_only_share_cannot_be_written)
{
	start();
	struct wire_client *maker = wire_join(path, false), *opener = wire_join(path, false);
	uint64_t lease = wire_lease(maker, 2 * MIB);
	Gm__Wire__Share share = GM__WIRE__SHARE__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	share.lease = lease;
	share.read_only = true;
	packet.body_case = GM__WIRE__PACKET__BODY_SHARE;
	packet.share = &share;
	Gm__Wire__Packet *answer = wire_call(maker, &packet);
	ck_assert_int_eq(answer->body_case, GM__WIRE__PACKET__BODY_SHARE_REPLY);
	uint8_t token[GM_TOKEN_BYTES];
	memcpy(token, answer->share_reply->token.data, sizeof(token));

	Gm__Wire__Open body = GM__WIRE__OPEN__INIT;
	packet.body_case = GM__WIRE__PACKET__BODY_OPEN;
	packet.open = &body;
	body.token.data = token;
	body.token.len = 5;
	wire_expect_failure(wire_call(opener, &packet), GPUMEM_E_INVALID);
	body.token.len = sizeof(token);
	token[0] ^= 1;
	wire_expect_failure(wire_call(opener, &packet), GPUMEM_E_NOT_FOUND);
	token[0] ^= 1;
	answer = wire_call(opener, &packet);
	ck_assert_int_eq(answer->body_case, GM__WIRE__PACKET__BODY_LEASE_REPLY);
	ck_assert(answer->lease_reply->read_only);
	ck_assert_uint_eq(opener->in.fds.n, 1);
	int fd = opener->in.fds.fds[0];
	void *at = mmap(NULL, 2 * MIB, PROT_READ, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(at, MAP_FAILED);
	ck_assert_ptr_eq(mmap(NULL, 2 * MIB, PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
	munmap(at, 2 * MIB);
	wire_close(maker);
	wire_close(opener);
}
END_TEST

START_TEST(more_connections_than_a_user_may_have_are_refused_with_a_reason)
{
	char text[512];
	snprintf(text, sizeof(text), "[gpumemd]\nconnections_per_uid = 3\n%s",
		plain + strlen("[gpumemd]\n"));
	start_with(text, 0);
	struct wire_client *clients[3];
	for (int i = 0; i < 3; i++)
		clients[i] = wire_join(path, true);
	struct wire_client *extra = wire_connect(path);
	wire_expect_failure(wire_receive(extra), GPUMEM_E_LIMIT);
	ck_assert_ptr_null(wire_receive(extra));
	wire_close(extra);
	wire_status(clients[2]); /* nobody else is disturbed */
	wire_close(clients[0]);
	/* Its place is free once the daemon has seen it leave. */
	for (;;) {
		Gm__Wire__Hello hello = GM__WIRE__HELLO__INIT;
		hello.major = GM_WIRE_MAJOR;
		hello.observer = true;
		extra = wire_connect(path);
		Gm__Wire__Packet *answer = wire_hello_as(extra, &hello);
		bool in = answer && answer->body_case == GM__WIRE__PACKET__BODY_HELLO_REPLY;
		wire_close(extra);
		if (in)
			break;
	}
	wire_close(clients[1]);
	wire_close(clients[2]);
}
END_TEST

START_TEST(a_daemon_without_file_descriptors_says_so_and_lives_on)
{
	enum { MOST = 64 };
	start_with(plain, 48);
	struct wire_client *clients[MOST], *last = NULL;
	int n = 0;
	for (; n < MOST; n++) {
		Gm__Wire__Hello hello = GM__WIRE__HELLO__INIT;
		hello.major = GM_WIRE_MAJOR;
		clients[n] = wire_connect(path);
		Gm__Wire__Packet *answer = wire_hello_as(clients[n], &hello);
		ck_assert_ptr_nonnull(answer);
		if (answer->body_case == GM__WIRE__PACKET__BODY_FAILURE) {
			last = clients[n];
			ck_assert_uint_eq(answer->failure->status, GPUMEM_E_LIMIT);
			break;
		}
	}
	ck_assert_ptr_nonnull(last);
	ck_assert_int_gt(n, 3);
	/* Those inside go on; a lease may find no descriptor and is told so. */
	wire_status(clients[0]);
	uint64_t got = 0;
	Gm__Wire__Packet *answer;
	do {
		wire_send_lease(clients[0], 0, 2 * MIB);
		answer = wire_receive(clients[0]);
		ck_assert_ptr_nonnull(answer);
	} while (answer->body_case == GM__WIRE__PACKET__BODY_LEASE_REPLY && ++got < 64);
	ck_assert_int_eq(answer->body_case, GM__WIRE__PACKET__BODY_FAILURE);
	ck_assert(strlen(answer->failure->detail) > 0);
	for (int i = 1; i <= n; i++)
		wire_close(clients[i]);
	while (wire_status(clients[0])->clients > 1)
		;
	struct wire_client *after = wire_join(path, false);
	wire_lease(after, 2 * MIB);
	wire_close(after);
	wire_close(clients[0]);
}
END_TEST

START_TEST(a_socket_of_a_live_daemon_is_left_alone_and_a_dead_ones_taken_over)
{
	char second[96], text[4096];
	snprintf(second, sizeof(second), "%s/log2", folder);
	start();
	pid_t other = spawn(second, 0);
	int status;
	ck_assert_int_eq(waitpid(other, &status, 0), other);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1);
	FILE *in = fopen(second, "r");
	size_t n = fread(text, 1, sizeof(text) - 1, in);
	text[n] = '\0';
	fclose(in);
	ck_assert_ptr_nonnull(strstr(text, "already listens"));
	ck_assert_ptr_nonnull(strstr(text, path));
	struct wire_client *client = wire_join(path, false);
	uint64_t before = client->session;
	wire_close(client);

	ck_assert_int_eq(kill(daemon_pid, SIGKILL), 0);
	ck_assert_int_eq(waitpid(daemon_pid, NULL, 0), daemon_pid);
	ck_assert_int_eq(access(path, F_OK), 0);
	start();
	client = wire_join(path, false);
	ck_assert_uint_gt(client->session >> 32, before >> 32);
	wire_close(client);
}
END_TEST

START_TEST(what_is_in_the_way_and_no_socket_is_left_alone)
{
	char log[96];
	int status;
	snprintf(log, sizeof(log), "%s/log", folder);
	write_file(conf, plain);
	write_file(path, "precious\n");
	pid_t pid = spawn(log, 0);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1);
	ck_assert(log_says("no socket"));
	ck_assert_int_eq(access(path, F_OK), 0);
}
END_TEST

START_TEST(a_socket_path_that_is_too_long_is_refused)
{
	GM_LIMIT_TEST(SOCKET_PATH_BYTES);
	char log[96], before[96];
	int status;
	strcpy(before, path);
	snprintf(log, sizeof(log), "%s/log", folder);
	write_file(conf, plain);
	static char longer[GM_LIMIT_SOCKET_PATH_BYTES + 2];
	memset(longer, 'x', GM_LIMIT_SOCKET_PATH_BYTES + 1);
	memcpy(longer, "/tmp/", 5);
	const char *build = getenv("top_builddir");
	char program[4096];
	snprintf(program, sizeof(program), "%s/daemon/gpumemd", build ? build : ".");
	pid_t pid = fork();
	if (pid == 0) {
		int to = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
		dup2(to, STDERR_FILENO);
		execl(program, program, "--config", conf, "--socket", longer, (char *)NULL);
		_exit(99);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1);
	ck_assert(log_says("108 bytes long"));
}
END_TEST

START_TEST(a_reload_takes_a_good_configuration_and_keeps_the_old_one_over_a_bad_one)
{
	start();
	struct wire_client *client = wire_join(path, false);
	ck_assert_uint_eq(wire_status(client)->devices[0]->capacity, 256 * MIB);
	write_file(conf, "[gpumemd]\nbackend = host\nfraction = 0.5\nmin_free = 0\nreserve = 0\n"
			 "[device 0]\nsize = 512M\n");
	ck_assert_int_eq(kill(daemon_pid, SIGHUP), 0);
	wait_for("RELOADING=1");
	wait_for("READY=1");
	ck_assert_uint_eq(wire_status(client)->devices[0]->capacity, 128 * MIB);
	ck_assert(log_says("need a restart"));
	write_file(conf, "[gpumemd]\nfracture = 0.1\n");
	ck_assert_int_eq(kill(daemon_pid, SIGHUP), 0);
	wait_for("RELOADING=1");
	wait_for("READY=1");
	ck_assert_uint_eq(wire_status(client)->devices[0]->capacity, 128 * MIB);
	ck_assert(log_says("fracture"));
	ck_assert(log_says("stays as it was"));
	wire_close(client);
}
END_TEST

START_TEST(a_daemon_that_is_told_to_stop_says_goodbye_and_ends_with_0)
{
	start();
	struct wire_client *client = wire_join(path, false), *observer = wire_join(path, true);
	wire_lease(client, 8 * MIB);
	ck_assert_int_eq(kill(daemon_pid, SIGTERM), 0);
	wait_for("STOPPING=1");
	Gm__Wire__Packet *event = wire_receive_from(client, client->events);
	ck_assert_ptr_nonnull(event);
	ck_assert_uint_eq(event->id, 0);
	ck_assert_int_eq(event->body_case, GM__WIRE__PACKET__BODY_GOODBYE_EVENT);
	ck_assert(strlen(event->goodbye_event->reason) > 0);
	ck_assert_ptr_null(wire_receive_from(client, client->events));
	ck_assert_ptr_null(wire_receive(client));
	ck_assert_ptr_null(wire_receive(observer));
	int status;
	ck_assert_int_eq(waitpid(daemon_pid, &status, 0), daemon_pid);
	ck_assert_int_eq(status, 0);
	daemon_pid = 0;
	ck_assert_int_eq(access(path, F_OK), -1);
	wire_close(client);
	wire_close(observer);
}
END_TEST

START_TEST(a_trim_asks_holders_for_what_they_cache_and_events_merge)
{
	start();
	struct wire_client *client = wire_join(path, false), *observer = wire_join(path, true);
	wire_lease(client, 8 * MIB);
	wire_return(client, wire_lease(client, 2 * MIB));
	Gm__Wire__Trim body = GM__WIRE__TRIM__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	body.all_devices = true;
	packet.body_case = GM__WIRE__PACKET__BODY_TRIM;
	packet.trim = &body;
	Gm__Wire__Packet *answer = wire_call(observer, &packet);
	ck_assert_int_eq(answer->body_case, GM__WIRE__PACKET__BODY_TRIM_REPLY);
	ck_assert_uint_eq(answer->trim_reply->released, 2 * MIB);
	ck_assert_uint_eq(answer->trim_reply->clients_asked, 1);
	Gm__Wire__Packet *event = wire_receive_from(client, client->events);
	ck_assert_int_eq(event->body_case, GM__WIRE__PACKET__BODY_RECLAIM_EVENT);
	uint64_t epoch = event->reclaim_event->epoch;
	/* Far more events than the socket takes, to a client that does not read them. */
	for (int i = 0; i < 3000; i++)
		ck_assert_ptr_nonnull(wire_call(observer, &packet));
	ck_assert_uint_eq(wire_status(client)->clients, 1);
	uint64_t last = epoch, n = 0;
	while (last < epoch + 3000) {
		event = wire_receive_from(client, client->events);
		ck_assert_ptr_nonnull(event);
		ck_assert_uint_gt(event->reclaim_event->epoch, last);
		last = event->reclaim_event->epoch;
		n++;
	}
	ck_assert_uint_lt(n, 3000);
	body.all_devices = false;
	body.device = 9;
	wire_expect_failure(wire_call(observer, &packet), GPUMEM_E_NOT_FOUND);
	wire_close(client);
	wire_close(observer);
}
END_TEST

START_TEST(an_ordinary_user_sees_totals_and_changes_nothing)
{
	if (getuid() != 0)
		return; /* needs another uid; the suite runs as root in CI */
	start();
	ck_assert_int_eq(chmod(folder, 0755), 0);
	struct wire_client *client = wire_join(path, false);
	wire_lease(client, 8 * MIB);
	pid_t pid = fork();
	if (pid == 0) {
		if (setgid(12345) < 0 || setuid(12345) < 0)
			_exit(2);
		struct wire_client *other = wire_join(path, true);
		Gm__Wire__GetClients body = GM__WIRE__GET_CLIENTS__INIT;
		Gm__Wire__Trim trim = GM__WIRE__TRIM__INIT;
		Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
		packet.body_case = GM__WIRE__PACKET__BODY_GET_CLIENTS;
		packet.get_clients = &body;
		Gm__Wire__Packet *answer = wire_call(other, &packet);
		if (answer->body_case != GM__WIRE__PACKET__BODY_CLIENTS ||
			answer->clients->n_clients != 1)
			_exit(3);
		const Gm__Wire__Client *seen = answer->clients->clients[0];
		if (seen->details || seen->name[0] || seen->command[0] ||
			seen->use[0]->held != 8 * MIB)
			_exit(4);
		packet.body_case = GM__WIRE__PACKET__BODY_TRIM;
		packet.trim = &trim;
		answer = wire_call(other, &packet);
		if (answer->body_case != GM__WIRE__PACKET__BODY_FAILURE ||
			answer->failure->status != GPUMEM_E_DENIED)
			_exit(5);
		_exit(0);
	}
	int status;
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	wire_close(client);
}
END_TEST

START_TEST(tracked_buffers_are_listed_whatever_the_client_wrote)
{
	GM_LIMIT_TEST(TRACKED_BUFFERS);
	start();
	struct wire_client *client = wire_join(path, false);
	wire_lease(client, 8 * MIB);
	struct gm_page_client *page = mmap(
		NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, client->client_page, 0);
	ck_assert_ptr_ne(page, MAP_FAILED);
	for (int i = 0; i < GM_LIMIT_TRACKED_BUFFERS; i++) {
		page->rows[i].bytes = 4096;
		page->rows[i].born_ns = 1;
		strcpy(page->rows[i].tag, "buffer");
	}
	/* One more than has a row. */
	page->use[0].active_buffers = GM_LIMIT_TRACKED_BUFFERS + 1;
	page->use[0].untracked = 1;
	page->rows[7].seq = 1;
	page->rows[8].bytes = UINT64_MAX;
	Gm__Wire__GetBuffers body = GM__WIRE__GET_BUFFERS__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	packet.body_case = GM__WIRE__PACKET__BODY_GET_BUFFERS;
	packet.get_buffers = &body;
	size_t n = 0;
	Gm__Wire__Packet *answer = wire_call(client, &packet);
	for (;; answer = wire_receive(client)) {
		ck_assert_int_eq(answer->body_case, GM__WIRE__PACKET__BODY_BUFFERS);
		for (size_t i = 0; i < answer->buffers->n_buffers; i++)
			ck_assert_str_eq(answer->buffers->buffers[i]->tag, "buffer");
		n += answer->buffers->n_buffers;
		if (!answer->more)
			break;
	}
	ck_assert_uint_eq(n, GM_LIMIT_TRACKED_BUFFERS - 2);
	ck_assert_uint_eq(answer->buffers->untracked, 1);
	body.older_than_ms = UINT64_MAX;
	answer = wire_call(client, &packet);
	ck_assert_uint_eq(answer->buffers->n_buffers, 0);
	memset(page, 0xff, sizeof(*page));
	body.older_than_ms = 0;
	answer = wire_call(client, &packet);
	ck_assert_uint_eq(answer->buffers->n_buffers, 0);
	munmap(page, sizeof(*page));
	wire_close(client);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("broker");
	TCase *tests = tcase_create("broker");
	tcase_add_checked_fixture(tests, setup, teardown);
	tcase_set_timeout(tests, 60);
	tcase_add_test(tests, a_client_gets_memory_that_it_can_map_and_gives_it_back);
	tcase_add_test(tests, what_is_asked_wrongly_is_answered_and_changes_nothing);
	tcase_add_test(tests, the_hello_comes_first_once_and_in_the_same_major);
	tcase_add_test(tests, an_observer_sees_and_holds_nothing);
	tcase_add_test(tests, a_goodbye_gives_everything_back_to_the_pool);
	tcase_add_test(tests, a_killed_clients_memory_is_released);
	tcase_add_test(tests, a_killed_client_is_gone_though_its_forked_child_keeps_the_socket);
	tcase_add_test(tests, a_client_off_the_socket_is_quarantined_and_comes_back_with_its_token);
	tcase_add_test(tests, a_quarantined_client_that_dies_is_released);
	tcase_add_test(tests, a_pool_hit_is_answered_while_the_backend_is_busy_with_a_miss);
	tcase_add_test(tests, a_daemon_whose_backend_is_stuck_still_ends);
	tcase_add_test(tests, a_creation_that_fails_is_answered_and_the_next_one_works);
	tcase_add_test(tests, a_long_lease_comes_in_several_packets_and_can_be_asked_for_again);
	tcase_add_test(tests, a_read_only_share_cannot_be_written);
	tcase_add_test(tests, more_connections_than_a_user_may_have_are_refused_with_a_reason);
	tcase_add_test(tests, a_daemon_without_file_descriptors_says_so_and_lives_on);
	tcase_add_test(tests, a_socket_of_a_live_daemon_is_left_alone_and_a_dead_ones_taken_over);
	tcase_add_test(tests, what_is_in_the_way_and_no_socket_is_left_alone);
	tcase_add_test(tests, a_socket_path_that_is_too_long_is_refused);
	tcase_add_test(
		tests, a_reload_takes_a_good_configuration_and_keeps_the_old_one_over_a_bad_one);
	tcase_add_test(tests, a_daemon_that_is_told_to_stop_says_goodbye_and_ends_with_0);
	tcase_add_test(tests, a_trim_asks_holders_for_what_they_cache_and_events_merge);
	tcase_add_test(tests, an_ordinary_user_sees_totals_and_changes_nothing);
	tcase_add_test(tests, tracked_buffers_are_listed_whatever_the_client_wrote);
	suite_add_tcase(suite, tests);
	return gm_tap_run(suite);
}
