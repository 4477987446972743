/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * A user has 65,536 subordinate uids, and pays for the processes of all of them. What one uid may
 * see, open and resume stays its own.
 */

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/integration/scene.h"
#include "tests/integration/subuids.h"
#include "tests/tap.h"

#define MIB      (UINT64_C(1) << 20)
#define SUB      100000
#define STRANGER 300000 /* in nobody's range */

#define LINES  "ann:100000:65536\n"
#define CONFIG GM_DAEMON_CONFIG_WITH("", "1G") "[limit uid:64998]\nmax = 64M\n"

static void start(struct gm_daemon *daemon, const char *config)
{
	static const char *env[2];

	env[0] = gm_subuids_env(LINES);
	gm_daemon_start(daemon, &(struct gm_daemon_options){.config = config, .env = env});
}

/* ---- a process of some user, which does what it is told */

struct actor {
	struct gm_worker worker;
	struct gm_daemon *daemon;
	uid_t uid;
};

/* What it is told to do, and its answer. */
struct order {
	enum { JOIN, LEASE, GIVE, IS, FILL, RESUME, END } what;
	uint64_t bytes;
	uint8_t byte;
};
struct report {
	gpumem_status status;
	uint64_t session;
	bool yes;
	char detail[256];
};

static void actor_run(int channel, void *argument)
{
	struct actor *actor = argument;
	struct gm_raw raw = {0};
	struct gm_raw_lease leases[64];
	size_t n = 0;
	struct order order;

	GM_REQUIRE_EQ(setgid(actor->uid), 0);
	GM_REQUIRE_EQ(setuid(actor->uid), 0);
	do {
		struct report report = {.status = GPUMEM_OK};
		gm_hear(channel, &order, sizeof(order));
		switch (order.what) {
		case JOIN: {
			Gm__Wire__Hello hello = GM__WIRE__HELLO__INIT;
			hello.major = GM_WIRE_MAJOR;
			hello.minor = GM_WIRE_MINOR;
			hello.name = (char *)"raw";
			report.status = gm_raw_hello(&raw, actor->daemon->socket, &hello);
			break;
		}
		case LEASE:
			report.status = gm_raw_lease(&raw, 0, order.bytes, &leases[n]);
			n += report.status == GPUMEM_OK;
			break;
		case GIVE:
			report.status = gm_raw_give_back(&raw, &leases[--n]);
			break;
		case FILL:
			gm_alloc_raw_chunk_fill(&leases[n - 1].chunks[0], order.byte);
			break;
		case IS:
			report.yes = gm_alloc_raw_chunk_is(&leases[n - 1].chunks[0], order.byte);
			break;
		case RESUME:
			gm_raw_come_back(&raw, actor->daemon);
			break;
		case END:
			break;
		}
		report.session = raw.session;
		if (report.status != GPUMEM_OK)
			snprintf(report.detail, sizeof(report.detail), "%s", gm_raw_detail(&raw));
		gm_text_say(channel, &report, sizeof(report));
	} while (order.what != END);
}

static struct report tell(struct actor *actor, struct order order)
{
	struct report report;

	gm_text_say(actor->worker.channel, &order, sizeof(order));
	gm_hear(actor->worker.channel, &report, sizeof(report));
	return report;
}

static void act(struct actor *actor, struct gm_daemon *daemon, uid_t uid)
{
	actor->daemon = daemon;
	actor->uid = uid;
	gm_worker_start(&actor->worker, actor_run, actor);
	GM_REQUIRE_EQ(tell(actor, (struct order){.what = JOIN}).status, GPUMEM_OK);
}

static void end(struct actor *actor)
{
	tell(actor, (struct order){.what = END});
	gm_worker_join(&actor->worker);
}

static gpumem_status lease(struct actor *actor, uint64_t bytes)
{
	return tell(actor, (struct order){.what = LEASE, .bytes = bytes}).status;
}

/* ---- */

