/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Buffers under names, through the library: they outlive their maker, a reader never sees one that is
 * half filled, and what is refused names the argument.
 */

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/integration/client_names_fixture.h"
#include "tests/bound.h"
#include "tests/tap.h"

#define META 200003 /* bytes of metadata: several packets */

/* The test itself forks workers, so it must not use the driver: what it asks of the daemon, it asks
 * through figures. */
static void set_up_alone(void)
{
	gm_daemon_start(&daemon_, NULL);
}

static void tear_down_alone(void)
{
	GM_UNTIL(gm_figures_now(&daemon_).clients == 0);
	GM_UNTIL(gm_figures_now(&daemon_).leases == 0);
	gm_daemon_stop(&daemon_);
}

/* Has the buffer published with META times that byte. The caller frees it. */
static void *describe(gpumem_publish_options *options, uint8_t byte)
{
	void *metadata = malloc(META);
	GM_REQUIRE(metadata);
	memset(metadata, byte, META);
	options->metadata = metadata;
	options->metadata_size = META;
	return metadata;
}

/* Frees it. */
static bool is_described(void *data, size_t size, uint8_t byte)
{
	const uint8_t *bytes = data;
	bool same = size == META && bytes[0] == byte && memcmp(bytes, bytes + 1, META - 1) == 0 &&
		    bytes[META] == 0;
	gpumem_metadata_free(data);
	return same;
}

static bool buffer_is_described(gpumem_buffer *buffer, uint8_t byte)
{
	void *data;
	size_t size;
	OK(gpumem_buffer_metadata(buffer, &data, &size));
	return is_described(data, size, byte);
}

/* ---- makers and readers, each a process */

struct making {
	uint8_t byte;
	bool replace, until_unread;
	bool destroy; /* the maker destroys its buffer and disconnects before it ends */
};

/* Publishes "llama" and says the version. */
static void make(int channel, void *argument)
{
	const struct making *making = argument;
	gpumem_publish_options options = GPUMEM_PUBLISH_OPTIONS_INIT;
	gpumem_session *s = join("maker");
	gpumem_buffer *buffer = filled(s, making->byte);
	uint64_t version = 0;

	GM_REQUIRE_EQ(gpumem_buffer_version(buffer), 0);
	options.replace = making->replace;
	options.until_unread = making->until_unread;
	void *metadata = describe(&options, making->byte);
	OK(gpumem_publish(buffer, "llama", &options, NULL, &version));
	free(metadata);
	GM_REQUIRE(buffer_is_described(buffer, making->byte));
	GM_REQUIRE_EQ(gpumem_buffer_version(buffer), version);
	if (making->destroy) {
		gpumem_buffer_destroy(buffer);
		gpumem_disconnect(s);
	}
	gm_text_say(channel, &version, sizeof(version));
	if (!making->destroy)
		gm_hear_word(channel, 'e');
}

static uint64_t made(struct making making)
{
	struct gm_worker worker;
	uint64_t version;

	gm_worker_start(&worker, make, &making);
	gm_hear(worker.channel, &version, sizeof(version));
	if (making.destroy)
		gm_worker_join(&worker);
	else
		gm_worker_kill(&worker);
	return version;
}

struct reading {
	uint8_t byte;
	uint64_t version;
};

/* Attaches, says what it found, and looks once more when it is told to. */
static void read_it(int channel, void *argument)
{
	gpumem_session *s = join("reader");
	gpumem_buffer *buffer = NULL;
	struct reading found = {0};

	OK(gpumem_attach(s, "llama", &buffer));
	found.version = gpumem_buffer_version(buffer);
	for (int byte = 1; byte < 256 && !found.byte; byte++)
		if (has_all(buffer, (uint8_t)byte))
			found.byte = (uint8_t)byte;
	GM_REQUIRE(buffer_is_described(buffer, found.byte));
	gm_text_say(channel, &found, sizeof(found));
	gm_hear_word(channel, 'e');
	GM_REQUIRE(has_all(buffer, found.byte));
	/* Of its own version, whatever the name means by now. */
	GM_REQUIRE(buffer_is_described(buffer, found.byte));
	gpumem_buffer_destroy(buffer);
	gpumem_disconnect(s);
}

