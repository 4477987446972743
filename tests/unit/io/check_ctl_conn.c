/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * gpumemctl's connection against daemons that do everything wrong: each must end in the right
 * status and a sentence, never in a hang or half an answer.
 */

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/text/units.h"
#include "ctl/io/ctl_conn.h"
#include "tests/scratch.h"
#include "tests/tap.h"
#include "tests/unit/io/ctl_fake.h"

#define TIMEOUT_MS 30000

static struct gm_fake fake;
static struct gm_trouble trouble;
static size_t packets;
static uint64_t rows;

static void count(void *user, const Gm__Wire__Packet *packet)
{
	packets++;
	rows += packet->buffers->n_buffers;
}

/* Asks for the buffers, and ends the connection. */
static gpumem_status ask(uint64_t timeout_ms)
{
	Gm__Wire__GetBuffers body = GM__WIRE__GET_BUFFERS__INIT;
	Gm__Wire__Packet request = GM__WIRE__PACKET__INIT;
	struct gm_ctl_conn *conn = NULL;

	packets = rows = 0;
	memset(&trouble, 0, sizeof(trouble));
	gpumem_status status = gm_ctl_conn_open(fake.path, timeout_ms, &trouble, &conn);
	if (status != GPUMEM_OK) {
		ck_assert_ptr_null(conn);
		return status;
	}
	request.body_case = GM__WIRE__PACKET__BODY_GET_BUFFERS;
	request.get_buffers = &body;
	status = gm_ctl_conn_ask(
		conn, &request, GM__WIRE__PACKET__BODY_BUFFERS, count, NULL, &trouble);
	gm_ctl_conn_free(conn);
	return status;
}

static gpumem_status ask_script(gm_fake_script script)
{
	gm_fake_start(&fake, script, NULL);
	gpumem_status status = ask(TIMEOUT_MS);
	gm_fake_stop(&fake);
	if (status != GPUMEM_OK) {
		ck_assert_int_eq(trouble.status, status);
		ck_assert_str_ne(trouble.text, "");
	}
	return status;
}

/* Answers with this many rows, n_packets times, all but the last saying that more follows. */
static void send_rows(struct gm_fake *f, uint64_t id, size_t n_packets, size_t n_rows, bool open)
{
	static Gm__Wire__Buffer buffer;
	static Gm__Wire__Buffer *list[1024];

	gm__wire__buffer__init(&buffer);
	buffer.tag = (char *)"weights";
	buffer.client = (char *)"worker";
	buffer.bytes = 1 << 20;
	for (size_t i = 0; i < n_rows; i++)
		list[i] = &buffer;
	for (size_t i = 0; i < n_packets; i++) {
		Gm__Wire__BuffersReply reply = GM__WIRE__BUFFERS_REPLY__INIT;
		Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
		reply.n_buffers = n_rows;
		reply.buffers = list;
		packet.id = id;
		packet.more = open || i + 1 < n_packets;
		packet.body_case = GM__WIRE__PACKET__BODY_BUFFERS;
		packet.buffers = &reply;
		gm_fake_send(f, &packet);
	}
}

static const Gm__Wire__Packet *hello_and_request(struct gm_fake *f)
{
	return gm_fake_hello(f) ? gm_fake_expect(f, GM__WIRE__PACKET__BODY_GET_BUFFERS) : NULL;
}

static void script_one_packet(struct gm_fake *f, void *user)
{
	const Gm__Wire__Packet *request = hello_and_request(f);
	if (request)
		send_rows(f, request->id, 1, 3, false);
}

START_TEST(a_long_sentence_is_cut_between_two_characters)
{
	char text[sizeof(trouble.text) * 2] = "";

	for (size_t i = 0; i < sizeof(trouble.text) / 2; i++)
		strcat(text, "\xe2\x82\xac");
	for (int i = 0; i < 3; i++) {
		gm_trouble_set(&trouble, GPUMEM_E_INVALID, "%*s%s", i, "", text);
		ck_assert_uint_ge(strlen(trouble.text), sizeof(trouble.text) - 3);
		ck_assert(gm_text_ok(trouble.text));
	}
	/* A text that fits is copied unchanged: gm_message() escapes unprintable characters. */
	gm_trouble_set(&trouble, GPUMEM_E_INVALID, "%s", "a\nb\xe2");
	ck_assert_str_eq(trouble.text, "a\nb\xe2");
}
END_TEST

START_TEST(an_answer_of_one_packet_arrives)
{
	ck_assert_int_eq(ask_script(script_one_packet), GPUMEM_OK);
	ck_assert_uint_eq(packets, 1);
	ck_assert_uint_eq(rows, 3);
}
END_TEST

static void script_huge(struct gm_fake *f, void *user)
{
	const Gm__Wire__Packet *request = hello_and_request(f);
	if (request)
		send_rows(f, request->id, 1000, 1000, false);
}

