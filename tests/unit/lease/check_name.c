/* SPDX-License-Identifier: Apache-2.0 */
/* Names that keep leases: who sees them, what replaces them, who pays, and what a later daemon takes
 * back. */
#include <string.h>

#include "tests/bound.h"
#include "tests/unit/lease/names_fixture.h"

static void setup(void)
{
	names_setup(GiB);
}

static gpumem_status publish(struct gm_session *session, struct gm_lease *lease, const char *text)
{
	const struct gm_name_publish what = {.text = text};
	return gm_lease_publish(session, lease, &what, &version, detail);
}

static gpumem_status attach(struct gm_session *session, uid_t uid, const char *text)
{
	struct gm_lease *lease;
	return gm_session_attach(session, uid, text, NULL, 0, 0, false, &lease);
}

static struct gm_name_info found;
static size_t n_found;

static bool on_name(void *ctx, const struct gm_name_info *name)
{
	found = *name;
	n_found++;
	return true;
}

static size_t count_names(void)
{
	n_found = 0;
	gm_core_name_each(fake.core, &administrator, 0, on_name, NULL);
	return n_found;
}

START_TEST(a_removal_that_is_repeated_ends_no_newer_name)
{
	struct gm_name_which first, second;

	ck_assert_int_eq(gm_core_which_name(fake.core, &administrator, 100, "llama", &first),
		GPUMEM_E_NOT_FOUND);
	ck_assert_int_eq(publish(maker, fake_lease(&fake, maker, 0, 2 * MiB), "llama"), GPUMEM_OK);
	ck_assert_int_eq(
		gm_core_which_name(fake.core, &administrator, 100, "llama", &first), GPUMEM_OK);
	ck_assert_int_eq(gm_core_unpublish_which(fake.core, &administrator, 100, "llama", &first),
		GPUMEM_OK);

	/* It has the same version, and is another one. */
	ck_assert_int_eq(publish(maker, fake_lease(&fake, maker, 0, 2 * MiB), "llama"), GPUMEM_OK);
	ck_assert_int_eq(gm_core_unpublish_which(fake.core, &administrator, 100, "llama", &first),
		GPUMEM_E_NOT_FOUND);
	ck_assert_uint_eq(count_names(), 1);
	ck_assert_int_eq(
		gm_core_which_name(fake.core, &administrator, 100, "llama", &second), GPUMEM_OK);
	ck_assert_uint_eq(second.version, first.version);
	ck_assert_uint_gt(second.id, first.id);

	/* The same one in another version. */
	first = second;
	first.version++;
	ck_assert_int_eq(gm_core_unpublish_which(fake.core, &administrator, 100, "llama", &first),
		GPUMEM_E_NOT_FOUND);
	ck_assert_uint_eq(count_names(), 1);
	ck_assert_int_eq(gm_core_unpublish_which(fake.core, &administrator, 100, "llama", &second),
		GPUMEM_OK);
	ck_assert_uint_eq(count_names(), 0);
}
END_TEST

START_TEST(a_published_lease_outlives_its_maker)
{
	struct gm_lease *lease = fake_lease(&fake, maker, 0, 8 * MiB);

	ck_assert_int_eq(attach(client(100, 5, "100 "), 100, "llama"), GPUMEM_E_NOT_FOUND);
	ck_assert_int_eq(publish(maker, lease, "llama"), GPUMEM_OK);
	ck_assert_uint_eq(version, 1);
	gm_session_end_died(maker);
	fake_core_run(&fake);
	ck_assert_uint_eq(fake_figures(&fake, 0).leased, 8 * MiB);
	ck_assert_uint_eq(fake_left_by(&fake, 100, 0), 8 * MiB);

	struct gm_session *reader = client(100, 5, "100 ");
	ck_assert_int_eq(attach(reader, 100, "llama"), GPUMEM_OK);
	ck_assert_uint_eq(gm_session_held(reader, 0), 0);
	ck_assert_uint_eq(count_names(), 1);
	ck_assert_uint_eq(found.readers, 1);
	ck_assert(!found.made);

	/* Its name is gone, but not its reader. */
	ck_assert_int_eq(gm_core_unpublish(fake.core, &administrator, 100, "llama"), GPUMEM_OK);
	ck_assert_int_eq(
		gm_core_unpublish(fake.core, &administrator, 100, "llama"), GPUMEM_E_NOT_FOUND);
	ck_assert_uint_eq(fake_left_by(&fake, 100, 0), 8 * MiB);
	gm_session_end_unmapped(reader);
	fake_core_run(&fake);
	ck_assert_uint_eq(fake_left_by(&fake, 100, 0), 0);
	ck_assert_uint_eq(gm_core_lease_count(fake.core), 0);
}
END_TEST

