/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Weights that stay, against a real daemon: one process loads a model and is killed, others attach and find every byte.
 * What fails, is cancelled or dies half way leaves nothing behind.
 */

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/integration/weights_daemon.h"
#include "tests/tap.h"

static const char *in_folder(const char *name)
{
	static char path[512];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return path;
}

/* ---- loading and attaching */

START_TEST(weights_outlive_the_process_that_loaded_them)
{
	struct gm_worker one, two;
	uint8_t seed = 5;

	weights_write(folder, seed);
	GM_REQUIRE_EQ(weights_loaded((struct weights_loading){folder, seed, 0, true}), 1);
	GM_UNTIL(gm_figures_now(&daemon_).clients == 0);
	/* The files are not needed any more. */
	GM_REQUIRE(unlink(in_folder("model-1.safetensors")) == 0);
	GM_REQUIRE_EQ(weights_start_reader(&one, &seed), 1);
	GM_REQUIRE_EQ(weights_start_reader(&two, &seed), 1);
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).leases, 1);
	weights_end(&one);
	weights_end(&two);
	gm_daemon_kill(&daemon_);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	GM_REQUIRE_EQ(weights_start_reader(&one, &seed), 1);
	weights_end(&one);
	weights_in_process(weights_remover, NULL);
	require_nothing();
}
END_TEST

static void wants_version_one(int channel, void *argument)
{
	gpumem_session *s = weights_join("reader");
	gpumem_weights *weights = NULL;

	REFUSED(gpumem_weights_attach(s, "llama", 1, &weights), GPUMEM_E_NOT_FOUND,
		"llama has version 2 now");
	GM_REQUIRE(!weights);
	OK(gpumem_weights_attach(s, "llama", 2, &weights));
	gpumem_weights_detach(weights);
	gpumem_disconnect(s);
}

START_TEST(readers_keep_their_version)
{
	struct gm_worker old, new;
	uint8_t first = 1, second = 2;

	weights_write(folder, first);
	GM_REQUIRE_EQ(weights_loaded((struct weights_loading){folder, first, 0, false}), 1);
	GM_REQUIRE_EQ(weights_start_reader(&old, &first), 1);
	weights_write(folder, second);
	GM_REQUIRE_EQ(weights_loaded((struct weights_loading){folder, second, 1, false}), 2);
	GM_REQUIRE_EQ(weights_start_reader(&new, &second), 2);
	weights_in_process(wants_version_one, NULL);
	GM_UNTIL(gm_figures_now(&daemon_).leases == 2);
	weights_end(&old); /* it looks once more */
	GM_UNTIL(gm_figures_now(&daemon_).leases == 1);
	weights_in_process(weights_remover, NULL);
	weights_end(&new);
	require_nothing();
}
END_TEST

/* ---- loads that do not end well */

START_TEST(a_loader_that_is_killed_half_way_leaves_nothing)
{
	struct gm_worker loader, reader;
	uint8_t seed = 7;

	weights_write(folder, seed);
	gm_worker_start(&loader, weights_half_loader, folder);
	gm_hear_word(loader.channel, 'h');
	GM_REQUIRE_EQ(count_names(), 0);
	gm_worker_kill(&loader);
	require_nothing();

	/* The version before stays. */
	GM_REQUIRE_EQ(weights_loaded((struct weights_loading){folder, seed, 0, false}), 1);
	gm_worker_start(&loader, weights_half_loader, folder);
	gm_hear_word(loader.channel, 'h');
	GM_REQUIRE_EQ(weights_start_reader(&reader, &seed), 1);
	gm_worker_kill(&loader);
	GM_UNTIL(gm_figures_now(&daemon_).leases == 1);
	weights_end(&reader);
	weights_in_process(weights_remover, NULL);
	require_nothing();
}
END_TEST

struct cancelling {
	uint32_t word;
	bool by_word;
	uint64_t last;
};

static int cancel_half_way(void *user, uint64_t done, uint64_t total)
{
	struct cancelling *cancelling = user;

	GM_REQUIRE(done >= cancelling->last && done <= total);
	cancelling->last = done;
	if (done < total / 2)
		return 0;
	if (cancelling->by_word)
		gpumem_copy_cancel(&cancelling->word);
	return !cancelling->by_word;
}

