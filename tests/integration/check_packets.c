/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * What bad packets and bad requests get: a clear error to the one who sent them, nothing lost,
 * nobody else disturbed. Every case runs beside a witness that must not notice.
 */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "tests/integration/witness.h"
#include "tests/bound.h"
#include "tests/tap.h"

static struct gm_witness witness;
static struct gm_raw peer;

static void set_up(void)
{
	gm_witness_start(&witness, NULL);
	gm_raw_join(&peer, &witness.daemon);
}

static void tear_down(void)
{
	gm_raw_close(&peer);
	gm_witness_stop(&witness);
}

/* The peer is told of a protocol violation. */
static void require_told(struct gm_raw *raw)
{
	if (!gm_raw_receive(raw))
		GM_FAIL("the daemon hung up without a word");
	GM_REQUIRE_EQ(raw->packet->body_case, GM__WIRE__PACKET__BODY_FAILURE);
	GM_REQUIRE_EQ(raw->packet->failure->status, GPUMEM_E_PROTOCOL);
	GM_REQUIRE(strlen(gm_raw_detail(raw)) > 0);
}

static void require_told_and_dropped(struct gm_raw *raw)
{
	require_told(raw);
	GM_REQUIRE(!gm_raw_receive(raw));
}

START_TEST(a_packet_that_is_no_protobuf_is_answered_with_an_error)
{
	uint8_t junk[64];
	memset(junk, 0xff, sizeof(junk));
	GM_REQUIRE(gm_raw_send_bytes(&peer, junk, sizeof(junk), NULL, 0) == 0);
	require_told(&peer);
}
END_TEST

START_TEST(a_packet_with_an_unknown_body_is_answered_with_an_error)
{
	/* id = 7, then field 200 of type bytes, empty. */
	static const uint8_t unknown[] = {0x08, 0x07, 0xc2, 0x0c, 0x00};
	GM_REQUIRE(gm_raw_send_bytes(&peer, unknown, sizeof(unknown), NULL, 0) == 0);
	if (!gm_raw_receive(&peer))
		GM_FAIL("the daemon hung up without a word");
	GM_REQUIRE_EQ(peer.packet->body_case, GM__WIRE__PACKET__BODY_FAILURE);
	GM_REQUIRE(peer.packet->failure->status == GPUMEM_E_PROTOCOL ||
		   peer.packet->failure->status == GPUMEM_E_UNSUPPORTED);
}
END_TEST

START_TEST(a_packet_with_the_body_of_an_answer_is_answered_with_an_error)
{
	Gm__Wire__Done done = GM__WIRE__DONE__INIT;
	gm_raw_send(&peer, GM_RAW_PACKET(DONE, done, &done));
	require_told(&peer);
}
END_TEST

START_TEST(a_packet_of_length_0_is_answered_with_an_error)
{
	GM_REQUIRE(send(peer.socket, "", 0, MSG_NOSIGNAL) == 0);
	require_told(&peer);
}
END_TEST

START_TEST(an_oversized_packet_is_answered_with_an_error_and_its_sender_dropped)
{
	GM_BOUND_TEST(PACKET_BYTES);
	/* A good request, made one byte too long by an unknown field, which a decoder would skip.
	 */
	size_t n = GM_BOUND_PACKET_BYTES + 1;
	uint8_t *bytes = calloc(1, n);
	GM_REQUIRE(bytes);
	/* id = 1, get_devices {}, field 1000 of type bytes with the rest. */
	size_t rest = n - 2 - 2 - 2 - 3;
	static const uint8_t head[] = {0x08, 0x01, 0x5a, 0x00, 0xc2, 0x3e};
	memcpy(bytes, head, sizeof(head));
	bytes[6] = (uint8_t)(0x80 | (rest & 0x7f));
	bytes[7] = (uint8_t)(0x80 | ((rest >> 7) & 0x7f));
	bytes[8] = (uint8_t)(rest >> 14);
	GM_REQUIRE(send(peer.socket, bytes, n, MSG_NOSIGNAL) == (ssize_t)n);
	require_told_and_dropped(&peer);

	/* One byte less is fine. */
	gm_raw_close(&peer);
	gm_raw_join(&peer, &witness.daemon);
	rest--;
	bytes[6] = (uint8_t)(0x80 | (rest & 0x7f));
	bytes[7] = (uint8_t)(0x80 | ((rest >> 7) & 0x7f));
	bytes[8] = (uint8_t)(rest >> 14);
	GM_REQUIRE(gm_raw_send_bytes(&peer, bytes, n - 1, NULL, 0) == 0);
	GM_REQUIRE(gm_raw_receive(&peer));
	GM_REQUIRE_EQ(peer.packet->body_case, GM__WIRE__PACKET__BODY_DEVICES);
	free(bytes);
}
END_TEST