static struct reading start_reader(struct gm_worker *worker)
{
	struct reading found;

	gm_worker_start(worker, read_it, NULL);
	gm_hear(worker->channel, &found, sizeof(found));
	return found;
}

static void end_reader(struct gm_worker *worker)
{
	gm_text_say_word(worker->channel, 'e');
	gm_worker_join(worker);
}

static void is_read(uint8_t byte, uint64_t version)
{
	struct gm_worker worker;
	struct reading found = start_reader(&worker);

	GM_REQUIRE_EQ(found.byte, byte);
	GM_REQUIRE_EQ(found.version, version);
	end_reader(&worker);
}

static void remove_name(int channel, void *argument)
{
	gpumem_session *s = join("remover");
	OK(gpumem_unpublish(s, "llama"));
	REFUSED(gpumem_unpublish(s, "llama"), GPUMEM_E_NOT_FOUND, "no such name as \"llama\"");
	gpumem_disconnect(s);
}

static void remove_llama(void)
{
	struct gm_worker worker;
	gm_worker_start(&worker, remove_name, NULL);
	gm_worker_join(&worker);
}

START_TEST(a_published_buffer_outlives_its_maker_and_the_daemon)
{
	struct making making = {.byte = 42, .destroy = _i};

	GM_REQUIRE_EQ(made(making), 1);
	GM_UNTIL(gm_figures_now(&daemon_).clients == 0);
	is_read(42, 1);
	gm_daemon_kill(&daemon_);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	is_read(42, 1);
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).leases, 1);
	remove_llama();
}
END_TEST

START_TEST(readers_keep_the_version_that_they_have)
{
	struct gm_worker worker;

	GM_REQUIRE_EQ(made((struct making){.byte = 1}), 1);
	GM_REQUIRE_EQ(start_reader(&worker).byte, 1);
	GM_REQUIRE_EQ(made((struct making){.byte = 2, .replace = true}), 2);
	is_read(2, 2);
	end_reader(&worker);
	GM_UNTIL(gm_figures_now(&daemon_).leases == 1);
	remove_llama();
}
END_TEST

START_TEST(a_name_can_end_with_its_last_reader)
{
	struct gm_worker first, second;

	GM_REQUIRE_EQ(made((struct making){.byte = 3, .until_unread = true}), 1);
	GM_UNTIL(gm_figures_now(&daemon_).clients == 0);
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).leases, 1);
	start_reader(&first);
	start_reader(&second);
	end_reader(&first);
	GM_UNTIL(gm_figures_now(&daemon_).clients == 1);
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).leases, 1);
	end_reader(&second);
	GM_UNTIL(gm_figures_now(&daemon_).leases == 0);
}
END_TEST

START_TEST(a_reader_keeps_what_it_has_when_the_name_is_removed)
{
	struct gm_worker worker;

	GM_REQUIRE_EQ(made((struct making){.byte = 4}), 1);
	start_reader(&worker);
	remove_llama();
	gm_daemon_kill(&daemon_);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	end_reader(&worker);
}
END_TEST

/* ---- deaths around the publish */

/* Publishes new versions without end, each filled with its number. */
static void make_many(int channel, void *argument)
{
	gpumem_publish_options options = GPUMEM_PUBLISH_OPTIONS_INIT;
	gpumem_session *s = join("maker");
	gpumem_buffer *buffer, *old = NULL;
	uint64_t version;

	options.replace = 1;
	gm_text_say_word(channel, 'r');
	for (;;) {
		buffer = filled(s, 0xff); /* nobody may see this */
		if (old)
			gpumem_buffer_destroy(old);
		version = 0;
		if (gpumem_attach(s, "llama", &old) == GPUMEM_OK) {
			version = gpumem_buffer_version(old);
			gpumem_buffer_destroy(old);
		}
		uint8_t byte = (uint8_t)(version % 200 + 1);
		gm_device_set(gpumem_buffer_ptr(buffer), BYTES, byte);
		void *metadata = describe(&options, byte);
		OK(gpumem_publish(buffer, "llama", &options, NULL, &version));
		free(metadata);
		old = buffer;
	}
}