static int shrink_half_way(void *user, uint64_t done, uint64_t total)
{
	if (done >= total / 4)
		GM_REQUIRE(truncate(user, 4096) == 0);
	return 0;
}

static int change_half_way(void *user, uint64_t done, uint64_t total)
{
	int fd = done >= total / 4 ? open(user, O_WRONLY | O_CLOEXEC) : -1;

	if (fd < 0)
		return 0;
	GM_REQUIRE(pwrite(fd, "x", 1, 100000) == 1);
	GM_REQUIRE(futimens(fd, (struct timespec[2]){{1, 0}, {1, 0}}) == 0);
	close(fd);
	return 0;
}

static void fails_to_load(int channel, void *argument)
{
	gpumem_weights_options options = GPUMEM_WEIGHTS_OPTIONS_INIT;
	gpumem_session *s = weights_join("loader");
	gpumem_weights *weights = NULL;
	struct cancelling cancelling = {0};
	char path[512];

	options.progress = cancel_half_way;
	options.user = &cancelling;
	options.cancel = &cancelling.word;
	REFUSED(gpumem_weights_load(s, 0, folder, "llama", &options, &weights), GPUMEM_E_CANCELLED,
		"cancelled");
	cancelling = (struct cancelling){.by_word = true};
	REFUSED(gpumem_weights_load(s, 0, folder, "llama", &options, &weights), GPUMEM_E_CANCELLED,
		"cancelled");
	REFUSED(gpumem_weights_load(s, 0, folder, "llama", &options, &weights), GPUMEM_E_CANCELLED,
		"cancelled");

	snprintf(path, sizeof(path), "%s", in_folder("model-2.safetensors"));
	options = (gpumem_weights_options)GPUMEM_WEIGHTS_OPTIONS_INIT;
	options.progress = change_half_way;
	options.user = path;
	REFUSED(gpumem_weights_load(s, 0, folder, "llama", &options, &weights), GPUMEM_E_SYSTEM,
		"model-2.safetensors was changed while it was read, so nothing is published");
	options.progress = shrink_half_way;
	/* All of it may have been read before it shrinks. */
	REFUSED(gpumem_weights_load(s, 0, folder, "llama", &options, &weights), GPUMEM_E_SYSTEM,
		"model-2.safetensors");
	GM_REQUIRE(strstr(gpumem_error_detail(), "became shorter while it was read") ||
		   strstr(gpumem_error_detail(), "was changed while it was read"));

	/* Now it is damaged, and refused before any memory is asked for. */
	REFUSED(gpumem_weights_load(s, 0, folder, "llama", NULL, &weights), GPUMEM_E_INVALID,
		"model-2.safetensors, byte ");
	REFUSED(gpumem_weights_load(s, 0, "/dev/zero", "llama", NULL, &weights), GPUMEM_E_INVALID,
		"/dev/zero is a pipe, a socket or a device");
	REFUSED(gpumem_weights_load(s, 0, "/nowhere", "llama", NULL, &weights), GPUMEM_E_NOT_FOUND,
		"/nowhere");
	GM_REQUIRE(!weights);
	gpumem_disconnect(s);
}

START_TEST(a_load_that_fails_leaves_nothing)
{
	weights_write(folder, 3);
	weights_in_process(fails_to_load, NULL);
	require_nothing();
}
END_TEST

