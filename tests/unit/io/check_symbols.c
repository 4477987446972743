/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/* Symbols of addresses, from files of all kinds. */

#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef HAVE_LIBDW
#include <elfutils/libdwfl.h>
#endif

#include "ctl/io/symbols.h"
#include "tests/tap.h"

static char self[4096];
static struct gm_symbol here; /* an address in a static function of this program */

static int find_self(struct dl_phdr_info *info, size_t size, void *ctx)
{
	(void)size;
	(void)ctx;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *ph = &info->dlpi_phdr[i];
		const char *note = (const char *)(info->dlpi_addr + ph->p_vaddr);
		const char *end = note + ph->p_memsz;

		/* A linker may put several notes into one segment. */
		while (ph->p_type == PT_NOTE && note < end) {
			const ElfW(Nhdr) *head = (const void *)note;
			const char *desc = note + sizeof(*head) + ((head->n_namesz + 3U) & ~3U);

			note = desc + ((head->n_descsz + 3U) & ~3U);
			if (head->n_type != NT_GNU_BUILD_ID)
				continue;
			ck_assert_uint_eq(head->n_descsz, sizeof(here.id));
			memcpy(here.id, desc, sizeof(here.id));
			here.id_bytes = sizeof(here.id);
		}
	}
	here.offset = (uintptr_t)&find_self - info->dlpi_addr;
	return 1;
}

static void set_up(void)
{
	ck_assert_int_gt(readlink("/proc/self/exe", self, sizeof(self) - 1), 0);
	here.path = self;
	dl_iterate_phdr(find_self, NULL);
}

/* A copy of this program, in a place that everybody can reach. */
static void copy_self(char copy[], mode_t mode)
{
	char command[8192];
	int fd = mkstemp(copy);

	ck_assert_int_ge(fd, 0);
	close(fd);
	snprintf(command, sizeof(command), "cat '%s' >%s", self, copy);
	ck_assert_int_eq(system(command), 0);
	ck_assert_int_eq(chmod(copy, mode), 0);
}

#ifdef HAVE_LIBDW
START_TEST(a_static_function_is_found)
{
	char copy[] = "/tmp/check_symbols.XXXXXX";
	copy_self(copy, 0644);
	here.path = copy;
	struct gm_symbol symbols[] = {here, here, here};

	ck_assert_uint_ne(here.id_bytes, 0);
	symbols[1].offset = 1; /* no function is there */
	gm_symbols_find(getuid(), symbols, 3);
	ck_assert_str_eq(symbols[0].function, "find_self");
	ck_assert_str_eq(symbols[1].function, "");
	ck_assert_str_eq(symbols[2].function, "find_self");
	/* Without debug information, there is no line. */
	if (symbols[0].line)
		ck_assert_ptr_nonnull(strstr(symbols[0].file, "check_symbols.c"));
	unlink(copy);
}
END_TEST
#endif

START_TEST(a_file_with_another_build_id_says_nothing)
{
	struct gm_symbol symbols[] = {here, here};

	symbols[0].id[3] ^= 1;
	symbols[1].id_bytes = 0;
	gm_symbols_find(getuid(), symbols, 2);
	ck_assert_str_eq(symbols[0].function, "");
	ck_assert_str_eq(symbols[1].function, "");
}
END_TEST