START_TEST(a_packet_that_unpacks_to_more_than_the_arena_is_answered_with_an_error)
{
	GM_BOUND_TEST(ARENA_BYTES);
	/* devices { device {} device {} … }: two bytes each on the wire, hundreds unpacked. */
	size_t n = 60000, rest = n - 5;
	uint8_t *bytes = calloc(1, n);
	GM_REQUIRE(bytes);
	bytes[0] = 0xfa; /* field 63, bytes */
	bytes[1] = 0x03;
	bytes[2] = (uint8_t)(0x80 | (rest & 0x7f));
	bytes[3] = (uint8_t)(0x80 | ((rest >> 7) & 0x7f));
	bytes[4] = (uint8_t)(rest >> 14);
	for (size_t i = 5; i + 1 < n; i += 2)
		bytes[i] = 0x0a;
	/* An odd rest would end in half a message: make it whole. */
	GM_REQUIRE(rest % 2 == 1);
	n--;
	rest--;
	bytes[2] = (uint8_t)(0x80 | (rest & 0x7f));
	GM_REQUIRE(gm_raw_send_bytes(&peer, bytes, n, NULL, 0) == 0);
	require_told_and_dropped(&peer);
	free(bytes);
}
END_TEST

START_TEST(random_packets_never_end_the_daemon)
{
	unsigned seed = 20260;
	for (int i = 0; i < 400; i++) {
		uint8_t bytes[300];
		struct gm_raw raw;
		GM_REQUIRE(gm_raw_connect(&raw, witness.daemon.socket) == 0);
		size_t n = 1 + (size_t)rand_r(&seed) % sizeof(bytes);
		for (size_t k = 0; k < n; k++)
			bytes[k] = (uint8_t)rand_r(&seed);
		gm_raw_send_bytes(&raw, bytes, n, NULL, 0);
		gm_raw_close(&raw);
	}
	gm_witness_served(&witness);
}
END_TEST

START_TEST(mutated_requests_never_end_the_daemon)
{
	unsigned seed = 4711;
	for (int i = 0; i < 1000; i++) {
		Gm__Wire__Lease lease = GM__WIRE__LEASE__INIT;
		lease.device = (uint32_t)rand_r(&seed) % 3;
		lease.bytes = (uint64_t)rand_r(&seed) << (rand_r(&seed) % 40);
		lease.tag = (char *)"mutant";
		Gm__Wire__Packet *p = GM_RAW_PACKET(LEASE, lease, &lease);
		p->id = (uint64_t)i + 1;
		uint8_t bytes[256];
		size_t n;
		GM_REQUIRE(gm_wire_pack(p, bytes, sizeof(bytes), &n) == 0);
		for (int k = rand_r(&seed) % 4; k > 0; k--)
			bytes[(size_t)rand_r(&seed) % n] ^= (uint8_t)(1 << (rand_r(&seed) % 8));
		struct gm_raw raw;
		gm_raw_join(&raw, &witness.daemon);
		/* Whatever it is taken for, it is answered, or the sender dropped. */
		gm_raw_send_bytes(&raw, bytes, n, NULL, 0);
		Gm__Wire__Goodbye goodbye = GM__WIRE__GOODBYE__INIT;
		p = GM_RAW_PACKET(GOODBYE, goodbye, &goodbye);
		p->id = UINT64_MAX;
		gm_raw_send(&raw, p);
		while (gm_raw_receive(&raw) && raw.packet->id != UINT64_MAX)
			;
		gm_raw_close(&raw);
	}
	gm_witness_served(&witness);
}
END_TEST

