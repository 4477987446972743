/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_UNIT_NAMES_FIXTURE_H
#define GM_TESTS_UNIT_NAMES_FIXTURE_H

/* A core with a ledger and one device, and the session of a maker, for tests of published leases. */

#include <string.h>

#include "daemon/lease/session_private.h"
#include "daemon/lease/lease_private.h"
#include "daemon/lease/name_private.h"
#include "tests/tap.h"
#include "tests/unit/core/fake_ledger.h"

static struct fake_core fake;
static struct fake_ledger ledger;
static struct gm_core_device_info info;
static struct gm_adopt_result result;
static struct gm_session *maker;
static char detail[GM_DETAIL_BYTES];
static uint64_t version;
static const struct gm_name_asker administrator = {.admin = true};

static inline struct gm_session *client(uid_t uid, gm_domain domain, const char *key)
{
	struct gm_session_info who = {.pid = 1,
		.uid = uid,
		.gid = uid,
		.domain = domain,
		.domain_key = key,
		.pooling = true};
	uint8_t token[GM_TOKEN_BYTES];
	struct gm_session *session;
	ck_assert_int_eq(gm_session_new(fake.core, &who, token, &session), 0);
	return session;
}

/* The device has that much memory. */
static inline void names_setup(uint64_t bytes)
{
	memset(&ledger, 0, sizeof(ledger));
	info = fake_info(bytes);
	fake_no_levels(&info.policy);
	memset(info.uuid, 1, sizeof(info.uuid));
	fake_core_init_keeping(&fake, &ledger);
	fake_core_add(&fake, &info);
	gm_core_end_adoption(fake.core);
	maker = client(100, 5, "100 ");
}

static inline void teardown(void)
{
	fake_core_deinit(&fake);
	fake_ledger_deinit(&ledger);
}

/* Another daemon takes over what the ledger has. */
static inline void restart(void)
{
	fake_ledger_restart(&fake, &info, 1, false, &result);
}

#endif
