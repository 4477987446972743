/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Ten clients with 100 evictable buffers each, of random sizes, that ask for three times what the daemon
 * may hand out. Each pins one or two of them at a time and launches work there: a kernel that compares
 * every word and writes new ones. It unpins them while that work goes on; it evicts, destroys and makes
 * some. Every client finishes, every buffer was evicted and came back at least once, and no byte was lost.
 *
 * The same source for a real GPU and for the fake driver, which runs no kernels: there the worker copies
 * the words out, compares them, and writes new ones by a memset or a copy. On the fake driver, buffers take
 * memory of this machine, so they are fewer and smaller.
 *
 *   GPUMEM_TEST_SEED     which random steps
 *   GPUMEM_TEST_STEPS    how many each client does
 *   GPUMEM_TEST_BUFFERS  how many buffers each client has
 */

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "gpumem/gpumem_evict.h"
#include "tests/gpu/broker.h"

#define KIB (UINT64_C(1) << 10)

enum {
	WORKERS = 10,
	BUFFERS_MOST = 100, /* of each worker */
	PINNED = 2,         /* by each worker at a time */
	STREAMS = 3,
	STEPS = 100,
	THREADS = 256, /* of a block of the kernel */
};

/* Workers are forked, and start threads of their own: thread sanitizer takes that for a mistake unless
 * told. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
	return "die_after_fork=0";
}

/* What all processes share. */
static struct board {
	_Atomic uint64_t pins, evicted, restored, in_host;
	_Atomic uint64_t came_back; /* buffers that were evicted and restored at least once */
} * board;

static bool on_fake(void)
{
	return getenv("GPUMEM_FAKE_DIR") != NULL;
}

static unsigned from_environment(const char *name, unsigned otherwise)
{
	const char *text = getenv(name);
	return text ? (unsigned)strtoul(text, NULL, 10) : otherwise;
}

static unsigned n_buffers(void)
{
	unsigned few = gm_sanitized() ? 10 : 20;
	unsigned n = from_environment("GPUMEM_TEST_BUFFERS", on_fake() ? few : BUFFERS_MOST);
	return n && n < BUFFERS_MOST ? n : BUFFERS_MOST;
}

static unsigned n_steps(void)
{
	return from_environment("GPUMEM_TEST_STEPS", gm_sanitized() ? STEPS / 5 : STEPS);
}

/* Of the largest buffer: 1 or 2 chunks of 2 MiB, or up to 6. */
static uint64_t most_bytes(void)
{
	return on_fake() ? 3 * MIB : 12 * MIB;
}

/* ---- what is in a buffer */

/* Word i is first + i * stride. A memset leaves a stride of 0. */
struct words {
	uint32_t first, stride;
};

static uint32_t word_at(struct words words, uint32_t i)
{
	return words.first + i * words.stride;
}

/* Counts the words that are not as they should be, and writes new ones. */
static const char kernel_text[] =
	".version 6.0\n"
	".target sm_50\n"
	".address_size 64\n"
	".visible .entry turn(.param .u64 data, .param .u32 n,\n"
	"	.param .u32 first, .param .u32 stride,\n"
	"	.param .u32 next, .param .u32 next_stride, .param .u64 bad)\n"
	"{\n"
	"	.reg .pred %p<3>;\n"
	"	.reg .b32 %r<13>;\n"
	"	.reg .b64 %rd<4>;\n"
	"	ld.param.u64 %rd1, [data];\n"
	"	ld.param.u32 %r1, [n];\n"
	"	ld.param.u32 %r2, [first];\n"
	"	ld.param.u32 %r3, [stride];\n"
	"	ld.param.u32 %r4, [next];\n"
	"	ld.param.u32 %r5, [next_stride];\n"
	"	ld.param.u64 %rd3, [bad];\n"
	"	mov.u32 %r6, %ctaid.x;\n"
	"	mov.u32 %r7, %ntid.x;\n"
	"	mov.u32 %r8, %tid.x;\n"
	"	mad.lo.u32 %r6, %r6, %r7, %r8;\n"
	"	setp.ge.u32 %p1, %r6, %r1;\n"
	"	@%p1 bra DONE;\n"
	"	cvta.to.global.u64 %rd1, %rd1;\n"
	"	cvta.to.global.u64 %rd3, %rd3;\n"
	"	mul.wide.u32 %rd2, %r6, 4;\n"
	"	add.u64 %rd1, %rd1, %rd2;\n"
	"	ld.global.u32 %r9, [%rd1];\n"
	"	mad.lo.u32 %r10, %r6, %r3, %r2;\n"
	"	mad.lo.u32 %r11, %r6, %r5, %r4;\n"
	"	st.global.u32 [%rd1], %r11;\n"
	"	setp.eq.u32 %p2, %r9, %r10;\n"
	"	@%p2 bra DONE;\n"
	"	atom.global.add.u32 %r12, [%rd3], 1;\n"
	"DONE:\n"
	"	ret;\n"
	"}\n";