START_TEST(a_maker_that_is_killed_leaves_a_whole_buffer_or_none)
{
	struct gm_worker maker, reader;
	unsigned seed = (unsigned)getpid();
	uint64_t last = 0;

	GM_REQUIRE_EQ(made((struct making){.byte = 1}), 1);
	for (int i = 0; i < 12; i++) {
		gm_worker_start(&maker, make_many, NULL);
		gm_hear_word(maker.channel, 'r');
		usleep((useconds_t)(rand_r(&seed) % 30000)); /* anywhere in its loop */
		if (i % 4 == 3) {
			gm_daemon_kill(&daemon_);
			GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
		}
		if (i % 2)
			gm_worker_kill(&maker);
		struct reading found = start_reader(&reader);
		GM_REQUIRE_EQ(found.byte, (found.version - 1) % 200 + 1);
		GM_REQUIRE(found.version >= last);
		last = found.version;
		end_reader(&reader);
		if (i % 2 == 0)
			gm_worker_kill(&maker);
	}
	GM_UNTIL(gm_figures_now(&daemon_).clients == 0);
	GM_UNTIL(gm_figures_now(&daemon_).leases == 1);
	remove_llama();
}
END_TEST

/* Publishes and removes while the daemon comes and goes; each call must say the truth. */
static void make_and_remove(int channel, void *argument)
{
	gpumem_publish_options options = GPUMEM_PUBLISH_OPTIONS_INIT;
	gpumem_session *s = join("maker");
	char word = 'r';
	void *metadata = describe(&options, 9), *data;
	size_t size;

	for (;;) {
		gpumem_buffer *buffer = filled(s, 9), *view = NULL;
		uint64_t version = 0;
		OK(gpumem_publish(buffer, "mine", &options, NULL, &version));
		GM_REQUIRE_EQ(version, 1);
		version = 0;
		OK(gpumem_metadata_read(s, "mine", &data, &size, &version));
		GM_REQUIRE_EQ(version, 1);
		GM_REQUIRE(is_described(data, size, 9));
		OK(gpumem_attach(s, "mine", &view));
		GM_REQUIRE_EQ(gpumem_buffer_version(view), 1);
		gpumem_buffer_destroy(buffer);
		GM_REQUIRE(has_all(view, 9));
		OK(gpumem_unpublish(s, "mine"));
		GM_REQUIRE(buffer_is_described(view, 9));
		gpumem_buffer_destroy(view);
		gm_text_say_word(channel, word);
		gm_hear(channel, &word, 1);
		if (word == 'e')
			break;
	}
	free(metadata);
	gpumem_disconnect(s);
}

START_TEST(every_call_outlasts_the_daemon)
{
	struct gm_worker maker;
	unsigned seed = (unsigned)getpid();

	gm_worker_start(&maker, make_and_remove, NULL);
	gm_hear_word(maker.channel, 'r');
	for (int i = 0; i < 10; i++) {
		gm_text_say_word(maker.channel, 'r');
		usleep((useconds_t)(rand_r(&seed) % 5000)); /* anywhere in its loop */
		gm_daemon_kill(&daemon_);
		GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
		gm_hear_word(maker.channel, 'r');
	}
	gm_text_say_word(maker.channel, 'e');
	gm_worker_join(&maker);
}
END_TEST

/* ---- another user */

