/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client's side of the shared pages: rows and figures as the daemon would read them, pages that
 * are no good, and new ones mapped over old ones.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/session/session_pages.h"
#include "common/cleanup.h"
#include "tests/bound.h"
#include "tests/tap.h"

static struct gm_session_pages pages;
static int daemon_fd, client_fd;

static int page_of(uint32_t version, uint32_t magic, size_t bytes, int seals)
{
	struct gm_page_header header = {.magic = magic, .version = version, .devices = 2};
	int fd = memfd_create("page", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, (off_t)bytes), 0);
	ck_assert_int_eq(pwrite(fd, &header, sizeof(header), 0), (ssize_t)sizeof(header));
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

static int page(uint32_t magic, size_t bytes, int seals)
{
	return page_of(GM_PAGE_VERSION, magic, bytes, seals);
}

static void make_pages(void)
{
	daemon_fd = page(GM_PAGE_DAEMON_MAGIC, sizeof(struct gm_page_daemon), F_SEAL_SHRINK);
	client_fd = page(GM_PAGE_CLIENT_MAGIC, sizeof(struct gm_page_client), F_SEAL_SHRINK);
}

static void set_up(void)
{
	gm_session_pages_init(&pages);
	make_pages();
	ck_assert_int_eq(gm_session_pages_map(&pages, daemon_fd, client_fd), 0);
}

static void tear_down(void)
{
	gm_session_pages_deinit(&pages);
	close(daemon_fd);
	close(client_fd);
}

static struct gm_page_row row(uint32_t i)
{
	struct gm_page_row ret;
	ck_assert_int_eq(gm_page_pread(client_fd,
				 (off_t)(offsetof(struct gm_page_client, rows) + i * sizeof(ret)),
				 sizeof(ret), &ret),
		0);
	return ret;
}

static struct gm_page_use use(uint32_t device)
{
	struct gm_page_use ret;
	ck_assert_int_eq(
		gm_page_pread(client_fd,
			(off_t)(offsetof(struct gm_page_client, use) + device * sizeof(ret)),
			sizeof(ret), &ret),
		0);
	return ret;
}

START_TEST(buffers_past_the_table_are_counted_and_not_listed)
{
	GM_BOUND_TEST(TRACKED_BUFFERS);
	uint32_t rows[GM_BOUND_TRACKED_BUFFERS];
	struct gm_page_use nothing = {.in_use = 0};
	char tag[32];
	for (uint32_t i = 0; i < GM_BOUND_TRACKED_BUFFERS; i++) {
		snprintf(tag, sizeof(tag), "b%u", i);
		rows[i] = gm_session_pages_row_add(&pages, 1, 1 + i, tag);
		ck_assert_uint_ne(rows[i], 0);
		ck_assert_uint_ne(rows[i], GM_PAGES_UNTRACKED);
	}
	struct gm_page_row last = row(GM_BOUND_TRACKED_BUFFERS - 1);
	ck_assert_uint_eq(last.bytes, GM_BOUND_TRACKED_BUFFERS);
	ck_assert_str_eq(last.tag, "b1023");
	gm_session_pages_use(&pages, 1, &nothing);
	ck_assert_uint_eq(use(1).untracked, 0);

	uint32_t extra = gm_session_pages_row_add(&pages, 1, 7, "one too many");
	ck_assert_uint_eq(extra, GM_PAGES_UNTRACKED);
	/* Blocks of the heap are counted by whoever lists them. */
	ck_assert_uint_eq(gm_session_pages_row_try(&pages, 1, 7, "one more"), 0);
	ck_assert(gm_session_pages_use(&pages, 1, &nothing));
	ck_assert_uint_eq(use(1).untracked, 1);
	ck_assert_uint_eq(use(0).untracked, 0);
	gm_session_pages_unlisted(&pages, 1, 5);
	ck_assert(gm_session_pages_use(&pages, 1, &nothing));
	ck_assert_uint_eq(use(1).untracked, 6);
	gm_session_pages_unlisted(&pages, 1, 0);
	gm_session_pages_row_tag(&pages, extra, "has no row");
	gm_session_pages_row_remove(&pages, 1, extra);
	gm_session_pages_use(&pages, 1, &nothing);
	ck_assert_uint_eq(use(1).untracked, 0);

	/* A row that is free again is taken again. */
	gm_session_pages_row_remove(&pages, 1, rows[500]);
	ck_assert_uint_eq(row(500).bytes, 0);
	ck_assert_uint_eq(gm_session_pages_row_add(&pages, 0, 9, NULL), rows[500]);
	ck_assert_uint_eq(row(500).bytes, 9);
	ck_assert_str_eq(row(500).tag, "");
	gm_session_pages_row_remove(&pages, 0, rows[500]);
	ck_assert_uint_eq(gm_session_pages_row_try(&pages, 1, 10, "block"), rows[500]);
	ck_assert_uint_eq(row(500).bytes, 10);
	ck_assert_uint_eq(row(500).device, 1);
	ck_assert_str_eq(row(500).tag, "block");
}
END_TEST