static struct kernel {
	void *turn;
	gm_cu_result (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
		unsigned, gm_cu_stream, void **, void **);
} kernel;

/* Leaves turn NULL where the driver runs no kernels. */
static void load_kernel(void)
{
	gm_cu_result (*load)(void **, const void *) =
		(gm_cu_result(*)(void **, const void *))driver_symbol("cuModuleLoadData");
	gm_cu_result (*find)(void **, void *, const char *) = (gm_cu_result(*)(
		void **, void *, const char *))driver_symbol("cuModuleGetFunction");
	void *module;

	*(void **)&kernel.launch = driver_symbol("cuLaunchKernel");
	if (!kernel.launch) {
		GM_REQUIRE(on_fake());
		return;
	}
	CU(load(&module, kernel_text));
	CU(find(&kernel.turn, module, "turn"));
}

/* ---- a worker */

struct held {
	gpumem_buffer *buffer;
	struct words words;
	gm_cu_stream stream; /* all its work is on this one */
	bool in_host;        /* the last pin left it there */
	bool came_back;
};

struct worker {
	unsigned number, seed;
	uint32_t stamps;
	gm_cu_stream streams[STREAMS];
	void *bad; /* counted by kernels */
	uint32_t *copy;
	struct held held[BUFFERS_MOST];
};

static unsigned pick(struct worker *w, unsigned n)
{
	return (unsigned)rand_r(&w->seed) % n;
}

static gm_cu_ptr address(const void *ptr)
{
	return (gm_cu_ptr)(uintptr_t)ptr;
}

static struct words new_words(struct worker *w, bool flat)
{
	uint32_t stamp = w->number << 24 ^ ++w->stamps;

	if (flat)
		return (struct words){(stamp & 0xff) * UINT32_C(0x01010101), 0};
	return (struct words){stamp * UINT32_C(2654435761), (stamp * 2 + 1) * UINT32_C(40503)};
}

/* Compares every word in this process, and waits for the stream. */
static void compare(struct worker *w, const struct held *held)
{
	uint64_t bytes = gpumem_buffer_size(held->buffer);

	memset(w->copy, 0xa5, bytes);
	CU(cuda->cuMemcpyAsync(
		address(w->copy), address(gpumem_buffer_ptr(held->buffer)), bytes, held->stream));
	CU(cuda->cuStreamSynchronize(held->stream));
	for (uint32_t i = 0; i < bytes / 4; i++)
		if (w->copy[i] != word_at(held->words, i))
			GM_FAIL("worker %u: word %u of %llu is 0x%x, not 0x%x", w->number, i,
				(unsigned long long)bytes / 4, w->copy[i], word_at(held->words, i));
}

/* Requires that no kernel found a wrong word so far. */
static void require_none_bad(struct worker *w)
{
	uint32_t bad = 0;

	for (unsigned i = 0; i < STREAMS; i++)
		CU(cuda->cuStreamSynchronize(w->streams[i]));
	if (!kernel.turn)
		return;
	CU(cuda->cuMemcpyAsync(address(&bad), address(w->bad), sizeof(bad), w->streams[0]));
	CU(cuda->cuStreamSynchronize(w->streams[0]));
	if (bad)
		GM_FAIL("worker %u: kernels found %u wrong words", w->number, bad);
}

/* Writes new words, without looking at the old ones. */
static void overwrite(struct worker *w, struct held *held)
{
	void *ptr = gpumem_buffer_ptr(held->buffer);
	uint64_t bytes = gpumem_buffer_size(held->buffer);
	/* A single memset cannot go over the border of two chunks in host memory. */
	bool flat = pick(w, 2) && !held->in_host;

	held->words = new_words(w, flat);
	if (flat) {
		/* Work that takes a while: the last one counts. */
		for (unsigned i = pick(w, 4); i > 0; i--)
			fill(ptr, bytes, (unsigned char)i, held->stream);
		fill(ptr, bytes, (unsigned char)held->words.first, held->stream);
		return;
	}
	for (uint32_t i = 0; i < bytes / 4; i++)
		w->copy[i] = word_at(held->words, i);
	CU(cuda->cuMemcpyAsync(address(ptr), address(w->copy), bytes, held->stream));
	/* The next copy uses the same memory. */
	CU(cuda->cuStreamSynchronize(held->stream));
}

