/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * The daemon, its keeper, or both in turns are killed again and again under many workers that hold
 * memory, check it, share it, and ask for more all the time. No call of a worker fails, every buffer
 * keeps its contents, and the daemon's books say what the workers hold.
 *
 * In each round the victim dies twice: at a random moment while the workers run, and once while they
 * pause. After the first, the books are compared with what the workers say. After the second, they
 * are compared with themselves.
 *
 *   GPUMEM_TEST_KILLS     rounds of each case
 *   GPUMEM_TEST_SEED      which random moments and steps
 *   GPUMEM_TEST_READY_MS  fail if a killed daemon takes longer to be ready again; 0: only say how long
 */

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "gpumem/gpumem.h"
#include "tests/end_keeper.h"
#include "tests/integration/device.h"
#include "tests/integration/ok.h"
#include "tests/integration/scene.h"
#include "tests/tap.h"

#define MIB (UINT64_C(1) << 20)

enum {
	WORKERS_MOST = 50,
	BUFFERS = 20, /* of each worker, at every moment */
	MARKS = 5,    /* places of a buffer that are filled */
	MARK_BYTES = 64,
	KILLS = 2,
};

/* A fake GPU allocates memory when it is created, not when it is touched. */
static unsigned workers_wanted(void)
{
	return gm_on_gpu() || gm_sanitized() ? 10 : WORKERS_MOST;
}

/* Workers are forked, and start threads of their own: thread sanitizer takes that for a mistake
 * unless told. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
	return "die_after_fork=0";
}

static struct gm_daemon daemon_;
static unsigned n_workers;

/* What the workers have in common: how far each one is, and the tokens of buffers that each shares
 * for as long as it lives, one with its own user and one with the other. */
struct board {
	_Atomic unsigned steps[WORKERS_MOST];
	gpumem_token own[WORKERS_MOST], other[WORKERS_MOST];
};
static struct board *board;

struct role {
	unsigned number;
	unsigned seed;
};

/* What a worker says of itself while it pauses. */
struct account {
	uint64_t held;
	uint64_t buffers;
};

/* Two users, where there can be; otherwise one that is both. */
static uid_t uids[2];

static void choose_users(void)
{
	uids[0] = geteuid();
	uids[1] = gm_tap_has_users() ? GM_STRANGER : geteuid();
}

static uid_t uid_of(unsigned number)
{
	return uids[number % 2];
}

static unsigned environment(const char *name, unsigned otherwise)
{
	const char *value = getenv(name);
	return value ? (unsigned)strtoul(value, NULL, 10) : otherwise;
}

/* ---- a worker */

struct held {
	gpumem_buffer *buffer; /* NULL: a pointer */
	uint8_t *ptr;
	size_t bytes;
	uint8_t mark;
};

struct worker {
	gpumem_session *session;
	struct held held[BUFFERS];
	unsigned number, seed;
};

/* From the first byte to the last. */
static size_t mark_offset(size_t bytes, unsigned i)
{
	return bytes <= MARK_BYTES ? 0 : (bytes - MARK_BYTES) / (MARKS - 1) * i;
}

static void mark(const struct held *held)
{
	size_t n = held->bytes < MARK_BYTES ? held->bytes : MARK_BYTES;
	for (unsigned i = 0; i < MARKS; i++)
		gm_device_set(held->ptr + mark_offset(held->bytes, i), n, held->mark);
}

static void require_mark(const uint8_t *ptr, size_t bytes, uint8_t value)
{
	size_t n = bytes < MARK_BYTES ? bytes : MARK_BYTES;
	for (unsigned i = 0; i < MARKS; i++)
		if (!gm_device_is(ptr + mark_offset(bytes, i), n, value))
			GM_FAIL("a buffer of %zu bytes has lost its contents", bytes);
}

static void take(struct worker *worker, struct held *ret)
{
	static const size_t sizes[] = {1000, 40000, 2 * MIB, 2 * MIB, 3 * MIB, 5 * MIB};
	size_t bytes = sizes[(unsigned)rand_r(&worker->seed) % 6];
	void *ptr;
	*ret = (struct held){.mark = (uint8_t)(1 + rand_r(&worker->seed) % 255)};
	ret->bytes = bytes - (size_t)rand_r(&worker->seed) % 900;
	if (rand_r(&worker->seed) % 2) {
		OK(gpumem_buffer_create(worker->session, 0, ret->bytes, NULL, &ret->buffer));
		ptr = gpumem_buffer_ptr(ret->buffer);
	} else {
		OK(gpumem_alloc(worker->session, 0, ret->bytes, NULL, NULL, &ptr));
	}
	ret->ptr = ptr;
	mark(ret);
}