START_TEST(a_name_belongs_to_its_uid)
{
	struct gm_session *other = client(200, 6, "200 ");

	ck_assert_int_eq(publish(maker, fake_lease(&fake, maker, 0, 2 * MiB), "llama"), GPUMEM_OK);
	ck_assert_int_eq(publish(other, fake_lease(&fake, other, 0, 4 * MiB), "llama"), GPUMEM_OK);
	ck_assert_uint_eq(count_names(), 2);
	ck_assert_int_eq(attach(other, 100, "llama"), GPUMEM_E_NOT_FOUND);
	ck_assert_int_eq(attach(maker, 200, "llama"), GPUMEM_E_NOT_FOUND);
	ck_assert_int_eq(
		gm_core_unpublish(fake.core, &administrator, 300, "llama"), GPUMEM_E_NOT_FOUND);
}
END_TEST

START_TEST(the_domain_is_known_by_its_key)
{
	ck_assert_int_eq(publish(maker, fake_lease(&fake, maker, 0, 2 * MiB), "llama"), GPUMEM_OK);
	ck_assert_int_eq(attach(client(100, 7, "100 "), 100, "llama"), GPUMEM_OK);
	ck_assert_int_eq(attach(client(100, 8, "100 /box"), 100, "llama"), GPUMEM_E_NOT_FOUND);
	ck_assert_int_eq(attach(client(100, 9, NULL), 100, "llama"), GPUMEM_E_NOT_FOUND);
}
END_TEST

START_TEST(another_container_of_the_uid_has_no_say)
{
	struct gm_name_publish what = {.text = "llama", .replace = true};
	struct gm_session *other = client(100, 8, "100 /box"), *same = client(100, 9, "100 ");
	struct gm_name_asker asker = {.domain = gm_core_domain(fake.core, "100 /box")};

	ck_assert_int_eq(publish(maker, fake_lease(&fake, maker, 0, 2 * MiB), "llama"), GPUMEM_OK);
	ck_assert_int_eq(gm_lease_publish(other, fake_lease(&fake, other, 0, 2 * MiB), &what,
				 &version, detail),
		GPUMEM_E_BUSY);
	ck_assert_ptr_nonnull(strstr(detail, "another container"));
	ck_assert_int_eq(gm_core_unpublish(fake.core, &asker, 100, "llama"), GPUMEM_E_NOT_FOUND);
	gm_core_name_each(fake.core, &asker, 0, on_name, NULL);
	ck_assert(!found.own);

	/* Its own has. */
	asker.domain = gm_core_domain(fake.core, "100 ");
	gm_core_name_each(fake.core, &asker, 0, on_name, NULL);
	ck_assert(found.own);
	ck_assert_int_eq(gm_lease_publish(same, fake_lease(&fake, same, 0, 2 * MiB), &what,
				 &version, detail),
		GPUMEM_OK);
	ck_assert_int_eq(gm_core_unpublish(fake.core, &asker, 100, "llama"), GPUMEM_OK);
}
END_TEST

START_TEST(others_attach_to_what_was_made_for_them)
{
	struct gm_name_publish what = {.text = "llama",
		.share = {.audience = GM_NAME_AUDIENCE_UID, .id = 200, .read_only = true}};
	struct gm_lease *own = fake_lease(&fake, maker, 0, 2 * MiB), *opened;
	struct gm_lease_info seen;

	ck_assert_int_eq(
		gm_lease_publish(maker, own, &what, &version, detail), GPUMEM_E_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(detail, "create it for others"));
	fake.for_others = true;
	struct gm_lease *lease = fake_lease(&fake, maker, 0, 2 * MiB);
	ck_assert_int_eq(gm_lease_publish(maker, lease, &what, &version, detail), GPUMEM_OK);

	struct gm_session *reader = client(200, 6, "200 ");
	ck_assert_int_eq(attach(client(300, 7, "300 "), 100, "llama"), GPUMEM_E_NOT_FOUND);
	ck_assert_int_eq(
		gm_session_attach(reader, 100, "llama", NULL, 0, 0, false, &opened), GPUMEM_OK);
	gm_lease_info(opened, reader, &seen);
	ck_assert(seen.read_only);
}
END_TEST

