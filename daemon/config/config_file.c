/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One file of the configuration, through libini_config, which knows the syntax and the line
 * numbers. The library has habits that a configuration must not have:
 *
 *   - it loses what stands before the first section;
 *   - it cuts a value at a NUL byte;
 *   - if a name has a character that it does not like, it gives up on the whole file and does not
 *     say on which line;
 *   - if one line is wrong, it returns nothing at all.
 *
 * So this file first scans the text line by line and blanks out what it refuses, which keeps the
 * line numbers. When the library complains about a line, that line is blanked out, too, and the
 * text is read again. Nothing is dropped without a complaint.
 */
#include "daemon/config/config_file.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <iconv.h>
#include <ini_configobj.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "daemon/config/config_value.h"

#define LIBRARY_BYTES (32 * 1024 * 1024)

struct file {
	const struct gm_config_source *source;
	char *text; /* followed by a newline and a NUL byte that size does not count */
	size_t size;
	char *section; /* that of the line being scanned; NULL: none yet, or one without a name */
	bool refused;  /* the op refused the section */
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

	file->text = malloc(GM_CONFIG_FILE_BYTES + 3);
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
	file->text[file->size + 1] = '\0';
out:
	close(fd);
	return r;
}

static void file_blank(char *start, const char *end)
{
	memset(start, ' ', end - start);
	/* A comment, which the library certainly ignores. */
	if (end > start)
		*start = '#';
}

/* The length of the valid UTF-8 that the text begins with. */
static size_t file_utf8_prefix(iconv_t convert, char *text, size_t n)
{
	char *in = text;
	size_t left = n;
	iconv(convert, NULL, NULL, NULL, NULL);
	while (left) {
		char out[256], *to = out;
		size_t room = sizeof(out);
		if (iconv(convert, &in, &left, &to, &room) == (size_t)-1 && errno != E2BIG)
			break;
	}
	return n - left;
}

/* Refuses a line that is not text. */
static int file_scan_bytes(
	struct file *file, iconv_t convert, char *start, const char *end, uint32_t line)
{
	for (const char *p = start; p < end; p++) {
		unsigned char c = *p;
		if (c == '\0')
			return COMPLAIN(file, line, "has a NUL byte; the file must be UTF-8 text");
		if ((c < 0x20 && c != '\t') || c == 0x7f)
			return COMPLAIN(file, line, "has a control character (0x%02x)", c);
	}
	size_t valid = file_utf8_prefix(convert, start, end - start);
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

/* Tells the op about a line that is refused. */
static int file_tell_stray(struct file *file, const char *name, uint32_t line)
{
	int r = file->ops->stray(file->ctx, file->section, name, NULL, line);
	return r < 0 ? r : GM_CONFIG_E_REFUSED;
}

static int file_scan_header(struct file *file, const char *start, const char *end, uint32_t line)
{
	char shown[GM_CONFIG_SHOW_BYTES];
	const char *close = memrchr(start, ']', end - start);
	free(file->section);
	file->section = NULL;
	file->refused = false;
	if (!close)
		return COMPLAIN(file, line, "a section's name has no closing bracket");

	char *name = file_trimmed(start + 1, close), *rest = file_trimmed(close + 1, end);
	int r = -ENOMEM;
	if (name && rest && rest[0])
		r = COMPLAIN(file, line,
			"\"%s\" follows a section's name; put it on a line of its own",
			gm_config_shown(rest, shown));
	else if (name && rest) {
		r = file->ops->section(file->ctx, name, line);
		file->refused = r > 0;
		file->section = name;
		name = NULL;
	}
	free(rest);
	free(name);
	return r;
}

/* A key in no section, or in one that was refused. */
static int file_scan_stray(
	struct file *file, const char *name, const char *value, const char *end, uint32_t line)
{
	char *text = file_trimmed(value, end);
	int r = text ? file->ops->stray(file->ctx, file->section, name, text, line) : -ENOMEM;
	free(text);
	return r < 0 ? r : GM_CONFIG_E_REFUSED;
}

static int file_scan_key(
	struct file *file, const char *start, const char *end, uint32_t line, bool before_sections)
{
	char shown[GM_CONFIG_SHOW_BYTES];
	const char *equals = memchr(start, '=', end - start);
	char *name = file_trimmed(start, equals ? equals : end);
	int r = -ENOMEM;
	if (!name)
		return r;

