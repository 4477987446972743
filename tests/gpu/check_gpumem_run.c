/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * gpumem-run: what it tells the program, one limit for all processes that the program starts, and what it
 * says to those who use it wrongly. See gpumem_run_fixture.h.
 */

#include <sys/stat.h>

#include "tests/gpu/gpumem_run_fixture.h"

/* ---- what it says */

START_TEST(wrong_use_is_explained)
{
	const struct {
		const char *const *arguments;
		int status;
		const char *says;
	} cases[] = {
		{(const char *const[]){"--limt", "1G", "true", NULL}, 2, "did you mean --limit?"},
		{(const char *const[]){"-x", "true", NULL}, 2, "there is no option -x"},
		{(const char *const[]){"--limit", "much", "true", NULL}, 2, "'much' is not a size"},
		{(const char *const[]){"--limit", "0", "true", NULL}, 2, "'0' is not a size"},
		{(const char *const[]){"--limit", "101%", "true", NULL}, 2,
			"'101%' is not a part of the GPU above 0% and up to 100%; write 40%, or a size, such as 20G"},
		{(const char *const[]){"--limit", "20", "true", NULL}, 2, "did you mean 20G?"},
		{(const char *const[]){"--limit", "8192", "true", NULL}, 2, "did you mean 8192M?"},
		{(const char *const[]){"--limit", "1M", "true", NULL}, 2,
			"1M would allow nothing: the smallest chunk that gpumemd hands out has 2.0M"},
		{(const char *const[]){"--limit", "67108864", "true", NULL}, 0, ""},
		{(const char *const[]){"--limit", "900T", "true", NULL}, 2,
			"900T is more than the GPU has"},
		{(const char *const[]){"--limit", NULL}, 2, "--limit needs a value"},
		{(const char *const[]){"--wait", "soon", "true", NULL}, 2, "'soon' is not a time"},
		{(const char *const[]){"--priority", "1", "true", NULL}, 2,
			"only an administrator can raise a priority"},
		{(const char *const[]){"--priority", "-1001", "true", NULL}, 2,
			"'-1001' is not a number from -1000 to 0"},
		{(const char *const[]){"--priority", "-99999999999999999999", "true", NULL}, 2,
			"is not a number from -1000 to 0"},
		{(const char *const[]){"--priority", "-1000", "true", NULL}, 0, ""},
		{(const char *const[]){"--report=x", "true", NULL}, 2, "--report takes no value"},
		{(const char *const[]){"--reprt=x", "true", NULL}, 2, "did you mean --report?"},
		{(const char *const[]){"--wait", "50000000", "true", NULL}, 2, "is not a time"},
		{(const char *const[]){"--device", "77", "true", NULL}, 2,
			"there is no GPU 77; gpumemd has "},
		{(const char *const[]){"--device", "first", "true", NULL}, 2,
			"'first' is not the number of a device"},
		{(const char *const[]){"--name", "a\nb", "true", NULL}, 2, "printable UTF-8"},
		{(const char *const[]){"--report", NULL}, 2, "no program is given"},
		{(const char *const[]){"no-such-program", NULL}, 127,
			"cannot run no-such-program: there is no such program"},
		{(const char *const[]){"/dev/null", NULL}, 126, "cannot run /dev/null"},
		{(const char *const[]){"/tmp", NULL}, 126, "cannot run /tmp"},
		{(const char *const[]){"--help", NULL}, 0, "Usage: gpumem-run"},
		{(const char *const[]){"--version", NULL}, 0, "gpumem-run " PACKAGE_VERSION},
	};
	char text[4096];

	start_with(CONFIG(""));
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct command command = {.arguments = cases[i].arguments};
		int status = outcome(&command, text);
		if (status != cases[i].status || !strstr(text, cases[i].says))
			GM_FAIL("case %zu: status %d, and: %s", i, status, text);
	}
	tear_down();
}
END_TEST

START_TEST(a_run_in_the_environment_that_makes_no_sense_is_an_error)
{
	char text[4096];
	struct command command = {.arguments = ARGUMENTS("--optional", "true")};

	start_with(CONFIG(""));
	GM_REQUIRE(setenv("GPUMEM_RUN", "a-b", 1) == 0);
	GM_REQUIRE_EQ(outcome(&command, text), 2);
	GM_REQUIRE(strstr(text, "GPUMEM_RUN must be 1 to 32 letters and digits"));
	unsetenv("GPUMEM_RUN");
	tear_down();
}
END_TEST

