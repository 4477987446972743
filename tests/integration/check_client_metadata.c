/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * What is said about a published buffer, through the library: its metadata, which is read without the
 * buffer, and its lifetime.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/integration/client_names_fixture.h"
#include "tests/tap.h"

START_TEST(metadata_is_read_without_mapping_the_buffer)
{
	gpumem_publish_options options = GPUMEM_PUBLISH_OPTIONS_INIT;
	gpumem_buffer *first = filled(session, 1), *second = filled(session, 2), *view = NULL;
	static const char text[] = "{\"layers\": 32}";
	void *data = NULL;
	size_t size = 77;
	uint64_t version = 77;

	OK(gpumem_buffer_metadata(first, &data, &size)); /* it is not published */
	GM_REQUIRE(!data && size == 0);
	options.metadata = text;
	options.metadata_size = strlen(text);
	OK(gpumem_publish(first, "x", &options, NULL, NULL));
	gpumem_stats_t before = GPUMEM_STATS_INIT, after = GPUMEM_STATS_INIT;
	OK(gpumem_stats(session, 0, &before));
	OK(gpumem_metadata_read(session, "x", &data, &size, &version));
	OK(gpumem_stats(session, 0, &after));
	GM_REQUIRE_EQ(before.active_buffers, after.active_buffers);
	GM_REQUIRE(size == strlen(text) && strcmp(data, text) == 0);
	GM_REQUIRE_EQ(version, 1);
	gpumem_metadata_free(data);

	/* The next version has none, and a reader of the first one has its own. */
	OK(gpumem_attach(session, "x", &view));
	options = (gpumem_publish_options)GPUMEM_PUBLISH_OPTIONS_INIT;
	options.replace = 1;
	OK(gpumem_publish(second, "x", &options, NULL, NULL));
	OK(gpumem_metadata_read(session, "x", &data, &size, NULL));
	GM_REQUIRE(!data && size == 0);
	OK(gpumem_buffer_metadata(view, &data, &size));
	GM_REQUIRE(size == strlen(text) && strcmp(data, text) == 0);
	gpumem_metadata_free(data);
	gpumem_metadata_free(NULL);

	OK(gpumem_unpublish(session, "x"));
	data = NULL;
	REFUSED(gpumem_metadata_read(session, "x", &data, &size, NULL), GPUMEM_E_NOT_FOUND,
		"no such name");
	GM_REQUIRE(!data);
	gpumem_buffer_destroy(view);
	gpumem_buffer_destroy(first);
	gpumem_buffer_destroy(second);
}
END_TEST

struct listing {
	size_t n;
	gpumem_name last;
	char name[64], tag[64];
};

static void take_name(void *user, const gpumem_name *name)
{
	struct listing *listing = user;

	listing->n++;
	listing->last = *name;
	snprintf(listing->name, sizeof(listing->name), "%s", name->name);
	snprintf(listing->tag, sizeof(listing->tag), "%s", name->tag);
}

START_TEST(names_are_listed_with_what_is_known_of_them)
{
	gpumem_buffer_options tagged = GPUMEM_BUFFER_OPTIONS_INIT;
	gpumem_publish_options options = GPUMEM_PUBLISH_OPTIONS_INIT;
	gpumem_buffer *buffer = NULL, *view = NULL, *many[100];
	struct listing listing = {0};
	char name[16];

	OK(gpumem_names(session, take_name, &listing));
	GM_REQUIRE_EQ(listing.n, 0);
	REFUSED(gpumem_names(session, NULL, NULL), GPUMEM_E_INVALID, "fn must not be NULL");
	GM_REQUIRE(gpumem_names(NULL, take_name, &listing) != GPUMEM_OK);

	tagged.tag = "a tag";
	OK(gpumem_buffer_create(session, 0, 12345, &tagged, &buffer));
	options.metadata = "abc";
	options.metadata_size = 3;
	OK(gpumem_publish(buffer, "x", &options, NULL, NULL));
	OK(gpumem_attach(session, "x", &view));
	OK(gpumem_names(session, take_name, &listing));
	GM_REQUIRE_EQ(listing.n, 1);
	GM_REQUIRE(!strcmp(listing.name, "x") && !strcmp(listing.tag, "a tag"));
	GM_REQUIRE_EQ(listing.last.version, 1);
	GM_REQUIRE_EQ(listing.last.bytes, 12345);
	GM_REQUIRE_EQ(listing.last.metadata_bytes, 3);
	GM_REQUIRE_EQ(listing.last.readers, 1);
	GM_REQUIRE_EQ(listing.last.device, 0);

	/* More than a packet holds. */
	for (int i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "n%d", i);
		OK(gpumem_buffer_create(session, 0, 4096, NULL, &many[i]));
		OK(gpumem_publish(many[i], name, NULL, NULL, NULL));
	}
	listing = (struct listing){0};
	OK(gpumem_names(session, take_name, &listing));
	GM_REQUIRE_EQ(listing.n, 101);
	for (int i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "n%d", i);
		OK(gpumem_unpublish(session, name));
		gpumem_buffer_destroy(many[i]);
	}
	OK(gpumem_unpublish(session, "x"));
	gpumem_buffer_destroy(view);
	gpumem_buffer_destroy(buffer);

	GM_REQUIRE_EQ(gpumem_error_set(GPUMEM_E_BUSY, "a sentence"), GPUMEM_E_BUSY);
	GM_REQUIRE(!strcmp(gpumem_error_detail(), "a sentence"));
	gpumem_error_set(GPUMEM_E_BUSY, NULL);
	GM_REQUIRE(!strcmp(gpumem_error_detail(), gpumem_status_text(GPUMEM_E_BUSY)));
}
END_TEST

