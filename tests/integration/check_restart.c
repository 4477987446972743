/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon is killed or stopped, its keeper is killed, and the next daemon knows everything: who holds
 * what, who may open it, and what everybody may have. */
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/wire/keeper_wire.h"
#include "common/wire/seqpacket.h"
#include "tests/end_keeper.h"
#include "tests/integration/raw.h"
#include "tests/integration/scene.h"
#include "tests/tap.h"

#define WORKERS 5
#define LEASES  8

/* The books, as they are to be the same before and after: all that clients hold is quarantined until they
 * are back. */
static void require_same(const struct gm_figures *before, const struct gm_figures *after)
{
	GM_REQUIRE_EQ(after->leases, before->leases);
	GM_REQUIRE_EQ(after->clients, before->clients);
	GM_REQUIRE_EQ(after->leased + after->quarantined, before->leased + before->quarantined);
	GM_REQUIRE_EQ(after->orphaned, before->orphaned);
	GM_REQUIRE_EQ(after->capacity, before->capacity);
	GM_REQUIRE_EQ(after->available, before->available);
	GM_REQUIRE_EQ(after->peak_charged, before->peak_charged);
	/* A counter is written at every 64th grant, so a daemon that is killed may forget the last ones. */
	GM_REQUIRE(after->requests > 0 && after->requests <= before->requests);
	GM_REQUIRE(after->generation > before->generation);
}

enum how { KILL, STOP, KEEPER, TURNS };

static pid_t keeper_of(const struct gm_daemon *daemon)
{
	char folder[128];
	snprintf(folder, sizeof(folder), "%s/run", daemon->folder);
	return gm_keeper_in(folder);
}

/* Ends the keeper, and waits until the next one has everything. */
static void kill_keeper(struct gm_daemon *daemon)
{
	size_t said = gm_daemon_said(daemon, "has everything again");
	pid_t keeper = keeper_of(daemon);
	GM_REQUIRE(keeper > 0);
	gm_keeper_signal(keeper, SIGKILL);
	GM_UNTIL(gm_daemon_said(daemon, "has everything again") == said + 1);
	GM_REQUIRE(keeper_of(daemon) != keeper);
}

static void restart(struct gm_daemon *daemon, enum how how)
{
	if (how == KEEPER || how == TURNS)
		kill_keeper(daemon);
	if (how == KEEPER)
		return;
	if (how == STOP) {
		gm_daemon_signal(daemon, SIGTERM);
		GM_REQUIRE_EQ(gm_daemon_wait(daemon), 0);
	} else {
		gm_daemon_kill(daemon);
	}
	GM_REQUIRE_EQ(gm_daemon_spawn(daemon), -1);
}

/* ---- workers that live on */

static void hold_memory(int channel, void *argument)
{
	struct gm_daemon *daemon = argument;
	struct gm_raw raw;
	struct gm_raw_lease leases[LEASES];
	uint8_t first;
	char word;

	gm_hear(channel, &first, sizeof(first));
	gm_raw_join(&raw, daemon);
	for (int i = 0; i < LEASES; i++) {
		GM_REQUIRE_EQ(
			gm_raw_lease(&raw, 0, (uint64_t)(1 + i % 3) * GM_CHUNK_MIN, &leases[i]),
			GPUMEM_OK);
		for (size_t c = 0; c < leases[i].n; c++)
			gm_alloc_raw_chunk_fill(&leases[i].chunks[c], (uint8_t)(first + i));
	}
	gm_text_say_word(channel, 'h');

	for (;;) {
		gm_hear(channel, &word, 1);
		if (word == 'e')
			break;
		/* The daemon is another one. */
		if (word == 'r')
			gm_raw_come_back(&raw, daemon);
		for (int i = 0; i < LEASES; i++) {
			struct gm_raw_lease again;
			GM_REQUIRE_EQ(gm_raw_handles(&raw, leases[i].id, 0, &again), GPUMEM_OK);
			GM_REQUIRE_EQ(again.n, leases[i].n);
			for (size_t c = 0; c < again.n; c++) {
				GM_REQUIRE_EQ(again.chunks[c].id, leases[i].chunks[c].id);
				GM_REQUIRE(gm_alloc_raw_chunk_is(
					&again.chunks[c], (uint8_t)(first + i)));
				GM_REQUIRE(gm_alloc_raw_chunk_is(
					&leases[i].chunks[c], (uint8_t)(first + i)));
			}
			gm_raw_lease_clear(&again);
		}
		gm_text_say_word(channel, 'h');
	}
	for (int i = 0; i < LEASES; i++)
		GM_REQUIRE_EQ(gm_raw_give_back(&raw, &leases[i]), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_raw_goodbye(&raw), GPUMEM_OK);
	gm_raw_close(&raw);
}

