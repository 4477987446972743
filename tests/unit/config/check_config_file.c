/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The configuration's files as bytes: whatever a file holds, it is either understood whole, every
 * line of it, or refused with the line. And the documents that have to agree with the table of
 * keys.
 */
#include "tests/unit/config/config_fixture.h"

#include <ctype.h>
#include <strings.h>

#include "daemon/config/config_file.h"
#include "daemon/config/config_keys.h"
#include "tests/tap.h"

START_TEST(lines_that_are_none_are_refused)
{
	refuse_text(
		"fraction = 0.5\n[gpumemd]\nfoo\n= 3\n[gpumemd\nfraction = 7\n[gpumemd] x\ndecay=x\n[gpumemd]\n"
		"decay = 1s\n   2s\n  # indented\n\t[device 0]\nsize = x\n[device 1]\n=\n",
		"1: fraction: stands before any section; put [gpumemd] above it\n"
		"3: \"foo\" is neither a section, nor \"key = value\", nor a comment; a value cannot continue on another line\n"
		"4: there is no key before the equals sign\n"
		"5: a section's name has no closing bracket\n"
		"6: fraction: \"7\" is not a fraction, such as 0.9 or 90%\n"
		"7: \"x\" follows a section's name; put it on a line of its own\n"
		"8: decay: \"x\" is not a time, such as 100ms, 10s or 5min\n"
		"11: \"2s\" is neither a section, nor \"key = value\", nor a comment; a value cannot continue on another line\n"
		"12: a comment must begin at the start of the line\n"
		"13: a section's name must begin at the start of the line\n"
		"14: size: \"x\" is not a size, such as 512M or 1.5G\n"
		"16: there is no key before the equals sign");
}
END_TEST

START_TEST(keys_are_checked_below_a_header_that_is_none)
{
	refuse_text("fractoin = 1\ntrust = nobody\nsize = 1G\n[gpumemd\ncolour = red\nmax = much\n"
		    "trust = uid\nsize = 1G\npriority = 1\n[limit uid:0] # root\nmx = 1\n",
		"1: fractoin: stands before any section; put [gpumemd] above it\n"
		"1: fractoin: unknown key; did you mean fraction?\n"
		"2: trust: stands before any section; put [gpumemd] above it\n"
		"2: trust: \"nobody\" is not one of uid, container, client\n"
		"3: size: stands before any section; put [gpumemd] above it\n"
		"4: a section's name has no closing bracket\n"
		"5: colour: unknown key; see gpumemd.conf(5)\n"
		"6: max: \"much\" is not a size, such as 512M or 1.5G\n"
		"10: \"# root\" follows a section's name; put it on a line of its own\n"
		"11: mx: unknown key; did you mean max?");
}
END_TEST

/* A text with what may be inside a string literal, NUL bytes too. */
#define LOAD(literal) load_bytes(literal, sizeof(literal) - 1)

START_TEST(files_made_on_other_systems_are_read)
{
	static const char plain[] = "[gpumemd]\ntrust = uid\n[device 0]\nreserve = 2M";
	ck_assert_int_eq(LOAD(plain), 0);
	ck_assert_int_eq(
		LOAD("\xef\xbb\xbf[gpumemd]\r\ntrust = uid\r\n\r\n[device 0]\r\nreserve = 2M\r\n"),
		0);
	ck_assert_int_eq(config->trust, GM_DOMAIN_TRUST_UID);
	expect("device 0", "reserve", "2M", ":5");
	ck_assert_int_eq(LOAD("\xef\xbb\xbf"), 0);
	ck_assert_int_eq(LOAD("\r\n"), 0);
	ck_assert_int_eq(LOAD("\n\n   \n\t\n"), 0);
	ck_assert_int_eq(LOAD("# no line end"), 0);
	ck_assert_int_eq(LOAD("\n; \xe2\x82\xac and [x] = y\n[gpumemd]\n#\n;\n"), 0);
	ck_assert_int_eq(LOAD("[gpumemd]\n\t trust\t=\t uid \t\n"), 0);
	ck_assert_int_eq(config->trust, GM_DOMAIN_TRUST_UID);
}
END_TEST

