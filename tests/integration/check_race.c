/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * 64 processes that make 100,000 requests as fast as they can, against a device and limits that
 * have room for a fraction of it: some wait, some do not, some die. Whatever they do, and whenever
 * one looks, no limit is passed by a byte and the backend has no more than the device; and whenever
 * they pause, as in the end, the books say what the backend has. GPUMEM_TEST_REQUESTS is another
 * number of requests; make check-all makes a million.
 */

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/raw.h"
#include "tests/tap.h"

#define MiB      (UINT64_C(1) << 20)
#define CLIENTS  64
#define ROUNDS   5
#define REQUESTS (gm_sanitized() ? 25000 : 100000) /* of all in all rounds; and as many returns */
#define DEVICE   (160 * MiB)
#define LOW_MAX  (48 * MiB)

#define CONFIG \
	GM_DAEMON_CONFIG_WITH("reclaim_deadline = 1ms\n", "160M") \
	"[limit client:low]\nmax = 48M\n"

static struct gm_daemon daemon_;

struct racer {
	unsigned number;
	unsigned requests; /* a round */
};

static uint32_t next(uint32_t *state)
{
	*state = *state * 1664525 + 1013904223;
	return *state >> 8;
}

/* Half of them call themselves "low", and may hold 48 MiB together. */
static void race(int channel, void *argument)
{
	const struct racer *me = argument;
	struct gm_raw raw;
	Gm__Wire__Hello hello = GM__WIRE__HELLO__INIT;
	uint64_t held[8], n = 0, granted = 0;
	uint32_t state = me->number * 7919 + 1;
	hello.major = GM_WIRE_MAJOR;
	hello.minor = GM_WIRE_MINOR;
	hello.name = (char *)(me->number % 2 ? "low" : "high");
	GM_REQUIRE_EQ(gm_raw_hello(&raw, daemon_.socket, &hello), GPUMEM_OK);
	gm_text_say_word(channel, 'r');
	gm_hear_word(channel, 'g');
	for (unsigned i = 0; i < ROUNDS * me->requests; i++) {
		/* Between two rounds everybody keeps still with what it holds. */
		if (i && i % me->requests == 0) {
			gm_text_say_word(channel, 'p');
			gm_hear_word(channel, 'g');
		}
		Gm__Wire__Lease body = GM__WIRE__LEASE__INIT;
		body.bytes = (1 + next(&state) % 6) * 2 * MiB;
		/* Each wait has a deadline, so none is a deadlock. */
		body.wait_ms = next(&state) % 4 == 0 ? 1 + next(&state) % 20 : 0;
		body.no_wait = !body.wait_ms;
		gpumem_status status = gm_raw_call(&raw, GM_RAW_PACKET(LEASE, lease, &body));
		if (status == GPUMEM_OK) {
			struct gm_raw_lease got = {0};
			held[n++] = raw.packet->lease_reply->lease;
			GM_REQUIRE_EQ(gm_raw_collect(&raw, &got), GPUMEM_OK);
			gm_raw_lease_clear(&got);
			granted++;
		} else {
			GM_REQUIRE(status == GPUMEM_E_NO_MEMORY || status == GPUMEM_E_LIMIT ||
				   status == GPUMEM_E_TIMEOUT);
		}
		while (n && (status != GPUMEM_OK || n == 8 || next(&state) % 2))
			GM_REQUIRE_EQ(gm_raw_return(&raw, held[--n], NULL, 0), GPUMEM_OK);
	}
	gm_text_say(channel, &granted, sizeof(granted));
	/* One in four dies with what it holds. */
	if (me->number % 4 == 3)
		_exit(0);
	gm_raw_close(&raw);
}

/* What is held must never be above what may be; asked again and again while they race. */
static void look(struct gm_raw *ctl)
{
	Gm__Wire__GetLimits limits = GM__WIRE__GET_LIMITS__INIT;
	GM_REQUIRE_EQ(gm_raw_call(ctl, GM_RAW_PACKET(GET_LIMITS, get_limits, &limits)), GPUMEM_OK);
	GM_REQUIRE_EQ(ctl->packet->limits->n_limits, 1);
	GM_REQUIRE(!ctl->packet->limits->limits[0]->over);
	GM_REQUIRE(ctl->packet->limits->limits[0]->held <= LOW_MAX);
	Gm__Wire__GetDevices devices = GM__WIRE__GET_DEVICES__INIT;
	GM_REQUIRE_EQ(
		gm_raw_call(ctl, GM_RAW_PACKET(GET_DEVICES, get_devices, &devices)), GPUMEM_OK);
	const Gm__Wire__Device *d = ctl->packet->devices->devices[0];
	uint64_t charged = d->leased + d->quarantined + d->admitted;
	GM_REQUIRE(charged <= d->ceiling);
	GM_REQUIRE(charged + d->pooled <= d->ceiling);
	GM_REQUIRE_EQ(d->available, d->ceiling - charged);
}

/* What the backend has: each chunk is a file of the daemon's, a memfd or one on the fake GPU, and
 * counts once however many fds it has while it is made. */
