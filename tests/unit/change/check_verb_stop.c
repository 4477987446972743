/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * gpumemctl stop against a scripted daemon: what the daemon is asked for, for whose end it waits, and
 * what is said about it. tests/integration/check_stop.c does the same with a real daemon.
 */

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/tap.h"
#include "tests/unit/ctl/shortage_script.h"

static bool forget;
static pid_t process; /* says to be the daemon */
static uint64_t namespace_now;
static bool ends; /* it does so, once it is asked to */
static uint64_t clients_now, leases_now;
static size_t holders_now,
	left_now; /* rows of clients: those that hold memory, and what others left */

static void stop_setup(void)
{
	struct stat own;

	setup();
	ck_assert_int_eq(stat("/proc/self/ns/pid", &own), 0);
	namespace_now = own.st_ino;
	ends = true;
	clients_now = leases_now = 0;
	holders_now = left_now = 0;
	process = fork();
	ck_assert_int_ge(process, 0);
	if (process == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
}

static void stop_teardown(void)
{
	kill(process, SIGKILL);
	waitpid(process, NULL, 0);
}

/* The last client holds nothing. Each of the others holds 1 GiB on two devices. */
static void answer_clients(struct gm_fake *f, uint64_t id)
{
	Gm__Wire__ClientsReply reply = GM__WIRE__CLIENTS_REPLY__INIT;
	Gm__Wire__Client rows[8], *list[8];
	Gm__Wire__ClientUse use[2], *uses[2] = {&use[0], &use[1]};

	begin();
	for (uint32_t i = 0; i < 2; i++) {
		gm__wire__client_use__init(&use[i]);
		use[i].device = i;
		use[i].held = G;
	}
	for (size_t i = 0; i < holders_now + left_now + 1; i++) {
		gm__wire__client__init(&rows[i]);
		list[i] = &rows[i];
		rows[i].left = i >= holders_now && i < holders_now + left_now;
		rows[i].pid = rows[i].left ? 0 : 4711 + (int64_t)i;
		rows[i].name = (char *)"train";
		rows[i].details = true;
		rows[i].use = uses;
		rows[i].n_use = i < holders_now + left_now ? 2 : 0;
	}
	reply.clients = list;
	reply.n_clients = holders_now + left_now + 1;
	packet.body_case = GM__WIRE__PACKET__BODY_CLIENTS;
	packet.clients = &reply;
	send_answer(f, &packet, id, false);
}

static void script_stop(struct gm_fake *f, void *user)
{
	Gm__Wire__StatusReply reply = GM__WIRE__STATUS_REPLY__INIT;
	Gm__Wire__Done done = GM__WIRE__DONE__INIT;

	if (!gm_fake_hello(f))
		return;
	uint64_t id = asked(f, GM__WIRE__PACKET__BODY_GET_STATUS);
	packet.body_case = GM__WIRE__PACKET__BODY_STATUS;
	packet.status = &reply;
	reply.pid = (uint64_t)process;
	reply.pid_namespace = namespace_now;
	reply.clients = clients_now;
	reply.leases = leases_now;
	send_answer(f, &packet, id, false);

	if (options_now->given & GM_OPTION_FORGET && clients_now + leases_now > 0)
		answer_clients(f, asked(f, GM__WIRE__PACKET__BODY_GET_CLIENTS));
	const Gm__Wire__Packet *request = gm_fake_expect(f, GM__WIRE__PACKET__BODY_STOP);
	if (!request)
		return;
	forget = request->stop->forget;
	id = request->id;
	begin();
	packet.body_case = GM__WIRE__PACKET__BODY_DONE;
	packet.done = &done;
	/* Answers may take long on a slow machine, but there is no need to wait for what never ends. */
	if (!ends)
		options_now->timeout_ms = 1;
	send_answer(f, &packet, id, false);
	if (ends)
		kill(process, SIGKILL);
	gm_fake_wait_end(f);
}

START_TEST(stop_keeps_what_clients_hold_unless_it_is_to_forget)
{
	struct gm_options options = {0};
	clients_now = 1;
	char *text = run_text("stop", script_stop);
	ck_assert(!forget);
	has(text, "What clients hold or have published");
	has(text, "Programs that ask for memory wait 30s for it, ");
	free(text);

	options.given = GM_OPTION_FORGET;
	json_t *json = parse(run("stop", script_stop, true, &options));
	ck_assert(forget);
	ck_assert(json_is_true(json_object_get(json, "forgotten")));
	json_decref(json);
}
END_TEST

START_TEST(what_stays_mapped_after_stop_forget_is_said)
{
	struct gm_options options = {.given = GM_OPTION_FORGET};
	size_t n;

	clients_now = leases_now = 1;
	holders_now = 1;
	char *text = run("stop", script_stop, false, &options);
	ck_assert_str_eq(text,
		"The daemon has ended.\n"
		"1 program still has 2.0G mapped: 2.0G train (pid 4711, user root). Nobody counts\n"
		"this memory any more; it is freed when the program ends.\n");
	ck_assert(forget);
	free(text);
	stop_teardown();

	stop_setup();
	clients_now = 6;
	holders_now = 5;
	left_now = 1;
	text = run("stop", script_stop, false, &options);
	for (n = 0; text[n]; n++)
		if (text[n] == '\n')
			text[n] = ' ';
	has(text, "The daemon has ended. 5 programs still have 10.0G mapped: ");
	has(text,
		"2.0G train (pid 4714, user root), and 1 more. Nobody counts this memory any more; it is freed when they end. ");
	has(text, "published or left behind is freed when no program has it mapped. ");
	free(text);
	stop_teardown();

	/* Who is connected and holds nothing maps nothing. */
	stop_setup();
	clients_now = 1;
	text = run("stop", script_stop, false, &options);
	ck_assert_str_eq(text, "The daemon has ended.\n");
	free(text);
}
END_TEST

/* Nobody is connected, and nothing is published. */
START_TEST(stop_says_nothing_of_clients_if_there_are_none)
{
	struct gm_options options = {.given = GM_OPTION_FORGET};

	ends = false;
	namespace_now = 0;
	char *text = run_text("stop", script_stop);
	ck_assert_str_eq(text, "The daemon ends.\n");
	free(text);
	text = run("stop", script_stop, false, &options);
	ck_assert_str_eq(text, "The daemon ends.\n");
	free(text);
	/* Clients have gone, and left something. */
	leases_now = 1;
	text = run_text("stop", script_stop);
	has(text, "hold or have published");
	ck_assert_ptr_null(strstr(text, "Programs"));
	free(text);
}
END_TEST

START_TEST(stop_waits_until_the_daemon_has_ended)
{
	char *text = run_text("stop", script_stop);
	siginfo_t info = {0};

	has(text, "The daemon has ended.");
	free(text);
	ck_assert_int_eq(waitid(P_PID, (id_t)process, &info, WEXITED | WNOHANG | WNOWAIT), 0);
	ck_assert_int_eq(info.si_pid, process);
}
END_TEST

START_TEST(a_daemon_that_does_not_end_in_time_is_a_failure)
{
	ends = false;
	ck_assert_ptr_null(run("stop", script_stop, false, NULL));
	ck_assert_int_eq(trouble.status, GPUMEM_E_BUSY);
	has(trouble.text, "has not ended within");
	ck_assert_int_eq(gm_status_exit(trouble.status), 1);
}
END_TEST

/* The number belongs to another process here, and that one goes on. */
START_TEST(stop_does_not_wait_for_a_process_of_another_pid_namespace)
{
	ends = false;
	namespace_now++;
	char *text = run_text("stop", script_stop);
	has(text, "The daemon ends.");
	free(text);

	/* An older daemon does not say. */
	namespace_now = 0;
	json_t *json = run_json("stop", script_stop);
	ck_assert(json_is_false(json_object_get(json, "ended")));
	json_decref(json);
	ck_assert_int_eq(waitpid(process, NULL, WNOHANG), 0);
}
END_TEST

START_TEST(without_a_daemon_there_is_nothing_to_stop)
{
	struct gm_options options = {.socket = "/nonexistent/socket", .timeout_ms = 30000};
	struct gm_ctl ctl = {.options = &options};

	options.verb = gm_verb_find(gm_verbs, "stop");
	ck_assert_int_eq(options.verb->run(&ctl), GPUMEM_E_DISCONNECTED);
	has(ctl.trouble.text, "no daemon listens there");
	ck_assert_str_eq(
		ctl.trouble.hint, "there is nothing to stop, unless the daemon has another socket");

	options.given = GM_OPTION_FORGET;
	ck_assert_int_eq(options.verb->run(&ctl), GPUMEM_E_DISCONNECTED);
	has(ctl.trouble.hint, "'kill PID' in the shell ends it");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("verb_stop");
	TCase *tcase = tcase_create("verb");

	tcase_add_checked_fixture(tcase, stop_setup, stop_teardown);
	tcase_add_test(tcase, stop_keeps_what_clients_hold_unless_it_is_to_forget);
	tcase_add_test(tcase, without_a_daemon_there_is_nothing_to_stop);
	tcase_add_test(tcase, stop_says_nothing_of_clients_if_there_are_none);
	/* valgrind does not know this system call. */
	if (syscall(SYS_pidfd_open, getpid(), 0) >= 0 || errno != ENOSYS) {
		tcase_add_test(tcase, what_stays_mapped_after_stop_forget_is_said);
		tcase_add_test(tcase, stop_waits_until_the_daemon_has_ended);
		tcase_add_test(tcase, a_daemon_that_does_not_end_in_time_is_a_failure);
	}
	tcase_add_test(tcase, stop_does_not_wait_for_a_process_of_another_pid_namespace);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