static void wrong_arguments(int channel, void *argument)
{
	gpumem_weights_options options = GPUMEM_WEIGHTS_OPTIONS_INIT;
	gpumem_session *s = weights_join("loader");
	gpumem_weights *weights = NULL;
	gpumem_weights_entry *entries = NULL;
	size_t n = 77;

	REFUSED(gpumem_weights_load(s, 0, NULL, "x", NULL, NULL), GPUMEM_E_INVALID, "path");
	REFUSED(gpumem_weights_load(s, 0, folder, NULL, NULL, NULL), GPUMEM_E_INVALID, "name");
	REFUSED(gpumem_weights_load(s, 0, folder, "a/b", NULL, NULL), GPUMEM_E_INVALID, "name");
	REFUSED(gpumem_weights_load(s, 77, folder, "x", NULL, NULL), GPUMEM_E_NOT_FOUND, "77");
	GM_REQUIRE(gpumem_weights_load(NULL, 0, folder, "x", NULL, NULL) != GPUMEM_OK);
	options.size = 0;
	REFUSED(gpumem_weights_load(s, 0, folder, "x", &options, NULL), GPUMEM_E_INVALID, "size");
	REFUSED(gpumem_weights_attach(s, "x", 0, NULL), GPUMEM_E_INVALID, "ret_weights");
	REFUSED(gpumem_weights_attach(s, NULL, 0, &weights), GPUMEM_E_INVALID, "name");
	REFUSED(gpumem_weights_attach(s, "x", 0, &weights), GPUMEM_E_NOT_FOUND, "name");
	REFUSED(gpumem_weights_list(s, NULL, &n), GPUMEM_E_INVALID, "ret_entries");
	REFUSED(gpumem_weights_list(s, &entries, NULL), GPUMEM_E_INVALID, "ret_count");
	REFUSED(gpumem_weights_remove(s, NULL), GPUMEM_E_INVALID, "name");
	GM_REQUIRE(!weights && !entries && n == 77);
	OK(gpumem_weights_list(s, &entries, &n));
	GM_REQUIRE(!entries && n == 0);
	gpumem_weights_list_free(NULL);
	gpumem_weights_detach(NULL);
	gpumem_disconnect(s);
}

START_TEST(wrong_arguments_are_named)
{
	weights_write(folder, 3);
	weights_in_process(wrong_arguments, NULL);
	require_nothing();
}
END_TEST

static int cancel_at_the_end(void *user, uint64_t done, uint64_t total)
{
	return done == total;
}

static void cancels_at_the_end(int channel, void *argument)
{
	gpumem_weights_options options = GPUMEM_WEIGHTS_OPTIONS_INIT;
	gpumem_session *s = weights_join("loader");

	options.progress = cancel_at_the_end;
	REFUSED(gpumem_weights_load(s, 0, folder, "llama", &options, NULL), GPUMEM_E_CANCELLED,
		"the load was cancelled before the weights were published");
	gpumem_disconnect(s);
}

START_TEST(a_load_that_is_cancelled_with_its_last_byte_publishes_nothing)
{
	weights_write(folder, 3);
	weights_in_process(cancels_at_the_end, NULL);
	require_nothing();
}
END_TEST

/* ---- names */

static void names_that_are_taken(int channel, void *argument)
{
	gpumem_weights_options options = GPUMEM_WEIGHTS_OPTIONS_INIT;
	gpumem_session *s = weights_join("loader");
	gpumem_weights *weights = NULL;
	gpumem_weights_entry *entries = NULL;
	gpumem_buffer *plain = NULL;
	size_t n = 0;

	OK(gpumem_weights_load(s, 0, folder, "llama", NULL, NULL));
	REFUSED(gpumem_weights_load(s, 0, folder, "llama", NULL, &weights), GPUMEM_E_BUSY,
		"there are weights with the name llama already, version 1; replace them");
	OK(gpumem_buffer_create(s, 0, 2 * MIB, NULL, &plain));
	OK(gpumem_publish(plain, "plain", NULL, GPUMEM_STREAM_DONE, NULL));
	options.replace = 1;
	REFUSED(gpumem_weights_load(s, 0, folder, "plain", &options, &weights), GPUMEM_E_BUSY,
		"plain is already the name of a buffer without weights");
	REFUSED(gpumem_weights_attach(s, "plain", 0, &weights), GPUMEM_E_NOT_FOUND,
		"plain is the name of a buffer without weights");
	REFUSED(gpumem_weights_remove(s, "plain"), GPUMEM_E_NOT_FOUND,
		"plain is the name of a buffer without weights; to remove it, use 'gpumemctl shares remove plain'");

	OK(gpumem_weights_load(s, 0, folder, "alpaca", NULL, &weights));
	OK(gpumem_weights_list(s, &entries, &n));
	GM_REQUIRE_EQ(n, 2);
	GM_REQUIRE(!strcmp(entries[0].name, "alpaca") && !strcmp(entries[1].name, "llama"));
	GM_REQUIRE_EQ(entries[0].bytes, MODEL_BYTES);
	GM_REQUIRE_EQ(entries[0].tensors, MODEL_TENSORS);
	GM_REQUIRE_EQ(entries[0].version, 1);
	GM_REQUIRE_EQ(entries[0].device, 0);
	GM_REQUIRE_EQ(entries[0].owner, geteuid());
	gpumem_weights_list_free(entries);
	gpumem_weights_detach(weights);

	OK(gpumem_weights_remove(s, "alpaca"));
	OK(gpumem_weights_remove(s, "llama"));
	OK(gpumem_unpublish(s, "plain"));
	gpumem_buffer_destroy(plain);
	gpumem_disconnect(s);
}

