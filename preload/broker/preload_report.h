/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_PRELOAD_REPORT_H
#define GM_PRELOAD_REPORT_H

#include <stdint.h>

#include "preload/driver/preload_driver.h"

/*
 * The line that gpumem-run --report asks for: what gpumemd gave to this process and what it refused, and what the driver
 * served. It knows neither the session nor the daemon.
 *
 * All calls may be made from any thread, and cost next to nothing.
 */

/* Keeps the sentence of this thread's last failed call into the client library, before another call replaces it. */
void gm_report_why(const char *why);
/* Counts an allocation that the program does not get. The sentence that this thread kept last says why. */
void gm_report_refused(void);
/* Counts physical memory, which has no blocks. */
void gm_report_chunk(uint64_t bytes);
/* Counts a call that the driver serves although it makes memory. */
void gm_report_passed(enum gm_preload_call call);

/* In the child, after fork(): what was counted is its parent's. */
void gm_report_after_fork(void);

/* Prints the line, if it is wanted and there is anything to say. */
void gm_report_print(void);

#endif
