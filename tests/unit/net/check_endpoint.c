/* SPDX-License-Identifier: Apache-2.0 */

/* A socket that the service manager made. */

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/net/endpoint.h"
#include "tests/tap.h"

/* A path that leaves no room for a 0 byte in its address. */
START_TEST(a_passed_socket_has_its_whole_path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct gm_endpoint endpoint;
	char folder[] = "/tmp/gpumem-endpoint-XXXXXX";
	char why[GM_ENDPOINT_WHY];
	int made = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	ck_assert_int_ge(made, 0);
	ck_assert_ptr_nonnull(mkdtemp(folder));
	ck_assert_int_eq(chdir(folder), 0);
	memset(address.sun_path, 'p', sizeof(address.sun_path));
	ck_assert_int_eq(bind(made, (struct sockaddr *)&address, sizeof(address)), 0);
	memset(&endpoint, 'x', sizeof(endpoint));
	ck_assert_int_eq(gm_endpoint_adopt(&endpoint, made, why), 0);
	ck_assert_uint_eq(strlen(endpoint.path), sizeof(address.sun_path));
	ck_assert_int_eq(strncmp(endpoint.path, address.sun_path, sizeof(address.sun_path)), 0);
	ck_assert_int_eq(unlink(endpoint.path), 0);
	ck_assert_int_eq(rmdir(folder), 0);
	gm_endpoint_close(&endpoint);
}
END_TEST

START_TEST(one_without_a_path_is_taken_too)
{
	struct gm_endpoint endpoint;
	char why[GM_ENDPOINT_WHY];
	int made = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	ck_assert_int_ge(made, 0);
	ck_assert_int_eq(gm_endpoint_adopt(&endpoint, made, why), 0);
	ck_assert_str_eq(endpoint.path, "(passed, without a path)");
	gm_endpoint_close(&endpoint);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("endpoint");
	TCase *tests = tcase_create("endpoint");

	tcase_add_test(tests, a_passed_socket_has_its_whole_path);
	tcase_add_test(tests, one_without_a_path_is_taken_too);
	suite_add_tcase(suite, tests);
	return gm_tap_run(suite);
}