START_TEST(no_line_of_the_help_is_wider_than_a_terminal)
{
	char text[4096];
	struct command command = {.arguments = ARGUMENTS("--help")};

	start_with(CONFIG(""));
	GM_REQUIRE_EQ(outcome(&command, text), 0);
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
		if (strlen(line) > 80)
			GM_FAIL("%zu columns: %s", strlen(line), line);
	tear_down();
}
END_TEST

START_TEST(a_missing_library_comes_with_a_remedy)
{
	char text[4096];
	struct command command = {.arguments = ARGUMENTS("true"), .library = "/nowhere/library.so"};

	start_with(CONFIG(""));
	GM_REQUIRE_EQ(outcome(&command, text), 1);
	GM_REQUIRE(strstr(text, "/nowhere/library.so cannot be read"));
	GM_REQUIRE(strstr(text, "name the library in GPUMEM_PRELOAD"));
	tear_down();
}
END_TEST

/* Requires that gpumem-run refuses a library of that owner, with that mode, and says why. */
static void refuses_library(uid_t owner, mode_t mode, const char *why)
{
	char path[256], text[4096];
	struct command command = {.arguments = ARGUMENTS("true"), .library = path};

	gm_scratch_path("run-library", path, sizeof path);
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	GM_REQUIRE(fd >= 0);
	GM_REQUIRE(fchown(fd, owner, (gid_t)-1) == 0 && fchmod(fd, mode) == 0);
	close(fd);
	GM_REQUIRE_EQ(outcome(&command, text), 1);
	GM_REQUIRE(strstr(text, path) && strstr(text, why));
	/* The scratch folder is emptied of files of this user only. */
	unlink(path);
}

START_TEST(a_library_that_anybody_can_change_is_refused)
{
	start_with(CONFIG(""));
	refuses_library(geteuid(), 0666, "it can be changed by all users");
	tear_down();
}
END_TEST

START_TEST(a_library_of_another_user_is_refused)
{
	start_with(CONFIG(""));
	refuses_library(UID_A, 0644, "it belongs to another user");
	tear_down();
}
END_TEST

/* What gpumem-run says about a library of this user, in a folder of that owner, with that mode. */
static void refuses_folder(uid_t owner, mode_t mode, const char *why)
{
	char folder[256], path[300], text[4096];
	struct command command = {.arguments = ARGUMENTS("true"), .library = path};

	gm_scratch_path("run-folder", folder, sizeof folder);
	snprintf(path, sizeof path, "%s/library", folder);
	GM_REQUIRE(mkdir(folder, 0700) == 0);
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	GM_REQUIRE(fd >= 0);
	close(fd);
	GM_REQUIRE(chown(folder, owner, (gid_t)-1) == 0 && chmod(folder, mode) == 0);
	GM_REQUIRE_EQ(outcome(&command, text), 1);
	GM_REQUIRE(strstr(text, path) && strstr(text, why));
	unlink(path);
	rmdir(folder);
}

START_TEST(a_library_that_anybody_can_replace_is_refused)
{
	start_with(CONFIG(""));
	refuses_folder(geteuid(), 0777, " can be changed by all users");
	tear_down();
}
END_TEST

START_TEST(a_library_in_a_folder_of_another_user_is_refused)
{
	start_with(CONFIG(""));
	refuses_folder(UID_A, 0755, " belongs to another user");
	tear_down();
}
END_TEST

/* A file of another user that runs with its rights; false: this machine has none. */
static bool find_setuid(char path[256])
{
	static const char *const known[] = {"/usr/bin/su", "/bin/su", "/usr/bin/passwd"};
	struct stat st;

	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (stat(known[i], &st) == 0 && st.st_mode & S_ISUID && st.st_uid != getuid()) {
			snprintf(path, 256, "%s", known[i]);
			return true;
		}
	gm_scratch_path("run-setuid", path, 256);
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0700);
	GM_REQUIRE(fd >= 0);
	bool made = fchown(fd, UID_A, UID_A) == 0 && fchmod(fd, 04755) == 0;
	close(fd);
	return made;
}

