/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * How the daemon starts, or says why it does not; what a restart keeps and what it never repeats;
 * and how it behaves when it runs out of its own means: fds, memory.
 */

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/gate.h"
#include "tests/integration/witness.h"
#include "tests/bound.h"
#include "tests/tap.h"

/* It must not start, and its log must contain all these words. */
static void require_refusal(struct gm_daemon *daemon, const char *const *words)
{
	int status = gm_daemon_spawn(daemon);
	if (status == -1)
		GM_FAIL("it started all the same");
	GM_REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) != 0 && WEXITSTATUS(status) < 126);
	char *log = gm_daemon_log(daemon);
	for (size_t i = 0; words[i]; i++) {
		if (!strstr(log, words[i]))
			GM_FAIL("its log does not say \"%s\":\n%s", words[i], log);
	}
	free(log);
}

START_TEST(a_configuration_with_a_typo_names_file_line_and_key)
{
	struct gm_daemon daemon;
	gm_daemon_prepare(
		&daemon, &(struct gm_daemon_options){
				 .config = "[gpumemd]\nfraction = 0.5\nmin_fre = 512M\n"});
	require_refusal(&daemon, (const char *[]){"gpumemd.conf:3", "min_fre", NULL});
	gm_daemon_stop(&daemon);
}
END_TEST

START_TEST(a_value_that_makes_no_sense_names_file_line_and_key)
{
	struct gm_daemon daemon;
	gm_daemon_prepare(
		&daemon, &(struct gm_daemon_options){.config = "[gpumemd]\n\nfraction = 1.7\n"});
	require_refusal(&daemon, (const char *[]){"gpumemd.conf:3", "fraction", NULL});
	gm_daemon_stop(&daemon);
}
END_TEST

/* A command line that is not to start anything: its exit status, and a word of what it says. */
static void require_exit(
	const char *config, const char *const *args, int expected, const char *word)
{
	struct gm_daemon daemon;
	gm_daemon_prepare(&daemon, &(struct gm_daemon_options){.config = config, .args = args});
	int status = gm_daemon_spawn(&daemon);
	char *log = gm_daemon_log(&daemon);
	if (status == -1 || !WIFEXITED(status) || WEXITSTATUS(status) != expected)
		GM_FAIL("wait status %#x, not exit %d:\n%s", (unsigned)status, expected, log);
	if (word ? !strstr(log, word) : log[0])
		GM_FAIL("it does not say \"%s\" but:\n%s", word ? word : "nothing", log);
	free(log);
	gm_daemon_stop(&daemon);
}

START_TEST(a_backend_that_there_is_not_is_wrong_usage)
{
	static const char why[] =
		"gpumemd: --backend: \"nosuch\" is not one of auto, cuda, host\nSee 'gpumemd --help'";
	require_exit(NULL, (const char *[]){"--backend", "nosuch", NULL}, 2, why);
	require_exit(NULL, (const char *[]){"--check-config", "--backend", "nosuch", NULL}, 2, why);
	require_exit(NULL, (const char *[]){"--backend", "", NULL}, 2, "--backend: has no value");
	require_exit(NULL, (const char *[]){"-b", "hosts", NULL}, 2, "did you mean host?");
}
END_TEST

START_TEST(an_option_that_there_is_not_is_wrong_usage_and_may_have_been_another)
{
	require_exit(NULL, (const char *[]){"--sockt", NULL}, 2,
		"Did you mean '--socket'? See 'gpumemd --help'.");
	require_exit(NULL, (const char *[]){"--nosuchthing", NULL}, 2,
		"'--nosuchthing'\nSee 'gpumemd --help'.");
	require_exit(NULL, (const char *[]){"-z", NULL}, 2, "See 'gpumemd --help'.");
}
END_TEST

START_TEST(a_check_of_the_configuration_knows_what_host_memory_can_hold)
{
	static const char config[] = GM_DAEMON_CONFIG "[device 0 limit uid:7]\nguarantee = 2G\n";
	require_exit(config, (const char *[]){"--check-config", "--backend", "host", NULL}, 1,
		"gpumemd.conf:10: guarantee: with 2.0G for uid:7, guarantees on device 0 (host memory 0) go beyond "
		"its capacity of 1.0G");
	require_exit(GM_DAEMON_CONFIG "[device 0 limit uid:7]\nguarantee = 1G\n",
		(const char *[]){"--check-config", "--backend", "host", NULL}, 0,
		"gpumemd.conf: no mistakes");
}
END_TEST