static void give(struct worker *worker, struct held *held)
{
	require_mark(held->ptr, held->bytes, held->mark);
	if (held->buffer)
		gpumem_buffer_destroy(held->buffer);
	else
		OK(gpumem_free(worker->session, held->ptr, GPUMEM_STREAM_DONE));
	*held = (struct held){0};
}

/* The first two buffers stay, and each is shared. Their marks follow from the worker's number. */
static uint8_t shared_mark(unsigned number, bool other)
{
	return (uint8_t)(1 + number * 2 + other);
}

static void share_for_life(struct worker *worker, bool other)
{
	struct held *held = &worker->held[other];
	gpumem_share_options options = GPUMEM_SHARE_OPTIONS_INIT;
	gpumem_buffer_options made = GPUMEM_BUFFER_OPTIONS_INIT;
	if (other) {
		made.flags = GPUMEM_BUFFER_FOR_OTHERS;
		options.flags = GPUMEM_READERS_CAN_WRITE;
		options.audience = GPUMEM_AUDIENCE_UID;
		options.id = (uint32_t)uid_of(worker->number + 1);
	}
	held->bytes = 3 * MIB;
	held->mark = shared_mark(worker->number, other);
	OK(gpumem_buffer_create(worker->session, 0, held->bytes, &made, &held->buffer));
	held->ptr = gpumem_buffer_ptr(held->buffer);
	mark(held);
	OK(gpumem_share(held->buffer, &options,
		other ? &board->other[worker->number] : &board->own[worker->number]));
}

/* Looks into a buffer of another worker: of one of the same user, or of one of the other. */
static void visit(struct worker *worker)
{
	bool other = rand_r(&worker->seed) % 2;
	unsigned distance = 2 * ((unsigned)rand_r(&worker->seed) % n_workers) + other;
	unsigned whose = (worker->number + distance) % n_workers;
	gpumem_buffer *view;
	OK(gpumem_open(worker->session, other ? &board->other[whose] : &board->own[whose], &view));
	require_mark(gpumem_buffer_ptr(view), gpumem_buffer_size(view), shared_mark(whose, other));
	gpumem_buffer_destroy(view);
}

/* Shares a buffer for a moment, and opens it itself. The buffer or the view may go first. */
static void share_for_a_moment(struct worker *worker)
{
	gpumem_buffer *both[2];
	unsigned first = (unsigned)rand_r(&worker->seed) % 2;
	gpumem_token token;
	OK(gpumem_buffer_create(worker->session, 0, 2 * MIB, NULL, &both[0]));
	gm_device_set(gpumem_buffer_ptr(both[0]), MARK_BYTES, 7);
	OK(gpumem_share(both[0], NULL, &token));
	OK(gpumem_open(worker->session, &token, &both[1]));
	if (rand_r(&worker->seed) % 2)
		OK(gpumem_unshare(both[0]));
	gpumem_buffer_destroy(both[first]);
	GM_REQUIRE(gm_device_is(gpumem_buffer_ptr(both[!first]), MARK_BYTES, 7));
	gpumem_buffer_destroy(both[!first]);
}

static void check_all(const struct worker *worker)
{
	for (unsigned i = 0; i < BUFFERS; i++)
		require_mark(worker->held[i].ptr, worker->held[i].bytes, worker->held[i].mark);
}

static void step(struct worker *worker)
{
	struct held fresh;
	struct held *held = &worker->held[2 + (unsigned)rand_r(&worker->seed) % (BUFFERS - 2)];
	switch (rand_r(&worker->seed) % 8) {
	case 0:
		visit(worker);
		break;
	case 1:
		share_for_a_moment(worker);
		break;
	case 2:
		check_all(worker);
		break;
	case 3:
		OK(gpumem_trim(worker->session, NULL));
		break;
	default: /* at no moment it holds fewer */
		take(worker, &fresh);
		give(worker, held);
		*held = fresh;
	}
	board->steps[worker->number]++;
}

static void report(int channel, const struct worker *worker)
{
	gpumem_stats_t stats = GPUMEM_STATS_INIT;
	check_all(worker);
	OK(gpumem_trim(worker->session, NULL));
	OK(gpumem_stats(worker->session, 0, &stats));
	struct account account = {stats.allocated, stats.active_buffers};
	gm_text_say(channel, &account, sizeof(account));
}