START_TEST(the_limit_of_a_user_holds_for_its_subordinate_uids)
{
	struct gm_daemon daemon;
	struct actor ann, sub, other, stranger;
	struct gm_client_row row;
	start(&daemon, CONFIG);
	act(&ann, &daemon, GM_SUBUIDS_ANN);
	act(&sub, &daemon, SUB);
	act(&other, &daemon, SUB + 65535);
	act(&stranger, &daemon, STRANGER);

	GM_REQUIRE_EQ(lease(&ann, 32 * MIB), GPUMEM_OK);
	GM_REQUIRE_EQ(lease(&sub, 16 * MIB), GPUMEM_OK);
	GM_REQUIRE_EQ(lease(&other, 16 * MIB), GPUMEM_OK);
	GM_REQUIRE_EQ(lease(&ann, 2 * MIB), GPUMEM_E_LIMIT);
	GM_REQUIRE_EQ(lease(&other, 2 * MIB), GPUMEM_E_LIMIT);
	struct report report = tell(&sub, (struct order){.what = LEASE, .bytes = 2 * MIB});
	GM_REQUIRE_EQ(report.status, GPUMEM_E_LIMIT);
	if (!strstr(report.detail,
		    "user ann (with subordinate uid 100000) may hold 64.0M, holds 64.0M"))
		GM_FAIL("\"%s\"", report.detail);
	GM_REQUIRE_EQ(lease(&stranger, 128 * MIB), GPUMEM_OK);

	/* It is shown as what it is. */
	GM_REQUIRE(gm_client_row(&daemon, report.session, &row));
	GM_REQUIRE_EQ(row.uid, SUB);

	end(&ann);
	end(&sub);
	end(&other);
	end(&stranger);
	gm_daemon_stop(&daemon);
}
END_TEST

START_TEST(and_after_a_restart_whoever_owns_the_uid_by_then)
{
	struct gm_daemon daemon;
	struct actor ann, sub, later;
	start(&daemon, CONFIG);
	act(&ann, &daemon, GM_SUBUIDS_ANN);
	act(&sub, &daemon, SUB);
	GM_REQUIRE_EQ(lease(&sub, 64 * MIB), GPUMEM_OK);

	gm_daemon_kill(&daemon);
	gm_subuids_env("root:100000:65536\n");
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon), -1);
	tell(&ann, (struct order){.what = RESUME});
	GM_REQUIRE_EQ(lease(&ann, 2 * MIB), GPUMEM_E_LIMIT);
	tell(&sub, (struct order){.what = RESUME});
	GM_REQUIRE_EQ(lease(&sub, 2 * MIB), GPUMEM_E_LIMIT);

	/* Those who come later belong to the new owner. */
	act(&later, &daemon, SUB);
	GM_REQUIRE_EQ(lease(&later, 128 * MIB), GPUMEM_OK);

	/* What the first one held was charged to ann, and is hers again. */
	GM_REQUIRE_EQ(tell(&sub, (struct order){.what = GIVE}).status, GPUMEM_OK);
	GM_REQUIRE_EQ(lease(&ann, 2 * MIB), GPUMEM_OK);
	end(&ann);
	end(&sub);
	end(&later);
	gm_daemon_stop(&daemon);
}
END_TEST

START_TEST(a_reload_reads_the_ranges_and_moves_no_charge)
{
	struct gm_daemon daemon;
	struct actor before, after;
	start(&daemon, CONFIG);
	gm_subuids_env("");
	gm_daemon_reload(&daemon, NULL);
	act(&before, &daemon, SUB);
	GM_REQUIRE_EQ(lease(&before, 128 * MIB), GPUMEM_OK);

	gm_subuids_env(LINES);
	gm_daemon_reload(&daemon, NULL);
	GM_REQUIRE_EQ(lease(&before, 2 * MIB), GPUMEM_OK);
	act(&after, &daemon, SUB);
	GM_REQUIRE_EQ(lease(&after, 64 * MIB), GPUMEM_OK);
	GM_REQUIRE_EQ(lease(&after, 2 * MIB), GPUMEM_E_LIMIT);
	end(&before);
	end(&after);
	gm_daemon_stop(&daemon);
}
END_TEST

START_TEST(all_its_uids_together_have_the_connections_of_one_user)
{
	struct gm_daemon daemon;
	struct actor actors[4];
	struct gm_raw raw;
	Gm__Wire__Hello hello = GM__WIRE__HELLO__INIT;
	start(&daemon, GM_DAEMON_CONFIG_WITH("connections_per_uid = 4\n", "1G"));
	for (unsigned i = 0; i < 4; i++)
		act(&actors[i], &daemon, SUB + i);

	hello.major = GM_WIRE_MAJOR;
	hello.minor = GM_WIRE_MINOR;
	hello.name = (char *)"raw";
	GM_REQUIRE_EQ(seteuid(SUB + 4), 0);
	GM_REQUIRE_EQ(gm_raw_hello(&raw, daemon.socket, &hello), GPUMEM_E_LIMIT);
	if (!strstr(gm_raw_detail(&raw),
		    "user ann (with subordinate uid 100004) has 4 connections"))
		GM_FAIL("\"%s\"", gm_raw_detail(&raw));
	gm_raw_close(&raw);
	GM_REQUIRE_EQ(seteuid(0), 0);

	for (unsigned i = 0; i < 4; i++)
		end(&actors[i]);
	gm_daemon_stop(&daemon);
}
END_TEST

