/* SPDX-License-Identifier: Apache-2.0 */

/* The lists of figures against what is written by hand: the messages and the public structures. */

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "gpumem/gpumem.h"
#include "common/figures.h"
#include "common/wire/wire.h"
#include "tests/tap.h"

/* A figure that gpumemctl shows. */
struct figure {
	const char *name;
	size_t column;
};

#define FIGURE_OF_CLIENT(name, unit, since, column, ...) {#name, column},
static const struct figure of_client[] = {
	GM_CLIENT_FIGURES(FIGURE_OF_CLIENT, GM_FIGURE_SKIP, FIGURE_OF_CLIENT)};

#define FIGURE_OF_DEVICE(name, unit, column, ...) {#name, column},
#define OTHER_OF_DEVICE(name, column, ...)        {#name, column},
static const struct figure of_device[] = {GM_DEVICE_FIGURES(FIGURE_OF_DEVICE, OTHER_OF_DEVICE)};
static const struct figure of_pool[] = {GM_POOL_FIGURES(FIGURE_OF_DEVICE, OTHER_OF_DEVICE)};

/* What core counts goes into a message under its own name. */
static const struct figure counted_of_device[] = {
	GM_DEVICE_FIGURES(FIGURE_OF_DEVICE, GM_FIGURE_SKIP)};
static const struct figure counted_of_pool[] = {GM_POOL_FIGURES(FIGURE_OF_DEVICE, GM_FIGURE_SKIP)};

#define N(array) (sizeof(array) / sizeof(*(array)))

static const struct figure *find(const struct figure *figures, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(figures[i].name, name))
			return &figures[i];
	return NULL;
}

/* The names in the order of their columns, each after a blank. */
static void columns_say(
	const struct figure *figures, size_t n, size_t last, char *text, size_t room)
{
	*text = '\0';
	for (size_t column = 0; column <= last; column++)
		for (size_t i = 0; i < n; i++)
			if (figures[i].column == column)
				snprintf(text + strlen(text), room - strlen(text), " %s",
					figures[i].name);
}

static void require_columns(const struct figure *figures, size_t n, size_t last, const char *as)
{
	char text[1024];

	columns_say(figures, n, last, text, sizeof(text));
	ck_assert_str_eq(text, as);
}

/* Fails unless the message has a field for each figure, and a figure for each field but these. */
static void require_message(const ProtobufCMessageDescriptor *message, const struct figure *figures,
	size_t n, const char *others)
{
	for (size_t i = 0; i < n; i++)
		ck_assert_msg(
			protobuf_c_message_descriptor_get_field_by_name(message, figures[i].name),
			"%s has no field %s", message->name, figures[i].name);
	for (unsigned i = 0; i < message->n_fields; i++) {
		const char *name = message->fields[i].name;
		char word[64];

		snprintf(word, sizeof(word), " %s ", name);
		ck_assert_msg(!find(figures, n, name) == !!strstr(others, word),
			"%s.%s is no figure", message->name, name);
	}
}

START_TEST(the_message_about_a_client_has_its_figures)
{
	require_message(&gm__wire__client_use__descriptor, of_client, N(of_client), " device ");
}
END_TEST

START_TEST(a_client_s_columns_keep_their_places)
{
	require_columns(of_client, N(of_client), GM_CLIENT_FIGURES_COLUMNS,
		" held in_use cached slack peak hits misses returns active_buffers evictable in_host"
		" cpu_fallbacks passed orphaned declared");
	ck_assert_uint_eq(N(of_client) + 1, GM_CLIENT_FIGURES_COLUMNS);
}
END_TEST

START_TEST(the_messages_about_a_device_and_its_pool_have_their_figures)
{
	require_message(&gm__wire__device__descriptor, counted_of_device, N(counted_of_device),
		" number name uuid backend pressure_ppm level transport_fd transport_ipc pci fraction"
		" min_free measured trouble trouble_age_ms pinned transport mig visibility drainer ");
	require_message(&gm__wire__pool_totals__descriptor, counted_of_pool, N(counted_of_pool),
		" device ");
}
END_TEST

START_TEST(the_columns_of_a_device_and_its_pool_keep_their_places)
{
	require_columns(of_device, N(of_device), 64,
		" total fraction min_free capacity ceiling leased quarantined admitted pooled foreign"
		" free measured available peak_charged chunks pressure level orphaned declared"
		" declared_seen");
	require_columns(of_pool, N(of_pool), 64,
		" pooled peak max_pool reserve pool_decay_ms hits misses hit_rate returns released");
}
END_TEST

/* The members of gpumem_stats_t that are figures of a client, and the one with another name. */
#define STATS(X) \
	X(in_use, in_use) \
	X(pooled, cached) \
	X(peak, peak) \
	X(hits, hits) \
	X(misses, misses) \
	X(returns, returns) \
	X(cpu_fallbacks, cpu_fallbacks) \
	X(active_buffers, active_buffers) \
	X(slack, slack)

START_TEST(what_a_program_learns_about_itself_are_figures_of_a_client)
{
	/* The others are the structure's size, their sum and the share of hits. */
	size_t bytes = sizeof(size_t) + sizeof(uint64_t) + sizeof(double);

#define STATS_CHECK(member, name) \
	ck_assert(find(of_client, N(of_client), #name)); \
	bytes += sizeof(((gpumem_stats_t *)NULL)->member);
	STATS(STATS_CHECK)
	ck_assert_uint_eq(bytes, sizeof(gpumem_stats_t));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("figures");
	TCase *tc = tcase_create("figures");

	tcase_add_test(tc, the_message_about_a_client_has_its_figures);
	tcase_add_test(tc, a_client_s_columns_keep_their_places);
	tcase_add_test(tc, the_messages_about_a_device_and_its_pool_have_their_figures);
	tcase_add_test(tc, the_columns_of_a_device_and_its_pool_keep_their_places);
	tcase_add_test(tc, what_a_program_learns_about_itself_are_figures_of_a_client);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
