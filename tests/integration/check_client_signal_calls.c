/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Signals in one session: what the calls refuse, who can write a control block, and what the daemon sends of
 * it. check_client_signal.c has signals between processes.
 */

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/control.h"
#include "tests/integration/raw.h"
#include "tests/integration/refused.h"
#include "tests/integration/signal_fixture.h"
#include "tests/bound.h"
#include "tests/tap.h"

/* ---- one session */

/* Nothing that the program writes to the buffer touches them, and they take no memory of the device. */
START_TEST(signals_begin_at_0_whatever_the_memory_held)
{
	gpumem_buffer *buffer = NULL;

	OK(gpumem_buffer_create(session, 0, 2 * MIB, NULL, &buffer));
	memset(gpumem_buffer_ptr(buffer), 0xff, 2 * MIB);
	gpumem_buffer_destroy(buffer);

	static const size_t sizes[] = {1, MIB, 2 * MIB - 64, 2 * MIB, 2 * MIB + 1, 64 * MIB};
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		buffer = with_signals(session, sizes[i]);
		uint8_t *ptr = gpumem_buffer_ptr(buffer);
		size_t whole = (sizes[i] + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
		GM_UNTIL(gm_figures_now(&daemon_).leased == whole);
		memset(ptr, 0xff, whole);
		OK(gpumem_buffer_lost(buffer, 7));
		OK(gpumem_buffer_signal(buffer, NULL, 7));
		OK(gpumem_buffer_wait(buffer, NULL, 7, GPUMEM_WAIT_FOREVER));
		memset(ptr, 0xff, whole);
		OK(gpumem_buffer_signal(buffer, NULL, 8));
		OK(gpumem_buffer_wait(buffer, NULL, 8, GPUMEM_WAIT_FOREVER));
		gpumem_buffer_destroy(buffer);
		GM_UNTIL(gm_figures_now(&daemon_).leased == 0);
	}
}
END_TEST

static void *signal_soon(void *buffer)
{
	OK(gpumem_buffer_signal(buffer, NULL, 2));
	return NULL;
}

START_TEST(a_wait_ends_when_its_time_is_over)
{
	static const uint32_t times[] = {0, GPUMEM_NO_WAIT, 1, 20};
	gpumem_buffer *buffer = with_signals(session, BYTES);
	pthread_t thread;

	OK(gpumem_buffer_signal(buffer, NULL, 1));
	for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
		REFUSED(gpumem_buffer_wait(buffer, NULL, 2, times[i]), GPUMEM_E_TIMEOUT,
			"the value 2 was not signalled in time; the last signal was 1");
		OK(gpumem_buffer_wait(buffer, NULL, 1, times[i]));
	}
	GM_REQUIRE(pthread_create(&thread, NULL, signal_soon, buffer) == 0);
	OK(gpumem_buffer_wait(buffer, NULL, 2, 3600000));
	GM_REQUIRE(pthread_join(thread, NULL) == 0);
	gpumem_buffer_destroy(buffer);
}
END_TEST

