/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the environment says, and what is said when the program ends.
 *
 * Two threads that ask first at the same time both read the environment, and write the same.
 */
#include "preload/preload.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

static struct gm_preload_settings preload_read;
static char preload_name[64];    /* the program may change its environment */
static atomic_int preload_state; /* 0: not read, 1: being read, 2: read */

static bool preload_yes(const char *name)
{
	const char *text = getenv(name);
	return text && text[0] == '1' && !text[1];
}

/* A number in decimal digits, or what it is otherwise. */
static uint64_t preload_number(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);
	char *end;

	if (!text || *text < '0' || *text > '9')
		return otherwise;
	unsigned long long value = strtoull(text, &end, 10);
	return *end ? otherwise : value;
}

static void preload_settings_read(struct gm_preload_settings *settings)
{
	*settings = (struct gm_preload_settings){.limit = UINT64_MAX};
	settings->off = getauxval(AT_SECURE) != 0;
	if (settings->off)
		return;

	uint64_t wait_ms = preload_number("GPUMEM_RUN_WAIT", 0);
	const char *name = getenv("GPUMEM_RUN_NAME");
	if (name && *name && strlen(name) < sizeof preload_name)
		settings->name = strcpy(preload_name, name);
	/* The daemon enforces a limit only for a run, and 0 is none. */
	uint64_t limit = getenv("GPUMEM_RUN") ? preload_number("GPUMEM_RUN_LIMIT", 0) : 0;
	settings->limit = limit ? limit : UINT64_MAX;
	settings->wait_ms = wait_ms > UINT32_MAX ? UINT32_MAX : (uint32_t)wait_ms;
	settings->optional = preload_yes("GPUMEM_RUN_OPTIONAL");
	settings->see_all = preload_yes("GPUMEM_RUN_SEE_ALL");
	settings->report = preload_yes("GPUMEM_RUN_REPORT");
}

const struct gm_preload_settings *gm_preload_settings(void)
{
	int before = 0;

	if (atomic_load_explicit(&preload_state, memory_order_acquire) == 2)
		return &preload_read;
	if (atomic_compare_exchange_strong(&preload_state, &before, 1)) {
		preload_settings_read(&preload_read);
		atomic_store_explicit(&preload_state, 2, memory_order_release);
	}
	/* The thread that reads waits for nobody, so this is short. */
	while (atomic_load_explicit(&preload_state, memory_order_acquire) != 2)
		;
	return &preload_read;
}
