/* SPDX-License-Identifier: Apache-2.0 */
/* Names that end by themselves: when, in which order, and after a restart. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/lease/name_expiry.h"
#include "tests/unit/lease/names_fixture.h"

#define SECOND UINT64_C(1000000000)

static void setup(void)
{
	names_setup(32 * GiB);
}

/* Publishes and gives up its own part. */
static void publish(const char *text, uint64_t lifetime_ns)
{
	struct gm_name_publish what = {.text = text, .replace = true, .lifetime_ns = lifetime_ns};
	struct gm_lease *lease = fake_lease(&fake, maker, 0, 2 * MiB);
	ck_assert_int_eq(gm_lease_publish(maker, lease, &what, &version, detail), GPUMEM_OK);
	gm_lease_return(maker, lease);
}

static uint64_t names(void)
{
	return HASH_COUNT(fake.core->names);
}

/* The daemon's clock: ticks when core wants one. */
static void pass(uint64_t ns)
{
	uint64_t end = fake.now + ns;
	for (int i = 0; i < 1000 && fake.core->env.armed_ns <= end; i++) {
		if (fake.core->env.armed_ns > fake.now)
			fake.now = fake.core->env.armed_ns;
		gm_core_tick(fake.core);
		fake_core_run(&fake);
	}
	fake.now = end;
}

static uint64_t expires(const char *text)
{
	for (const struct gm_name *name = fake.core->names; name; name = name->hh.next)
		if (strcmp(name->text, text) == 0)
			return name->expires_ns;
	ck_abort_msg("there is no %s", text);
	return 0;
}

START_TEST(a_name_ends_when_its_time_has_come)
{
	struct gm_lease *opened;
	struct gm_session *reader = client(100, 5, "100 ");

	publish("for good", 0);
	publish("llama", 10 * SECOND);
	ck_assert_uint_le(fake.core->env.armed_ns, fake.now + 10 * SECOND);
	ck_assert_int_eq(
		gm_session_attach(reader, 100, "llama", NULL, 0, 0, false, &opened), GPUMEM_OK);
	pass(9 * SECOND);
	ck_assert_uint_eq(names(), 2);
	pass(SECOND);
	ck_assert_uint_eq(names(), 1);

	/* The reader keeps what it has. */
	ck_assert_uint_eq(gm_core_lease_count(fake.core), 2);
	ck_assert_uint_eq(fake_left_by(&fake, 100, 0), 4 * MiB);
	gm_session_end_unmapped(reader);
	fake_core_run(&fake);
	ck_assert_uint_eq(gm_core_lease_count(fake.core), 1);
	ck_assert_uint_eq(fake_left_by(&fake, 100, 0), 2 * MiB);
}
END_TEST

START_TEST(a_time_can_be_changed_and_taken_back)
{
	const struct gm_name_asker stranger = {.domain = gm_core_domain(fake.core, "other")};
	const struct gm_name_asker owner = {.domain = gm_core_domain(fake.core, "100 ")};

	publish("llama", 10 * SECOND);
	ck_assert_int_eq(gm_core_expire(fake.core, &stranger, 100, "llama", 0), GPUMEM_E_NOT_FOUND);
	ck_assert_int_eq(gm_core_expire(fake.core, &owner, 100, "mistral", 0), GPUMEM_E_NOT_FOUND);
	ck_assert_int_eq(gm_core_expire(fake.core, &owner, 100, "a/b", 0), GPUMEM_E_NOT_FOUND);
	ck_assert_uint_eq(expires("llama"), fake.now + 10 * SECOND);

	ck_assert_int_eq(gm_core_expire(fake.core, &owner, 100, "llama", 0), GPUMEM_OK);
	pass(1000 * SECOND);
	ck_assert_uint_eq(expires("llama"), 0);
	ck_assert_int_eq(
		gm_core_expire(fake.core, &administrator, 100, "llama", 5 * SECOND), GPUMEM_OK);
	ck_assert_uint_eq(expires("llama"), fake.now + 5 * SECOND);
	/* One that is later than ever is never. */
	ck_assert_int_eq(
		gm_core_expire(fake.core, &administrator, 100, "llama", UINT64_MAX), GPUMEM_OK);
	pass(1000 * SECOND);
	ck_assert_uint_eq(names(), 1);
	ck_assert_int_eq(
		gm_core_expire(fake.core, &administrator, 100, "llama", SECOND), GPUMEM_OK);
	pass(SECOND);
	ck_assert_uint_eq(names(), 0);
	ck_assert_uint_eq(gm_core_lease_count(fake.core), 0);
}
END_TEST

