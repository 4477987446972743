/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Sharing between processes, trust domains and audiences: who may open what, who pays, and that
 * nobody sees what another uid left behind. Real processes of real uids, so it needs root.
 */

#include <errno.h>
#include <grp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/integration/raw.h"
#include "tests/integration/share_fixture.h"
#include "tests/tap.h"

#define GID_C 54333

static struct report open_with(struct gm_worker *worker, const uint8_t token[GM_TOKEN_BYTES])
{
	struct order order = {.verb = OPEN};
	memcpy(order.token, token, GM_TOKEN_BYTES);
	return tell(worker, order);
}

/* ---- sharing */

START_TEST(a_buffer_is_one_memory_in_two_processes)
{
	struct gm_worker maker, opener;
	struct person who = {UID_A, 0};
	gm_worker_start(&maker, obey, &who);
	gm_worker_start(&opener, obey, &who);
	GM_REQUIRE_EQ(TELL(maker, .verb = LEASE, .bytes = 3 * GM_CHUNK_MIN - 5).status, GPUMEM_OK);
	TELL(maker, .verb = FILL, .byte = 1);
	struct report share = TELL(maker, .verb = SHARE);
	GM_REQUIRE_EQ(share.status, GPUMEM_OK);
	struct report open = open_with(&opener, share.token);
	GM_REQUIRE_EQ(open.status, GPUMEM_OK);
	GM_REQUIRE_EQ(open.user_bytes, 3 * GM_CHUNK_MIN - 5);
	GM_REQUIRE_EQ(open.bytes, share.bytes);
	GM_REQUIRE(!open.read_only);
	GM_REQUIRE(TELL(opener, .verb = IS, .byte = 1).yes);
	TELL(opener, .verb = FILL, .byte = 2);
	GM_REQUIRE(TELL(maker, .verb = IS, .byte = 2).yes);
	/* Paid once, by the maker. */
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).leased, share.bytes);
	struct gm_client_row row;
	GM_REQUIRE(gm_client_row(&daemon_, share.session, &row));
	GM_REQUIRE_EQ(row.held, share.bytes);
	GM_REQUIRE(gm_client_row(&daemon_, open.session, &row));
	GM_REQUIRE_EQ(row.held, 0);
	/* An opener's return ends its view, not the memory. */
	GM_REQUIRE_EQ(TELL(opener, .verb = RETURN).status, GPUMEM_OK);
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).leased, share.bytes);
	GM_REQUIRE(TELL(maker, .verb = IS, .byte = 2).yes);
	GM_REQUIRE_EQ(TELL(maker, .verb = RETURN).status, GPUMEM_OK);
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).leased, 0);
	end(&maker);
	end(&opener);
}
END_TEST

START_TEST(a_right_token_of_the_wrong_uid_finds_nothing)
{
	struct gm_worker maker, stranger, root;
	struct person who = {UID_A, 0}, other = {UID_B, 0}, super = {0, 0};
	gm_worker_start(&maker, obey, &who);
	gm_worker_start(&stranger, obey, &other);
	gm_worker_start(&root, obey, &super);
	GM_REQUIRE_EQ(
		TELL(maker, .verb = LEASE_FOR_OTHERS, .bytes = GM_CHUNK_MIN).status, GPUMEM_OK);
	struct report domain = TELL(maker, .verb = SHARE);
	struct report uid = TELL(
		maker, .verb = SHARE, .audience = GM__WIRE__AUDIENCE__AUDIENCE_UID, .id = UID_A);
	struct report gid = TELL(
		maker, .verb = SHARE, .audience = GM__WIRE__AUDIENCE__AUDIENCE_GID, .id = GID_C);
	struct report none = TELL(maker, .verb = SHARE,
		.audience = GM__WIRE__AUDIENCE__AUDIENCE_UID, .id = UID_A + 7);
	const struct report *all[] = {&domain, &uid, &gid, &none};
	for (size_t i = 0; i < 4; i++) {
		GM_REQUIRE_EQ(all[i]->status, GPUMEM_OK);
		GM_REQUIRE_EQ(open_with(&stranger, all[i]->token).status, GPUMEM_E_NOT_FOUND);
	}
	/* Root is another uid, too: the token is bound to whom it was made for. */
	GM_REQUIRE_EQ(open_with(&root, domain.token).status, GPUMEM_E_NOT_FOUND);
	end(&maker);
	end(&stranger);
	end(&root);
}
END_TEST