START_TEST(a_newer_version_replaces_an_older_one_in_one_step)
{
	struct gm_name_publish what = {.text = "llama", .replace = true};
	struct gm_lease *first = fake_lease(&fake, maker, 0, 2 * MiB);
	struct gm_lease *second = fake_lease(&fake, maker, 0, 4 * MiB), *opened;
	struct gm_session *reader = client(100, 5, "100 "), *later = client(100, 5, "100 ");

	ck_assert_int_eq(gm_lease_publish(maker, first, &what, &version, detail), GPUMEM_OK);
	ck_assert_int_eq(attach(reader, 100, "llama"), GPUMEM_OK);
	ck_assert_int_eq(publish(maker, second, "llama"), GPUMEM_E_BUSY);
	ck_assert_ptr_nonnull(strstr(detail, "taken"));
	gm_lease_return(maker, first);

	ck_assert_int_eq(gm_lease_publish(maker, second, &what, &version, detail), GPUMEM_OK);
	ck_assert_uint_eq(version, 2);
	ck_assert_uint_eq(count_names(), 1);
	ck_assert_int_eq(
		gm_session_attach(later, 100, "llama", NULL, 0, 0, false, &opened), GPUMEM_OK);
	ck_assert_ptr_eq(opened, second);
	struct gm_lease_info seen;
	gm_lease_info(opened, later, &seen);
	ck_assert_uint_eq(seen.version, 2);
	/* The older one lives as long as its reader. */
	ck_assert_uint_eq(gm_core_lease_count(fake.core), 2);
	gm_session_end_unmapped(reader);
	fake_core_run(&fake);
	ck_assert_uint_eq(gm_core_lease_count(fake.core), 1);
}
END_TEST

START_TEST(a_name_may_end_with_its_last_reader)
{
	const struct gm_name_publish what = {.text = "llama", .until_unread = true};
	struct gm_lease *lease = fake_lease(&fake, maker, 0, 2 * MiB);
	struct gm_session *a = client(100, 5, "100 "), *b = client(100, 5, "100 ");

	ck_assert_int_eq(gm_lease_publish(maker, lease, &what, &version, detail), GPUMEM_OK);
	gm_lease_return(maker, lease); /* no reader came yet */
	ck_assert_uint_eq(count_names(), 1);
	ck_assert_int_eq(attach(a, 100, "llama"), GPUMEM_OK);
	ck_assert_int_eq(attach(b, 100, "llama"), GPUMEM_OK);
	gm_session_end_unmapped(a);
	ck_assert_uint_eq(count_names(), 1);
	gm_session_end_died(b);
	fake_core_run(&fake);
	ck_assert_uint_eq(count_names(), 0);
	ck_assert_uint_eq(gm_core_lease_count(fake.core), 0);
	ck_assert_uint_eq(fake_left_by(&fake, 100, 0), 0);
}
END_TEST

START_TEST(a_published_lease_stays_as_it_is)
{
	struct gm_lease *lease = fake_lease(&fake, maker, 0, 4 * MiB);
	uint64_t chunk = gm_lease_chunk(lease, 0)->id;
	struct fake_request q;

	ck_assert_int_eq(publish(maker, lease, "llama"), GPUMEM_OK);
	fake_grow(&fake, &q, maker, lease, 2 * MiB);
	ck_assert_int_eq(q.status, GPUMEM_E_BUSY);
	ck_assert_int_eq(gm_lease_return_chunks(maker, lease, &chunk, 1), GPUMEM_E_BUSY);
	/* To say it again is no error, to give it another name is one. */
	ck_assert_int_eq(publish(maker, lease, "llama"), GPUMEM_OK);
	ck_assert_uint_eq(version, 1);
	ck_assert_int_eq(publish(maker, lease, "mistral"), GPUMEM_E_BUSY);
	ck_assert_ptr_nonnull(strstr(detail, "llama"));
}
END_TEST

/* The maker's connection ends while it returns very many chunks, and it comes back before ticks are done
 * with them. */
