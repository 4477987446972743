/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client of the service: takes memory, writes and reads it, shares a buffer, and lets another
 * process find in it what was written. Or, with "hold MIB", takes so much, says "held", and keeps
 * it until somebody ends it. Or, with "store NAME" and as a process of the service, puts a
 * descriptor of that name into its fd store. Status 0 when all of that works; the reason on stderr
 * when not.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

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

int main(int argc, char **argv)
{
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