START_TEST(a_request_before_the_hello_is_answered_with_an_error)
{
	gm_raw_close(&peer);
	GM_REQUIRE(gm_raw_connect(&peer, witness.daemon.socket) == 0);
	Gm__Wire__Lease lease = GM__WIRE__LEASE__INIT;
	lease.bytes = GM_CHUNK_MIN;
	GM_REQUIRE_EQ(gm_raw_call(&peer, GM_RAW_PACKET(LEASE, lease, &lease)), GPUMEM_E_PROTOCOL);
}
END_TEST

START_TEST(a_second_hello_is_answered_with_an_error)
{
	Gm__Wire__Hello hello = GM__WIRE__HELLO__INIT;
	hello.major = GM_WIRE_MAJOR;
	GM_REQUIRE_EQ(gm_raw_call(&peer, GM_RAW_PACKET(HELLO, hello, &hello)), GPUMEM_E_PROTOCOL);
}
END_TEST

START_TEST(a_request_with_id_0_is_answered_with_an_error)
{
	/* GetDevices {} with no id. */
	static const uint8_t bytes[] = {0x5a, 0x00};
	GM_REQUIRE(gm_raw_send_bytes(&peer, bytes, sizeof(bytes), NULL, 0) == 0);
	require_told(&peer);
}
END_TEST

START_TEST(another_major_version_is_refused_with_a_text_that_names_both)
{
	struct gm_raw raw;
	Gm__Wire__Hello hello = GM__WIRE__HELLO__INIT;
	hello.major = GM_WIRE_MAJOR + 1;
	GM_REQUIRE_EQ(gm_raw_hello(&raw, witness.daemon.socket, &hello), GPUMEM_E_VERSION);
	GM_REQUIRE(strstr(gm_raw_detail(&raw), "1"));
	GM_REQUIRE(strstr(gm_raw_detail(&raw), "2"));
	gm_raw_close(&raw);
}
END_TEST

START_TEST(a_newer_minor_version_is_welcome)
{
	struct gm_raw raw;
	Gm__Wire__Hello hello = GM__WIRE__HELLO__INIT;
	hello.major = GM_WIRE_MAJOR;
	hello.minor = GM_WIRE_MINOR + 99;
	GM_REQUIRE_EQ(gm_raw_hello(&raw, witness.daemon.socket, &hello), GPUMEM_OK);
	GM_REQUIRE_EQ(raw.packet->hello_reply->minor, GM_WIRE_MINOR);
	gm_raw_close(&raw);
}
END_TEST

START_TEST(a_field_that_a_newer_client_added_is_skipped)
{
	/* id = 9, get_devices { field 100 = 5 }, field 1000 = 1. */
	static const uint8_t bytes[] = {0x08, 0x09, 0x5a, 0x03, 0xa0, 0x06, 0x05, 0xc0, 0x3e, 0x01};
	GM_REQUIRE(gm_raw_send_bytes(&peer, bytes, sizeof(bytes), NULL, 0) == 0);
	GM_REQUIRE(gm_raw_receive(&peer));
	GM_REQUIRE_EQ(peer.packet->id, 9);
	GM_REQUIRE_EQ(peer.packet->body_case, GM__WIRE__PACKET__BODY_DEVICES);
}
END_TEST