/* Has a kernel compare all words and write new ones. Does not wait. */
static void launch_turn(struct worker *w, struct held *held)
{
	gm_cu_ptr data = address(gpumem_buffer_ptr(held->buffer)), bad = address(w->bad);
	uint32_t n = (uint32_t)(gpumem_buffer_size(held->buffer) / 4);
	struct words next = new_words(w, false);
	void *arguments[] = {&data, &n, &held->words.first, &held->words.stride, &next.first,
		&next.stride, &bad};

	CU(kernel.launch(kernel.turn, (n + THREADS - 1) / THREADS, 1, 1, THREADS, 1, 1, 0,
		held->stream, arguments, NULL));
	held->words = next;
}

/* Compares all words of a pinned buffer on its stream, and may write new ones. */
static void use(struct worker *w, struct held *held)
{
	bool change = pick(w, 2);

	if (kernel.turn) {
		launch_turn(w, held);
		if (change)
			overwrite(w, held);
		return;
	}
	compare(w, held);
	if (change)
		overwrite(w, held);
}

static void pin(struct held *held, bool host_ok)
{
	gpumem_pin_options options = GPUMEM_PIN_OPTIONS_INIT;
	gpumem_location where;
	bool away = gpumem_buffer_location(held->buffer) == GPUMEM_LOCATION_HOST;

	options.wait_ms = host_ok ? 0 : GM_PATIENCE_MS;
	options.flags = host_ok ? GPUMEM_PIN_HOST_OK : 0;
	OK(gpumem_buffer_pin(held->buffer, &options, &where));
	GM_REQUIRE(host_ok || where == GPUMEM_LOCATION_DEVICE);

	board->pins++;
	board->evicted += away && !held->in_host;
	held->in_host = where == GPUMEM_LOCATION_HOST;
	board->in_host += held->in_host;
	if (!away || held->in_host)
		return;
	board->restored++;
	board->came_back += !held->came_back;
	held->came_back = true;
}

/* Not before its work is done, if it waits for that. */
static void evict(struct held *held, bool wait)
{
	gpumem_status status;

	for (struct gm_patience p = {0};; gm_patience_wait(&p, __FILE__, __LINE__, "evicted")) {
		status = gpumem_buffer_evict(held->buffer);
		if (!wait || status != GPUMEM_E_BUSY)
			break;
	}
	GM_REQUIRE(status == GPUMEM_OK || status == GPUMEM_E_BUSY || status == GPUMEM_E_CANCELLED);
}

static void make(struct worker *w, struct held *held)
{
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	uint64_t bytes = (1 + pick(w, (unsigned)(most_bytes() / (4 * KIB)))) * 4 * KIB;

	options.flags = GPUMEM_BUFFER_EVICTABLE;
	options.wait_ms = GM_PATIENCE_MS;
	OK(gpumem_buffer_create(session, 0, bytes, &options, &held->buffer));
	held->in_host = false;
	pin(held, false);
	overwrite(w, held);
	OK(gpumem_buffer_unpin(held->buffer, held->stream));
}

static void step(struct worker *w)
{
	struct held *held[PINNED];
	unsigned n = 1 + pick(w, PINNED), first = pick(w, n_buffers());

	for (unsigned i = 0; i < n; i++) {
		held[i] = &w->held[(first + i * 7) % n_buffers()];
		pin(held[i], pick(w, 8) == 0);
		use(w, held[i]);
	}
	for (unsigned i = 0; i < n; i++)
		OK(gpumem_buffer_unpin(
			held[i]->buffer, pick(w, 4) ? held[i]->stream : GPUMEM_STREAM_ANY));

	if (pick(w, 10) == 0)
		evict(held[0], false);
	/* Also while the library's thread may be moving it. */
	if (pick(w, 20) == 0) {
		CU(cuda->cuStreamSynchronize(held[0]->stream));
		gpumem_buffer_destroy(held[0]->buffer);
		make(w, held[0]);
	}
	if (pick(w, 8) == 0)
		require_none_bad(w);
}

