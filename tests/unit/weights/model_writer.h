/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_UNIT_WEIGHTS_MODEL_WRITER_H
#define GM_TESTS_UNIT_WEIGHTS_MODEL_WRITER_H

/* Writes safetensors files, sound and damaged ones. What it cannot do ends the process. */

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static inline void model_require(int good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "%s failed\n", what);
	abort();
}

/* The byte of a model at that place of its data. */
static inline uint8_t model_byte(uint64_t at, uint8_t seed)
{
	return (uint8_t)((at * 2654435761u >> 13) + seed);
}

/* Writes a file with this header, whose length may be a lie, and so many bytes of data behind it. */
static inline void model_put(
	int fd, uint64_t length, const void *header, size_t n, uint64_t data, uint8_t seed)
{
	uint8_t bytes[8], piece[4096];

	for (size_t i = 0; i < 8; i++)
		bytes[i] = (uint8_t)(length >> 8 * i);
	model_require(ftruncate(fd, 0) == 0, "ftruncate");
	model_require(pwrite(fd, bytes, 8, 0) == 8, "pwrite");
	model_require(pwrite(fd, header, n, 8) == (ssize_t)n, "pwrite");
	for (uint64_t at = 0; at < data;) {
		size_t part = data - at < sizeof(piece) ? (size_t)(data - at) : sizeof(piece);

		for (size_t i = 0; i < part; i++)
			piece[i] = model_byte(at + i, seed);
		model_require(
			pwrite(fd, piece, part, (off_t)(8 + n + at)) == (ssize_t)part, "pwrite");
		at += part;
	}
}

static inline int model_create(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	model_require(fd >= 0, path);
	return fd;
}

static inline void model_write(const char *path, const char *header, uint64_t data, uint8_t seed)
{
	int fd = model_create(path);

	model_put(fd, strlen(header), header, strlen(header), data, seed);
	close(fd);
}

static inline void model_write_text(const char *path, const char *text)
{
	int fd = model_create(path);

	model_require(write(fd, text, strlen(text)) == (ssize_t)strlen(text), "write");
	close(fd);
}

/* A header with n tensors of U8, each of which has so many bytes: t0, t1, … The caller frees it. */
static inline char *model_header(const char *prefix, size_t n, uint64_t bytes)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	model_require(out != NULL, "open_memstream");
	fputs("{\"__metadata__\":{\"format\":\"pt\"}", out);
	for (size_t i = 0; i < n; i++)
		fprintf(out,
			",\"%s%zu\":{\"dtype\":\"U8\",\"shape\":[%llu],\"data_offsets\":[%llu,%llu]}",
			prefix, i, (unsigned long long)bytes, (unsigned long long)(i * bytes),
			(unsigned long long)((i + 1) * bytes));
	fputs("}", out);
	fclose(out);
	return text;
}

#endif