START_TEST(a_check_of_the_configuration_looks_at_the_gpus_and_refuses_a_backend_without_any)
{
	static const char config[] = GM_DAEMON_CONFIG "[device 0 limit uid:7]\nguarantee = 60T\n";
	const char *const check[] = {"--check-config", "--backend", "cuda", NULL};
	const char *backend = getenv("GPUMEM_TEST_BACKEND");
	if (backend && !strcmp(backend, "cuda"))
		require_exit(config, check, 1,
			"gpumemd.conf:10: guarantee: with 60.0T for uid:7, guarantees on device 0 (Fake "
			"GPU 0) go beyond its capacity of ");

	setenv("CUDA_VISIBLE_DEVICES", "", 1);
	require_exit(config, check, 1, "backend: cuda has no device here: ");
	require_exit(config, (const char *[]){"--backend", "cuda", NULL}, 1, "backend cuda: ");
}
END_TEST

START_TEST(limits_that_do_not_fit_are_refused_before_anything_is_made)
{
	struct gm_gate gate;
	struct gm_daemon daemon;
	gm_gate_make(&gate);
	/* The backend would not come back from making the reserve. */
	gm_daemon_prepare(&daemon,
		&(struct gm_daemon_options){.config = "[gpumemd]\nfraction = 1.0\nmin_free = 0\n"
						      "reserve = 64M\nhost_limit = 0\n"
						      "[device 0]\nsize = 256M\n"
						      "[device 0 limit uid:7]\nguarantee = 2G\n",
			.env = gate.env});
	require_refusal(
		&daemon, (const char *[]){"gpumemd.conf:9: guarantee: with 2.0G for uid:7", NULL});
	GM_REQUIRE_EQ(gm_daemon_said(&daemon, "does not return"), 0);
	gm_daemon_stop(&daemon);
	gm_gate_end(&gate);
}
END_TEST

START_TEST(a_configuration_that_is_not_there_is_an_error_when_it_was_named)
{
	struct gm_daemon daemon;
	gm_daemon_prepare(&daemon, NULL);
	GM_REQUIRE(unlink(daemon.config) == 0);
	require_refusal(&daemon, (const char *[]){"gpumemd.conf", NULL});
	gm_daemon_stop(&daemon);
}
END_TEST

START_TEST(a_socket_path_that_is_too_long_is_refused)
{
	GM_BOUND_TEST(SOCKET_PATH_BYTES);
	char path[GM_BOUND_SOCKET_PATH_BYTES + 2];
	struct gm_daemon daemon;
	gm_daemon_prepare(&daemon, &(struct gm_daemon_options){.socket = ""});
	int n = snprintf(path, sizeof(path), "%s/run/", daemon.folder);
	memset(path + n, 's', sizeof(path) - (size_t)n);
	path[GM_BOUND_SOCKET_PATH_BYTES + 1] = '\0';
	snprintf(daemon.socket, sizeof(daemon.socket), "%s", path);
	require_refusal(&daemon, (const char *[]){"107", NULL});
	/* One byte less is fine. */
	daemon.socket[GM_BOUND_SOCKET_PATH_BYTES] = '\0';
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon), -1);
	gm_figures_now(&daemon);
	gm_daemon_stop(&daemon);
}
END_TEST

START_TEST(a_socket_of_a_live_daemon_is_not_taken)
{
	struct gm_witness witness;
	gm_witness_start(&witness, NULL);
	struct gm_daemon second;
	gm_daemon_prepare(&second, &(struct gm_daemon_options){.socket = witness.daemon.socket});
	require_refusal(&second, (const char *[]){witness.daemon.socket, NULL});
	gm_daemon_stop(&second);
	/* The first one is where it was, for new connections too. */
	gm_figures_now(&witness.daemon);
	gm_witness_stop(&witness);
}
END_TEST