START_TEST(a_lease_whose_chunks_leave_ends_once)
{
	uint64_t ids[1100], n = 0;
	struct gm_lease *lease = fake_lease(&fake, maker, 0, 2 * MiB);
	struct fake_request q;
	for (int i = 0; i < 1099; i++) {
		fake_grow(&fake, &q, maker, lease, 2 * MiB);
		fake_core_run(&fake);
	}
	for (const struct gm_chunk *c = gm_lease_chunk(lease, 0); c && n < 1098; c = c->next)
		ids[n++] = c->id;
	ck_assert_int_eq(gm_lease_return_chunks(maker, lease, ids, n), GPUMEM_OK);
	ck_assert_int_eq(publish(maker, lease, "llama"), GPUMEM_E_BUSY);
	gm_lease_hand_over(maker);
	while (gm_lease_return_more(maker, lease))
		continue;
	ck_assert_int_eq(publish(maker, lease, "llama"), GPUMEM_OK);
	gm_lease_return(maker, lease);
	ck_assert_int_eq(gm_core_unpublish(fake.core, &administrator, 100, "llama"), GPUMEM_OK);
	for (int i = 0; i < 8; i++)
		gm_core_tick(fake.core);
	fake_core_run(&fake);
	ck_assert_uint_eq(gm_core_lease_count(fake.core), 0);
	ck_assert_uint_eq(fake_left_by(&fake, 100, 0), 0);
}
END_TEST

START_TEST(a_bad_name_is_refused)
{
	static const char *const bad[] = {"", "a/b", "a\nb", "\xff",
		"0123456789012345678901234567890123456789012345678901234567890123"};
	struct gm_lease *lease = fake_lease(&fake, maker, 0, 2 * MiB);

	ck_assert_int_eq(publish(maker, lease, bad[_i]), GPUMEM_E_INVALID);
	ck_assert_int_eq(attach(maker, 100, bad[_i]), GPUMEM_E_NOT_FOUND);
	ck_assert_int_eq(
		gm_core_unpublish(fake.core, &administrator, 100, bad[_i]), GPUMEM_E_NOT_FOUND);
}
END_TEST

START_TEST(only_the_maker_publishes)
{
	struct gm_lease *lease = fake_lease(&fake, maker, 0, 2 * MiB);
	struct gm_session *reader = client(100, 5, "100 ");

	ck_assert_int_eq(publish(maker, lease, "llama"), GPUMEM_OK);
	ck_assert_int_eq(attach(reader, 100, "llama"), GPUMEM_OK);
	ck_assert_int_eq(publish(reader, lease, "mine"), GPUMEM_E_DENIED);
}
END_TEST

START_TEST(a_later_daemon_has_the_names)
{
	struct gm_name_publish what = {.text = "llama", .replace = true};
	struct gm_lease *first = fake_lease(&fake, maker, 0, 2 * MiB);

	ck_assert_int_eq(gm_lease_publish(maker, first, &what, &version, detail), GPUMEM_OK);
	struct gm_lease *second = fake_lease(&fake, maker, 0, 4 * MiB);
	ck_assert_int_eq(gm_lease_publish(maker, second, &what, &version, detail), GPUMEM_OK);
	gm_session_end_died(maker);
	fake_core_run(&fake);
	ck_assert_uint_eq(fake_left_by(&fake, 100, 0), 4 * MiB);

	for (int i = 0; i < 2; i++) {
		restart();
		ck_assert_uint_eq(result.adopted[GM_RECORD_NAME], 1);
		ck_assert_uint_eq(fake_left_by(&fake, 100, 0), 4 * MiB);
		ck_assert_uint_eq(count_names(), 1);
		ck_assert_uint_eq(found.version, 2);
		ck_assert_int_eq(attach(client(100, 77, "100 "), 100, "llama"), GPUMEM_OK);
		ck_assert_int_eq(
			attach(client(100, 78, "100 /box"), 100, "llama"), GPUMEM_E_NOT_FOUND);
		/* These sessions have no client, so they are not taken back. */
	}
	ck_assert_int_eq(gm_core_unpublish(fake.core, &administrator, 100, "llama"), GPUMEM_OK);
	restart();
	ck_assert_uint_eq(count_names(), 0);
	ck_assert_uint_eq(fake_left_by(&fake, 100, 0), 0);
}
END_TEST