START_TEST(a_name_that_is_too_long_or_not_printable_is_refused)
{
	GM_BOUND_TEST(NAME_BYTES);
	char name[GM_BOUND_NAME_BYTES + 2];
	memset(name, 'n', sizeof(name));
	name[GM_BOUND_NAME_BYTES + 1] = '\0';
	const char *bad[] = {name, "new\nline", "esc\033[31m", "\xff\xfe"};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct gm_raw raw;
		Gm__Wire__Hello hello = GM__WIRE__HELLO__INIT;
		hello.major = GM_WIRE_MAJOR;
		hello.name = (char *)(uintptr_t)bad[i];
		gpumem_status status = gm_raw_hello(&raw, witness.daemon.socket, &hello);
		GM_REQUIRE(status == GPUMEM_E_INVALID || status == GPUMEM_E_PROTOCOL);
		gm_raw_close(&raw);

		Gm__Wire__Lease lease = GM__WIRE__LEASE__INIT;
		lease.bytes = GM_CHUNK_MIN;
		lease.tag = (char *)(uintptr_t)bad[i];
		status = gm_raw_call(&peer, GM_RAW_PACKET(LEASE, lease, &lease));
		GM_REQUIRE_EQ(status, GPUMEM_E_INVALID);
	}
	name[GM_BOUND_NAME_BYTES] = '\0';
	Gm__Wire__Lease lease = GM__WIRE__LEASE__INIT;
	lease.bytes = GM_CHUNK_MIN;
	lease.tag = name;
	GM_REQUIRE_EQ(gm_raw_call(&peer, GM_RAW_PACKET(LEASE, lease, &lease)), GPUMEM_OK);
	struct gm_raw_lease got = {0};
	GM_REQUIRE_EQ(gm_raw_collect(&peer, &got), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_raw_give_back(&peer, &got), GPUMEM_OK);
}
END_TEST

START_TEST(a_run_is_named_by_a_few_letters_and_digits)
{
	GM_BOUND_TEST(RUN_BYTES);
	char run[GM_BOUND_RUN_BYTES + 2];
	memset(run, 'r', sizeof(run));
	run[GM_BOUND_RUN_BYTES + 1] = '\0';
	const char *bad[] = {run, "a b", "a:b", "\xc3\xa4", "a\n"};
	struct gm_raw raw;
	Gm__Wire__Hello hello = GM__WIRE__HELLO__INIT;
	hello.major = GM_WIRE_MAJOR;
	hello.minor = GM_WIRE_MINOR;
	hello.run_max = 8 * GM_CHUNK_MIN;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		hello.run = (char *)(uintptr_t)bad[i];
		gpumem_status status = gm_raw_hello(&raw, witness.daemon.socket, &hello);
		GM_REQUIRE_EQ(status, GPUMEM_E_INVALID);
		gm_raw_close(&raw);
	}
	run[GM_BOUND_RUN_BYTES] = '\0';
	hello.run = run;
	hello.name = (char *)"nightly";
	GM_REQUIRE_EQ(gm_raw_hello(&raw, witness.daemon.socket, &hello), GPUMEM_OK);

	/* People know it by the name of its first client. */
	Gm__Wire__GetLimits get = GM__WIRE__GET_LIMITS__INIT;
	struct gm_raw_lease lease;
	GM_REQUIRE_EQ(gm_raw_lease(&raw, 0, 16 * GM_CHUNK_MIN, &lease), GPUMEM_E_LIMIT);
	GM_REQUIRE(!strncmp(gm_raw_detail(&raw), "run \"nightly\" may hold 16.0M, ", 30));
	GM_REQUIRE_EQ(gm_raw_call(&raw, GM_RAW_PACKET(GET_LIMITS, get_limits, &get)), GPUMEM_OK);
	GM_REQUIRE_EQ(raw.packet->limits->n_limits, 1);
	GM_REQUIRE(!strcmp(raw.packet->limits->limits[0]->name, "nightly"));
	GM_REQUIRE(strstr(raw.packet->limits->limits[0]->owner, run));

	/* How often it was refused stands in the list of clients. */
	Gm__Wire__GetClients clients = GM__WIRE__GET_CLIENTS__INIT;
	GM_REQUIRE_EQ(
		gm_raw_call(&raw, GM_RAW_PACKET(GET_CLIENTS, get_clients, &clients)), GPUMEM_OK);
	bool seen = false;
	for (size_t i = 0; i < raw.packet->clients->n_clients; i++) {
		const Gm__Wire__Client *client = raw.packet->clients->clients[i];
		if (client->session != raw.session)
			continue;
		seen = true;
		GM_REQUIRE_EQ(client->refused, 1);
		GM_REQUIRE_EQ(client->waiting, 0);
	}
	GM_REQUIRE(seen);
	gm_raw_close(&raw);
}
END_TEST

