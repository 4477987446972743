/* SPDX-License-Identifier: Apache-2.0 */

/* Trust domains: who shares one, how they are remembered, and what they are called. */

#include <stdio.h>
#include <string.h>

#include "daemon/net/identity.h"
#include "daemon/tenant/domain.h"
#include "tests/bound.h"
#include "tests/tap.h"

static struct gm_identity someone(uid_t uid, const char *scope)
{
	struct gm_identity who = {.uid = uid};
	strcpy(who.cgroup.scope, scope);
	strcpy(who.cgroup.container, scope[0] ? "box" : "");
	return who;
}

START_TEST(domains_follow_the_trust_setting)
{
	struct gm_domains *domains;
	gm_domain a, b;
	bool pooling;
	ck_assert_int_eq(gm_domains_new(&domains), 0);
	struct gm_identity plain = someone(1000, ""), boxed = someone(1000, "/docker/a"),
			   other = someone(1000, "/docker/b"), root = someone(0, "/docker/a");
	gm_domains_get(domains, GM_DOMAIN_TRUST_CONTAINER, &plain, &a, &pooling);
	ck_assert(pooling);
	ck_assert_uint_ne(a, GM_DOMAIN_FRESH);
	gm_domains_get(domains, GM_DOMAIN_TRUST_CONTAINER, &plain, &b, &pooling);
	ck_assert_uint_eq(a, b);
	gm_domains_get(domains, GM_DOMAIN_TRUST_CONTAINER, &boxed, &b, &pooling);
	ck_assert_uint_ne(a, b);
	gm_domain boxed_domain = b;
	gm_domains_get(domains, GM_DOMAIN_TRUST_CONTAINER, &other, &b, &pooling);
	ck_assert_uint_ne(boxed_domain, b);
	gm_domains_get(domains, GM_DOMAIN_TRUST_CONTAINER, &root, &b, &pooling);
	ck_assert_uint_ne(boxed_domain, b);
	gm_domains_get(domains, GM_DOMAIN_TRUST_UID, &boxed, &b, &pooling);
	ck_assert_uint_eq(a, b);
	gm_domains_get(domains, GM_DOMAIN_TRUST_CLIENT, &plain, &b, &pooling);
	ck_assert_uint_ne(a, b);
	ck_assert(!pooling);
	gm_domain alone = b;
	gm_domains_get(domains, GM_DOMAIN_TRUST_CLIENT, &plain, &b, &pooling);
	ck_assert_uint_ne(alone, b);
	gm_domains_free(domains);
}
END_TEST

START_TEST(who_cannot_be_told_shares_with_nobody)
{
	struct gm_domains *domains;
	gm_domain a, b;
	bool pooling;
	ck_assert_int_eq(gm_domains_new(&domains), 0);
	struct gm_identity nobody = someone(65534, ""), hidden = someone(1000, "");
	hidden.confined = true;
	gm_domains_get(domains, GM_DOMAIN_TRUST_UID, &nobody, &a, &pooling);
	ck_assert(!pooling);
	gm_domains_get(domains, GM_DOMAIN_TRUST_UID, &nobody, &b, &pooling);
	ck_assert_uint_ne(a, b);
	gm_domains_get(domains, GM_DOMAIN_TRUST_CONTAINER, &hidden, &a, &pooling);
	ck_assert(!pooling);
	gm_domains_get(domains, GM_DOMAIN_TRUST_CONTAINER, &hidden, &b, &pooling);
	ck_assert_uint_ne(a, b);
	gm_domains_get(domains, GM_DOMAIN_TRUST_UID, &hidden, &a, &pooling);
	ck_assert(pooling);
	gm_domains_free(domains);
}
END_TEST

