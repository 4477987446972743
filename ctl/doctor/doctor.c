/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * What the checks of gpumemctl doctor have in common: the table of findings, and files below a
 * root. For people, a finding is folded to the width of a screen, with its remedy after an arrow on
 * the next line, because a remedy must not be cut off.
 */

#include "ctl/doctor/doctor.h"

#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/system/program.h"
#include "common/text/units.h"

/* What the columns STATE and CHECK leave of 80 columns. */
#define WIDTH 61

static const struct gm_column columns[] = {
	{"state", "STATE", 0},
	{"check", "CHECK", 0},
	{"device", NULL, 0},
	{"what", NULL, 0},
	{"remedy", NULL, 0},
	{NULL, "WHAT", 0},
};

struct gm_table *gm_doctor_table_new(void)
{
	return GM_TABLE_NEW(columns);
}

/* How many bytes of the text go on a line: up to the last blank that fits, or all that fit. */
static size_t doctor_line_length(const char *text)
{
	size_t n = strlen(text), at = 0;

	if (n <= WIDTH)
		return n;
	for (size_t i = 0; i <= WIDTH; i++)
		if (text[i] == ' ')
			at = i;
	return at ? at : WIDTH;
}

/* Adds the text line by line. With begun, the first line completes the row that was begun. */
static void doctor_add_folded(struct gm_table *table, bool begun, const char *text)
{
	char line[WIDTH + 1];

	while (*text) {
		size_t n = doctor_line_length(text);

		memcpy(line, text, n);
		line[n] = '\0';
		if (!begun) {
			gm_table_more(table);
			gm_table_nones(table, sizeof(columns) / sizeof(*columns) - 1);
		}
		gm_table_text(table, line);
		begun = false;
		text += n;
		while (*text == ' ')
			text++;
	}
}

void gm_doctor_say(struct gm_doctor *doctor, enum gm_doctor_state state, const char *check,
	int device, const char *remedy, const char *format, ...)
{
	static const char *const words[] = {"ok", "note", "warn", "fail"};
	static const enum gm_mark marks[] = {GM_MARK_GOOD, GM_MARK_NONE, GM_MARK_WARN, GM_MARK_BAD};
	char text[512], mended[640 + GM_PROGRAM_BYTES], full[640 + GM_PROGRAM_BYTES];
	va_list list;

	va_start(list, format);
	vsnprintf(text, sizeof(text), format, list);
	va_end(list);
	gm_text_mend(text);
	if (remedy)
		remedy = gm_program_mend(remedy, mended, sizeof(mended));

	gm_table_row(doctor->table);
	gm_table_text(doctor->table, words[state]);
	gm_table_mark(doctor->table, marks[state]);
	gm_table_text(doctor->table, check);
	gm_table_count(doctor->table, (uint64_t)device);
	gm_table_known(doctor->table, device >= 0);
	gm_table_text(doctor->table, text);
	gm_table_text(doctor->table, remedy);

	if (device >= 0)
		snprintf(full, sizeof(full), "%d: %s", device, text);
	else
		snprintf(full, sizeof(full), "%s", text);
	doctor_add_folded(doctor->table, true, full);
	if (remedy) {
		snprintf(full, sizeof(full), "-> %s", remedy);
		gm_text_mend(full);
		doctor_add_folded(doctor->table, false, full);
	}

	if (state == GM_DOCTOR_FAIL)
		doctor->failed = true;
}

bool gm_doctor_wants(const struct gm_doctor *doctor, const char *backend)
{
	return doctor->config && !strcmp(doctor->config->backend, backend);
}

const char *gm_doctor_path(const struct gm_doctor *doctor, const char *path, char *ret, size_t n)
{
	snprintf(ret, n, "%s%s", doctor->root, path);
	return ret;
}

bool gm_doctor_exists(const struct gm_doctor *doctor, const char *path)
{
	char full[PATH_MAX];

	return access(gm_doctor_path(doctor, path, full, sizeof(full)), F_OK) == 0;
}

/* Opens a regular file. Some files are where anybody can put something else: to open a pipe would wait, and to open a
 * device may have effects. */
static int doctor_open(const char *path)
{
	GM_AUTO_FD int place = open(path, O_PATH | O_CLOEXEC);
	struct stat st;
	char again[32];

	if (place < 0 || fstat(place, &st) < 0 || !S_ISREG(st.st_mode))
		return -1;
	snprintf(again, sizeof(again), "/proc/self/fd/%d", place);
	return open(again, O_RDONLY | O_CLOEXEC);
}

bool gm_doctor_read(const struct gm_doctor *doctor, const char *path, char *text, size_t n)
{
	char full[PATH_MAX];
	int fd = doctor_open(gm_doctor_path(doctor, path, full, sizeof(full)));
	size_t used = 0;
	ssize_t got = 0;

	if (fd < 0)
		return false;

	while (used + 1 < n && (got = read(fd, text + used, n - 1 - used)) > 0)
		used += (size_t)got;
	close(fd);
	text[used] = '\0';
	return got >= 0;
}
