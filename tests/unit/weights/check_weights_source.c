/* SPDX-License-Identifier: Apache-2.0 */

/* The files of a model, found by a path: one file, a folder, an index with its shards, and what is refused. */

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/scratch.h"
#include "tests/tap.h"
#include "tests/unit/open_fds.h"
#include "tests/unit/weights/model_writer.h"
#include "weights/weights_layout.h"

#define ENTRY(dtype, shape, offsets) \
	"{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"
#define FIRST \
	"{\"a\":" ENTRY("U8", "[300]", "[0,300]") ",\"b\":" ENTRY("U8", "[5]", "[300,305]") "}"
#define SECOND   "{\"c\":" ENTRY("U8", "[512]", "[0,512]") "}"
#define MAP(map) "{\"metadata\":{\"total_size\":817},\"weight_map\":{" map "}}"
#define INDEX    MAP("\"a\":\"1.safetensors\",\"c\":\"2.safetensors\",\"b\":\"1.safetensors\"")

static char folder[128];
static struct gm_weights_source source;

static const char *in_folder(const char *name)
{
	static char path[512];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return path;
}

static void set_up(void)
{
	gm_scratch_folder(folder, sizeof(folder));
}

static void tear_down(void)
{
	gm_weights_source_close(&source);
}

static void write_shards(const char *index)
{
	model_write(in_folder("1.safetensors"), FIRST, 305, 1);
	model_write(in_folder("2.safetensors"), SECOND, 512, 2);
	model_write_text(in_folder("model.safetensors.index.json"), index);
}

static void require_refused(const char *path, gpumem_status status, const char *says)
{
	size_t before = open_fds();

	ck_assert_int_eq(gm_weights_source_open(&source, path), status);
	ck_assert_msg(
		strstr(gpumem_error_detail(), says), "'%s', not '%s'", gpumem_error_detail(), says);
	ck_assert_uint_eq(open_fds(), before);
}

/* Reads all of the layout in pieces of that size, and compares it with what the files hold. */
static void require_bytes(struct gm_weights_layout *layout, size_t piece)
{
	const struct gm_weights_table *table = &source.table;
	uint8_t *all = malloc(layout->bytes), *expected = calloc(1, layout->bytes);

	ck_assert(all && expected);
	for (size_t i = 0; i < table->n; i++)
		for (uint64_t k = 0; k < table->rows[i].bytes; k++)
			expected[table->rows[i].place + k] = model_byte(
				table->rows[i].begin + k, (uint8_t)(table->rows[i].file + 1));
	memset(all, 0xee, layout->bytes);
	for (uint64_t at = 0; at < layout->bytes; at += piece) {
		size_t n = layout->bytes - at < piece ? (size_t)(layout->bytes - at) : piece;
		ck_assert_int_eq(gm_weights_layout_read(layout, at, all + at, n), 0);
	}
	ck_assert_mem_eq(all, expected, layout->bytes);
	free(all);
	free(expected);
}

START_TEST(shards_are_found_and_laid_out_aligned)
{
	struct gm_weights_layout layout;

	write_shards(INDEX);
	ck_assert_int_eq(gm_weights_source_open(&source, folder), GPUMEM_OK);
	ck_assert_uint_eq(source.n, 2);
	ck_assert_uint_eq(source.table.n, 3);
	ck_assert_int_eq(gm_weights_layout_init(&layout, &source), GPUMEM_OK);
	ck_assert_uint_eq(gm_weights_table_find(&source.table, "a")->place, 0);
	ck_assert_uint_eq(gm_weights_table_find(&source.table, "b")->place, 512);
	ck_assert_uint_eq(gm_weights_table_find(&source.table, "c")->place, 768);
	ck_assert_ptr_null(gm_weights_table_find(&source.table, "d"));
	ck_assert_uint_eq(layout.bytes, 768 + 512);
	require_bytes(&layout, layout.bytes);
	require_bytes(&layout, 1);
	require_bytes(&layout, 7);
	require_bytes(&layout, 256);
	gm_weights_layout_deinit(&layout);
	gm_weights_source_close(&source);

	/* The same by the index. A folder with both prefers the index. */
	model_write(in_folder("model.safetensors"), SECOND, 512, 2);
	ck_assert_int_eq(gm_weights_source_open(&source, in_folder("model.safetensors.index.json")),
		GPUMEM_OK);
	ck_assert_uint_eq(source.table.n, 3);
	gm_weights_source_close(&source);
	ck_assert_int_eq(gm_weights_source_open(&source, folder), GPUMEM_OK);
	ck_assert_uint_eq(source.table.n, 3);
}
END_TEST

