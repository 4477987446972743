/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

#include "tests/integration/single_step.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/ptrace.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/harness.h"

/* ---- stopping and running */

static void take_stop(struct gm_single_step *step, int status)
{
	if (!WIFSTOPPED(status))
		GM_FAIL("the process ended with wait status %#x", (unsigned)status);
	int signal = WSTOPSIG(status);
	step->calls = signal == (SIGTRAP | 0x80);
	bool ours = step->calls || signal == SIGTRAP || status >> 16 == PTRACE_EVENT_STOP;
	step->signal = ours ? 0 : signal;
	step->pending = false;
}

static void await_stop(struct gm_single_step *step)
{
	int status;
	GM_REQUIRE(waitpid(step->pid, &status, __WALL) == step->pid);
	take_stop(step, status);
}

static void resume(struct gm_single_step *step, enum __ptrace_request how)
{
	GM_REQUIRE(ptrace(how, step->pid, 0, step->signal) == 0);
	step->signal = 0;
	step->pending = true;
}

/* ---- the processor */

#if defined(__x86_64__)

static const uint8_t call_bytes[] = {0x0f, 0x05};
typedef struct user_regs_struct registers;
static uint64_t address_of(const registers *r)
{
	return r->rip;
}
static uint64_t number_of(const registers *r)
{
	return r->rax;
}
static uint64_t number_within(const registers *r)
{
	return r->orig_rax;
}
static bool machine_can(void)
{
	return true;
}

#elif defined(__aarch64__)

static const uint8_t call_bytes[] = {0x01, 0x00, 0x00, 0xd4};
typedef struct user_regs_struct registers;
static uint64_t address_of(const registers *r)
{
	return r->pc;
}
static uint64_t number_of(const registers *r)
{
	return r->regs[8];
}
static uint64_t number_within(const registers *r)
{
	return r->regs[8];
}
#ifndef HWCAP_ATOMICS
#define HWCAP_ATOMICS (1 << 8)
#endif
/* A single step ends an exclusive access, so a loop of such accesses would never end. */
static bool machine_can(void)
{
	return getauxval(AT_HWCAP) & HWCAP_ATOMICS;
}

#endif

#if defined(__x86_64__) || defined(__aarch64__)

const char *gm_single_step_why_not(void)
{
	char scope[8] = "";
	int fd = open("/proc/sys/kernel/yama/ptrace_scope", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, scope, sizeof(scope) - 1) : 0;
	if (fd >= 0)
		close(fd);
	if (!machine_can())
		return "needs a processor with atomic instructions (ARMv8.1)";
	if (n > 0 && atoi(scope) > 2)
		return "needs ptrace, which /proc/sys/kernel/yama/ptrace_scope forbids";
	if (n > 0 && atoi(scope) == 2 && geteuid() != 0)
		return "needs root, because of /proc/sys/kernel/yama/ptrace_scope";
	return NULL;
}

/* ---- the program */

/* Copies what is at the address. */
static void read_text(struct gm_single_step *step, uint64_t address, void *bytes, size_t n)
{
	for (size_t done = 0; done < n;) {
		uint64_t at = address + done, page = at & ~(uint64_t)(GM_SINGLE_STEP_PAGE - 1);
		size_t offset = at - page, part = GM_SINGLE_STEP_PAGE - offset;
		struct gm_single_step_page *p =
			&step->pages[page / GM_SINGLE_STEP_PAGE % GM_SINGLE_STEP_PAGES];
		if (p->address != page) {
			GM_REQUIRE(pread(step->memory, p->bytes, sizeof(p->bytes), (off_t)page) ==
				   sizeof(p->bytes));
			p->address = page;
		}
		part = part < n - done ? part : n - done;
		memcpy((uint8_t *)bytes + done, p->bytes + offset, part);
		done += part;
	}
}

static bool is_sleep(uint64_t number)
{
#ifdef SYS_epoll_wait
	if (number == SYS_epoll_wait)
		return true;
#endif
	return number == SYS_epoll_pwait;
}

static void read_registers(const struct gm_single_step *step, registers *ret)
{
	struct iovec iov = {.iov_base = ret, .iov_len = sizeof(*ret)};
	GM_REQUIRE(ptrace(PTRACE_GETREGSET, step->pid, (void *)NT_PRSTATUS, &iov) == 0);
}

enum gm_instruction gm_single_step_next(struct gm_single_step *step)
{
	registers r;
	uint8_t bytes[sizeof(call_bytes)];
	read_registers(step, &r);
	read_text(step, address_of(&r), bytes, sizeof(bytes));
	if (memcmp(bytes, call_bytes, sizeof(bytes)) != 0)
		return GM_INSTRUCTION_PLAIN;
	return is_sleep(number_of(&r)) ? GM_INSTRUCTION_SLEEP : GM_INSTRUCTION_CALL;
}