START_TEST(a_socket_of_a_dead_daemon_is_taken_over)
{
	struct gm_daemon daemon;
	gm_daemon_start(&daemon, NULL);
	gm_daemon_kill(&daemon);
	struct stat st;
	GM_REQUIRE(stat(daemon.socket, &st) == 0);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon), -1);
	gm_figures_now(&daemon);
	gm_daemon_stop(&daemon);
}
END_TEST

START_TEST(a_file_that_is_no_socket_is_left_alone)
{
	struct gm_daemon daemon;
	gm_daemon_prepare(&daemon, NULL);
	int fd = open(daemon.socket, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	GM_REQUIRE(fd >= 0 && write(fd, "dear", 4) == 4);
	close(fd);
	require_refusal(&daemon, (const char *[]){daemon.socket, NULL});
	struct stat st;
	GM_REQUIRE(stat(daemon.socket, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == 4);
	unlink(daemon.socket);
	gm_daemon_stop(&daemon);
}
END_TEST

START_TEST(two_daemons_that_start_at_once_do_not_share_a_socket)
{
	for (int round = 0; round < 5; round++) {
		/* A dead socket lies there, so that both want to take it over. */
		struct gm_daemon a, b;
		gm_daemon_start(&a, NULL);
		gm_daemon_kill(&a);
		gm_daemon_prepare(&b, &(struct gm_daemon_options){.socket = a.socket});
		struct gm_worker worker;
		pid_t pid = fork();
		GM_REQUIRE(pid >= 0);
		if (pid == 0) {
			int status = gm_daemon_spawn(&b);
			if (status == -1) {
				gm_daemon_signal(&b, SIGTERM);
				gm_daemon_wait(&b);
			}
			_exit(status == -1 ? 0 : 1);
		}
		(void)worker;
		int first = gm_daemon_spawn(&a);
		int status;
		GM_REQUIRE(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
		/* One at least got it; if it is ours, it can be reached. */
		GM_REQUIRE(first == -1 || WEXITSTATUS(status) == 0);
		if (first == -1)
			gm_figures_now(&a);
		gm_daemon_stop(&a);
		gm_daemon_stop(&b);
	}
}
END_TEST

/* ---- what a service manager passes */

/* A socket of that type that listens where the daemon's clients look for it, or a little beside. */
static int listening(const struct gm_daemon *daemon, int type, const char *beside)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int n = snprintf(
		address.sun_path, sizeof(address.sun_path), "%s%s", daemon->socket, beside);
	GM_REQUIRE(n > 0 && (size_t)n < sizeof(address.sun_path));
	int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
	GM_REQUIRE(fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
	GM_REQUIRE(listen(fd, 8) == 0);
	return fd;
}

/* What a daemon that stored descriptors could have left: this end of a pipe, whose other end tells
 * when nobody has this one any more, and memory. */
struct stored {
	int pipe[2], memory;
};

static void store(struct stored *stored)
{
	GM_REQUIRE(pipe2(stored->pipe, O_CLOEXEC) == 0);
	stored->memory = memfd_create("chunk", MFD_CLOEXEC);
	GM_REQUIRE(stored->memory >= 0);
}

static void require_closed(struct stored *stored)
{
	struct pollfd end = {.fd = stored->pipe[1]};
	close(stored->memory);
	close(stored->pipe[0]);
	GM_REQUIRE(poll(&end, 1, 60000) == 1 && (end.revents & POLLERR));
	close(stored->pipe[1]);
}

START_TEST(stored_descriptors_that_it_does_not_know_do_not_keep_it_from_serving)
{
	static const char *const names[] = {
		"stored:gpumemd.socket:stored", "chunk:lost\\x20name:ledger", NULL};
	struct gm_daemon daemon;
	struct stored stored;
	gm_daemon_prepare(&daemon, NULL);
	store(&stored);
	int fd = listening(&daemon, SOCK_SEQPACKET, "");
	daemon.options.passed = (int[]){stored.pipe[0], fd, stored.memory};
	daemon.options.n_passed = 3;
	daemon.options.passed_names = names[_i];
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon), -1);
	close(fd);
	gm_figures_now(&daemon);
	require_closed(&stored);
	GM_REQUIRE_EQ(gm_daemon_said(&daemon, "2 descriptors passed"), 1);
	GM_REQUIRE_EQ(gm_daemon_said(&daemon, "descriptors passed"), 1);
	gm_daemon_signal(&daemon, SIGTERM);
	GM_REQUIRE_EQ(gm_daemon_wait(&daemon), 0);
	/* The socket is whoever passed it's. */
	GM_REQUIRE(unlink(daemon.socket) == 0);
	gm_daemon_stop(&daemon);
}
END_TEST

START_TEST(without_a_passed_socket_among_them_it_makes_its_own)
{
	struct gm_daemon daemon;
	struct stored stored;
	gm_daemon_prepare(&daemon, NULL);
	store(&stored);
	daemon.options.passed = (int[]){stored.memory, stored.pipe[0]};
	daemon.options.n_passed = 2;
	daemon.options.passed_names = "stored:stored";
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon), -1);
	gm_figures_now(&daemon);
	require_closed(&stored);
	GM_REQUIRE_EQ(gm_daemon_said(&daemon, "2 descriptors passed"), 1);
	gm_daemon_stop(&daemon);
}
END_TEST