START_TEST(wrong_calls_are_refused_and_change_nothing)
{
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	gpumem_buffer *buffer = with_signals(session, BYTES), *plain = NULL, *view = NULL;
	gpumem_token token;

	OK(gpumem_buffer_create(session, 0, BYTES, NULL, &plain));
	REFUSED(gpumem_buffer_signal(plain, NULL, 1), GPUMEM_E_UNSUPPORTED,
		"created without signals");
	REFUSED(gpumem_buffer_wait(plain, NULL, 1, GPUMEM_WAIT_FOREVER), GPUMEM_E_UNSUPPORTED,
		"created without signals");
	REFUSED(gpumem_buffer_lost(plain, 1), GPUMEM_E_UNSUPPORTED, "created without signals");
	REFUSED(gpumem_buffer_signal(NULL, NULL, 1), GPUMEM_E_INVALID, "buffer must not be NULL");
	REFUSED(gpumem_buffer_wait(NULL, NULL, 1, GPUMEM_WAIT_FOREVER), GPUMEM_E_INVALID,
		"buffer must not be NULL");
	REFUSED(gpumem_buffer_lost(NULL, 1), GPUMEM_E_INVALID, "buffer must not be NULL");

	REFUSED(gpumem_buffer_signal(buffer, NULL, 0), GPUMEM_E_INVALID, "value must be from 1");
	REFUSED(gpumem_buffer_signal(buffer, NULL, GPUMEM_SIGNAL_MAX + 1), GPUMEM_E_INVALID,
		"value must be from 1");
	REFUSED(gpumem_buffer_wait(buffer, NULL, 0, GPUMEM_WAIT_FOREVER), GPUMEM_E_INVALID,
		"value must be from 1");
	REFUSED(gpumem_buffer_wait(buffer, NULL, UINT64_MAX, GPUMEM_WAIT_FOREVER), GPUMEM_E_INVALID,
		"value must be");
	REFUSED(gpumem_buffer_signal(buffer, GPUMEM_STREAM_ANY, 1), GPUMEM_E_INVALID, "stream");
	REFUSED(gpumem_buffer_wait(buffer, GPUMEM_STREAM_ANY, 1, GPUMEM_WAIT_FOREVER),
		GPUMEM_E_INVALID, "stream");
	REFUSED(gpumem_buffer_wait(buffer, GPUMEM_STREAM_DONE, 1, GPUMEM_WAIT_FOREVER),
		GPUMEM_E_INVALID, "stream");

	OK(gpumem_buffer_signal(buffer, GPUMEM_STREAM_DONE, 5));
	REFUSED(gpumem_buffer_signal(buffer, NULL, 5), GPUMEM_E_INVALID,
		"which was 5; 5 was given");
	REFUSED(gpumem_buffer_signal(buffer, NULL, 4), GPUMEM_E_INVALID,
		"which was 5; 4 was given");
	OK(gpumem_buffer_signal(buffer, NULL, GPUMEM_SIGNAL_MAX));
	OK(gpumem_buffer_wait(buffer, NULL, GPUMEM_SIGNAL_MAX, GPUMEM_WAIT_FOREVER));

	OK(gpumem_share(buffer, NULL, &token));
	OK(gpumem_open(session, &token, &view));
	REFUSED(gpumem_buffer_signal(view, NULL, 6), GPUMEM_E_DENIED, "created");
	OK(gpumem_buffer_wait(view, NULL, GPUMEM_SIGNAL_MAX, GPUMEM_WAIT_FOREVER));
	gpumem_buffer_destroy(view);

	options.flags = GPUMEM_BUFFER_SIGNALS;
	options.transport = GPUMEM_TRANSPORT_IPC;
	REFUSED(gpumem_buffer_create(session, 0, BYTES, &options, &view), GPUMEM_E_UNSUPPORTED,
		"signals need the fd transport");
	gpumem_buffer_destroy(plain);
	gpumem_buffer_destroy(buffer);
}
END_TEST

START_TEST(a_buffer_that_was_begun_has_signals_too)
{
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	gpumem_request *request = NULL;
	gpumem_buffer *buffer = NULL;

	options.flags = GPUMEM_BUFFER_SIGNALS;
	OK(gpumem_buffer_create_begin(session, 0, BYTES, &options, &request));
	OK(gpumem_request_wait(request, GPUMEM_WAIT_FOREVER));
	OK(gpumem_buffer_take(request, &buffer));
	OK(gpumem_buffer_signal(buffer, NULL, 1));
	OK(gpumem_buffer_wait(buffer, NULL, 1, GPUMEM_WAIT_FOREVER));
	gpumem_buffer_destroy(buffer);
}
END_TEST

static struct gm_control *control_of(int fd, int prot)
{
	void *page = mmap(NULL, GM_CONTROL_BYTES, prot, MAP_SHARED, fd, 0);
	GM_REQUIRE(page != MAP_FAILED);
	return page;
}

/* A reader that may write the buffer can write the control block, too. The producer's next signal
 * repairs it. Nobody can cut it. */
START_TEST(a_lie_ends_with_the_next_signal)
{
	gpumem_buffer *buffer = with_signals(session, BYTES), *view = NULL;
	struct gm_raw_lease opened = {0};
	struct gm_raw liar;
	gpumem_token token;

	OK(gpumem_share(buffer, NULL, &token));
	OK(gpumem_open(session, &token, &view));
	gm_raw_join(&liar, &daemon_);
	OK(gm_raw_open(&liar, token.bytes, &opened));
	GM_REQUIRE(ftruncate(opened.control, 0) < 0);
	struct gm_control *control = control_of(opened.control, PROT_READ | PROT_WRITE);

	memset(control, 0, sizeof(*control));
	OK(gpumem_buffer_signal(buffer, NULL, 1));
	GM_REQUIRE_EQ(control->last, 1);
	memset(control, 0, sizeof(*control));
	OK(gpumem_buffer_signal(buffer, NULL, 2));
	OK(gpumem_buffer_wait(view, NULL, 2, GPUMEM_WAIT_FOREVER));
	munmap(control, GM_CONTROL_BYTES);
	OK(gm_raw_give_back(&liar, &opened));
	gm_raw_close(&liar);
	gpumem_buffer_destroy(view);
	gpumem_buffer_destroy(buffer);
}
END_TEST

