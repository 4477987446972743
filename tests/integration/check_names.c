/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is published under a name: it outlives its maker and the daemon, only its audience sees it,
 * and its user pays. */
#include <grp.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/raw.h"
#include "tests/tap.h"

#define UID_A 54321
#define UID_B 54322
#define OWN   ((uid_t)-1)

static struct gm_daemon daemon_;

static void set_up(void)
{
	gm_daemon_start(&daemon_, NULL);
}

static void tear_down(void)
{
	gm_daemon_stop(&daemon_);
}

/* A client that publishes and, if it is told so, waits for a word before it ends. */
struct maker {
	uid_t uid; /* 0: the caller's own */
	const char *name;
	uint8_t byte;
	bool for_others;
	Gm__Wire__Audience audience;
	uint32_t id;
	bool replace, until_unread;
};

static void publish(int channel, void *argument)
{
	const struct maker *maker = argument;
	struct gm_raw raw;
	struct gm_raw_lease lease;
	Gm__Wire__Publish what = GM__WIRE__PUBLISH__INIT;
	uint64_t version = 0;

	if (maker->uid) {
		GM_REQUIRE(setgroups(0, NULL) == 0);
		GM_REQUIRE(setresgid(maker->uid, maker->uid, maker->uid) == 0);
		GM_REQUIRE(setresuid(maker->uid, maker->uid, maker->uid) == 0);
	}
	gm_raw_join(&raw, &daemon_);
	GM_REQUIRE_EQ((maker->for_others ? gm_raw_lease_for_others : gm_raw_lease)(
			      &raw, 0, 3 * GM_CHUNK_MIN, &lease),
		GPUMEM_OK);
	for (size_t i = 0; i < lease.n; i++)
		gm_raw_chunk_fill(&lease.chunks[i], maker->byte);
	what.lease = lease.id;
	what.name = (char *)maker->name;
	what.audience = maker->audience;
	what.audience_id = maker->id;
	what.readers_can_write = true;
	what.replace = maker->replace;
	what.until_unread = maker->until_unread;
	gpumem_status status = gm_raw_publish(&raw, &what, &version);
	gm_say(channel, &status, sizeof(status));
	gm_say(channel, &version, sizeof(version));
	char word;
	gm_hear(channel, &word, 1);
	gm_raw_close(&raw);
}

/* Publishes and dies. Returns the version; 0: refused. */
static uint64_t publish_and_die(const struct maker *maker)
{
	struct gm_worker worker;
	gpumem_status status;
	uint64_t version;
	gm_worker_start(&worker, publish, (void *)maker);
	gm_hear(worker.channel, &status, sizeof(status));
	gm_hear(worker.channel, &version, sizeof(version));
	gm_worker_kill(&worker);
	return status == GPUMEM_OK ? version : 0;
}

static bool is_filled(const struct gm_raw_lease *lease, uint8_t byte)
{
	for (size_t i = 0; i < lease->n; i++)
		if (!gm_raw_chunk_is(&lease->chunks[i], byte))
			return false;
	return lease->n > 0;
}

START_TEST(published_memory_outlives_its_maker_and_the_daemon)
{
	const struct maker maker = {.name = "llama", .byte = 42};
	struct gm_raw reader;
	struct gm_raw_lease lease;

	GM_REQUIRE_EQ(publish_and_die(&maker), 1);
	for (int i = 0; i < 3; i++) {
		GM_UNTIL(gm_figures_now(&daemon_).clients == 0);
		GM_REQUIRE_EQ(gm_figures_now(&daemon_).leases, 1);
		gm_raw_join(&reader, &daemon_);
		GM_REQUIRE_EQ(gm_raw_count_names(&reader), 1);
		GM_REQUIRE_EQ(gm_raw_attach(&reader, OWN, "llama", &lease), GPUMEM_OK);
		GM_REQUIRE_EQ(reader.packet->lease_reply->version, 1);
		GM_REQUIRE(is_filled(&lease, 42));
		GM_REQUIRE_EQ(gm_raw_give_back(&reader, &lease), GPUMEM_OK);
		GM_REQUIRE_EQ(gm_raw_attach(&reader, OWN, "mistral", &lease), GPUMEM_E_NOT_FOUND);
		GM_REQUIRE_EQ(gm_raw_goodbye(&reader), GPUMEM_OK);
		gm_raw_close(&reader);
		if (i == 0) {
			gm_daemon_kill(&daemon_);
		} else {
			gm_daemon_signal(&daemon_, SIGTERM);
			GM_REQUIRE_EQ(gm_daemon_wait(&daemon_), 0);
		}
		GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	}

	gm_raw_observe(&reader, &daemon_);
	GM_REQUIRE_EQ(gm_raw_unpublish(&reader, OWN, "llama"), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_raw_unpublish(&reader, OWN, "llama"), GPUMEM_E_NOT_FOUND);
	GM_REQUIRE_EQ(gm_raw_count_names(&reader), 0);
	GM_UNTIL(gm_figures_now(&daemon_).chunks == 0);
	gm_raw_close(&reader);
}
END_TEST