/* Publishes for the user who is nobody special, read-only. */
static void make_for_stranger(int channel, void *argument)
{
	gpumem_publish_options options = GPUMEM_PUBLISH_OPTIONS_INIT;
	gpumem_buffer_options for_others = GPUMEM_BUFFER_OPTIONS_INIT;
	gpumem_session *s = join("maker");
	gpumem_buffer *buffer = NULL;

	for_others.flags = GPUMEM_BUFFER_FOR_OTHERS;
	OK(gpumem_buffer_create(s, 0, BYTES, &for_others, &buffer));
	gm_device_set(gpumem_buffer_ptr(buffer), BYTES, 5);
	options.audience = GPUMEM_AUDIENCE_UID;
	options.id = GM_STRANGER;
	options.mode = GPUMEM_SHARE_READ_ONLY;
	if (gm_on_gpu()) {
		REFUSED(gpumem_publish(buffer, "llama", &options, NULL, NULL), GPUMEM_E_UNSUPPORTED,
			"say that readers can write");
		options.flags = GPUMEM_READERS_CAN_WRITE;
	}
	void *metadata = describe(&options, 5);
	OK(gpumem_publish(buffer, "llama", &options, NULL, NULL));
	free(metadata);
	gpumem_buffer_destroy(buffer);
	gpumem_disconnect(s);
}

static void read_as_stranger(int channel, void *argument)
{
	const bool *may = argument;
	gpumem_buffer *buffer = NULL;
	char name[64];

	snprintf(name, sizeof(name), "uid:%u/llama", (unsigned)getuid());
	gm_become_stranger();
	gpumem_session *s = join("stranger");
	REFUSED(gpumem_attach(s, "llama", &buffer), GPUMEM_E_NOT_FOUND,
		"no such name as \"llama\"");
	void *data = NULL;
	size_t size = 77;
	REFUSED(gpumem_metadata_read(s, "llama", &data, &size, NULL), GPUMEM_E_NOT_FOUND,
		"no such name as \"llama\"");
	if (*may) {
		OK(gpumem_metadata_read(s, name, &data, &size, NULL));
		GM_REQUIRE(is_described(data, size, 5));
		OK(gpumem_attach(s, name, &buffer));
		GM_REQUIRE(buffer_is_described(buffer, 5));
		GM_REQUIRE(has_all(buffer, 5));
		gpumem_buffer_destroy(buffer);
	} else {
		REFUSED(gpumem_attach(s, name, &buffer), GPUMEM_E_NOT_FOUND, "no such name");
		REFUSED(gpumem_metadata_read(s, name, &data, &size, NULL), GPUMEM_E_NOT_FOUND,
			"no such name");
		GM_REQUIRE(!data && size == 77);
	}
	GM_REQUIRE_EQ(gpumem_unpublish(s, name), GPUMEM_E_DENIED);
	gpumem_disconnect(s);
}

START_TEST(another_user_attaches_only_to_what_is_for_it)
{
	struct gm_worker worker;
	bool may = false;

	made((struct making){.byte = 5, .destroy = true});
	gm_worker_start(&worker, read_as_stranger, &may);
	gm_worker_join(&worker);
	remove_llama();

	gm_worker_start(&worker, make_for_stranger, NULL);
	gm_worker_join(&worker);
	may = true;
	gm_worker_start(&worker, read_as_stranger, &may);
	gm_worker_join(&worker);
	remove_llama();
}
END_TEST

/* ---- waiting for a name */

struct waiter {
	pthread_t thread;
	const char *name;
	gpumem_status status;
	gpumem_buffer *buffer;
};

static void *waiter_run(void *argument)
{
	struct waiter *waiter = argument;

	do
		waiter->status = gpumem_attach_wait(
			session, waiter->name, GPUMEM_WAIT_FOREVER, &waiter->buffer);
	while (waiter->status == GPUMEM_E_LIMIT);
	return NULL;
}

static void waiter_start(struct waiter *waiter, const char *name)
{
	*waiter = (struct waiter){.name = name};
	GM_REQUIRE_EQ(pthread_create(&waiter->thread, NULL, waiter_run, waiter), 0);
}