START_TEST(old_data_is_not_shared_with_others)
{
	struct gm_worker maker;
	struct person who = {UID_A, 0};
	gm_worker_start(&maker, obey, &who);
	/* What the pool has is the maker's own, but the others' to see. */
	GM_REQUIRE_EQ(TELL(maker, .verb = LEASE, .bytes = GM_CHUNK_MIN).status, GPUMEM_OK);
	TELL(maker, .verb = FILL, .byte = 9);
	GM_REQUIRE_EQ(TELL(maker, .verb = RETURN).status, GPUMEM_OK);

	GM_REQUIRE_EQ(TELL(maker, .verb = LEASE, .bytes = GM_CHUNK_MIN).status, GPUMEM_OK);
	GM_REQUIRE(TELL(maker, .verb = IS, .byte = 9).yes);
	GM_REQUIRE_EQ(TELL(maker, .verb = SHARE, .audience = GM__WIRE__AUDIENCE__AUDIENCE_UID,
			      .id = UID_B)
			      .status,
		GPUMEM_E_UNSUPPORTED);
	GM_REQUIRE_EQ(TELL(maker, .verb = SHARE, .audience = GM__WIRE__AUDIENCE__AUDIENCE_GID,
			      .id = GID_C)
			      .status,
		GPUMEM_E_UNSUPPORTED);
	GM_REQUIRE_EQ(TELL(maker, .verb = SHARE).status, GPUMEM_OK);
	GM_REQUIRE_EQ(TELL(maker, .verb = RETURN).status, GPUMEM_OK);

	GM_REQUIRE_EQ(
		TELL(maker, .verb = LEASE_FOR_OTHERS, .bytes = GM_CHUNK_MIN).status, GPUMEM_OK);
	GM_REQUIRE(TELL(maker, .verb = IS, .byte = 0).yes);
	end(&maker);
}
END_TEST

START_TEST(a_share_for_a_uid_or_gid_is_opened_by_it)
{
	struct gm_worker maker, by_uid, by_gid;
	struct person who = {UID_A, 0}, uid_b = {UID_B, 0}, in_c = {UID_B + 1, GID_C};
	gm_worker_start(&maker, obey, &who);
	gm_worker_start(&by_uid, obey, &uid_b);
	gm_worker_start(&by_gid, obey, &in_c);
	GM_REQUIRE_EQ(
		TELL(maker, .verb = LEASE_FOR_OTHERS, .bytes = GM_CHUNK_MIN).status, GPUMEM_OK);
	TELL(maker, .verb = FILL, .byte = 7);
	struct report uid = TELL(
		maker, .verb = SHARE, .audience = GM__WIRE__AUDIENCE__AUDIENCE_UID, .id = UID_B);
	struct report gid = TELL(
		maker, .verb = SHARE, .audience = GM__WIRE__AUDIENCE__AUDIENCE_GID, .id = GID_C);
	GM_REQUIRE_EQ(open_with(&by_gid, uid.token).status, GPUMEM_E_NOT_FOUND);
	GM_REQUIRE_EQ(open_with(&by_uid, gid.token).status, GPUMEM_E_NOT_FOUND);
	GM_REQUIRE_EQ(open_with(&by_uid, uid.token).status, GPUMEM_OK);
	GM_REQUIRE(TELL(by_uid, .verb = IS, .byte = 7).yes);
	GM_REQUIRE_EQ(open_with(&by_gid, gid.token).status, GPUMEM_OK);
	TELL(by_gid, .verb = FILL, .byte = 8);
	GM_REQUIRE(TELL(maker, .verb = IS, .byte = 8).yes);
	/* It crossed domains: when all have let go, it is pooled for nobody. */
	GM_REQUIRE_EQ(TELL(by_uid, .verb = RETURN).status, GPUMEM_OK);
	GM_REQUIRE_EQ(TELL(by_gid, .verb = RETURN).status, GPUMEM_OK);
	GM_REQUIRE_EQ(TELL(maker, .verb = RETURN).status, GPUMEM_OK);
	GM_UNTIL(gm_figures_now(&daemon_).chunks == 0);
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).pooled, 0);
	end(&maker);
	end(&by_uid);
	end(&by_gid);
}
END_TEST

