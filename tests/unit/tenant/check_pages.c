/* SPDX-License-Identifier: Apache-2.0 */

/* The shared pages, with a client that writes whatever it wants. */

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/text/units.h"
#include "daemon/tenant/pages.h"
#include "tests/bound.h"
#include "tests/tap.h"

static struct gm_pages pages;
static struct gm_page_client *client; /* the client's own mapping of its page */
static const uint64_t held[GM_BOUND_DEVICES] = {1 << 20, 1 << 10};
#define NOW UINT64_C(1000000)

static void setup(void)
{
	ck_assert_int_eq(gm_pages_open(&pages, GM_PAGE_VERSION, 7, 11, 2), 0);
	client =
		mmap(NULL, sizeof(*client), PROT_READ | PROT_WRITE, MAP_SHARED, pages.client_fd, 0);
	ck_assert_ptr_ne(client, MAP_FAILED);
}

static void teardown(void)
{
	munmap(client, sizeof(*client));
	gm_pages_deinit(&pages);
	gm_pages_deinit(&pages);
}

static int next_row(const struct gm_pages *of, struct gm_pages_rows *rows, const uint64_t has[],
	uint64_t now_ns, uint32_t *at, struct gm_pages_row *ret)
{
	int r;

	do
		r = gm_pages_next_row(of, rows, has, now_ns, at, ret);
	while (r == -EAGAIN);
	return r;
}

START_TEST(the_daemons_page_can_be_read_and_nothing_else)
{
	const struct gm_device_figures figures = {.total = 100,
		.capacity = 90,
		.available = 50,
		.level = GM_PRESSURE_LEVEL_HIGH,
		.pressure_ppm = 400000,
		.reclaim_epoch = 3};
	const struct gm_page_daemon *page =
		mmap(NULL, sizeof(*page), PROT_READ, MAP_SHARED, pages.daemon_fd, 0);
	ck_assert_ptr_ne(page, MAP_FAILED);
	ck_assert_uint_eq(page->header.magic, GM_PAGE_DAEMON_MAGIC);
	ck_assert_uint_eq(page->header.generation, 7);
	ck_assert_uint_eq(page->header.session, 11);
	ck_assert_uint_eq(page->header.devices, 2);
	gm_pages_write_device(&pages, 1, &figures, 40, UINT64_MAX, 17);
	struct gm_page_device got;
	ck_assert_int_eq(gm_page_read(&page->devices[1], sizeof(got), &got), 0);
	ck_assert_uint_eq(got.total, 100);
	ck_assert_uint_eq(got.capacity, 90);
	ck_assert_uint_eq(got.available, 50);
	ck_assert_uint_eq(got.level, GM_PRESSURE_LEVEL_HIGH);
	ck_assert_uint_eq(got.pressure_ppm, 400000);
	ck_assert_uint_eq(got.reclaim_epoch, 3);
	ck_assert_uint_eq(got.held, 40);
	ck_assert_uint_eq(got.room, 17);
	gm_pages_write_held(&pages, 1, 41, 5);
	ck_assert_int_eq(gm_page_read(&page->devices[1], sizeof(got), &got), 0);
	ck_assert_uint_eq(got.held, 41);
	ck_assert_uint_eq(got.room, 5);
	ck_assert_uint_eq(got.total, 100);

	ck_assert_ptr_eq(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, pages.daemon_fd, 0),
		MAP_FAILED);
	ck_assert_int_eq(pwrite(pages.daemon_fd, "x", 1, 0), -1);
	ck_assert_int_eq(ftruncate(pages.daemon_fd, 0), -1);
	ck_assert_int_eq(mprotect((void *)page, 4096, PROT_READ | PROT_WRITE), -1);
	munmap((void *)page, sizeof(*page));
	close(gm_steal_fd(&pages.daemon_fd));
	gm_pages_write_held(&pages, 1, 42, 5); /* still mapped */
	ck_assert_uint_eq(pages.daemon->devices[1].held, 42);
}
END_TEST

START_TEST(a_device_that_is_not_there_is_not_written)
{
	gm_pages_write_held(&pages, 2, 42, 5);
	ck_assert_uint_eq(pages.daemon->devices[2].held, 0);
	gm_pages_write_held(&pages, UINT32_MAX, 42, 5);
}
END_TEST

