/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The syntax of a configuration file, line by line: sections, assignments and comments. A line that is refused
 * does not end the reading, and nothing is dropped without a complaint.
 */
#include "daemon/config/config_file.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <iconv.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "daemon/config/config_value.h"

struct file {
	const struct gm_config_source *source;
	char *text; /* followed by a newline that size does not count */
	size_t size;
	iconv_t convert; /* from UTF-8 to UTF-8 */
	char *section;   /* of the current line; NULL: none yet, or one without a name */
	bool refused;    /* the op refused the section */
	bool headed;     /* a line has begun a section, or was meant to */
	const struct gm_config_file_ops *ops;
	void *ctx;
	struct gm_config_errors *errors;
};

#define COMPLAIN(file, line, ...) \
	gm_config_errors_add((file)->errors, (file)->source, line, __VA_ARGS__)

/* Complains that the file cannot be read, and returns -error. */
static int file_complain_errno(struct file *file, int error)
{
	int r = COMPLAIN(file, 0, "cannot be read: %s", strerror(error));
	return r < 0 ? r : -error;
}

static int file_slurp(struct file *file)
{
	/* O_NONBLOCK, because a FIFO without a writer would block the daemon. */
	int fd = open(file->source->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return file_complain_errno(file, errno);

	struct stat st;
	int r = 0;
	if (fstat(fd, &st) < 0)
		r = file_complain_errno(file, errno);
	else if (S_ISDIR(st.st_mode))
		r = file_complain_errno(file, EISDIR);
	else if (S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3))
		r = 0; /* /dev/null is an empty file: a link to it masks a drop-in */
	else if (!S_ISREG(st.st_mode)) {
		r = COMPLAIN(file, 0, "cannot be read: not an ordinary file");
		r = r < 0 ? r : -EINVAL;
	}

	if (r < 0)
		goto out;

	file->text = malloc(GM_CONFIG_FILE_BYTES + 2);
	if (!file->text) {
		r = -ENOMEM;
		goto out;
	}

	while (file->size <= GM_CONFIG_FILE_BYTES) {
		ssize_t n =
			read(fd, file->text + file->size, GM_CONFIG_FILE_BYTES + 1 - file->size);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			r = file_complain_errno(file, errno);
			goto out;
		}
		if (n == 0)
			break;
		file->size += n;
	}

	if (file->size > GM_CONFIG_FILE_BYTES) {
		r = COMPLAIN(file, 0, "has more than %d bytes", GM_CONFIG_FILE_BYTES);
		r = r < 0 ? r : -EFBIG;
		goto out;
	}

	file->text[file->size] = '\n';
out:
	close(fd);
	return r;
}

/* The length of the valid UTF-8 that the text begins with. */
static size_t file_utf8_prefix(const struct file *file, char *text, size_t n)
{
	char *in = text;
	size_t left = n;
	iconv(file->convert, NULL, NULL, NULL, NULL);
	while (left) {
		char out[256], *to = out;
		size_t room = sizeof(out);
		if (iconv(file->convert, &in, &left, &to, &room) == (size_t)-1 && errno != E2BIG)
			break;
	}
	return n - left;
}

/* Refuses a line that is not text. */
static int file_check_bytes(struct file *file, char *start, const char *end, uint32_t line)
{
	for (const char *p = start; p < end; p++) {
		unsigned char c = *p;
		if (c == '\0')
			return COMPLAIN(file, line, "has a NUL byte; the file must be UTF-8 text");
		if ((c < 0x20 && c != '\t') || c == 0x7f)
			return COMPLAIN(file, line, "has a control character (0x%02x)", c);
	}
	size_t valid = file_utf8_prefix(file, start, end - start);
	if (start + valid < end)
		return COMPLAIN(
			file, line, "is not UTF-8 text (byte 0x%02x)", (unsigned char)start[valid]);
	return 0;
}

/* A malloc'ed copy of the text, without the blanks around it. */
static char *file_trimmed(const char *start, const char *end)
{
	while (start < end && isblank((unsigned char)*start))
		start++;
	while (end > start && isblank((unsigned char)end[-1]))
		end--;
	return strndup(start, end - start);
}

/* Begins a section; NULL: nobody knows to which section the lines below belong. Takes the name. */
static void file_begin_section(struct file *file, char *name, bool refused)
{
	free(file->section);
	file->section = name;
	file->refused = refused;
	file->headed = true;
}

