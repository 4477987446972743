/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_FIGURES_H
#define GM_FIGURES_H

/*
 * Every figure that gpumemctl shows of a client, a device and a pool, once. The shared page, the daemon's answers, and the
 * tables, the JSON, the CSV and the manual of gpumemctl follow from the lists. proto/gpumem.proto and
 * the public structures are written by hand; tests/unit/common/check_figures.c compares them.
 *
 *   name    the member of the structures, the field of the message, and the key in JSON and CSV
 *   unit    size (bytes), count, total (a count that only grows) or time (ms): gm_table_##unit() adds a value to a table
 *   column  the place in the table of gpumemctl, and in JSON and CSV. It never changes, and a new figure
 *           gets the next one. gpumemctl has other columns in places that no figure has
 *   title   the heading of its column; NULL: people see it only if they ask for it
 *   how     flags of that column (enum gm_column_flags). An optional one comes after the others
 *   note    what gpumemctl(1) says about it, in scdoc, and the help of its metric
 */

/* For a kind of row that a user of a list leaves out. */
#define GM_FIGURE_SKIP(...)
/* Adds up to the number of rows. */
#define GM_FIGURE_ONE(...) +1

/*
 * The figures of a client on a device.
 *
 *   PAGE(name, unit, since, column, title, how, note)  what the client says on its page, since that
 *       version of the page (common/wire/page.h). The order is that of the page: new ones come last
 *   INNER(name, unit, since)  the same, for the daemon alone
 *   DAEMON(name, unit, 0, column, title, how, note)  what the daemon knows by itself
 */
/* clang-format off */
#define GM_CLIENT_FIGURES(PAGE, INNER, DAEMON) \
	DAEMON(held, size, 0, 1, "HELD", 0, "charged to it") \
	DAEMON(orphaned, size, 0, 14, NULL, 0, "part of held: no client has it any more, but a process may still map it") \
	/* Part of what the client pays for; in version 1 also opened. */ \
	PAGE(in_use, size, 1, 2, "IN USE", 0, "allocated by its program") \
	/* Memory that the client could return right now; in version 1 also slack. */ \
	PAGE(cached, size, 1, 3, "CACHED", GM_COLUMN_SPARE, "returnable now") \
	PAGE(peak, size, 1, 5, NULL, 0, "the most that was in use") \
	PAGE(hits, total, 1, 6, NULL, 0, "allocations that needed no request") \
	PAGE(misses, total, 1, 7, NULL, 0, "allocations that needed one") \
	PAGE(returns, total, 1, 8, NULL, 0, "chunks that it gave back") \
	/* Buffers made in host memory. */ \
	PAGE(cpu_fallbacks, total, 3, 12, NULL, 0, "buffers made in host memory because the device was full") \
	PAGE(active_buffers, count, 1, 9, NULL, 0, "blocks and buffers in use") \
	/* Active buffers for which no row was free. */ \
	INNER(untracked, count, 1) \
	/* Neither in use nor cached, because of rounding. */ \
	PAGE(slack, size, 2, 4, "SLACK", GM_COLUMN_SPARE, "held, and neither in use nor cached, because of rounding") \
	/* In use in buffers that other clients made. */ \
	INNER(opened, size, 2) \
	/* In use, but it could be moved to host memory. */ \
	PAGE(evictable, size, 3, 10, "EVICTABLE", GM_COLUMN_OPTIONAL | GM_COLUMN_SPARE, "in use, but it could be moved to host memory") \
	/* Content of this device's buffers, not held here. */ \
	PAGE(in_host, size, 3, 11, "IN HOST", GM_COLUMN_OPTIONAL, "content that is in host memory") \
	DAEMON(declared, size, 0, 15, "DECLARED", GM_COLUMN_OPTIONAL | GM_COLUMN_SPARE, "part of held: made by the client itself") \
	/* Calls for memory that the driver served instead. */ \
	PAGE(passed, total, 3, 13, "PASSED", GM_COLUMN_OPTIONAL | GM_COLUMN_SPARE, "calls for memory that the driver served instead")
