/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/* See fault.h. It must never fail a call that the test did not ask to fail. */

#undef _FORTIFY_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "tests/integration/fault.h"

#define FAULT_EXPORT __attribute__((visibility("default")))

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t m);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t alignment, size_t n);
void __libc_free(void *p);

static struct gm_fault *_Atomic fault_page;
static __thread bool fault_inside; /* in this file: nothing fails or counts */

static const int fault_errors[] = {
#define FAULT_ERROR(name, error) error,
	GM_FAULT_KINDS(FAULT_ERROR)
#undef FAULT_ERROR
};

/* Loads the unwinder now: backtrace() allocates the first time. */
__attribute__((constructor)) static void fault_begin(void)
{
	const char *path = getenv(GM_FAULT_FILE);
	void *frame;
	fault_inside = true;
	int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	if (fd >= 0) {
		struct gm_fault *at =
			mmap(NULL, sizeof(*at), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		close(fd);
		backtrace(&frame, 1);
		if (at != MAP_FAILED && strncmp(at->program, program_invocation_short_name,
						sizeof(at->program) - 1) == 0)
			atomic_store(&fault_page, at);
	}
	fault_inside = false;
}

/* Counts one down, unless it is 0. */
static bool fault_take(_Atomic uint64_t *count)
{
	uint64_t n = atomic_load(count);
	while (n > 0)
		if (atomic_compare_exchange_weak(count, &n, n - 1))
			return true;
	return false;
}

/* Notes who made the call; of the first one all callers, for addr2line. */
static void fault_tell(struct gm_fault *page, bool first)
{
	void *frames[14];
	Dl_info own, info;
	size_t used = 0;
	int n = backtrace(frames, 14);
	dladdr((void *)fault_tell, &own);
	for (int i = 0; i < n && used < sizeof(page->where) - 1; i++) {
		if (!dladdr(frames[i], &info) || !info.dli_fname || info.dli_fbase == own.dli_fbase)
			continue;
		const char *name = strrchr(info.dli_fname, '/');
		if (used == 0 && strncmp(name ? name + 1 : info.dli_fname, "libuv", 5) == 0)
			atomic_store(&page->libuv, true);
		if (!first)
			return;
		int more = snprintf(page->where + used, sizeof(page->where) - used, "%s%s+%#lx",
			used ? " < " : "", name ? name + 1 : info.dli_fname,
			(unsigned long)((char *)frames[i] - (char *)info.dli_fbase));
		used += more > 0 ? (size_t)more : 0;
	}
}

/* Returns whether a frame is in a library that crashes without memory: jansson, which asserts (lex_scan_string); the
 * C library, where it looks for users and groups. */
static bool fault_is_frail(const Dl_info *info)
{
	if (strstr(info->dli_fname, "libjansson"))
		return true;
	return info->dli_sname && (strncmp(info->dli_sname, "getpw", 5) == 0 ||
					  strncmp(info->dli_sname, "getgr", 5) == 0 ||
					  strncmp(info->dli_sname, "fgetpw", 6) == 0);
}

/* Returns whether a file is one of those, by the beginnings of their names. */
static bool fault_is_file(const char *path, const char *const *names, size_t n)
{
	const char *file = strrchr(path, '/');
	file = file ? file + 1 : path;
	for (size_t i = 0; i < n; i++)
		if (names[i][0] && strncmp(file, names[i], strlen(names[i])) == 0)
			return true;
	return false;
}

/* Returns whether a call never fails: one of the fake driver, or of the file that the test exempts, also
 * if the C library makes the call for it; an allocation for a frail library; and one that the dynamic
 * linker makes by itself, such as for variables of a thread, because it ends the process then. */
static bool fault_is_exempt(const struct gm_fault *page, enum gm_fault_kind kind)
{
	static const char *const between[] = {"libfault", "libc.so", "libpthread", "libdl"};
	static const char *const linker[] = {"ld-linux"};
	const char *const exempt[] = {"libcuda.so", "libnvidia-ml.so", page->exempt};
	void *frames[32]; /* dlopen() alone has about 15 */
	Dl_info info;
	bool found = false, linked = false; /* the caller was; the frame before was the linker's */

	int n = backtrace(frames, 32);
	for (int i = 1; i < n && (!found || kind == GM_FAULT_alloc); i++) {
		if (!dladdr(frames[i], &info) || !info.dli_fname)
			continue;
		if (kind == GM_FAULT_alloc && fault_is_frail(&info))
			return true;
		if (fault_is_file(info.dli_fname, linker, 1)) {
			linked = true;
			continue;
		}
		if (!found && !fault_is_file(info.dli_fname, between, 4)) {
			found = true;
			if (linked || fault_is_file(info.dli_fname, exempt, 3))
				return true;
		}
		linked = false;
	}
	return false;
}

/* Returns whether this call fails, and sets errno if so. */
static bool fault_fails(enum gm_fault_kind kind)
{
	struct gm_fault *page = atomic_load(&fault_page);
	if (!page || fault_inside)
		return false;
	bool armed = atomic_load(&page->fail) > 0 && atomic_load(&page->kind) == kind;
	if (!armed && !atomic_load(&page->counts))
		return false;
	fault_inside = true;
	bool exempt = kind != GM_FAULT_driver && fault_is_exempt(page, kind);
	fault_inside = false;
	if (exempt)
		return false;
	if (atomic_load(&page->counts))
		atomic_fetch_add(&page->calls[kind], 1);
	if (!armed || fault_take(&page->skip) || !fault_take(&page->fail))
		return false;
	fault_inside = true;
	fault_tell(page, atomic_fetch_add(&page->failed, 1) == 0);
	fault_inside = false;
	errno = fault_errors[kind];
	return true;
}

/* The same for a read or write of this descriptor. Only those of files can fail for want of
 * anything. */
static bool fault_fails_on(enum gm_fault_kind kind, int fd)
{
	struct stat st;
	if (!atomic_load(&fault_page))
		return false;
	return syscall(SYS_fstat, fd, &st) == 0 && S_ISREG(st.st_mode) && fault_fails(kind);
}

/* ---- the fake CUDA driver asks at each of its calls */

FAULT_EXPORT bool gm_fault_driver(void);
FAULT_EXPORT bool gm_fault_driver(void)
{
	return fault_fails(GM_FAULT_driver);
}

/* ---- allocations */

static void *fault_count(void *block)
{
	struct gm_fault *page = atomic_load(&fault_page);
	if (block && page)
		atomic_fetch_add(&page->blocks, 1);
	return block;
}

FAULT_EXPORT void *malloc(size_t n)
{
	return fault_fails(GM_FAULT_alloc) ? NULL : fault_count(__libc_malloc(n));
}

FAULT_EXPORT void *calloc(size_t n, size_t m)
{
	return fault_fails(GM_FAULT_alloc) ? NULL : fault_count(__libc_calloc(n, m));
}

FAULT_EXPORT void *realloc(void *p, size_t n)
{
	if (fault_fails(GM_FAULT_alloc))
		return NULL;
	return p ? __libc_realloc(p, n) : fault_count(__libc_realloc(p, n));
}

FAULT_EXPORT void *aligned_alloc(size_t alignment, size_t n)
{
	return fault_fails(GM_FAULT_alloc) ? NULL : fault_count(__libc_memalign(alignment, n));
}

FAULT_EXPORT int posix_memalign(void **ret, size_t alignment, size_t n)
{
	void *block = aligned_alloc(alignment, n);
	if (block)
		*ret = block;
	return block ? 0 : ENOMEM;
}

FAULT_EXPORT void free(void *p)
{
	struct gm_fault *page = atomic_load(&fault_page);
	if (p && page)
		atomic_fetch_sub(&page->blocks, 1);
	__libc_free(p);
}

/* ---- system calls. A row: kind, what it returns if it fails, type, name, parameters, arguments. */

#define FAULT_CALL(kind, failure, type, name, parameters, arguments) \
	FAULT_EXPORT type name parameters \
	{ \
		static type(*_Atomic real) parameters; \
		if (fault_fails(GM_FAULT_##kind)) \
			return failure; \
		if (!real) \
			real = (type(*) parameters)dlsym(RTLD_NEXT, #name); \
		return real arguments; \
	}

/* The same for reads and writes of fd. */
#define FAULT_CALL_ON(kind, type, name, parameters, arguments) \
	FAULT_EXPORT type name parameters \
	{ \
		static type(*_Atomic real) parameters; \
		if (fault_fails_on(GM_FAULT_##kind, fd)) \
			return -1; \
		if (!real) \
			real = (type(*) parameters)dlsym(RTLD_NEXT, #name); \
		return real arguments; \
	}

/* Returns whether the kernel may lack something for this call of fcntl(). */
static bool fault_can_fail(int what)
{
	return what == F_DUPFD || what == F_DUPFD_CLOEXEC || what == F_ADD_SEALS ||
	       what == F_SETLEASE;
}

/* The same with one further argument that may be missing. */
#define FAULT_CALL_MORE(kind, can_fail, type, name, parameters, last, arguments) \
	FAULT_EXPORT int name parameters \
	{ \
		static int(*_Atomic real) parameters; \
		va_list more; \
		va_start(more, last); \
		type extra = va_arg(more, type); \
		va_end(more); \
		if ((can_fail) && fault_fails(GM_FAULT_##kind)) \
			return -1; \
		if (!real) \
			real = (int(*) parameters)dlsym(RTLD_NEXT, #name); \
		return real arguments; \
	}

/* clang-format off */
FAULT_CALL_MORE(open, true, int, open, (const char *path, int flags, ...), flags, (path, flags, extra))
FAULT_CALL_MORE(open, true, int, open64, (const char *path, int flags, ...), flags, (path, flags, extra))
FAULT_CALL_MORE(open, true, int, openat, (int at, const char *path, int flags, ...), flags, (at, path, flags, extra))
FAULT_CALL_MORE(open, true, int, openat64, (int at, const char *path, int flags, ...), flags, (at, path, flags, extra))
FAULT_CALL(open, NULL, FILE *, fopen, (const char *path, const char *mode), (path, mode))
FAULT_CALL(open, NULL, FILE *, fopen64, (const char *path, const char *mode), (path, mode))
FAULT_CALL(open, NULL, DIR *, opendir, (const char *path), (path))
FAULT_CALL(mmap, MAP_FAILED, void *, mmap, (void *at, size_t n, int prot, int flags, int fd, off_t from), (at, n, prot, flags, fd, from))
FAULT_CALL(mmap, MAP_FAILED, void *, mmap64, (void *at, size_t n, int prot, int flags, int fd, off64_t from), (at, n, prot, flags, fd, from))
FAULT_CALL(mmap, -1, int, mprotect, (void *at, size_t n, int prot), (at, n, prot))
FAULT_CALL(socket, -1, int, socket, (int domain, int type, int protocol), (domain, type, protocol))
FAULT_CALL(socket, -1, int, socketpair, (int domain, int type, int protocol, int ends[2]), (domain, type, protocol, ends))
FAULT_CALL(connect, -1, int, connect, (int fd, const struct sockaddr *address, socklen_t n), (fd, address, n))
FAULT_CALL(listen, -1, int, bind, (int fd, const struct sockaddr *address, socklen_t n), (fd, address, n))
FAULT_CALL(listen, -1, int, listen, (int fd, int backlog), (fd, backlog))
FAULT_CALL(accept, -1, int, accept4, (int fd, struct sockaddr *address, socklen_t *n, int flags), (fd, address, n, flags))
FAULT_CALL(send, -1, ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags), (fd, message, flags))
FAULT_CALL(send, -1, ssize_t, send, (int fd, const void *bytes, size_t n, int flags), (fd, bytes, n, flags))
FAULT_CALL(send, -1, ssize_t, sendto, (int fd, const void *bytes, size_t n, int flags, const struct sockaddr *to, socklen_t length), (fd, bytes, n, flags, to, length))
FAULT_CALL(receive, -1, ssize_t, recvmsg, (int fd, struct msghdr *message, int flags), (fd, message, flags))
FAULT_CALL(receive, -1, ssize_t, recv, (int fd, void *bytes, size_t n, int flags), (fd, bytes, n, flags))
FAULT_CALL(sockopt, -1, int, getsockopt, (int fd, int level, int name, void *value, socklen_t *n), (fd, level, name, value, n))
FAULT_CALL(sockopt, -1, int, setsockopt, (int fd, int level, int name, const void *value, socklen_t n), (fd, level, name, value, n))
FAULT_CALL(memfd, -1, int, memfd_create, (const char *name, unsigned flags), (name, flags))
FAULT_CALL(truncate, -1, int, ftruncate, (int fd, off_t n), (fd, n))
FAULT_CALL(truncate, -1, int, fallocate, (int fd, int mode, off_t from, off_t n), (fd, mode, from, n))
FAULT_CALL_MORE(fcntl, fault_can_fail(what), void *, fcntl, (int fd, int what, ...), what, (fd, what, extra))
FAULT_CALL_MORE(fcntl, fault_can_fail(what), void *, fcntl64, (int fd, int what, ...), what, (fd, what, extra))
FAULT_CALL(fcntl, -1, int, dup2, (int fd, int other), (fd, other))
FAULT_CALL(event, -1, int, eventfd, (unsigned n, int flags), (n, flags))
FAULT_CALL(event, -1, int, timerfd_create, (int clock, int flags), (clock, flags))
FAULT_CALL(event, -1, int, signalfd, (int fd, const sigset_t *set, int flags), (fd, set, flags))
FAULT_CALL(event, -1, int, epoll_create1, (int flags), (flags))
FAULT_CALL(event, -1, int, pipe2, (int ends[2], int flags), (ends, flags))
FAULT_CALL_ON(read, ssize_t, read, (int fd, void *bytes, size_t n), (fd, bytes, n))
FAULT_CALL_ON(read, ssize_t, pread, (int fd, void *bytes, size_t n, off_t from), (fd, bytes, n, from))
FAULT_CALL_ON(read, ssize_t, pread64, (int fd, void *bytes, size_t n, off64_t from), (fd, bytes, n, from))
FAULT_CALL_ON(write, ssize_t, write, (int fd, const void *bytes, size_t n), (fd, bytes, n))
FAULT_CALL_ON(write, ssize_t, pwrite, (int fd, const void *bytes, size_t n, off_t from), (fd, bytes, n, from))
FAULT_CALL(write, -1, int, fsync, (int fd), (fd))
FAULT_CALL(file, -1, int, rename, (const char *from, const char *to), (from, to))
FAULT_CALL(file, -1, int, mkdir, (const char *path, mode_t mode), (path, mode))
FAULT_CALL(file, -1, int, chmod, (const char *path, mode_t mode), (path, mode))
FAULT_CALL(file, -1, int, chown, (const char *path, uid_t uid, gid_t gid), (path, uid, gid))
FAULT_CALL(file, -1, int, fchmod, (int fd, mode_t mode), (fd, mode))
FAULT_CALL(file, -1, int, flock, (int fd, int what), (fd, what))
FAULT_CALL(file, -1, int, stat, (const char *path, struct stat *ret), (path, ret))
FAULT_CALL(file, -1, int, lstat, (const char *path, struct stat *ret), (path, ret))
FAULT_CALL(file, -1, int, fstatat, (int at, const char *path, struct stat *ret, int flags), (at, path, ret, flags))
FAULT_CALL(file, -1, ssize_t, readlink, (const char *path, char *text, size_t n), (path, text, n))
FAULT_CALL(file, NULL, char *, realpath, (const char *path, char *ret), (path, ret))
FAULT_CALL(process, -1, pid_t, fork, (void), ())
FAULT_CALL(process, fault_errors[GM_FAULT_process], int, posix_spawn, (pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attributes, char *const argv[], char *const env[]), (pid, path, actions, attributes, argv, env))
FAULT_CALL(process, -1, int, execv, (const char *path, char *const argv[]), (path, argv))
FAULT_CALL(process, -1, int, execvp, (const char *path, char *const argv[]), (path, argv))
FAULT_CALL(thread, fault_errors[GM_FAULT_thread], int, pthread_create, (pthread_t *ret, const pthread_attr_t *attributes, void *(*run)(void *), void *argument), (ret, attributes, run, argument))
/* clang-format on */

/* The kernel needs memory to watch another descriptor only. */
FAULT_EXPORT int epoll_ctl(int fd, int what, int other, struct epoll_event *event)
{
	static int (*_Atomic real)(int, int, int, struct epoll_event *);
	if (what == EPOLL_CTL_ADD && fault_fails(GM_FAULT_epoll))
		return -1;
	if (!real)
		real = (int (*)(int, int, int, struct epoll_event *))dlsym(RTLD_NEXT, "epoll_ctl");
	return real(fd, what, other, event);
}

FAULT_EXPORT long syscall(long number, ...)
{
	static long (*_Atomic real)(long, ...);
	long a[6];
	va_list more;
	va_start(more, number);
	for (size_t i = 0; i < 6; i++)
		a[i] = va_arg(more, long);
	va_end(more);
	if (number == SYS_pidfd_open && fault_fails(GM_FAULT_pidfd))
		return -1;
	if (!real)
		real = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
	return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
