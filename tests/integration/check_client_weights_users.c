/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/* Whose weights they are: what other users see of them, and may do with them. */

#include <sys/stat.h>
#include <unistd.h>

#include "tests/integration/weights_daemon.h"
#include "tests/tap.h"

#define UID_A 54321

static void looks_as_a_stranger(int channel, void *argument)
{
	gpumem_weights_entry *entries = NULL;
	gpumem_weights *weights = NULL;
	size_t n = 77;

	GM_REQUIRE(setgid(UID_A) == 0 && setuid(UID_A) == 0);
	gpumem_session *s = weights_join("stranger");
	REFUSED(gpumem_weights_attach(s, "uid:0/llama", 0, &weights), GPUMEM_E_NOT_FOUND, "name");
	REFUSED(gpumem_weights_attach(s, "llama", 0, &weights), GPUMEM_E_NOT_FOUND, "name");
	REFUSED(gpumem_weights_remove(s, "uid:0/llama"), GPUMEM_E_NOT_FOUND, "uid:0/llama");
	OK(gpumem_weights_list(s, &entries, &n));
	GM_REQUIRE(!entries && n == 0);
	gpumem_disconnect(s);
}

START_TEST(another_user_does_not_see_them)
{
	uint8_t seed = 5;

	weights_write(folder, seed);
	GM_REQUIRE_EQ(weights_loaded((struct weights_loading){folder, seed, 0, false}), 1);
	weights_in_process(looks_as_a_stranger, NULL);
	weights_in_process(weights_remover, NULL);
	require_nothing();
}
END_TEST

static void load_for_another(gpumem_session *s)
{
	gpumem_weights_options options = GPUMEM_WEIGHTS_OPTIONS_INIT;

	options.audience = GPUMEM_AUDIENCE_UID;
	options.id = UID_A;
	options.flags = GPUMEM_READERS_CAN_WRITE;
	OK(gpumem_weights_load(s, 0, folder, "llama", &options, NULL));
}

/* The loader's user cannot attach to the weights, but sees them, and does not load over them. */
static void require_seen_as_own(gpumem_session *s)
{
	gpumem_weights_entry *entries = NULL;
	size_t n = 0;

	REFUSED(gpumem_weights_load(s, 0, folder, "llama", NULL, NULL), GPUMEM_E_BUSY,
		"there are weights with the name llama already");
	OK(gpumem_weights_list(s, &entries, &n));
	GM_REQUIRE(n == 1 && !strcmp(entries[0].name, "llama"));
	GM_REQUIRE_EQ(entries[0].tensors, MODEL_TENSORS);
	gpumem_weights_list_free(entries);
}

static void loads_for_another(int channel, void *argument)
{
	gpumem_session *s = weights_join("loader");

	load_for_another(s);
	require_seen_as_own(s);
	gpumem_disconnect(s);
}

/* As in a container with uids of its own: the daemon knows the process by another number than geteuid(). */
static void loads_as_a_user_with_two_numbers(int channel, void *argument)
{
	gpumem_session *s = weights_join("loader");

	load_for_another(s);
	GM_REQUIRE(seteuid(UID_A) == 0);
	require_seen_as_own(s);
	gpumem_disconnect(s);
}

START_TEST(the_daemon_says_whose_weights_they_are)
{
	weights_write(folder, 5);
	GM_REQUIRE(chmod(folder, 0755) == 0);
	weights_in_process(loads_as_a_user_with_two_numbers, NULL);
	weights_in_process(weights_remover, NULL);
	require_nothing();
}
END_TEST

static void attaches_as_another(int channel, void *argument)
{
	gpumem_weights_entry *entries = NULL;
	gpumem_weights *weights = NULL;
	size_t n = 0;

	GM_REQUIRE(setgid(UID_A) == 0 && setuid(UID_A) == 0);
	gpumem_session *s = weights_join("other");
	OK(gpumem_weights_list(s, &entries, &n));
	GM_REQUIRE_EQ(n, 1);
	GM_REQUIRE(!strcmp(entries[0].name, "uid:0/llama"));
	OK(gpumem_weights_attach(s, entries[0].name, entries[0].version, &weights));
	weights_require_all(weights, 5);
	gpumem_weights_list_free(entries);
	gpumem_weights_detach(weights);
	REFUSED(gpumem_weights_remove(s, "uid:0/llama"), GPUMEM_E_DENIED, "");
	gpumem_disconnect(s);
}

START_TEST(another_user_attaches_if_they_are_meant_for_it)
{
	weights_write(folder, 5);
	weights_in_process(loads_for_another, NULL);
	weights_in_process(attaches_as_another, NULL);
	weights_in_process(weights_remover, NULL);
	require_nothing();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client weights users");
	TCase *tc = tcase_create("users");

	tcase_add_checked_fixture(tc, set_up_alone, tear_down_alone);
	tcase_set_timeout(tc, 120);
	if (GM_TAP_WITH_USERS(another_user_does_not_see_them))
		tcase_add_test(tc, another_user_does_not_see_them);
	if (GM_TAP_WITH_USERS(another_user_attaches_if_they_are_meant_for_it))
		tcase_add_test(tc, another_user_attaches_if_they_are_meant_for_it);
	if (GM_TAP_WITH_USERS(the_daemon_says_whose_weights_they_are))
		tcase_add_test(tc, the_daemon_says_whose_weights_they_are);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