START_TEST(neighbours_that_stay_neighbours_are_read_at_once)
{
	char *header = model_header("t", 1000, 256);
	struct gm_weights_layout layout;

	model_write(in_folder("model.safetensors"), header, 1000 * 256, 1);
	ck_assert_int_eq(gm_weights_source_open(&source, folder), GPUMEM_OK);
	ck_assert_int_eq(gm_weights_layout_init(&layout, &source), GPUMEM_OK);
	ck_assert_uint_eq(layout.n, 1);
	require_bytes(&layout, 4096 + 1);
	gm_weights_layout_deinit(&layout);
	free(header);
}
END_TEST

START_TEST(links_are_followed)
{
	model_write(in_folder("blob"), SECOND, 512, 1);
	ck_assert_int_eq(symlink("blob", in_folder("model.safetensors")), 0);
	ck_assert_int_eq(gm_weights_source_open(&source, folder), GPUMEM_OK);
	ck_assert_uint_eq(source.table.n, 1);
}
END_TEST

START_TEST(a_wrong_index_is_refused_with_its_place)
{
	static const struct {
		const char *index, *says;
	} wrong[] = {
		{"", "byte 0: "},
		{"[]", "byte 0: this is no JSON object"},
		{"{}", "byte 0: the index has no weight_map"},
		{MAP(""), "byte 0: the index has no weight_map"},
		{"{\"weight_map\":[\"a\"]}", "byte 0: the index has no weight_map"},
		{MAP("\"a\":1"), "byte 45: tensor \"a\" has no text as the name of its file"},
		{MAP("\"a\":\"../x\""), "byte 45: tensor \"a\" is in a file whose name"},
		{MAP("\"a\":\"/etc/passwd\""), "byte 45: tensor \"a\" is in a file whose name"},
		{MAP("\"a\":\"..\""), "tensor \"a\" is in a file whose name"},
		{MAP("\"a\":\"\""), "tensor \"a\" is in a file whose name"},
		{MAP("\"a\":\"1.safetensors\",\"a\":\"2.safetensors\""), "duplicate object key"},
		{MAP("\"a\":\"2.safetensors\""), "byte 45: tensor \"a\" is not in 2.safetensors"},
		{MAP("\"a\":\"1.safetensors\",\"x\":\"2.safetensors\""),
			"byte 65: tensor \"x\" is not in 2.safetensors"},
		{MAP("\"a\":\"1.safetensors\",\"c\":\"twin\""), "is not in"},
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		write_shards(wrong[i].index);
		model_write(in_folder("twin"), FIRST, 305, 1);
		bool twin = strstr(wrong[i].index, "twin") != NULL;
		require_refused(folder, GPUMEM_E_INVALID,
			twin ? "byte 9: tensor \"a\" is also in 1.safetensors" : wrong[i].says);
	}
	write_shards(MAP("\"a\":\"3.safetensors\""));
	require_refused(folder, GPUMEM_E_NOT_FOUND, "cannot open 3.safetensors");
}
END_TEST

