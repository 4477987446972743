/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/broker/preload_report.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "preload/preload.h"
#include "preload/table/preload_blocks.h"

/* The longest sentence that still fits into one line. */
#define REPORT_WHY 160

static _Atomic uint64_t report_refusals;
static _Atomic uint64_t report_chunks, report_chunk_bytes;
static _Atomic uint64_t report_calls_passed[GM_PRELOAD_CALLS_N];

static GM_PRELOAD_THREAD char report_kept[REPORT_WHY];
static pthread_mutex_t report_lock = PTHREAD_MUTEX_INITIALIZER;
static char report_last[REPORT_WHY]; /* with the lock held */

/* ---- counting */

/* Leaves out the remedy, which follows the last semicolon: the program has ended when somebody reads it. */
static size_t report_cause(const char *why)
{
	const char *end = NULL;

	for (const char *at = why; (at = strstr(at, "; ")); at++)
		end = at;
	return end ? (size_t)(end - why) : strlen(why);
}

void gm_report_why(const char *why)
{
	static const char cut[] = "...";

	if (!gm_preload_settings()->report)
		return;
	size_t n = report_cause(why);
	if (n < sizeof report_kept) {
		memcpy(report_kept, why, n);
		report_kept[n] = '\0';
		return;
	}

	n = sizeof report_kept - sizeof cut;
	/* Not within a character of UTF-8. */
	while (n && ((unsigned char)why[n] & 0xc0) == 0x80)
		n--;
	memcpy(report_kept, why, n);
	memcpy(report_kept + n, cut, sizeof cut);
}

void gm_report_refused(void)
{
	atomic_fetch_add_explicit(&report_refusals, 1, memory_order_relaxed);
	if (!gm_preload_settings()->report)
		return;
	pthread_mutex_lock(&report_lock);
	memcpy(report_last, report_kept, sizeof report_last);
	pthread_mutex_unlock(&report_lock);
}

void gm_report_chunk(uint64_t bytes)
{
	atomic_fetch_add_explicit(&report_chunks, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&report_chunk_bytes, bytes, memory_order_relaxed);
}

void gm_report_passed(enum gm_preload_call call)
{
	atomic_fetch_add_explicit(&report_calls_passed[call], 1, memory_order_relaxed);
}

void gm_report_after_fork(void)
{
	/* Another thread of the parent may have the lock, and may have written a part of the sentence. */
	pthread_mutex_init(&report_lock, NULL);
	memset(report_last, 0, sizeof report_last);
	atomic_store(&report_refusals, 0);
	atomic_store(&report_chunks, 0);
	atomic_store(&report_chunk_bytes, 0);
	for (unsigned i = 0; i < GM_PRELOAD_CALLS_N; i++)
		atomic_store(&report_calls_passed[i], 0);
}

/* ---- the line */

/* "; the last: device 0 has ...": why the last allocation was refused, if any was. */
static void report_say_last(char *text, size_t room)
{
	pthread_mutex_lock(&report_lock);
	if (*report_last)
		snprintf(text, room, "; the last: %s", report_last);
	pthread_mutex_unlock(&report_lock);
}

/* ", cuMemCreate 3": the calls that went to the driver, as far as there is room. */
static void report_say_passed(char *text, size_t room)
{
	static const char *const symbols[] = {
#define REPORT_SYMBOL(symbol, name, version, flags, parameters) name,
		GM_PRELOAD_CALLS(REPORT_SYMBOL)
#undef REPORT_SYMBOL
	};
	size_t n = 0;

	for (unsigned i = 0; i < GM_PRELOAD_CALLS_N && n < room; i++) {
		uint64_t count = atomic_load(&report_calls_passed[i]);
		if (count)
			n += (size_t)snprintf(text + n, room - n, "%s%s %llu",
				n ? ", " : "; served by the driver: ", symbols[i],
				(unsigned long long)count);
	}
}

void gm_report_print(void)
{
	char last[REPORT_WHY + 16] = "", passed[512] = "";
	uint64_t n, bytes, refused = atomic_load(&report_refusals);

	if (!gm_preload_settings()->report)
		return;
	report_say_last(last, sizeof last);
	report_say_passed(passed, sizeof passed);
	gm_blocks_total(&n, &bytes);
	n += atomic_load(&report_chunks);
	bytes += atomic_load(&report_chunk_bytes);
	if (!n && !refused && !*passed)
		return;
	fprintf(stderr,
		"gpumem-run: %s (%d): %llu allocation%s from gpumemd, %llu bytes in all, %llu refused%s%s\n",
		program_invocation_short_name, (int)getpid(), (unsigned long long)n,
		n == 1 ? "" : "s", (unsigned long long)bytes, (unsigned long long)refused, last,
		passed);
}
