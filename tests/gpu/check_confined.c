/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * The daemon on a GPU under what systemd/gpumemd.service forbids, without systemd: namespaces of its
 * own for network, mounts and System V IPC, no capabilities, and a seccomp filter for the rest. The
 * program runs itself with --confine before the daemon. See broker.h.
 */

#include <errno.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/gpu/broker.h"

/* SystemCallFilter= of the unit: @clock @cpu-emulation @debug @module @mount @obsolete @raw-io
 * @reboot @resources (but for mbind) @swap bpf perf_event_open; RestrictNamespaces=,
 * LockPersonality=. */
static const int denied[] = {
	SYS_adjtimex,
	SYS_clock_adjtime,
	SYS_clock_settime,
	SYS_settimeofday,
	SYS_lookup_dcookie,
	SYS_perf_event_open,
	SYS_process_vm_readv,
	SYS_process_vm_writev,
	SYS_ptrace,
	SYS_delete_module,
	SYS_finit_module,
	SYS_init_module,
	SYS_chroot,
	SYS_mount,
	SYS_pivot_root,
	SYS_umount2,
	SYS_fsopen,
	SYS_fsmount,
	SYS_move_mount,
	SYS_open_tree,
	SYS_reboot,
	SYS_kexec_load,
	SYS_ioprio_set,
	SYS_migrate_pages,
	SYS_move_pages,
	SYS_sched_setaffinity,
	SYS_sched_setattr,
	SYS_sched_setparam,
	SYS_sched_setscheduler,
	SYS_set_mempolicy,
	SYS_setpriority,
	SYS_setrlimit,
	SYS_swapon,
	SYS_swapoff,
	SYS_bpf,
	SYS_unshare,
	SYS_setns,
	SYS_personality,
#ifdef SYS_iopl
	SYS_iopl,
	SYS_ioperm,
	SYS_modify_ldt,
	SYS_create_module,
	SYS_uselib,
	SYS_ustat,
	SYS_sysfs,
#endif
};

#ifdef __x86_64__
#define ARCH AUDIT_ARCH_X86_64
#else
#define ARCH AUDIT_ARCH_AARCH64
#endif

#define FIELD(name)    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, name))
#define REFUSE(error)  BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (error))
#define ALLOW          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
#define UNLESS(nr, n)  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (nr), 0, (n))
#define NEW_NAMESPACES 0x7e020000 /* all of CLONE_NEW* */