START_TEST(headers_are_bounded_together_and_not_each)
{
	/* One file with a long header, which a folder can have many times at no cost. */
	const size_t n = 60000000;
	char *header = malloc(n + 1);

	ck_assert_ptr_nonnull(header);
	memset(header, ' ', n);
	memcpy(header, SECOND, strlen(SECOND));
	header[n] = '\0';
	model_write(in_folder("1.safetensors"), header, 512, 1);
	free(header);
	ck_assert_int_eq(symlink("1.safetensors", in_folder("2.safetensors")), 0);
	model_write_text(in_folder("model.safetensors.index.json"),
		MAP("\"a\":\"1.safetensors\",\"b\":\"2.safetensors\""));
	require_refused(folder, GPUMEM_E_INVALID,
		"2.safetensors, byte 0: the headers of the model have more than 100000000 bytes "
		"together");
}
END_TEST

START_TEST(what_is_no_regular_file_is_refused_without_waiting)
{
	require_refused(folder, GPUMEM_E_NOT_FOUND, "has neither model.safetensors.index.json nor");
	require_refused(in_folder("none"), GPUMEM_E_NOT_FOUND, "cannot open");
	require_refused(in_folder("none.index.json"), GPUMEM_E_NOT_FOUND, "cannot open");
	require_refused("/nowhere/x.index.json", GPUMEM_E_NOT_FOUND, "cannot open the folder");
	require_refused("/dev/zero", GPUMEM_E_INVALID, "/dev/zero is a pipe, a socket or a device");

	ck_assert_int_eq(mkfifo(in_folder("pipe"), 0600), 0);
	require_refused(in_folder("pipe"), GPUMEM_E_INVALID, "is a pipe, a socket or a device");
	ck_assert_int_eq(mkfifo(in_folder("model.safetensors.index.json"), 0600), 0);
	require_refused(folder, GPUMEM_E_INVALID, "is a pipe, a socket or a device");
	ck_assert_int_eq(unlink(in_folder("model.safetensors.index.json")), 0);
	write_shards(INDEX);
	ck_assert_int_eq(unlink(in_folder("2.safetensors")), 0);
	ck_assert_int_eq(mkfifo(in_folder("2.safetensors"), 0600), 0);
	require_refused(folder, GPUMEM_E_INVALID, "2.safetensors is a pipe");
	ck_assert_int_eq(unlink(in_folder("2.safetensors")), 0);
	ck_assert_int_eq(mkdir(in_folder("2.safetensors"), 0700), 0);
	require_refused(folder, GPUMEM_E_INVALID, "2.safetensors is a folder");
}
END_TEST

/* Exchanges a file and a link to a pipe, all the time. */
static atomic_bool exchanging;
static atomic_uint exchanged;

static void *exchange(void *argument)
{
	char file[512], link[512];

	snprintf(file, sizeof(file), "%s", in_folder("1.safetensors"));
	snprintf(link, sizeof(link), "%s", in_folder("link"));
	while (atomic_load(&exchanging) &&
		renameat2(AT_FDCWD, link, AT_FDCWD, file, RENAME_EXCHANGE) == 0)
		atomic_fetch_add(&exchanged, 1);
	atomic_store(&exchanging, false);
	return argument;
}

START_TEST(what_is_no_regular_file_is_not_opened_if_it_takes_the_place_of_one)
{
	struct inotify_event event;
	char path[256];
	pthread_t thread;

	model_write(in_folder("1.safetensors"), FIRST, 305, 1);
	ck_assert_int_eq(mkfifo(in_folder("pipe"), 0600), 0);
	int watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	ck_assert_int_ge(inotify_add_watch(watch, in_folder("pipe"), IN_OPEN), 0);
	ck_assert_int_eq(symlink("pipe", in_folder("link")), 0);
	atomic_store(&exchanging, true);
	ck_assert_int_eq(pthread_create(&thread, NULL, exchange, NULL), 0);
	while (!atomic_load(&exchanged)) {
		ck_assert(atomic_load(&exchanging)); /* the file system can do that */
		sched_yield();
	}

	snprintf(path, sizeof(path), "%s/1.safetensors", folder);
	for (int i = 0; i < 20000; i++) {
		gpumem_status status = gm_weights_source_open(&source, path);
		ck_assert(status == GPUMEM_OK || status == GPUMEM_E_INVALID);
		gm_weights_source_close(&source);
	}
	atomic_store(&exchanging, false);
	pthread_join(thread, NULL);
	ck_assert_int_lt(read(watch, &event, sizeof(event)), 0); /* nobody has opened it */
	close(watch);
}
END_TEST