START_TEST(of_several_listening_sockets_the_one_with_its_name_is_served)
{
	struct gm_daemon daemon;
	struct stat st;
	gm_daemon_prepare(&daemon, NULL);
	int other = listening(&daemon, SOCK_SEQPACKET, ".other");
	int fd = listening(&daemon, SOCK_SEQPACKET, "");
	daemon.options.passed = (int[]){other, fd};
	daemon.options.n_passed = 2;
	daemon.options.passed_names = "other.socket:gpumemd.socket";
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon), -1);
	gm_figures_now(&daemon);
	GM_REQUIRE_EQ(gm_daemon_said(&daemon, "1 descriptor passed"), 1);
	gm_daemon_signal(&daemon, SIGTERM);
	GM_REQUIRE_EQ(gm_daemon_wait(&daemon), 0);
	/* Without a name, or when both have it, it cannot tell which is meant. */
	static const char *const names[] = {NULL, "a:b", "gpumemd.socket:gpumemd.socket"};
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		daemon.options.passed_names = names[i];
		require_refusal(&daemon, (const char *[]){"exactly one listening", NULL});
	}
	close(fd);
	close(other);
	char path[sizeof(daemon.socket) + 8];
	snprintf(path, sizeof(path), "%s.other", daemon.socket);
	GM_REQUIRE(stat(path, &st) == 0 && unlink(path) == 0 && unlink(daemon.socket) == 0);
	gm_daemon_stop(&daemon);
}
END_TEST

START_TEST(a_listening_socket_of_another_kind_is_a_mistake)
{
	static const char *const names[] = {NULL, "unknown", "gpumemd.socket"};
	struct gm_daemon daemon;
	gm_daemon_prepare(&daemon, NULL);
	int fd = listening(&daemon, SOCK_STREAM, "");
	daemon.options.passed = &fd;
	daemon.options.n_passed = 1;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		daemon.options.passed_names = names[i];
		require_refusal(&daemon, (const char *[]){"exactly one listening", NULL});
	}
	close(fd);
	GM_REQUIRE(unlink(daemon.socket) == 0);
	gm_daemon_stop(&daemon);
}
END_TEST

START_TEST(ids_are_never_given_again_after_a_restart)
{
	struct gm_daemon daemon;
	uint64_t most = 0, generation = 0;
	gm_daemon_start(&daemon, NULL);
	for (int run = 0; run < 4; run++) {
		struct gm_raw raw;
		gm_raw_join(&raw, &daemon);
		GM_REQUIRE(raw.generation > generation);
		generation = raw.generation;
		uint64_t least_now = raw.session, most_now = raw.session;
		for (int i = 0; i < 20; i++) {
			struct gm_raw_lease lease;
			GM_REQUIRE_EQ(gm_raw_lease(&raw, 0, GM_CHUNK_MIN, &lease), GPUMEM_OK);
			GM_REQUIRE(lease.id != lease.chunks[0].id && lease.id != raw.session);
			uint64_t ids[2] = {lease.id, lease.chunks[0].id};
			for (int k = 0; k < 2; k++) {
				if (ids[k] < least_now)
					least_now = ids[k];
				if (ids[k] > most_now)
					most_now = ids[k];
			}
			gm_raw_lease_clear(&lease);
		}
		GM_REQUIRE(least_now > most);
		most = most_now;
		gm_raw_close(&raw);
		/* Killed and stopped in turn; both restart within the same second. */
		if (run % 2) {
			gm_daemon_signal(&daemon, SIGTERM);
			GM_REQUIRE_EQ(gm_daemon_wait(&daemon), 0);
		} else {
			gm_daemon_kill(&daemon);
		}
		GM_REQUIRE_EQ(gm_daemon_spawn(&daemon), -1);
	}
	gm_daemon_stop(&daemon);
}
END_TEST

