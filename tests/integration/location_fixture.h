/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_INTEGRATION_LOCATION_FIXTURE_H
#define GM_TESTS_INTEGRATION_LOCATION_FIXTURE_H

/* What tests of buffers share that are on their device or in host memory: what is where, by the books of the
 * daemon and of the client, and what is in it. */

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "tests/integration/client_fixture.h"
#include "tests/integration/device.h"

static inline void set_up_with(const char *config)
{
	gm_daemon_start(&daemon_, &(struct gm_daemon_options){.config = config});
	session = join("the test");
}

static inline uint64_t leased_on(uint32_t device)
{
	struct gm_figures f;
	gm_figures_of(&daemon_, device, &f);
	return f.leased;
}

static inline gpumem_stats_t stats_of(uint32_t device)
{
	gpumem_stats_t stats = GPUMEM_STATS_INIT;
	OK(gpumem_stats(session, device, &stats));
	return stats;
}

static inline void fill(gpumem_buffer *buffer, uint8_t byte)
{
	gm_device_set(gpumem_buffer_ptr(buffer), gpumem_buffer_size(buffer), byte);
}

static inline void require(const gpumem_buffer *buffer, uint8_t byte)
{
	GM_REQUIRE(gm_device_is(gpumem_buffer_ptr(buffer), gpumem_buffer_size(buffer), byte));
}

/* Runs gpumemctl. Returns its exit status. said, an array: as much of what it says as fits. */
#define ctl(arguments, said) run_ctl((arguments), (said), sizeof(said))
static inline int run_ctl(const char *arguments, char *said, size_t bytes)
{
	char command[1024];
	snprintf(command, sizeof(command), "%s/ctl/gpumemctl --socket %s %s 2>&1",
		getenv("top_builddir"), daemon_.socket, arguments);
	FILE *out = popen(command, "re");
	GM_REQUIRE(out);
	size_t n = fread(said, 1, bytes - 1, out);
	said[n] = '\0';
	return WEXITSTATUS(pclose(out));
}

/* The same for what must succeed: otherwise, the test fails with what gpumemctl says. */
#define ctl_ok(arguments, said) \
	do { \
		int gm_exit_ = ctl((arguments), (said)); \
		if (gm_exit_ != 0) \
			GM_FAIL("gpumemctl %s: %d: %s", (arguments), gm_exit_, (said)); \
	} while (0)

#endif
