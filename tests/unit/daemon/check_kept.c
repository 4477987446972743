/* SPDX-License-Identifier: Apache-2.0 */
/* common/kept.h against the structs, and against the unit. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/kept.h"
#include "common/wire/page.h"
#include "daemon/lease/session_private.h"
#include "daemon/queue/queue_user.h"
#include "daemon/tenant/client.h"
#include "tests/tap.h"

/* What malloc() adds to a block, and what a hash table adds to an item. */
#define OVERHEAD 48

START_TEST(no_struct_costs_more_than_is_said)
{
	size_t accounts = GM_BOUND_DEVICES * sizeof(struct gm_account);
	size_t names = GM_RECORD_UNIT_BYTES + GM_OWNER_NAME_BYTES + 1 + GM_BOUND_NAME_BYTES + 1 +
		       GM_BOUND_RUN_BYTES + 1 + GM_RECORD_SCOPE_BYTES + GM_RECORD_COMMAND_BYTES;

	ck_assert_uint_le(sizeof(struct gm_session) + accounts + OVERHEAD, 5632);
	ck_assert_uint_le(names + OVERHEAD + GM_BOUND_NAME_BYTES + 1 + OVERHEAD, 2048);
	ck_assert_uint_le(sizeof(struct gm_client) + OVERHEAD, 752);
	ck_assert_uint_le(sizeof(struct gm_queue_user) * GM_BOUND_DEVICES, 3584);
	ck_assert_uint_le(sizeof(struct gm_identity) + 16, 1552);
	ck_assert_uint_le(sizeof(struct gm_lease) + OVERHEAD, GM_KEPT_BARE_LEASES);
	ck_assert_uint_le(sizeof(struct gm_ref) + sizeof(struct gm_ref_entry) + 2 * OVERHEAD,
		GM_KEPT_BARE_LEASES);
	ck_assert_uint_le(sizeof(struct gm_orphan_map) + 2 * (GM_OWNER_NAME_BYTES + 1) + OVERHEAD,
		GM_KEPT_ORPHAN_MAP);
	ck_assert_uint_le(sizeof(struct gm_token) + OVERHEAD, GM_KEPT_SHARES);
	ck_assert_uint_le(sizeof(struct gm_name) + OVERHEAD, GM_KEPT_NAMES);
	ck_assert_uint_le(sizeof(struct gm_orphan) + accounts + OVERHEAD, 5376);
	ck_assert_uint_le(2 * (GM_OWNER_NAME_BYTES + 1) + OVERHEAD, 576);
	ck_assert_uint_le(sizeof(struct gm_orphan_work) + OVERHEAD, 128);
	ck_assert_uint_le(sizeof(struct gm_user) + OVERHEAD, GM_KEPT_USER);
	ck_assert_uint_le(sizeof(struct gm_chunk) + 40, 528);
	ck_assert_uint_le(sizeof(struct gm_request) + 192, GM_KEPT_REQUEST);
	ck_assert_uint_le(sizeof(struct gm_page_daemon), 4096);
	ck_assert_uint_le(sizeof(struct gm_page_client), 258048);
	ck_assert_uint_le(sizeof(struct gm_device), GM_KEPT_DEVICES);
}
END_TEST

static uint64_t unit_number(const char *unit, const char *key)
{
	char path[4096], line[512];
	uint64_t number = 0;

	snprintf(path, sizeof(path), "%s/systemd/%s.service.in", getenv("top_srcdir"), unit);
	FILE *file = fopen(path, "re");
	ck_assert_ptr_nonnull(file);
	while (fgets(line, sizeof(line), file)) {
		char *end;
		if (strncmp(line, key, strlen(key)) != 0 || line[strlen(key)] != '=')
			continue;
		number = strtoull(line + strlen(key) + 1, &end, 10);
		if (*end == 'G')
			number <<= 30;
		else
			ck_assert_int_eq(*end, '\n');
	}
	fclose(file);
	return number;
}

START_TEST(the_unit_allows_for_all_that_the_bounds_allow)
{
	uint64_t files = unit_number("gpumemd", "LimitNOFILE");

	ck_assert_uint_gt(files, 0);
	ck_assert_msg(unit_number("gpumemd", "MemoryMax") == gm_kept_bytes(files) + GM_KEPT_HOST,
		"the unit must say MemoryMax=%lluG",
		(unsigned long long)(gm_kept_bytes(files) + GM_KEPT_HOST) >> 30);
}
END_TEST

/* The kernel counts all descriptors in flight of a user, and the daemon leaves up to half of its limit to clients (hub_flow.c). */
START_TEST(the_keeper_can_leave_everything_although_clients_read_nothing)
{
	uint64_t files = unit_number("gpumemd", "LimitNOFILE");

	ck_assert_uint_ge(unit_number("gpumemd-keeper", "LimitNOFILE"), files + files / 2);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("kept");
	TCase *tcase = tcase_create("kept");

	tcase_add_test(tcase, no_struct_costs_more_than_is_said);
	tcase_add_test(tcase, the_unit_allows_for_all_that_the_bounds_allow);
	tcase_add_test(tcase, the_keeper_can_leave_everything_although_clients_read_nothing);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
