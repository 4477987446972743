/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_UNIT_VERBS_FIXTURE_H
#define GM_TESTS_UNIT_VERBS_FIXTURE_H

/* Verbs of gpumemctl run against a scripted daemon, and what they write. */

#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/text/text.h"
#include "ctl/verbs.h"
#include "tests/unit/io/ctl_fake.h"

#define G UINT64_C(0x40000000)

static struct gm_fake fake;
static struct gm_trouble trouble;
static bool usage;                     /* it was called in a wrong way */
static gpumem_status ended;            /* how a verb that has an answer ends all the same */
static int exits;                      /* the exit status of such a verb */
static struct gm_options *options_now; /* of the verb that runs */

static inline void setup(void)
{
	bool utf8;
	gm_text_init(&utf8);
}

/* malloc'ed: what the verb writes, or NULL, with trouble set. */
static inline char *run(
	const char *name, gm_fake_script script, bool json, struct gm_options *given)
{
	struct gm_options options = given ? *given : (struct gm_options){0};
	struct gm_writer_style style = {.columns = 80, .legend = true};
	struct gm_ctl ctl = {.options = &options};
	char *bytes = NULL, why[GM_VIEW_WHY];
	size_t n = 0;

	gm_fake_start(&fake, script, NULL);
	options.socket = fake.path;
	options.timeout_ms = 30000;
	options.json = json;
	options.verb = gm_verb_find(gm_verbs, name);
	if (options.verb->sort && !options.view.n_sorted)
		ck_assert_int_eq(gm_view_sort(&options.view, options.verb->columns,
					 options.verb->n_columns, options.verb->sort, why),
			0);
	ctl.writer = json          ? gm_writer_json_new()
		     : options.csv ? gm_writer_csv_new(true)
				   : gm_writer_text_new(&style);
	options_now = &options;
	gpumem_status status = options.verb->run(&ctl);
	gm_fake_stop(&fake);
	trouble = ctl.trouble;
	usage = ctl.usage;
	ended = ctl.status;
	exits = ctl.exit_status ? ctl.exit_status : gm_status_exit(ctl.status);
	if (status == GPUMEM_OK) {
		FILE *out = open_memstream(&bytes, &n);
		ck_assert_int_eq(gm_writer_finish(ctl.writer, out), 0);
		fclose(out);
	}
	gm_writer_free(ctl.writer);
	return bytes;
}

static inline char *run_text(const char *name, gm_fake_script script)
{
	char *text = run(name, script, false, NULL);
	ck_assert_msg(text != NULL, "%s", trouble.text);
	return text;
}

/* Takes what run() gave. */
static inline json_t *parse(char *text)
{
	ck_assert_msg(text != NULL, "%s", trouble.text);
	json_t *json = json_loads(text, 0, NULL);
	ck_assert_msg(json != NULL, "not JSON: %s", text);
	free(text);
	return json;
}

static inline json_t *run_json(const char *name, gm_fake_script script)
{
	return parse(run(name, script, true, NULL));
}

static inline void has(const char *text, const char *part)
{
	ck_assert_msg(strstr(text, part) != NULL, "no '%s' in:\n%s", part, text);
}

static inline void fits_screen(char *text, size_t lines)
{
	size_t n = 0;

	for (char *line; (line = strsep(&text, "\n")); n++)
		ck_assert_msg(gm_text_width(line) <= 80, "too wide: %s", line);
	ck_assert_uint_le(n, lines);
}

static inline const json_t *at(const json_t *json, const char *list, size_t i, const char *key)
{
	const json_t *value = json_object_get(json_array_get(json_object_get(json, list), i), key);
	ck_assert_msg(value != NULL, "no %s[%zu].%s", list, i, key);
	return value;
}

static inline int64_t number(const json_t *json, const char *list, size_t i, const char *key)
{
	const json_t *value = at(json, list, i, key);
	ck_assert_msg(json_is_integer(value), "%s[%zu].%s is no number", list, i, key);
	return json_integer_value(value);
}

static inline void equals(
	const json_t *json, const char *list, size_t i, const char *key, const char *text)
{
	const char *value = json_string_value(at(json, list, i, key));
	ck_assert_msg(value && !strcmp(value, text), "%s[%zu].%s is %s, not %s", list, i, key,
		value ? value : "no text", text);
}

static inline void send_answer(struct gm_fake *f, Gm__Wire__Packet *packet, uint64_t id, bool more)
{
	packet->id = id;
	packet->more = more;
	gm_fake_send(f, packet);
}

#endif