/* Every write is the last in turn. */
START_TEST(a_daemon_that_dies_while_it_replaces_has_one_of_them)
{
	for (uint64_t step = 1;; step++) {
		struct gm_name_publish what = {.text = "llama", .replace = true};
		struct gm_session *s =
			fake_ledger_join(&fake, 100, NULL, (uint8_t[GM_TOKEN_BYTES]){0});
		uint64_t first_id, second_id;
		struct gm_lease_info seen;
		struct gm_lease *first = fake_lease(&fake, s, 0, 2 * MiB);
		gm_lease_info(first, s, &seen);
		first_id = seen.id;
		ck_assert_int_eq(gm_lease_publish(s, first, &what, &version, detail), GPUMEM_OK);
		struct gm_lease *second = fake_lease(&fake, s, 0, 4 * MiB);
		gm_lease_info(second, s, &seen);
		second_id = seen.id;

		ledger.stop_at = ledger.writes + step;
		gm_lease_publish(s, second, &what, &version, detail);
		gm_lease_return(s, first);
		gm_lease_return(s, second);
		bool complete = !ledger.stopped;
		restart();
		ck_assert_uint_eq(count_names(), 1);
		ck_assert(found.lease == first_id || found.lease == second_id);
		ck_assert_uint_eq(found.bytes, found.lease == first_id ? 2 * MiB : 4 * MiB);
		ck_assert_uint_eq(found.version, found.lease == first_id ? 1 : 2);
		for (struct gm_session *each; (each = fake_next_session(&fake, NULL));)
			fake_ledger_leave(&fake, each, true);
		fake_core_run(&fake);
		ck_assert_uint_eq(fake_left_by(&fake, 100, 0), found.bytes);
		ck_assert_int_eq(
			gm_core_unpublish(fake.core, &administrator, 100, "llama"), GPUMEM_OK);
		fake_core_run(&fake);
		ck_assert_uint_eq(fake_left_by(&fake, 100, 0), 0);
		if (complete) {
			ck_assert_uint_gt(step, 3);
			return;
		}
	}
}
END_TEST

START_TEST(a_uid_leaves_names_to_others)
{
	GM_BOUND_TEST(NAMES);
	struct gm_session *other = client(200, 6, "200 ");
	char text[32];
	uint64_t n = 0;

	for (;; n++) {
		snprintf(text, sizeof(text), "name %llu", (unsigned long long)n);
		struct gm_lease *lease = fake_lease(&fake, maker, 0, 2 * MiB);
		gpumem_status status = publish(maker, lease, text);
		gm_lease_return(maker, lease);
		if (status != GPUMEM_OK) {
			ck_assert_int_eq(status, GPUMEM_E_LIMIT);
			break;
		}
	}
	ck_assert_uint_eq(n, GM_BOUND_NAMES / 2);
	ck_assert_ptr_nonnull(strstr(detail, "user 100"));
	ck_assert_ptr_nonnull(strstr(detail, "16384"));
	ck_assert_int_eq(publish(other, fake_lease(&fake, other, 0, 2 * MiB), "mine"), GPUMEM_OK);
	/* Replacing needs no room. */
	struct gm_name_publish what = {.text = "name 0", .replace = true};
	ck_assert_int_eq(gm_lease_publish(maker, fake_lease(&fake, maker, 0, 2 * MiB), &what,
				 &version, detail),
		GPUMEM_OK);
}
END_TEST

static void setup_large(void)
{
	setup();
	gm_session_end_unmapped(maker);
	fake_core_deinit(&fake);
	info = fake_info(64 * GiB);
	fake_no_levels(&info.policy);
	fake_core_init(&fake);
	fake_core_add(&fake, &info);
	maker = client(100, 5, "100 ");
}

int main(void)
{
	Suite *suite = suite_create("name");
	TCase *tcase = tcase_create("name");
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_published_lease_outlives_its_maker);
	tcase_add_test(tcase, a_removal_that_is_repeated_ends_no_newer_name);
	tcase_add_test(tcase, a_name_belongs_to_its_uid);
	tcase_add_test(tcase, the_domain_is_known_by_its_key);
	tcase_add_test(tcase, another_container_of_the_uid_has_no_say);
	tcase_add_test(tcase, others_attach_to_what_was_made_for_them);
	tcase_add_test(tcase, a_newer_version_replaces_an_older_one_in_one_step);
	tcase_add_test(tcase, a_name_may_end_with_its_last_reader);
	tcase_add_test(tcase, a_published_lease_stays_as_it_is);
	tcase_add_loop_test(tcase, a_bad_name_is_refused, 0, 5);
	tcase_add_test(tcase, only_the_maker_publishes);
	tcase_add_test(tcase, a_later_daemon_has_the_names);
	tcase_add_test(tcase, a_daemon_that_dies_while_it_replaces_has_one_of_them);
	suite_add_tcase(suite, tcase);
	TCase *large = tcase_create("large");
	tcase_add_checked_fixture(large, setup_large, teardown);
	tcase_add_test(large, a_uid_leaves_names_to_others);
	tcase_add_test(large, a_lease_whose_chunks_leave_ends_once);
	suite_add_tcase(suite, large);
	return gm_tap_run(suite);
}