START_TEST(the_priority_of_a_run_is_one_that_the_configuration_could_give)
{
	const int32_t bad[] = {INT32_MIN, -GM_PRIORITY_MAX - 1, 1, INT32_MAX};
	struct gm_raw raw;
	Gm__Wire__Hello hello = GM__WIRE__HELLO__INIT;
	hello.major = GM_WIRE_MAJOR;
	hello.minor = GM_WIRE_MINOR;
	hello.run = (char *)(uintptr_t) "low";
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		hello.run_priority = bad[i];
		gpumem_status status = gm_raw_hello(&raw, witness.daemon.socket, &hello);
		GM_REQUIRE_EQ(status, GPUMEM_E_INVALID);
		gm_raw_close(&raw);
	}
	hello.run_priority = -GM_PRIORITY_MAX;
	GM_REQUIRE_EQ(gm_raw_hello(&raw, witness.daemon.socket, &hello), GPUMEM_OK);
	gm_raw_close(&raw);
}
END_TEST

START_TEST(an_unknown_lease_share_or_device_is_not_found)
{
	struct gm_raw_lease lease = {.id = UINT64_C(0x123456789abcdef)};
	uint8_t token[GM_TOKEN_BYTES] = {1, 2, 3};
	GM_REQUIRE_EQ(gm_raw_return(&peer, lease.id, NULL, 0), GPUMEM_E_NOT_FOUND);
	GM_REQUIRE_EQ(gm_raw_grow(&peer, &lease, GM_CHUNK_MIN), GPUMEM_E_NOT_FOUND);
	GM_REQUIRE_EQ(gm_raw_unshare(&peer, lease.id), GPUMEM_E_NOT_FOUND);
	GM_REQUIRE_EQ(
		gm_raw_share(&peer, lease.id, GM__WIRE__AUDIENCE__AUDIENCE_DOMAIN, 0, false, token),
		GPUMEM_E_NOT_FOUND);
	GM_REQUIRE_EQ(gm_raw_handles(&peer, lease.id, 0, &lease), GPUMEM_E_NOT_FOUND);
	GM_REQUIRE_EQ(gm_raw_open(&peer, token, &lease), GPUMEM_E_NOT_FOUND);
	GM_REQUIRE_EQ(gm_raw_return(&peer, 0, NULL, 0), GPUMEM_E_NOT_FOUND);
	static const uint32_t devices[] = {1, GM_BOUND_DEVICES, UINT32_MAX};
	for (size_t i = 0; i < 3; i++) {
		gpumem_status status = gm_raw_lease(&peer, devices[i], GM_CHUNK_MIN, &lease);
		GM_REQUIRE(status == GPUMEM_E_NOT_FOUND || status == GPUMEM_E_INVALID);
	}
	/* The connection is as good as before. */
	GM_REQUIRE_EQ(gm_raw_lease(&peer, 0, GM_CHUNK_MIN, &lease), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_raw_give_back(&peer, &lease), GPUMEM_OK);
}
END_TEST

START_TEST(a_token_of_the_wrong_length_is_refused)
{
	uint8_t token[64] = {0};
	for (size_t n = 0; n < sizeof(token); n += 17) {
		Gm__Wire__Open open = GM__WIRE__OPEN__INIT;
		open.token.data = token;
		open.token.len = n;
		gpumem_status status = gm_raw_call(&peer, GM_RAW_PACKET(OPEN, open, &open));
		GM_REQUIRE(status == GPUMEM_E_NOT_FOUND || status == GPUMEM_E_INVALID);
	}
}
END_TEST