START_TEST(a_limit_of_a_subordinate_uid_is_no_limit)
{
	struct gm_scene scene;
	const char *const env[] = {gm_subuids_env(LINES), NULL};
	gm_scene_start_with(
		&scene, &(struct gm_daemon_options){
				.config = GM_DAEMON_CONFIG "[limit uid:100007]\nmax = 64M\n"
							   "[limit uid:300000]\nmax = 64M\n",
				.env = env,
			});
	GM_REQUIRE(gm_scene_logged(&scene, "the limit of uid:100007 has no effect: it is a "
					   "subordinate uid of user ann"));
	GM_REQUIRE(!gm_scene_logged(&scene, "the limit of uid:300000"));

	GM_REQUIRE_EQ(gm_scene_set_limit(&scene, "uid:100000", 1, MIB, 0, 0), GPUMEM_E_INVALID);
	if (strcmp(gm_raw_detail(&scene.ctl), "uid 100000 is a subordinate uid of user ann, whose "
					      "limits hold for it; set one for uid:64998"))
		GM_FAIL("\"%s\"", gm_raw_detail(&scene.ctl));
	GM_REQUIRE_EQ(gm_scene_set_limit(&scene, "gid:100000", 1, MIB, 0, 0), GPUMEM_OK);
	gm_scene_stop(&scene);
}
END_TEST

START_TEST(no_byte_goes_from_one_of_its_uids_to_another)
{
	struct gm_daemon daemon;
	struct actor one, other;
	start(&daemon, GM_DAEMON_CONFIG);
	act(&one, &daemon, SUB);
	act(&other, &daemon, SUB + 1);

	GM_REQUIRE_EQ(lease(&one, 2 * MIB), GPUMEM_OK);
	tell(&one, (struct order){.what = FILL, .byte = 0xab});
	GM_REQUIRE_EQ(tell(&one, (struct order){.what = GIVE}).status, GPUMEM_OK);
	GM_REQUIRE_EQ(gm_figures_now(&daemon).pooled, 2 * MIB);

	GM_REQUIRE_EQ(lease(&other, 2 * MIB), GPUMEM_OK);
	GM_REQUIRE(tell(&other, (struct order){.what = IS, .byte = 0}).yes);
	GM_REQUIRE_EQ(gm_figures_now(&daemon).pooled, 2 * MIB);
	GM_REQUIRE_EQ(lease(&one, 2 * MIB), GPUMEM_OK);
	GM_REQUIRE(tell(&one, (struct order){.what = IS, .byte = 0xab}).yes);
	end(&one);
	end(&other);
	gm_daemon_stop(&daemon);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("subuids");
	TCase *tests = tcase_create("subuids");

	tcase_set_timeout(tests, GM_PATIENCE_MS / 1000.0 * 2);
	if (GM_TAP_WITH_USERS(the_limit_of_a_user_holds_for_its_subordinate_uids))
		tcase_add_test(tests, the_limit_of_a_user_holds_for_its_subordinate_uids);
	if (GM_TAP_WITH_USERS(and_after_a_restart_whoever_owns_the_uid_by_then))
		tcase_add_test(tests, and_after_a_restart_whoever_owns_the_uid_by_then);
	if (GM_TAP_WITH_USERS(a_reload_reads_the_ranges_and_moves_no_charge))
		tcase_add_test(tests, a_reload_reads_the_ranges_and_moves_no_charge);
	if (GM_TAP_WITH_USERS(all_its_uids_together_have_the_connections_of_one_user))
		tcase_add_test(tests, all_its_uids_together_have_the_connections_of_one_user);
	tcase_add_test(tests, a_limit_of_a_subordinate_uid_is_no_limit);
	if (GM_TAP_WITH_USERS(no_byte_goes_from_one_of_its_uids_to_another))
		tcase_add_test(tests, no_byte_goes_from_one_of_its_uids_to_another);
	suite_add_tcase(suite, tests);
	return gm_tap_run(suite);
}