static struct gm_page_note note(uint32_t i)
{
	struct gm_page_note ret;
	ck_assert_int_eq(pread(client_fd, &ret, sizeof(ret),
				 (off_t)(offsetof(struct gm_page_client, notes) + i * sizeof(ret))),
		(ssize_t)sizeof(ret));
	return ret;
}

static size_t n_rows(uint64_t born_until_ns, struct gm_pages_seen_row *ret_first)
{
	struct gm_pages_seen_row *rows;
	size_t n;
	ck_assert_int_eq(gm_session_pages_rows(&pages, born_until_ns, &rows, &n), 0);
	if (n && ret_first)
		*ret_first = rows[0];
	free(rows);
	return n;
}

START_TEST(a_note_says_more_about_a_row_and_ends_with_it)
{
	struct gm_pages_about about = {.ptr = &about, .type = "kv", .precision = "bf16"};
	struct gm_pages_seen_row seen;
	uint32_t one = gm_session_pages_row_add(&pages, 0, 5, "one");
	uint32_t two = gm_session_pages_row_add(&pages, 0, 6, "two");

	gm_session_pages_row_note(&pages, one, &about);
	ck_assert_uint_eq(note(0).born_ns, row(0).born_ns);
	ck_assert_uint_ne(row(0).born_ns, row(1).born_ns);
	ck_assert_str_eq(note(0).type, "kv");
	ck_assert_str_eq(note(0).precision, "bf16");
	ck_assert_uint_eq(note(0).used_ns, 0);
	gm_session_pages_row_touch(&pages, one);
	gm_session_pages_row_touch(&pages, two);
	gm_session_pages_row_touch(&pages, 0);
	gm_session_pages_row_touch(&pages, GM_PAGES_UNTRACKED);
	ck_assert_uint_ne(note(0).used_ns, 0);
	ck_assert_str_eq(note(0).type, "kv");
	ck_assert_uint_eq(note(1).born_ns, row(1).born_ns);

	ck_assert_uint_eq(n_rows(UINT64_MAX, &seen), 2);
	ck_assert_ptr_eq(seen.ptr, &about);
	ck_assert_str_eq(seen.row.tag, "one");
	ck_assert_str_eq(seen.note.precision, "bf16");
	ck_assert_uint_eq(n_rows(row(0).born_ns, NULL), 1);
	ck_assert_uint_eq(n_rows(row(0).born_ns - 1, NULL), 0);

	gm_session_pages_row_remove(&pages, 0, one);
	ck_assert_uint_eq(note(0).born_ns, 0);
	ck_assert_str_eq(note(0).type, "");
	ck_assert_uint_eq(n_rows(UINT64_MAX, &seen), 1);
	ck_assert_ptr_null(seen.ptr);
}
END_TEST

START_TEST(rows_that_find_no_room_are_kept_in_this_process)
{
	enum { N = 3 * GM_PAGES_OWN_ROWS };
	uint32_t rows[N];
	struct gm_page_use nothing = {.in_use = 0};

	for (uint32_t i = 0; i < GM_BOUND_TRACKED_BUFFERS; i++)
		gm_session_pages_row_add(&pages, 0, 1, NULL);
	pages.own_rows = true;
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < N; i++) {
			rows[i] = gm_session_pages_row_add(&pages, 1, 2, "own");
			ck_assert_uint_ne(rows[i], GM_PAGES_UNTRACKED);
			gm_session_pages_row_note(&pages, rows[i],
				&(struct gm_pages_about){.ptr = &rows[i], .type = "kv"});
			gm_session_pages_row_tag(&pages, rows[i], "renamed");
			gm_session_pages_row_touch(&pages, rows[i]);
		}
		ck_assert_uint_eq(n_rows(UINT64_MAX, NULL), GM_BOUND_TRACKED_BUFFERS + N);
		gm_session_pages_use(&pages, 1, &nothing);
		ck_assert_uint_eq(use(1).untracked, N);
		for (int i = 0; i < N; i++)
			gm_session_pages_row_remove(&pages, 1, rows[i]);
		ck_assert_uint_eq(n_rows(UINT64_MAX, NULL), GM_BOUND_TRACKED_BUFFERS);
	}
	ck_assert_uint_eq(pages.n_own, 3);
	gm_session_pages_use(&pages, 1, &nothing);
	ck_assert_uint_eq(use(1).untracked, 0);
}
END_TEST

