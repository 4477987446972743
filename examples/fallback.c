/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table that a kernel looks things up in, and that works wherever it is: on the device or, if that is
 * full, in pinned host memory, where kernels reach it more slowly, at the same address. The size can be
 * given, in MiB.
 */
#include <gpumem/gpumem_copy.h>
#include <gpumem/gpumem_evict.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MiB   ((size_t)1 << 20)
#define ENTRY 4096

static int fail(void)
{
	fprintf(stderr, "fallback: %s\n", gpumem_error_detail());
	return 1;
}

int main(int argc, char **argv)
{
	/* The buffer ends with the session, when main() returns. */
	GPUMEM_AUTO_SESSION gpumem_session *session = NULL;
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	gpumem_pin_options pin = GPUMEM_PIN_OPTIONS_INIT;
	gpumem_stats_t stats = GPUMEM_STATS_INIT;
	size_t bytes = (argc > 1 ? strtoul(argv[1], NULL, 10) : 16) * MiB;
	gpumem_location where;
	gpumem_buffer *table;
	char entry[ENTRY] = "the first entry";

	options.tag = "table";
	options.flags = GPUMEM_BUFFER_CPU_OK;
	if (gpumem_connect(NULL, &session) ||
		gpumem_buffer_create(session, 0, bytes, &options, &table))
		return fail();

	/* While it is pinned, it stays where it is. The CPU may touch it only in host memory. */
	pin.flags = GPUMEM_PIN_HOST_OK;
	if (gpumem_buffer_pin(table, &pin, &where))
		return fail();
	if (where == GPUMEM_LOCATION_HOST)
		memcpy(gpumem_buffer_ptr(table), entry, sizeof(entry));
	else if (gpumem_copy_in(table, 0, entry, sizeof(entry), NULL, NULL, NULL))
		return fail();
	/* Here kernels use gpumem_buffer_ptr(table), on a stream. */
	if (gpumem_buffer_unpin(table, GPUMEM_STREAM_ANY) || gpumem_stats(session, 0, &stats))
		return fail();

	printf("the table is %s; buffers in host memory so far: %llu\n",
		where == GPUMEM_LOCATION_HOST ? "in host memory" : "on the device",
		(unsigned long long)stats.cpu_fallbacks);
	return 0;
}
