/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Limits, waiting and foreign use on GPUs: a worker over its limit, one that waits for what another
 * holds, a program that takes memory past the broker; and at every step the broker's figures are
 * NVML's. One source for the fake driver and a real GPU.
 */

#include "tests/gpu/broker.h"

#define CONFIG_LIMITS \
	CONFIG("host_limit = 0\n") \
	"[limit client:greedy]\nmax = 64M\n[limit client:pair]\nmax = 128M\n"

static void set_up(void)
{
	start_with(CONFIG_LIMITS);
}

/* ---- what NVML says */

static void nvml_watcher(int channel, void *argument)
{
	const struct gm_nvml *nvml;
	gm_nvml_device device = find_in_nvml(&nvml);
	for (;;) {
		gm_nvml_memory memory;
		uint64_t free_bytes;
		char word;
		gm_hear(channel, &word, 1);
		if (word == 'e')
			return;
		GM_REQUIRE_EQ(nvml->nvmlDeviceGetMemoryInfo(device, &memory), GM_NVML_SUCCESS);
		free_bytes = memory.free;
		gm_text_say(channel, &free_bytes, sizeof(free_bytes));
	}
}

static struct gm_worker watch;

static uint64_t nvml_free(void)
{
	uint64_t bytes;
	gm_text_say_word(watch.channel, 'f');
	gm_hear(watch.channel, &bytes, sizeof(bytes));
	return bytes;
}

/* total = free + what the broker made + foreign: the broker's books and NVML's count, to the byte,
 * once the next sample is in. */
static void figures_agree(void)
{
	for (struct gm_patience p = {0};; gm_patience_wait(&p, __FILE__, __LINE__, "they agree")) {
		struct gm_figures f = gm_figures_now(&daemon_);
		if (f.total == nvml_free() + f.leased + f.quarantined + f.pooled + f.foreign)
			return;
	}
}

/* ---- workers */

static void greedy(int channel, void *argument)
{
	gpumem_buffer *one, *two;
	join("greedy");
	use_gpu();
	OK(gpumem_buffer_create(session, 0, 64 * MIB, NULL, &one));
	fill(gpumem_buffer_ptr(one), 64 * MIB, 1, NULL);
	GM_REQUIRE_EQ(gpumem_buffer_create(session, 0, 2 * MIB, NULL, &two), GPUMEM_E_LIMIT);
	const char *why = gpumem_error_detail();
	if (!strstr(why, "greedy") || !strstr(why, "64.0M") || !strstr(why, "2.0M"))
		GM_FAIL("the refusal does not name the limit, what is held and what was asked: %s",
			why);
	GM_REQUIRE(all(gpumem_buffer_ptr(one), 64 * MIB, 1, NULL));
	gm_text_say_word(channel, 'l');
	gm_hear_word(channel, 'e');
	gpumem_disconnect(session);
}

static void first_of_pair(int channel, void *argument)
{
	gpumem_buffer *buffer;
	join("pair");
	use_gpu();
	OK(gpumem_buffer_create(session, 0, 96 * MIB, NULL, &buffer));
	gm_text_say_word(channel, 'h');
	gm_hear_word(channel, 'r');
	gpumem_buffer_destroy(buffer);
	gm_hear_word(channel, 'e');
	gpumem_disconnect(session);
}

static void second_of_pair(int channel, void *argument)
{
	gpumem_buffer *buffer;
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	options.wait_ms = GM_PATIENCE_MS;
	join("pair");
	use_gpu();
	GM_REQUIRE_EQ(gpumem_buffer_create(session, 0, 64 * MIB, NULL, &buffer), GPUMEM_E_LIMIT);
	gm_text_say_word(channel, 'w');
	OK(gpumem_buffer_create(session, 0, 64 * MIB, &options, &buffer));
	fill(gpumem_buffer_ptr(buffer), 64 * MIB, 2, NULL);
	GM_REQUIRE(all(gpumem_buffer_ptr(buffer), 64 * MIB, 2, NULL));
	gm_text_say_word(channel, 'g');
	gm_hear_word(channel, 'e');
	gpumem_disconnect(session);
}

/* Knows nothing of the broker. */
static void foreigner(int channel, void *argument)
{
	gm_cu_ptr ptr;
	use_gpu();
	CU(cuda->cuMemAlloc(&ptr, 96 * MIB));
	gm_text_say_word(channel, 'f');
	gm_hear_word(channel, 'e');
}

START_TEST(one_is_over_its_limit_one_waits_and_a_stranger_eats_memory)
{
	struct gm_worker over, hold, wait, strange;
	gm_worker_start(&watch, nvml_watcher, NULL);
	figures_agree();
	gm_worker_start(&over, greedy, NULL);
	gm_hear_word(over.channel, 'l');
	figures_agree();

	gm_worker_start(&hold, first_of_pair, NULL);
	gm_hear_word(hold.channel, 'h');
	gm_worker_start(&wait, second_of_pair, NULL);
	gm_hear_word(wait.channel, 'w');
	figures_agree();

	uint64_t foreign = gm_figures_now(&daemon_).foreign;
	gm_worker_start(&strange, foreigner, NULL);
	gm_hear_word(strange.channel, 'f');
	GM_UNTIL(gm_figures_now(&daemon_).foreign >= foreign + 96 * MIB);
	figures_agree();

	gm_text_say_word(hold.channel, 'r'); /* gives back: the one that waits gets its memory */
	gm_hear_word(wait.channel, 'g');
	figures_agree();
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).leased, 128 * MIB);

	gm_worker_kill(&strange);
	GM_UNTIL(gm_figures_now(&daemon_).foreign < foreign + 96 * MIB);
	figures_agree();
	end_worker(&over);
	end_worker(&hold);
	end_worker(&wait);
	figures_agree();
	end_worker(&watch);
}
END_TEST

