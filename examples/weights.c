/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights that stay. One process loads a model from a safetensors file and ends; another one attaches to the weights
 * within milliseconds, and finds each tensor by its name. Without arguments, this program makes a small file and does all
 * of it. To try it with a model:
 *
 *   weights load PATH NAME  loads a file or a folder, publishes it, and ends
 *   weights show NAME       attaches, and prints the tensors
 *   weights list            which weights there are
 *   weights remove NAME     the memory goes back
 */
#include <gpumem/gpumem_weights.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* The name of the run without arguments. */
#define EXAMPLE "weights-example"

static void check(gpumem_status status, const char *what)
{
	if (!status)
		return;
	fprintf(stderr, "weights: %s: %s (%s)\n", what, gpumem_error_detail(),
		gpumem_status_text(status));
	exit(1);
}

static int show_progress(void *user, uint64_t done, uint64_t total)
{
	unsigned *last = user, percent = (unsigned)(done * 100 / total);

	if (percent / 10 != *last / 10)
		printf("%3u%%\n", percent);
	*last = percent;
	return 0; /* anything else cancels */
}

static int load(const char *path, const char *name)
{
	GPUMEM_AUTO_SESSION gpumem_session *session = NULL;
	GPUMEM_AUTO_WEIGHTS gpumem_weights *weights = NULL;
	gpumem_weights_options options = GPUMEM_WEIGHTS_OPTIONS_INIT;
	unsigned percent = 0;

	/* A newer version replaces the old one; processes that use that one keep it. */
	options.replace = 1;
	options.progress = show_progress;
	options.user = &percent;
	check(gpumem_connect(NULL, &session), "connect");
	check(gpumem_weights_load(session, 0, path, name, &options, &weights), "load");
	printf("process %d loaded %s, version %llu, and ends\n", (int)getpid(), name,
		(unsigned long long)gpumem_weights_version(weights));
	return 0;
}

static int show(const char *path, const char *name)
{
	GPUMEM_AUTO_SESSION gpumem_session *session = NULL;
	GPUMEM_AUTO_WEIGHTS gpumem_weights *weights = NULL;

	(void)path;
	check(gpumem_connect(NULL, &session), "connect");
	check(gpumem_weights_attach(session, name, 0, &weights), "attach");
	printf("process %d attached to %s, version %llu: %llu bytes on device %u\n", (int)getpid(),
		name, (unsigned long long)gpumem_weights_version(weights),
		(unsigned long long)gpumem_weights_bytes(weights), gpumem_weights_device(weights));
	for (size_t i = 0; i < gpumem_weights_count(weights); i++) {
		const gpumem_weights_tensor *tensor = gpumem_weights_at(weights, i);

		printf("%s %s [", tensor->name, tensor->dtype);
		for (uint32_t d = 0; d < tensor->ndim; d++)
			printf("%s%llu", d ? ", " : "", (unsigned long long)tensor->shape[d]);
		printf("] at %p\n", tensor->ptr);
	}
	return 0;
}

static int list(const char *path, const char *name)
{
	GPUMEM_AUTO_SESSION gpumem_session *session = NULL;
	gpumem_weights_entry *entries;
	size_t n;

	(void)path;
	(void)name;
	check(gpumem_connect(NULL, &session), "connect");
	check(gpumem_weights_list(session, &entries, &n), "list");
	for (size_t i = 0; i < n; i++)
		printf("%s, version %llu: %llu tensor%s\n", entries[i].name,
			(unsigned long long)entries[i].version,
			(unsigned long long)entries[i].tensors, entries[i].tensors == 1 ? "" : "s");
	gpumem_weights_list_free(entries);
	return 0;
}

static int remove_name(const char *path, const char *name)
{
	GPUMEM_AUTO_SESSION gpumem_session *session = NULL;

	(void)path;
	check(gpumem_connect(NULL, &session), "connect");
	check(gpumem_weights_remove(session, name), "remove");
	printf("%s is removed\n", name);
	return 0;
}

/* Runs one of the functions in a process of its own. */
static int in_process(
	int (*function)(const char *path, const char *name), const char *path, const char *name)
{
	int status = 0;
	fflush(stdout);
	pid_t pid = fork();

	if (pid == 0)
		exit(function(path, name));
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return 1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

/* A file with two tensors: the length of the header in 8 bytes, the header, and the data. */
static int make_file(FILE *file)
{
	static const char header[] =
		"{\"embedding\":{\"dtype\":\"F32\",\"shape\":[8,4],\"data_offsets\":[0,128]},"
		"\"bias\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[128,144]}}";
	unsigned char length[8] = {sizeof(header) - 1};
	float data[36];

	for (int i = 0; i < 36; i++)
		data[i] = (float)i;
	fwrite(length, 1, sizeof(length), file);
	fwrite(header, 1, sizeof(header) - 1, file);
	fwrite(data, 1, sizeof(data), file);
	return fflush(file);
}

static int example(void)
{
	char path[64];
	FILE *file = tmpfile();

	if (!file || make_file(file)) {
		fprintf(stderr, "weights: cannot write a file\n");
		return 1;
	}
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fileno(file));
	int failed = in_process(load, path, EXAMPLE);
	fclose(file);
	failed = failed || in_process(show, NULL, EXAMPLE);
	failed = failed || in_process(list, NULL, NULL);
	return failed || in_process(remove_name, NULL, EXAMPLE);
}

int main(int argc, char **argv)
{
	if (argc == 1)
		return example();
	if (argc == 4 && !strcmp(argv[1], "load"))
		return load(argv[2], argv[3]);
	if (argc == 3 && !strcmp(argv[1], "show"))
		return show(NULL, argv[2]);
	if (argc == 2 && !strcmp(argv[1], "list"))
		return list(NULL, NULL);
	if (argc == 3 && !strcmp(argv[1], "remove"))
		return remove_name(NULL, argv[2]);
	fprintf(stderr, "usage: weights [load PATH NAME | show NAME | list | remove NAME]\n");
	return 2;
}