static void waiter_end(struct waiter *waiter, uint8_t byte)
{
	GM_REQUIRE_EQ(pthread_join(waiter->thread, NULL), 0);
	GM_REQUIRE_EQ(waiter->status, GPUMEM_OK);
	GM_REQUIRE(has_all(waiter->buffer, byte));
	gpumem_buffer_destroy(waiter->buffer);
}

START_TEST(attaching_can_wait_until_the_name_is_published)
{
	gpumem_buffer *buffer = filled(session, 7), *view = NULL;
	struct waiter first, second;

	waiter_start(&first, "later");
	waiter_start(&second, "later");
	REFUSED(gpumem_attach_wait(session, "later", 30, &view), GPUMEM_E_TIMEOUT,
		"no such name as \"later\" for this client within 30ms");
	REFUSED(gpumem_attach_wait(session, "later", 0, &view), GPUMEM_E_NOT_FOUND,
		"no such name as \"later\"");
	GM_REQUIRE(!view);
	OK(gpumem_publish(buffer, "later", NULL, NULL, NULL));
	waiter_end(&first, 7);
	waiter_end(&second, 7);
	OK(gpumem_attach_wait(session, "later", 1, &view));
	gpumem_buffer_destroy(view);
	gpumem_buffer_destroy(buffer);
	OK(gpumem_unpublish(session, "later"));
}
END_TEST

START_TEST(a_wait_for_a_name_outlasts_the_daemon)
{
	gpumem_buffer *buffer = filled(session, 8), *view = NULL;
	struct waiter waiter;

	waiter_start(&waiter, "after");
	GM_REQUIRE_EQ(gpumem_attach_wait(session, "after", 1, &view), GPUMEM_E_TIMEOUT);
	gm_daemon_kill(&daemon_);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	OK(gpumem_publish(buffer, "after", NULL, NULL, NULL));
	waiter_end(&waiter, 8);
	gpumem_buffer_destroy(buffer);
	OK(gpumem_unpublish(session, "after"));
}
END_TEST

START_TEST(a_session_has_a_bounded_number_of_waits_for_names)
{
	GM_BOUND_TEST(WAITING_PER_CLIENT);
	struct waiter waiters[GM_BOUND_WAITING_PER_CLIENT];
	gpumem_buffer *buffer = filled(session, 9), *view = NULL;

	for (int i = 0; i < GM_BOUND_WAITING_PER_CLIENT; i++)
		waiter_start(&waiters[i], "many");
	/* Until all of them wait. */
	while (gpumem_attach_wait(session, "many", 1, &view) != GPUMEM_E_LIMIT)
		;
	GM_REQUIRE(strstr(gpumem_error_detail(), "32 calls of this session wait for names"));
	OK(gpumem_publish(buffer, "many", NULL, NULL, NULL));
	OK(gpumem_attach(session, "many", &view));
	gpumem_buffer_destroy(view);
	for (int i = 0; i < GM_BOUND_WAITING_PER_CLIENT; i++)
		waiter_end(&waiters[i], 9);
	gpumem_buffer_destroy(buffer);
	OK(gpumem_unpublish(session, "many"));
}
END_TEST

/* ---- what is refused */