enum gm_instruction gm_single_step_skip(struct gm_single_step *step)
{
	registers r;
	do {
		resume(step, PTRACE_SYSCALL);
		await_stop(step);
	} while (!step->calls);
	read_registers(step, &r);
	return is_sleep(number_within(&r)) ? GM_INSTRUCTION_SLEEP : GM_INSTRUCTION_CALL;
}

#else

const char *gm_single_step_why_not(void)
{
	return "needs an x86-64 or arm64 processor";
}

enum gm_instruction gm_single_step_next(struct gm_single_step *step)
{
	return GM_INSTRUCTION_PLAIN;
}

enum gm_instruction gm_single_step_skip(struct gm_single_step *step)
{
	return GM_INSTRUCTION_PLAIN;
}

#endif

/* ---- from outside */

void gm_single_step_interrupt(struct gm_single_step *step)
{
	GM_REQUIRE(ptrace(PTRACE_INTERRUPT, step->pid, 0, 0) == 0);
	await_stop(step);
}

void gm_single_step_begin(struct gm_single_step *step, pid_t pid)
{
	char path[32];
	sigset_t set;
	*step = (struct gm_single_step){.pid = pid};
	step->pages = calloc(GM_SINGLE_STEP_PAGES, sizeof(step->pages[0]));
	GM_REQUIRE(step->pages);
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	GM_REQUIRE(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
	step->children = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	snprintf(path, sizeof(path), "/proc/%d/mem", (int)pid);
	step->memory = open(path, O_RDONLY | O_CLOEXEC);
	GM_REQUIRE(step->children >= 0 && step->memory >= 0);
	if (ptrace(PTRACE_SEIZE, pid, 0, (void *)(PTRACE_O_EXITKILL | PTRACE_O_TRACESYSGOOD)) < 0)
		GM_FAIL("cannot trace process %d: %s", (int)pid, strerror(errno));
	gm_single_step_interrupt(step);
}

/* Whether a SIGTRAP waits for the thread, which has stopped for another reason. */
static bool trap_is_pending(const struct gm_single_step *step)
{
	char path[40], line[128];
	unsigned long long pending = 0;
	snprintf(path, sizeof(path), "/proc/%d/status", (int)step->pid);
	FILE *status = fopen(path, "re");
	GM_REQUIRE(status);
	while (fgets(line, sizeof(line), status) && sscanf(line, "SigPnd: %llx", &pending) != 1)
		;
	fclose(status);
	return pending & 1ull << (SIGTRAP - 1);
}

void gm_single_step_end(struct gm_single_step *step)
{
	/* The end of an instruction that was interrupted. Without a tracer it would kill. */
	while (trap_is_pending(step)) {
		resume(step, PTRACE_CONT);
		await_stop(step);
	}
	GM_REQUIRE(ptrace(PTRACE_DETACH, step->pid, 0, 0) == 0);
	close(step->children);
	close(step->memory);
	free(step->pages);
}

void gm_single_step_run(struct gm_single_step *step)
{
	resume(step, PTRACE_SINGLESTEP);
	await_stop(step);
}

/* Forgets stops of the past. */
static void forget_stops(struct gm_single_step *step)
{
	struct signalfd_siginfo info;
	while (read(step->children, &info, sizeof(info)) > 0)
		;
}

/* Begins the instruction, unless it has begun. */
static void begin_sleep(struct gm_single_step *step)
{
	if (step->pending)
		return;
	forget_stops(step);
	resume(step, PTRACE_SINGLESTEP);
}

static bool has_stopped(struct gm_single_step *step)
{
	int status;
	pid_t pid = waitpid(step->pid, &status, WNOHANG | __WALL);
	GM_REQUIRE(pid >= 0);
	if (pid > 0)
		take_stop(step, status);
	return pid > 0;
}

bool gm_single_step_sleep(struct gm_single_step *step, int one, int other)
{
	struct pollfd fds[] = {{.fd = step->children, .events = POLLIN},
		{.fd = one, .events = POLLIN}, {.fd = other, .events = POLLIN}};
	begin_sleep(step);
	while (!has_stopped(step)) {
		if (poll(fds, 3, GM_PATIENCE_MS) < 1)
			GM_FAIL("process %d waits, and nothing comes", (int)step->pid);
		if (fds[1].revents || fds[2].revents)
			return false;
		forget_stops(step);
	}
	return true;
}

/* The letter that /proc has for what the thread does. */
static char state_of(const struct gm_single_step *step)
{
	char path[40], text[256] = "";
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)step->pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	GM_REQUIRE(fd >= 0 && read(fd, text, sizeof(text) - 1) > 0);
	close(fd);
	const char *name_end = strrchr(text, ')');
	return name_end && name_end[1] ? name_end[2] : 0;
}

bool gm_single_step_sleeps(struct gm_single_step *step)
{
	begin_sleep(step);
	while (!has_stopped(step)) {
		if (state_of(step) == 'S')
			return true;
		sched_yield();
	}
	return false;
}