	gm_config_shown(name, shown);
	if (!equals && (name[0] == '#' || name[0] == ';' || name[0] == '['))
		r = COMPLAIN(file, line, "%s must begin at the start of the line",
			name[0] == '[' ? "a section's name" : "a comment");
	else if (!equals)
		r = COMPLAIN(file, line,
			"\"%s\" is neither a section, nor \"key = value\", nor a comment; a value cannot continue on another line",
			shown);
	else if (!name[0])
		r = COMPLAIN(file, line, "there is no key before the equals sign");
	else if (before_sections)
		r = COMPLAIN(file, line, "%s: stands before any section; put [%s] above it", shown,
			GM_CONFIG_SECTION);
	else if (!file->section || file->refused) /* its header was complained about */
		r = file_scan_stray(file, name, equals + 1, end, line);
	else
		r = file->ops->key(file->ctx, file->section, name, line);

	if (r > 0 && equals && name[0] && before_sections)
		r = file_scan_stray(file, name, equals + 1, end, line);
	else if (r > 0 && (!equals || !name[0]))
		r = file_tell_stray(file, name[0] ? name : NULL, line);

	/* Nobody knows where the keys below an indented header belong. */
	if (!equals && name[0] == '[') {
		free(file->section);
		file->section = NULL;
	}