START_TEST(the_clients_page_cannot_be_resized)
{
	ck_assert_int_eq(ftruncate(pages.client_fd, 0), -1);
	ck_assert_int_eq(ftruncate(pages.client_fd, 1 << 20), -1);
	ck_assert_int_eq(fcntl(pages.client_fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
	ck_assert_uint_eq(client->header.magic, GM_PAGE_CLIENT_MAGIC);
	ck_assert_uint_eq(client->header.rows, GM_BOUND_TRACKED_BUFFERS);
}
END_TEST

START_TEST(what_a_client_says_of_its_use_is_shown)
{
	struct gm_page_use said = {.in_use = 1000,
		.cached = 200,
		.peak = 5000,
		.hits = 7,
		.misses = 3,
		.returns = 2,
		.active_buffers = 4};
	struct gm_page_use got;
	gm_page_write(&client->use[0], &said, sizeof(said));
	ck_assert_int_eq(gm_pages_read_use(&pages, 0, held[0], &got), 0);
	ck_assert_uint_eq(got.in_use, 1000);
	ck_assert_uint_eq(got.cached, 200);
	ck_assert_uint_eq(got.peak, 5000);
	ck_assert_uint_eq(got.hits, 7);
	ck_assert_uint_eq(got.active_buffers, 4);
}
END_TEST

START_TEST(in_use_cached_and_slack_add_up_to_what_is_held)
{
	/* in_use, cached, slack, opened as the client says; then in_use, cached, slack as shown. */
	static const uint64_t rows[][7] = {
		{600, 300, 100, 0, 600, 300, 100},  /* all accounted for */
		{600, 300, 0, 0, 600, 300, 100},    /* memory that came since */
		{600, 300, 100, 50, 600, 300, 100}, /* a buffer that its maker pays for */
		{500, 300, 100, 50, 500, 300, 200}, /* never charged here, so not in use here */
		{500, 300, 100, 500, 500, 300, 200},
		{2000, 300, 100, 0, 1000, 0, 0},
		{600, 2000, 100, 0, 600, 400, 0},
		{600, 300, 2000, 2000, 600, 300, 100},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const uint64_t *r = rows[i];
		struct gm_page_use got,
			said = {.in_use = r[0], .cached = r[1], .slack = r[2], .opened = r[3]};

		gm_page_write(&client->use[0], &said, sizeof(said));
		ck_assert_int_eq(gm_pages_read_use(&pages, 0, 1000, &got), 0);
		ck_assert_uint_eq(got.in_use, r[4]);
		ck_assert_uint_eq(got.cached, r[5]);
		ck_assert_uint_eq(got.slack, r[6]);
	}
}
END_TEST

START_TEST(a_client_that_never_said_anything_has_no_figures)
{
	struct gm_page_use got, said = {0};

	ck_assert_int_eq(gm_pages_read_use(&pages, 0, 1000, &got), -ENODATA);
	gm_page_write(&client->use[0], &said, sizeof(said));
	ck_assert_int_eq(gm_pages_read_use(&pages, 0, 1000, &got), -ENODATA);
}
END_TEST

START_TEST(a_client_of_version_1_gets_its_pages_and_is_understood)
{
	struct gm_page_use got, said = {.in_use = 600, .cached = 300, .slack = 1, .opened = 100};
	struct gm_page_header header;
	struct gm_pages old;

	ck_assert_int_eq(gm_pages_open(&old, GM_PAGE_VERSION_AT(1), 7, 11, 2), 0);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(
			pread(i ? old.client_fd : old.daemon_fd, &header, sizeof(header), 0),
			(int)sizeof(header));
		ck_assert_uint_eq(header.version, 1);
		ck_assert_uint_eq(header.bytes, 0);
	}
	/* Those words meant nothing then. */
	ck_assert_int_eq(
		pwrite(old.client_fd, &said, sizeof(said), offsetof(struct gm_page_client, use)),
		(int)sizeof(said));
	ck_assert_int_eq(gm_pages_read_use(&old, 0, 1000, &got), 0);
	ck_assert_uint_eq(got.in_use, 600);
	ck_assert_uint_eq(got.cached, 300);
	ck_assert_uint_eq(got.slack, 100);
	gm_pages_deinit(&old);

	ck_assert_uint_eq(client->header.version, GM_PAGE_VERSION);
	ck_assert_uint_eq(GM_PAGE_VERSION_AT(3), 2);
	ck_assert_uint_eq(client->header.bytes, sizeof(*client));
	ck_assert_uint_eq(GM_PAGE_VERSION_AT(UINT32_MAX), GM_PAGE_VERSION);
}
END_TEST

START_TEST(nonsense_is_held_within_what_the_daemon_knows)
{
	struct gm_page_use got;
	memset(client, 0xff, sizeof(*client));
	client->use[0].seq = 2;
	ck_assert_int_eq(gm_pages_read_use(&pages, 0, held[0], &got), 0);
	ck_assert_uint_eq(got.in_use, held[0]);
	ck_assert_uint_eq(got.cached, 0);
	ck_assert_uint_eq(got.slack, 0);
	ck_assert_uint_le(got.peak, GM_LEASE_BYTES_MAX);
	ck_assert_uint_le(got.active_buffers, held[0]);
	ck_assert_uint_le(got.untracked, got.active_buffers);
	ck_assert_int_eq(gm_pages_read_use(&pages, 0, 0, &got), 0);
	ck_assert_uint_eq(got.in_use, 0);
	ck_assert_uint_eq(got.active_buffers, 0);
	/* A writer that died while writing, or never ends. */
	client->use[1].seq = 1;
	ck_assert_int_eq(gm_pages_read_use(&pages, 1, held[1], &got), -EAGAIN);
	ck_assert_int_eq(gm_pages_read_use(&pages, 2, 0, &got), -EINVAL);

	struct gm_pages_rows rows = {.valid = false};
	struct gm_pages_row row;
	uint32_t at = 0;
	ck_assert_int_eq(next_row(&pages, &rows, held, NOW, &at, &row), 0);
	ck_assert_uint_eq(at, GM_BOUND_TRACKED_BUFFERS);
}
END_TEST

static void put_row(uint32_t at, uint32_t device, uint64_t bytes, uint64_t born, const char *tag)
{
	struct gm_page_row row = {.device = device, .bytes = bytes, .born_ns = born};
	memcpy(row.tag, tag, strlen(tag));
	gm_page_write(&client->rows[at], &row, sizeof(row));
}

START_TEST(rows_are_listed_in_order_and_senseless_ones_passed_over)
{
	char long_tag[GM_BOUND_NAME_BYTES + 2];
	memset(long_tag, 'x', sizeof(long_tag));
	long_tag[GM_BOUND_NAME_BYTES + 1] = '\0';
	put_row(0, 0, 4096, 10, "weights");
	put_row(3, 9, 4096, 10, "no such device");
	put_row(4, 1, held[1] + 1, 10, "more than is held");
	put_row(5, 1, 512, NOW + 1, "from the future");
	put_row(6, 1, 512, 20, "\x1b[2J");
	put_row(7, 1, 512, 30, long_tag);
	put_row(8, 1, 0, 30, "free");
	put_row(700, 1, 256, 40, "far");
	put_row(1023, 1, 128, 50, "last");
	client->rows[9].seq = 1;
	client->rows[9].bytes = 16;

	struct gm_pages_rows rows = {.valid = false};
	struct gm_pages_row row;
	uint32_t at = 0;
	ck_assert_int_eq(next_row(&pages, &rows, held, NOW, &at, &row), 1);
	ck_assert_str_eq(row.tag, "weights");
	ck_assert_uint_eq(row.bytes, 4096);
	ck_assert_uint_eq(row.born_ns, 10);
	ck_assert_int_eq(next_row(&pages, &rows, held, NOW, &at, &row), 1);
	ck_assert_uint_eq(row.born_ns, 20);
	ck_assert_str_eq(row.tag, "");
	ck_assert_int_eq(next_row(&pages, &rows, held, NOW, &at, &row), 1);
	ck_assert_uint_eq(row.born_ns, 30);
	ck_assert_str_eq(row.tag, "");
	ck_assert_int_eq(next_row(&pages, &rows, held, NOW, &at, &row), 1);
	ck_assert_str_eq(row.tag, "far");
	ck_assert_int_eq(next_row(&pages, &rows, held, NOW, &at, &row), 1);
	ck_assert_str_eq(row.tag, "last");
	ck_assert_int_eq(next_row(&pages, &rows, held, NOW, &at, &row), 0);
}
END_TEST

START_TEST(paused_regions_are_listed_with_what_they_hold)
{
	static const struct {
		uint32_t place;
		uint64_t bytes;
	} said[] = {
		/* Without content: what the region will need, which may be more than is there. */
		{GM_PAGE_PLACE_PAUSED, UINT64_MAX},
		{GM_PAGE_PLACE_PAUSED, 4096},
		/* With content, which cannot be more than is held in host memory. */
		{GM_PAGE_PLACE_PAUSED | GM_PAGE_PLACE_HOST, 512},
		{GM_PAGE_PLACE_PAUSED | GM_PAGE_PLACE_HOST, UINT64_MAX},
	};
	for (uint32_t i = 0; i < sizeof(said) / sizeof(*said); i++) {
		struct gm_page_row row = {
			.bytes = said[i].bytes, .place = said[i].place, .born_ns = 10};
		row.growth.used = 64;
		gm_page_write(&client->rows[i], &row, sizeof(row));
	}

	struct gm_pages_rows rows = {.valid = false};
	struct gm_pages_row row;
	uint32_t at = 0;
	for (uint32_t i = 0; i < 3; i++) {
		ck_assert_int_eq(next_row(&pages, &rows, held, NOW, &at, &row), 1);
		ck_assert_uint_eq(row.number, i + 1);
		ck_assert_uint_eq(row.bytes, i < 2 ? 0 : 512);
		ck_assert_uint_eq(row.device, i < 2 ? 0 : 1);
		ck_assert_uint_eq(row.home, 0);
		ck_assert_uint_eq(row.growth.used, 64);
	}
	ck_assert_int_eq(next_row(&pages, &rows, held, NOW, &at, &row), 0);
}
END_TEST

static void put_note(uint32_t at, uint64_t born, uint64_t used, uint32_t stack, const char *type)
{
	struct gm_page_note note = {.born_ns = born, .used_ns = used, .stack = stack};
	memcpy(note.type, type, strnlen(type, sizeof(note.type)));
	gm_page_write(&client->notes[at], &note, sizeof(note));
}

START_TEST(notes_are_taken_if_they_are_about_the_row_and_can_be_true)
{
	static const struct {
		uint64_t born, used;
		uint32_t stack;
		const char *type;
		uint64_t want_used;
		uint32_t want_stack;
		const char *want_type;
	} rows[] = {
		{10, 20, 3, "weights", 20, 3, "weights"},
		{11, 20, 3, "of another", 10, 0, ""},
		{10, 5, GM_BOUND_STACKS, "activations", 10, GM_BOUND_STACKS, "activations"},
		{10, NOW + 1, GM_BOUND_STACKS + 1, "\x1b[2J", NOW, 0, ""},
		{10, UINT64_MAX, UINT32_MAX, "has no end at all", NOW, 0, ""},
	};
	struct gm_pages_row row;

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct gm_pages_rows block = {.valid = false};
		uint32_t at = 0;

		put_row(0, 0, 4096, 10, "x");
		put_note(0, rows[i].born, rows[i].used, rows[i].stack, rows[i].type);
		ck_assert_int_eq(next_row(&pages, &block, held, NOW, &at, &row), 1);
		ck_assert_uint_eq(row.used_ns, rows[i].want_used);
		ck_assert_uint_eq(row.stack, rows[i].want_stack);
		ck_assert_str_eq(row.type, rows[i].want_type);
	}

	/* One that is being written says nothing. */
	struct gm_pages_rows block = {.valid = false};
	uint32_t at = 0;
	put_note(0, 10, 20, 3, "weights");
	client->notes[0].seq++;
	ck_assert_int_eq(next_row(&pages, &block, held, NOW, &at, &row), 1);
	ck_assert_str_eq(row.type, "");

	/* A client of an older version means nothing by these words. */
	client->notes[0].seq++;
	pages.version = 2;
	block.valid = false;
	at = 0;
	ck_assert_int_eq(next_row(&pages, &block, held, NOW, &at, &row), 1);
	ck_assert_str_eq(row.type, "");
}
END_TEST

