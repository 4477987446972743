/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * libgpumem-preload.so in /etc/ld.so.preload, as in a container: the dynamic linker puts it into every program. Each
 * program here runs in a mount namespace of its own, so the file exists for that program only. See preload_actor.h.
 */

#include <dirent.h>
#include <sched.h>
#include <sys/mount.h>

#include "tests/gpu/preload_play.h"

#define FILE_NAME "/etc/ld.so.preload"
#define OLD       "/etc/.before"

/*
 * Gives this process a mount namespace with a folder /etc that can be changed: a tmpfs with a link to each file of the
 * folder that was there. 0, or a negative errno: this process may not.
 */
static int etc_own(void)
{
	char folder[128], old[160], path[512], target[512];

	gm_scratch_folder(folder, sizeof folder);
	snprintf(old, sizeof old, "%s%s", folder, strrchr(OLD, '/'));
	/* The scratch folder is emptied at the end. The real /etc must not be in it for anybody else. */
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return -errno;
	if (mount("tmpfs", folder, "tmpfs", 0, "mode=0755") < 0)
		return -errno;
	if (mkdir(old, 0755) < 0 || mount("/etc", old, NULL, MS_BIND | MS_REC, NULL) < 0)
		return -errno;

	DIR *files = opendir(old);
	if (!files)
		return -errno;
	for (struct dirent *e = readdir(files); e; e = readdir(files)) {
		if (e->d_name[0] == '.' || strcmp(e->d_name, strrchr(FILE_NAME, '/') + 1) == 0)
			continue;
		snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
		snprintf(target, sizeof target, "%s/%s", OLD, e->d_name);
		if (symlink(target, path) < 0) {
			closedir(files);
			return -errno;
		}
	}
	closedir(files);
	return mount(folder, "/etc", NULL, MS_MOVE, NULL) < 0 ? -errno : 0;
}

/* Writes the file for the programs that this process becomes and starts. */
static void put_in_file(const char *libraries)
{
	int r = etc_own();
	if (r < 0)
		GM_FAIL("no folder /etc of its own: %s", strerror(-r));

	FILE *file = fopen(FILE_NAME, "we");
	GM_REQUIRE(file && fprintf(file, "# gpumemd\n%s\n", libraries) > 0 && fclose(file) == 0);
}

/* As a program that gpumem-run starts where the file has the library, too. */
static void put_in_both(const char *libraries)
{
	put_in_file(libraries);
	setenv("LD_PRELOAD", libraries, 1);
}

static void library_path(char path[512])
{
	char found[512];

	built(found, "preload", "libgpumem-preload.so");
	GM_REQUIRE(realpath(found, path) != NULL);
}

/* ---- programs that use CUDA */

static void play_put(void (*put)(const char *), const char *route, const char *scene)
{
	struct play one = {.route = route, .scene = scene, .put = put};
	struct gm_worker worker;

	begin(&worker, &one);
	go_on(&worker);
	gm_worker_join(&worker);
}

START_TEST(each_way_to_a_call_leads_to_the_broker)
{
	static const char *const routes[] = {"linked", "dlsym", "default", "proc", "proc2"};

	start();
	for (size_t i = 0; i < sizeof routes / sizeof *routes; i++)
		play_put(put_in_file, routes[i], "alloc");
	play_put(put_in_file, "dlsym", "ipc");
	tear_down();
}
END_TEST

START_TEST(the_library_counts_once_where_ld_preload_names_it_as_well)
{
	start();
	play_put(put_in_both, "dlsym", "figures");
	play_put(put_in_both, "proc2", "alloc");
	tear_down();
}
END_TEST

START_TEST(another_library_in_the_file_works_as_before)
{
	struct play behind = {
		.route = "dlsym", .scene = "beside", .beside = true, .put = put_in_file};
	struct play before = {.route = "dlsym",
		.scene = "before",
		.before = true,
		.env = "GPUMEM_RUN_LIMIT=67108864",
		.put = put_in_file};
	struct gm_worker worker;

	start();
	begin(&worker, &behind);
	go_on(&worker);
	gm_worker_join(&worker);

	GM_REQUIRE(setenv("GPUMEM_RUN", "limited", 1) == 0);
	one_worker(act, &before);
	unsetenv("GPUMEM_RUN");
	tear_down();
}
END_TEST

/* ---- shell commands */

struct command {
	const char *text;      /* for sh -c */
	const char *libraries; /* in the file; NULL: there is no file */
	char output[128];      /* stdout and stderr */
	uid_t uid;
};

static void run_command(int channel, void *argument)
{
	const struct command *command = argument;
	char actor[512];

	built(actor, "tests/gpu", "preload_actor");
	setenv("ACTOR", actor, 1);
	setenv("GPUMEM_SOCKET", daemon_.socket, 1);
	prepare_program(channel);
	redirect(command->output, STDOUT_FILENO);
	redirect(command->output, STDERR_FILENO);
	if (command->libraries)
		put_in_file(command->libraries);
	if (command->uid)
		become(command->uid);
	execl("/bin/sh", "sh", "-c", command->text, (char *)NULL);
	GM_FAIL("cannot run sh: %s", strerror(errno));
}

