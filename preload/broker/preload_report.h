/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_PRELOAD_REPORT_H
#define GM_PRELOAD_REPORT_H

#include <stdint.h>

#include "preload/driver/preload_driver.h"

/*
 * What the library says on stderr: the first refusal, when it happens, and the line that gpumem-run --report asks for, when
 * the program ends: what gpumemd gave to this process and what it refused, and what the driver served. It knows neither the
 * session nor the daemon.
 *
 * All calls may be made from any thread, and cost next to nothing.
 */

/* The sentence for an allocation that the library cannot note down. */
#define GM_PRELOAD_REPORT_NO_HOST \
	"the process has no host memory to note down an allocation; end other programs, or raise its limit"

/* Keeps the sentence of this thread's last failed call into the client library, before another call replaces it. */
void gm_preload_report_why(const char *why);
/* Adds why there is no host memory for the allocation, either. */
void gm_preload_report_why_host(const char *why);
/* Counts an allocation that the program does not get. The sentence that this thread kept last says why. The first one of the
 * process is told in one line, if gpumem-run has passed its stderr and this is still the program's. */
void gm_preload_report_refused(void);
/* Tells why the program gets no memory at all, wherever stderr leads, unless a line was told before. */
void gm_preload_report_tell(const char *why);
/* Counts physical memory, which has no blocks. */
void gm_preload_report_chunk(uint64_t bytes);
/* Counts a call that the driver serves although it makes memory. */
void gm_preload_report_passed(enum gm_preload_call call);

/* In the child, after fork(): what was counted is its parent's. */
void gm_preload_report_after_fork(void);

/* To be called before the program begins: if the line is wanted, keeps a descriptor of stderr for it. Many programs close
 * stderr when they exit, before the library can print. */
void gm_preload_report_begin(void);
/* Prints the line, if it is wanted. If there is nothing to say, only the process that gpumem-run became says so. */
void gm_preload_report_print(void);

#endif