static void survive(enum how how, int rounds)
{
	struct gm_daemon daemon;
	struct gm_worker workers[WORKERS];
	struct gm_figures before, after;

	gm_daemon_start(&daemon, NULL);
	for (int i = 0; i < WORKERS; i++) {
		uint8_t first = (uint8_t)(1 + i * LEASES);
		gm_worker_start(&workers[i], hold_memory, &daemon);
		gm_text_say(workers[i].channel, &first, sizeof(first));
	}
	for (int i = 0; i < WORKERS; i++)
		gm_hear_word(workers[i].channel, 'h');

	for (int round = 0; round < rounds; round++) {
		gm_figures(&daemon, &before);
		restart(&daemon, how);
		gm_figures(&daemon, &after);
		if (how != KEEPER) {
			require_same(&before, &after);
			GM_REQUIRE_EQ(after.leased, 0);
		}
		for (int i = 0; i < WORKERS; i++)
			gm_text_say_word(workers[i].channel, how == KEEPER ? 'c' : 'r');
		for (int i = 0; i < WORKERS; i++)
			gm_hear_word(workers[i].channel, 'h');
		gm_figures(&daemon, &after);
		GM_REQUIRE_EQ(after.leased, before.leased);
		GM_REQUIRE_EQ(after.quarantined, 0);
		GM_REQUIRE_EQ(after.leases, before.leases);
	}
	for (int i = 0; i < WORKERS; i++) {
		gm_text_say_word(workers[i].channel, 'e');
		gm_worker_join(&workers[i]);
	}
	gm_figures_await_none(&daemon);
	gm_daemon_stop(&daemon);
}

START_TEST(a_killed_daemon_is_followed_by_one_that_knows_everything)
{
	survive(KILL, 5);
}
END_TEST

START_TEST(so_is_one_that_was_stopped)
{
	survive(STOP, 3);
}
END_TEST

START_TEST(a_killed_keeper_is_followed_by_one_that_has_everything)
{
	survive(KEEPER, 5);
}
END_TEST

START_TEST(the_daemon_and_its_keeper_may_die_in_turns)
{
	survive(TURNS, 5);
}
END_TEST

/* ---- what is known */

/* An administrator's request ends the daemon; forget: and all that it handed out. */
START_TEST(an_administrator_stops_the_daemon_with_or_without_what_it_handed_out)
{
	bool forget = _i;
	struct gm_daemon daemon;
	struct gm_raw raw, admin;
	struct gm_raw_lease lease;
	Gm__Wire__Stop stop = GM__WIRE__STOP__INIT;

	gm_daemon_start(&daemon, NULL);
	gm_raw_join(&raw, &daemon);
	GM_REQUIRE_EQ(gm_raw_lease(&raw, 0, GM_CHUNK_MIN, &lease), GPUMEM_OK);
	gm_raw_lease_clear(&lease);
	gm_raw_join(&admin, &daemon);
	stop.forget = forget;
	GM_REQUIRE_EQ(gm_raw_call(&admin, GM_RAW_PACKET(STOP, stop, &stop)), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_daemon_wait(&daemon), 0);
	gm_raw_close(&admin);

	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon), -1);
	struct gm_figures after = gm_figures_now(&daemon);
	GM_REQUIRE_EQ(after.leases, forget ? 0 : 1);
	GM_REQUIRE_EQ(after.quarantined, forget ? 0 : GM_CHUNK_MIN);
	if (!forget)
		gm_raw_come_back(&raw, &daemon);
	gm_raw_close(&raw);
	gm_daemon_stop(&daemon);
}
END_TEST

