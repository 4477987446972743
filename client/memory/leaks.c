/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What was allocated and not freed: for a program that asks, and at the end of a session that tracks
 * everything. The rows of the client's page are the list. They are copied first, so no lock is held
 * while the program looks at them.
 *
 * This file has the only lines of the library that print, and they do so only if the program or its user
 * asked for it.
 */
#include "client/memory/alloc.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/memory/alloc_listing.h"
#include "client/session/session_stacks.h"
#include "common/arith.h"
#include "common/cancel.h"
#include "common/clock.h"
#include "common/text/units.h"

/* How many places a report names; a program that leaks in many would drown the others. */
#define REPORT_PLACES 20

/* ---- for programs */

static int leaks_by_age(const void *one, const void *other)
{
	const struct gm_pages_seen_row *a = one, *b = other;

	return (a->row.born_ns > b->row.born_ns) - (a->row.born_ns < b->row.born_ns);
}

/* Copies the rows, with blocks that the library's thread has not listed yet. */
static gpumem_status leaks_collect(struct gpumem_session *session, uint64_t now_ns,
	uint64_t older_than_ms, struct gm_pages_seen_row **ret_rows, size_t *ret_n)
{
	uint64_t older_ns =
		older_than_ms > now_ns / GM_NS_PER_MS ? now_ns : older_than_ms * GM_NS_PER_MS;

	for (uint32_t i = 0; i < session->devices; i++)
		gm_alloc_listing_publish(session, i);
	/* If nothing can be that old, a row born at time 0 must not count. The clock of births is
	 * coarse, so what was born just now may seem to come from the future. */
	if (older_than_ms && older_ns == now_ns) {
		*ret_rows = NULL;
		*ret_n = 0;
		return GPUMEM_OK;
	}
	int r = gm_session_pages_rows(
		&session->pages, older_than_ms ? now_ns - older_ns : UINT64_MAX, ret_rows, ret_n);
	if (r < 0)
		return gm_error(GPUMEM_E_HOST_MEMORY, "no memory for a list of leaks");
	return GPUMEM_OK;
}

static void leaks_tell(struct gpumem_session *session, const struct gm_pages_seen_row *seen,
	uint64_t now_ns, gpumem_leak_fn fn, void *user)
{
	uint64_t used_ns = gm_u64_max(seen->note.used_ns, seen->row.born_ns);
	char stack[GM_STACK_TEXT];

	gm_session_stacks_text(session->pages.stacks, seen->note.stack, stack);
	const gpumem_leak leak = {
		.size = sizeof(leak),
		.ptr = seen->ptr,
		.bytes = seen->row.bytes,
		.device = gm_session_device_name(session, seen->row.device),
		.age_ms = gm_u64_minus(now_ns, seen->row.born_ns) / GM_NS_PER_MS,
		.idle_ms = gm_u64_minus(now_ns, used_ns) / GM_NS_PER_MS,
		.tag = seen->row.tag,
		.type = seen->note.type,
		.precision = seen->note.precision,
		.stack = stack,
	};
	fn(user, &leak);
}

gpumem_status gpumem_leaks(gpumem_session *session, uint64_t older_than_ms, gpumem_leak_fn fn,
	void *user, uint64_t *ret_count)
{
	struct gm_pages_seen_row *rows;
	size_t n;

	if (!gm_session_ok(session))
		return gm_session_refused(session);
	uint64_t now_ns = gm_clock_ns();
	gpumem_status status = leaks_collect(session, now_ns, older_than_ms, &rows, &n);
	if (status)
		return status;

	if (n && fn)
		qsort(rows, n, sizeof(*rows), leaks_by_age);
	for (size_t i = 0; i < n && fn; i++)
		leaks_tell(session, &rows[i], now_ns, fn, user);
	free(rows);
	if (ret_count)
		*ret_count = n;
	return GPUMEM_OK;
}

/* ---- at the end of a session */