/* Host memory can be had for reading alone, and its signals then, too. */
START_TEST(a_reader_of_host_memory_cannot_write_its_signals)
{
	gpumem_buffer *buffer = with_signals(session, BYTES);
	struct gm_raw_lease opened = {0};
	struct gm_raw reader;
	gpumem_token token;

	OK(gpumem_share(buffer, &read_only, &token));
	gm_raw_join(&reader, &daemon_);
	OK(gm_raw_open(&reader, token.bytes, &opened));
	GM_REQUIRE(mmap(NULL, GM_CONTROL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, opened.control,
			   0) == MAP_FAILED);
	struct gm_control *control = control_of(opened.control, PROT_READ);
	OK(gpumem_buffer_signal(buffer, NULL, 9));
	GM_REQUIRE_EQ(control->value, 9);
	munmap(control, GM_CONTROL_BYTES);
	OK(gm_raw_give_back(&reader, &opened));
	gm_raw_close(&reader);
	gpumem_buffer_destroy(buffer);
}
END_TEST

/* ---- the wire */

/* Asks which of the leases have no maker; how many are said to be gone. */
static size_t ask_makers(struct gm_raw *raw, uint64_t *leases, size_t n)
{
	Gm__Wire__GetMakers ask = GM__WIRE__GET_MAKERS__INIT;
	ask.leases = leases;
	ask.n_leases = n;
	Gm__Wire__Packet packet = GM_WIRE_PACKET(GET_MAKERS, get_makers, &ask);

	OK(gm_raw_call(raw, &packet));
	GM_REQUIRE_EQ(raw->packet->body_case, GM__WIRE__PACKET__BODY_MAKERS);
	return raw->packet->makers->n_gone;
}

START_TEST(the_daemon_tells_openers_and_answers_for_what_they_hold)
{
	struct gm_raw maker, opener;
	struct gm_raw_lease lease = {0}, opened = {0};
	uint8_t token[GM_TOKEN_BYTES];
	uint64_t many[GM_BOUND_LIST_ITEMS + 1];

	gm_raw_join(&maker, &daemon_);
	gm_raw_join(&opener, &daemon_);
	Gm__Wire__Lease body = GM__WIRE__LEASE__INIT;
	body.bytes = 2 * MIB;
	body.signals = true;
	Gm__Wire__Packet packet = GM_WIRE_PACKET(LEASE, lease, &body);
	OK(gm_raw_call(&maker, &packet));
	GM_REQUIRE(maker.packet->lease_reply->signals && !maker.packet->lease_reply->maker_gone);
	GM_REQUIRE_EQ(maker.packet->lease_reply->user_bytes, 2 * MIB);
	OK(gm_raw_collect(&maker, &lease));
	GM_REQUIRE_EQ(lease.bytes, 2 * MIB); /* the control block is no memory of the device */
	GM_REQUIRE(lease.control > 0);
	GM_REQUIRE_EQ(gm_raw_grow(&maker, &lease, 2 * MIB), GPUMEM_E_UNSUPPORTED);
	GM_REQUIRE(strstr(gm_raw_detail(&maker), "cannot grow") != NULL);

	OK(gm_raw_share(&maker, lease.id, GM__WIRE__AUDIENCE__AUDIENCE_DOMAIN, 0, false, token));
	OK(gm_raw_open(&opener, token, &opened));
	uint64_t asked[] = {lease.id, UINT64_MAX, 0};
	GM_REQUIRE_EQ(ask_makers(&opener, asked, 3), 2); /* all but the one that it holds */
	GM_REQUIRE_EQ(ask_makers(&opener, NULL, 0), 0);
	GM_REQUIRE(!gm_raw_has_event(&opener));

	gm_raw_lease_clear(&lease);
	OK(gm_raw_goodbye(&maker));
	GM_REQUIRE(gm_raw_receive_event(&opener));
	GM_REQUIRE_EQ(opener.event.kind, GM_PAGE_EVENT_MAKERS);
	GM_REQUIRE_EQ(ask_makers(&opener, asked, 3), 3);
	memset(many, 0xff, sizeof(many)); /* the longest ids that there are */
	GM_BOUND_TEST(LIST_ITEMS);
	GM_REQUIRE_EQ(ask_makers(&opener, many, GM_BOUND_LIST_ITEMS), GM_BOUND_LIST_ITEMS);
	Gm__Wire__GetMakers too_many = GM__WIRE__GET_MAKERS__INIT;
	too_many.leases = many;
	too_many.n_leases = GM_BOUND_LIST_ITEMS + 1;
	packet = (Gm__Wire__Packet)GM_WIRE_PACKET(GET_MAKERS, get_makers, &too_many);
	GM_REQUIRE_EQ(gm_raw_call(&opener, &packet), GPUMEM_E_INVALID);
	OK(gm_raw_give_back(&opener, &opened));
	gm_raw_close(&maker);
	gm_raw_close(&opener);
}
END_TEST

