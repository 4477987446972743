/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Who owns which subordinate uids. This file promises that a uid has one payer, which it finds
 * without a system call, and that no line of the file makes it fail. It must never wait for
 * anything but the disk, and must never be asked who somebody is: only who pays.
 */
#include "common/system/subuid.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/log.h"

/* To the kernel, the last uid means "none". */
#define SUBUID_MAX (UINT32_MAX - 1)
/* Maximum memory of one entry of a user, in bytes. */
#define SUBUID_ENTRY 16384
#define SUBUID_OWNER 64

/* A line of the file: "ann:100000:65536", or "1000:100000:65536". */
struct subuid_line {
	char owner[SUBUID_OWNER];
	size_t number;
	uid_t first, last;
	uid_t payer_uid; /* 0: not known */
};

struct subuid_reading {
	struct subuid_line *lines;
	size_t n, room;
	uid_t *named;
	size_t n_named, named_room;
	size_t broken, first_broken; /* how many lines, and the number of one */
	bool cut;                    /* there are more */
};

/* ---- the file */

static bool subuid_parse_number(const char *text, uint64_t *ret)
{
	char *end;

	if (*text < '0' || *text > '9' || strlen(text) > 10)
		return false;
	*ret = strtoull(text, &end, 10);
	return *end == '\0';
}

/* Reads a line. Returns false if it is broken. A range of no uids has first > last. */
static bool subuid_parse(char *text, struct subuid_line *ret)
{
	char *owner = strsep(&text, ":"), *first = strsep(&text, ":");
	uint64_t from, count;

	if (!first || !text || !*owner || strlen(owner) >= sizeof(ret->owner) ||
		!subuid_parse_number(first, &from) || !subuid_parse_number(text, &count) ||
		from > SUBUID_MAX || count > SUBUID_MAX - from + 1)
		return false;

	/* Root is always itself. */
	uint64_t last = from + count - 1;
	if (from == 0)
		from = 1;
	if (count == 0 || last < from) {
		ret->first = 1;
		ret->last = 0;
		return true;
	}
	strcpy(ret->owner, owner);
	ret->first = (uid_t)from;
	ret->last = (uid_t)last;

	uint64_t uid;
	ret->payer_uid = 0;
	if (subuid_parse_number(owner, &uid) && uid <= SUBUID_MAX)
		ret->payer_uid = (uid_t)uid;
	return true;
}

/* Makes room for one more item of a list. */
static int subuid_grow(void **list, size_t n, size_t *room, size_t size)
{
	if (n < *room)
		return 0;
	size_t more = *room ? 2 * *room : 64;
	void *grown = realloc(*list, more * size);
	if (!grown)
		return -ENOMEM;
	*list = grown;
	*room = more;
	return 0;
}

static int subuid_add_named(struct subuid_reading *reading, uid_t uid)
{
	int r = subuid_grow((void **)&reading->named, reading->n_named, &reading->named_room,
		sizeof(*reading->named));
	if (r == 0)
		reading->named[reading->n_named++] = uid;
	return r;
}

static int subuid_add_line(struct subuid_reading *reading, char *text, size_t number)
{
	struct subuid_line line = {.number = number};

	if (!*text || *text == '#')
		return 0;
	if (!subuid_parse(text, &line)) {
		if (reading->broken++ == 0)
			reading->first_broken = number;
		return 0;
	}
	if (line.first > line.last)
		return 0;

	int r = subuid_grow(
		(void **)&reading->lines, reading->n, &reading->room, sizeof(*reading->lines));
	if (r < 0)
		return r;
	reading->lines[reading->n++] = line;
	return line.payer_uid ? subuid_add_named(reading, line.payer_uid) : 0;
}

static int subuid_read_lines(struct subuid_reading *reading, FILE *file)
{
	char text[GM_SUBUID_LINE_BYTES];
	bool whole = true; /* text begins a line */
	size_t number = 0;
	int r = 0;

	while (r == 0 && fgets(text, sizeof(text), file)) {
		bool begins = whole;
		char *end = strchr(text, '\n');
		whole = end || feof(file);
		if (!begins)
			continue;
		if (++number > GM_SUBUID_LINES) {
			reading->cut = true;
			break;
		}

		/* What does not fit is broken, whatever it begins with. */
		if (end)
			*end = '\0';
		else if (!whole)
			text[0] = ':';
		r = subuid_add_line(reading, text, number);
	}
	return r;
}

/* Opens a file, but nothing that could make the daemon wait. */
static FILE *subuid_open(const char *path)
{
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	FILE *file = NULL;

	if (fd < 0)
		return NULL;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
		file = fdopen(fd, "r");
	else
		errno = EINVAL;
	if (!file)
		close(fd);
	return file;
}

/* ---- the owners */

/* By owner, and the lines of each as they are in the file. */
static int subuid_by_owner(const void *a, const void *b)
{
	const struct subuid_line *x = a, *y = b;
	int order = strcmp(x->owner, y->owner);

	if (order)
		return order;
	return x->number < y->number ? -1 : x->number > y->number;
}

static int subuid_by_first(const void *a, const void *b)
{
	const struct subuid_line *x = a, *y = b;

	if (x->first != y->first)
		return x->first < y->first ? -1 : 1;
	return x->number < y->number ? -1 : x->number > y->number;
}