START_TEST(a_newer_version_leaves_readers_what_they_have)
{
	struct maker maker = {.name = "llama", .byte = 1, .replace = true};
	struct gm_raw reader, later;
	struct gm_raw_lease old, new;

	GM_REQUIRE_EQ(publish_and_die(&maker), 1);
	gm_raw_join(&reader, &daemon_);
	GM_REQUIRE_EQ(gm_raw_attach(&reader, OWN, "llama", &old), GPUMEM_OK);
	maker.byte = 2;
	GM_REQUIRE_EQ(publish_and_die(&maker), 2);
	maker.replace = false;
	GM_REQUIRE_EQ(publish_and_die(&maker), 0);

	gm_raw_join(&later, &daemon_);
	GM_REQUIRE_EQ(gm_raw_attach(&later, OWN, "llama", &new), GPUMEM_OK);
	GM_REQUIRE(is_filled(&old, 1) && is_filled(&new, 2));
	GM_UNTIL(gm_figures_now(&daemon_).leases == 2);
	GM_REQUIRE_EQ(gm_raw_give_back(&reader, &old), GPUMEM_OK);
	GM_UNTIL(gm_figures_now(&daemon_).leases == 1);
	GM_REQUIRE(is_filled(&new, 2));
	gm_raw_lease_clear(&new);
	gm_raw_close(&reader);
	gm_raw_close(&later);
	gm_raw_observe(&reader, &daemon_);
	GM_REQUIRE_EQ(gm_raw_unpublish(&reader, OWN, "llama"), GPUMEM_OK);
	gm_raw_close(&reader);
}
END_TEST

START_TEST(a_publisher_that_dies_before_leaves_nothing)
{
	/* The name is refused, and the maker dies with what it has filled. */
	const struct maker maker = {.name = "a/b", .byte = 42};
	struct gm_raw raw;

	GM_REQUIRE_EQ(publish_and_die(&maker), 0);
	GM_UNTIL(gm_figures_now(&daemon_).leases == 0);
	gm_raw_observe(&raw, &daemon_);
	GM_REQUIRE_EQ(gm_raw_count_names(&raw), 0);
	gm_raw_close(&raw);
}
END_TEST

/* ---- several users */

struct look {
	uid_t uid;
	uid_t owner;
};

struct seen {
	gpumem_status attach, unpublish;
	size_t names;
	bool filled;
};

static void look(int channel, void *argument)
{
	const struct look *who = argument;
	struct gm_raw raw;
	struct gm_raw_lease lease;
	struct seen seen = {0};

	GM_REQUIRE(setgroups(0, NULL) == 0);
	GM_REQUIRE(setresgid(who->uid, who->uid, who->uid) == 0);
	GM_REQUIRE(setresuid(who->uid, who->uid, who->uid) == 0);
	gm_raw_join(&raw, &daemon_);
	seen.names = gm_raw_count_names(&raw);
	seen.attach = gm_raw_attach(&raw, who->owner, "llama", &lease);
	if (seen.attach == GPUMEM_OK)
		seen.filled = is_filled(&lease, 7);
	gm_raw_lease_clear(&lease);
	seen.unpublish = gm_raw_unpublish(&raw, who->owner, "llama");
	gm_say(channel, &seen, sizeof(seen));
	gm_raw_close(&raw);
}

static struct seen what_sees(uid_t uid, uid_t owner)
{
	struct look who = {uid, owner};
	struct gm_worker worker;
	struct seen seen;
	gm_worker_start(&worker, look, &who);
	gm_hear(worker.channel, &seen, sizeof(seen));
	gm_worker_join(&worker);
	return seen;
}