START_TEST(memory_of_a_worker_that_died_meanwhile_is_free)
{
	struct gm_daemon daemon;
	struct gm_worker worker;
	uint8_t first = 1;

	gm_daemon_start(&daemon, NULL);
	gm_worker_start(&worker, hold_memory, &daemon);
	gm_text_say(worker.channel, &first, sizeof(first));
	gm_hear_word(worker.channel, 'h');
	gm_daemon_kill(&daemon);
	gm_worker_kill(&worker);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon), -1);
	GM_UNTIL(gm_figures_now(&daemon).available == gm_figures_now(&daemon).capacity);
	GM_REQUIRE_EQ(gm_figures_now(&daemon).clients, 0);
	GM_REQUIRE_EQ(gm_figures_now(&daemon).quarantined, 0);
	gm_daemon_stop(&daemon);
}
END_TEST

/* The pressure is known when the first of them ends, and is news for those who live. */
START_TEST(a_worker_that_died_meanwhile_does_not_trouble_others_on_a_full_device)
{
	struct gm_daemon daemon;
	struct gm_worker worker;
	struct gm_raw raw;
	struct gm_raw_lease lease;
	uint8_t first = 1;

	gm_daemon_start(
		&daemon, &(struct gm_daemon_options){
				 .config = GM_DAEMON_CONFIG_WITH("pressure_dwell = 0s\n", "1G")});
	gm_worker_start(&worker, hold_memory, &daemon);
	gm_text_say(worker.channel, &first, sizeof(first));
	gm_hear_word(worker.channel, 'h');
	gm_raw_join(&raw, &daemon);
	GM_REQUIRE_EQ(gm_raw_lease(&raw, 0, 960 * UINT64_C(1048576), &lease), GPUMEM_OK);

	gm_daemon_kill(&daemon);
	gm_worker_kill(&worker);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon), -1);
	gm_raw_come_back(&raw, &daemon);
	GM_REQUIRE_EQ(gm_raw_give_back(&raw, &lease), GPUMEM_OK);
	GM_UNTIL(gm_figures_now(&daemon).leases == 0);
	gm_raw_close(&raw);
	gm_daemon_stop(&daemon);
}
END_TEST

START_TEST(a_session_belongs_to_its_process_after_a_restart_too)
{
	struct gm_daemon daemon;
	struct gm_raw raw, thief;
	struct gm_raw_lease lease;
	int status;

	gm_daemon_start(&daemon, NULL);
	gm_raw_join(&raw, &daemon);
	GM_REQUIRE_EQ(gm_raw_lease(&raw, 0, GM_CHUNK_MIN, &lease), GPUMEM_OK);
	restart(&daemon, KILL);
	fflush(NULL);
	pid_t child = fork();
	if (child == 0)
		_exit(gm_raw_resume(&thief, &daemon, &raw) == GPUMEM_OK && thief.resumed);
	GM_REQUIRE(waitpid(child, &status, 0) == child);
	GM_REQUIRE_EQ(status, 0);

	/* Its own process needs its token. */
	raw.token[0] ^= 1;
	GM_REQUIRE(gm_raw_resume(&thief, &daemon, &raw) != GPUMEM_OK || !thief.resumed);
	gm_raw_close(&thief);
	raw.token[0] ^= 1;
	gm_raw_come_back(&raw, &daemon);
	GM_REQUIRE_EQ(gm_raw_give_back(&raw, &lease), GPUMEM_OK);
	gm_raw_close(&raw);
	gm_daemon_stop(&daemon);
}
END_TEST