START_TEST(a_domain_is_remembered_for_its_next_session_and_bounded)
{
	struct gm_domains *domains;
	gm_domain first, again, held;
	bool pooling;
	char text[GM_DOMAIN_TEXT];
	ck_assert_int_eq(gm_domains_new(&domains), 0);
	struct gm_identity one = someone(1, ""), kept = someone(2, "");
	gm_domains_get(domains, GM_DOMAIN_TRUST_UID, &kept, &held, &pooling);
	gm_domains_get(domains, GM_DOMAIN_TRUST_UID, &one, &first, &pooling);
	gm_domains_release(domains, first);
	gm_domains_get(domains, GM_DOMAIN_TRUST_UID, &one, &again, &pooling);
	ck_assert_uint_eq(first, again);
	gm_domains_release(domains, again);
	/* One more than are kept: the oldest unused one goes, never one in use. */
	for (uid_t uid = 0; uid < GM_DOMAINS_KEPT; uid++) {
		struct gm_identity other = someone(100000 + uid, "");
		gm_domain number;
		gm_domains_get(domains, GM_DOMAIN_TRUST_UID, &other, &number, &pooling);
		gm_domains_release(domains, number);
	}
	ck_assert_str_eq(gm_domains_text(domains, first, NULL, text), "a domain that is gone");
	gm_domains_get(domains, GM_DOMAIN_TRUST_UID, &one, &again, &pooling);
	ck_assert_uint_gt(again, first);
	gm_domains_get(domains, GM_DOMAIN_TRUST_UID, &kept, &again, &pooling);
	ck_assert_uint_eq(again, held);
	gm_domains_free(domains);
}
END_TEST

START_TEST(domains_have_names_for_people)
{
	struct gm_domains *domains;
	gm_domain number;
	bool pooling;
	char text[GM_DOMAIN_TEXT];
	ck_assert_int_eq(gm_domains_new(&domains), 0);
	struct gm_identity plain = someone(1000, ""), boxed = someone(0, "/docker/a");
	ck_assert_str_eq(gm_domains_text(domains, GM_DOMAIN_FRESH, NULL, text), "fresh");
	gm_domains_get(domains, GM_DOMAIN_TRUST_CONTAINER, &plain, &number, &pooling);
	ck_assert_str_eq(gm_domains_text(domains, number, NULL, text), "uid 1000");
	gm_domains_get(domains, GM_DOMAIN_TRUST_CONTAINER, &boxed, &number, &pooling);
	ck_assert_str_eq(gm_domains_text(domains, number, NULL, text), "uid 0 in box");
	gm_domains_get(domains, GM_DOMAIN_TRUST_CLIENT, &plain, &number, &pooling);
	ck_assert_str_eq(gm_domains_text(domains, number, NULL, text), "one client");
	gm_domains_free(domains);
}
END_TEST

START_TEST(a_domains_container_is_told_to_that_user_in_it_alone)
{
	struct gm_domains *domains;
	gm_domain number, plain;
	bool pooling;
	char text[GM_DOMAIN_TEXT];
	ck_assert_int_eq(gm_domains_new(&domains), 0);
	struct gm_identity boxed = someone(7, "/docker/a"), again = someone(7, "/docker/a"),
			   other = someone(7, "/docker/b"), outside = someone(7, ""),
			   root = someone(0, "/docker/a"), unknown = someone(7, "/docker/a");
	const struct gm_identity *const strangers[] = {&other, &outside, &root, &unknown};
	unknown.confined = true;
	gm_domains_get(domains, GM_DOMAIN_TRUST_CONTAINER, &boxed, &number, &pooling);
	gm_domains_get(domains, GM_DOMAIN_TRUST_CONTAINER, &outside, &plain, &pooling);
	ck_assert_str_eq(gm_domains_text(domains, number, NULL, text), "uid 7 in box");
	ck_assert_str_eq(gm_domains_text(domains, number, &again, text), "uid 7 in box");
	for (size_t i = 0; i < sizeof(strangers) / sizeof(strangers[0]); i++) {
		ck_assert_str_eq(gm_domains_text(domains, number, strangers[i], text),
			"uid 7 in a container");
		/* The user is no secret. */
		ck_assert_str_eq(gm_domains_text(domains, plain, strangers[i], text), "uid 7");
	}
	gm_domains_free(domains);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("domain");
	TCase *tests = tcase_create("domain");
	tcase_add_test(tests, domains_follow_the_trust_setting);
	tcase_add_test(tests, who_cannot_be_told_shares_with_nobody);
	tcase_add_test(tests, a_domain_is_remembered_for_its_next_session_and_bounded);
	tcase_add_test(tests, domains_have_names_for_people);
	tcase_add_test(tests, a_domains_container_is_told_to_that_user_in_it_alone);
	suite_add_tcase(suite, tests);
	return gm_tap_run(suite);
}