START_TEST(stacks_and_modules_are_read_within_their_bounds)
{
	GM_BOUND_TEST(STACKS);
	GM_BOUND_TEST(STACK_MODULES);
	struct gm_page_stack stacks[GM_PAGES_STACKS], value = {.frames = 2, .frame = {7, 8}};
	struct gm_page_module modules[GM_PAGES_MODULES],
		module = {.id_bytes = 2, .id = {1, 2}, .path = "/usr/bin/x"};

	gm_page_write(&client->stacks[GM_BOUND_STACKS - 1], &value, sizeof(value));
	value.frames = GM_PAGE_FRAMES + 1;
	gm_page_write(&client->stacks[GM_BOUND_STACKS - 2], &value, sizeof(value));
	uint32_t first = GM_BOUND_STACKS - GM_PAGES_STACKS;
	ck_assert_int_eq(gm_pages_read_stacks(&pages, first, stacks), GM_PAGES_STACKS);
	ck_assert_uint_eq(stacks[GM_PAGES_STACKS - 1].frames, 2);
	ck_assert_uint_eq(stacks[GM_PAGES_STACKS - 1].frame[1], 8);
	ck_assert_uint_eq(stacks[GM_PAGES_STACKS - 2].frames, 0);
	ck_assert_int_eq(gm_pages_read_stacks(&pages, GM_BOUND_STACKS, stacks), 0);
	ck_assert_int_eq(gm_pages_read_stacks(&pages, UINT32_MAX, stacks), 0);

	gm_page_write(&client->modules[0], &module, sizeof(module));
	module.id_bytes = UINT32_MAX;
	memset(module.path, 'x', sizeof(module.path));
	gm_page_write(&client->modules[1], &module, sizeof(module));
	ck_assert_int_eq(gm_pages_read_modules(&pages, 0, modules), GM_PAGES_MODULES);
	ck_assert_str_eq(modules[0].path, "/usr/bin/x");
	ck_assert_uint_eq(modules[0].id_bytes, 2);
	ck_assert_str_eq(modules[1].path, "");
	ck_assert_uint_eq(modules[1].id_bytes, 0);
	ck_assert_int_eq(gm_pages_read_modules(&pages, GM_BOUND_STACK_MODULES, modules), 0);
}
END_TEST