START_TEST(a_million_rows_in_a_thousand_packets_arrive)
{
	ck_assert_int_eq(ask_script(script_huge), GPUMEM_OK);
	ck_assert_uint_eq(packets, 1000);
	ck_assert_uint_eq(rows, 1000000);
}
END_TEST

static void script_dies_in_answer(struct gm_fake *f, void *user)
{
	const Gm__Wire__Packet *request = hello_and_request(f);
	if (request)
		send_rows(f, request->id, 2, 3, true);
}

START_TEST(a_daemon_that_dies_within_an_answer_counts_as_not_reached)
{
	ck_assert_int_eq(ask_script(script_dies_in_answer), GPUMEM_E_DISCONNECTED);
	ck_assert_ptr_nonnull(strstr(trouble.text, "before it answered"));
}
END_TEST

static void script_dies_at_once(struct gm_fake *f, void *user)
{
}

START_TEST(a_daemon_that_closes_at_once_counts_as_not_reached)
{
	ck_assert_int_eq(ask_script(script_dies_at_once), GPUMEM_E_DISCONNECTED);
}
END_TEST

static void script_out_of_order(struct gm_fake *f, void *user)
{
	const Gm__Wire__Packet *request = hello_and_request(f);
	if (!request)
		return;
	uint64_t id = request->id;
	f->sequence = 41;
	send_rows(f, id, 1, 1, true);
	f->sequence = 40;
	send_rows(f, id, 1, 1, false);
	gm_fake_wait_end(f);
}

START_TEST(packets_out_of_order_are_refused)
{
	ck_assert_int_eq(ask_script(script_out_of_order), GPUMEM_E_PROTOCOL);
	ck_assert_ptr_nonnull(strstr(trouble.text, "out of order"));
}
END_TEST

static void script_foreign_id(struct gm_fake *f, void *user)
{
	const Gm__Wire__Packet *request = hello_and_request(f);
	if (request) {
		send_rows(f, request->id + 1000, 1, 1, false);
		gm_fake_wait_end(f);
	}
}

START_TEST(an_answer_to_what_was_not_asked_is_refused)
{
	ck_assert_int_eq(ask_script(script_foreign_id), GPUMEM_E_PROTOCOL);
	ck_assert_uint_eq(packets, 0);
}
END_TEST

static void script_other_body(struct gm_fake *f, void *user)
{
	const Gm__Wire__Packet *request = hello_and_request(f);
	Gm__Wire__Done done = GM__WIRE__DONE__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;

	if (!request)
		return;
	packet.id = request->id;
	packet.body_case = GM__WIRE__PACKET__BODY_DONE;
	packet.done = &done;
	gm_fake_send(f, &packet);
	gm_fake_wait_end(f);
}

START_TEST(an_answer_of_another_kind_is_refused)
{
	ck_assert_int_eq(ask_script(script_other_body), GPUMEM_E_PROTOCOL);
	ck_assert_uint_eq(packets, 0);
}
END_TEST

static void script_event_between(struct gm_fake *f, void *user)
{
	const Gm__Wire__Packet *request = hello_and_request(f);
	Gm__Wire__PressureEvent event = GM__WIRE__PRESSURE_EVENT__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;

	if (!request)
		return;
	uint64_t id = request->id;
	packet.body_case = GM__WIRE__PACKET__BODY_PRESSURE_EVENT;
	packet.pressure_event = &event;
	gm_fake_send(f, &packet);
	send_rows(f, id, 1, 2, false);
}

START_TEST(an_event_before_the_answer_is_passed_over)
{
	ck_assert_int_eq(ask_script(script_event_between), GPUMEM_OK);
	ck_assert_uint_eq(rows, 2);
}
END_TEST