START_TEST(a_newer_version_has_a_time_of_its_own)
{
	publish("llama", 10 * SECOND);
	publish("llama", 0);
	pass(20 * SECOND);
	ck_assert_uint_eq(names(), 1);
	publish("llama", 10 * SECOND);
	ck_assert_int_eq(gm_core_unpublish(fake.core, &administrator, 100, "llama"), GPUMEM_OK);
	ck_assert_uint_eq(fake.core->expiries.n, 0);
	ck_assert_uint_eq(gm_name_expiry_next(fake.core), UINT64_MAX);
}
END_TEST

START_TEST(a_later_daemon_knows_the_time)
{
	publish("llama", 10 * SECOND);
	publish("mistral", 10 * SECOND);
	uint64_t when = expires("llama");
	ck_assert_int_eq(
		gm_core_expire(fake.core, &administrator, 100, "mistral", 50 * SECOND), GPUMEM_OK);
	fake.now += 4 * SECOND;
	restart();
	ck_assert_uint_eq(names(), 2);
	ck_assert_uint_eq(expires("llama"), when);
	ck_assert_uint_le(fake.core->env.armed_ns, when);
	pass(6 * SECOND);
	ck_assert_uint_eq(names(), 1);
	ck_assert_uint_eq(expires("mistral"), when + 40 * SECOND);

	/* It was away when the time came. */
	fake.now += 100 * SECOND;
	restart();
	pass(1);
	ck_assert_uint_eq(names(), 0);
	ck_assert_uint_eq(fake_left_by(&fake, 100, 0), 0);
}
END_TEST

/* Very many, which end in any order, and some of which are changed or removed before. */
START_TEST(very_many_end_in_the_order_of_their_times)
{
	enum { MANY = 2000 };
	unsigned seed = 7;
	char text[32];

	for (int i = 0; i < MANY; i++) {
		snprintf(text, sizeof(text), "name %d", i);
		publish(text, (uint64_t)(1 + rand_r(&seed) % 1000) * SECOND);
	}
	for (int i = 0; i < MANY; i += 3) {
		snprintf(text, sizeof(text), "name %d", i);
		ck_assert_int_eq(gm_core_expire(fake.core, &administrator, 100, text,
					 (uint64_t)(rand_r(&seed) % 1000) * SECOND),
			GPUMEM_OK);
		snprintf(text, sizeof(text), "name %d", i + 1);
		if (i + 1 < MANY)
			gm_core_unpublish(fake.core, &administrator, 100, text);
	}

	uint64_t begin = fake.now;
	for (int s = 1; s <= 1000; s++) {
		pass(SECOND);
		for (const struct gm_name *name = fake.core->names; name; name = name->hh.next)
			ck_assert(name->expires_ns == 0 ||
				  name->expires_ns > begin + (uint64_t)s * SECOND);
	}
	for (const struct gm_name *name = fake.core->names; name; name = name->hh.next)
		ck_assert_uint_eq(name->expires_ns, 0);
	ck_assert_uint_eq(fake.core->expiries.n, 0);
}
END_TEST

/* No tick ends so many that others would wait. */
START_TEST(all_at_once_end_in_slices)
{
	char text[32];

	for (int i = 0; i < 300; i++) {
		snprintf(text, sizeof(text), "name %d", i);
		publish(text, SECOND);
	}
	fake.now += SECOND;
	gm_core_tick(fake.core);
	ck_assert_uint_gt(names(), 200);
	ck_assert_uint_le(fake.core->env.armed_ns, fake.now);
	pass(1);
	ck_assert_uint_eq(names(), 0);
	fake_core_run(&fake);
	ck_assert_uint_eq(gm_core_lease_count(fake.core), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("expiry");
	TCase *tcase = tcase_create("expiry");
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, a_name_ends_when_its_time_has_come);
	tcase_add_test(tcase, a_time_can_be_changed_and_taken_back);
	tcase_add_test(tcase, a_newer_version_has_a_time_of_its_own);
	tcase_add_test(tcase, a_later_daemon_knows_the_time);
	tcase_add_test(tcase, very_many_end_in_the_order_of_their_times);
	tcase_add_test(tcase, all_at_once_end_in_slices);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