START_TEST(a_setuid_program_is_refused)
{
	char path[256], text[4096];

	if (!find_setuid(path))
		return;
	start_with(CONFIG(""));
	struct command command = {.arguments = ARGUMENTS("--", path)};
	GM_REQUIRE_EQ(outcome(&command, text), 126);
	GM_REQUIRE(strstr(text, path) && strstr(text, "(setuid)"));
	/* The scratch folder is emptied of files of this user only. */
	if (strstr(path, "run-setuid"))
		unlink(path);
	tear_down();
}
END_TEST

/* As env(1) and a shell run it. A file that only looks like a program is none for the shell. */
START_TEST(a_script_without_an_interpreter_runs_in_the_shell)
{
	static const char script[] = "echo \"$# $1 $2\"; test -n \"$GPUMEM_RUN\" && exit 7\n";
	static const unsigned char foreign[64] = {0x7f, 'E', 'L', 'F', 2, 1, 1};
	char path[256], text[4096];

	gm_scratch_path("run-script", path, sizeof path);
	unlink(path);
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0700);
	GM_REQUIRE(fd >= 0 && write(fd, script, sizeof script - 1) == sizeof script - 1);
	close(fd);

	start_with(CONFIG(""));
	struct command command = {.arguments = ARGUMENTS("--", path, "one", "two words")};
	GM_REQUIRE_EQ(outcome(&command, text), 7);
	ck_assert_str_eq(text, "2 one two words\n");

	fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
	GM_REQUIRE(fd >= 0 && write(fd, foreign, sizeof foreign) == sizeof foreign);
	close(fd);
	GM_REQUIRE_EQ(outcome(&command, text), 126);
	GM_REQUIRE(strstr(text, "cannot run") && strstr(text, strerror(ENOEXEC)));
	unlink(path);
	tear_down();
}
END_TEST

START_TEST(a_32_bit_program_is_refused)
{
	static const unsigned char head[64] = {0x7f, 'E', 'L', 'F', 1, 1, 1};
	char path[256], text[4096];

	gm_scratch_path("run-32bit", path, sizeof path);
	unlink(path);
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0700);
	GM_REQUIRE(fd >= 0 && write(fd, head, sizeof head) == sizeof head);
	close(fd);

	start_with(CONFIG(""));
	struct command command = {.arguments = ARGUMENTS("--", path)};
	GM_REQUIRE_EQ(outcome(&command, text), 126);
	GM_REQUIRE(strstr(text, path) && strstr(text, "is a 32-bit program"));
	unlink(path);
	tear_down();
}
END_TEST

/* The daemon has host memory only. */
START_TEST(host_memory_is_no_gpu)
{
	static const char *const args[] = {"--backend", "host", NULL};
	char text[4096];
	struct command command = {.arguments = ARGUMENTS("--device", "0", "true")};

	gm_daemon_start(&daemon_, &(struct gm_daemon_options){.config = "", .args = args});
	GM_REQUIRE_EQ(outcome(&command, text), 2);
	GM_REQUIRE(strstr(text, "device 0 is not a GPU"));
	command.arguments = ARGUMENTS("--device", "7", "true");
	GM_REQUIRE_EQ(outcome(&command, text), 2);
	GM_REQUIRE(strstr(text, "there is no GPU 7; gpumemd has none"));
	command.arguments = ARGUMENTS("--limit", "40%", "true");
	GM_REQUIRE_EQ(outcome(&command, text), 2);
	GM_REQUIRE(strstr(text, "gpumemd has no GPU to give 40% of"));
	command.arguments =
		ARGUMENTS("--quiet", "--limit", "900T", "sh", "-c", "echo $GPUMEM_RUN_LIMIT");
	GM_REQUIRE_EQ(outcome(&command, text), 0);
	ck_assert_str_eq(text, "989560464998400\n");
	command.arguments = ARGUMENTS("echo", "here");
	GM_REQUIRE_EQ(outcome(&command, text), 0);
	GM_REQUIRE(strstr(text, "gpumem-run: gpumemd has no GPU, so echo gets no memory from it"));
	GM_REQUIRE(strstr(text, "here\n"));
	tear_down();
}
END_TEST

START_TEST(without_a_daemon_it_starts_only_if_that_is_optional)
{
	char text[4096];
	struct command command = {.arguments = ARGUMENTS("echo", "here"), .nowhere = true};

	GM_REQUIRE_EQ(outcome(&command, text), 3);
	GM_REQUIRE(strstr(text, "gpumem-run: cannot reach gpumemd at /nowhere/socket"));
	command.arguments = ARGUMENTS("--required", "echo", "here");
	GM_REQUIRE_EQ(outcome(&command, text), 3);
	command.arguments = ARGUMENTS("--optional", "--limit", "1G", "echo", "here");
	GM_REQUIRE_EQ(outcome(&command, text), 0);
	ck_assert_str_eq(text, "here\n");
}
END_TEST