START_TEST(what_is_held_counts_against_limits_and_the_device_after_a_restart)
{
	struct gm_daemon daemon;
	struct gm_raw holder, other;
	struct gm_raw_lease lease, more;

	gm_daemon_start(&daemon, NULL);
	gm_raw_join(&holder, &daemon);
	GM_REQUIRE_EQ(gm_raw_lease(&holder, 0, 900 << 20, &lease), GPUMEM_OK);
	restart(&daemon, KILL);
	/* The device has 1 GiB. Its holder is not back yet. */
	gm_raw_join(&other, &daemon);
	GM_REQUIRE(gm_raw_lease(&other, 0, 900 << 20, &more) != GPUMEM_OK);
	GM_REQUIRE_EQ(gm_raw_lease(&other, 0, 100 << 20, &more), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_raw_give_back(&other, &more), GPUMEM_OK);
	gm_raw_close(&other);
	gm_raw_come_back(&holder, &daemon);
	GM_REQUIRE_EQ(gm_raw_give_back(&holder, &lease), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_raw_lease(&holder, 0, 900 << 20, &lease), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_raw_give_back(&holder, &lease), GPUMEM_OK);
	gm_raw_close(&holder);
	gm_daemon_stop(&daemon);
}
END_TEST

#define MEMORY_OF(size, host_limit) \
	"[gpumemd]\nfraction = 1.0\nmin_free = 0\nreserve = 0\nhost_limit = " host_limit \
	"\n[device 0]\nsize = " size "\n"

/* One user's memory must not keep the daemon from starting. The second device is pinned host memory. */
START_TEST(memory_that_is_smaller_after_a_restart_keeps_what_clients_hold)
{
	struct gm_daemon daemon;
	struct gm_raw raw;
	struct gm_raw_lease held[2], back, more;
	uint64_t bytes = 12 * GM_CHUNK_MIN;

	gm_daemon_start(&daemon, &(struct gm_daemon_options){.config = MEMORY_OF("32M", "32M")});
	gm_raw_join(&raw, &daemon);
	for (uint32_t i = 0; i < 2; i++) {
		GM_REQUIRE_EQ(gm_raw_lease(&raw, i, bytes, &held[i]), GPUMEM_OK);
		for (size_t c = 0; c < held[i].n; c++)
			gm_alloc_raw_chunk_fill(&held[i].chunks[c], (uint8_t)(1 + i));
	}

	gm_daemon_kill(&daemon);
	/* A GPU is as large as before. */
	gm_daemon_configure(&daemon, gm_on_gpu() ? MEMORY_OF("32M", "8M") : MEMORY_OF("8M", "8M"));
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon), -1);
	gm_raw_come_back(&raw, &daemon);
	for (uint32_t i = 0; i < 2; i++) {
		struct gm_figures f;
		uint64_t id = held[i].id;

		GM_REQUIRE_EQ(gm_raw_handles(&raw, id, 0, &back), GPUMEM_OK);
		GM_REQUIRE_EQ(back.n, held[i].n);
		for (size_t c = 0; c < back.n; c++)
			GM_REQUIRE(gm_alloc_raw_chunk_is(&back.chunks[c], (uint8_t)(1 + i)));
		gm_raw_lease_clear(&back);
		gm_figures_of(&daemon, i, &f);
		GM_REQUIRE_EQ(f.leased, bytes);
		bool smaller = i > 0 || !gm_on_gpu();
		if (smaller) {
			GM_REQUIRE_EQ(f.available, 0);
			GM_REQUIRE_EQ(
				gm_raw_lease(&raw, i, GM_CHUNK_MIN, &more), GPUMEM_E_NO_MEMORY);
		}
		GM_REQUIRE_EQ(gm_raw_give_back(&raw, &held[i]), GPUMEM_OK);
		GM_REQUIRE_EQ(gm_raw_lease(&raw, i, 4 * GM_CHUNK_MIN, &more), GPUMEM_OK);
		GM_REQUIRE_EQ(gm_raw_give_back(&raw, &more), GPUMEM_OK);
	}
	gm_raw_close(&raw);
	gm_daemon_stop(&daemon);
}
END_TEST