static int subuid_by_uid(const void *a, const void *b)
{
	const uid_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

/* Where the lines of an owner begin, or would. */
static size_t subuid_find_owner(const struct subuid_reading *reading, const char *owner)
{
	size_t low = 0, high = reading->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (strcmp(reading->lines[middle].owner, owner) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Finds the uids of owners that are named in the file like /etc/passwd. The lines are by owner. */
static int subuid_read_users(struct subuid_reading *reading, const char *path)
{
	char room[SUBUID_ENTRY];
	struct passwd entry, *found;
	FILE *file = subuid_open(path);
	int r = 0;

	if (!file)
		return 0;
	while (r == 0 && fgetpwent_r(file, &entry, room, sizeof(room), &found) == 0) {
		struct subuid_line *lines = reading->lines;
		for (size_t i = subuid_find_owner(reading, found->pw_name);
			i < reading->n && strcmp(lines[i].owner, found->pw_name) == 0; i++)
			lines[i].payer_uid = found->pw_uid;
		r = subuid_add_named(reading, found->pw_uid);
	}
	fclose(file);
	return r;
}

/* Those without a payer get the first uid of their owner's first line. The lines are by owner. */
static void subuid_name_payers(struct subuid_reading *reading)
{
	struct subuid_line *lines = reading->lines;

	for (size_t i = 0, from = 0; i < reading->n; i++) {
		if (strcmp(lines[i].owner, lines[from].owner) != 0)
			from = i;
		if (lines[i].payer_uid == 0)
			lines[i].payer_uid = lines[from].first;
	}
}

/* ---- what is kept */

static const struct gm_subuid_range *subuid_find(const struct gm_subuids *subuids, uid_t uid)
{
	size_t low = 0, high = subuids->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (subuids->ranges[middle].last < uid)
			low = middle + 1;
		else
			high = middle;
	}
	return low < subuids->n && subuids->ranges[low].first <= uid ? &subuids->ranges[low] : NULL;
}

/* Keeps the ranges in order. Of two that overlap, the one that begins first has what they share. */
static void subuid_keep_ranges(struct gm_subuids *subuids, struct subuid_reading *reading)
{
	uint64_t next = 1;

	qsort(reading->lines, reading->n, sizeof(*reading->lines), subuid_by_first);
	for (size_t i = 0; i < reading->n; i++) {
		const struct subuid_line *line = &reading->lines[i];
		if (line->last < next)
			continue;
		subuids->ranges[subuids->n++] = (struct gm_subuid_range){
			.first = line->first < next ? (uid_t)next : line->first,
			.last = line->last,
			.payer_uid = line->payer_uid,
		};
		next = (uint64_t)line->last + 1;
	}
}

static void subuid_keep_named(struct gm_subuids *subuids, struct subuid_reading *reading)
{
	for (size_t i = 0; i < reading->n_named; i++)
		if (subuid_find(subuids, reading->named[i]))
			reading->named[subuids->n_named++] = reading->named[i];
	if (subuids->n_named > 0)
		qsort(reading->named, subuids->n_named, sizeof(uid_t), subuid_by_uid);
	subuids->named = reading->named;
	reading->named = NULL;
}

static int subuid_keep(struct subuid_reading *reading, struct gm_subuids *ret)
{
	struct gm_subuids subuids = {0};

	if (reading->n > 0) {
		subuids.ranges = calloc(reading->n, sizeof(*subuids.ranges));
		if (!subuids.ranges)
			return -ENOMEM;
		subuid_keep_ranges(&subuids, reading);
		subuid_keep_named(&subuids, reading);
	}
	*ret = subuids;
	return 0;
}

/* ---- reading */

static int subuid_read(struct subuid_reading *reading, const char *path, const char *users,
	struct gm_subuids *ret_subuids)
{
	FILE *file = subuid_open(path);
	int r = 0;

	if (!file && errno != ENOENT)
		gm_log(GM_LOG_WARNING,
			"%s cannot be read, so each subordinate uid counts as a user of its own: %s",
			path, strerror(errno));
	if (file) {
		r = subuid_read_lines(reading, file);
		fclose(file);
	}
	if (r == 0 && reading->n > 0) {
		qsort(reading->lines, reading->n, sizeof(*reading->lines), subuid_by_owner);
		r = subuid_read_users(reading, users);
		subuid_name_payers(reading);
	}
	return r < 0 ? r : subuid_keep(reading, ret_subuids);
}

int gm_subuids_read(const char *root, struct gm_subuids *ret_subuids)
{
	struct subuid_reading reading = {0};
	char path[PATH_MAX], users[PATH_MAX];

	snprintf(path, sizeof(path), "%s/etc/subuid", root);
	snprintf(users, sizeof(users), "%s/etc/passwd", root);
	int r = subuid_read(&reading, path, users, ret_subuids);
	if (r < 0)
		gm_log(GM_LOG_ERROR, "there is no memory to read %s; it counts as it was", path);
	if (r == 0 && reading.broken > 0)
		gm_log(GM_LOG_WARNING, "%s: line %zu is not NAME:FIRST:COUNT and is skipped%s",
			path, reading.first_broken, reading.broken > 1 ? ", as are others" : "");
	if (r == 0 && reading.cut)
		gm_log(GM_LOG_WARNING, "%s: only the first %d lines are read", path,
			GM_SUBUID_LINES);
	free(reading.lines);
	free(reading.named);
	return r;
}

void gm_subuids_deinit(struct gm_subuids *subuids)
{
	free(subuids->ranges);
	free(subuids->named);
	*subuids = (struct gm_subuids){0};
}

uid_t gm_subuids_payer(const struct gm_subuids *subuids, uid_t uid)
{
	const struct gm_subuid_range *range = subuid_find(subuids, uid);

	if (!range || (subuids->n_named > 0 && bsearch(&uid, subuids->named, subuids->n_named,
						       sizeof(uid_t), subuid_by_uid)))
		return uid;
	return range->payer_uid;
}
