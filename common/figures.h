/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_FIGURES_H
#define GM_FIGURES_H

/*
 * Every figure that gpumemctl shows of a client, once. The shared page, the daemon's answers, and the
 * tables, the JSON, the CSV and the manual of gpumemctl follow from the lists. proto/gpumem.proto and
 * the public structures are written by hand; tests/unit/wire/check_figures.c compares them.
 *
 *   name    the member of the structures, the field of the message, and the key in JSON and CSV
 *   unit    size (bytes) or count: gm_table_##unit() adds a value to a table
 *   column  the place in the table of gpumemctl, and in JSON and CSV. A new figure gets the next one
 *   title   the heading of its column; NULL: people see it only if they ask for it
 *   how     flags of that column (enum gm_column_flags). An optional one comes after the others
 *   note    what gpumemctl(1) says about it, in scdoc; "": nothing
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
	DAEMON(held, size, 0, 1, "HELD", 0, "") \
	DAEMON(lingering, size, 0, 14, NULL, 0, "part of it") \
	/* Of what the client pays for; in version 1 also opened. */ \
	PAGE(in_use, size, 1, 2, "IN USE", 0, "") \
	/* What the client could return right now; in version 1 also slack. */ \
	PAGE(cached, size, 1, 3, "CACHED", GM_COLUMN_SPARE, "") \
	PAGE(peak, size, 1, 5, NULL, 0, "") \
	PAGE(hits, count, 1, 6, NULL, 0, "") \
	PAGE(misses, count, 1, 7, NULL, 0, "") \
	PAGE(returns, count, 1, 8, NULL, 0, "") \
	/* Buffers made in host memory. */ \
	PAGE(cpu_fallbacks, count, 3, 12, NULL, 0, "") \
	PAGE(active_buffers, count, 1, 9, NULL, 0, "") \
	/* Active buffers for which no row was free. */ \
	INNER(untracked, count, 1) \
	/* Neither in use nor cached, because of rounding. */ \
	PAGE(slack, size, 2, 4, "SLACK", GM_COLUMN_SPARE, "") \
	/* In use in buffers that other clients made. */ \
	INNER(opened, size, 2) \
	/* In use, but it could be moved to host memory. */ \
	PAGE(evictable, size, 3, 10, "EVICTABLE", GM_COLUMN_OPTIONAL | GM_COLUMN_SPARE, "") \
	/* Content of this device's buffers, not held here. */ \
	PAGE(in_host, size, 3, 11, "IN HOST", GM_COLUMN_OPTIONAL, "") \
	DAEMON(declared, size, 0, 15, "DECLARED", GM_COLUMN_OPTIONAL | GM_COLUMN_SPARE, "part of it") \
	/* Calls for memory that the driver served instead. */ \
	PAGE(passed, count, 3, 13, "PASSED", GM_COLUMN_OPTIONAL | GM_COLUMN_SPARE, "")
/* clang-format on */
/* Number of columns of a table with the device and all of them. */
#define GM_CLIENT_FIGURES_COLUMNS \
	(1 GM_CLIENT_FIGURES(GM_FIGURE_ONE, GM_FIGURE_SKIP, GM_FIGURE_ONE))

#endif