START_TEST(bytes_that_are_no_text_are_refused_with_the_line)
{
	ck_assert_int_eq(LOAD("[gpumemd]\ntrust = uid\0x\n"), -EINVAL);
	ck_assert_ptr_nonnull(strstr(error, ":2: has a NUL byte"));
	ck_assert_int_eq(LOAD("[gpumemd]\ntrust = uid\0"), -EINVAL);
	ck_assert_int_eq(LOAD("# comment \0 \n"), -EINVAL);
	ck_assert_int_eq(LOAD("\0"), -EINVAL);
	ck_assert_int_eq(LOAD("\xff\xfe[\0g\0]\0\n\0"), -EINVAL);
	ck_assert_ptr_nonnull(strstr(error, ":1: has a NUL byte; the file must be UTF-8 text"));
	ck_assert_int_eq(LOAD("[gpumemd]\n\ntrust = uid\xff\n"), -EINVAL);
	ck_assert_ptr_nonnull(strstr(error, ":3: is not UTF-8 text (byte 0xff)"));
	ck_assert_int_eq(LOAD("[gpumemd]\n# caf\xe9\ntrust=uid\n"), -EINVAL);
	ck_assert_ptr_nonnull(strstr(error, ":2: is not UTF-8 text (byte 0xe9)"));
	/* Too long, a surrogate, cut off at the end. */
	ck_assert_int_eq(LOAD("# \xc0\xaf\n"), -EINVAL);
	ck_assert_int_eq(LOAD("# \xed\xa0\x80\n"), -EINVAL);
	ck_assert_int_eq(LOAD("# \xe2\x82"), -EINVAL);
	ck_assert_int_eq(LOAD("[gpumemd]\ntrust = u\x1bid\n"), -EINVAL);
	ck_assert_ptr_nonnull(strstr(error, ":2: has a control character (0x1b)"));
	ck_assert_int_eq(LOAD("[gpumemd]\rtrust = uid\r"), -EINVAL);
	ck_assert_ptr_nonnull(strstr(error, ":1: has a control character (0x0d)"));
	ck_assert_int_eq(LOAD("[gpumemd]\ntrust = uid\r\r\n"), -EINVAL);
	ck_assert_int_eq(LOAD("[gpumemd]\n\xef\xbb\xbftrust = uid\n"), -EINVAL);
	/* A header that cannot be read leaves its keys without a place, which is not their fault.
	 */
	ck_assert_int_eq(LOAD("[gpum\xff"
			      "emd]\ntrust = uid\nx = 1\n[device 0]\ny = 1\n"),
		-EINVAL);
	ck_assert_ptr_null(strstr(error, ":2:"));
	ck_assert_ptr_nonnull(strstr(error, ":3: x: unknown key"));
	ck_assert_ptr_nonnull(strstr(error, ":5: y: unknown key"));
}
END_TEST

START_TEST(long_lines_are_neither_cut_nor_too_much)
{
	enum { LONG = 50000 };
	char *text = malloc(LONG + 100);
	ck_assert_ptr_nonnull(text);
	/* A comment, a value, a key and a section of that length, each with something behind it. */
	static const char *const forms[][3] = {
		{"[gpumemd]\n#", "", NULL},
		{"[gpumemd]\nadmin_group = ", "", ":2: admin_group: the name has 50000 bytes"},
		{"[gpumemd]\ntrust = ", "", ":2: trust: \"xxxxxxxxx"},
		{"[gpumemd]\n", "= 1", ":2: xxxxxxxxx"},
		{"[", "]", ":1: [xxxxxxxxx"},
		{"[gpumemd]\n", "", ":2: \"xxxxxxxxx"},
	};
	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
		size_t n = strlen(forms[i][0]);
		memcpy(text, forms[i][0], n);
		memset(text + n, 'x', LONG);
		n += LONG;
		n += sprintf(text + n, "%s\n[device 0]\nreserve = 2M\n", forms[i][1]);
		int r = load_bytes(text, n);
		ck_assert_int_eq(r, forms[i][2] ? -EINVAL : 0);
		if (forms[i][2]) {
			ck_assert_ptr_nonnull(strstr(error, forms[i][2]));
			/* The message itself is for people. */
			ck_assert_uint_lt(strlen(error), 1024);
		} else {
			ck_assert_uint_eq(config->devices[0].policy.reserve, 2 << 20);
		}
	}
	free(text);
}
END_TEST