START_TEST(an_audience_that_does_not_exist_is_refused)
{
	struct gm_raw_lease lease;
	uint8_t token[GM_TOKEN_BYTES];
	GM_REQUIRE_EQ(gm_raw_lease(&peer, 0, GM_CHUNK_MIN, &lease), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_raw_share(&peer, lease.id, (Gm__Wire__Audience)77, 0, false, token),
		GPUMEM_E_INVALID);
	GM_REQUIRE_EQ(gm_raw_give_back(&peer, &lease), GPUMEM_OK);
}
END_TEST

START_TEST(a_size_of_0_or_far_too_much_is_refused)
{
	struct gm_raw_lease lease, other;
	GM_REQUIRE_EQ(gm_raw_lease(&peer, 0, GM_CHUNK_MIN, &lease), GPUMEM_OK);
	static const uint64_t much[] = {UINT64_C(1) << 63, UINT64_MAX, UINT64_MAX - GM_CHUNK_MIN,
		GM_LEASE_BYTES_MAX + 1, GM_LEASE_BYTES_MAX, INT64_MAX};
	GM_REQUIRE_EQ(gm_raw_lease(&peer, 0, 0, &other), GPUMEM_E_INVALID);
	GM_REQUIRE_EQ(gm_raw_grow(&peer, &lease, 0), GPUMEM_E_INVALID);
	for (size_t i = 0; i < sizeof(much) / sizeof(much[0]); i++) {
		gpumem_status status = gm_raw_lease(&peer, 0, much[i], &other);
		GM_REQUIRE(status == GPUMEM_E_INVALID || status == GPUMEM_E_NO_MEMORY ||
			   status == GPUMEM_E_LIMIT);
		status = gm_raw_grow(&peer, &lease, much[i]);
		GM_REQUIRE(status == GPUMEM_E_INVALID || status == GPUMEM_E_NO_MEMORY ||
			   status == GPUMEM_E_LIMIT);
	}
	GM_REQUIRE_EQ(gm_figures_now(&witness.daemon).leased, 2 * GM_CHUNK_MIN);
	GM_REQUIRE_EQ(gm_raw_give_back(&peer, &lease), GPUMEM_OK);
}
END_TEST

START_TEST(an_unknown_transport_is_refused)
{
	Gm__Wire__Lease lease = GM__WIRE__LEASE__INIT;
	lease.bytes = GM_CHUNK_MIN;
	lease.transport = (Gm__Wire__Transport)9;
	gpumem_status status = gm_raw_call(&peer, GM_RAW_PACKET(LEASE, lease, &lease));
	GM_REQUIRE(status == GPUMEM_E_INVALID || status == GPUMEM_E_UNSUPPORTED);
	if (gm_on_gpu())
		return;
	/* The host backend has no ipc. */
	lease.transport = GM__WIRE__TRANSPORT__TRANSPORT_IPC;
	GM_REQUIRE_EQ(
		gm_raw_call(&peer, GM_RAW_PACKET(LEASE, lease, &lease)), GPUMEM_E_UNSUPPORTED);
}
END_TEST

