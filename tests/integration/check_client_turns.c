/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Programs that use one device by turns, because it has room for one of them only: each has a region,
 * works in it for a while, and pauses it so that another can work. What a program finds after a resume is
 * what it left there, byte for byte, whoever had the memory meanwhile, and whoever was killed.
 *
 *   GPUMEM_TEST_STORM  how many processes are killed
 *   GPUMEM_TEST_SEED   which random moments
 */

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "gpumem/gpumem_region.h"
#include "tests/integration/device.h"
#include "tests/integration/device_bytes.h"
#include "tests/integration/ok.h"
#include "tests/integration/raw.h"
#include "tests/tap.h"

#define MIB (UINT64_C(1) << 20)

/* The device has room for one of the regions. */
#define CONFIG \
	"[gpumemd]\nfraction = 1.0\nmin_free = 0\nreserve = 0\nmax_pool = 100%\n" \
	"pressure_dwell = 0s\nhost_limit = 256M\n[device 0]\nsize = 32M\n"
enum { WORKERS = 3, TURNS = 6, KILLS = 10 };
#define REGION (24 * MIB)
#define HOST   1 /* the device that stands for pinned host memory */

/* Workers are forked, and start threads of their own: thread sanitizer takes that for a mistake
 * unless told. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
	return "die_after_fork=0";
}

static struct gm_daemon daemon_;

static void set_up(void)
{
	gm_daemon_start(&daemon_, &(struct gm_daemon_options){.config = CONFIG});
}

static uint64_t pooled_on(uint32_t device)
{
	struct gm_figures f;
	gm_figures_of(&daemon_, device, &f);
	return f.pooled;
}

static uint64_t charged_on(uint32_t device)
{
	struct gm_figures f;
	gm_figures_of(&daemon_, device, &f);
	return f.leased + f.quarantined + f.admitted;
}

/* Nobody holds anything, and the device has no more than the pool says. */
static void tear_down(void)
{
	GM_UNTIL(gm_figures_now(&daemon_).clients == 0);
	GM_UNTIL(charged_on(0) == 0 && charged_on(HOST) == 0);
	GM_UNTIL(gm_device_bytes(&daemon_) == pooled_on(0) + (gm_on_gpu() ? 0 : pooled_on(HOST)));
	gm_daemon_stop(&daemon_);
}

static unsigned environment(const char *name, unsigned otherwise)
{
	const char *value = getenv(name);
	return value ? (unsigned)strtoul(value, NULL, 10) : otherwise;
}

/* ---- a program that takes turns */

static _Atomic unsigned *steps; /* of each worker, for the test */

struct program {
	gpumem_session *session;
	gpumem_region *region;
	uint8_t *small, *large;
	unsigned number;
};

#define SMALL MIB
#define LARGE (20 * MIB)

static void begin(struct program *p, unsigned number)
{
	gpumem_connect_options options = GPUMEM_CONNECT_OPTIONS_INIT;
	gpumem_region_options wanted = GPUMEM_REGION_OPTIONS_INIT;

	p->number = number;
	options.socket = daemon_.socket;
	options.name = "takes turns";
	/* The daemon may be killed as the program begins. */
	while (gpumem_connect(&options, &p->session))
		;
	wanted.initial = REGION;
	wanted.wait_ms = GPUMEM_WAIT_FOREVER;
	OK(gpumem_region_create(p->session, 0, "work", REGION, &wanted, &p->region));
	OK(gpumem_region_alloc(p->region, SMALL, NULL, NULL, (void **)&p->small));
	OK(gpumem_region_alloc(p->region, LARGE, NULL, NULL, (void **)&p->large));
}

/* What the program leaves in its region in a turn, and finds in the next one. */
static void work(const struct program *p, unsigned turn)
{
	gm_device_set(p->small, SMALL, (uint8_t)(turn * WORKERS + p->number));
	gm_device_set(p->large, LARGE, (uint8_t) ~(turn * WORKERS + p->number));
}

