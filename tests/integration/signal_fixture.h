/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_INTEGRATION_SIGNAL_FIXTURE_H
#define GM_TESTS_INTEGRATION_SIGNAL_FIXTURE_H

/* For tests of signals on host memory. */

#include "tests/integration/client_fixture.h"

#define BYTES (3 * MIB + 5)

/* The test itself forks, so it has no session. */
static inline void set_up_alone(void)
{
	gm_daemon_start(&daemon_, NULL);
}

static inline void tear_down_alone(void)
{
	GM_UNTIL(gm_figures_now(&daemon_).clients == 0);
	GM_UNTIL(gm_figures_now(&daemon_).leases == 0);
	gm_daemon_stop(&daemon_);
}

static inline gpumem_buffer *with_signals(gpumem_session *s, size_t bytes)
{
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	gpumem_buffer *buffer = NULL;

	options.flags = GPUMEM_BUFFER_SIGNALS;
	OK(gpumem_buffer_create(s, 0, bytes, &options, &buffer));
	GM_REQUIRE_EQ(gpumem_buffer_size(buffer), bytes);
	return buffer;
}

static const gpumem_share_options read_only = {
	sizeof(gpumem_share_options), GPUMEM_AUDIENCE_DOMAIN, 0, GPUMEM_SHARE_READ_ONLY, 0};

#endif
