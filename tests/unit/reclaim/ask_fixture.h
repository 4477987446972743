/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_ASK_FIXTURE_H
#define GM_TESTS_ASK_FIXTURE_H

/* Users that have their own clients asked, which concerns nobody else. */

#include <check.h>

#include "tests/unit/core/fake_core.h"
#include "tests/unit/reclaim/reclaim_fixture.h"

/* A user's request lacks what the user may not have, so that its own clients alone are asked: a liar, which moves nothing. Another
 * user has 40 GiB cached, and 20 GiB are free. */
static inline void ask_a_liar(struct fake_request *q)
{
	struct gm_session *liar = fake_session(&fake, 9, 9), *asker = fake_session(&fake, 10, 9);

	no_levels();
	give(9, GM_LIMIT_MAX, 40 * GiB, 0);
	fake_lease(&fake, liar, d, 40 * GiB);
	fake_says(&fake, liar, d, 0, 40 * GiB);
	fake_lease(&fake, c, d, 40 * GiB);
	fake_says(&fake, c, d, 40 * GiB, 0);
	fake_wait(&fake, q, asker, d, 30 * GiB, 100 * SECOND);
	ck_assert_uint_eq(fake_asked(&fake, liar)->spill, 30 * GiB);
	ck_assert_uint_eq(asks(), 1);
}

/* A user has two clients that move 2 GiB each, one after the other, and each just before its time is over: so somebody owes
 * something for a request at any time. */
struct relay {
	struct gm_session *asker, *client[2];
	struct gm_lease *lease[2];
	unsigned turn;
};

static inline void relay_take(struct relay *relay, unsigned i)
{
	relay->lease[i] = fake_lease(&fake, relay->client[i], d, 2 * GiB);
	fake_says(&fake, relay->client[i], d, 0, 2 * GiB);
}

static inline void relay_begin(struct relay *relay)
{
	*relay = (struct relay){.asker = fake_session(&fake, 9, 9)};
	give(9, GM_LIMIT_MAX, 4 * GiB, 0);
	for (unsigned i = 0; i < 2; i++) {
		relay->client[i] = fake_session(&fake, 9, 9);
		relay_take(relay, i);
	}
}

/* Has the next client asked. One second later, the one before it returns what it owes, and takes it again. */
static inline void relay_pass(struct relay *relay)
{
	static struct fake_request q;

	/* The other one owes 2 GiB already. */
	asks();
	fake_wait(&fake, &q, relay->asker, d, (relay->turn ? 4 : 2) * GiB, 100 * SECOND);
	gm_core_cancel(fake.core, &q.r);
	fake_pass(&fake, SECOND);
	unsigned before = ++relay->turn % 2;
	if (relay->turn > 1) {
		give_back(relay->client[before], relay->lease[before], 2 * GiB);
		fake_core_run(&fake);
		relay_take(relay, before);
	}
}

#endif