START_TEST(a_file_of_the_most_bytes_is_read_and_one_of_a_byte_more_is_not)
{
	char *text = malloc(GM_CONFIG_FILE_BYTES + 1);
	ck_assert_ptr_nonnull(text);
	memset(text, '#', GM_CONFIG_FILE_BYTES + 1);
	for (size_t i = 999; i < GM_CONFIG_FILE_BYTES; i += 1000)
		text[i] = '\n';
	static const char last[] = "\n[gpumemd]\ntrust=uid\n";
	memcpy(text + GM_CONFIG_FILE_BYTES - strlen(last), last, strlen(last));
	ck_assert_int_eq(load_bytes(text, GM_CONFIG_FILE_BYTES), 0);
	ck_assert_int_eq(config->trust, GM_DOMAIN_TRUST_UID);
	ck_assert_int_eq(load_bytes(text, GM_CONFIG_FILE_BYTES + 1), -EFBIG);
	ck_assert_ptr_nonnull(strstr(error, "has more than 65536 bytes"));
	free(text);
}
END_TEST

START_TEST(thousands_of_mistakes_are_all_told)
{
	enum { MISTAKES = 3000 };
	char *text = malloc(MISTAKES * 32), *p = text;
	ck_assert_ptr_nonnull(text);
	p += sprintf(p, "[gpumemd]\n");
	for (int i = 0; i < MISTAKES; i++)
		p += sprintf(p, i % 2 ? "key%d = 1\n" : "word%d\n", i);
	ck_assert_int_eq(load(text), -EINVAL);
	size_t lines = 1;
	for (const char *q = error; *q; q++)
		lines += *q == '\n';
	ck_assert_uint_eq(lines, MISTAKES);
	free(text);
}
END_TEST

/* Every line of a good file that sets something is where some key has its value from. */
static void check_nothing_lost(const char *text, size_t n)
{
	uint32_t line = 0;
	const char *end = text + n;
	if (n >= 3 && !memcmp(text, "\xef\xbb\xbf", 3))
		text += 3;
	while (text < end) {
		const char *next = memchr(text, '\n', end - text);
		const char *stop = next ? next : end;
		line++;
		if (*text != '#' && *text != ';' && *text != '[' &&
			memchr(text, '=', stop - text)) {
			char source[600];
			bool found = false;
			snprintf(source, sizeof(source), "%s:%u", path, line);
			for (size_t i = 0; i < config->n_entries && !found; i++)
				found = !strcmp(config->entries[i].source, source);
			ck_assert_msg(
				found, "line %u is lost: %.*s", line, (int)(stop - text), text);
		}
		text = next ? next + 1 : end;
	}
}

static void check_sound(void)
{
	ck_assert_uint_le(config->n_devices, GM_BOUND_DEVICES);
	ck_assert_uint_le(strlen(config->socket), GM_BOUND_SOCKET_PATH_BYTES);
	for (size_t i = 0; i < GM_BOUND_DEVICES; i++) {
		const struct gm_policy *policy = &config->devices[i].policy;
		ck_assert(policy->fraction > 0 && policy->fraction <= 1);
		ck_assert_uint_lt(policy->level_ppm[0], policy->level_ppm[1]);
		ck_assert_uint_lt(policy->level_ppm[1], policy->level_ppm[2]);
		ck_assert_uint_le(policy->level_ppm[2], 1000000);
		ck_assert_uint_lt(policy->hysteresis_ppm, policy->level_ppm[0]);
		ck_assert_uint_le(policy->min_free, GM_LEASE_BYTES_MAX);
	}
}

/* Every line of a complaint is about the file that was read. */
static void check_complaint(void)
{
	size_t n = strlen(path);
	ck_assert_ptr_nonnull(error);
	for (const char *p = error;;) {
		ck_assert_msg(!strncmp(p, path, n) && p[n] == ':', "whose mistake is that? %s", p);
		const char *next = strchr(p, '\n');
		ck_assert(!next || next > p + n + 2);
		if (!next)
			break;
		p = next + 1;
	}
}

/* The same numbers on every run, so that a failure comes again. */
static uint32_t next_random(uint64_t *state)
{
	*state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)(*state >> 33);
}

