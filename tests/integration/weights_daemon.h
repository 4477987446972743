/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_WEIGHTS_DAEMON_H
#define GM_TESTS_WEIGHTS_DAEMON_H

/* A daemon, and a folder for models, which processes of the test load. */

#include <stdio.h>

#include "tests/integration/client_fixture.h"
#include "tests/integration/weights_fixture.h"

static char folder[128];

static inline gpumem_session *weights_join(const char *name)
{
	return join(name);
}

/* The test forks, so it has no session of its own. */
static inline void set_up_alone(void)
{
	gm_scratch_folder(folder, sizeof(folder));
	gm_daemon_start(
		&daemon_, &(struct gm_daemon_options){.config = GM_DAEMON_CONFIG_WITH("", "1G")});
}

static inline void tear_down_alone(void)
{
	GM_UNTIL(gm_figures_now(&daemon_).clients == 0);
	GM_UNTIL(gm_figures_now(&daemon_).leases == 0);
	gm_daemon_stop(&daemon_);
}

static inline size_t count_names(void)
{
	struct gm_raw raw;

	gm_raw_observe(&raw, &daemon_);
	size_t n = gm_raw_count_names(&raw);
	gm_raw_close(&raw);
	return n;
}

static inline uint64_t charged_now(void)
{
	const struct gm_figures f = gm_figures_now(&daemon_);
	return f.leased + f.quarantined + f.admitted;
}

/* Nobody is left, and nothing is published or charged. What the device was making for a client that was killed is charged
 * until the device has made it. */
static inline void require_nothing(void)
{
	GM_UNTIL(gm_figures_now(&daemon_).clients == 0);
	GM_UNTIL(gm_figures_now(&daemon_).leases == 0);
	GM_REQUIRE_EQ(count_names(), 0);
	GM_UNTIL(charged_now() == 0);
}

#endif
