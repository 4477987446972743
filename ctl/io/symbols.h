/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CTL_IO_SYMBOLS_H
#define GM_CTL_IO_SYMBOLS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define GM_SYMBOLS_ID 20

/* An address in a program or a library, and what was found out about it. */
struct gm_symbol {
	const char *path;
	uint8_t id[GM_SYMBOLS_ID]; /* its build id */
	size_t id_bytes;           /* 0: not known; then the file is not asked */
	uint64_t offset;
	/* The results; "" and 0: not found. */
	char function[128];
	char file[192];
	uint32_t line;
};

/*
 * Finds the function, the file of the source and the line of each address, as far as the files and their
 * debug information say. A file with another build id says nothing.
 *
 * The paths come from a client, which may lie, and the files may be made to harm their reader. So a child
 * process reads them, with the rights of that user alone and for a bounded time. If it fails, nothing
 * is found. A child that cannot be killed is left behind, with a message.
 */
void gm_symbols_find(uid_t uid, struct gm_symbol *symbols, size_t n);

#endif
