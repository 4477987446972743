/* SPDX-License-Identifier: Apache-2.0 */
/* 64 clients that race for little: a million requests against limits, one guarantee and the device,
 * jobs that end in any order. Overshoot 0 at every step, and the ledger equal to the backend's own
 * count. */
#include <stdlib.h>

#include "daemon/device/limit.h"
#include "tests/tap.h"
#include "tests/unit/core/fake_core.h"
#include "tests/unit/core/model_run.h"

static struct fake_core fake;

#define RACERS     64
#define RACE_TOTAL (gm_sanitized() ? 200000 : 1000000)

START_TEST(sixty_four_racing_clients_never_pass_a_limit)
{
	struct gm_session *s[RACERS];
	static struct fake_request slots[RACERS];
	bool busy[RACERS] = {false};
	struct model_run run = {.random = 4711};
	uint64_t requests = 0, granted = 0, refused = 0;
	char detail[GM_DETAIL_BYTES];
	struct gm_core_device_info info = fake_info(8 * GiB);
	fake_no_levels(&info.policy);
	info.policy.max_pool = UINT64_MAX;
	fake_core_init(&fake);
	fake_core_add(&fake, &info);
	/* 8 uids of 8 clients; limits that together are above the device, one guarantee. */
	for (uid_t u = 0; u < 8; u++) {
		struct gm_owner o;
		struct gm_limit_values v = {.set = GM_LIMIT_MAX | GM_LIMIT_GUARANTEE,
			.max = (1 + u) * 301 * MiB,
			.guarantee = u == 7 ? GiB : 0};
		gm_owner_by_id(GM_OWNER_UID, u, &o);
		ck_assert_int_eq(gm_core_set_limit(fake.core, &o, 0, &v, detail), GPUMEM_OK);
	}
	for (int i = 0; i < RACERS; i++)
		s[i] = fake_session(&fake, 1 + (gm_domain)(i % 8), (uid_t)(i % 8));
	while (requests < RACE_TOTAL) {
		uint64_t i = model_run_roll(&run, RACERS);
		if (busy[i] && slots[i].ended) {
			busy[i] = false;
			granted += slots[i].status == GPUMEM_OK;
			refused += slots[i].status != GPUMEM_OK;
		}
		if (!busy[i] && model_run_roll(&run, 3)) {
			fake_ask(&fake, &slots[i], s[i], 0, 1 + model_run_roll(&run, 64 * MiB),
				GM_TRANSPORT_AUTO);
			busy[i] = true;
			requests++;
		} else if (!busy[i]) {
			struct gm_lease *lease = gm_session_next_lease(s[i], NULL);
			while (lease) {
				gm_lease_return(s[i], lease);
				lease = model_run_roll(&run, 4) ? gm_session_next_lease(s[i], NULL)
								: NULL;
			}
		}
		while (fake.n_jobs > 64 || (fake.n_jobs > 0 && model_run_roll(&run, 2)))
			fake_core_complete(&fake, model_run_roll(&run, fake.n_jobs), 0);
		/* By a byte: at every single step, for the owner who may have grown. */
		uint64_t held = 0;
		for (int k = (int)(i % 8); k < RACERS; k += 8)
			held += gm_session_held(s[k], 0);
		ck_assert(held <= (1 + i % 8) * 301 * MiB);
		struct gm_device_figures f;
		gm_core_device_figures(fake.core, 0, &f);
		ck_assert(f.leased + f.admitted <= f.ceiling);
		if (requests % 4096 == 0)
			fake_core_check(&fake, 0);
	}
	fake_core_run(&fake);
	fake_core_check(&fake, 0);
	ck_assert_uint_gt(granted, RACE_TOTAL / 10);
	ck_assert_uint_gt(refused, RACE_TOTAL / 100);
	struct gm_device_figures f = fake_figures(&fake, 0);
	ck_assert_uint_eq(f.created, fake.backend_bytes[0]);
	fake_core_deinit(&fake);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("policy_race");
	TCase *tcase = tcase_create("race");
	tcase_set_timeout(tcase, 240);
	tcase_add_test(tcase, sixty_four_racing_clients_never_pass_a_limit);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