/* ---- the daemon's own means */

START_TEST(a_daemon_at_its_fd_limit_refuses_clearly_and_recovers)
{
	struct gm_witness witness;
	gm_witness_start(&witness, NULL);
	/* From now on it may open a few more, and no further ones. */
	struct rlimit limit = {.rlim_cur = gm_daemon_fds(&witness.daemon) + 12};
	struct rlimit before;
	GM_REQUIRE(prlimit(witness.daemon.pid, RLIMIT_NOFILE, NULL, &before) == 0);
	limit.rlim_max = before.rlim_max;
	GM_REQUIRE(prlimit(witness.daemon.pid, RLIMIT_NOFILE, &limit, NULL) == 0);

	struct gm_raw_lease leases[64];
	size_t n = 0;
	gpumem_status status = GPUMEM_OK;
	while (n < 64 && status == GPUMEM_OK) {
		status = gm_raw_lease(&witness.raw, 0, GM_CHUNK_MIN, &leases[n]);
		if (status == GPUMEM_OK)
			n++;
	}
	GM_REQUIRE(status != GPUMEM_OK && status != GPUMEM_E_DISCONNECTED);
	GM_REQUIRE(n < 64);
	/* A GPU's driver has its own words for it. */
	if (!gm_on_gpu()) {
		GM_REQUIRE_EQ(status, GPUMEM_E_LIMIT);
		GM_REQUIRE(strstr(gm_raw_detail(&witness.raw), "LimitNOFILE="));
		char *log = gm_daemon_log(&witness.daemon);
		GM_REQUIRE(strstr(log, "a chunk could not be made: Too many open files; raise "));
		free(log);
	}
	/* Who connects now is refused or waits, and takes nobody down. */
	int sockets[16];
	for (int i = 0; i < 16; i++)
		GM_REQUIRE(gm_seqpacket_connect(witness.daemon.socket, 10000, &sockets[i]) == 0);
	Gm__Wire__GetDevices get = GM__WIRE__GET_DEVICES__INIT;
	for (int i = 0; i < 10; i++)
		GM_REQUIRE_EQ(
			gm_raw_call(&witness.raw, GM_RAW_PACKET(GET_DEVICES, get_devices, &get)),
			GPUMEM_OK);
	for (int i = 0; i < 16; i++)
		close(sockets[i]);
	GM_REQUIRE(prlimit(witness.daemon.pid, RLIMIT_NOFILE, &before, NULL) == 0);
	for (size_t i = 0; i < n; i++) {
		uint64_t id = leases[i].id;
		gm_raw_lease_clear(&leases[i]);
		GM_REQUIRE_EQ(gm_raw_return(&witness.raw, id, NULL, 0), GPUMEM_OK);
	}
	gm_witness_stop(&witness);
}
END_TEST