static void forbid(void)
{
	enum { MANY = sizeof(denied) / sizeof(*denied) };
	struct sock_filter filter[2 * MANY + 32] = {FIELD(arch), UNLESS(ARCH, 1),
		BPF_JUMP(BPF_JMP | BPF_JA, 1, 0, 0), REFUSE(EPERM), FIELD(nr)};
	size_t n = 5;

	for (size_t i = 0; i < MANY; i++) {
		filter[n++] = (struct sock_filter)UNLESS((unsigned int)denied[i], 1);
		filter[n++] = (struct sock_filter)REFUSE(EPERM);
	}
	const struct sock_filter rest[] = {/* RestrictAddressFamilies=AF_UNIX */
		UNLESS(SYS_socket, 4), FIELD(args[0]),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_UNIX, 1, 0), REFUSE(EAFNOSUPPORT), ALLOW,
		/* MemoryDenyWriteExecute= */
		UNLESS(SYS_mmap, 5), FIELD(args[2]),
		BPF_STMT(BPF_ALU | BPF_AND | BPF_K, PROT_WRITE | PROT_EXEC),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PROT_WRITE | PROT_EXEC, 0, 1), REFUSE(EPERM),
		ALLOW, UNLESS(SYS_mprotect, 4), FIELD(args[2]),
		BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 0, 1), REFUSE(EPERM), ALLOW,
		/* RestrictNamespaces=: clone3() passes its flags where a filter cannot see them. */
		UNLESS(SYS_clone3, 1), REFUSE(ENOSYS), UNLESS(SYS_clone, 3), FIELD(args[0]),
		BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, NEW_NAMESPACES, 0, 1), REFUSE(EPERM), ALLOW};
	memcpy(filter + n, rest, sizeof(rest));
	n += sizeof(rest) / sizeof(*rest);

	struct sock_fprog program = {.len = (unsigned short)n, .filter = filter};
	GM_REQUIRE(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	GM_REQUIRE(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static void drop_capabilities(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[2] = {{0}};

	for (int i = 0; prctl(PR_CAPBSET_READ, i, 0, 0, 0) >= 0; i++)
		GM_REQUIRE(prctl(PR_CAPBSET_DROP, i, 0, 0, 0) == 0);
	GM_REQUIRE(syscall(SYS_capset, &header, none) == 0);
}

/* What must not work does not. */
static void require_confined(void)
{
	GM_REQUIRE(socket(AF_INET, SOCK_STREAM, 0) == -1 && errno == EAFNOSUPPORT);
	GM_REQUIRE(socket(AF_NETLINK, SOCK_RAW, 0) == -1 && errno == EAFNOSUPPORT);
	GM_REQUIRE(mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS,
			   -1, 0) == MAP_FAILED);
	void *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	GM_REQUIRE(page != MAP_FAILED && mprotect(page, 4096, PROT_READ | PROT_EXEC) == -1);
	GM_REQUIRE(unshare(CLONE_NEWUSER) == -1 && errno == EPERM);
	GM_REQUIRE(mount("none", "/", "tmpfs", 0, NULL) == -1);
	GM_REQUIRE(setuid(0) == 0 || errno == EPERM);
}

static int confine(char **argv)
{
	/* PrivateNetwork=, PrivateIPC=, PrivateMounts=, ProtectHostname= */
	GM_REQUIRE(unshare(CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWNS | CLONE_NEWUTS) == 0);
	drop_capabilities();
	forbid();
	require_confined();

	/* A build with sanitizers looks for leaks by ptrace, which is forbidden here. */
	const char *before = getenv("ASAN_OPTIONS");
	char options[512];
	snprintf(options, sizeof(options), "%s%sdetect_leaks=0", before ? before : "",
		before ? ":" : "");
	GM_REQUIRE(setenv("ASAN_OPTIONS", options, 1) == 0);
	execv(argv[0], argv);
	fprintf(stderr, "%s: %m\n", argv[0]);
	return 127;
}

START_TEST(the_daemon_serves_a_gpu_under_the_restrictions_of_its_unit)
{
	char self[4096];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	GM_REQUIRE(n > 0);
	self[n] = '\0';
	const char *const runner[] = {self, "--confine", NULL};
	static const char *const args[] = {"--backend", "cuda", NULL};

	gm_daemon_start(&daemon_,
		&(struct gm_daemon_options){
			.config = CONFIG("host_limit = 64M\n"), .args = args, .runner = runner});
	pass_a_buffer(GPUMEM_TRANSPORT_FD, false);
	struct gm_worker hold;
	start_holder(&hold, NULL);
	gm_text_say_word(hold.channel, 'g');
	gm_hear_word(hold.channel, 'd');
	gm_text_say_word(hold.channel, 'e');
	gm_worker_join(&hold);
	tear_down();
}
END_TEST

START_TEST(and_the_ipc_transport)
{
	char self[4096];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	GM_REQUIRE(n > 0);
	self[n] = '\0';
	const char *const runner[] = {self, "--confine", NULL};
	static const char *const args[] = {"--backend", "cuda", NULL};

	gm_daemon_start(&daemon_,
		&(struct gm_daemon_options){.config = IPC_CONFIG, .args = args, .runner = runner});
	pass_a_buffer(GPUMEM_TRANSPORT_IPC, false);
	tear_down();
}
END_TEST

int main(int argc, char **argv)
{
	if (argc > 2 && !strcmp(argv[1], "--confine"))
		return confine(argv + 2);

	Suite *suite = suite_create("confined");
	TCase *tc = tcase_create("confined");
	tcase_set_timeout(tc, 120);
	if (GM_TAP_WITH_USERS(the_daemon_serves_a_gpu_under_the_restrictions_of_its_unit))
		tcase_add_test(tc, the_daemon_serves_a_gpu_under_the_restrictions_of_its_unit);
	if (GM_TAP_WITH_USERS(and_the_ipc_transport))
		tcase_add_test(tc, and_the_ipc_transport);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