static void script_garbage(struct gm_fake *f, void *user)
{
	static const uint8_t garbage[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
	if (hello_and_request(f)) {
		gm_fake_send_bytes(f, garbage, sizeof(garbage));
		gm_fake_wait_end(f);
	}
}

START_TEST(a_packet_that_is_none_is_refused)
{
	ck_assert_int_eq(ask_script(script_garbage), GPUMEM_E_PROTOCOL);
}
END_TEST

static void script_empty_packet(struct gm_fake *f, void *user)
{
	if (hello_and_request(f)) {
		send(f->socket, "", 0, MSG_NOSIGNAL);
		gm_fake_wait_end(f);
	}
}

START_TEST(a_packet_of_length_0_is_refused)
{
	ck_assert_int_eq(ask_script(script_empty_packet), GPUMEM_E_PROTOCOL);
}
END_TEST

static void script_too_long(struct gm_fake *f, void *user)
{
	static uint8_t bytes[GM_BOUND_PACKET_BYTES + 1];
	if (hello_and_request(f)) {
		if (send(f->socket, bytes, sizeof(bytes), MSG_NOSIGNAL) != sizeof(bytes))
			strcpy(f->error, "the long packet was not sent");
		gm_fake_wait_end(f);
	}
}

START_TEST(a_packet_that_is_too_long_is_refused)
{
	ck_assert_int_eq(ask_script(script_too_long), GPUMEM_E_PROTOCOL);
	ck_assert_ptr_nonnull(strstr(trouble.text, "too long"));
}
END_TEST

static uint32_t failure_status;
static const char *failure_detail;

static void script_failure(struct gm_fake *f, void *user)
{
	const Gm__Wire__Packet *request = hello_and_request(f);
	Gm__Wire__Failure failure = GM__WIRE__FAILURE__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;

	if (!request)
		return;
	failure.status = failure_status;
	failure.detail = (char *)failure_detail;
	packet.id = request->id;
	packet.body_case = GM__WIRE__PACKET__BODY_FAILURE;
	packet.failure = &failure;
	gm_fake_send(f, &packet);
}

START_TEST(every_failure_keeps_its_status_and_its_detail)
{
	for (uint32_t status = 1; status <= GPUMEM_E_CANCELLED; status++) {
		failure_status = status;
		failure_detail = "uid 1002 may hold 48.0G";
		ck_assert_int_eq(ask_script(script_failure), (gpumem_status)status);
		ck_assert_str_eq(trouble.text, failure_detail);
	}
}
END_TEST

START_TEST(a_failure_without_a_detail_gets_the_text_of_its_status)
{
	failure_status = GPUMEM_E_DENIED;
	failure_detail = "";
	ck_assert_int_eq(ask_script(script_failure), GPUMEM_E_DENIED);
	ck_assert_str_eq(trouble.text, gm_status_text(GPUMEM_E_DENIED));
}
END_TEST

START_TEST(a_failure_that_says_ok_is_no_success)
{
	failure_status = GPUMEM_OK;
	failure_detail = "";
	ck_assert_int_ne(ask_script(script_failure), GPUMEM_OK);
	failure_status = 4711;
	ck_assert_int_eq(gm_status_exit(ask_script(script_failure)), 1);
}
END_TEST

static void script_other_major(struct gm_fake *f, void *user)
{
	const Gm__Wire__Packet *request = gm_fake_expect(f, GM__WIRE__PACKET__BODY_HELLO);
	Gm__Wire__HelloReply reply = GM__WIRE__HELLO_REPLY__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;

	if (!request)
		return;
	reply.major = GM_WIRE_MAJOR + 1;
	reply.version = (char *)"9.8.7";
	packet.id = request->id;
	packet.body_case = GM__WIRE__PACKET__BODY_HELLO_REPLY;
	packet.hello_reply = &reply;
	gm_fake_send(f, &packet);
	gm_fake_wait_end(f);
}

START_TEST(another_major_version_is_refused_with_both_versions_named)
{
	ck_assert_int_eq(ask_script(script_other_major), GPUMEM_E_VERSION);
	ck_assert_ptr_nonnull(strstr(trouble.text, "9.8.7"));
	ck_assert_ptr_nonnull(strstr(trouble.text, "2.0"));
	ck_assert_ptr_nonnull(strstr(trouble.text, "1.4"));
}
END_TEST

static void script_refused_before_hello(struct gm_fake *f, void *user)
{
	Gm__Wire__Failure failure = GM__WIRE__FAILURE__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;

	failure.status = GPUMEM_E_LIMIT;
	failure.detail = (char *)"uid 0 has 1024 connections, as many as it may";
	packet.body_case = GM__WIRE__PACKET__BODY_FAILURE;
	packet.failure = &failure;
	gm_fake_send(f, &packet);
}

START_TEST(a_daemon_that_refuses_before_the_hello_is_heard)
{
	ck_assert_int_eq(ask_script(script_refused_before_hello), GPUMEM_E_LIMIT);
	ck_assert_ptr_nonnull(strstr(trouble.text, "1024 connections"));
}
END_TEST

static void script_silent(struct gm_fake *f, void *user)
{
	gm_fake_wait_end(f);
}

START_TEST(a_daemon_that_says_nothing_is_not_waited_for_for_ever)
{
	gm_fake_start(&fake, script_silent, NULL);
	ck_assert_int_eq(ask(1), GPUMEM_E_TIMEOUT);
	gm_fake_stop(&fake);
	ck_assert_ptr_nonnull(strstr(trouble.text, "did not answer within"));
}
END_TEST

static void script_sends_fds(struct gm_fake *f, void *user)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {0};
	Gm__Wire__BuffersReply reply = GM__WIRE__BUFFERS_REPLY__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	const Gm__Wire__Packet *request = hello_and_request(f);
	size_t n;

	if (!request)
		return;
	packet.id = request->id;
	packet.sequence = 99;
	packet.fds = 1;
	packet.body_case = GM__WIRE__PACKET__BODY_BUFFERS;
	packet.buffers = &reply;
	gm_wire_pack(&packet, f->bytes, sizeof(f->bytes), &n);
	struct iovec data = {.iov_base = f->bytes, .iov_len = n};
	struct msghdr message = {.msg_iov = &data,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&message);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &f->socket, sizeof(int));
	if (sendmsg(f->socket, &message, MSG_NOSIGNAL) < 0)
		strcpy(f->error, "sendmsg");
	/* Ends only when no copy of our socket is left open at the other side. */
	gm_fake_wait_end(f);
}