START_TEST(bad_metadata_is_refused_and_changes_nothing)
{
	static const char *const bad[] = {NULL, "", "a/b", "a\nb", "uid:x/y"};
	gpumem_publish_options options = GPUMEM_PUBLISH_OPTIONS_INIT;
	gpumem_buffer *buffer = filled(session, 1), *view = NULL;
	uint8_t *most = calloc(1, GPUMEM_METADATA_MOST + 1);
	void *data = NULL;
	size_t size = 77;
	uint64_t version = 77;

	GM_REQUIRE(most);
	options.metadata = most;
	options.metadata_size = GPUMEM_METADATA_MOST + 1;
	REFUSED(gpumem_publish(buffer, "x", &options, NULL, &version), GPUMEM_E_INVALID,
		"metadata_size");
	options.metadata_size = SIZE_MAX;
	REFUSED(gpumem_publish(buffer, "x", &options, NULL, &version), GPUMEM_E_INVALID,
		"metadata_size");
	options.metadata = NULL;
	options.metadata_size = 1;
	REFUSED(gpumem_publish(buffer, "x", &options, NULL, &version), GPUMEM_E_INVALID,
		"metadata must not be NULL");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		REFUSED(gpumem_metadata_read(session, bad[i], &data, &size, &version),
			GPUMEM_E_INVALID, "name");
	REFUSED(gpumem_metadata_read(session, "x", NULL, &size, NULL), GPUMEM_E_INVALID,
		"ret_data");
	REFUSED(gpumem_metadata_read(session, "x", &data, NULL, NULL), GPUMEM_E_INVALID,
		"ret_size");
	REFUSED(gpumem_buffer_metadata(NULL, &data, &size), GPUMEM_E_INVALID, "buffer");
	REFUSED(gpumem_buffer_metadata(buffer, NULL, &size), GPUMEM_E_INVALID, "ret_data");
	REFUSED(gpumem_buffer_metadata(buffer, &data, NULL), GPUMEM_E_INVALID, "ret_size");
	REFUSED(gpumem_attach(session, "x", &view), GPUMEM_E_NOT_FOUND, "no such name");
	GM_REQUIRE(!data && size == 77 && version == 77);

	/* As much as there may be. A second time is refused, and so is a name that is taken. */
	most[GPUMEM_METADATA_MOST - 1] = 5;
	options.metadata = most;
	options.metadata_size = GPUMEM_METADATA_MOST;
	OK(gpumem_publish(buffer, "x", &options, NULL, &version));
	REFUSED(gpumem_publish(buffer, "x", &options, NULL, &version), GPUMEM_E_BUSY, "metadata");
	gpumem_buffer *other = filled(session, 2);
	options.metadata_size = 10;
	REFUSED(gpumem_publish(other, "x", &options, NULL, &version), GPUMEM_E_BUSY, "taken");
	OK(gpumem_metadata_read(session, "x", &data, &size, &version));
	GM_REQUIRE(size == GPUMEM_METADATA_MOST && memcmp(data, most, size) == 0);
	GM_REQUIRE_EQ(version, 1);
	gpumem_metadata_free(data);
	OK(gpumem_unpublish(session, "x"));
	gpumem_buffer_destroy(buffer);
	gpumem_buffer_destroy(other);
	free(most);
}
END_TEST

/* Attaching may be refused for another reason: what was attached before goes back later. */
static bool name_is_gone(const char *name)
{
	gpumem_buffer *again = NULL;
	gpumem_status status = gpumem_attach(session, name, &again);
	if (status == GPUMEM_OK)
		gpumem_buffer_destroy(again);
	return status == GPUMEM_E_NOT_FOUND;
}

START_TEST(a_name_ends_when_its_time_has_come)
{
	gpumem_publish_options options = GPUMEM_PUBLISH_OPTIONS_INIT;
	gpumem_buffer *buffer = filled(session, 1), *view = NULL, *again = NULL;

	options.expires_s = 2;
	OK(gpumem_publish(buffer, "x", &options, NULL, NULL));
	OK(gpumem_attach(session, "x", &view));
	gpumem_buffer_destroy(buffer);
	GM_UNTIL(name_is_gone("x"));
	REFUSED(gpumem_attach(session, "x", &again), GPUMEM_E_NOT_FOUND, "no such name");
	GM_REQUIRE(has_all(view, 1));
	gpumem_buffer_destroy(view);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client metadata");
	TCase *tc = tcase_create("one session");
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, metadata_is_read_without_mapping_the_buffer);
	tcase_add_test(tc, names_are_listed_with_what_is_known_of_them);
	tcase_add_test(tc, bad_metadata_is_refused_and_changes_nothing);
	tcase_add_test(tc, a_name_ends_when_its_time_has_come);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
