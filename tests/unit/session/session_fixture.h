/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_UNIT_SESSION_FIXTURE_H
#define GM_TESTS_UNIT_SESSION_FIXTURE_H

/* A daemon that does as it is told, and a session with it through the library's public calls. */

#include <check.h>
#include <string.h>

#include "common/types.h"
#include "gpumem/gpumem.h"
#include "tests/unit/session/fake_daemon.h"

#define LARGE GM_TRACK_LARGE_BYTES
#define MIB   (UINT64_C(1) << 20)

static struct fake *fake;
static gpumem_session *session;

static inline gpumem_connect_options usual_options(void)
{
	gpumem_connect_options options = GPUMEM_CONNECT_OPTIONS_INIT;
	options.socket = fake_path(fake);
	options.name = "test";
	options.timeout_ms = 20000;
	return options;
}

static inline gpumem_status try_connect(uint32_t timeout_ms, gpumem_session **ret)
{
	gpumem_connect_options options = usual_options();
	options.timeout_ms = timeout_ms;
	return gpumem_connect(&options, ret);
}

/* With another session, whose requests wait so long for an absent daemon. */
static inline void connect_again(uint32_t away_ms)
{
	gpumem_connect_options options = usual_options();
	options.away_ms = away_ms;
	gpumem_disconnect(session);
	session = NULL;
	ck_assert_int_eq(gpumem_connect(&options, &session), GPUMEM_OK);
}

static inline void daemon_only(void)
{
	fake = fake_start();
	session = NULL;
}

static inline void set_up(void)
{
	daemon_only();
	ck_assert_int_eq(try_connect(20000, &session), GPUMEM_OK);
}

static inline void tear_down(void)
{
	gpumem_disconnect(session);
	fake_stop(fake);
}

static inline void says(const char *words)
{
	if (!strstr(gpumem_error_detail(), words))
		ck_abort_msg("\"%s\" is not in \"%s\"", words, gpumem_error_detail());
}

static inline gpumem_buffer *make_buffer(size_t size)
{
	gpumem_buffer *buffer;
	gpumem_status status = gpumem_buffer_create(session, 0, size, NULL, &buffer);
	if (status)
		ck_abort_msg("%s", gpumem_error_detail());
	return buffer;
}

#endif