START_TEST(file_descriptors_nobody_asked_for_are_closed)
{
	int before = dup(0);
	close(before);
	ck_assert_int_eq(ask_script(script_sends_fds), GPUMEM_OK);
	int after = dup(0);
	close(after);
	ck_assert_int_eq(before, after);
}
END_TEST

START_TEST(no_socket_says_what_was_tried_and_what_to_do)
{
	struct gm_ctl_conn *conn = NULL;

	ck_assert_int_eq(gm_ctl_conn_open("/nonexistent/socket", 1000, &trouble, &conn),
		GPUMEM_E_DISCONNECTED);
	ck_assert_int_eq(gm_status_exit(trouble.status), 3);
	ck_assert_ptr_nonnull(strstr(trouble.text, "/nonexistent/socket"));
	ck_assert_ptr_nonnull(strstr(trouble.text, "its folder does not exist"));
	ck_assert_ptr_nonnull(strstr(trouble.hint, "check the path"));
}
END_TEST

START_TEST(a_path_that_is_too_long_is_not_reached)
{
	char path[GM_BOUND_SOCKET_PATH_BYTES + 2];
	struct gm_ctl_conn *conn = NULL;

	memset(path, 'a', sizeof(path) - 1);
	path[sizeof(path) - 1] = '\0';
	ck_assert_int_eq(gm_ctl_conn_open(path, 1000, &trouble, &conn), GPUMEM_E_DISCONNECTED);
	ck_assert_ptr_nonnull(strstr(trouble.text, "107"));
}
END_TEST

START_TEST(a_socket_nobody_listens_on_says_so)
{
	char folder[64];
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct gm_ctl_conn *conn = NULL;

	gm_scratch_folder(folder, sizeof(folder));
	snprintf(address.sun_path, sizeof(address.sun_path), "%s/socket", folder);
	int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(s, (struct sockaddr *)&address, sizeof(address)), 0);
	close(s);
	ck_assert_int_eq(
		gm_ctl_conn_open(address.sun_path, 1000, &trouble, &conn), GPUMEM_E_DISCONNECTED);
	ck_assert_ptr_nonnull(strstr(trouble.text, "no daemon listens there"));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ctl_conn");
	TCase *tcase = tcase_create("conn");

	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, a_long_sentence_is_cut_between_two_characters);
	tcase_add_test(tcase, an_answer_of_one_packet_arrives);
	tcase_add_test(tcase, a_million_rows_in_a_thousand_packets_arrive);
	tcase_add_test(tcase, a_daemon_that_dies_within_an_answer_counts_as_not_reached);
	tcase_add_test(tcase, a_daemon_that_closes_at_once_counts_as_not_reached);
	tcase_add_test(tcase, packets_out_of_order_are_refused);
	tcase_add_test(tcase, an_answer_to_what_was_not_asked_is_refused);
	tcase_add_test(tcase, an_answer_of_another_kind_is_refused);
	tcase_add_test(tcase, an_event_before_the_answer_is_passed_over);
	tcase_add_test(tcase, a_packet_that_is_none_is_refused);
	tcase_add_test(tcase, a_packet_of_length_0_is_refused);
	tcase_add_test(tcase, a_packet_that_is_too_long_is_refused);
	tcase_add_test(tcase, every_failure_keeps_its_status_and_its_detail);
	tcase_add_test(tcase, a_failure_without_a_detail_gets_the_text_of_its_status);
	tcase_add_test(tcase, a_failure_that_says_ok_is_no_success);
	tcase_add_test(tcase, another_major_version_is_refused_with_both_versions_named);
	tcase_add_test(tcase, a_daemon_that_refuses_before_the_hello_is_heard);
	tcase_add_test(tcase, a_daemon_that_says_nothing_is_not_waited_for_for_ever);
	tcase_add_test(tcase, file_descriptors_nobody_asked_for_are_closed);
	tcase_add_test(tcase, no_socket_says_what_was_tried_and_what_to_do);
	tcase_add_test(tcase, a_path_that_is_too_long_is_not_reached);
	tcase_add_test(tcase, a_socket_nobody_listens_on_says_so);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