START_TEST(a_name_that_is_taken_is_not_replaced_by_accident)
{
	weights_write(folder, 3);
	weights_in_process(names_that_are_taken, NULL);
	require_nothing();
}
END_TEST

#define HEAD "{\"format\":\"gpumem-weights\",\"layout\":1,\"count\":1,\"bytes\":1,"

/* Publishes buffers that claim to hold weights. */
static void publishes_lies(int channel, void *argument)
{
	static const char *const lies[][2] = {
		{HEAD "\"table\":[0,1099511627776]}", "its table of tensors is not in the buffer"},
		{HEAD "\"table\":[4194303,4194305]}", "its table of tensors is not in the buffer"},
		{HEAD "\"table\":[0,4096]}", "liar, byte "}, /* there are zeros */
		{HEAD "\"tensors\":{\"a\":{\"dtype\":\"U8\",\"shape\":[4194305],"
		      "\"data_offsets\":[0,4194305]}}}",
			"tensor \"a\" ends at byte 4194305 of the data, which has 4194304 bytes"},
	};
	gpumem_buffer_options tagged = GPUMEM_BUFFER_OPTIONS_INIT;
	gpumem_session *s = weights_join("liar");
	void *zeros = calloc(1, 4 * MIB);

	GM_REQUIRE(zeros);
	tagged.tag = "weights";
	for (size_t i = 0; i < sizeof(lies) / sizeof(*lies); i++) {
		gpumem_publish_options options = GPUMEM_PUBLISH_OPTIONS_INIT;
		gpumem_weights *weights = NULL;
		gpumem_buffer *buffer;

		OK(gpumem_buffer_create(s, 0, 4 * MIB, &tagged, &buffer));
		OK(gpumem_copy_in(buffer, 0, zeros, 4 * MIB, GPUMEM_STREAM_DONE, NULL, NULL));
		options.metadata = lies[i][0];
		options.metadata_size = strlen(lies[i][0]);
		OK(gpumem_publish(buffer, "liar", &options, GPUMEM_STREAM_DONE, NULL));
		REFUSED(gpumem_weights_attach(s, "liar", 0, &weights), GPUMEM_E_INVALID,
			lies[i][1]);
		GM_REQUIRE(!weights);
		OK(gpumem_unpublish(s, "liar"));
		gpumem_buffer_destroy(buffer);
	}
	free(zeros);
	gpumem_disconnect(s);
}

START_TEST(what_somebody_publishes_as_weights_is_checked)
{
	weights_in_process(publishes_lies, NULL);
	require_nothing();
}
END_TEST