/* Everything that was allocated in one place, for one purpose. */
struct leak_place {
	const struct gm_pages_seen_row *first;
	size_t n;
	uint64_t bytes;
};

static int leaks_by_place(const void *one, const void *other)
{
	const struct gm_pages_seen_row *a = one, *b = other;
	int order = (a->note.stack > b->note.stack) - (a->note.stack < b->note.stack);

	order = order ? order : (a->row.device > b->row.device) - (a->row.device < b->row.device);
	order = order ? order : strcmp(a->row.tag, b->row.tag);
	order = order ? order : strcmp(a->note.type, b->note.type);
	return order ? order : strcmp(a->note.precision, b->note.precision);
}

static int leaks_by_bytes(const void *one, const void *other)
{
	const struct leak_place *a = one, *b = other;

	return (a->bytes < b->bytes) - (a->bytes > b->bytes);
}

/* Sorts the rows, and sums them up by place. Returns how many places there are. */
static size_t leaks_sum(struct gm_pages_seen_row *rows, size_t n, struct leak_place *places)
{
	size_t found = 0;

	qsort(rows, n, sizeof(*rows), leaks_by_place);
	for (size_t i = 0; i < n; i++) {
		if (!i || leaks_by_place(&rows[i - 1], &rows[i]) != 0)
			places[found++] = (struct leak_place){.first = &rows[i]};
		places[found - 1].n++;
		places[found - 1].bytes += rows[i].row.bytes;
	}
	qsort(places, found, sizeof(*places), leaks_by_bytes);
	return found;
}

static void leaks_print_place(struct gpumem_session *session, const struct leak_place *place)
{
	const struct gm_page_note *note = &place->first->note;
	const char *tag = place->first->row.tag;
	uint32_t device = place->first->row.device;
	char size[GM_UNITS_TEXT], where[32] = "pinned host memory", stack[GM_STACK_TEXT];

	if (device < session->counted)
		snprintf(where, sizeof(where), "device %u", device);
	gm_format_size(place->bytes, size);
	fprintf(stderr, "gpumem:   %s in %zu allocation%s on %s%s%s%s%s%s%s\n", size, place->n,
		place->n == 1 ? "" : "s", where, *tag ? ", tag " : "", tag,
		note->type[0] ? ", type " : "", note->type,
		note->precision[0] ? ", precision " : "", note->precision);

	gm_session_stacks_text(session->pages.stacks, note->stack, stack);
	char *rest = stack;
	for (const char *line; (line = strsep(&rest, "\n"));)
		if (*line)
			fprintf(stderr, "gpumem:     %s\n", line);
}

void gm_alloc_leaks_report(struct gpumem_session *session)
{
	struct gm_pages_seen_row *rows = NULL;
	uint64_t bytes = 0;
	size_t n = 0;
	char size[GM_UNITS_TEXT];

	/* What cannot be reported for lack of memory is at least not in the way. */
	if (gm_session_pages_rows(&session->pages, UINT64_MAX, &rows, &n) < 0 || !n)
		return;
	struct leak_place *places = calloc(n, sizeof(*places));
	if (!places) {
		free(rows);
		return;
	}

	size_t n_places = leaks_sum(rows, n, places);
	for (size_t i = 0; i < n_places; i++)
		bytes += places[i].bytes;
	gm_format_size(bytes, size);
	fprintf(stderr, "gpumem: %s in %zu allocation%s of %s (pid %ld) %s never freed:\n", size, n,
		n == 1 ? "" : "s", session->name, (long)getpid(), n == 1 ? "was" : "were");
	for (size_t i = 0; i < n_places && i < REPORT_PLACES; i++)
		leaks_print_place(session, &places[i]);
	if (n_places > REPORT_PLACES)
		fprintf(stderr, "gpumem:   and more in %zu other places\n",
			n_places - REPORT_PLACES);
	free(places);
	free(rows);
}