/* Whatever the client writes: what is read stays within what the daemon knows, and is printable. */
START_TEST(random_pages_are_read_within_bounds)
{
	unsigned seed = 4711;
	uint8_t *bytes = (uint8_t *)client;

	for (int round = 0; round < 200; round++) {
		struct gm_pages_rows rows = {.valid = false};
		struct gm_page_module modules[GM_PAGES_MODULES];
		struct gm_page_stack stacks[GM_PAGES_STACKS];
		struct gm_pages_row row;
		uint32_t at = 0;

		for (size_t i = sizeof(client->header); i < sizeof(*client); i++)
			bytes[i] = round % 2 ? (uint8_t)rand_r(&seed) & 3 : (uint8_t)rand_r(&seed);
		/* So that some are believed. */
		for (uint32_t i = 0; i < GM_BOUND_TRACKED_BUFFERS; i++) {
			client->rows[i].seq &= ~1U;
			client->rows[i].device %= 2;
			client->rows[i].bytes %= 256;
			client->rows[i].born_ns %= NOW;
			client->notes[i].seq &= ~1U;
			client->notes[i].born_ns = client->rows[i].born_ns;
		}
		while (next_row(&pages, &rows, held, NOW, &at, &row) > 0) {
			ck_assert_uint_lt(row.device, 2);
			ck_assert_uint_le(row.bytes, held[row.device]);
			ck_assert_uint_le(row.born_ns, row.used_ns);
			ck_assert_uint_le(row.used_ns, NOW);
			ck_assert_uint_le(row.stack, GM_BOUND_STACKS);
			ck_assert(gm_text_ok(row.tag) && strlen(row.tag) < sizeof(row.tag));
			ck_assert(gm_text_ok(row.type) && strlen(row.type) < sizeof(row.type));
			ck_assert(gm_text_ok(row.precision));
		}
		for (uint32_t i = 0; gm_pages_read_stacks(&pages, i, stacks) > 0;
			i += GM_PAGES_STACKS)
			for (size_t k = 0; k < GM_PAGES_STACKS; k++)
				ck_assert_uint_le(stacks[k].frames, GM_PAGE_FRAMES);
		for (uint32_t i = 0; gm_pages_read_modules(&pages, i, modules) > 0;
			i += GM_PAGES_MODULES)
			for (size_t k = 0; k < GM_PAGES_MODULES; k++) {
				ck_assert_uint_le(modules[k].id_bytes, GM_PAGE_MODULE_ID);
				ck_assert(gm_text_ok(modules[k].path));
			}
	}
}
END_TEST