START_TEST(whatever_is_changed_in_a_file_it_is_read_whole_or_refused)
{
	static const char seed[] =
		"# one\n[gpumemd]\npreset = inference\ntrust=uid\nsocket = /a/b\n"
		"socket_mode = 0660\nfraction = 90%\nmin_free = 256M\n"
		"max_pool = 25%\n; two\n\n[device 0]\nsize = 4G\nreserve=2M\n"
		"[device 1]\nsize = 2G\nmax_pool = 1G\n[gpumemd]\n"
		"decay = 100ms\npressure_high = 0.81\n";
	static const char *const pieces[] = {"[", "]", "=", "\n", "\r\n", "#", ";", " ", "\t",
		"\0x", "\xff", "\xc3\xa4", "\xef\xbb\xbf", "[gpumemd]\n", "[device 2]\n", "\n[x]\n",
		"\ntrust = client\n", "\nDecay=1s\n", "..", "!", "0", "9", "%", "M", "/*", "*/",
		"\\\n", "\n =\n", "\n  x"};
	uint64_t state = 20240229 + (uint64_t)_i;
	size_t good = 0, bad = 0;
	for (int round = 0; round < 400; round++) {
		char text[4096];
		size_t n = sizeof(seed) - 1;
		memcpy(text, seed, n);
		for (uint32_t changes = 1 + next_random(&state) % 3; changes; changes--) {
			size_t at = next_random(&state) % n;
			const char *piece =
				pieces[next_random(&state) % (sizeof(pieces) / sizeof(pieces[0]))];
			size_t length = piece[0] ? strlen(piece) : 2;
			switch (next_random(&state) % 6) {
			case 0: /* put in */
				memmove(text + at + length, text + at, n - at);
				memcpy(text + at, piece, length);
				n += length;
				break;
			case 1: /* take out */
				length = 1 + next_random(&state) % 12;
				length = length < n - at ? length : n - at - 1;
				memmove(text + at, text + at + length, n - at - length);
				n -= length;
				break;
			case 2: /* one byte for another */
				text[at] = (char)next_random(&state);
				break;
			default: /* a digit, which often leaves it good */
				for (size_t i = at; i < n; i++) {
					if (isdigit((unsigned char)text[i])) {
						text[i] = (char)('0' + next_random(&state) % 10);
						break;
					}
				}
				break;
			}
		}
		int r = load_bytes(text, n);
		if (r == 0) {
			good++;
			check_sound();
			check_nothing_lost(text, n);
		} else {
			bad++;
			ck_assert_int_eq(r, -EINVAL);
			ck_assert_ptr_null(config);
			check_complaint();
		}
	}
	/* Both kinds have to come up, or the test tests nothing. */
	ck_assert_uint_gt(good, 20);
	ck_assert_uint_gt(bad, 100);
}
END_TEST

/* A whole document of the source tree. */
static char *document(const char *name)
{
	const char *top = getenv("top_srcdir");
	char file[4096];
	snprintf(file, sizeof(file), "%s/%s", top ? top : ".", name);
	FILE *stream = fopen(file, "re");
	ck_assert_msg(stream != NULL, "%s cannot be read", file);
	char *text = NULL;
	size_t size = 0;
	ck_assert_int_gt(getdelim(&text, &size, '\0', stream), 0);
	fclose(stream);
	return text;
}

START_TEST(the_manual_page_explains_every_key_with_its_default)
{
	char *page = document("man/gpumemd.conf.5.scd");
	for (size_t i = 0; i < GM_CONFIG_N_KEYS; i++) {
		const struct gm_config_key *key = gm_config_key(i);
		char heading[128], value[128];
		snprintf(heading, sizeof(heading), "\n*%s* = ", key->name);
		const char *entry_ = strstr(page, heading);
		ck_assert_msg(entry_ != NULL, "%s is not explained", key->name);
		const char *end = strstr(entry_, "\n\n");
		ck_assert_ptr_nonnull(end);
		char *explained = strndup(entry_, end - entry_);
		ck_assert_ptr_nonnull(explained);
		snprintf(value, sizeof(value), "*%s*", key->presets[0]);
		ck_assert_msg(!key->presets[0][0] || strstr(explained + strlen(heading), value),
			"the default of %s is not told", key->name);
		for (const char *word = key->choices; word && *word; word += strspn(word, " ")) {
			size_t n = strcspn(word, " ");
			snprintf(value, sizeof(value), "*%.*s*", (int)n, word);
			ck_assert_msg(
				strstr(explained, value), "%s: %s is not told", key->name, value);
			word += n;
		}
		free(explained);
		/* What a preset changes stands in the table of presets. */
		for (size_t p = 1; p < GM_CONFIG_N_PRESETS; p++) {
			if (!key->presets[p])
				continue;
			snprintf(heading, sizeof(heading), "|  *%s*\n", key->name);
			entry_ = strstr(page, heading);
			ck_assert_msg(entry_ != NULL, "%s is not in the table", key->name);
			const char *rows[GM_CONFIG_N_PRESETS];
			const char *row = entry_ + strlen(heading);
			for (size_t c = 0; c < GM_CONFIG_N_PRESETS; c++) {
				rows[c] = row;
				row = strchr(row, '\n') + 1;
			}
			snprintf(value, sizeof(value), ":- %s\n", key->presets[p]);
			ck_assert_msg(!strncmp(rows[p], value, strlen(value)),
				"the table has another value of %s", key->name);
			snprintf(value, sizeof(value), ":- %s\n", key->presets[0]);
			ck_assert_msg(!strncmp(rows[0], value, strlen(value)),
				"the table has another default of %s", key->name);
		}
	}
	free(page);
}
END_TEST