START_TEST(what_is_returned_twice_is_not_found_and_charged_once)
{
	struct gm_raw_lease lease;
	GM_REQUIRE_EQ(gm_raw_lease(&peer, 0, GM_CHUNK_MIN, &lease), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_raw_grow(&peer, &lease, GM_CHUNK_MIN), GPUMEM_OK);
	GM_REQUIRE_EQ(lease.n, 2);
	uint64_t first = lease.chunks[0].id;
	uint64_t twice[2] = {lease.chunks[1].id, lease.chunks[1].id};
	/* All or nothing: a list that names one twice changes nothing. */
	GM_REQUIRE_EQ(gm_raw_return(&peer, lease.id, twice, 2), GPUMEM_E_NOT_FOUND);
	/* So does one whose indexes are other ones, or not one for each. */
	Gm__Wire__Return body = GM__WIRE__RETURN__INIT;
	uint64_t wrong[2] = {lease.chunks[0].index + 1, 0};
	body.lease = lease.id;
	body.chunks = &first;
	body.indexes = wrong;
	body.n_chunks = body.n_indexes = 1;
	GM_REQUIRE_EQ(gm_raw_call(&peer, GM_RAW_PACKET(RETURN_CHUNKS, return_chunks, &body)),
		GPUMEM_E_NOT_FOUND);
	body.n_indexes = 2;
	GM_REQUIRE_EQ(gm_raw_call(&peer, GM_RAW_PACKET(RETURN_CHUNKS, return_chunks, &body)),
		GPUMEM_E_INVALID);
	GM_REQUIRE_EQ(gm_figures_now(&witness.daemon).leased, 3 * GM_CHUNK_MIN);
	lease.chunks[0].fd = gm_close(lease.chunks[0].fd);
	GM_REQUIRE_EQ(gm_raw_return(&peer, lease.id, &first, 1), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_raw_return(&peer, lease.id, &first, 1), GPUMEM_E_NOT_FOUND);
	GM_REQUIRE_EQ(gm_figures_now(&witness.daemon).leased, 2 * GM_CHUNK_MIN);
	uint64_t id = lease.id;
	gm_raw_lease_clear(&lease);
	GM_REQUIRE_EQ(gm_raw_return(&peer, id, NULL, 0), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_raw_return(&peer, id, NULL, 0), GPUMEM_E_NOT_FOUND);
	GM_REQUIRE_EQ(gm_figures_now(&witness.daemon).leased, GM_CHUNK_MIN);
}
END_TEST

START_TEST(another_clients_lease_cannot_be_returned_grown_shared_or_fetched)
{
	struct gm_raw_lease theirs = {.id = witness.lease.id};
	struct gm_raw_lease got;
	uint64_t chunk = witness.lease.chunks[0].id;
	uint8_t token[GM_TOKEN_BYTES];
	GM_REQUIRE_EQ(gm_raw_return(&peer, theirs.id, NULL, 0), GPUMEM_E_NOT_FOUND);
	GM_REQUIRE_EQ(gm_raw_return(&peer, theirs.id, &chunk, 1), GPUMEM_E_NOT_FOUND);
	GM_REQUIRE_EQ(gm_raw_grow(&peer, &theirs, GM_CHUNK_MIN), GPUMEM_E_NOT_FOUND);
	GM_REQUIRE_EQ(gm_raw_handles(&peer, theirs.id, 0, &got), GPUMEM_E_NOT_FOUND);
	GM_REQUIRE_EQ(gm_raw_share(&peer, theirs.id, GM__WIRE__AUDIENCE__AUDIENCE_DOMAIN, 0, false,
			      token),
		GPUMEM_E_NOT_FOUND);
	/* Nor one of their chunks as part of one's own lease. */
	GM_REQUIRE_EQ(gm_raw_lease(&peer, 0, GM_CHUNK_MIN, &got), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_raw_return(&peer, got.id, &chunk, 1), GPUMEM_E_NOT_FOUND);
	GM_REQUIRE_EQ(gm_raw_give_back(&peer, &got), GPUMEM_OK);
}
END_TEST

START_TEST(a_chunk_can_neither_be_resized_nor_sealed_by_its_client)
{
	struct gm_raw_lease lease;
	GM_REQUIRE_EQ(gm_raw_lease(&peer, 0, GM_CHUNK_MIN, &lease), GPUMEM_OK);
	int fd = lease.chunks[0].fd;
	GM_REQUIRE(ftruncate(fd, 0) == -1 && errno == EPERM);
	GM_REQUIRE(ftruncate(fd, (off_t)GM_CHUNK_MIN * 2) == -1 && errno == EPERM);
	/* A client that could seal it would spoil it for the next one. */
	GM_REQUIRE(fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) == -1 && errno == EPERM);
	GM_REQUIRE(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == -1);
	GM_REQUIRE_EQ(lseek(fd, 0, SEEK_END), GM_CHUNK_MIN);
	gm_alloc_raw_chunk_fill(&lease.chunks[0], 1);
	GM_REQUIRE_EQ(gm_raw_give_back(&peer, &lease), GPUMEM_OK);
}
END_TEST