START_TEST(lines_on_a_terminal_end_with_a_word)
{
	char program[512], line[1024];
	size_t lines = 0;

	built(program, "run", "gpumem-run");
	snprintf(line, sizeof line,
		"script -qec \"stty cols 50; '%s' --limit twenty true\" /dev/null </dev/null",
		program);
	FILE *shown = popen(line, "re");
	GM_REQUIRE(shown);
	for (; fgets(line, sizeof line, shown); lines++) {
		line[strcspn(line, "\r\n")] = 0;
		GM_REQUIRE(strlen(line) <= 50);
	}
	pclose(shown);
	GM_REQUIRE(lines > 2);
}
END_TEST

/* ---- what the program gets */

START_TEST(the_program_is_told_what_the_user_wants)
{
	char text[4096];
	struct command command = {
		.arguments = ARGUMENTS("--limit", LIMIT, "--name", "a b", "--wait", "2s",
			"--priority", "-3", "--see-all", "--device", "0", "--", "sh", "-c",
			"echo $GPUMEM_RUN_LIMIT,$GPUMEM_RUN_NAME,$GPUMEM_RUN_WAIT,"
			"$GPUMEM_RUN_PRIORITY,$GPUMEM_RUN_SEE_ALL; "
			"echo $CUDA_VISIBLE_DEVICES | cut -c-4; exit 5")};

	start_with(CONFIG(""));
	GM_REQUIRE_EQ(outcome(&command, text), 5);
	ck_assert_str_eq(text, "67108864,a b,2000,-3,1\nGPU-\n");

	/* What an outer run has set does not stay where the inner one does not set it. */
	char program[512];
	built(program, "run", "gpumem-run");
	command.arguments = (const char *const[]){"--see-all", "sh", "-c",
		"\"$0\" sh -c 'echo $GPUMEM_RUN_SEE_ALL.'; \"$0\" --limit 2M true", program, NULL};
	GM_REQUIRE_EQ(outcome(&command, text), 2);
	GM_REQUIRE(strncmp(text, ".\n", 2) == 0);
	GM_REQUIRE(strstr(text, "this is part of another gpumem-run already"));
	tear_down();
}
END_TEST

START_TEST(the_library_comes_first_and_once)
{
	char text[4096], preload[512], expected[1200];
	struct command command = {
		.arguments = ARGUMENTS("sh", "-c", "echo \"=$LD_PRELOAD\""), .relative = true};

	start_with(CONFIG(""));
	built(preload, "preload", "libgpumem-preload.so");
	char *whole = realpath(preload, NULL);
	GM_REQUIRE(whole);
	GM_REQUIRE_EQ(outcome(&command, text), 0);
	snprintf(expected, sizeof expected, "=%s\n", whole);
	ck_assert_str_eq(text, expected);

	/* Another library may have its name in its own. */
	command.relative = false;
	command.preloaded = ".old";
	GM_REQUIRE_EQ(outcome(&command, text), 0);
	snprintf(expected, sizeof expected, "=%s:/nowhere%s.old\n", whole, preload);
	GM_REQUIRE(strstr(text, expected));

	/* An empty list of devices stays. 0s is no default. */
	command = (struct command){
		.arguments = ARGUMENTS("--wait", "0s", "--spill", "sh", "-c",
			"echo $GPUMEM_RUN_WAIT$GPUMEM_RUN_SPILL${CUDA_VISIBLE_DEVICES-none}")};
	GM_REQUIRE(setenv("CUDA_VISIBLE_DEVICES", "", 1) == 0);
	GM_REQUIRE_EQ(outcome(&command, text), 0);
	unsetenv("CUDA_VISIBLE_DEVICES");
	ck_assert_str_eq(text, "01\n");
	free(whole);
	tear_down();
}
END_TEST

/* ---- what its processes share */

/* Both processes of the actor share memory within one limit. */
START_TEST(processes_of_a_run_share_memory)
{
	struct command command = {.arguments = ARGUMENTS("--limit", "96M", "--", "sh", "-c",
					  "exec \"$ACTOR\" proc2 ipc")};
	struct gm_worker worker;

	start_with(CONFIG(""));
	gm_worker_start(&worker, run, &command);
	gm_hear_word(worker.channel, 'h');
	gm_text_say_word(worker.channel, 'g');
	gm_worker_join(&worker);
	tear_down();
}
END_TEST