/* How many system calls this process has made to read something. */
static unsigned long long reads_so_far(void)
{
	unsigned long long n = 0;
	char line[64];
	FILE *file = fopen("/proc/self/io", "re");

	ck_assert_ptr_nonnull(file);
	while (fgets(line, sizeof(line), file))
		(void)sscanf(line, "syscr: %llu", &n);
	fclose(file);
	return n;
}

START_TEST(whatever_is_on_a_page_it_is_read_by_few_system_calls)
{
	struct gm_pages_rows rows = {.valid = false};
	struct gm_pages_row row;
	uint32_t at = 0;

	/* All rows look as if they were being written. */
	for (size_t i = 0; i < GM_BOUND_TRACKED_BUFFERS; i++) {
		put_row((uint32_t)i, 1, 512, 20, "x");
		client->rows[i].seq++;
	}
	unsigned long long before = reads_so_far();
	ck_assert_int_eq(gm_pages_next_row(&pages, &rows, held, NOW, &at, &row), -EAGAIN);
	ck_assert_uint_eq(at, GM_PAGES_ROWS);
	ck_assert_uint_lt(reads_so_far() - before, 6);
	ck_assert_int_eq(next_row(&pages, &rows, held, NOW, &at, &row), 0);
	ck_assert_uint_lt(reads_so_far() - before, 64);
}
END_TEST

