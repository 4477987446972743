/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_INTEGRATION_REGION_FIXTURE_H
#define GM_TESTS_INTEGRATION_REGION_FIXTURE_H

/* What the tests of regions have in common, above client_fixture.h. */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpumem/gpumem_region.h"
#include "tests/integration/client_fixture.h"
#include "tests/integration/device.h"
#include "tests/tap.h"

/* Children are forked, and threads start: thread sanitizer takes that for a mistake unless told. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
	return "die_after_fork=0";
}

#define REFUSED(call, status, says) require_refused((call), (status), (says), __LINE__)
static inline void require_refused(
	gpumem_status got, gpumem_status status, const char *says, int line)
{
	if (got != status || !strstr(gpumem_error_detail(), says))
		gm_fail(__FILE__, line, "%s: %s, not %s with '%s' in it", gpumem_status_text(got),
			gpumem_error_detail(), gpumem_status_text(status), says);
}

static inline gpumem_region *create(const char *tag, size_t max_size)
{
	gpumem_region *region = NULL;
	OK(gpumem_region_create(session, 0, tag, max_size, NULL, &region));
	return region;
}

static inline void *take(gpumem_region *region, size_t size)
{
	void *ptr = NULL;
	OK(gpumem_region_alloc(region, size, NULL, NULL, &ptr));
	return ptr;
}

static inline gpumem_region_stats_t stats_of(const char *tag)
{
	gpumem_region_stats_t stats = GPUMEM_REGION_STATS_INIT;
	OK(gpumem_region_stats(session, tag, &stats));
	return stats;
}

static inline uint64_t leased(void)
{
	return gm_figures_now(&daemon_).leased;
}

/* All books say that the region holds so much, and nothing else is held. */
static inline void require_held(const char *tag, uint64_t held)
{
	gpumem_stats_t all = GPUMEM_STATS_INIT;
	OK(gpumem_stats(session, 0, &all));
	GM_REQUIRE_EQ(stats_of(tag).held, held);
	GM_REQUIRE_EQ(all.allocated, held);
	GM_REQUIRE_EQ(all.in_use, held);
	GM_REQUIRE_EQ(all.slack, 0);
	GM_REQUIRE_EQ(leased(), held);
}

static inline void restart(void)
{
	gm_daemon_kill(&daemon_);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
}

/* ---- a resume in another thread */

struct resumer {
	pthread_t thread;
	const char *tag;
	uint32_t wait_ms;
	gpumem_status status;
	char detail[256];
};

static inline void *resume_there(void *ctx)
{
	struct resumer *r = ctx;
	r->status = gpumem_region_resume(session, r->tag, r->wait_ms);
	snprintf(r->detail, sizeof(r->detail), "%s", gpumem_error_detail());
	return NULL;
}

static inline void resume_begin(struct resumer *r)
{
	GM_REQUIRE_EQ(pthread_create(&r->thread, NULL, resume_there, r), 0);
}

/* Waits for the resume, which must succeed. */
static inline void resume_end(struct resumer *r)
{
	GM_REQUIRE_EQ(pthread_join(r->thread, NULL), 0);
	if (r->status)
		GM_FAIL("%s", r->detail);
}

/* ---- content that is kept */

#define KEEPING(host) \
	"[gpumemd]\nfraction = 1.0\nmin_free = 0\nreserve = 0\nmax_pool = 100%\n" \
	"pressure_dwell = 0s\nhost_limit = " host "\n[device 0]\nsize = 1G\n"

static inline void set_up_keeping(void)
{
	gm_daemon_start(&daemon_, &(struct gm_daemon_options){.config = KEEPING("512M")});
	session = join("the test");
}

/* So much of the host's memory is leased. */
static inline uint64_t on_host(void)
{
	struct gm_figures f;
	gm_figures_of(&daemon_, 1, &f);
	return f.leased;
}

/* A block whose bytes differ from one another, and from those of other blocks. */
static inline void write_pattern(void *ptr, size_t size, unsigned number)
{
	uint32_t *words = malloc(size);
	GM_REQUIRE(words);
	for (size_t i = 0; i < size / sizeof(*words); i++)
		words[i] = (uint32_t)(i * 2654435761u + number);
	gm_device_write(ptr, words, size);
	free(words);
}

static inline void require_pattern(const void *ptr, size_t size, unsigned number)
{
	uint32_t *words = malloc(size);
	GM_REQUIRE(words);
	gm_device_read(words, ptr, size);
	for (size_t i = 0; i < size / sizeof(*words); i++)
		if (words[i] != (uint32_t)(i * 2654435761u + number))
			GM_FAIL("word %zu of block %u is not as it was", i, number);
	free(words);
}

#endif
