/* SPDX-License-Identifier: Apache-2.0 */

/* Status codes: the numbers are ABI and protocol, so a change of one must fail here. */

#include <errno.h>
#include <string.h>

#include "common/status_table.h"
#include "tests/tap.h"

START_TEST(values_and_exit_codes_never_change)
{
	static const struct {
		gpumem_status status;
		int value;
		int exit_status;
	} rows[] = {
		{GPUMEM_OK, 0, 0},
		{GPUMEM_E_INVALID, 1, 1},
		{GPUMEM_E_DISCONNECTED, 2, 3},
		{GPUMEM_E_DENIED, 3, 4},
		{GPUMEM_E_LIMIT, 4, 5},
		{GPUMEM_E_NO_MEMORY, 5, 6},
		{GPUMEM_E_NOT_FOUND, 6, 1},
		{GPUMEM_E_PROTOCOL, 7, 1},
		{GPUMEM_E_VERSION, 8, 1},
		{GPUMEM_E_UNSUPPORTED, 9, 1},
		{GPUMEM_E_TIMEOUT, 10, 3},
		{GPUMEM_E_BUSY, 11, 1},
		{GPUMEM_E_SYSTEM, 12, 1},
		{GPUMEM_E_HOST_MEMORY, 13, 1},
		{GPUMEM_E_FORKED, 14, 1},
		{GPUMEM_E_DEADLOCK, 15, 6},
		{GPUMEM_E_CANCELLED, 16, 1},
	};
	size_t n = 0;

#define COUNT(name, value, exit_status, text) n++;
	GPUMEM_STATUS_MAP(COUNT)
#undef COUNT
	ck_assert_uint_ge(n, sizeof(rows) / sizeof(rows[0]));
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		ck_assert_int_eq(rows[i].status, rows[i].value);
		ck_assert_int_eq(gm_status_exit(rows[i].status), rows[i].exit_status);
		ck_assert_str_ne(gm_status_text(rows[i].status), "unknown status");
	}
}
END_TEST

START_TEST(a_number_from_a_newer_daemon_is_named_unknown)
{
	static const int numbers[] = {-1, 17, 1000, 0x7fffffff};

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		gpumem_status status = (gpumem_status)numbers[i];
		ck_assert_str_eq(gm_status_text(status), "unknown status");
		ck_assert_int_eq(gm_status_exit(status), 1);
	}
}
END_TEST

START_TEST(no_two_statuses_read_alike)
{
	static const char *const texts[] = {
#define TEXT(name, value, exit_status, text) text,
		GPUMEM_STATUS_MAP(TEXT)
#undef TEXT
	};
	size_t n = sizeof(texts) / sizeof(texts[0]);

	for (size_t i = 0; i < n; i++)
		for (size_t j = i + 1; j < n; j++)
			ck_assert_str_ne(texts[i], texts[j]);
}
END_TEST

START_TEST(errno_of_either_sign_finds_its_status)
{
	ck_assert_int_eq(gm_status_from_errno(0), GPUMEM_OK);
	ck_assert_int_eq(gm_status_from_errno(-EINVAL), GPUMEM_E_INVALID);
	ck_assert_int_eq(gm_status_from_errno(EINVAL), GPUMEM_E_INVALID);
	ck_assert_int_eq(gm_status_from_errno(-EPIPE), GPUMEM_E_DISCONNECTED);
	ck_assert_int_eq(gm_status_from_errno(-ECONNREFUSED), GPUMEM_E_DISCONNECTED);
	ck_assert_int_eq(gm_status_from_errno(-EACCES), GPUMEM_E_DENIED);
	ck_assert_int_eq(gm_status_from_errno(-ENOMEM), GPUMEM_E_HOST_MEMORY);
	ck_assert_int_eq(gm_status_from_errno(-EBADMSG), GPUMEM_E_PROTOCOL);
	ck_assert_int_eq(gm_status_from_errno(-ETIMEDOUT), GPUMEM_E_TIMEOUT);
	ck_assert_int_eq(gm_status_from_errno(-ECANCELED), GPUMEM_E_CANCELLED);
	ck_assert_int_eq(gm_status_from_errno(-EMFILE), GPUMEM_E_SYSTEM);
	ck_assert_int_eq(gm_status_from_errno(-123456), GPUMEM_E_SYSTEM);
}
END_TEST

START_TEST(no_errno_but_0_is_ok)
{
	for (int e = 1; e < 4096; e++)
		ck_assert_int_ne(gm_status_from_errno(-e), GPUMEM_OK);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("status");
	TCase *tc = tcase_create("status");

	tcase_add_test(tc, values_and_exit_codes_never_change);
	tcase_add_test(tc, a_number_from_a_newer_daemon_is_named_unknown);
	tcase_add_test(tc, no_two_statuses_read_alike);
	tcase_add_test(tc, errno_of_either_sign_finds_its_status);
	tcase_add_test(tc, no_errno_but_0_is_ok);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