START_TEST(bad_names_are_refused_and_change_nothing)
{
	static const struct {
		const char *name, *says;
	} bad[] = {
		{NULL, "name must not be NULL"},
		{"", "name must not be empty"},
		{"a/b", "name must not have a \"/\""},
		{"a\nb", "name must be printable"},
		{"\x01", "name must be printable"},
		{"1234567890123456789012345678901234567890123456789012345678901234", "63 bytes"},
	};
	gpumem_buffer *buffer = filled(session, 1), *view = buffer;
	uint64_t version = 77;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		REFUSED(gpumem_publish(buffer, bad[i].name, NULL, NULL, &version), GPUMEM_E_INVALID,
			bad[i].says);
		REFUSED(gpumem_attach(session, bad[i].name, &view), GPUMEM_E_INVALID, bad[i].says);
		REFUSED(gpumem_unpublish(session, bad[i].name), GPUMEM_E_INVALID, bad[i].says);
	}
	REFUSED(gpumem_publish(buffer, "uid:1000/llama", NULL, NULL, &version), GPUMEM_E_INVALID,
		"name must not have a \"/\"");
	REFUSED(gpumem_attach(session, "uid:x/llama", &view), GPUMEM_E_INVALID, "uid:1000/llama");
	REFUSED(gpumem_attach(session, "llama", NULL), GPUMEM_E_INVALID, "ret_buffer");
	REFUSED(gpumem_publish(NULL, "llama", NULL, NULL, NULL), GPUMEM_E_INVALID, "buffer");
	REFUSED(gpumem_attach(session, "llama", &view), GPUMEM_E_NOT_FOUND, "no such name");
	GM_REQUIRE(view == buffer);
	GM_REQUIRE_EQ(version, 77);
	GM_REQUIRE_EQ(gpumem_buffer_version(buffer), 0);
	GM_REQUIRE_EQ(gpumem_buffer_version(NULL), 0);
	gpumem_buffer_destroy(buffer);
}
END_TEST

START_TEST(bad_options_are_refused_and_change_nothing)
{
	gpumem_publish_options options = GPUMEM_PUBLISH_OPTIONS_INIT;
	gpumem_buffer *buffer = filled(session, 1), *view = NULL;

	options.audience = (gpumem_audience)3;
	REFUSED(gpumem_publish(buffer, "x", &options, NULL, NULL), GPUMEM_E_INVALID, "audience 3");
	options = (gpumem_publish_options)GPUMEM_PUBLISH_OPTIONS_INIT;
	options.mode = (gpumem_share_mode)2;
	REFUSED(gpumem_publish(buffer, "x", &options, NULL, NULL), GPUMEM_E_INVALID, "mode 2");
	options = (gpumem_publish_options)GPUMEM_PUBLISH_OPTIONS_INIT;
	options.flags = 2;
	REFUSED(gpumem_publish(buffer, "x", &options, NULL, NULL), GPUMEM_E_INVALID, "flags 0x2");
	options.size = 0;
	GM_REQUIRE_EQ(gpumem_publish(buffer, "x", &options, NULL, NULL), GPUMEM_E_INVALID);

	/* The buffer was not made for others. */
	options = (gpumem_publish_options)GPUMEM_PUBLISH_OPTIONS_INIT;
	options.audience = GPUMEM_AUDIENCE_UID;
	options.id = 12345;
	options.flags = GPUMEM_READERS_CAN_WRITE;
	REFUSED(gpumem_publish(buffer, "x", &options, NULL, NULL), GPUMEM_E_UNSUPPORTED,
		"create it for others");
	REFUSED(gpumem_attach(session, "x", &view), GPUMEM_E_NOT_FOUND, "no such name");
	gpumem_buffer_destroy(buffer);
}
END_TEST

START_TEST(a_name_is_taken_once_and_a_buffer_has_one)
{
	gpumem_publish_options options = GPUMEM_PUBLISH_OPTIONS_INIT;
	gpumem_buffer *first = filled(session, 1), *second = filled(session, 2), *view = NULL;
	uint64_t version = 0;

	OK(gpumem_publish(first, "x", NULL, NULL, &version));
	GM_REQUIRE_EQ(version, 1);
	OK(gpumem_publish(first, "x", NULL, GPUMEM_STREAM_DONE, &version)); /* nothing changes */
	GM_REQUIRE_EQ(version, 1);
	REFUSED(gpumem_publish(first, "y", NULL, NULL, NULL), GPUMEM_E_BUSY, "one name");
	REFUSED(gpumem_publish(second, "x", NULL, NULL, NULL), GPUMEM_E_BUSY, "x");
	GM_REQUIRE_EQ(gpumem_buffer_version(second), 0);
	options.replace = 1;
	OK(gpumem_publish(second, "x", &options, GPUMEM_STREAM_ANY, NULL));
	GM_REQUIRE_EQ(gpumem_buffer_version(second), 2);

	OK(gpumem_attach(session, "x", &view));
	GM_REQUIRE(has_all(view, 2));
	REFUSED(gpumem_publish(view, "z", NULL, NULL, NULL), GPUMEM_E_DENIED, "created");
	gpumem_buffer_destroy(view);

	/* Own names by the uid. */
	char own[64];
	snprintf(own, sizeof(own), "uid:%u/x", (unsigned)getuid());
	OK(gpumem_attach(session, own, &view));
	GM_REQUIRE_EQ(gpumem_buffer_version(view), 2);
	snprintf(own, sizeof(own), "uid:%u/x", (unsigned)getuid() + 1);
	REFUSED(gpumem_attach(session, own, &view), GPUMEM_E_NOT_FOUND, "no such name");
	gpumem_buffer_destroy(view);
	gpumem_buffer_destroy(first);
	gpumem_buffer_destroy(second);
	OK(gpumem_unpublish(session, "x"));
}
END_TEST