/* What tracking takes in this process and in the page, the name included. */
START_TEST(a_tracked_buffer_takes_256_bytes_at_most)
{
	const size_t name = GM_BOUND_NAME_BYTES + 1;

	ck_assert_uint_le(sizeof(struct gm_page_row) + sizeof(struct gm_page_note) +
				  sizeof(pages.row_ptr[0]) + sizeof(pages.free_rows[0]) + name,
		256);
	ck_assert_uint_le(sizeof(struct gm_pages_own_row) + name, 256);
}
END_TEST

START_TEST(a_page_of_an_older_daemon_has_rows_without_notes)
{
	struct gm_pages_about about = {.ptr = &about, .type = "kv"};
	struct gm_pages_seen_row seen;

	gm_session_pages_deinit(&pages);
	gm_session_pages_init(&pages);
	close(client_fd);
	client_fd = page_of(2, GM_PAGE_CLIENT_MAGIC, GM_PAGE_CLIENT_BYTES_OLD, F_SEAL_SHRINK);
	ck_assert_int_eq(gm_session_pages_map(&pages, daemon_fd, client_fd), 0);
	uint32_t one = gm_session_pages_row_add(&pages, 0, 5, "one");
	gm_session_pages_row_note(&pages, one, &about);
	gm_session_pages_row_touch(&pages, one);
	ck_assert_uint_eq(n_rows(UINT64_MAX, &seen), 1);
	ck_assert_ptr_eq(seen.ptr, &about);
	ck_assert_str_eq(seen.note.type, "");

	/* And a newer daemon changes nothing about that. */
	close(client_fd);
	client_fd = page(GM_PAGE_CLIENT_MAGIC, sizeof(struct gm_page_client), F_SEAL_SHRINK);
	ck_assert_int_eq(gm_session_pages_map(&pages, daemon_fd, client_fd), 0);
	gm_session_pages_row_note(&pages, one, &about);
	ck_assert_uint_eq(row(0).bytes, 5);
	gm_session_pages_row_remove(&pages, 0, one);
	ck_assert_uint_eq(n_rows(UINT64_MAX, NULL), 0);
}
END_TEST

START_TEST(notes_outlive_the_daemon_that_made_the_page)
{
	struct gm_pages_about about = {.type = "kv"};

	for (int old = 0; old < 2; old++) {
		uint32_t one = gm_session_pages_row_add(&pages, 0, 5, "one");
		gm_session_pages_row_note(&pages, one, &about);
		close(client_fd);
		client_fd = page(GM_PAGE_CLIENT_MAGIC,
			old ? GM_PAGE_CLIENT_BYTES_OLD : sizeof(struct gm_page_client),
			F_SEAL_SHRINK);
		ck_assert_int_eq(gm_session_pages_map(&pages, daemon_fd, client_fd), 0);
		if (!old)
			ck_assert_str_eq(note(0).type, "kv");
		gm_session_pages_row_note(&pages, one, &about);
		gm_session_pages_row_remove(&pages, 0, one);
	}
}
END_TEST

START_TEST(figures_are_published_when_they_differ)
{
	struct gm_page_use figures = {.in_use = 5, .hits = 7};
	ck_assert(gm_session_pages_use(&pages, 0, &figures));
	ck_assert(!gm_session_pages_use(&pages, 0, &figures));
	ck_assert_uint_eq(use(0).in_use, 5);
	ck_assert_uint_eq(use(0).hits, 7);
	ck_assert_uint_eq(use(0).seq % 2, 0);
	figures.hits++;
	ck_assert(gm_session_pages_use(&pages, 0, &figures));
	ck_assert_uint_eq(use(0).hits, 8);
}
END_TEST

START_TEST(new_pages_go_on_where_the_old_ones_ended)
{
	struct gm_page_use figures = {.in_use = 5};
	struct gm_page_device device, value = {.pressure_ppm = 42};
	gm_session_pages_use(&pages, 1, &figures);
	uint32_t mine = gm_session_pages_row_add(&pages, 1, 99, "stays");
	const void *where = pages.client, *there = pages.daemon;
	close(daemon_fd);
	close(client_fd);
	make_pages();
	ck_assert_int_eq(
		pwrite(daemon_fd, &value, sizeof(value), offsetof(struct gm_page_daemon, devices)),
		(ssize_t)sizeof(value));
	ck_assert_int_eq(gm_session_pages_map(&pages, daemon_fd, client_fd), 0);
	ck_assert_ptr_eq(pages.client, where);
	ck_assert_ptr_eq(pages.daemon, there);
	ck_assert_uint_eq(use(1).in_use, 5);
	ck_assert_str_eq(row(0).tag, "stays");
	ck_assert_int_eq(gm_session_pages_device(&pages, 0, &device), 0);
	ck_assert_uint_eq(device.pressure_ppm, 42);
	gm_session_pages_row_remove(&pages, 1, mine);
	ck_assert_uint_eq(row(0).bytes, 0);
}
END_TEST