/* The first "#KEY = VALUE" line of the file. */
static const char *installed_line(const char *text, const struct gm_config_key *key)
{
	char line[128];
	snprintf(line, sizeof(line), "\n#%s =%s%s\n", key->name, key->presets[0][0] ? " " : "",
		key->presets[0]);
	const char *found = strstr(text, line);
	ck_assert_msg(found != NULL, "%s is missing, or has another default", key->name);
	return found + 1;
}

START_TEST(the_installed_file_has_every_key_with_its_default_and_a_word_about_it)
{
	char *text = document("systemd/gpumemd.conf");
	for (size_t i = 0; i < GM_CONFIG_N_KEYS; i++) {
		const char *line = installed_line(text, gm_config_key(i));
		/* The line before is an explanation: "# Text". */
		const char *before = line - 1;
		while (before > text && before[-1] != '\n')
			before--;
		ck_assert_msg(!strncmp(before, "# ", 2),
			"%s is not explained on the line before it", gm_config_key(i)->name);
	}
	free(text);
}
END_TEST

START_TEST(the_installed_file_changes_nothing_with_or_without_its_comments)
{
	char *text = document("systemd/gpumemd.conf");
	accept_text(text);
	for (size_t i = 0; i < config->n_entries; i++)
		ck_assert_str_eq(config->entries[i].source, "default");

	/* All keys and sections, taken out of their comments. */
	for (char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (line[0] == '#' && (islower((unsigned char)line[1]) || line[1] == '['))
			memmove(line, line + 1, strlen(line));
	}
	accept_text(text);
	for (size_t k = 0; k < GM_CONFIG_N_KEYS; k++) {
		const struct gm_config_key *key = gm_config_key(k);
		size_t given = 0;
		for (size_t i = 0; i < config->n_entries; i++) {
			const struct gm_config_entry *e = &config->entries[i];
			if (strcmp(e->key, key->name) != 0)
				continue;
			given++;
			ck_assert_str_eq(e->value, key->presets[0]);
			ck_assert_str_ne(e->source, "default");
		}
		ck_assert_msg(given > 0, "%s is not set", key->name);
	}
	free(text);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("config_file");
	TCase *tcase = tcase_create("files");
	tcase_add_checked_fixture(tcase, make_folder, remove_folder);
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, lines_that_are_none_are_refused);
	tcase_add_test(tcase, keys_are_checked_below_a_header_that_is_none);
	tcase_add_test(tcase, files_made_on_other_systems_are_read);
	tcase_add_test(tcase, bytes_that_are_no_text_are_refused_with_the_line);
	tcase_add_test(tcase, long_lines_are_neither_cut_nor_too_much);
	tcase_add_test(tcase, a_file_of_the_most_bytes_is_read_and_one_of_a_byte_more_is_not);
	tcase_add_test(tcase, thousands_of_mistakes_are_all_told);
	tcase_add_loop_test(tcase, whatever_is_changed_in_a_file_it_is_read_whole_or_refused, 0, 8);
	tcase_add_test(tcase, the_manual_page_explains_every_key_with_its_default);
	tcase_add_test(
		tcase, the_installed_file_has_every_key_with_its_default_and_a_word_about_it);
	tcase_add_test(tcase, the_installed_file_changes_nothing_with_or_without_its_comments);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