START_TEST(a_read_only_share_cannot_be_written_by_its_opener)
{
	struct gm_worker maker, opener;
	struct person who = {UID_A, 0}, other = {UID_B, 0};
	gm_worker_start(&maker, obey, &who);
	gm_worker_start(&opener, obey, &other);
	GM_REQUIRE_EQ(
		TELL(maker, .verb = LEASE_FOR_OTHERS, .bytes = GM_CHUNK_MIN).status, GPUMEM_OK);
	TELL(maker, .verb = FILL, .byte = 3);
	struct report share = TELL(maker, .verb = SHARE,
		.audience = GM__WIRE__AUDIENCE__AUDIENCE_UID, .id = UID_B, .read_only = true);
	struct report open = open_with(&opener, share.token);
	GM_REQUIRE_EQ(open.status, GPUMEM_OK);
	GM_REQUIRE(open.read_only);
	GM_REQUIRE(TELL(opener, .verb = IS, .byte = 3).yes);
	GM_REQUIRE(TELL(opener, .verb = WRITE_PROTECTED).yes);
	/* The maker's own handle still writes. */
	TELL(maker, .verb = FILL, .byte = 4);
	GM_REQUIRE(TELL(opener, .verb = IS, .byte = 4).yes);
	/* An opener cannot make a wider share of it. */
	GM_REQUIRE(TELL(opener, .verb = SHARE).status != GPUMEM_OK);
	end(&maker);
	end(&opener);
}
END_TEST

START_TEST(a_chunk_of_another_uid_cannot_be_reopened_for_more_than_it_was_given)
{
	struct gm_worker maker, opener;
	struct person who = {UID_A, 0};
	gm_worker_start(&maker, obey, &who);
	gm_worker_start(&opener, obey, &who);
	/* Of the same uid, even: what the daemon made is the daemon's. */
	GM_REQUIRE_EQ(TELL(maker, .verb = LEASE, .bytes = GM_CHUNK_MIN).status, GPUMEM_OK);
	struct report share = TELL(maker, .verb = SHARE, .read_only = true);
	GM_REQUIRE_EQ(open_with(&opener, share.token).status, GPUMEM_OK);
	GM_REQUIRE(TELL(opener, .verb = WRITE_PROTECTED).yes);
	end(&maker);
	end(&opener);
}
END_TEST

START_TEST(after_unshare_a_token_finds_nothing_and_openers_keep_what_they_have)
{
	struct gm_worker maker, early, late;
	struct person who = {UID_A, 0};
	gm_worker_start(&maker, obey, &who);
	gm_worker_start(&early, obey, &who);
	gm_worker_start(&late, obey, &who);
	GM_REQUIRE_EQ(TELL(maker, .verb = LEASE, .bytes = GM_CHUNK_MIN).status, GPUMEM_OK);
	struct report one = TELL(maker, .verb = SHARE), two = TELL(maker, .verb = SHARE);
	GM_REQUIRE(memcmp(one.token, two.token, GM_TOKEN_BYTES) != 0);
	GM_REQUIRE_EQ(open_with(&early, one.token).status, GPUMEM_OK);
	GM_REQUIRE_EQ(TELL(maker, .verb = UNSHARE).status, GPUMEM_OK);
	GM_REQUIRE_EQ(open_with(&late, one.token).status, GPUMEM_E_NOT_FOUND);
	GM_REQUIRE_EQ(open_with(&late, two.token).status, GPUMEM_E_NOT_FOUND);
	TELL(early, .verb = FILL, .byte = 5);
	GM_REQUIRE(TELL(maker, .verb = IS, .byte = 5).yes);
	end(&maker);
	end(&early);
	end(&late);
}
END_TEST

START_TEST(when_the_maker_dies_its_uid_pays_and_the_opener_keeps_the_memory)
{
	struct gm_worker maker, first, second, late;
	struct person who = {UID_A, 0};
	gm_worker_start(&maker, obey, &who);
	gm_worker_start(&first, obey, &who);
	gm_worker_start(&second, obey, &who);
	gm_worker_start(&late, obey, &who);
	GM_REQUIRE_EQ(TELL(maker, .verb = LEASE, .bytes = GM_CHUNK_MIN).status, GPUMEM_OK);
	TELL(maker, .verb = FILL, .byte = 6);
	struct report share = TELL(maker, .verb = SHARE);
	struct report one = open_with(&first, share.token), two = open_with(&second, share.token);
	GM_REQUIRE_EQ(one.status, GPUMEM_OK);
	GM_REQUIRE_EQ(two.status, GPUMEM_OK);
	gm_worker_kill(&maker);
	struct gm_client_row row;
	GM_UNTIL(!gm_client_row(&daemon_, share.session, &row));
	GM_REQUIRE(gm_client_row(&daemon_, one.session, &row));
	GM_REQUIRE_EQ(row.held, 0);
	GM_REQUIRE(gm_client_row(&daemon_, two.session, &row));
	GM_REQUIRE_EQ(row.held, 0);
	GM_REQUIRE_EQ(gm_left_by(&daemon_, UID_A), GM_CHUNK_MIN);
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).leased, GM_CHUNK_MIN);
	GM_REQUIRE(TELL(first, .verb = IS, .byte = 6).yes);
	TELL(second, .verb = FILL, .byte = 9);
	GM_REQUIRE(TELL(first, .verb = IS, .byte = 9).yes);
	/* Then an opener dies: the other one keeps the memory, and nobody else pays. */
	gm_worker_kill(&first);
	GM_UNTIL(!gm_client_row(&daemon_, one.session, &row));
	GM_REQUIRE(gm_client_row(&daemon_, two.session, &row));
	GM_REQUIRE_EQ(row.held, 0);
	GM_REQUIRE_EQ(gm_left_by(&daemon_, UID_A), GM_CHUNK_MIN);
	/* The last one lets go: a dead maker's memory is never pooled. */
	GM_REQUIRE_EQ(TELL(second, .verb = RETURN).status, GPUMEM_OK);
	GM_UNTIL(gm_figures_now(&daemon_).chunks == 0);
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).leased, 0);
	GM_REQUIRE_EQ(gm_left_by(&daemon_, UID_A), 0);
	end(&second);
	end(&late);
}
END_TEST