/* The actor, started by a shell that gpumem-run started. */
static void begin_actor(struct gm_worker *worker, const char *const *arguments)
{
	struct command command = {.arguments = arguments};

	gm_worker_start(worker, run, &command);
}

/* gpumemctl shows the run's limit, what its processes hold, and which clients these are. */
static void require_listed(void)
{
	char ctl[512], command[1800];

	built(ctl, "ctl", "gpumemctl");
	snprintf(command, sizeof command,
		"'%s' --socket '%s' --no-header --csv limit show --device 0 | grep -qF \"run:$('%s' --socket '%s' --no-header --csv clients --columns run --name trainer | head -n 1),\"",
		ctl, daemon_.socket, ctl, daemon_.socket);
	if (system(command) != 0)
		GM_FAIL("the run of the client is not listed: %s", command);
	snprintf(command, sizeof command,
		"'%s' --socket '%s' --bytes --csv limit show | grep -qE '^run:[0-9a-f]{16},[^,]*,0,%llu,'",
		ctl, daemon_.socket, (unsigned long long)LIMIT_BYTES);
	if (system(command) != 0)
		GM_FAIL("not listed: %s", command);
}

START_TEST(the_limit_holds_for_what_the_program_starts)
{
	struct gm_worker worker;
	struct gm_client_row row;

	start_with(CONFIG(""));
	begin_actor(&worker, ARGUMENTS("--limit", LIMIT, "--name", "trainer", "--", "sh", "-c",
				     "\"$ACTOR\" dlsym fill && \"$ACTOR\" dlsym fill"));
	for (int i = 0; i < 2; i++) {
		gm_hear_word(worker.channel, 'h');
		GM_REQUIRE_EQ(gm_client_rows(&daemon_, &row, 1), 1);
		ck_assert_str_eq(row.name, "trainer");
		GM_REQUIRE(row.held <= LIMIT_BYTES && row.held >= ACTOR_BYTES);
		require_listed();
		gm_text_say_word(worker.channel, 'g');
	}
	gm_worker_join(&worker);
	GM_REQUIRE(gm_figures_now(&daemon_).peak_charged <= LIMIT_BYTES);
	tear_down();
}
END_TEST

/* A GPU that is not a fake one has contexts, which take their part. */
#define RACERS (getenv("GPUMEM_FAKE_DIR") ? 100 : 10)

START_TEST(programs_that_race_for_a_limit_never_pass_it)
{
	struct gm_worker worker;
	char count[16];
	int got = 0;

	start_with(CONFIG(""));
	snprintf(count, sizeof count, "%d", RACERS);
	begin_actor(&worker,
		ARGUMENTS("--limit", LIMIT, "--", "sh", "-c",
			"i=0; while [ $i -lt $0 ]; do \"$ACTOR\" dlsym race & i=$((i + 1)); done; "
			"wait",
			count));
	for (int i = 0; i < RACERS; i++) {
		char answer;
		gm_hear(worker.channel, &answer, 1);
		GM_REQUIRE(answer == 'y' || answer == 'n');
		got += answer == 'y';
	}
	struct gm_figures f = gm_figures_now(&daemon_);
	GM_REQUIRE(got > 0 && got <= (int)(LIMIT_BYTES / ACTOR_PIECE));
	GM_REQUIRE(f.leased <= LIMIT_BYTES && f.leased >= (uint64_t)got * ACTOR_PIECE);
	GM_REQUIRE(f.peak_charged <= LIMIT_BYTES);
	for (int i = 0; i < RACERS; i++)
		gm_text_say_word(worker.channel, 'g');
	gm_worker_join(&worker);
	GM_REQUIRE(gm_figures_now(&daemon_).peak_charged <= LIMIT_BYTES);
	tear_down();
}
END_TEST

START_TEST(a_restart_of_the_daemon_goes_unnoticed_and_the_limit_stays)
{
	struct gm_worker worker;

	start_with(CONFIG(""));
	begin_actor(&worker,
		ARGUMENTS("--limit", "56M", "--", "sh", "-c", "exec \"$ACTOR\" proc2 restart"));
	gm_hear_word(worker.channel, 'h');
	gm_daemon_kill(&daemon_);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	gm_text_say_word(worker.channel, 'g');
	gm_worker_join(&worker);
	tear_down();
}
END_TEST