/* clang-format on */
/* Number of columns of a table with the device and all of them. */
#define GM_CLIENT_FIGURES_COLUMNS \
	(1 GM_CLIENT_FIGURES(GM_FIGURE_ONE, GM_FIGURE_SKIP, GM_FIGURE_ONE))

/*
 * The figures of a device, in the order of the manual. Columns 22 to 24 are about its drain.
 *
 *   CORE(name, unit, column, title, how, note)  what core counts. A unit is size or count
 *   OTHER(name, column, title, how, note)  a setting, a share or a word, which the daemon and
 *       gpumemctl make in their own way
 */
/* clang-format off */
#define GM_DEVICE_FIGURES(CORE, OTHER) \
	CORE(total, size, 0, "TOTAL", GM_COLUMN_RIGHT, "memory of the device") \
	OTHER(fraction, 1, NULL, 0, "") \
	OTHER(min_free, 2, NULL, 0, "") \
	CORE(capacity, size, 3, "CAPACITY", GM_COLUMN_RIGHT, "the most that the daemon may hand out") \
	CORE(ceiling, size, 4, NULL, 0, "the capacity less what foreign memory takes away from it") \
	CORE(leased, size, 5, NULL, 0, "held by clients") \
	CORE(quarantined, size, 7, NULL, 0, "not yet returned by clients that are gone") \
	/* Destroyed, but a process may still map it. */ \
	CORE(orphaned, size, 19, NULL, 0, "part of quarantined: a process may still map it") \
	CORE(admitted, size, 8, NULL, 0, "charged, but not created yet") \
	CORE(pooled, size, 9, "POOLED", GM_COLUMN_RIGHT, "free chunks that are kept for reuse") \
	CORE(declared, size, 20, NULL, 0, "charged, and made by clients themselves") \
	CORE(declared_seen, size, 21, NULL, 0, "the part of it that the driver counts for them") \
	CORE(foreign, size, 11, "FOREIGN", GM_COLUMN_RIGHT, "used by programs outside the broker; *null* if it cannot be measured") \
	/* total - foreign - created - dying - declared_seen */ \
	CORE(free, size, 12, NULL, 0, "used by nobody") \
	OTHER(measured, 13, NULL, 0, "") \
	CORE(available, size, 14, "AVAIL", GM_COLUMN_RIGHT, "what could be leased now") \
	CORE(peak_charged, size, 15, NULL, 0, "the most that was ever charged") \
	CORE(chunks, count, 16, NULL, 0, "chunks that exist") \
	OTHER(pressure, 17, "PRESSURE", GM_COLUMN_RIGHT, "") \
	OTHER(level, 18, "LEVEL", 0, "*low*, *medium*, *high*, *critical*")
/* clang-format on */

/*
 * The figures of a device's pool.
 *
 *   CORE(name, unit, column, title, note)  what core counts
 *   OTHER(name, column, title, note)  what gpumemctl makes of the others
 */
/* clang-format off */
#define GM_POOL_FIGURES(CORE, OTHER) \
	CORE(pooled, size, 1, "POOLED", "free memory in the pool") \
	CORE(peak, size, 2, "PEAK", "the most that it has held") \
	CORE(max_pool, size, 3, "MAX", "the most that it may hold") \
	CORE(reserve, size, 4, "RESERVE", "memory that was never leased and is kept ready") \
	CORE(pool_decay_ms, time, 5, NULL, "how long a free chunk stays; *null*: for ever") \
	/* Chunks that were taken from the pool for a request. */ \
	CORE(hits, total, 6, "HITS", "chunks that requests took from the pool") \
	/* Chunks that were created for one. */ \
	CORE(misses, total, 7, "MISSES", "chunks that were created for requests") \
	OTHER(hit_rate, 8, "HIT RATE", "") \
	/* Chunks that were put in after use. */ \
	CORE(returns, total, 9, "RETURNS", "chunks that clients gave back to the pool") \
	/* Chunks destroyed to make room, by a trim, by a new bound, or because nobody took them. */ \
	CORE(released, total, 10, "RELEASED", "chunks that went from the pool to the device")
/* clang-format on */

#endif
