/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_INTEGRATION_CLIENT_FIXTURE_H
#define GM_TESTS_INTEGRATION_CLIENT_FIXTURE_H

/* A private daemon and a session with it; at the end of a test the daemon must have all back. */

#include "gpumem/gpumem.h"
#include "tests/integration/ok.h"
#include "tests/integration/raw.h"

#define MIB (UINT64_C(1) << 20)

static struct gm_daemon daemon_;
static gpumem_session *session;

static inline gpumem_session *join_as(gpumem_connect_options options, const char *name)
{
	gpumem_session *s = NULL;
	options.socket = daemon_.socket;
	options.name = name;
	OK(gpumem_connect(&options, &s));
	return s;
}

static inline gpumem_session *join(const char *name)
{
	return join_as((gpumem_connect_options)GPUMEM_CONNECT_OPTIONS_INIT, name);
}

/* The same with another time for which requests wait for an absent daemon. */
static inline gpumem_session *join_away(const char *name, uint32_t away_ms)
{
	gpumem_connect_options options = GPUMEM_CONNECT_OPTIONS_INIT;
	options.away_ms = away_ms;
	return join_as(options, name);
}

/*
 * A worker is forked while no thread but this one is there: the sanitizers' own locks do not
 * survive a fork that happens while the library's thread begins.
 */
static inline void start_worker(struct gm_worker *worker, gm_worker_fn fn)
{
	gpumem_disconnect(session);
	gm_worker_start(worker, fn, NULL);
	session = join("the test");
}

static inline void set_up(void)
{
	gm_daemon_start(
		&daemon_, &(struct gm_daemon_options){
				  .config = GM_DAEMON_CONFIG_WITH("pressure_dwell = 0s\n", "1G")});
	session = join("the test");
}

static inline void tear_down(void)
{
	gpumem_disconnect(session);
	session = NULL;
	gm_figures_await_none(&daemon_);
	gm_daemon_stop(&daemon_);
}

#endif