START_TEST(a_shared_token_opens_its_lease_after_a_restart)
{
	struct gm_daemon daemon;
	struct gm_raw maker, opener;
	struct gm_raw_lease lease, opened;
	uint8_t token[GM_TOKEN_BYTES];

	gm_daemon_start(&daemon, NULL);
	gm_raw_join(&maker, &daemon);
	GM_REQUIRE_EQ(gm_raw_lease_for_others(&maker, 0, GM_CHUNK_MIN, &lease), GPUMEM_OK);
	gm_alloc_raw_chunk_fill(&lease.chunks[0], 77);
	GM_REQUIRE_EQ(gm_raw_share(&maker, lease.id, GM__WIRE__AUDIENCE__AUDIENCE_UID,
			      (uint32_t)geteuid(), false, token),
		GPUMEM_OK);
	restart(&daemon, KILL);
	gm_raw_join(&opener, &daemon);
	GM_REQUIRE_EQ(gm_raw_open(&opener, token, &opened), GPUMEM_OK);
	GM_REQUIRE(gm_alloc_raw_chunk_is(&opened.chunks[0], 77));
	gm_raw_lease_clear(&opened);
	/* The opener is known, too. */
	restart(&daemon, STOP);
	gm_raw_come_back(&opener, &daemon);
	GM_REQUIRE_EQ(gm_raw_handles(&opener, lease.id, 0, &opened), GPUMEM_OK);
	GM_REQUIRE(gm_alloc_raw_chunk_is(&opened.chunks[0], 77));
	GM_REQUIRE_EQ(gm_raw_give_back(&opener, &opened), GPUMEM_OK);
	gm_raw_come_back(&maker, &daemon);
	GM_REQUIRE_EQ(gm_raw_give_back(&maker, &lease), GPUMEM_OK);
	GM_UNTIL(gm_figures_now(&daemon).leased == 0);
	gm_raw_close(&opener);
	gm_raw_close(&maker);
	gm_daemon_stop(&daemon);
}
END_TEST

START_TEST(a_limit_set_at_run_time_is_still_set)
{
	struct gm_scene scene;
	gm_scene_start(&scene, NULL);
	GM_REQUIRE_EQ(gm_scene_set_limit(&scene, gm_scene_uid(), 1, 512 << 20, 0, 0), GPUMEM_OK);
	gm_raw_close(&scene.ctl);
	restart(&scene.daemon, STOP);
	gm_raw_observe(&scene.ctl, &scene.daemon);
	const Gm__Wire__Limit *limit = gm_scene_limit(&scene, gm_scene_uid());
	GM_REQUIRE(limit && limit->max == 512 << 20);
	GM_REQUIRE_EQ(gm_scene_reset_limit(&scene, gm_scene_uid()), GPUMEM_OK);
	gm_scene_stop(&scene);
}
END_TEST

