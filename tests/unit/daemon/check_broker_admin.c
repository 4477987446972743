/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Those who look at a running daemon and steer it: what they see of clients and their buffers, what
 * they may do, and what clients are told of it.
 */

#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/text/units.h"
#include "common/wire/page.h"
#include "tests/bound.h"
#include "tests/tap.h"
#include "tests/unit/daemon/broker_fixture.h"
#include "tests/unit/daemon/wire_client.h"

START_TEST(an_observer_sees_and_holds_nothing)
{
	start();
	struct wire_client *observer = wire_join(path, true);
	ck_assert_uint_eq(observer->session, 0);
	ck_assert_int_eq(observer->wakeup, -1);
	ck_assert_uint_eq(wire_status(observer)->clients, 0);
	wire_send_lease(observer, 0, MIB);
	wire_expect_failure(wire_receive(observer), GPUMEM_E_DENIED);
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
	const struct gm_page_event *event = wire_hear(client);
	ck_assert_int_eq(event->kind, GM_PAGE_EVENT_RECLAIM);
	uint64_t epoch = event->epoch;
	/* Far more events than the client reads. */
	for (int i = 0; i < 3000; i++)
		ck_assert_ptr_nonnull(wire_call(observer, &packet));
	ck_assert_uint_eq(wire_status(client)->clients, 1);
	uint64_t last = epoch, n = 0;
	while (last < epoch + 3000) {
		event = wire_hear(client);
		ck_assert_ptr_nonnull(event);
		ck_assert_uint_gt(event->epoch, last);
		last = event->epoch;
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

/* A reader of protobuf refuses a text that is not UTF-8, and with it the answer. */
START_TEST(an_answer_that_quotes_a_text_is_utf8)
{
	start();
	struct wire_client *observer = wire_join(path, true);
	Gm__Wire__SetLimit body = GM__WIRE__SET_LIMIT__INIT;
	Gm__Wire__Packet packet = GM_WIRE_PACKET(SET_LIMIT, set_limit, &body);
	char owner[200];

	for (size_t offset = 0; offset < 3; offset++) {
		memset(owner, 'x', offset);
		for (size_t i = offset; i + 3 < sizeof(owner); i += 3)
			strcpy(owner + i, "\xe2\x82\xac");
		body.owner = owner;
		Gm__Wire__Packet *answer = wire_call(observer, &packet);
		wire_expect_failure(answer, GPUMEM_E_INVALID);
		ck_assert(gm_text_ok(answer->failure->detail));
		ck_assert_ptr_nonnull(strstr(answer->failure->detail, "\xac\" names no owner"));
	}
	body.owner = (char *)"\xff\x1b";
	Gm__Wire__Packet *answer = wire_call(observer, &packet);
	wire_expect_failure(answer, GPUMEM_E_INVALID);
	ck_assert(gm_text_ok(answer->failure->detail));
	wire_close(observer);
}
END_TEST

static Gm__Wire__Packet *place(struct wire_client *client, uint64_t bytes)
{
	Gm__Wire__Place body = GM__WIRE__PLACE__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	body.bytes = bytes;
	packet.body_case = GM__WIRE__PACKET__BODY_PLACE;
	packet.place = &body;
	return wire_call(client, &packet);
}

/* The only device but pinned memory. */
static const Gm__Wire__Placement *placement(struct wire_client *client, uint64_t bytes)
{
	const Gm__Wire__Packet *answer = place(client, bytes);
	ck_assert_int_eq(answer->body_case, GM__WIRE__PACKET__BODY_PLACE_REPLY);
	ck_assert(!answer->more);
	ck_assert_uint_eq(answer->place_reply->n_placements, 1);
	ck_assert_uint_eq(answer->place_reply->placements[0]->device, 0);
	return answer->place_reply->placements[0];
}

START_TEST(a_client_and_an_observer_learn_where_memory_would_find_room)
{
	start();
	struct wire_client *client = wire_join(path, false), *observer = wire_join(path, true);
	uint64_t room = placement(client, MIB)->room;
	ck_assert_uint_gt(room, 8 * MIB);
	ck_assert_int_eq(placement(observer, MIB)->fit, GM__WIRE__FIT__FIT_NOW);
	ck_assert_uint_eq(placement(observer, MIB)->room, room);
	ck_assert_str_eq(placement(observer, MIB)->detail, "");

	/* Both see what a lease takes. */
	uint64_t lease = wire_lease(client, 8 * MIB);
	ck_assert_uint_eq(placement(client, room)->room, room - 8 * MIB);
	ck_assert_uint_eq(placement(observer, room)->room, room - 8 * MIB);
	ck_assert_int_eq(placement(observer, room)->fit, GM__WIRE__FIT__FIT_WAIT);
	ck_assert_uint_eq(placement(observer, room)->status, GPUMEM_E_NO_MEMORY);
	ck_assert_ptr_nonnull(strstr(placement(observer, room)->detail, "device 0 has "));
	ck_assert_int_eq(placement(client, 2 * room)->fit, GM__WIRE__FIT__FIT_NONE);

	/* It is not a request, and makes no session. */
	ck_assert_uint_eq(wire_status(observer)->requests, 1);
	ck_assert_uint_eq(wire_status(observer)->clients, 1);
	wire_expect_failure(place(client, 0), GPUMEM_E_INVALID);
	wire_expect_failure(place(observer, UINT64_MAX), GPUMEM_E_INVALID);
	wire_return(client, lease);
	ck_assert_uint_eq(placement(observer, MIB)->room, room);
	wire_close(client);
	wire_close(observer);
}
END_TEST

static Gm__Wire__Packet *drain(struct wire_client *client, uint32_t device, bool undo, bool again)
{
	Gm__Wire__Drain body = GM__WIRE__DRAIN__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	body.device = device;
	body.undo = undo;
	body.again = again;
	packet.body_case = GM__WIRE__PACKET__BODY_DRAIN;
	packet.drain = &body;
	return wire_call(client, &packet);
}

START_TEST(a_drain_tells_holders_says_how_much_is_left_and_shows_until_it_is_undone)
{
	start();
	struct wire_client *client = wire_join(path, false), *observer = wire_join(path, true);
	uint64_t lease = wire_lease(client, 8 * MIB);
	wire_return(client, wire_lease(client, 2 * MIB));
	ck_assert_ptr_null(wire_status(observer)->devices[0]->drainer);

	Gm__Wire__Packet *answer = drain(observer, 0, false, false);
	ck_assert_int_eq(answer->body_case, GM__WIRE__PACKET__BODY_DRAIN_REPLY);
	ck_assert(answer->drain_reply->drained && answer->drain_reply->changed);
	ck_assert_uint_eq(answer->drain_reply->clients_asked, 1);
	ck_assert_uint_eq(answer->drain_reply->held, 8 * MIB);
	const struct gm_page_event *event = wire_hear(client);
	ck_assert_int_eq(event->kind, GM_PAGE_EVENT_RECLAIM);
	ck_assert(event->urgent);

	const Gm__Wire__Device *device = wire_status(observer)->devices[0];
	ck_assert_ptr_nonnull(device->drainer);
	ck_assert_uint_eq(device->drainer->uid, getuid());
	ck_assert_uint_eq(device->available, 0);
	ck_assert_uint_eq(device->pooled, 0);
	wire_send_lease(client, 0, MIB);
	wire_expect_failure(wire_receive(client), GPUMEM_E_NO_MEMORY);

	/* Again: who holds memory is asked again. */
	answer = drain(observer, 0, false, true);
	ck_assert(answer->drain_reply->drained && !answer->drain_reply->changed);
	event = wire_hear(client);
	ck_assert_int_eq(event->kind, GM_PAGE_EVENT_RECLAIM);
	wire_return(client, lease);
	do
		answer = drain(observer, 0, false, true);
	while (answer->drain_reply->held + answer->drain_reply->going);

	answer = drain(observer, 0, true, false);
	ck_assert(!answer->drain_reply->drained && answer->drain_reply->changed);
	answer = drain(observer, 0, true, false);
	ck_assert(!answer->drain_reply->changed);
	/* A waiting observer does not begin it anew. */
	answer = drain(observer, 0, false, true);
	ck_assert(!answer->drain_reply->drained && !answer->drain_reply->changed);
	ck_assert_ptr_null(wire_status(observer)->devices[0]->drainer);
	wire_lease(client, 2 * MIB);
	wire_expect_failure(drain(observer, 7, false, false), GPUMEM_E_NOT_FOUND);
	wire_close(client);
	wire_close(observer);
}
END_TEST

static Gm__Wire__Packet *evict(
	struct wire_client *client, uint64_t session, uint32_t row, bool restore)
{
	Gm__Wire__Evict body = GM__WIRE__EVICT__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	body.session = session;
	body.row = row;
	body.restore = restore;
	packet.body_case = GM__WIRE__PACKET__BODY_EVICT;
	packet.evict = &body;
	return wire_call(client, &packet);
}

START_TEST(only_buffers_that_can_move_are_asked_for)
{
	start();
	struct wire_client *client = wire_join(path, false), *observer = wire_join(path, true);
	wire_lease(client, 8 * MIB);
	struct gm_page_client *page = mmap(
		NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, client->client_page, 0);
	ck_assert_ptr_ne(page, MAP_FAILED);
	static const uint32_t places[] = {0, GM_PAGE_PLACE_EVICTABLE | GM_PAGE_PLACE_PINNED,
		GM_PAGE_PLACE_EVICTABLE | GM_PAGE_PLACE_SHARED, UINT32_MAX};

	wire_expect_failure(evict(observer, 0, 0, false), GPUMEM_E_NOT_FOUND);
	wire_expect_failure(evict(observer, client->session + 1, 0, false), GPUMEM_E_NOT_FOUND);
	wire_expect_failure(evict(observer, client->session, 0, false), GPUMEM_E_NOT_FOUND);
	wire_expect_failure(evict(observer, client->session, 1, false), GPUMEM_E_NOT_FOUND);
	wire_expect_failure(evict(observer, client->session, UINT32_MAX, true), GPUMEM_E_NOT_FOUND);

	page->rows[0].bytes = MIB;
	page->rows[0].born_ns = 1;
	for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
		page->rows[0].place = places[i];
		gpumem_status status = places[i] ? GPUMEM_E_BUSY : GPUMEM_E_UNSUPPORTED;
		wire_expect_failure(evict(observer, client->session, 1, false), status);
		wire_expect_failure(evict(observer, client->session, 1, true), status);
	}

	page->rows[0].place = GM_PAGE_PLACE_EVICTABLE;
	wire_expect_failure(evict(observer, client->session, 1, true), GPUMEM_E_BUSY);
	Gm__Wire__Packet *answer = evict(observer, client->session, 1, false);
	ck_assert_int_eq(answer->body_case, GM__WIRE__PACKET__BODY_EVICT_REPLY);
	ck_assert_uint_eq(answer->evict_reply->buffers, 1);
	ck_assert_uint_eq(answer->evict_reply->bytes, MIB);
	const struct gm_page_event *event = wire_hear(client);
	ck_assert_int_eq(event->kind, GM_PAGE_EVENT_EVICT);
	ck_assert_uint_eq(event->row, 1);
	ck_assert(!event->restore);
	munmap(page, sizeof(*page));
	wire_close(client);
	wire_close(observer);
}
END_TEST

START_TEST(only_host_memory_stands_in_for_a_device)
{
	start();
	struct wire_client *client = wire_join(path, false);
	Gm__Wire__Lease body = GM__WIRE__LEASE__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	packet.body_case = GM__WIRE__PACKET__BODY_LEASE;
	packet.lease = &body;
	body.bytes = MIB;
	body.fallback = true;
	wire_expect_failure(wire_call(client, &packet), GPUMEM_E_INVALID);
	wire_close(client);
}
END_TEST

START_TEST(an_ordinary_user_sees_totals_and_changes_nothing)
{
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
		/* It is in the daemon's pid namespace. Groups are those of a session. */
		if (strstr(answer->failure->detail, "pid namespace") ||
			!strstr(answer->failure->detail, "log"))
			_exit(7);
		for (int undo = 0; undo < 2; undo++) {
			answer = drain(other, 0, undo, false);
			if (answer->body_case != GM__WIRE__PACKET__BODY_FAILURE ||
				answer->failure->status != GPUMEM_E_DENIED)
				_exit(6);
		}
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
	GM_BOUND_TEST(TRACKED_BUFFERS);
	start();
	struct wire_client *client = wire_join(path, false);
	wire_lease(client, 8 * MIB);
	struct gm_page_client *page = mmap(
		NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, client->client_page, 0);
	ck_assert_ptr_ne(page, MAP_FAILED);
	for (int i = 0; i < GM_BOUND_TRACKED_BUFFERS; i++) {
		page->rows[i].bytes = 8 * MIB / GM_BOUND_TRACKED_BUFFERS;
		page->rows[i].born_ns = 1;
		strcpy(page->rows[i].tag, "buffer");
	}
	/* One more than has a row. */
	page->use[0].active_buffers = GM_BOUND_TRACKED_BUFFERS + 1;
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
	ck_assert_uint_eq(n, GM_BOUND_TRACKED_BUFFERS - 2);
	ck_assert_uint_eq(answer->buffers->untracked, 1);
	ck_assert_uint_eq(answer->buffers->n_totals, 1);
	ck_assert_uint_eq(answer->buffers->totals[0]->held, 8 * MIB);
	ck_assert_uint_eq(answer->buffers->totals[0]->tracked,
		8 * MIB / GM_BOUND_TRACKED_BUFFERS * (GM_BOUND_TRACKED_BUFFERS - 2));
	body.older_than_ms = UINT64_MAX;
	answer = wire_call(client, &packet);
	ck_assert_uint_eq(answer->buffers->n_buffers, 0);
	memset(page, 0xff, sizeof(*page));
	body.older_than_ms = 0;
	answer = wire_call(client, &packet);
	ck_assert_uint_eq(answer->buffers->n_buffers, 0);

	/* Rows that claim more than the client holds end where they would exceed it. */
	for (int i = 0; i < GM_BOUND_TRACKED_BUFFERS; i++)
		page->rows[i] = (struct gm_page_row){.bytes = 3 * MIB, .born_ns = 1};
	page->rows[9].bytes = MIB;
	n = 0;
	for (answer = wire_call(client, &packet);; answer = wire_receive(client)) {
		n += answer->buffers->n_buffers;
		if (!answer->more)
			break;
	}
	ck_assert_uint_eq(n, 3);
	ck_assert_uint_eq(answer->buffers->n_totals, 1);
	ck_assert_uint_eq(answer->buffers->totals[0]->tracked, 7 * MIB);
	munmap(page, sizeof(*page));
	wire_close(client);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("broker_admin");
	TCase *tests = tcase_create("broker");
	tcase_add_checked_fixture(tests, setup, teardown);
	tcase_add_test(tests, an_answer_that_quotes_a_text_is_utf8);
	tcase_add_test(tests, an_observer_sees_and_holds_nothing);
	tcase_add_test(tests, a_trim_asks_holders_for_what_they_cache_and_events_merge);
	tcase_add_test(tests, a_client_and_an_observer_learn_where_memory_would_find_room);
	tcase_add_test(
		tests, a_drain_tells_holders_says_how_much_is_left_and_shows_until_it_is_undone);
	tcase_add_test(tests, only_buffers_that_can_move_are_asked_for);
	tcase_add_test(tests, only_host_memory_stands_in_for_a_device);
	if (GM_TAP_WITH_USERS(an_ordinary_user_sees_totals_and_changes_nothing))
		tcase_add_test(tests, an_ordinary_user_sees_totals_and_changes_nothing);
	tcase_add_test(tests, tracked_buffers_are_listed_whatever_the_client_wrote);
	suite_add_tcase(suite, tests);
	return gm_tap_run(suite);
}
