/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/* Symbols of addresses, from files of all kinds. */

#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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
		const ElfW(Nhdr) *head = (const void *)note;

		if (ph->p_type != PT_NOTE || head->n_type != NT_GNU_BUILD_ID)
			continue;
		ck_assert_uint_eq(head->n_descsz, sizeof(here.id));
		memcpy(here.id, note + sizeof(*head) + 4, sizeof(here.id));
		here.id_bytes = sizeof(here.id);
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
#endif
	tcase_add_test(tc, a_file_with_another_build_id_says_nothing);
	tcase_add_test(tc, a_path_may_be_anything);
	if (GM_TAP_WITH_USERS(a_file_is_read_with_the_rights_of_the_user))
		tcase_add_loop_test(tc, a_file_is_read_with_the_rights_of_the_user, 0, 2);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