/* Between steps the test may say p: the worker pauses and gives account, and does so again for each
 * further p, until it hears g. */
static void work(int channel, void *argument)
{
	const struct role *role = argument;
	struct worker worker = {.number = role->number, .seed = role->seed};
	gpumem_connect_options options = GPUMEM_CONNECT_OPTIONS_INIT;
	char word = 'g';

	if (uid_of(role->number) != geteuid())
		gm_become_stranger();
	options.socket = daemon_.socket;
	options.name = "worker";
	OK(gpumem_connect(&options, &worker.session));
	share_for_life(&worker, false);
	share_for_life(&worker, true);
	for (unsigned i = 2; i < BUFFERS; i++)
		take(&worker, &worker.held[i]);
	gm_text_say_word(channel, 'r');
	gm_hear_word(channel, 'g');

	while (word != 'e') {
		if (word == 'g' && !gm_raw_readable(channel)) {
			step(&worker);
			continue;
		}
		gm_hear(channel, &word, 1);
		if (word == 'p')
			report(channel, &worker);
	}
	for (unsigned i = 0; i < BUFFERS; i++)
		give(&worker, &worker.held[i]);
	gpumem_disconnect(worker.session);
}

/* ---- the test's side */

static struct gm_worker workers[WORKERS_MOST];

static void say_to_all(char word)
{
	for (unsigned i = 0; i < n_workers; i++)
		gm_text_say_word(workers[i].channel, word);
}

static void await_steps(unsigned n)
{
	for (unsigned i = 0; i < n_workers; i++) {
		unsigned from = board->steps[i];
		GM_UNTIL(board->steps[i] - from >= n);
	}
}