static void raw_with_signals(struct gm_raw *raw, uint64_t bytes, struct gm_raw_lease *ret)
{
	Gm__Wire__Lease body = GM__WIRE__LEASE__INIT;
	body.bytes = bytes;
	body.signals = true;
	Gm__Wire__Packet packet = GM_WIRE_PACKET(LEASE, lease, &body);
	OK(gm_raw_call(raw, &packet));
	OK(gm_raw_collect(raw, ret));
	GM_REQUIRE(ret->control > 0);
}

/* Every answer has it once, however many packets that takes: its handles may have been lost before. */
START_TEST(each_answer_brings_the_control_block)
{
	struct gm_raw maker;
	struct gm_raw_lease lease = {0}, handles;
	struct stat first, again;

	gm_raw_join(&maker, &daemon_);
	raw_with_signals(&maker, 62 * MIB, &lease);
	GM_REQUIRE(lease.n > 1);
	GM_REQUIRE(fstat(lease.control, &first) == 0);
	for (size_t from = 0; from <= lease.n; from++) {
		OK(gm_raw_handles(&maker, lease.id, from, &handles));
		GM_REQUIRE_EQ(handles.n, lease.n - from);
		GM_REQUIRE(fstat(handles.control, &again) == 0);
		GM_REQUIRE_EQ(first.st_ino, again.st_ino);
		gm_raw_lease_clear(&handles);
	}
	OK(gm_raw_give_back(&maker, &lease));
	gm_raw_close(&maker);
}
END_TEST

/* The maker has returned a chunk, which has nothing to do with the signals. */
START_TEST(signals_do_not_depend_on_chunks)
{
	struct gm_raw maker;
	struct gm_raw_lease lease = {0};
	gpumem_buffer *buffer = NULL;
	gpumem_token token;

	gm_raw_join(&maker, &daemon_);
	raw_with_signals(&maker, 6 * MIB, &lease);
	GM_REQUIRE_EQ(lease.n, 2);
	close(lease.chunks[1].fd);
	lease.chunks[1].fd = -1;
	OK(gm_raw_return(&maker, lease.id, &lease.chunks[1].id, 1));
	OK(gm_raw_share(&maker, lease.id, GM__WIRE__AUDIENCE__AUDIENCE_DOMAIN, 0, _i, token.bytes));
	OK(gpumem_open(session, &token, &buffer));
	struct gm_control *control = control_of(lease.control, PROT_READ | PROT_WRITE);
	atomic_store(&control->last, 3);
	OK(gpumem_buffer_wait(buffer, NULL, 3, GPUMEM_WAIT_FOREVER));
	munmap(control, GM_CONTROL_BYTES);
	gpumem_buffer_destroy(buffer);
	OK(gm_raw_give_back(&maker, &lease));
	gm_raw_close(&maker);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client signal calls");
	TCase *tc = tcase_create("one session");
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, signals_begin_at_0_whatever_the_memory_held);
	tcase_add_test(tc, a_wait_ends_when_its_time_is_over);
	tcase_add_test(tc, wrong_calls_are_refused_and_change_nothing);
	tcase_add_test(tc, a_buffer_that_was_begun_has_signals_too);
	tcase_add_test(tc, a_lie_ends_with_the_next_signal);
	tcase_add_test(tc, a_reader_of_host_memory_cannot_write_its_signals);
	tcase_add_test(tc, each_answer_brings_the_control_block);
	tcase_add_loop_test(tc, signals_do_not_depend_on_chunks, 0, 2);
	suite_add_tcase(suite, tc);

	tc = tcase_create("without a session");
	tcase_add_checked_fixture(tc, set_up_alone, tear_down_alone);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, the_daemon_tells_openers_and_answers_for_what_they_hold);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