START_TEST(a_daemon_at_its_fd_limit_does_not_spin)
{
	struct gm_witness witness;
	gm_witness_start(&witness, NULL);
	struct rlimit limit, before;
	GM_REQUIRE(prlimit(witness.daemon.pid, RLIMIT_NOFILE, NULL, &before) == 0);
	limit = before;
	limit.rlim_cur = gm_daemon_fds(&witness.daemon);
	GM_REQUIRE(prlimit(witness.daemon.pid, RLIMIT_NOFILE, &limit, NULL) == 0);
	int sockets[8];
	for (int i = 0; i < 8; i++)
		GM_REQUIRE(gm_seqpacket_connect(witness.daemon.socket, 10000, &sockets[i]) == 0);
	/* A loop that is woken over and over by a connection it cannot accept uses all the CPU time
	 * there is: in the time this test burns itself, the daemon must burn almost none. */
	Gm__Wire__GetDevices get = GM__WIRE__GET_DEVICES__INIT;
	GM_REQUIRE_EQ(gm_raw_call(&witness.raw, GM_RAW_PACKET(GET_DEVICES, get_devices, &get)),
		GPUMEM_OK);
	uint64_t used = gm_daemon_cpu_ns(&witness.daemon);
	struct rusage usage;
	do {
		GM_REQUIRE(getrusage(RUSAGE_SELF, &usage) == 0);
	} while (usage.ru_utime.tv_sec * 1000 + usage.ru_utime.tv_usec / 1000 +
			 usage.ru_stime.tv_sec * 1000 + usage.ru_stime.tv_usec / 1000 <
		 400);
	used = gm_daemon_cpu_ns(&witness.daemon) - used;
	GM_REQUIRE(used < UINT64_C(100000000));
	for (int i = 0; i < 8; i++)
		close(sockets[i]);
	GM_REQUIRE(prlimit(witness.daemon.pid, RLIMIT_NOFILE, &before, NULL) == 0);
	gm_witness_stop(&witness);
}
END_TEST