/* Publishes what is no weights, with tags that say so. */
static void lists_lies(int channel, void *argument)
{
	static const struct {
		const char *tag;
		uint64_t tensors, bytes;
	} lies[] = {
		{"weights", 0, 4 * MIB},
		{"weights: 3 tensors, 4194304 bytes", 3, 4 * MIB},
		{"weights: 3 tensors, 4194305 bytes", 0, 4 * MIB},
		{"weights: 262145 tensors, 1 bytes", 0, 4 * MIB},
		{"weights: 3 tensors, 18446744073709551617 bytes", 0, 4 * MIB},
		{"weights: -3 tensors, 1 bytes", 0, 4 * MIB},
		{"weights: 3 tensors, 1 bytes, or so", 0, 4 * MIB},
	};
	gpumem_publish_options options = GPUMEM_PUBLISH_OPTIONS_INIT;
	gpumem_session *s = weights_join("liar");
	char *nonsense = malloc(GPUMEM_METADATA_MOST), name[16];
	gpumem_weights_entry *entries = NULL;
	size_t n = 0;

	/* Whoever reads it gives up, or has a gigabyte of lists in lists. */
	GM_REQUIRE(nonsense);
	memset(nonsense, '[', GPUMEM_METADATA_MOST);
	memcpy(nonsense, HEAD, strlen(HEAD));
	options.metadata = nonsense;
	/* All of them together are within the user's bound. */
	options.metadata_size = GPUMEM_METADATA_MOST / 2;
	for (size_t i = 0; i < sizeof(lies) / sizeof(*lies); i++) {
		gpumem_buffer_options tagged = GPUMEM_BUFFER_OPTIONS_INIT;
		gpumem_buffer *buffer;

		tagged.tag = lies[i].tag;
		OK(gpumem_buffer_create(s, 0, 4 * MIB, &tagged, &buffer));
		snprintf(name, sizeof(name), "liar-%zu", i);
		OK(gpumem_publish(buffer, name, &options, GPUMEM_STREAM_DONE, NULL));
		gpumem_buffer_destroy(buffer);
	}
	free(nonsense);

	OK(gpumem_weights_list(s, &entries, &n));
	GM_REQUIRE_EQ(n, sizeof(lies) / sizeof(*lies));
	for (size_t i = 0; i < n; i++) {
		GM_REQUIRE_EQ(entries[i].tensors, lies[i].tensors);
		GM_REQUIRE_EQ(entries[i].bytes, lies[i].bytes);
		OK(gpumem_unpublish(s, entries[i].name));
	}
	gpumem_weights_list_free(entries);
	gpumem_disconnect(s);
}

START_TEST(a_list_reads_tags_and_no_metadata)
{
	weights_in_process(lists_lies, NULL);
	require_nothing();
}
END_TEST

/* Begins when it is told to, and says what came of it. */
static void races(int channel, void *argument)
{
	gpumem_session *s = weights_join("loader");

	gm_text_say_word(channel, 'r');
	gm_hear_word(channel, 'g');
	gpumem_status status = gpumem_weights_load(s, 0, folder, "llama", NULL, NULL);
	GM_REQUIRE(status == GPUMEM_OK || status == GPUMEM_E_BUSY);
	gm_text_say(channel, &status, sizeof(status));
	gpumem_disconnect(s);
}

START_TEST(of_two_loaders_of_one_name_one_wins)
{
	struct gm_worker workers[2];
	gpumem_status statuses[2];

	weights_write(folder, 9);
	for (int i = 0; i < 2; i++) {
		gm_worker_start(&workers[i], races, NULL);
		gm_hear_word(workers[i].channel, 'r');
	}
	for (int i = 0; i < 2; i++)
		gm_text_say_word(workers[i].channel, 'g');
	for (int i = 0; i < 2; i++) {
		gm_hear(workers[i].channel, &statuses[i], sizeof(statuses[i]));
		gm_worker_join(&workers[i]);
	}
	GM_REQUIRE(!statuses[0] != !statuses[1]);
	GM_UNTIL(gm_figures_now(&daemon_).leases == 1);
	weights_in_process(weights_remover, NULL);
	require_nothing();
}
END_TEST

/* ---- a table that is longer than the metadata of a name may be */

#define LONG_TENSORS 17000

static void loads_many_tensors(int channel, void *argument)
{
	gpumem_session *s = weights_join("loader");
	gpumem_weights *weights = NULL;
	gpumem_weights_entry *entries = NULL;
	size_t n = 0;

	OK(gpumem_weights_load(s, 0, in_folder("long"), "long", NULL, NULL));
	OK(gpumem_weights_attach(s, "long", 0, &weights));
	GM_REQUIRE_EQ(gpumem_weights_count(weights), LONG_TENSORS);
	for (size_t i = 0; i < LONG_TENSORS; i += 1000)
		weights_require_tensor(weights, gpumem_weights_at(weights, i), 3 * i, 1);
	OK(gpumem_weights_list(s, &entries, &n));
	GM_REQUIRE(n == 1 && entries[0].tensors == LONG_TENSORS);
	gpumem_weights_list_free(entries);
	gpumem_weights_detach(weights);
	OK(gpumem_weights_remove(s, "long"));
	gpumem_disconnect(s);
}