	free(name);
	return r;
}

/* Scans the text and blanks out what is refused. */
static int file_scan(struct file *file)
{
	bool before_sections = true;
	uint32_t line = 0;
	int r = 0;
	iconv_t convert = iconv_open("UTF-8", "UTF-8");
	if (convert == (iconv_t)-1)
		return -errno;

	char *start = file->text, *stop = file->text + file->size;

	/* A byte order mark says UTF-8, and is no part of the text. */
	if (file->size >= 3 && !memcmp(start, "\xef\xbb\xbf", 3)) {
		memmove(start, start + 3, file->size - 3 + 2);
		file->size -= 3;
		stop -= 3;
	}

	while (start < stop) {
		char *next = memchr(start, '\n', stop - start + 1), *end = next;
		line++;
		if (end > start && end[-1] == '\r')
			*--end = ' ';
		r = file_scan_bytes(file, convert, start, end, line);
		if (r > 0)
			r = file_tell_stray(file, NULL, line);
		if (r > 0 && start[0] == '[') {
			/* Nobody knows to which section the lines below belong. */
			free(file->section);
			file->section = NULL;
			before_sections = false;
		}
		if (r == 0 && start[0] != '#' && start[0] != ';' &&
			strspn(start, " \t") < (size_t)(end - start)) {
			if (start[0] == '[') {
				before_sections = false;
				r = file_scan_header(file, start, end, line);
				/* The library accepts blanks in a section's name, but no tabs. */
				for (char *p = start; p < end; p++)
					*p = *p == '\t' ? ' ' : *p;
			} else {
				r = file_scan_key(file, start, end, line, before_sections);
				if (r > 0 && start[strspn(start, " \t")] == '[')
					before_sections = false;
			}
		}
		if (r < 0)
			break;
		if (r > 0)
			file_blank(start, end);
		start = next + 1;
		r = 0;
	}

	iconv_close(convert);
	return r;
}

/* Blanks out a line. Returns false if there is no such line, or if it is blank already. */
static bool file_blank_line(struct file *file, uint32_t line)
{
	char *start = file->text, *stop = file->text + file->size;
	for (uint32_t i = 1; start < stop; i++) {
		char *end = memchr(start, '\n', stop - start + 1);
		if (i == line) {
			if (start == end || start[0] == '#')
				return false;
			file_blank(start, end);
			return true;
		}
		start = end + 1;
	}
	return false;
}

/* Passes on the library's complaints. Sets *ret_again if it blanked out a line, so that reading
 * again helps. */
static int file_pass_on(struct file *file, struct ini_cfgobj *ini, bool *ret_again)
{
	char **list = NULL;
	int r = ini_config_get_errors(ini, &list);
	if (r)
		return -r;

	for (size_t i = 0; list[i] && r >= 0; i++) {
		unsigned line = 0;
		int text = 0;
		if (sscanf(list[i], "%*[^(](%*d) on line %u: %n", &line, &text) == 1 && text) {
			r = COMPLAIN(file, line, "%s", list[i] + text);
			if (file_blank_line(file, line))
				*ret_again = true;
		} else {
			r = COMPLAIN(file, 0, "%s", list[i]);
		}
		if (r > 0)
			r = file_tell_stray(file, NULL, line);
	}

	ini_config_free_errors(list);
	return r;
}

static int file_tell_values(struct file *file, struct ini_cfgobj *ini, const char *section)
{
	int n = 0, error = 0, r = 0;
	char **keys = ini_get_attribute_list(ini, section, &n, &error);
	if (!keys)
		return error ? -error : 0;

	for (int i = 0; i < n && r >= 0; i++) {
		/* The library lists a key once for each time it is set, and gives all its values
		 * each time. */
		bool again = false;
		for (int j = 0; j < i && !again; j++)
			again = !strcasecmp(keys[i], keys[j]);
		int mode = INI_GET_FIRST_VALUE;
		while (!again && r >= 0) {
			struct value_obj *object = NULL;
			uint32_t line = 0;
			r = -ini_get_config_valueobj(section, keys[i], ini, mode, &object);
			if (r < 0 || !object)
				break;
			const char *value = ini_get_const_string_config_value(object, &error);
			if (!value || error) {
				r = error ? -error : -EIO;
				break;
			}
			r = -value_get_line(object, &line);
			if (r == 0)
				r = file->ops->value(file->ctx, section, keys[i], value, line);
			mode = INI_GET_NEXT_VALUE;
		}
	}

	ini_free_attribute_list(keys);
	return r;
}

/* Reads the text once. Sets *ret_again if it must be read again, without the refused lines. */
static int file_parse(struct file *file, bool *ret_again)
{
	struct ini_cfgobj *ini = NULL;
	struct ini_cfgfile *source = NULL;
	char **sections = NULL;
	int n = 0, error = 0;
	int r = -ini_config_create(&ini);
	if (r == 0)
		r = -ini_config_file_from_mem(file->text, file->size, &source);
	if (r < 0)
		goto out;

	error = ini_config_parse(source, INI_STOP_ON_NONE,
		INI_MV1S_ALLOW | INI_MV2S_ALLOW | INI_MS_MERGE,
		INI_PARSE_NOWRAP | INI_PARSE_NO_C_COMMENTS, ini);
	if (ini_config_error_count(ini)) {
		r = file_pass_on(file, ini, ret_again);
		goto out;
	}
	if (error == ENOMEM) {
		r = -ENOMEM;
		goto out;
	}
	if (error) {
		r = COMPLAIN(file, 0, "cannot be understood: %s", strerror(error));
		if (r > 0)
			r = file_tell_stray(file, NULL, 0);
		goto out;
	}

	sections = ini_get_section_list(ini, &n, &error);
	if (!sections && error)
		r = -error;
	for (int i = 0; i < n && r >= 0; i++)
		r = file_tell_values(file, ini, sections[i]);
out:
	if (sections)
		ini_free_section_list(sections);
	if (source)
		ini_config_file_destroy(source);
	if (ini)
		ini_config_destroy(ini);
	return r;
}

/*
 * The library crashes if it runs out of memory half way. So this checks beforehand that there is
 * far more than the longest allowed file has ever needed.
 */
static int file_probe_memory(void)
{
	void *memory = malloc(LIBRARY_BYTES);
	int r = memory ? 0 : -ENOMEM;
	free(memory);
	return r;
}

int gm_config_file_read(const struct gm_config_source *source, const struct gm_config_file_ops *ops,
	void *ctx, struct gm_config_errors *errors)
{
	struct file file = {.source = source, .ops = ops, .ctx = ctx, .errors = errors};
	size_t complaints = errors->n;
	int r = file_slurp(&file);
	if (r == 0)
		r = file_scan(&file);
	if (r == 0)
		r = file_probe_memory();

	/* Each further try has at least one line less. */
	for (bool again = true; again && r >= 0;) {
		again = false;
		r = file_parse(&file, &again);
	}

	/* No failure goes without a complaint. */
	if (r < 0 && r != -ENOMEM && errors->n == complaints)
		r = file_complain_errno(&file, -r);
	free(file.section);
	free(file.text);
	return r < 0 ? r : 0;
}