static void require_work(const struct program *p, unsigned turn)
{
	GM_REQUIRE(gm_device_is(p->small, SMALL, (uint8_t)(turn * WORKERS + p->number)));
	GM_REQUIRE(gm_device_is(p->large, LARGE, (uint8_t) ~(turn * WORKERS + p->number)));
}

static void take_turn(const struct program *p, unsigned turn)
{
	work(p, turn);
	OK(gpumem_region_pause(p->session, "work", GPUMEM_REGION_KEEP));
	atomic_fetch_add(&steps[p->number], 1);
	OK(gpumem_region_resume(p->session, "work", GPUMEM_WAIT_FOREVER));
	atomic_fetch_add(&steps[p->number], 1);
	require_work(p, turn);
}

static void take_turns(int channel, void *argument)
{
	struct program p = {0};
	begin(&p, (unsigned)(uintptr_t)argument);
	for (unsigned turn = 0; turn < TURNS; turn++)
		take_turn(&p, turn);
	gpumem_region_destroy(p.region);
	gpumem_disconnect(p.session);
}

static void take_turns_for_ever(int channel, void *argument)
{
	struct program p = {0};
	begin(&p, (unsigned)(uintptr_t)argument);
	for (unsigned turn = 0;; turn++)
		take_turn(&p, turn);
}

static void make_steps(void)
{
	steps = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	GM_REQUIRE(steps != MAP_FAILED);
}

/* ---- the cases */

START_TEST(programs_that_do_not_fit_together_take_turns)
{
	struct gm_worker workers[WORKERS];
	make_steps();
	for (uintptr_t i = 0; i < WORKERS; i++)
		gm_worker_start(&workers[i], take_turns, (void *)i);
	for (unsigned i = 0; i < WORKERS; i++)
		gm_worker_join(&workers[i]);
	for (unsigned i = 0; i < WORKERS; i++)
		GM_REQUIRE_EQ(steps[i], 2 * TURNS);
}
END_TEST

static void kill_worker(struct gm_worker *worker)
{
	siginfo_t info = {0};
	GM_REQUIRE(kill(worker->pid, SIGKILL) == 0);
	GM_REQUIRE(waitid(P_PID, (id_t)worker->pid, &info, WEXITED | WNOWAIT) == 0);
	if (info.si_code != CLD_KILLED || info.si_status != SIGKILL)
		GM_FAIL("a worker ended by itself, with %d", info.si_status);
	gm_worker_kill(worker);
}

START_TEST(programs_take_turns_whoever_is_killed)
{
	struct gm_worker workers[WORKERS];
	unsigned kills = environment("GPUMEM_TEST_STORM", KILLS);
	unsigned seed = environment("GPUMEM_TEST_SEED", (unsigned)time(NULL));
	printf("# GPUMEM_TEST_SEED=%u\n", seed);
	make_steps();
	for (uintptr_t i = 0; i < WORKERS; i++)
		gm_worker_start(&workers[i], take_turns_for_ever, (void *)i);

	for (unsigned i = 0; i < kills; i++) {
		unsigned victim = (unsigned)rand_r(&seed) % WORKERS;
		/* Any moment of a turn will do. */
		usleep((useconds_t)rand_r(&seed) % 30000);
		if (rand_r(&seed) % 6 == 0) {
			gm_daemon_kill(&daemon_);
			GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
		} else {
			kill_worker(&workers[victim]);
			gm_worker_start(
				&workers[victim], take_turns_for_ever, (void *)(uintptr_t)victim);
		}
		/* Whoever it was, the others go on. */
		unsigned other = (victim + 1) % WORKERS, from = steps[other];
		GM_UNTIL(steps[other] != from);
	}
	for (unsigned i = 0; i < WORKERS; i++)
		kill_worker(&workers[i]);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client turns");
	TCase *tc = tcase_create("client turns");
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_set_timeout(tc, 600);
	tcase_add_test(tc, programs_that_do_not_fit_together_take_turns);
	tcase_add_test(tc, programs_take_turns_whoever_is_killed);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
