/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_UNIT_CORE_ADOPT_FIXTURE_H
#define GM_TESTS_UNIT_CORE_ADOPT_FIXTURE_H

/* Core, and another one that takes over what it left. */

#include <string.h>

#include "daemon/lease/session_private.h"
#include "tests/tap.h"
#include "tests/unit/core/fake_ledger.h"

#define DEVICES 2

static struct fake_core fake;
static struct fake_ledger ledger;
static struct gm_core_device_info devices[DEVICES];
static struct gm_adopt_result result;
static uint8_t token[GM_TOKEN_BYTES], next[GM_TOKEN_BYTES];
static struct gm_session *s;

static inline void restart(void)
{
	fake_ledger_restart(&fake, devices, DEVICES, false, &result);
}

static inline uint64_t all_damaged(void)
{
	uint64_t n = 0;
	for (unsigned kind = 0; kind < GM_RECORD_KINDS; kind++)
		n += result.damaged[kind];
	return n;
}

static inline void setup(void)
{
	memset(&ledger, 0, sizeof(ledger));
	for (uint32_t d = 0; d < DEVICES; d++) {
		devices[d] = fake_info(GiB);
		fake_no_levels(&devices[d].policy);
		memset(devices[d].uuid, 1 + (int)d, sizeof(devices[d].uuid));
	}
	fake_core_init_keeping(&fake, &ledger);
	for (uint32_t d = 0; d < DEVICES; d++)
		fake_core_add(&fake, &devices[d]);
	gm_core_end_adoption(fake.core);
	s = fake_ledger_join(&fake, 100, "a.service", token);
}

static inline void teardown(void)
{
	struct gm_session *session;
	while ((session = fake_next_session(&fake, NULL)))
		fake_ledger_leave(&fake, session, true);
	fake_core_deinit(&fake);
	fake_ledger_deinit(&ledger);
}

/* The session with this id, resumed. */
static inline struct gm_session *back(uint64_t id, const uint8_t with[GM_TOKEN_BYTES])
{
	struct gm_session *session = gm_core_find_session(fake.core, id);
	ck_assert_ptr_nonnull(session);
	ck_assert_int_eq(gm_session_resume(session, with, gm_session_info(session)->user, next), 0);
	return session;
}

/* Asks with the id of a packet. */
static inline struct gm_lease *ask(struct gm_session *session, struct gm_lease *lease,
	uint64_t bytes, uint64_t id, gpumem_status expected)
{
	struct fake_request q = {
		.r = {.session = session,
			.lease = lease,
			.bytes = bytes,
			.id = id,
			.tag = "test",
			.for_others = true,
			.wait_ns = GM_WAIT_NEVER,
			.done = fake_request_done},
	};
	gm_core_request(fake.core, &q.r);
	fake_core_run(&fake);
	ck_assert_uint_eq(q.ended, 1);
	ck_assert_msg(q.status == expected, "%d: %s", (int)q.status, q.detail);
	return q.r.lease;
}

#endif