START_TEST(the_pages_can_neither_be_resized_nor_the_daemons_be_written)
{
	int fds[2] = {peer.daemon_page, peer.client_page};
	for (int i = 0; i < 2; i++) {
		GM_REQUIRE(ftruncate(fds[i], 0) == -1 && errno == EPERM);
		GM_REQUIRE(ftruncate(fds[i], 1 << 24) == -1 && errno == EPERM);
	}
	GM_REQUIRE(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, peer.daemon_page, 0) ==
		   MAP_FAILED);
	GM_REQUIRE(pwrite(peer.daemon_page, "x", 1, 0) == -1);
	/* Reading is what it is for; the mapping cannot be made writable later. */
	void *at = mmap(NULL, 4096, PROT_READ, MAP_SHARED, peer.daemon_page, 0);
	GM_REQUIRE(at != MAP_FAILED);
	GM_REQUIRE(mprotect(at, 4096, PROT_READ | PROT_WRITE) == -1);
	munmap(at, 4096);
	char path[64];
	snprintf(path, sizeof(path), "/proc/self/fd/%d", peer.daemon_page);
	int again = open(path, O_RDWR | O_CLOEXEC);
	if (again >= 0) {
		GM_REQUIRE(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, again, 0) ==
			   MAP_FAILED);
		GM_REQUIRE(pwrite(again, "x", 1, 0) == -1);
		close(again);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("packets");
	TCase *tc = tcase_create("packets");
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, a_packet_that_is_no_protobuf_is_answered_with_an_error);
	tcase_add_test(tc, a_packet_with_an_unknown_body_is_answered_with_an_error);
	tcase_add_test(tc, a_packet_with_the_body_of_an_answer_is_answered_with_an_error);
	tcase_add_test(tc, a_packet_of_length_0_is_answered_with_an_error);
	tcase_add_test(tc, an_oversized_packet_is_answered_with_an_error_and_its_sender_dropped);
	tcase_add_test(tc, a_packet_that_unpacks_to_more_than_the_arena_is_answered_with_an_error);
	tcase_add_test(tc, random_packets_never_end_the_daemon);
	tcase_add_test(tc, mutated_requests_never_end_the_daemon);
	tcase_add_test(tc, a_request_before_the_hello_is_answered_with_an_error);
	tcase_add_test(tc, a_second_hello_is_answered_with_an_error);
	tcase_add_test(tc, a_request_with_id_0_is_answered_with_an_error);
	tcase_add_test(tc, another_major_version_is_refused_with_a_text_that_names_both);
	tcase_add_test(tc, a_newer_minor_version_is_welcome);
	tcase_add_test(tc, a_field_that_a_newer_client_added_is_skipped);
	tcase_add_test(tc, a_name_that_is_too_long_or_not_printable_is_refused);
	tcase_add_test(tc, a_run_is_named_by_a_few_letters_and_digits);
	tcase_add_test(tc, the_priority_of_a_run_is_one_that_the_configuration_could_give);
	tcase_add_test(tc, an_unknown_lease_share_or_device_is_not_found);
	tcase_add_test(tc, a_token_of_the_wrong_length_is_refused);
	tcase_add_test(tc, an_audience_that_does_not_exist_is_refused);
	tcase_add_test(tc, a_size_of_0_or_far_too_much_is_refused);
	tcase_add_test(tc, an_unknown_transport_is_refused);
	tcase_add_test(tc, what_is_returned_twice_is_not_found_and_charged_once);
	tcase_add_test(tc, another_clients_lease_cannot_be_returned_grown_shared_or_fetched);
	/* Seals are the host backend's: what the driver gives out cannot be resized at all. */
	if (!gm_on_gpu())
		tcase_add_test(tc, a_chunk_can_neither_be_resized_nor_sealed_by_its_client);
	tcase_add_test(tc, the_pages_can_neither_be_resized_nor_the_daemons_be_written);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
