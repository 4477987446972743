/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * gpumemctl kill against a scripted daemon: the signal goes to the client's process, or to nobody.
 * tests/integration/ctl-kill.sh does the same with a real daemon.
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
#include "tests/unit/ctl/verbs_fixture.h"

static pid_t victim; /* a process that waits for a signal */
static uint64_t namespace_now;
static unsigned lookups;
/* What the daemon answers the second time. */
static enum { STILL_THERE, ENDED, GONE, OTHER_PID } later;

static void kill_setup(void)
{
	struct stat own;

	setup();
	ck_assert_int_eq(stat("/proc/self/ns/pid", &own), 0);
	namespace_now = own.st_ino;
	later = STILL_THERE;
	/* The test framework handles it by ending all of its processes. */
	signal(SIGTERM, SIG_DFL);
	victim = fork();
	ck_assert_int_ge(victim, 0);
	if (victim == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
}

static void kill_teardown(void)
{
	if (!victim)
		return;
	kill(victim, SIGKILL);
	waitpid(victim, NULL, 0);
}

static void send_clients(struct gm_fake *f, uint64_t id, bool again)
{
	Gm__Wire__ClientsReply reply = GM__WIRE__CLIENTS_REPLY__INIT;
	Gm__Wire__Client client = GM__WIRE__CLIENT__INIT, *list = &client;

	begin();
	packet.body_case = GM__WIRE__PACKET__BODY_CLIENTS;
	packet.clients = &reply;
	reply.n_clients = again && later == GONE ? 0 : 1;
	reply.clients = &list;
	client.session = 17;
	client.pid = victim + (again && later == OTHER_PID);
	client.ended = again && later == ENDED;
	client.details = true;
	client.name = (char *)"ann";
	send_answer(f, &packet, id, false);
}

static void script_kill(struct gm_fake *f, void *user)
{
	Gm__Wire__StatusReply reply = GM__WIRE__STATUS_REPLY__INIT;

	if (!gm_fake_hello(f))
		return;
	uint64_t id = asked(f, GM__WIRE__PACKET__BODY_GET_STATUS);
	begin();
	packet.body_case = GM__WIRE__PACKET__BODY_STATUS;
	packet.status = &reply;
	reply.pid_namespace = namespace_now;
	send_answer(f, &packet, id, false);

	for (unsigned i = 0; i < lookups; i++)
		send_clients(f, asked(f, GM__WIRE__PACKET__BODY_GET_CLIENTS), i > 0);
	gm_fake_wait_end(f);
}

/* expected: how often the daemon is asked for its clients. */
static char *kill_client(const char *word, unsigned expected)
{
	lookups = expected;
	struct gm_options options = {.args = {word}, .n_args = 1, .signal = SIGTERM};

	return run("kill", script_kill, false, &options);
}

static bool victim_lives(void)
{
	return waitpid(victim, NULL, WNOHANG) == 0;
}

START_TEST(the_process_of_the_client_gets_the_signal)
{
	char *text = kill_client("ann", 2);
	int status;

	ck_assert_msg(text != NULL, "%s", trouble.text);
	has(text, "Sent TERM to pid ");
	free(text);
	ck_assert_int_eq(waitpid(victim, &status, 0), victim);
	ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
	victim = 0;
}
END_TEST

/* The number may belong to somebody else by then. */
START_TEST(nobody_gets_a_signal_if_the_client_ended_meanwhile)
{
	for (later = ENDED; later <= OTHER_PID; later++) {
		ck_assert_ptr_null(kill_client("17", 2));
		ck_assert_int_eq(trouble.status, GPUMEM_E_NOT_FOUND);
		has(trouble.text, "has ended already");
		ck_assert(victim_lives());
	}
}
END_TEST

START_TEST(numbers_of_another_pid_namespace_are_not_used)
{
	namespace_now++;
	ck_assert_ptr_null(kill_client("ann", 0));
	has(trouble.text, "different pid namespaces");
	ck_assert_int_eq(trouble.status, GPUMEM_E_UNSUPPORTED);
	/* An older daemon does not say. */
	namespace_now = 0;
	ck_assert_ptr_null(kill_client("ann", 0));
	ck_assert_int_eq(trouble.status, GPUMEM_E_UNSUPPORTED);
	ck_assert(victim_lives());
}
END_TEST

START_TEST(a_word_that_means_no_client_is_not_found)
{
	static const char *const words[] = {
		"", "an", "Ann", "0", "18", "-1", "99999999999999999999"};

	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
		ck_assert_ptr_null(kill_client(words[i], 1));
		ck_assert_int_eq(trouble.status, GPUMEM_E_NOT_FOUND);
	}
	ck_assert(victim_lives());
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("verb_kill");
	TCase *tcase = tcase_create("verb");

	tcase_add_checked_fixture(tcase, kill_setup, kill_teardown);
	/* valgrind does not know this system call. */
	if (syscall(SYS_pidfd_open, getpid(), 0) >= 0 || errno != ENOSYS) {
		tcase_add_test(tcase, the_process_of_the_client_gets_the_signal);
		tcase_add_test(tcase, nobody_gets_a_signal_if_the_client_ended_meanwhile);
	}
	tcase_add_test(tcase, numbers_of_another_pid_namespace_are_not_used);
	tcase_add_test(tcase, a_word_that_means_no_client_is_not_found);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