/* ---- a program that eats the GPU, and goes */

struct wish {
	uint64_t bytes; /* 0: the end */
	uint64_t wait_ms;
};

/* Tries to get what it is told to, uses it, gives it back, and says what came of it. */
static void asker(int channel, void *argument)
{
	struct wish wish;
	join("asker");
	use_gpu();
	gm_text_say_word(channel, 'r');
	for (;;) {
		gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
		gpumem_buffer *buffer;
		gm_hear(channel, &wish, sizeof(wish));
		if (!wish.bytes)
			break;
		options.wait_ms = (uint32_t)wish.wait_ms;
		gpumem_status status =
			gpumem_buffer_create(session, 0, wish.bytes, &options, &buffer);
		if (status == GPUMEM_OK) {
			fill(gpumem_buffer_ptr(buffer), wish.bytes, 3, NULL);
			GM_REQUIRE(all(gpumem_buffer_ptr(buffer), wish.bytes, 3, NULL));
			gpumem_buffer_destroy(buffer);
		} else if (!strstr(gpumem_error_detail(), "used outside the broker")) {
			GM_FAIL("the refusal does not name foreign use: %s", gpumem_error_detail());
		}
		gm_text_say(channel, &status, sizeof(status));
	}
	gpumem_disconnect(session);
}

/* Takes as much as it is told, or as near to it as the driver lets it. */
static void eater(int channel, void *argument)
{
	uint64_t bytes;
	gm_cu_ptr ptr;
	use_gpu();
	gm_text_say_word(channel, 'r');
	gm_hear(channel, &bytes, sizeof(bytes));
	while (cuda->cuMemAlloc(&ptr, bytes) != GM_CUDA_SUCCESS) {
		GM_REQUIRE(bytes > 32 * MIB);
		bytes -= 16 * MIB;
	}
	gm_text_say(channel, &bytes, sizeof(bytes));
	gm_hear_word(channel, 'e');
}

/* All but some 96 MiB of the GPU, and the broker has seen it. What does not fit any more. */
static uint64_t eat(struct gm_worker *worker)
{
	uint64_t before, bytes;
	gm_worker_start(worker, eater, NULL);
	gm_hear_word(worker->channel, 'r');
	figures_agree();
	before = gm_figures_now(&daemon_).foreign;
	bytes = (nvml_free() - 96 * MIB) / (2 * MIB) * (2 * MIB);
	gm_text_say(worker->channel, &bytes, sizeof(bytes));
	gm_hear(worker->channel, &bytes, sizeof(bytes));
	GM_UNTIL(gm_figures_now(&daemon_).foreign >= before + bytes);
	figures_agree();
	return gm_figures_now(&daemon_).available / MIB * MIB + 32 * MIB;
}

static void wants(struct gm_worker *worker, uint64_t bytes, uint64_t wait_ms)
{
	struct wish wish = {bytes, wait_ms};
	gm_text_say(worker->channel, &wish, sizeof(wish));
}

static gpumem_status gets(struct gm_worker *worker)
{
	gpumem_status status;
	gm_hear(worker->channel, &status, sizeof(status));
	return status;
}

START_TEST(what_a_stranger_leaves_is_had_at_once)
{
	struct gm_worker ask, strange;
	gm_worker_start(&watch, nvml_watcher, NULL);
	gm_worker_start(&ask, asker, NULL);
	gm_hear_word(ask.channel, 'r');
	for (int i = 0; i < 3; i++) {
		uint64_t too_much = eat(&strange);
		wants(&ask, too_much, 0);
		GM_REQUIRE_EQ(gets(&ask), GPUMEM_E_NO_MEMORY);
		if (i == 0) { /* who waits gets it when the stranger ends */
			wants(&ask, too_much, GM_PATIENCE_MS);
			GM_UNTIL(gm_figures_now(&daemon_).requests >= 2);
			gm_worker_kill(&strange);
		} else { /* who comes right after that has not to wait for the next sample */
			gm_worker_kill(&strange);
			wants(&ask, too_much, 0);
		}
		GM_REQUIRE_EQ(gets(&ask), GPUMEM_OK);
	}
	figures_agree();
	wants(&ask, 0, 0);
	gm_worker_join(&ask);
	end_worker(&watch);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("limits on GPUs");
	TCase *t = tcase_create("cuda");
	tcase_set_timeout(t, 120);
	tcase_add_checked_fixture(t, set_up, tear_down);
	tcase_add_test(t, one_is_over_its_limit_one_waits_and_a_stranger_eats_memory);
	tcase_add_test(t, what_a_stranger_leaves_is_had_at_once);
	suite_add_tcase(s, t);
	return gm_tap_run(s);
}