static uint64_t virtual_bytes(pid_t pid)
{
	char path[64];
	snprintf(path, sizeof(path), "/proc/%d/statm", (int)pid);
	FILE *f = fopen(path, "re");
	unsigned long pages;
	GM_REQUIRE(f && fscanf(f, "%lu", &pages) == 1);
	fclose(f);
	return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

START_TEST(a_daemon_without_memory_of_its_own_refuses_clearly_and_recovers)
{
	struct gm_witness witness;
	gm_witness_start(&witness,
		&(struct gm_daemon_options){
			.config = GM_DAEMON_CONFIG_WITH("connections_per_uid = 8192\n", "1G")});
	struct rlimit before, limit;
	GM_REQUIRE(prlimit(witness.daemon.pid, RLIMIT_AS, NULL, &before) == 0);
	limit = before;
	limit.rlim_cur = virtual_bytes(witness.daemon.pid) + 65536;
	GM_REQUIRE(prlimit(witness.daemon.pid, RLIMIT_AS, &limit, NULL) == 0);

	/* Clients come until one is turned away, or enough came to have needed more. */
	enum { MOST = 900 };
	struct gm_raw *raws = calloc(MOST, sizeof(*raws));
	GM_REQUIRE(raws);
	size_t n = 0, refused = 0;
	Gm__Wire__Hello hello = GM__WIRE__HELLO__INIT;
	hello.major = GM_WIRE_MAJOR;
	hello.name = (char *)"one of many";
	for (; n < MOST && refused < 20; n++) {
		GM_REQUIRE(gm_raw_connect(&raws[n], witness.daemon.socket) == 0);
		gpumem_status status = gm_raw_call(&raws[n], GM_RAW_PACKET(HELLO, hello, &hello));
		if (status == GPUMEM_OK) {
			raws[n].wakeup = gm_fdlist_steal(&raws[n].fds, 0);
			continue;
		}
		/* Told so, or hung up on, but never anything else. */
		GM_REQUIRE(status == GPUMEM_E_HOST_MEMORY || status == GPUMEM_E_DISCONNECTED ||
			   status == GPUMEM_E_SYSTEM);
		refused++;
	}
	if (refused == 0)
		GM_FAIL("%d clients needed no memory at all", MOST);
	/* The witness has been served all the time: what it asks may be refused, never lost. */
	for (int i = 0; i < 50; i++) {
		struct gm_raw_lease lease;
		gpumem_status status = gm_raw_lease(&witness.raw, 0, GM_CHUNK_MIN, &lease);
		GM_REQUIRE(status == GPUMEM_OK || status == GPUMEM_E_HOST_MEMORY ||
			   status == GPUMEM_E_SYSTEM);
		if (status == GPUMEM_OK) {
			GM_REQUIRE_EQ(gm_raw_give_back(&witness.raw, &lease), GPUMEM_OK);
		}
	}
	GM_REQUIRE(prlimit(witness.daemon.pid, RLIMIT_AS, &before, NULL) == 0);
	for (size_t i = 0; i < n; i++)
		gm_raw_close(&raws[i]);
	free(raws);
	gm_witness_stop(&witness);
}
END_TEST

START_TEST(a_backend_out_of_memory_refuses_the_one_and_keeps_nothing)
{
	const char *env[] = {"GPUMEM_TEST_HOST_FAIL=4+", NULL};
	struct gm_witness witness;
	gm_witness_start(&witness, &(struct gm_daemon_options){.env = env});
	struct gm_raw_lease lease, other;
	/* One of three chunks can be made: all or nothing. */
	GM_REQUIRE_EQ(gm_raw_lease(&witness.raw, 0, 14 * GM_CHUNK_MIN, &lease), GPUMEM_E_NO_MEMORY);
	GM_UNTIL(gm_figures_now(&witness.daemon).admitted == 0);
	GM_REQUIRE_EQ(gm_figures_now(&witness.daemon).leased, GM_CHUNK_MIN);
	GM_REQUIRE_EQ(gm_raw_lease(&witness.raw, 0, 2 * GM_CHUNK_MIN, &other), GPUMEM_E_NO_MEMORY);
	/* What was given back can be had again all the same. */
	uint64_t id = witness.lease.id;
	gm_raw_lease_clear(&witness.lease);
	GM_REQUIRE_EQ(gm_raw_return(&witness.raw, id, NULL, 0), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_figures_now(&witness.daemon).leased, 0);
	gm_raw_close(&witness.raw);
	gm_daemon_stop(&witness.daemon);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("start");
	TCase *tc = tcase_create("start");
	tcase_set_timeout(tc, 180);
	tcase_add_test(tc, a_configuration_with_a_typo_names_file_line_and_key);
	tcase_add_test(tc, a_value_that_makes_no_sense_names_file_line_and_key);
	tcase_add_test(tc, a_backend_that_there_is_not_is_wrong_usage);
	tcase_add_test(tc, an_option_that_there_is_not_is_wrong_usage_and_may_have_been_another);
	tcase_add_test(tc, a_check_of_the_configuration_knows_what_host_memory_can_hold);
	tcase_add_test(tc,
		a_check_of_the_configuration_looks_at_the_gpus_and_refuses_a_backend_without_any);
	tcase_add_test(tc, limits_that_do_not_fit_are_refused_before_anything_is_made);
	tcase_add_test(tc, a_configuration_that_is_not_there_is_an_error_when_it_was_named);
	tcase_add_test(tc, a_socket_path_that_is_too_long_is_refused);
	tcase_add_test(tc, a_socket_of_a_live_daemon_is_not_taken);
	tcase_add_test(tc, a_socket_of_a_dead_daemon_is_taken_over);
	tcase_add_test(tc, a_file_that_is_no_socket_is_left_alone);
	tcase_add_test(tc, two_daemons_that_start_at_once_do_not_share_a_socket);
	tcase_add_loop_test(
		tc, stored_descriptors_that_it_does_not_know_do_not_keep_it_from_serving, 0, 3);
	tcase_add_test(tc, without_a_passed_socket_among_them_it_makes_its_own);
	tcase_add_test(tc, of_several_listening_sockets_the_one_with_its_name_is_served);
	tcase_add_test(tc, a_listening_socket_of_another_kind_is_a_mistake);
	tcase_add_test(tc, ids_are_never_given_again_after_a_restart);
	tcase_add_test(tc, a_backend_out_of_memory_refuses_the_one_and_keeps_nothing);
	suite_add_tcase(suite, tc);
	tc = tcase_create("the daemon's own means");
	tcase_set_timeout(tc, 180);
	tcase_add_test(tc, a_daemon_at_its_fd_limit_refuses_clearly_and_recovers);
	tcase_add_test(tc, a_daemon_at_its_fd_limit_does_not_spin);
	/* A sanitizer's own mappings leave no room for such a limit. */
	if (!gm_sanitized())
		tcase_add_test(tc, a_daemon_without_memory_of_its_own_refuses_clearly_and_recovers);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