static void refused(int daemon_page, int client_page)
{
	struct gm_session_pages other;
	gm_session_pages_init(&other);
	ck_assert_int_eq(gm_session_pages_map(&other, daemon_page, client_page), -EBADMSG);
	ck_assert_ptr_null(other.daemon);
	ck_assert_ptr_null(other.client);
	gm_session_pages_deinit(&other);
}

START_TEST(pages_that_are_no_good_are_refused)
{
	size_t bytes = sizeof(struct gm_page_daemon);
	int unsealed = page(GM_PAGE_DAEMON_MAGIC, bytes, 0);
	int short_one = page(GM_PAGE_DAEMON_MAGIC, bytes - 1, F_SEAL_SHRINK);
	int other = page(GM_PAGE_CLIENT_MAGIC, bytes, F_SEAL_SHRINK);
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	refused(unsealed, client_fd);
	refused(short_one, client_fd);
	refused(other, client_fd);
	refused(null, client_fd);
	refused(daemon_fd, daemon_fd);
	close(unsealed);
	close(short_one);
	close(other);
	close(null);
}
END_TEST

START_TEST(pages_of_an_older_or_newer_daemon_are_taken)
{
	static const uint32_t versions[] = {1, GM_PAGE_VERSION + 1};

	for (size_t i = 0; i < 2; i++) {
		int theirs = page_of(versions[i], GM_PAGE_DAEMON_MAGIC,
			sizeof(struct gm_page_daemon), F_SEAL_SHRINK);
		int ours = page_of(versions[i], GM_PAGE_CLIENT_MAGIC, sizeof(struct gm_page_client),
			F_SEAL_SHRINK);
		ck_assert_int_eq(gm_session_pages_map(&pages, theirs, ours), 0);
		close(theirs);
		close(ours);
	}

	int none = page_of(0, GM_PAGE_DAEMON_MAGIC, sizeof(struct gm_page_daemon), F_SEAL_SHRINK);
	refused(none, client_fd);
	close(none);
}
END_TEST

static _Atomic bool over;

static void *reader(void *ctx)
{
	struct gm_page_device device;
	while (!over) {
		int r = gm_session_pages_device(&pages, 0, &device);
		if (r != 0 && r != -EAGAIN)
			return (void *)1;
		uint32_t mine = gm_session_pages_row_add(&pages, 0, 1, "reader");
		gm_session_pages_row_remove(&pages, 0, mine);
	}
	return NULL;
}

START_TEST(readers_and_writers_need_not_know_of_new_pages)
{
	pthread_t threads[3];
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, reader, NULL), 0);
	for (int i = 0; i < 200; i++) {
		close(daemon_fd);
		close(client_fd);
		make_pages();
		ck_assert_int_eq(gm_session_pages_map(&pages, daemon_fd, client_fd), 0);
	}
	over = true;
	for (int i = 0; i < 3; i++) {
		void *bad;
		ck_assert_int_eq(pthread_join(threads[i], &bad), 0);
		ck_assert_ptr_null(bad);
	}
	for (uint32_t i = 0; i < 3; i++)
		ck_assert_uint_eq(row(i).bytes, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client pages");
	TCase *tc = tcase_create("pages");
	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, buffers_past_the_table_are_counted_and_not_listed);
	tcase_add_test(tc, a_note_says_more_about_a_row_and_ends_with_it);
	tcase_add_test(tc, rows_that_find_no_room_are_kept_in_this_process);
	tcase_add_test(tc, a_tracked_buffer_takes_256_bytes_at_most);
	tcase_add_test(tc, a_page_of_an_older_daemon_has_rows_without_notes);
	tcase_add_test(tc, notes_outlive_the_daemon_that_made_the_page);
	tcase_add_test(tc, figures_are_published_when_they_differ);
	tcase_add_test(tc, new_pages_go_on_where_the_old_ones_ended);
	tcase_add_test(tc, pages_of_an_older_or_newer_daemon_are_taken);
	tcase_add_test(tc, pages_that_are_no_good_are_refused);
	tcase_add_test(tc, readers_and_writers_need_not_know_of_new_pages);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