START_TEST(only_the_audience_sees_a_name)
{
	struct maker maker = {.uid = UID_A, .name = "llama", .byte = 7};

	/* For the domain. */
	GM_REQUIRE_EQ(publish_and_die(&maker), 1);
	struct seen seen = what_sees(UID_B, UID_A);
	GM_REQUIRE_EQ(seen.names, 0);
	GM_REQUIRE_EQ(seen.attach, GPUMEM_E_NOT_FOUND);
	GM_REQUIRE_EQ(seen.unpublish, GPUMEM_E_DENIED);
	GM_REQUIRE_EQ(what_sees(UID_B, OWN).attach, GPUMEM_E_NOT_FOUND);

	/* For a uid: not if it was not made for others. */
	maker.replace = true;
	maker.audience = GM__WIRE__AUDIENCE__AUDIENCE_UID;
	maker.id = UID_B;
	GM_REQUIRE_EQ(publish_and_die(&maker), 0);
	maker.for_others = true;
	GM_REQUIRE_EQ(publish_and_die(&maker), 2);
	seen = what_sees(UID_B, UID_A);
	GM_REQUIRE_EQ(seen.names, 1);
	GM_REQUIRE_EQ(seen.attach, GPUMEM_OK);
	GM_REQUIRE(seen.filled);
	GM_REQUIRE_EQ(seen.unpublish, GPUMEM_E_DENIED);
	seen = what_sees(UID_B + 1, UID_A);
	GM_REQUIRE_EQ(seen.names, 0);
	GM_REQUIRE_EQ(seen.attach, GPUMEM_E_NOT_FOUND);

	/* Its owner removes it. */
	seen = what_sees(UID_A, OWN);
	GM_REQUIRE_EQ(seen.names, 1);
	GM_REQUIRE_EQ(seen.attach, GPUMEM_E_NOT_FOUND);
	GM_REQUIRE_EQ(seen.unpublish, GPUMEM_OK);
	GM_UNTIL(gm_figures_now(&daemon_).leases == 0);
}
END_TEST

/* Says whether the user gets so much memory. */
static void ask(int channel, void *argument)
{
	const struct maker *who = argument;
	struct gm_raw raw;
	struct gm_raw_lease lease;

	GM_REQUIRE(setgroups(0, NULL) == 0);
	GM_REQUIRE(setresgid(who->uid, who->uid, who->uid) == 0);
	GM_REQUIRE(setresuid(who->uid, who->uid, who->uid) == 0);
	gm_raw_join(&raw, &daemon_);
	gpumem_status status = gm_raw_lease(&raw, 0, 3 * GM_CHUNK_MIN, &lease);
	gm_say(channel, &status, sizeof(status));
	gm_raw_lease_clear(&lease);
	gm_raw_close(&raw);
}

START_TEST(the_publisher_pays)
{
	struct maker maker = {.uid = UID_A, .name = "llama", .byte = 7};
	struct gm_worker worker;
	gpumem_status status;

	gm_daemon_configure(
		&daemon_, GM_DAEMON_CONFIG_WITH("", "256M") "[limit uid:54321]\nmax = 10M\n");
	gm_daemon_kill(&daemon_);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	GM_REQUIRE_EQ(publish_and_die(&maker), 1);
	GM_UNTIL(gm_figures_now(&daemon_).clients == 0);

	/* A name has 6 of its 10 MiB, before and after a restart. */
	for (int i = 0; i < 2; i++) {
		gm_worker_start(&worker, ask, &maker);
		gm_hear(worker.channel, &status, sizeof(status));
		GM_REQUIRE_EQ(status, GPUMEM_E_LIMIT);
		gm_worker_join(&worker);
		gm_daemon_kill(&daemon_);
		GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	}
	GM_REQUIRE_EQ(what_sees(UID_A, OWN).unpublish, GPUMEM_OK);
	GM_UNTIL(gm_figures_now(&daemon_).leases == 0);
	gm_worker_start(&worker, ask, &maker);
	gm_hear(worker.channel, &status, sizeof(status));
	GM_REQUIRE_EQ(status, GPUMEM_OK);
	gm_worker_join(&worker);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("names");
	TCase *tc = tcase_create("names");
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, published_memory_outlives_its_maker_and_the_daemon);
	tcase_add_test(tc, a_newer_version_leaves_readers_what_they_have);
	tcase_add_test(tc, a_publisher_that_dies_before_leaves_nothing);
	if (GM_TAP_WITH_USERS(only_the_audience_sees_a_name))
		tcase_add_test(tc, only_the_audience_sees_a_name);
	if (GM_TAP_WITH_USERS(the_publisher_pays))
		tcase_add_test(tc, the_publisher_pays);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
