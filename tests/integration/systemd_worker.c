/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client of the service: takes memory, writes and reads it, shares a buffer, and lets another
 * process find in it what was written. Status 0 when all of that works; the reason on stderr when not. Or:
 *   hold MIB          takes so much, says "held", and keeps it until somebody ends it
 *   guard N           takes N buffers and publishes one of them with metadata; says "right" now and for each line on standard
 *                     input, if every byte of them is right, and a new buffer can be had
 *   store NAME        as a process of the service: puts a descriptor of that name into its fd store
 *   fill N, drain N   as a daemon of the keeper: deposits N descriptors; finds all of them, with their content, and
 *                     withdraws them
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "daemon/store/store.h"
#include "gpumem/gpumem.h"
#include "tests/integration/device.h"

enum { BYTES = 3 << 20 };

static void must(gpumem_status status, const char *what)
{
	if (status == GPUMEM_OK)
		return;
	fprintf(stderr, "%s: %s: %s\n", what, gpumem_status_text(status), gpumem_error_detail());
	exit(1);
}

static void must_hold(const void *memory, uint8_t byte, const char *what)
{
	if (gm_device_is(memory, BYTES, byte))
		return;
	fprintf(stderr, "%s: not every byte is %d\n", what, byte);
	exit(1);
}

/* The other process: the token comes on standard input. */
static int open_shared(void)
{
	char text[GPUMEM_TOKEN_TEXT_BYTES] = "";
	gpumem_token token;
	gpumem_session *session;
	gpumem_buffer *buffer;
	if (fread(text, 1, sizeof(text) - 1, stdin) != sizeof(text) - 1)
		return 1;
	must(gpumem_token_from_text(text, &token), "the token");
	must(gpumem_connect(NULL, &session), "connecting the other process");
	must(gpumem_open(session, &token, &buffer), "opening");
	must_hold(gpumem_buffer_ptr(buffer), 7, "the opened buffer");
	gm_device_set(gpumem_buffer_ptr(buffer), BYTES, 9);
	gpumem_buffer_destroy(buffer);
	gpumem_disconnect(session);
	return 0;
}

static _Noreturn void hold(const char *mib)
{
	gpumem_session *session;
	void *memory;
	must(gpumem_connect(NULL, &session), "connecting");
	must(gpumem_alloc(
		     session, 0, strtoull(mib, NULL, 10) << 20, GPUMEM_STREAM_ANY, NULL, &memory),
		"allocating");
	puts("held");
	fflush(stdout);
	for (;;)
		pause();
}

static int store(const char *name)
{
	char text[128];
	int fd = memfd_create(name, MFD_CLOEXEC);
	snprintf(text, sizeof(text), "FDSTORE=1\nFDNAME=%s", name);
	int r = sd_pid_notify_with_fds(0, 0, text, &fd, 1);
	/* Until it is read, systemd must find out whose process this is. */
	if (r > 0)
		r = sd_notify_barrier(0, 60 * 1000 * 1000);
	if (r <= 0)
		fprintf(stderr, "storing: %s\n", strerror(-r));
	return r <= 0;
}

/* ---- guard */

enum { GUARD_BYTES = 2 << 20, GUARD_METADATA = 100000, GUARD_BUFFERS = 1024 };

static void guard_check_metadata(gpumem_session *session, const uint8_t *expected)
{
	void *found;
	size_t size;
	must(gpumem_metadata_read(session, "guarded", &found, &size, NULL), "reading metadata");
	if (size != GUARD_METADATA || memcmp(found, expected, size) != 0) {
		fprintf(stderr, "the metadata is not what was published (%zu bytes)\n", size);
		exit(1);
	}
	gpumem_metadata_free(found);
}

static int guard(size_t n)
{
	static uint8_t metadata[GUARD_METADATA];
	gpumem_buffer *buffers[GUARD_BUFFERS], *reader, *more;
	gpumem_publish_options options = GPUMEM_PUBLISH_OPTIONS_INIT;
	gpumem_session *session;
	char line[16];
	if (n < 1 || n > GUARD_BUFFERS)
		return 2;
	for (size_t i = 0; i < sizeof(metadata); i++)
		metadata[i] = (uint8_t)(i * 7 + i / 256);
	must(gpumem_connect(NULL, &session), "connecting");
	for (size_t i = 0; i < n; i++) {
		must(gpumem_buffer_create(session, 0, GUARD_BYTES, NULL, &buffers[i]), "creating");
		gm_device_set(gpumem_buffer_ptr(buffers[i]), GUARD_BYTES, (uint8_t)(i + 1));
	}
	options.metadata = metadata;
	options.metadata_size = sizeof(metadata);
	options.replace = 1;
	must(gpumem_publish(buffers[0], "guarded", &options, GPUMEM_STREAM_DONE, NULL),
		"publishing");

	do {
		for (size_t i = 0; i < n; i++)
			if (!gm_device_is(
				    gpumem_buffer_ptr(buffers[i]), GUARD_BYTES, (uint8_t)(i + 1))) {
				fprintf(stderr, "buffer %zu has wrong content\n", i);
				return 1;
			}
		must(gpumem_attach(session, "guarded", &reader), "attaching");
		guard_check_metadata(session, metadata);
		if (!gm_device_is(gpumem_buffer_ptr(reader), GUARD_BYTES, 1)) {
			fputs("the published buffer has wrong content\n", stderr);
			return 1;
		}
		gpumem_buffer_destroy(reader);
		must(gpumem_buffer_create(session, 0, GUARD_BYTES, NULL, &more), "one more");
		gpumem_buffer_destroy(more);
		puts("right");
		fflush(stdout);
	} while (fgets(line, sizeof(line), stdin));
	return 0;
}

