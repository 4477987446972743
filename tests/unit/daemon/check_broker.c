/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The daemon as a whole, over its own socket: what a client may ask for, in which words, and what
 * it gets.
 */

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/wire/page.h"
#include "tests/bound.h"
#include "tests/tap.h"
#include "tests/unit/daemon/broker_fixture.h"
#include "tests/unit/daemon/wire_client.h"

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
	body.tag = (char *)"wakeup\a";
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

	GM_BOUND_TEST(NAME_BYTES);
	char name[GM_BOUND_NAME_BYTES + 2];
	memset(name, 'n', sizeof(name));
	name[GM_BOUND_NAME_BYTES + 1] = '\0';
	client = wire_connect(path);
	hello.name = name;
	wire_expect_failure(wire_hello_as(client, &hello), GPUMEM_E_INVALID);
	wire_close(client);
}
END_TEST

START_TEST(a_pool_hit_is_answered_while_the_backend_is_busy_with_a_miss)
{
	start_gated();
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
	for (int i = 1; i < GM_BOUND_PACKET_FDS + 6; i++) {
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
			ck_assert_uint_le(client->in.fds.n, GM_BOUND_PACKET_FDS);
			ck_assert_uint_eq(client->in.fds.n, answer->lease_reply->n_chunks);
			for (size_t i = 0; i < answer->lease_reply->n_chunks; i++)
				ck_assert_uint_eq(answer->lease_reply->chunks[i]->index, next++);
			if (!answer->more)
				break;
			answer = wire_receive(client);
		}
		ck_assert_uint_eq(next, GM_BOUND_PACKET_FDS + 6);
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

int main(void)
{
	Suite *suite = suite_create("broker");
	TCase *tests = tcase_create("broker");
	tcase_add_checked_fixture(tests, setup, teardown);
	tcase_add_test(tests, a_client_gets_memory_that_it_can_map_and_gives_it_back);
	tcase_add_test(tests, what_is_asked_wrongly_is_answered_and_changes_nothing);
	tcase_add_test(tests, the_hello_comes_first_once_and_in_the_same_major);
	tcase_add_test(tests, a_pool_hit_is_answered_while_the_backend_is_busy_with_a_miss);
	tcase_add_test(tests, a_creation_that_fails_is_answered_and_the_next_one_works);
	tcase_add_test(tests, a_long_lease_comes_in_several_packets_and_can_be_asked_for_again);
	tcase_add_test(tests, a_read_only_share_cannot_be_written);
	suite_add_tcase(suite, tests);
	return gm_tap_run(suite);
}