/* B opens what A makes and returns, again and again: nothing of it may be charged to B, whose limit
 * it would exceed, and A cannot make more than its own limit that way. */
START_TEST(opening_and_returning_moves_no_charge_past_a_limit)
{
	enum { ROUNDS = 8, EACH = 16 * 1024 * 1024 };
	struct gm_worker maker, openers[ROUNDS];
	struct person a = {UID_A, 0}, b = {UID_B, 0};
	gm_daemon_configure(&daemon_,
		GM_DAEMON_CONFIG_WITH(
			"", "256M") "[limit uid:54321]\nmax = 64M\n[limit uid:54322]\nmax = 16M\n");
	gm_daemon_kill(&daemon_);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);

	gm_worker_start(&maker, obey, &a);
	int made = 0;
	for (; made < ROUNDS; made++) {
		if (TELL(maker, .verb = LEASE_FOR_OTHERS, .bytes = EACH).status != GPUMEM_OK)
			break;
		struct report share = TELL(maker, .verb = SHARE,
			.audience = GM__WIRE__AUDIENCE__AUDIENCE_UID, .id = UID_B);
		gm_worker_start(&openers[made], obey, &b);
		struct report open = open_with(&openers[made], share.token);
		GM_REQUIRE_EQ(open.status, GPUMEM_OK);
		GM_REQUIRE_EQ(TELL(maker, .verb = RETURN).status, GPUMEM_OK);

		struct gm_client_row row;
		GM_REQUIRE(gm_client_row(&daemon_, open.session, &row));
		GM_REQUIRE_EQ(row.held, 0);
	}
	GM_REQUIRE_EQ(made, 4);
	GM_REQUIRE_EQ(gm_left_by(&daemon_, UID_A), 4 * EACH);
	GM_REQUIRE_EQ(gm_left_by(&daemon_, UID_B), 0);

	/* B can use its own limit in full. A can make more as soon as an opener has left. */
	GM_REQUIRE_EQ(TELL(openers[0], .verb = RETURN).status, GPUMEM_OK);
	GM_REQUIRE_EQ(TELL(openers[0], .verb = LEASE_FOR_OTHERS, .bytes = EACH).status, GPUMEM_OK);
	GM_REQUIRE_EQ(TELL(maker, .verb = LEASE_FOR_OTHERS, .bytes = EACH).status, GPUMEM_OK);
	end(&maker);
	for (int i = 0; i < made; i++)
		end(&openers[i]);
}
END_TEST

int main(void)
{
	if (!gm_tap_has_users()) {
		printf("1..0 # SKIP needs root, for processes of several users\n");
		return 0;
	}
	Suite *suite = suite_create("share");
	TCase *tc = tcase_create("share");
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, a_buffer_is_one_memory_in_two_processes);
	tcase_add_test(tc, a_right_token_of_the_wrong_uid_finds_nothing);
	tcase_add_test(tc, old_data_is_not_shared_with_others);
	tcase_add_test(tc, a_share_for_a_uid_or_gid_is_opened_by_it);
	/* On a GPU read-only is a request: whoever has the handle chooses its access. */
	if (!gm_on_gpu()) {
		tcase_add_test(tc, a_read_only_share_cannot_be_written_by_its_opener);
		tcase_add_test(
			tc, a_chunk_of_another_uid_cannot_be_reopened_for_more_than_it_was_given);
	}
	tcase_add_test(tc, after_unshare_a_token_finds_nothing_and_openers_keep_what_they_have);
	tcase_add_test(tc, when_the_maker_dies_its_uid_pays_and_the_opener_keeps_the_memory);
	tcase_add_test(tc, opening_and_returning_moves_no_charge_past_a_limit);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