START_TEST(a_long_table_of_tensors_is_kept_with_them)
{
	char prefix[1001];

	memset(prefix, 'n', sizeof(prefix) - 1);
	prefix[sizeof(prefix) - 1] = '\0';
	char *header = model_header(prefix, LONG_TENSORS, 3);
	GM_REQUIRE(strlen(header) > GPUMEM_METADATA_MOST);
	model_write(in_folder("long"), header, 3 * LONG_TENSORS, 1);
	free(header);
	weights_in_process(loads_many_tensors, NULL);
	require_nothing();
}
END_TEST

/* ---- many loads by one user */

static void loads_again_and_again(int channel, void *argument)
{
	gpumem_weights_options options = GPUMEM_WEIGHTS_OPTIONS_INIT;
	gpumem_session *s = weights_join("loader");
	const char *path = in_folder("small");
	gpumem_status status = GPUMEM_OK;
	unsigned made = 0;
	char name[32];

	/* Under one name: nothing is left of the versions before. */
	options.replace = 1;
	for (int i = 0; i < (gm_on_gpu() || gm_sanitized() ? 1000 : 10000); i++)
		OK(gpumem_weights_load(s, 0, path, "small", &options, NULL));
	OK(gpumem_weights_remove(s, "small"));

	/* Under many: until the device is full, and then each is refused with a sentence. */
	for (; !status && made < 10000; made += !status) {
		snprintf(name, sizeof(name), "small-%u", made);
		status = gpumem_weights_load(s, 0, path, name, NULL, NULL);
	}
	GM_REQUIRE(status == GPUMEM_E_NO_MEMORY || status == GPUMEM_E_LIMIT ||
		   status == GPUMEM_E_TIMEOUT);
	GM_REQUIRE(*gpumem_error_detail());
	gm_text_say(channel, &made, sizeof(made));
	gm_hear_word(channel, 'g');
	for (unsigned i = 0; i < made; i++) {
		snprintf(name, sizeof(name), "small-%u", i);
		OK(gpumem_weights_remove(s, name));
	}
	gpumem_disconnect(s);
}

START_TEST(many_loads_by_one_user_are_bounded_by_its_memory)
{
	struct gm_worker worker;
	unsigned made = 0;

	char *header = model_header("t", 2, 10);
	model_write(in_folder("small"), header, 20, 1);
	free(header);
	gm_worker_start(&worker, loads_again_and_again, NULL);
	gm_hear(worker.channel, &made, sizeof(made));
	GM_REQUIRE(made > 100 && made <= 512); /* of 2 MiB each */
	GM_REQUIRE_EQ(count_names(), made);
	GM_UNTIL(gm_figures_now(&daemon_).leases == made);
	gm_text_say_word(worker.channel, 'g');
	gm_worker_join(&worker);
	require_nothing();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client weights");
	TCase *tc = tcase_create("weights");

	tcase_add_checked_fixture(tc, set_up_alone, tear_down_alone);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, weights_outlive_the_process_that_loaded_them);
	tcase_add_test(tc, readers_keep_their_version);
	tcase_add_test(tc, a_loader_that_is_killed_half_way_leaves_nothing);
	tcase_add_test(tc, a_load_that_fails_leaves_nothing);
	tcase_add_test(tc, a_load_that_is_cancelled_with_its_last_byte_publishes_nothing);
	tcase_add_test(tc, wrong_arguments_are_named);
	tcase_add_test(tc, a_name_that_is_taken_is_not_replaced_by_accident);
	tcase_add_test(tc, what_somebody_publishes_as_weights_is_checked);
	tcase_add_test(tc, a_list_reads_tags_and_no_metadata);
	tcase_add_test(tc, of_two_loaders_of_one_name_one_wins);
	tcase_add_test(tc, a_long_table_of_tensors_is_kept_with_them);
	tcase_add_test(tc, many_loads_by_one_user_are_bounded_by_its_memory);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