static void start_workers(unsigned *seed)
{
	struct role roles[WORKERS_MOST];
	board = mmap(
		NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	GM_REQUIRE(board != MAP_FAILED);
	for (unsigned i = 0; i < n_workers; i++) {
		roles[i] = (struct role){i, (unsigned)rand_r(seed)};
		gm_worker_start(&workers[i], work, &roles[i]);
	}
	for (unsigned i = 0; i < n_workers; i++)
		gm_hear_word(workers[i].channel, 'r');
	say_to_all('g');
}

/* ---- the books */

/* All that must be the same before and after a death. */
struct books {
	struct gm_figures figures;
	struct gm_client_row rows[WORKERS_MOST];
	size_t n_rows;
	uint64_t limit[2], held[2]; /* of the two users */
};

static void read_books(struct books *ret)
{
	struct gm_scene scene = {0};
	*ret = (struct books){0};
	gm_figures(&daemon_, &ret->figures);
	ret->n_rows = gm_client_rows(&daemon_, ret->rows, WORKERS_MOST);

	gm_raw_observe(&scene.ctl, &daemon_);
	for (unsigned i = 0; i < 2; i++) {
		char owner[32];
		snprintf(owner, sizeof(owner), "uid:%u", uid_of(i));
		const Gm__Wire__Limit *limit = gm_scene_limit(&scene, owner);
		GM_REQUIRE(limit);
		ret->limit[i] = limit->max;
		ret->held[i] = limit->held;
	}
	gm_raw_close(&scene.ctl);
}

static void set_limits(void)
{
	struct gm_scene scene = {0};
	gm_raw_observe(&scene.ctl, &daemon_);
	for (unsigned i = 0; i < 2; i++) {
		char owner[32];
		snprintf(owner, sizeof(owner), "uid:%u", uid_of(i));
		GM_REQUIRE_EQ(gm_scene_set_limit(&scene, owner, 1, (15 * 1024 + i) * MIB, 0, 0),
			GPUMEM_OK);
	}
	gm_raw_close(&scene.ctl);
}

/* What the books say that the workers do not. */
struct difference {
	const char *what; /* NULL: nothing */
	uint64_t books, workers;
};

static void differ(
	struct difference *difference, const char *what, uint64_t in_books, uint64_t of_workers)
{
	if (!difference->what && in_books != of_workers)
		*difference =
			(struct difference){.what = what, .books = in_books, .workers = of_workers};
}

static uint64_t row_held(const struct books *books, pid_t pid)
{
	for (unsigned i = 0; i < n_workers; i++)
		if (books->rows[i].pid == pid)
			return books->rows[i].held;
	return 0;
}

/* Compares the books with what the workers say, when nobody waits for anything. */
static struct difference books_differ(const struct books *books, const struct account *accounts)
{
	const struct gm_figures *f = &books->figures;
	uint64_t sum = 0, held[2] = {0, 0};
	struct difference d = {0};
	/* For a moment there may be rows of memory that somebody still had open. */
	differ(&d, "rows", books->n_rows, n_workers);
	for (unsigned i = 0; i < n_workers; i++) {
		differ(&d, "held by a worker", row_held(books, workers[i].pid), accounts[i].held);
		sum += accounts[i].held;
		held[0] += uid_of(i) == uid_of(0) ? accounts[i].held : 0;
		held[1] += uid_of(i) == uid_of(1) ? accounts[i].held : 0;
	}
	differ(&d, "clients", f->clients, n_workers);
	differ(&d, "quarantined clients", f->quarantined_clients, 0);
	differ(&d, "leased", f->leased, sum);
	differ(&d, "quarantined", f->quarantined, 0);
	differ(&d, "orphaned", f->orphaned, 0);
	differ(&d, "admitted", f->admitted, 0);
	differ(&d, "foreign", f->foreign, 0);
	differ(&d, "available", f->available, f->ceiling - sum);
	differ(&d, "held by the first user", books->held[0], held[0]);
	differ(&d, "held by the second user", books->held[1], held[1]);
	return d;
}

/* The workers pause. Returns when the books say what the workers do. */
static void pause_and_compare(struct books *ret)
{
	struct account accounts[WORKERS_MOST];
	struct gm_patience patience = {0};
	for (;;) {
		say_to_all('p');
		for (unsigned i = 0; i < n_workers; i++) {
			gm_hear(workers[i].channel, &accounts[i], sizeof(accounts[i]));
			GM_REQUIRE_EQ(accounts[i].buffers, BUFFERS);
		}
		read_books(ret);
		struct difference d = books_differ(ret, accounts);
		if (!d.what)
			return;
		char text[128];
		snprintf(text, sizeof(text), "%s: %llu in the books are %llu of the workers",
			d.what, (unsigned long long)d.books, (unsigned long long)d.workers);
		gm_patience_wait(&patience, __FILE__, __LINE__, text);
	}
}

static void require_same(const struct books *before, const struct books *after)
{
	const struct gm_figures *b = &before->figures, *a = &after->figures;
	GM_REQUIRE_EQ(a->clients, b->clients);
	GM_REQUIRE_EQ(a->leases, b->leases);
	GM_REQUIRE_EQ(a->leased, b->leased);
	GM_REQUIRE_EQ(a->quarantined, 0);
	GM_REQUIRE_EQ(a->orphaned, 0);
	GM_REQUIRE_EQ(a->admitted, 0);
	GM_REQUIRE_EQ(a->foreign, b->foreign);
	GM_REQUIRE_EQ(a->total, b->total);
	GM_REQUIRE_EQ(a->capacity, b->capacity);
	GM_REQUIRE_EQ(a->ceiling, b->ceiling);
	GM_REQUIRE_EQ(a->available, b->available);
	GM_REQUIRE_EQ(a->peak_charged, b->peak_charged);
	GM_REQUIRE_EQ(after->n_rows, before->n_rows);
	for (size_t i = 0; i < before->n_rows; i++) {
		GM_REQUIRE_EQ(after->rows[i].session, before->rows[i].session);
		GM_REQUIRE_EQ(after->rows[i].pid, before->rows[i].pid);
		GM_REQUIRE_EQ(after->rows[i].uid, before->rows[i].uid);
		GM_REQUIRE_EQ(after->rows[i].leases, before->rows[i].leases);
		GM_REQUIRE_EQ(after->rows[i].held, before->rows[i].held);
		GM_REQUIRE(strcmp(after->rows[i].name, before->rows[i].name) == 0);
	}
	for (unsigned i = 0; i < 2; i++) {
		GM_REQUIRE_EQ(after->limit[i], before->limit[i]);
		GM_REQUIRE_EQ(after->held[i], before->held[i]);
	}
}

/* ---- deaths */

enum victim { DAEMON, KEEPER, TURNS };

/* How long each start took. */
static struct {
	uint64_t *ns;
	unsigned n;
} starts;

static void kill_daemon(void)
{
	gm_daemon_kill(&daemon_);
	uint64_t from = gm_monotonic_ns();
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	starts.ns[starts.n++] = gm_monotonic_ns() - from;
}

/* Returns when the next keeper has everything: before that, the daemon must not die. */
static void kill_keeper(void)
{
	char folder[128];
	snprintf(folder, sizeof(folder), "%s/run", daemon_.folder);
	size_t said = gm_daemon_said(&daemon_, "has everything again");
	pid_t keeper = gm_keeper_in(folder);
	GM_REQUIRE(keeper > 0);
	gm_keeper_signal(keeper, SIGKILL);
	GM_UNTIL(gm_daemon_said(&daemon_, "has everything again") > said);
}

static void kill_one(enum victim victim, unsigned turn)
{
	if (victim == KEEPER || (victim == TURNS && turn % 2))
		kill_keeper();
	else
		kill_daemon();
}

static int compare_times(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return x < y ? -1 : x > y;
}

static void report_starts(const char *name, unsigned rounds)
{
	unsigned most_ms = environment("GPUMEM_TEST_READY_MS", 0);
	fprintf(stderr, "# %s: %u workers, %u buffers, %u deaths", name, n_workers,
		n_workers * BUFFERS, 2 * rounds);
	if (starts.n) {
		qsort(starts.ns, starts.n, sizeof(*starts.ns), compare_times);
		uint64_t last = starts.ns[starts.n - 1];
		fprintf(stderr, "; the daemon was ready after %.0f ms (median), %.0f ms (longest)",
			(double)starts.ns[starts.n / 2] / 1e6, (double)last / 1e6);
		if (most_ms && last > most_ms * UINT64_C(1000000))
			GM_FAIL("a start took longer than %u ms", most_ms);
	}
	fputs("\n", stderr);
}

static void outlive(enum victim victim, const char *name)
{
	unsigned rounds = environment("GPUMEM_TEST_KILLS", KILLS);
	unsigned seed = environment("GPUMEM_TEST_SEED", (unsigned)getpid());
	struct books before, after;

	fprintf(stderr, "# %s: seed %u (GPUMEM_TEST_SEED)\n", name, seed);
	n_workers = workers_wanted();
	choose_users();
	starts.ns = calloc(2 * rounds + 1, sizeof(*starts.ns));
	GM_REQUIRE(starts.ns);
	gm_daemon_start(
		&daemon_, &(struct gm_daemon_options){
				  .config = GM_DAEMON_CONFIG_WITH("pressure_dwell = 0s\n", "16G")});
	set_limits();
	start_workers(&seed);

	for (unsigned i = 0; i < rounds; i++) {
		struct timespec moment = {.tv_nsec = rand_r(&seed) % 20 * 1000000L};
		await_steps(1);
		nanosleep(&moment, NULL);
		kill_one(victim, i);
		await_steps(1);
		pause_and_compare(&before);

		kill_one(victim, i + 1);
		GM_UNTIL(gm_figures_now(&daemon_).quarantined_clients == 0);
		/* Until the keeper has closed what was pooled, that counts as somebody else's. */
		GM_UNTIL(gm_figures_now(&daemon_).foreign == 0);
		read_books(&after);
		require_same(&before, &after);
		pause_and_compare(&after);
		/* After the last round nobody visits anybody: they all end. */
		if (i + 1 < rounds)
			say_to_all('g');
	}

	say_to_all('e');
	for (unsigned i = 0; i < n_workers; i++)
		gm_worker_join(&workers[i]);
	gm_figures_await_none(&daemon_);
	struct gm_figures f = gm_figures_now(&daemon_);
	GM_REQUIRE_EQ(f.foreign, 0);
	GM_REQUIRE_EQ(f.refusals, 0);
	report_starts(name, rounds);
	gm_daemon_stop(&daemon_);
	free(starts.ns);
}

START_TEST(workers_do_not_notice_that_the_daemon_is_killed)
{
	outlive(DAEMON, "the daemon");
}
END_TEST

START_TEST(workers_do_not_notice_that_the_keeper_is_killed)
{
	outlive(KEEPER, "the keeper");
}
END_TEST

START_TEST(workers_do_not_notice_that_both_are_killed_in_turns)
{
	outlive(TURNS, "both in turns");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("kills");
	TCase *tc = tcase_create("kills");
	/* Only what hangs is to end: each round is bounded by the harness. */
	tcase_set_timeout(tc, 120 + 20 * environment("GPUMEM_TEST_KILLS", KILLS));
	tcase_add_test(tc, workers_do_not_notice_that_the_daemon_is_killed);
	tcase_add_test(tc, workers_do_not_notice_that_the_keeper_is_killed);
	tcase_add_test(tc, workers_do_not_notice_that_both_are_killed_in_turns);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
