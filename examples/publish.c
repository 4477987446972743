/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A buffer that outlives the process that made it, such as the weights of a model. One process fills a
 * buffer, publishes it under a name with some metadata, and ends. Another process reads the metadata,
 * attaches to the name, and finds what was written, without a copy. Without arguments, this program does all of it. To try it in two terminals:
 *
 *   publish make weights      fills a buffer, publishes it as "weights", and ends
 *   publish describe weights  in another terminal: prints the metadata; nothing is mapped for it
 *   publish read weights      attaches, and prints what it finds
 *   publish remove weights    the memory goes back
 *
 * Another user's name is uid:1000/weights, if it was published for this user.
 */
#include <gpumem/gpumem.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "demo-gpu.h"

#define BYTES (32 << 20)
#define TEXT  64
/* The name of the run without arguments. */
#define EXAMPLE "publish-example"

static void check(gpumem_status status, const char *what)
{
	if (!status)
		return;
	fprintf(stderr, "publish: %s: %s (%s)\n", what, gpumem_error_detail(),
		gpumem_status_text(status));
	exit(1);
}

static bool gpu;

/* Copies, with the driver if the memory is a GPU's. Returns when the copy is done. */
static void copy(void *to, const void *from, size_t n)
{
	const char *trouble = NULL;

	if (gpu)
		trouble = demo_gpu_copy(to, from, n);
	else
		memcpy(to, from, n);
	if (trouble) {
		fprintf(stderr, "publish: %s\n", trouble);
		exit(1);
	}
}

static void join(gpumem_session **session)
{
	gpumem_device_info_t info = GPUMEM_DEVICE_INFO_INIT;
	const char *trouble;

	check(gpumem_connect(NULL, session), "connect");
	check(gpumem_device_info(*session, 0, &info), "device");
	gpu = !strcmp(info.backend, "cuda");
	trouble = gpu ? demo_gpu_start(info.uuid) : NULL;
	if (trouble) {
		fprintf(stderr, "publish: %s: %s\n", info.name, trouble);
		exit(1);
	}
}

static int make(const char *name)
{
	gpumem_publish_options options = GPUMEM_PUBLISH_OPTIONS_INIT;
	gpumem_session *session;
	gpumem_buffer *buffer;
	char text[TEXT] = "", metadata[TEXT];
	uint64_t version;

	join(&session);
	check(gpumem_buffer_create(session, 0, BYTES, NULL, &buffer), "create");
	snprintf(text, sizeof(text), "hello from process %d", (int)getpid());
	copy(gpumem_buffer_ptr(buffer), text, TEXT);

	/* A newer version replaces the old one; those who read the old one keep it. The run without
	 * arguments leaves alone what is there. */
	options.replace = strcmp(name, EXAMPLE) != 0;
	options.mode = GPUMEM_SHARE_READ_ONLY;
	/* Any bytes, such as the shapes of tensors; here a line of text. */
	snprintf(metadata, sizeof(metadata), "{\"type\": \"text\", \"bytes\": %zu}", strlen(text));
	options.metadata = metadata;
	options.metadata_size = strlen(metadata);
	check(gpumem_publish(buffer, name, &options, NULL, &version), "publish");
	printf("process %d published %s, version %llu, and ends\n", (int)getpid(), name,
		(unsigned long long)version);
	gpumem_buffer_destroy(buffer);
	gpumem_disconnect(session);
	return 0;
}

static int describe(const char *name)
{
	gpumem_session *session;
	void *metadata;
	size_t size;
	uint64_t version;

	check(gpumem_connect(NULL, &session), "connect");
	check(gpumem_metadata_read(session, name, &metadata, &size, &version), "metadata");
	printf("process %d read about %s, version %llu: %s\n", (int)getpid(), name,
		(unsigned long long)version, size ? (char *)metadata : "nothing");
	gpumem_metadata_free(metadata);
	gpumem_disconnect(session);
	return 0;
}

static int read_name(const char *name)
{
	gpumem_session *session;
	gpumem_buffer *buffer;
	char text[TEXT];

	join(&session);
	check(gpumem_attach(session, name, &buffer), "attach");
	copy(text, gpumem_buffer_ptr(buffer), TEXT);
	printf("process %d attached to %s, version %llu, %zu bytes: %.*s\n", (int)getpid(), name,
		(unsigned long long)gpumem_buffer_version(buffer), gpumem_buffer_size(buffer), TEXT,
		text);
	gpumem_buffer_destroy(buffer);
	gpumem_disconnect(session);
	return 0;
}

static int remove_name(const char *name)
{
	gpumem_session *session;

	check(gpumem_connect(NULL, &session), "connect");
	check(gpumem_unpublish(session, name), "remove");
	printf("%s is removed\n", name);
	gpumem_disconnect(session);
	return 0;
}

/* Runs one of the functions in a process of its own. */
static int in_process(int (*function)(const char *name), const char *name)
{
	int status = 0;
	fflush(stdout);
	pid_t pid = fork();

	if (pid == 0)
		exit(function(name));
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return 1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "make"))
		return make(argv[2]);
	if (argc == 3 && !strcmp(argv[1], "describe"))
		return describe(argv[2]);
	if (argc == 3 && !strcmp(argv[1], "read"))
		return read_name(argv[2]);
	if (argc == 3 && !strcmp(argv[1], "remove"))
		return remove_name(argv[2]);
	if (argc != 1) {
		fprintf(stderr, "usage: publish [make|describe|read|remove NAME]\n");
		return 2;
	}
	int failed = in_process(make, EXAMPLE);
	failed = failed || in_process(describe, EXAMPLE);
	failed = failed || in_process(read_name, EXAMPLE);
	return failed || in_process(remove_name, EXAMPLE);
}