/* The actor goes on while there is no daemon, and gets its memory from the next one. */
static void require_unnoticed(const char *const *arguments, bool shows)
{
	struct gm_worker worker;

	begin_actor(&worker, arguments);
	gm_hear_word(worker.channel, 'h');
	gm_daemon_kill(&daemon_);
	gm_text_say_word(worker.channel, 'g');
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	if (shows) {
		gm_hear_word(worker.channel, 'h');
		gm_text_say_word(worker.channel, 'g');
	}
	gm_worker_join(&worker);
}

START_TEST(a_program_that_waits_for_no_memory_waits_for_the_daemon)
{
	start_with(CONFIG(""));
	require_unnoticed(ARGUMENTS("--limit", "56M", "--wait", "0s", "--", "sh", "-c",
				  "exec \"$ACTOR\" proc2 restart"),
		false);
	tear_down();
}
END_TEST

START_TEST(a_program_that_begins_while_the_daemon_restarts_waits_for_it)
{
	start_with(CONFIG(""));
	require_unnoticed(
		ARGUMENTS("--limit", "56M", "--", "sh", "-c",
			"printf h >&3; head -c 1 <&3 >/dev/null; exec \"$ACTOR\" proc2 pitch"),
		true);
	tear_down();
}
END_TEST

/* Another program holds memory, which the keeper keeps. */
START_TEST(gpumem_run_itself_waits_for_a_daemon_that_restarts)
{
	struct gm_worker holder, worker;
	struct command command = {.arguments = ARGUMENTS("true")};

	start_with(CONFIG(""));
	begin_actor(&holder, ARGUMENTS("--", "sh", "-c", "exec \"$ACTOR\" proc2 pitch"));
	gm_hear_word(holder.channel, 'h');
	gm_daemon_kill(&daemon_);
	gm_worker_start(&worker, run, &command);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	GM_REQUIRE_EQ(end_of(&worker), 0);
	gm_text_say_word(holder.channel, 'g');
	gm_worker_join(&holder);
	tear_down();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("gpumem-run");
	TCase *tc = tcase_create("gpumem-run");
	tcase_set_timeout(tc, 240);
	tcase_add_test(tc, wrong_use_is_explained);
	tcase_add_test(tc, a_run_in_the_environment_that_makes_no_sense_is_an_error);
	tcase_add_test(tc, no_line_of_the_help_is_wider_than_a_terminal);
	tcase_add_test(tc, a_missing_library_comes_with_a_remedy);
	tcase_add_test(tc, a_library_that_anybody_can_change_is_refused);
	tcase_add_test(tc, a_library_that_anybody_can_replace_is_refused);
	if (GM_TAP_WITH_USERS(a_library_in_a_folder_of_another_user_is_refused))
		tcase_add_test(tc, a_library_in_a_folder_of_another_user_is_refused);
	if (GM_TAP_WITH_USERS(a_library_of_another_user_is_refused))
		tcase_add_test(tc, a_library_of_another_user_is_refused);
	tcase_add_test(tc, a_setuid_program_is_refused);
	tcase_add_test(tc, a_script_without_an_interpreter_runs_in_the_shell);
	tcase_add_test(tc, a_32_bit_program_is_refused);
	tcase_add_test(tc, host_memory_is_no_gpu);
	tcase_add_test(tc, the_library_comes_first_and_once);
	tcase_add_test(tc, without_a_daemon_it_starts_only_if_that_is_optional);
	tcase_add_test(tc, lines_on_a_terminal_end_with_a_word);
	tcase_add_test(tc, the_program_is_told_what_the_user_wants);
	tcase_add_test(tc, the_limit_holds_for_what_the_program_starts);
	tcase_add_test(tc, programs_that_race_for_a_limit_never_pass_it);
	tcase_add_test(tc, processes_of_a_run_share_memory);
	tcase_add_test(tc, a_restart_of_the_daemon_goes_unnoticed_and_the_limit_stays);
	tcase_add_test(tc, a_program_that_waits_for_no_memory_waits_for_the_daemon);
	tcase_add_test(tc, a_program_that_begins_while_the_daemon_restarts_waits_for_it);
	tcase_add_test(tc, gpumem_run_itself_waits_for_a_daemon_that_restarts);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