/* Runs it to its end, which must be a good one, and reads what it printed. */
static void output_of(const char *libraries, uid_t uid, const char *text, char printed[4096])
{
	struct command command = {.text = text, .libraries = libraries, .uid = uid};
	struct gm_worker worker;

	gm_scratch_path("preload-etc", command.output, sizeof command.output);
	gm_worker_start(&worker, run_command, &command);
	int status = end_of(&worker);
	read_file(command.output, printed, 4096);
	unlink(command.output);
	if (status != 0)
		GM_FAIL("%s: status %#x: %s", text, status, printed);
}

START_TEST(a_program_whose_environment_was_cleared_is_brokered)
{
	char library[512];
	struct command command = {
		.text = "exec env -i GPUMEM_SOCKET=\"$GPUMEM_SOCKET\" GPUMEM_FAKE_DIR=\"$GPUMEM_FAKE_DIR\""
			" LD_LIBRARY_PATH=\"$LD_LIBRARY_PATH\" \"$ACTOR\" dlsym alloc",
		.libraries = library,
		.output = "/dev/null"};
	struct gm_worker worker;

	start();
	library_path(library);
	gm_worker_start(&worker, run_command, &command);
	gm_hear_word(worker.channel, 'h');
	GM_REQUIRE(gm_figures_now(&daemon_).leased >= ACTOR_BYTES);
	go_on(&worker);
	gm_worker_join(&worker);
	tear_down();
}
END_TEST

START_TEST(programs_without_cuda_print_what_they_always_do)
{
	static const char *const commands[] = {"/bin/true", "sh -c 'sh -c :'",
		"echo x | cat | wc -c", "ls /", "env -i /bin/sh -c 'ulimit -n; exec env'",
		"cat /proc/self/comm"};
	char library[512], with[4096], without[4096];

	start();
	library_path(library);
	for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
		output_of(library, 0, commands[i], with);
		output_of(NULL, 0, commands[i], without);
		ck_assert_str_eq(with, without);
	}
	/* The library was in them. */
	output_of(library, 0, "ldd /bin/true", with);
	GM_REQUIRE(strstr(with, library) != NULL);
	output_of(NULL, 0, "ldd /bin/true", without);
	GM_REQUIRE(strstr(without, library) == NULL);
	output_of(library, 0, "ldd /bin/true >/dev/null", with);
	ck_assert_str_eq(with, "");
	tear_down();
}
END_TEST

START_TEST(a_program_with_more_rights_than_its_user_is_left_alone)
{
	char library[512], program[256], printed[4096];

	start();
	play_secure(put_in_file);

	library_path(library);
	make_setuid("/bin/true", program);
	output_of(library, UID_A, program, printed);
	ck_assert_str_eq(printed, "");
	unlink(program);
	tear_down();
}
END_TEST

/* As gpumem-run(1) warns. */
START_TEST(a_library_that_is_not_there_costs_each_program_a_line)
{
	char printed[4096], *line = printed;

	start();
	output_of("/nowhere/libgpumem-preload.so", 0, "/bin/true; /bin/true", printed);
	for (int i = 0; i < 3; i++) {
		GM_REQUIRE(strstr(line, "/nowhere/libgpumem-preload.so"));
		line = strchr(line, '\n');
		GM_REQUIRE(line++);
	}
	ck_assert_str_eq(line, "");
	tear_down();
}
END_TEST

static void try_etc(int channel, void *argument)
{
	char word = etc_own() == 0 ? 'y' : 'n';
	gm_text_say(channel, &word, 1);
}

int main(void)
{
	struct gm_worker worker;
	char word;

	gm_worker_start(&worker, try_etc, NULL);
	gm_hear(worker.channel, &word, 1);
	gm_worker_join(&worker);
	if (word != 'y') {
		printf("1..0 # SKIP needs root, for a file /etc/ld.so.preload in a mount namespace\n");
		return 0;
	}

	Suite *suite = suite_create("preload_etc");
	TCase *tc = tcase_create("preload_etc");
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, each_way_to_a_call_leads_to_the_broker);
	tcase_add_test(tc, the_library_counts_once_where_ld_preload_names_it_as_well);
	tcase_add_test(tc, another_library_in_the_file_works_as_before);
	tcase_add_test(tc, a_program_whose_environment_was_cleared_is_brokered);
	tcase_add_test(tc, programs_without_cuda_print_what_they_always_do);
	if (GM_TAP_WITH_USERS(a_program_with_more_rights_than_its_user_is_left_alone))
		tcase_add_test(tc, a_program_with_more_rights_than_its_user_is_left_alone);
	tcase_add_test(tc, a_library_that_is_not_there_costs_each_program_a_line);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