static void start_work(struct worker *w)
{
	static const uint32_t none = 0;

	join("load");
	use_gpu();
	load_kernel();
	for (unsigned i = 0; i < STREAMS; i++)
		w->streams[i] = stream_new();
	w->copy = malloc(most_bytes());
	GM_REQUIRE(w->copy);
	if (kernel.turn) {
		OK(gpumem_alloc(session, 0, sizeof(none), w->streams[0], NULL, &w->bad));
		CU(cuda->cuMemcpyAsync(
			address(w->bad), address(&none), sizeof(none), w->streams[0]));
		CU(cuda->cuStreamSynchronize(w->streams[0]));
	}
	for (unsigned i = 0; i < n_buffers(); i++) {
		w->held[i].stream = w->streams[i % STREAMS];
		make(w, &w->held[i]);
	}
}

/* Every buffer has its content, after it was evicted at least once. */
static void end_work(struct worker *w)
{
	for (unsigned i = 0; i < n_buffers(); i++) {
		struct held *held = &w->held[i];
		if (!held->came_back)
			evict(held, true);
		pin(held, false);
		compare(w, held);
		if (i % 2)
			gpumem_buffer_destroy(held->buffer);
		else
			OK(gpumem_buffer_unpin(held->buffer, GPUMEM_STREAM_DONE));
	}
	require_none_bad(w);
	if (w->bad)
		OK(gpumem_free(session, w->bad, GPUMEM_STREAM_DONE));
	gpumem_disconnect(session);
}

static void work(int channel, void *argument)
{
	struct worker *w = calloc(1, sizeof(*w));

	GM_REQUIRE(w);
	w->number = *(const unsigned *)argument;
	w->seed = from_environment("GPUMEM_TEST_SEED", 1) * 100 + w->number;
	start_work(w);
	for (unsigned i = 0; i < n_steps(); i++)
		step(w);
	end_work(w);
	free(w->copy);
	free(w);
}

/* ---- the test */

static void tell_total(int channel, void *argument)
{
	size_t free_bytes, total;
	use_gpu();
	CU(cuda->cuMemGetInfo(&free_bytes, &total));
	uint64_t bytes = total;
	gm_text_say(channel, &bytes, sizeof(bytes));
}

static uint64_t device_total(void)
{
	struct gm_worker worker;
	uint64_t bytes;
	gm_worker_start(&worker, tell_total, NULL);
	gm_hear(worker.channel, &bytes, sizeof(bytes));
	gm_worker_join(&worker);
	return bytes;
}

/* Buffers take whole chunks, so 1 MiB more than their size on average. The daemon gets a third of that:
 * by a fraction of the device, because what contexts take does not count against that. */
static uint64_t asked_for(void)
{
	return WORKERS * n_buffers() * (most_bytes() / 2 + MIB);
}

static void start_third(void)
{
	static char config[512];
	double third = (double)asked_for() / 3;

	snprintf(config, sizeof(config),
		"[gpumemd]\nfraction = %.9f\nmin_free = 0\nreserve = 0\nmax_pool = 100%%\n"
		"host_limit = %lluM\n",
		third / (double)device_total(),
		(unsigned long long)(asked_for() / MIB * 3 / 2 + 64));
	start_with(config);
	board = mmap(
		NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	GM_REQUIRE(board != MAP_FAILED);
}

START_TEST(three_times_the_memory_that_there_is_works_for_all)
{
	unsigned numbers[WORKERS], all_buffers = WORKERS * n_buffers();
	struct gm_worker workers[WORKERS];

	start_third();
	for (unsigned i = 0; i < WORKERS; i++) {
		numbers[i] = i;
		gm_worker_start(&workers[i], work, &numbers[i]);
	}
	for (unsigned i = 0; i < WORKERS; i++)
		gm_worker_join(&workers[i]);

	printf("# %u buffers of %u clients, %llu MiB asked for: %llu pins, %llu evictions, "
	       "%llu restores, %llu uses in host memory\n",
		all_buffers, WORKERS, (unsigned long long)(asked_for() / MIB),
		(unsigned long long)board->pins, (unsigned long long)board->evicted,
		(unsigned long long)board->restored, (unsigned long long)board->in_host);
	GM_REQUIRE_EQ(board->came_back, all_buffers);
	GM_REQUIRE(board->evicted >= all_buffers && board->restored >= all_buffers);
	tear_down();
	munmap(board, sizeof(*board));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("evict_load");
	TCase *tc = tcase_create("evict_load");
	tcase_set_timeout(tc, 0);
	tcase_add_test(tc, three_times_the_memory_that_there_is_works_for_all);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