START_TEST(a_limit_set_at_run_time_that_contradicts_the_configuration_is_reported_and_kept)
{
	struct gm_scene scene;
	const Gm__Wire__Limit *limit;
	char config[512], reset[64], line[160];

	gm_scene_start(&scene, NULL);
	GM_REQUIRE_EQ(gm_scene_set_limit(&scene, gm_scene_uid(), 1, 50 << 20, 0, 0), GPUMEM_OK);
	snprintf(config, sizeof(config), "%s[device 0 limit %s]\nguarantee = 100M\n",
		GM_DAEMON_CONFIG, gm_scene_uid());
	snprintf(reset, sizeof(reset), "gpumemctl limit reset %s", gm_scene_uid());

	/* A reload is refused: it names the line, and how to undo what was set. */
	gm_daemon_reload(&scene.daemon, config);
	snprintf(line, sizeof(line), "the guarantee is from %s:", scene.daemon.config);
	GM_REQUIRE(gm_scene_logged(&scene, "max 50.0M is below guarantee 100.0M"));
	GM_REQUIRE(gm_scene_logged(&scene, line));
	GM_REQUIRE(gm_scene_logged(&scene, "the max was set at run time"));
	GM_REQUIRE(gm_scene_logged(&scene, reset));
	GM_REQUIRE(gm_scene_logged(&scene, "the configuration stays as it was"));

	gm_raw_close(&scene.ctl);
	restart(&scene.daemon, STOP);
	gm_raw_observe(&scene.ctl, &scene.daemon);
	limit = gm_scene_limit(&scene, gm_scene_uid());
	GM_REQUIRE(limit && limit->max == 50 << 20 && limit->guarantee == 50 << 20);
	GM_REQUIRE(gm_scene_logged(&scene,
		"device 0: the limit that was set at run time (max 50.0M) contradicts the configuration"));
	GM_REQUIRE(!gm_scene_logged(&scene, "damaged"));
	GM_REQUIRE_EQ(gm_scene_reset_limit(&scene, gm_scene_uid()), GPUMEM_OK);
	limit = gm_scene_limit(&scene, gm_scene_uid());
	GM_REQUIRE(limit && limit->guarantee == 100 << 20 && limit->max == UINT64_MAX);
	gm_scene_stop(&scene);
}
END_TEST

/* ---- the keeper */

START_TEST(memory_that_is_gone_is_gone_from_the_keeper)
{
	struct gm_daemon daemon;
	struct gm_raw raw;
	struct gm_raw_lease lease;

	gm_daemon_start(&daemon, NULL);
	gm_raw_join(&raw, &daemon);
	GM_REQUIRE_EQ(gm_raw_lease(&raw, 0, 64 << 20, &lease), GPUMEM_OK);
	/* What is pooled is not worth a keeper. */
	GM_REQUIRE_EQ(gm_raw_give_back(&raw, &lease), GPUMEM_OK);
	GM_REQUIRE(gm_figures_now(&daemon).pooled > 0);
	pid_t keeper = keeper_of(&daemon);
	GM_REQUIRE(keeper > 0);
	gm_raw_close(&raw);
	gm_daemon_signal(&daemon, SIGTERM);
	GM_REQUIRE_EQ(gm_daemon_wait(&daemon), 0);
	GM_REQUIRE_EQ(keeper_of(&daemon), 0);
	gm_daemon_stop(&daemon);
}
END_TEST

START_TEST(pooled_memory_is_gone_after_a_kill)
{
	struct gm_daemon daemon;
	struct gm_raw raw;
	struct gm_raw_lease lease;

	gm_daemon_start(&daemon, NULL);
	gm_raw_join(&raw, &daemon);
	GM_REQUIRE_EQ(gm_raw_lease(&raw, 0, 64 << 20, &lease), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_raw_give_back(&raw, &lease), GPUMEM_OK);
	restart(&daemon, KILL);
	GM_REQUIRE_EQ(gm_figures_now(&daemon).pooled, 0);
	GM_REQUIRE(gm_daemon_said(&daemon, "took over from an earlier daemon"));
	gm_raw_close(&raw);
	gm_daemon_stop(&daemon);
}
END_TEST

