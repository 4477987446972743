/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shared pages. Readers take no lock, because blocks have sequence counts. The writers of this
 * process share one lock. The hot path does not take it: the library's thread publishes figures and
 * rows now and then, and only freeing a block that has a row takes it. Both mappings keep their
 * addresses as long as the session lives; after a reconnect, new memory is behind them.
 *
 * The daemon is trusted no further than needed: a page that the daemon could shrink is refused,
 * because reading past its end would kill this process with a signal.
 */
#include "client/session/session_pages.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"

void gm_session_pages_init(struct gm_session_pages *pages)
{
	memset(pages, 0, sizeof(*pages));
	pthread_mutex_init(&pages->lock, NULL);
	/* In reverse order, so that row 0 is used first. */
	for (uint32_t i = GM_LIMIT_TRACKED_BUFFERS; i-- > 0;)
		pages->free_rows[pages->n_free++] = (uint16_t)i;
}

void gm_session_pages_deinit(struct gm_session_pages *pages)
{
	if (pages->daemon)
		munmap((void *)pages->daemon, sizeof(*pages->daemon));
	if (pages->client)
		munmap(pages->client, sizeof(*pages->client));
	pages->daemon = NULL;
	pages->client = NULL;
	pthread_mutex_destroy(&pages->lock);
}

void gm_session_pages_keep(struct gm_session_pages *pages)
{
	pages->client = NULL;
}

static int pages_check(int fd, size_t bytes, uint32_t magic)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	int seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0 || !(seals & F_SEAL_SHRINK) || (uint64_t)st.st_size < bytes)
		return -EBADMSG;
	struct gm_page_header header;
	ssize_t n = pread(fd, &header, sizeof(header), 0);
	if (n < 0)
		return -errno;
	/* Any version will do: a newer one only gives a meaning to reserved words. */
	if ((size_t)n != sizeof(header) || header.magic != magic || header.version == 0 ||
		header.devices > GM_LIMIT_DEVICES || header.rows > GM_LIMIT_TRACKED_BUFFERS)
		return -EBADMSG;
	return 0;
}

/* Maps a page so that a forked child does not inherit it. */
static int pages_map(int fd, size_t bytes, int prot, void **ret)
{
	void *p = mmap(NULL, bytes, prot, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return -errno;
	if (madvise(p, bytes, MADV_DONTFORK) < 0) {
		int r = -errno;
		munmap(p, bytes);
		return r;
	}

	*ret = p;
	return 0;
}

/* Moves a fresh mapping over an older one in one step: a reader sees either the old or the new. */
static int pages_replace(void *fresh, size_t bytes, const void *old)
{
	void *p = mremap(fresh, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, old);
	return p == MAP_FAILED ? -errno : 0;
}

int gm_session_pages_map(struct gm_session_pages *pages, int daemon_fd, int client_fd)
{
	void *daemon, *client;
	int r = pages_check(daemon_fd, sizeof(*pages->daemon), GM_PAGE_DAEMON_MAGIC);
	if (r < 0)
		return r;
	r = pages_check(client_fd, sizeof(*pages->client), GM_PAGE_CLIENT_MAGIC);
	if (r < 0)
		return r;

	/* First map both elsewhere: most failures then happen before anything is replaced. */
	r = pages_map(client_fd, sizeof(*pages->client), PROT_READ | PROT_WRITE, &client);
	if (r < 0)
		return r;
	r = pages_map(daemon_fd, sizeof(*pages->daemon), PROT_READ, &daemon);
	if (r < 0) {
		munmap(client, sizeof(*pages->client));
		return r;
	}

	pthread_mutex_lock(&pages->lock);
	if (!pages->client) {
		pages->daemon = daemon;
		pages->client = client;
	} else {
		struct gm_page_client *fresh = client;
		memcpy(fresh->use, pages->client->use, sizeof(fresh->use));
		memcpy(fresh->rows, pages->client->rows, sizeof(fresh->rows));
		r = pages_replace(daemon, sizeof(*pages->daemon), pages->daemon);
		if (r < 0)
			munmap(daemon, sizeof(*pages->daemon));
		else
			r = pages_replace(client, sizeof(*pages->client), pages->client);
		if (r < 0)
			munmap(client, sizeof(*pages->client));
	}
	pthread_mutex_unlock(&pages->lock);
	return r;
}

int gm_session_pages_device(
	const struct gm_session_pages *pages, uint32_t device, struct gm_page_device *ret)
{
	return gm_page_read(&pages->daemon->devices[device], sizeof(*ret), ret);
}

bool gm_session_pages_use(
	struct gm_session_pages *pages, uint32_t device, const struct gm_page_use *use)
{
	struct gm_page_use value = *use, old;

	pthread_mutex_lock(&pages->lock);
	struct gm_page_use *block = &pages->client->use[device];
	memcpy(&old, block, sizeof(old));
	value.untracked = pages->untracked[device] + pages->unlisted[device];
	value.seq = old.seq;
	bool differs = memcmp(&value, &old, sizeof(value)) != 0;
	if (differs)
		gm_page_write(block, &value, sizeof(value));
	pthread_mutex_unlock(&pages->lock);
	return differs;
}

static uint64_t pages_coarse_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	return (uint64_t)now.tv_sec * GM_NS_PER_S + (uint64_t)now.tv_nsec;
}