/* ---- many openings */

static sem_t entered, leave;

static void stay_in_event(void *user, const gpumem_event *event)
{
	sem_post(&entered);
	while (sem_wait(&leave) < 0)
		continue;
}

/* The library's thread, which ends what was destroyed, does not get to it. */
START_TEST(a_buffer_that_was_destroyed_is_no_opening_any_more)
{
	gpumem_buffer *buffer = filled(session, 1), *large = NULL, *view;
	gpumem_token token;

	sem_init(&entered, 0, 0);
	sem_init(&leave, 0, 0);
	OK(gpumem_publish(buffer, "x", NULL, NULL, NULL));
	OK(gpumem_share(buffer, NULL, &token));
	OK(gpumem_on_event(session, stay_in_event, NULL));
	OK(gpumem_buffer_create(session, 0, 1000 * MIB, NULL, &large));
	while (sem_wait(&entered) < 0)
		continue;
	for (int i = 0; i <= GM_BOUND_OPENERS_PER_LEASE; i++) {
		if (_i)
			OK(gpumem_open(session, &token, &view));
		else
			OK(gpumem_attach(session, "x", &view));
		gpumem_buffer_destroy(view);
	}
	gpumem_buffer_destroy(large);
	for (int i = 0; i < 16; i++)
		sem_post(&leave);
	OK(gpumem_on_event(session, NULL, NULL));
	gpumem_buffer_destroy(buffer);
	OK(gpumem_unpublish(session, "x"));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client names");
	TCase *tc = tcase_create("processes");
	tcase_add_checked_fixture(tc, set_up_alone, tear_down_alone);
	tcase_set_timeout(tc, 240);
	tcase_add_loop_test(tc, a_published_buffer_outlives_its_maker_and_the_daemon, 0, 2);
	tcase_add_test(tc, readers_keep_the_version_that_they_have);
	tcase_add_test(tc, a_name_can_end_with_its_last_reader);
	tcase_add_test(tc, a_reader_keeps_what_it_has_when_the_name_is_removed);
	tcase_add_test(tc, a_maker_that_is_killed_leaves_a_whole_buffer_or_none);
	tcase_add_test(tc, every_call_outlasts_the_daemon);
	if (GM_TAP_WITH_USERS(another_user_attaches_only_to_what_is_for_it))
		tcase_add_test(tc, another_user_attaches_only_to_what_is_for_it);
	suite_add_tcase(suite, tc);

	tc = tcase_create("one session");
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, attaching_can_wait_until_the_name_is_published);
	tcase_add_test(tc, a_wait_for_a_name_outlasts_the_daemon);
	tcase_add_test(tc, a_session_has_a_bounded_number_of_waits_for_names);
	tcase_add_test(tc, bad_names_are_refused_and_change_nothing);
	tcase_add_test(tc, bad_options_are_refused_and_change_nothing);
	tcase_add_test(tc, a_name_is_taken_once_and_a_buffer_has_one);
	tcase_add_loop_test(tc, a_buffer_that_was_destroyed_is_no_opening_any_more, 0, 2);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
