/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_INTEGRATION_SINGLE_STEP_H
#define GM_TESTS_INTEGRATION_SINGLE_STEP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * Executes one thread of a child process an instruction at a time (ptrace). The other threads of
 * the process run as always. All calls must come from the thread that called
 * gm_single_step_begin().
 */

#define GM_SINGLE_STEP_PAGE  4096
#define GM_SINGLE_STEP_PAGES 1024

struct gm_single_step {
	pid_t pid;    /* of the thread */
	int memory;   /* of the process */
	int children; /* a signalfd that is readable when the thread has stopped */
	int signal;   /* that the thread is to get */
	bool pending; /* an instruction has begun, and not ended */
	bool calls;   /* the thread has stopped at the begin or the end of a system call */
	/* Pages of the program's text, by address. */
	struct gm_single_step_page {
		uint64_t address;
		uint8_t bytes[GM_SINGLE_STEP_PAGE];
	} * pages;
};

/* NULL, or the reason why no thread can be executed so on this machine. */
const char *gm_single_step_why_not(void);
/* Stops the thread. Afterwards this thread does not get SIGCHLD. */
void gm_single_step_begin(struct gm_single_step *step, pid_t pid);
/* Lets the thread run on. */
void gm_single_step_end(struct gm_single_step *step);

enum gm_instruction {
	GM_INSTRUCTION_PLAIN, /* does not enter the kernel by itself */
	GM_INSTRUCTION_CALL,  /* a system call */
	GM_INSTRUCTION_SLEEP, /* a system call that waits for events of the thread's loop */
};
/* What the next instruction is. */
enum gm_instruction gm_single_step_next(struct gm_single_step *step);
/* Lets the thread run until it is about to make a system call, and says which kind that is. */
enum gm_instruction gm_single_step_skip(struct gm_single_step *step);
/* Executes the next instruction, and waits for its end. */
void gm_single_step_run(struct gm_single_step *step);
/*
 * The same for GM_INSTRUCTION_SLEEP. Returns true when the instruction has ended, false when one of
 * two descriptors can be read before; -1 is none. Then call it again, the next one, or
 * gm_single_step_interrupt().
 */
bool gm_single_step_sleep(struct gm_single_step *step, int one, int other);
/* The same. Returns true as soon as the thread sleeps in the instruction, false if the instruction
 * has ended. */
bool gm_single_step_sleeps(struct gm_single_step *step);
/* Stops the thread in its instruction. It repeats the instruction when it runs on. */
void gm_single_step_interrupt(struct gm_single_step *step);

#endif