static void pages_row_write(
	struct gm_page_row *row, uint32_t device, uint64_t bytes, uint64_t born_ns, const char *tag)
{
	struct gm_page_row value = {.device = device, .bytes = bytes, .born_ns = born_ns};
	if (tag)
		snprintf(value.tag, sizeof(value.tag), "%s", tag);
	gm_page_write(row, &value, sizeof(value));
}

uint32_t gm_session_pages_row_try(
	struct gm_session_pages *pages, uint32_t device, uint64_t bytes, const char *tag)
{
	uint64_t born_ns = pages_coarse_ns();
	uint32_t row = 0;

	pthread_mutex_lock(&pages->lock);
	if (pages->n_free) {
		row = pages->free_rows[--pages->n_free] + UINT32_C(1);
		pages_row_write(&pages->client->rows[row - 1], device, bytes, born_ns, tag);
	}
	pthread_mutex_unlock(&pages->lock);
	return row;
}

uint32_t gm_session_pages_row_add(
	struct gm_session_pages *pages, uint32_t device, uint64_t bytes, const char *tag)
{
	uint32_t row = gm_session_pages_row_try(pages, device, bytes, tag);
	if (row)
		return row;

	pthread_mutex_lock(&pages->lock);
	pages->untracked[device]++;
	pthread_mutex_unlock(&pages->lock);
	return GM_PAGES_UNTRACKED;
}

void gm_session_pages_unlisted(struct gm_session_pages *pages, uint32_t device, uint64_t n)
{
	pthread_mutex_lock(&pages->lock);
	pages->unlisted[device] = n;
	pthread_mutex_unlock(&pages->lock);
}

void gm_session_pages_row_tag(struct gm_session_pages *pages, uint32_t row, const char *tag)
{
	if (!row || row == GM_PAGES_UNTRACKED)
		return;
	pthread_mutex_lock(&pages->lock);
	struct gm_page_row *place = &pages->client->rows[row - 1];
	struct gm_page_row value;
	memcpy(&value, place, sizeof(value));
	memset(value.tag, 0, sizeof(value.tag));
	snprintf(value.tag, sizeof(value.tag), "%s", tag ? tag : "");
	gm_page_write(place, &value, sizeof(value));
	pthread_mutex_unlock(&pages->lock);
}

void gm_session_pages_row_size(struct gm_session_pages *pages, uint32_t row, uint64_t bytes,
	const struct gm_page_growth *growth)
{
	if (!row || row == GM_PAGES_UNTRACKED)
		return;
	pthread_mutex_lock(&pages->lock);
	struct gm_page_row *place = &pages->client->rows[row - 1];
	struct gm_page_row value;
	memcpy(&value, place, sizeof(value));
	value.bytes = bytes;
	value.growth = *growth;
	gm_page_write(place, &value, sizeof(value));
	pthread_mutex_unlock(&pages->lock);
}

void gm_session_pages_row_remove(struct gm_session_pages *pages, uint32_t device, uint32_t row)
{
	if (!row)
		return;
	pthread_mutex_lock(&pages->lock);
	if (row == GM_PAGES_UNTRACKED) {
		pages->untracked[device]--;
	} else {
		pages_row_write(&pages->client->rows[row - 1], 0, 0, 0, NULL);
		pages->free_rows[pages->n_free++] = (uint16_t)(row - 1);
	}
	pthread_mutex_unlock(&pages->lock);
}