START_TEST(a_model_without_tensors_is_refused)
{
	model_write(in_folder("model.safetensors"), "{}", 0, 0);
	require_refused(folder, GPUMEM_E_INVALID, "has no tensors");
}
END_TEST

START_TEST(a_file_that_shrinks_or_changes_is_noticed)
{
	struct gm_weights_layout layout;
	uint8_t bytes[768 + 512];

	write_shards(INDEX);
	ck_assert_int_eq(gm_weights_source_open(&source, folder), GPUMEM_OK);
	ck_assert_int_eq(gm_weights_layout_init(&layout, &source), GPUMEM_OK);
	for (size_t i = 0; i < source.n; i++)
		ck_assert_int_eq(gm_weights_file_same(&source.files[i]), GPUMEM_OK);
	ck_assert_int_eq(gm_weights_layout_outcome(&layout), GPUMEM_OK);
	ck_assert_int_eq(truncate(in_folder("2.safetensors"), 100), 0);
	ck_assert_int_eq(gm_weights_layout_read(&layout, 0, bytes, sizeof(bytes)), EIO);
	ck_assert_int_eq(gm_weights_layout_outcome(&layout), GPUMEM_E_SYSTEM);
	ck_assert(strstr(gpumem_error_detail(), "2.safetensors, byte 65: the file became shorter"));
	ck_assert_int_eq(gm_weights_file_same(&source.files[0]), GPUMEM_OK);
	ck_assert_int_eq(gm_weights_file_same(&source.files[1]), GPUMEM_E_SYSTEM);
	ck_assert(strstr(gpumem_error_detail(), "2.safetensors was changed while it was read"));
	gm_weights_layout_deinit(&layout);
}
END_TEST

START_TEST(a_model_larger_than_any_device_is_refused)
{
	static const char header[] =
		"{\"a\":" ENTRY("U8", "[70368744177665]", "[0,70368744177665]") "}";
	struct gm_weights_layout layout;

	/* A file with a hole of 64 TiB; where the file system has no such files, there is nothing to test. */
	model_write(in_folder("model.safetensors"), header, 0, 0);
	if (truncate(in_folder("model.safetensors"), (off_t)(8 + strlen(header) + 70368744177665)) <
		0)
		return;
	ck_assert_int_eq(gm_weights_source_open(&source, folder), GPUMEM_OK);
	ck_assert_int_eq(gm_weights_layout_init(&layout, &source), GPUMEM_E_INVALID);
	ck_assert(strstr(gpumem_error_detail(), "makes the model larger than any device"));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("weights source");
	TCase *tc = tcase_create("weights source");

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, shards_are_found_and_laid_out_aligned);
	tcase_add_test(tc, neighbours_that_stay_neighbours_are_read_at_once);
	tcase_add_test(tc, links_are_followed);
	tcase_add_test(tc, a_wrong_index_is_refused_with_its_place);
	tcase_add_test(tc, headers_are_bounded_together_and_not_each);
	tcase_add_test(tc, what_is_no_regular_file_is_refused_without_waiting);
	tcase_add_test(tc, what_is_no_regular_file_is_not_opened_if_it_takes_the_place_of_one);
	tcase_add_test(tc, a_model_without_tensors_is_refused);
	tcase_add_test(tc, a_file_that_shrinks_or_changes_is_noticed);
	tcase_add_test(tc, a_model_larger_than_any_device_is_refused);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