/* Replaces each chunk that the keeper holds by a file that is no chunk. There is no daemon. */
static void spoil_chunks(const struct gm_daemon *daemon)
{
	char path[160];
	int keeper = -1, none = memfd_create("none", MFD_CLOEXEC);
	struct gm_keeper_message message = {.verb = GM_KEEPER_HELLO, .value = GM_KEEPER_VERSION};
	uint64_t chunks[64], n = 0;

	snprintf(path, sizeof(path), "%s/run/keeper", daemon->folder);
	GM_REQUIRE_EQ(gm_seqpacket_connect(path, 1000, &keeper), 0);
	GM_REQUIRE_EQ(gm_seqpacket_send(keeper, &message, sizeof(message), NULL, 0), 0);
	while (message.verb != GM_KEEPER_DONE) {
		struct pollfd p = {.fd = keeper, .events = POLLIN};
		struct gm_conn_packet packet;
		GM_REQUIRE_EQ(poll(&p, 1, -1), 1);
		GM_REQUIRE_EQ(gm_seqpacket_receive(keeper, &message, sizeof(message), &packet), 0);
		gm_fdlist_deinit(&packet.fds);
		if (message.verb == GM_KEEPER_ITEM && message.kind == GM_STORE_CHUNK && n < 64)
			chunks[n++] = message.id;
	}
	GM_REQUIRE(n > 0);
	while (n-- > 0) {
		message = (struct gm_keeper_message){
			.verb = GM_KEEPER_DEPOSIT, .kind = GM_STORE_CHUNK, .id = chunks[n]};
		GM_REQUIRE_EQ(gm_seqpacket_send(keeper, &message, sizeof(message), &none, 1), 0);
	}
	close(none);
	close(keeper);
}

START_TEST(memory_that_is_none_any_more_is_given_up_and_the_daemon_lives)
{
	struct gm_daemon daemon;
	struct gm_raw raw;
	struct gm_raw_lease lease;

	gm_daemon_start(&daemon, NULL);
	gm_raw_join(&raw, &daemon);
	GM_REQUIRE_EQ(gm_raw_lease(&raw, 0, 8 << 20, &lease), GPUMEM_OK);
	gm_daemon_kill(&daemon);
	spoil_chunks(&daemon);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon), -1);
	GM_REQUIRE(gm_daemon_said(&daemon, "the keeper has only a part"));
	/* The keeper has closed what is no chunk, and the daemon has heard of that. */
	GM_UNTIL(gm_figures_now(&daemon).kept <= 4);
	GM_REQUIRE_EQ(gm_figures_now(&daemon).leases, 0);
	gm_raw_lease_clear(&lease);
	gm_raw_come_back(&raw, &daemon);
	GM_REQUIRE_EQ(gm_raw_lease(&raw, 0, 8 << 20, &lease), GPUMEM_OK);
	gm_raw_lease_clear(&lease);
	gm_raw_close(&raw);
	gm_daemon_stop(&daemon);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("restart");
	TCase *tc = tcase_create("restart");
	tcase_set_timeout(tc, 120); /* daemons and keepers start and end many times */
	tcase_add_test(tc, a_killed_daemon_is_followed_by_one_that_knows_everything);
	tcase_add_test(tc, so_is_one_that_was_stopped);
	tcase_add_test(tc, a_killed_keeper_is_followed_by_one_that_has_everything);
	tcase_add_test(tc, the_daemon_and_its_keeper_may_die_in_turns);
	tcase_add_loop_test(
		tc, an_administrator_stops_the_daemon_with_or_without_what_it_handed_out, 0, 2);
	tcase_add_test(tc, memory_of_a_worker_that_died_meanwhile_is_free);
	tcase_add_test(tc, a_worker_that_died_meanwhile_does_not_trouble_others_on_a_full_device);
	tcase_add_test(tc, a_session_belongs_to_its_process_after_a_restart_too);
	tcase_add_test(tc, what_is_held_counts_against_limits_and_the_device_after_a_restart);
	tcase_add_test(tc, memory_that_is_smaller_after_a_restart_keeps_what_clients_hold);
	tcase_add_test(tc, a_shared_token_opens_its_lease_after_a_restart);
	tcase_add_test(tc, a_limit_set_at_run_time_is_still_set);
	tcase_add_test(tc,
		a_limit_set_at_run_time_that_contradicts_the_configuration_is_reported_and_kept);
	tcase_add_test(tc, memory_that_is_gone_is_gone_from_the_keeper);
	tcase_add_test(tc, pooled_memory_is_gone_after_a_kill);
	tcase_add_test(tc, memory_that_is_none_any_more_is_given_up_and_the_daemon_lives);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