static int file_read_header(struct file *file, const char *start, const char *end, uint32_t line)
{
	char shown[GM_CONFIG_SHOW_BYTES];
	const char *close = memrchr(start, ']', end - start);
	file_begin_section(file, NULL, false);
	if (!close)
		return COMPLAIN(file, line, "a section's name has no closing bracket");

	char *name = file_trimmed(start + 1, close), *rest = file_trimmed(close + 1, end);
	int r = -ENOMEM;
	if (name && rest && rest[0]) {
		r = COMPLAIN(file, line,
			"\"%s\" follows a section's name; put it on a line of its own",
			gm_config_shown(rest, shown));
	} else if (name && rest) {
		r = file->ops->section(file->ctx, name, line);
		file_begin_section(file, name, r > 0);
		name = NULL;
	}
	free(rest);
	free(name);
	return r;
}

/* A line that is neither empty, nor a header, nor an assignment. */
static int file_refuse_text(struct file *file, const char *text, uint32_t line)
{
	char shown[GM_CONFIG_SHOW_BYTES];
	int r;
	if (text[0] == '#' || text[0] == ';' || text[0] == '[')
		r = COMPLAIN(file, line, "%s must begin at the start of the line",
			text[0] == '[' ? "a section's name" : "a comment");
	else
		r = COMPLAIN(file, line,
			"\"%s\" is neither a section, nor \"key = value\", nor a comment; a value cannot continue on another line",
			gm_config_shown(text, shown));
	if (r >= 0)
		r = file->ops->stray(file->ctx, file->section, text, NULL, line);
	if (text[0] == '[')
		file_begin_section(file, NULL, false);
	return r;
}

static int file_read_assignment(
	struct file *file, const char *key, const char *value, uint32_t line)
{
	char shown[GM_CONFIG_SHOW_BYTES];
	int r = 0;
	if (!key[0]) {
		r = COMPLAIN(file, line, "there is no key before the equals sign");
		return r < 0 ? r : file->ops->stray(file->ctx, file->section, NULL, NULL, line);
	}

	if (file->section && !file->refused)
		return file->ops->value(file->ctx, file->section, key, value, line);
	if (!file->headed)
		r = COMPLAIN(file, line, "%s: stands before any section; put [%s] above it",
			gm_config_shown(key, shown), GM_CONFIG_SECTION);
	/* Otherwise the section's header was complained about. */
	return r < 0 ? r : file->ops->stray(file->ctx, file->section, key, value, line);
}

static int file_read_line(struct file *file, char *start, const char *end, uint32_t line)
{
	int r = file_check_bytes(file, start, end, line);
	if (r > 0) {
		r = file->ops->stray(file->ctx, file->section, NULL, NULL, line);
		if (start[0] == '[')
			file_begin_section(file, NULL, false);
		return r;
	}
	if (r < 0 || start[0] == '#' || start[0] == ';' ||
		strspn(start, " \t") >= (size_t)(end - start))
		return r;
	if (start[0] == '[')
		return file_read_header(file, start, end, line);

	const char *equals = memchr(start, '=', end - start);
	char *key = file_trimmed(start, equals ? equals : end);
	char *value = equals ? file_trimmed(equals + 1, end) : NULL;
	r = -ENOMEM;
	if (key && !equals)
		r = file_refuse_text(file, key, line);
	else if (key && value)
		r = file_read_assignment(file, key, value, line);
	free(value);
	free(key);
	return r;
}

static int file_read_lines(struct file *file)
{
	char *start = file->text, *stop = file->text + file->size;
	int r = 0;

	/* A byte order mark says UTF-8, and is no part of the text. */
	if (file->size >= 3 && !memcmp(start, "\xef\xbb\xbf", 3))
		start += 3;

	for (uint32_t line = 1; start < stop && r >= 0; line++) {
		char *next = memchr(start, '\n', stop - start + 1), *end = next;
		if (end > start && end[-1] == '\r')
			end--;
		r = file_read_line(file, start, end, line);
		start = next + 1;
	}
	return r;
}

int gm_config_file_read(const struct gm_config_source *source, const struct gm_config_file_ops *ops,
	void *ctx, struct gm_config_errors *errors)
{
	struct file file = {.source = source, .ops = ops, .ctx = ctx, .errors = errors};
	file.convert = iconv_open("UTF-8", "UTF-8");
	if (file.convert == (iconv_t)-1)
		return file_complain_errno(&file, errno);

	int r = file_slurp(&file);
	if (r == 0)
		r = file_read_lines(&file);

	iconv_close(file.convert);
	free(file.section);
	free(file.text);
	return r < 0 ? r : 0;
}