static uint64_t backend_bytes(void)
{
	const char *kind = gm_on_gpu() ? "/gpu0/" : "memfd:gpumem-chunk";
	char folder[64];
	uint64_t bytes = 0;
	ino_t seen[2 * DEVICE / GM_CHUNK_MIN];
	size_t n_seen = 0;
	snprintf(folder, sizeof(folder), "/proc/%d/fd", (int)daemon_.pid);
	DIR *fds = opendir(folder);
	GM_REQUIRE(fds);
	for (struct dirent *entry; (entry = readdir(fds));) {
		char target[256];
		size_t i = 0;
		struct stat st;
		ssize_t n = readlinkat(dirfd(fds), entry->d_name, target, sizeof(target) - 1);
		if (n < 0)
			continue;
		target[n] = '\0';
		if (!strstr(target, kind) || fstatat(dirfd(fds), entry->d_name, &st, 0) < 0)
			continue;
		while (i < n_seen && seen[i] != st.st_ino)
			i++;
		if (i < n_seen)
			continue;
		GM_REQUIRE(n_seen < sizeof(seen) / sizeof(seen[0]));
		seen[n_seen++] = st.st_ino;
		bytes += (uint64_t)st.st_size;
	}
	closedir(fds);
	return bytes;
}

/* The same at one moment of the race: nothing comes or goes while it is counted. */
static void count(void)
{
	siginfo_t info;
	gm_daemon_signal(&daemon_, SIGSTOP);
	GM_REQUIRE(waitid(P_PID, (id_t)daemon_.pid, &info, WSTOPPED) == 0);
	uint64_t bytes = backend_bytes();
	gm_daemon_signal(&daemon_, SIGCONT);
	if (bytes > DEVICE)
		GM_FAIL("the backend has %llu bytes, and the device %llu",
			(unsigned long long)bytes, (unsigned long long)DEVICE);
}

static uint64_t booked(void)
{
	struct gm_figures now = gm_figures_now(&daemon_);
	return now.leased + now.quarantined + now.pooled;
}

static bool heard_within(int channel, int ms)
{
	struct pollfd fd = {.fd = channel, .events = POLLIN};
	return poll(&fd, 1, ms) == 1;
}

/* Nobody asks for anything: the books say what the backend has, down to the byte. */
static void compare(struct gm_raw *ctl)
{
	look(ctl);
	GM_UNTIL(booked() == backend_bytes());
	GM_REQUIRE(backend_bytes() > 0);
}

START_TEST(racing_processes_pass_no_limit_and_leave_true_books)
{
	static struct gm_worker workers[CLIENTS];
	static struct racer racers[CLIENTS];
	struct gm_raw ctl;
	uint64_t granted = 0, looks = 0;
	const char *wanted = getenv("GPUMEM_TEST_REQUESTS");
	unsigned requests = (wanted ? (unsigned)atoi(wanted) : REQUESTS) / (CLIENTS * ROUNDS);
	gm_daemon_start(&daemon_, &(struct gm_daemon_options){.config = CONFIG});
	gm_raw_observe(&ctl, &daemon_);
	for (unsigned i = 0; i < CLIENTS; i++) {
		racers[i] = (struct racer){i, requests};
		gm_worker_start(&workers[i], race, &racers[i]);
		gm_hear_word(workers[i].channel, 'r');
	}
	for (unsigned round = 0; round < ROUNDS; round++) {
		for (unsigned i = 0; i < CLIENTS; i++)
			gm_text_say_word(workers[i].channel, 'g');
		for (unsigned i = 0; i < CLIENTS; i++) {
			uint64_t one;
			while (!heard_within(workers[i].channel, 1)) {
				look(&ctl);
				if (looks++ % 8 == 0)
					count();
			}
			if (round + 1 < ROUNDS) {
				gm_hear_word(workers[i].channel, 'p');
				continue;
			}
			gm_hear(workers[i].channel, &one, sizeof(one));
			granted += one;
		}
		if (round + 1 < ROUNDS)
			compare(&ctl);
	}
	for (unsigned i = 0; i < CLIENTS; i++)
		gm_worker_join(&workers[i]);
	look(&ctl);
	GM_UNTIL(gm_figures_now(&daemon_).leased == 0 && gm_figures_now(&daemon_).quarantined == 0);
	/* What the backend has is what the books say, whatever is pooled by now. */
	struct gm_raw after;
	struct gm_raw_lease lease;
	gm_raw_join(&after, &daemon_);
	GM_REQUIRE_EQ(gm_raw_lease(&after, 0, 40 * MiB, &lease), GPUMEM_OK);
	gm_raw_lease_clear(&lease);
	GM_UNTIL(booked() == backend_bytes());
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).leased, 40 * MiB);
	gm_raw_close(&after);
	printf("# %u clients, %u requests, %llu granted, %llu looks\n", CLIENTS,
		CLIENTS * ROUNDS * requests, (unsigned long long)granted,
		(unsigned long long)looks);
	GM_REQUIRE(granted > CLIENTS);
	gm_raw_close(&ctl);
	gm_daemon_stop(&daemon_);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("race");
	TCase *tcase = tcase_create("race");
	tcase_set_timeout(tcase, 600);
	tcase_add_test(tcase, racing_processes_pass_no_limit_and_leave_true_books);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