/* The kernel takes a lock of the file for it, which a client can hold. */
START_TEST(a_clients_page_is_never_seeked_in)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_lseek, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EDEADLK),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof(filter) / sizeof(*filter), filter};
	struct gm_pages_rows rows = {.valid = false};
	struct gm_pages_row row;
	uint32_t at = 0;

	put_row(700, 1, 256, 40, "far");
	ck_assert_int_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	ck_assert_int_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
	ck_assert_int_eq(next_row(&pages, &rows, held, NOW, &at, &row), 1);
	ck_assert_uint_eq(at, 701);
}
END_TEST

START_TEST(pages_that_were_never_made_say_nothing)
{
	struct gm_pages empty;
	struct gm_page_use use;
	struct gm_pages_rows rows = {.valid = false};
	struct gm_pages_row row;
	uint32_t at = 0;
	gm_pages_init(&empty);
	gm_pages_write_held(&empty, 0, 1, 5);
	ck_assert_int_lt(gm_pages_read_use(&empty, 0, 1, &use), 0);
	ck_assert_int_eq(next_row(&empty, &rows, held, NOW, &at, &row), 0);
	gm_pages_deinit(&empty);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("pages");
	TCase *tests = tcase_create("pages");
	tcase_add_checked_fixture(tests, setup, teardown);
	tcase_add_test(tests, the_daemons_page_can_be_read_and_nothing_else);
	tcase_add_test(tests, a_device_that_is_not_there_is_not_written);
	tcase_add_test(tests, the_clients_page_cannot_be_resized);
	tcase_add_test(tests, what_a_client_says_of_its_use_is_shown);
	tcase_add_test(tests, in_use_cached_and_slack_add_up_to_what_is_held);
	tcase_add_test(tests, a_client_that_never_said_anything_has_no_figures);
	tcase_add_test(tests, a_client_of_version_1_gets_its_pages_and_is_understood);
	tcase_add_test(tests, nonsense_is_held_within_what_the_daemon_knows);
	tcase_add_test(tests, rows_are_listed_in_order_and_senseless_ones_passed_over);
	tcase_add_test(tests, paused_regions_are_listed_with_what_they_hold);
	tcase_add_test(tests, notes_are_taken_if_they_are_about_the_row_and_can_be_true);
	tcase_add_test(tests, stacks_and_modules_are_read_within_their_bounds);
	tcase_add_test(tests, random_pages_are_read_within_bounds);
	tcase_add_test(tests, whatever_is_on_a_page_it_is_read_by_few_system_calls);
	tcase_add_test(tests, a_clients_page_is_never_seeked_in);
	tcase_add_test(tests, pages_that_were_never_made_say_nothing);
	suite_add_tcase(suite, tests);
	return gm_tap_run(suite);
}