/* None of them may hang or end gpumemctl. */
START_TEST(a_path_may_be_anything)
{
	char folder[64], fifo[80], text[80];
	const char *const paths[] = {"", "relative", "/", "/nowhere/at/all", "/dev/zero",
		"/dev/stdin", "/proc/self/mem", fifo, text, NULL};
	enum { N = sizeof(paths) / sizeof(*paths) };
	struct gm_symbol symbols[N];

	snprintf(folder, sizeof(folder), "/tmp/check_symbols.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	snprintf(fifo, sizeof(fifo), "%s/fifo", folder);
	snprintf(text, sizeof(text), "%s/text", folder);
	ck_assert_int_eq(mkfifo(fifo, 0600), 0);
	FILE *file = fopen(text, "w");
	ck_assert_ptr_nonnull(file);
	fputs("\177ELF and nothing else", file);
	fclose(file);

	for (size_t i = 0; i < N; i++) {
		symbols[i] = here;
		symbols[i].path = paths[i];
	}
	gm_symbols_find(getuid(), symbols, N);
	for (size_t i = 0; i < N; i++)
		ck_assert_str_eq(symbols[i].function, "");
	gm_symbols_find(getuid(), NULL, 0);
	unlink(fifo);
	unlink(text);
	rmdir(folder);
}
END_TEST

#ifdef HAVE_LIBDW
/* What the child finds when it begins to read files, in memory that it shares with the test. */
static struct {
	enum { READ_ON, END, CRASH, BE_KILLED, STAY } then;
	bool began, may_have_much_memory, asks_servers;
	unsigned alarm_s;
	int death_signal;
	struct rlimit cpu, core, file_size;
	size_t n_fds;
	pid_t pid;
} * child;

static void look_around(void)
{
	child->began = true;
	child->pid = getpid();
	child->alarm_s = alarm(0);
	alarm(child->alarm_s);
	child->asks_servers = getenv("DEBUGINFOD_URLS") != NULL;
	void *much = mmap(NULL, (size_t)3 << 30, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	child->may_have_much_memory = much != MAP_FAILED;
	(void)prctl(PR_GET_PDEATHSIG, &child->death_signal);
	(void)getrlimit(RLIMIT_CPU, &child->cpu);
	(void)getrlimit(RLIMIT_CORE, &child->core);
	(void)getrlimit(RLIMIT_FSIZE, &child->file_size);

	child->n_fds = 0;
	for (int fd = 0; fd < 100; fd++)
		child->n_fds += fcntl(fd, F_GETFD) >= 0;
}

/* The linker puts this in the place of libdw's function. */
Dwfl *__real_dwfl_begin(const Dwfl_Callbacks *callbacks);
Dwfl *__wrap_dwfl_begin(const Dwfl_Callbacks *callbacks);
Dwfl *__wrap_dwfl_begin(const Dwfl_Callbacks *callbacks)
{
	if (!child)
		return __real_dwfl_begin(callbacks);
	look_around();
	switch (child->then) {
	case END:
		_exit(0);
	case CRASH:
		signal(SIGSEGV, SIG_DFL);
		raise(SIGSEGV);
		break;
	case BE_KILLED:
		raise(SIGKILL);
		break;
	case STAY:
		alarm(0);
		close(3); /* nothing more comes */
		for (;;)
			pause();
	case READ_ON:
		break;
	}
	return __real_dwfl_begin(callbacks);
}

/* A process that cannot be killed: it waits for a file system that does not answer, for example. */
int __real_kill(pid_t pid, int number);
int __wrap_kill(pid_t pid, int number);
int __wrap_kill(pid_t pid, int number)
{
	return child && child->then == STAY ? 0 : __real_kill(pid, number);
}

static void share_child(void)
{
	child = mmap(
		NULL, sizeof(*child), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(child, MAP_FAILED);
}

/* What reads files of a client has no time, no memory and no descriptors to harm anybody with. */
START_TEST(the_process_that_reads_files_is_bounded)
{
	char copy[] = "/tmp/check_symbols.XXXXXX";
	struct gm_symbol symbols[] = {here};
	/* As the connection to the daemon. */
	int connection = open("/dev/zero", O_RDONLY);

	share_child();
	copy_self(copy, 0644);
	symbols[0].path = copy;
	setenv("DEBUGINFOD_URLS", "http://localhost:1", 1);
	gm_symbols_find(getuid(), symbols, 1);
	ck_assert_str_eq(symbols[0].function, "find_self");

	ck_assert(child->began && child->pid != getpid());
	ck_assert_uint_ge(child->alarm_s, 1);
	ck_assert_uint_le(child->alarm_s, 20);
	ck_assert_uint_le(child->cpu.rlim_max, 20);
	ck_assert_uint_eq(child->core.rlim_max, 0);
	ck_assert_uint_eq(child->file_size.rlim_max, 0);
	ck_assert(!child->may_have_much_memory);
	ck_assert_int_eq(child->death_signal, SIGKILL);
	ck_assert(!child->asks_servers);
	/* The standard ones and the pipe. */
	ck_assert_uint_eq(child->n_fds, 4);

	/* It is gone, and nobody has to wait for it any more. */
	ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
	ck_assert_int_eq(kill(child->pid, 0), -1);
	close(connection);
	unlink(copy);
}
END_TEST

START_TEST(a_process_that_ends_early_finds_nothing)
{
	struct gm_symbol symbols[] = {here, here};

	share_child();
	child->then = _i;
	symbols[0].line = 7;
	strcpy(symbols[0].function, "what was there before");
	gm_symbols_find(getuid(), symbols, 2);
	ck_assert(child->began);
	for (size_t i = 0; i < 2; i++) {
		ck_assert_str_eq(symbols[i].function, "");
		ck_assert_str_eq(symbols[i].file, "");
		ck_assert_uint_eq(symbols[i].line, 0);
	}
	ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
}
END_TEST

START_TEST(a_process_that_cannot_be_killed_is_left_behind)
{
	struct gm_symbol symbols[] = {here};
	char said[256] = "", expected[256];
	int ends[2], before = dup(STDERR_FILENO);

	share_child();
	child->then = STAY;
	ck_assert_int_eq(pipe(ends), 0);
	ck_assert_int_eq(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
	gm_symbols_find(getuid(), symbols, 1);
	dup2(before, STDERR_FILENO);

	ck_assert_str_eq(symbols[0].function, "");
	ck_assert_int_gt(read(ends[0], said, sizeof(said) - 1), 0);
	snprintf(expected, sizeof(expected),
		"gpumemctl: process %d, which reads the files of a client, does not end, and is left "
		"behind; a file system may not answer it\n",
		child->pid);
	ck_assert_str_eq(said, expected);

	/* It is there still. */
	ck_assert_int_eq(waitpid(child->pid, NULL, WNOHANG), 0);
	ck_assert_int_eq(__real_kill(child->pid, SIGKILL), 0);
	ck_assert_int_eq(waitpid(child->pid, NULL, 0), child->pid);
}
END_TEST
#endif

/* Files that the client's user may not read are not read for them, even by root. Whoever is root in a
 * container has the uid 0, too, so a client of that uid has no rights at all. */
START_TEST(a_file_is_read_with_the_rights_of_the_user)
{
	static const uid_t uids[] = {65533, 0};
	char copy[] = "/tmp/check_symbols.XXXXXX";
	struct gm_symbol symbols[] = {here};

	copy_self(copy, 0600);
	symbols[0].path = copy;
	gm_symbols_find(uids[_i], symbols, 1);
	ck_assert_str_eq(symbols[0].function, "");
	ck_assert_int_eq(chmod(copy, 0644), 0);
	gm_symbols_find(uids[_i], symbols, 1);
#ifdef HAVE_LIBDW
	ck_assert_str_eq(symbols[0].function, "find_self");
#endif
	unlink(copy);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("symbols");
	TCase *tc = tcase_create("symbols");
	tcase_add_checked_fixture(tc, set_up, NULL);
	tcase_set_timeout(tc, 120);
#ifdef HAVE_LIBDW
	tcase_add_test(tc, a_static_function_is_found);
	tcase_add_test(tc, the_process_that_reads_files_is_bounded);
	tcase_add_test(tc, a_process_that_cannot_be_killed_is_left_behind);
	tcase_add_loop_test(tc, a_process_that_ends_early_finds_nothing, END, BE_KILLED + 1);
#endif
	tcase_add_test(tc, a_file_with_another_build_id_says_nothing);
	tcase_add_test(tc, a_path_may_be_anything);
	if (GM_TAP_WITH_USERS(a_file_is_read_with_the_rights_of_the_user))
		tcase_add_loop_test(tc, a_file_is_read_with_the_rights_of_the_user, 0, 2);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