/* ---- a daemon of the keeper, as far as the keeper sees it */

static void fill_on_item(void *ctx, enum gm_store_kind kind, uint64_t id, void *user)
{
}

static void fill_on_changed(void *ctx, bool ready)
{
}

static const struct gm_store_events fill_events = {
	.deposited = fill_on_item,
	.withdrawn = fill_on_item,
	.changed = fill_on_changed,
};

static struct gm_store *fill_open(uv_loop_t *loop)
{
	struct gm_store_options options = {.path = "/run/gpumemd/keeper", .wait_ms = 10000};
	struct gm_store *keep;
	char why[GM_STORE_WHY];
	if (uv_loop_init(loop) < 0 ||
		gm_store_open(loop, &options, &fill_events, NULL, &keep, why) < 0) {
		fprintf(stderr, "%s\n", why);
		exit(1);
	}
	return keep;
}

/* Ends the connection when the keeper has so many items and nothing waits. */
static void fill_close(uv_loop_t *loop, struct gm_store *keep, uint64_t items)
{
	struct gm_store_state state;
	for (gm_store_get_state(keep, &state); state.items != items || state.waiting;
		gm_store_get_state(keep, &state))
		uv_run(loop, UV_RUN_ONCE);
	gm_store_close(keep, false);
	while (uv_run(loop, UV_RUN_DEFAULT))
		;
	uv_loop_close(loop);
}

static int fill(uint64_t n)
{
	uv_loop_t loop;
	struct gm_store *keep = fill_open(&loop);
	struct gm_store_state state;
	gm_store_get_state(keep, &state);
	uint64_t before = state.items;
	for (uint64_t id = 1; id <= n; id++) {
		int fd = memfd_create("item", MFD_CLOEXEC);
		int r = fd >= 0 && write(fd, &id, sizeof(id)) == sizeof(id)
				? gm_store_deposit(keep, GM_STORE_CONTROL_BLOCK, id, fd, NULL)
				: -errno;
		if (r < 0) {
			fprintf(stderr, "depositing item %llu: %s\n", (unsigned long long)id,
				strerror(-r));
			return 1;
		}
	}
	fill_close(&loop, keep, before + n);
	return 0;
}

static int drain(uint64_t n)
{
	uv_loop_t loop;
	struct gm_store *keep = fill_open(&loop);
	struct gm_store_state state;
	gm_store_get_state(keep, &state);
	uint64_t before = state.items;
	for (uint64_t id = 1; id <= n; id++) {
		uint64_t content = 0;
		int fd = -1;
		if (gm_store_claim(keep, GM_STORE_CONTROL_BLOCK, id, &fd) < 0 ||
			pread(fd, &content, sizeof(content), 0) != sizeof(content) ||
			content != id) {
			fprintf(stderr, "item %llu is not there\n", (unsigned long long)id);
			return 1;
		}
		(void)gm_store_withdraw(keep, GM_STORE_CONTROL_BLOCK, id, NULL);
	}
	fill_close(&loop, keep, before - n);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "guard") == 0)
		return guard(strtoull(argv[2], NULL, 10));
	if (argc == 3 && strcmp(argv[1], "fill") == 0)
		return fill(strtoull(argv[2], NULL, 10));
	if (argc == 3 && strcmp(argv[1], "drain") == 0)
		return drain(strtoull(argv[2], NULL, 10));
	if (argc == 3 && strcmp(argv[1], "store") == 0)
		return store(argv[2]);
	if (argc == 3 && strcmp(argv[1], "hold") == 0)
		hold(argv[2]);
	if (argc > 1)
		return open_shared();

	gpumem_session *session;
	gpumem_buffer *buffer;
	gpumem_token token;
	void *memory;
	char text[GPUMEM_TOKEN_TEXT_BYTES];
	must(gpumem_connect(NULL, &session), "connecting");
	must(gpumem_alloc(session, 0, BYTES, GPUMEM_STREAM_ANY, NULL, &memory), "allocating");
	gm_device_set(memory, BYTES, 5);
	must(gpumem_buffer_create(session, 0, BYTES, NULL, &buffer), "creating a buffer");
	gm_device_set(gpumem_buffer_ptr(buffer), BYTES, 7);
	must(gpumem_share(buffer, NULL, &token), "sharing");
	gpumem_token_to_text(&token, text);

	char command[4096];
	snprintf(command, sizeof(command), "'%s' open", argv[0]);
	FILE *other = popen(command, "we");
	if (!other || fputs(text, other) < 0 || pclose(other) != 0) {
		fputs("the other process failed\n", stderr);
		return 1;
	}
	must_hold(gpumem_buffer_ptr(buffer), 9, "the shared buffer");
	must_hold(memory, 5, "the allocation");
	gpumem_buffer_destroy(buffer);
	must(gpumem_free(session, memory, GPUMEM_STREAM_DONE), "freeing");
	gpumem_disconnect(session);
	return 0;
}
