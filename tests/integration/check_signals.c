/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * What the daemon does on signals, and that a slow backend holds up nobody but the one who waits
 * for it.
 */

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/gate.h"
#include "tests/integration/raw.h"
#include "tests/tap.h"

START_TEST(sigterm_says_goodbye_to_clients_and_ends_with_status_0)
{
	struct gm_daemon daemon;
	struct gm_raw raws[3];
	struct gm_raw_lease lease;
	gm_daemon_start(&daemon, NULL);
	for (int i = 0; i < 3; i++)
		gm_raw_join(&raws[i], &daemon);
	GM_REQUIRE_EQ(gm_raw_lease(&raws[0], 0, 3 * GM_CHUNK_MIN, &lease), GPUMEM_OK);
	gm_daemon_signal(&daemon, SIGTERM);
	for (int i = 0; i < 3; i++) {
		do
			GM_REQUIRE(gm_raw_receive_event(&raws[i]));
		while (raws[i].event.kind != GM_PAGE_EVENT_GOODBYE);
		GM_REQUIRE(strlen(raws[i].event.reason) > 0);
	}
	GM_REQUIRE_EQ(gm_daemon_wait(&daemon), 0);
	/* Its memory is still the client's. */
	gm_alloc_raw_chunk_fill(&lease.chunks[0], 1);
	GM_REQUIRE(gm_alloc_raw_chunk_is(&lease.chunks[0], 1));
	gm_raw_lease_clear(&lease);
	for (int i = 0; i < 3; i++)
		gm_raw_close(&raws[i]);
	gm_daemon_stop(&daemon);
}
END_TEST

START_TEST(sigterm_ends_a_daemon_whose_client_does_not_read)
{
	struct gm_daemon daemon;
	struct gm_raw raw;
	gm_daemon_start(&daemon, NULL);
	gm_raw_join(&raw, &daemon);
	Gm__Wire__GetConfig get = GM__WIRE__GET_CONFIG__INIT;
	for (int i = 0; i < 64; i++)
		gm_raw_send(&raw, GM_RAW_PACKET(GET_CONFIG, get_config, &get));
	gm_daemon_signal(&daemon, SIGTERM);
	GM_REQUIRE_EQ(gm_daemon_wait(&daemon), 0);
	gm_raw_close(&raw);
	gm_daemon_stop(&daemon);
}
END_TEST

START_TEST(sigint_ends_it_just_as_well)
{
	struct gm_daemon daemon;
	gm_daemon_start(&daemon, NULL);
	gm_daemon_signal(&daemon, SIGINT);
	GM_REQUIRE_EQ(gm_daemon_wait(&daemon), 0);
	gm_daemon_stop(&daemon);
}
END_TEST

/* The kernel sends it when somebody opens memory just when the daemon asks who has it. */
START_TEST(sigio_is_of_no_account)
{
	struct gm_daemon daemon;
	struct gm_raw raw;
	gm_daemon_start(&daemon, NULL);
	gm_daemon_signal(&daemon, SIGIO);
	gm_raw_join(&raw, &daemon);
	gm_raw_close(&raw);
	gm_daemon_signal(&daemon, SIGTERM);
	GM_REQUIRE_EQ(gm_daemon_wait(&daemon), 0);
	gm_daemon_stop(&daemon);
}
END_TEST

static void config_value(const struct gm_daemon *daemon, const char *key, char value[64])
{
	struct gm_raw raw;
	gm_raw_observe(&raw, daemon);
	Gm__Wire__GetConfig get = GM__WIRE__GET_CONFIG__INIT;
	GM_REQUIRE_EQ(gm_raw_call(&raw, GM_RAW_PACKET(GET_CONFIG, get_config, &get)), GPUMEM_OK);
	value[0] = '\0';
	for (;;) {
		const Gm__Wire__ConfigReply *reply = raw.packet->config;
		for (size_t i = 0; i < reply->n_entries; i++) {
			if (strcmp(reply->entries[i]->key, key) == 0)
				snprintf(value, 64, "%s", reply->entries[i]->value);
		}
		if (!raw.packet->more)
			break;
		GM_REQUIRE(gm_raw_receive(&raw));
	}
	gm_raw_close(&raw);
	GM_REQUIRE(value[0] != '\0');
}

START_TEST(sighup_takes_a_good_configuration_and_keeps_the_old_one_for_a_bad)
{
	struct gm_daemon daemon;
	struct gm_raw raw;
	struct gm_raw_lease lease;
	char before[64], value[64];
	gm_daemon_start(&daemon, NULL);
	gm_raw_join(&raw, &daemon);
	GM_REQUIRE_EQ(gm_raw_lease(&raw, 0, 512 << 20, &lease), GPUMEM_OK);
	config_value(&daemon, "decay", before);

	gm_daemon_reload(&daemon,
		"[gpumemd]\nfraction = 0.25\nmin_free = 0\nreserve = 0\ndecay = 33s\n"
		"[device 0]\nsize = 1G\n");
	config_value(&daemon, "decay", value);
	GM_REQUIRE(strcmp(value, before) != 0);
	struct gm_figures f = gm_figures_now(&daemon);
	GM_REQUIRE_EQ(f.capacity, 256 << 20);
	/* What is leased past it stays; no more is granted. */
	GM_REQUIRE_EQ(f.leased, 512 << 20);
	GM_REQUIRE_EQ(f.available, 0);
	struct gm_raw_lease more;
	GM_REQUIRE_EQ(gm_raw_lease(&raw, 0, GM_CHUNK_MIN, &more), GPUMEM_E_NO_MEMORY);

	gm_daemon_reload(&daemon, "[gpumemd]\nfractoin = 0.9\n");
	GM_REQUIRE_EQ(gm_figures_now(&daemon).capacity, 256 << 20);
	GM_REQUIRE(gm_daemon_said(&daemon, "fractoin") > 0);

	gm_daemon_reload(&daemon, GM_DAEMON_CONFIG);
	GM_REQUIRE_EQ(gm_raw_lease(&raw, 0, GM_CHUNK_MIN, &more), GPUMEM_OK);
	gm_raw_lease_clear(&more);
	gm_raw_lease_clear(&lease);
	gm_raw_close(&raw);
	gm_daemon_stop(&daemon);
}
END_TEST

START_TEST(a_size_changed_by_a_reload_stays_and_is_said)
{
	struct gm_daemon daemon;
	gm_daemon_start(&daemon, NULL);
	gm_daemon_reload(&daemon, GM_DAEMON_CONFIG_WITH("", "2G"));
	GM_REQUIRE_EQ(gm_figures_now(&daemon).total, 1 << 30);
	GM_REQUIRE(gm_daemon_said(&daemon, "size") > 0);
	gm_daemon_stop(&daemon);
}
END_TEST

static void work_on(int channel, void *argument)
{
	struct gm_raw raw;
	struct gm_raw_lease lease;
	gm_raw_join(&raw, argument);
	GM_REQUIRE_EQ(gm_raw_lease(&raw, 0, GM_CHUNK_MIN, &lease), GPUMEM_OK);
	uint8_t *at = gm_raw_map(&lease.chunks[0], true);
	GM_REQUIRE(at != MAP_FAILED);
	memset(at, 1, GM_CHUNK_MIN);
	gm_text_say_word(channel, 'r');
	GM_REQUIRE(!gm_raw_receive(&raw));
	/* The daemon is gone; the memory is not. */
	for (size_t i = 0; i < GM_CHUNK_MIN; i++)
		GM_REQUIRE(at[i] == 1);
	memset(at, 2, GM_CHUNK_MIN);
	gm_text_say_word(channel, 'd');
	gm_hear_word(channel, 'e');
	for (size_t i = 0; i < GM_CHUNK_MIN; i++)
		GM_REQUIRE(at[i] == 2);
}

START_TEST(a_killed_daemon_leaves_its_clients_their_memory)
{
	struct gm_daemon daemon;
	struct gm_worker workers[3];
	gm_daemon_start(&daemon, NULL);
	for (int i = 0; i < 3; i++) {
		gm_worker_start(&workers[i], work_on, &daemon);
		gm_hear_word(workers[i].channel, 'r');
	}
	gm_daemon_kill(&daemon);
	for (int i = 0; i < 3; i++)
		gm_hear_word(workers[i].channel, 'd');
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon), -1);
	for (int i = 0; i < 3; i++) {
		gm_text_say_word(workers[i].channel, 'e');
		gm_worker_join(&workers[i]);
	}
	gm_daemon_stop(&daemon);
}
END_TEST

/* ---- a slow backend */

START_TEST(a_pool_hit_is_answered_while_the_backend_is_busy_with_a_miss)
{
	struct gm_gate gate;
	struct gm_daemon daemon;
	struct gm_raw hit, miss;
	struct gm_raw_lease lease;
	gm_gate_make(&gate);
	gm_daemon_start(&daemon, &(struct gm_daemon_options){.env = gate.env});
	gm_raw_join(&hit, &daemon);
	gm_raw_join(&miss, &daemon);
	/* One chunk into the pool. */
	gm_gate_let(&gate, 1);
	GM_REQUIRE_EQ(gm_raw_lease(&hit, 0, GM_CHUNK_MIN, &lease), GPUMEM_OK);
	uint64_t id = lease.id;
	gm_raw_lease_clear(&lease);
	GM_REQUIRE_EQ(gm_raw_return(&hit, id, NULL, 0), GPUMEM_OK);
	/* The backend is stuck in a creation, of so much that the pooled chunk is too small for it.
	 */
	Gm__Wire__Lease ask = GM__WIRE__LEASE__INIT;
	ask.bytes = 128 * GM_CHUNK_MIN;
	uint64_t asked = gm_raw_send(&miss, GM_RAW_PACKET(LEASE, lease, &ask));
	GM_UNTIL(gm_figures_now(&daemon).admitted == 128 * GM_CHUNK_MIN);
	/* Everybody else is served: hits, returns, questions, a client that comes and one that
	 * goes. */
	for (int i = 0; i < 20; i++) {
		struct gm_raw other;
		GM_REQUIRE_EQ(gm_raw_lease(&hit, 0, GM_CHUNK_MIN, &lease), GPUMEM_OK);
		id = lease.id;
		gm_raw_lease_clear(&lease);
		GM_REQUIRE_EQ(gm_raw_return(&hit, id, NULL, 0), GPUMEM_OK);
		gm_raw_join(&other, &daemon);
		GM_REQUIRE_EQ(gm_raw_goodbye(&other), GPUMEM_OK);
		gm_raw_close(&other);
	}
	GM_REQUIRE(!gm_raw_readable(miss.socket));
	gm_gate_let(&gate, 1);
	GM_REQUIRE(gm_raw_receive(&miss));
	GM_REQUIRE_EQ(miss.packet->id, asked);
	GM_REQUIRE_EQ(miss.packet->body_case, GM__WIRE__PACKET__BODY_LEASE_REPLY);
	gm_raw_close(&hit);
	gm_raw_close(&miss);
	gm_daemon_stop(&daemon);
	gm_gate_end(&gate);
}
END_TEST

START_TEST(a_client_that_goes_while_its_chunks_are_made_leaves_nothing_charged)
{
	struct gm_gate gate;
	struct gm_daemon daemon;
	struct gm_raw raw;
	gm_gate_make(&gate);
	gm_daemon_start(&daemon, &(struct gm_daemon_options){.env = gate.env});
	Gm__Wire__Lease ask = GM__WIRE__LEASE__INIT;
	ask.bytes = 7 * GM_CHUNK_MIN; /* three chunks */
	gm_raw_join(&raw, &daemon);
	gm_raw_send(&raw, GM_RAW_PACKET(LEASE, lease, &ask));
	gm_raw_send(&raw, GM_RAW_PACKET(LEASE, lease, &ask));
	GM_UNTIL(gm_figures_now(&daemon).admitted == 14 * GM_CHUNK_MIN);
	gm_raw_close(&raw);
	/* Its end is seen first; the chunks come when nobody waits for them any more. */
	GM_UNTIL(gm_figures_now(&daemon).clients == 0);
	gm_gate_let(&gate, 6);
	GM_UNTIL(gm_figures_now(&daemon).admitted == 0);
	struct gm_figures f = gm_figures_now(&daemon);
	GM_REQUIRE_EQ(f.leased + f.quarantined, 0);
	GM_REQUIRE_EQ(f.available, f.ceiling);
	gm_daemon_stop(&daemon);
	gm_gate_end(&gate);
}
END_TEST

/* A chunk that nobody wants any more must not take a place in front of the device. */
START_TEST(who_asks_and_cancels_keeps_nobody_from_memory)
{
	struct gm_gate gate;
	struct gm_daemon daemon;
	struct gm_raw fickle, other;
	gm_gate_make(&gate);
	gm_daemon_start(&daemon, &(struct gm_daemon_options){.env = gate.env});
	gm_raw_join(&fickle, &daemon);
	gm_raw_join(&other, &daemon);
	Gm__Wire__Lease ask = GM__WIRE__LEASE__INIT;
	Gm__Wire__Cancel cancel = GM__WIRE__CANCEL__INIT;
	ask.bytes = 7 * GM_CHUNK_MIN; /* three chunks */
	for (int i = 0; i < 3000; i++) {
		cancel.request = gm_raw_send(&fickle, GM_RAW_PACKET(LEASE, lease, &ask));
		gm_raw_send(&fickle, GM_RAW_PACKET(CANCEL, cancel, &cancel));
		GM_REQUIRE(gm_raw_receive(&fickle));
		GM_REQUIRE_EQ(fickle.packet->id, cancel.request);
		GM_REQUIRE_EQ(fickle.packet->body_case, GM__WIRE__PACKET__BODY_FAILURE);
		GM_REQUIRE_EQ(fickle.packet->failure->status, GPUMEM_E_CANCELLED);
		GM_REQUIRE(gm_raw_receive(&fickle));
		GM_REQUIRE_EQ(fickle.packet->body_case, GM__WIRE__PACKET__BODY_DONE);
	}
	ask.bytes = GM_CHUNK_MIN;
	uint64_t asked = gm_raw_send(&other, GM_RAW_PACKET(LEASE, lease, &ask));
	/* One may have been under way for nobody; the next is the other's. */
	gm_gate_let(&gate, 2);
	GM_REQUIRE(gm_raw_receive(&other));
	GM_REQUIRE_EQ(other.packet->id, asked);
	GM_REQUIRE_EQ(other.packet->body_case, GM__WIRE__PACKET__BODY_LEASE_REPLY);
	gm_raw_close(&fickle);
	gm_raw_close(&other);
	gm_daemon_stop(&daemon);
	gm_gate_end(&gate);
}
END_TEST

START_TEST(a_lease_returned_while_it_grows_is_gone_with_what_was_being_made_for_it)
{
	struct gm_gate gate;
	struct gm_daemon daemon;
	struct gm_raw raw;
	struct gm_raw_lease lease;
	gm_gate_make(&gate);
	gm_daemon_start(&daemon, &(struct gm_daemon_options){.env = gate.env});
	gm_raw_join(&raw, &daemon);
	gm_gate_let(&gate, 1);
	GM_REQUIRE_EQ(gm_raw_lease(&raw, 0, GM_CHUNK_MIN, &lease), GPUMEM_OK);
	Gm__Wire__Grow grow = GM__WIRE__GROW__INIT;
	grow.lease = lease.id;
	grow.bytes = 3 * GM_CHUNK_MIN; /* two chunks */
	uint64_t grown = gm_raw_send(&raw, GM_RAW_PACKET(GROW, grow, &grow));
	GM_UNTIL(gm_figures_now(&daemon).admitted == 3 * GM_CHUNK_MIN);
	Gm__Wire__Return give = GM__WIRE__RETURN__INIT;
	give.lease = lease.id;
	gm_raw_lease_clear(&lease);
	uint64_t returned = gm_raw_send(&raw, GM_RAW_PACKET(RETURN_CHUNKS, return_chunks, &give));
	/* Both are answered before the backend is: the growth has ended with the lease. */
	for (int i = 0; i < 2; i++) {
		GM_REQUIRE(gm_raw_receive(&raw));
		if (raw.packet->id == grown) {
			GM_REQUIRE_EQ(raw.packet->body_case, GM__WIRE__PACKET__BODY_FAILURE);
			GM_REQUIRE_EQ(raw.packet->failure->status, GPUMEM_E_CANCELLED);
		} else {
			GM_REQUIRE_EQ(raw.packet->id, returned);
			GM_REQUIRE_EQ(raw.packet->body_case, GM__WIRE__PACKET__BODY_DONE);
		}
	}
	gm_gate_let(&gate, 2);
	GM_UNTIL(gm_figures_now(&daemon).admitted == 0);
	struct gm_figures f = gm_figures_now(&daemon);
	GM_REQUIRE_EQ(f.leased, 0);
	GM_REQUIRE_EQ(f.leases, 0);
	GM_REQUIRE_EQ(f.available, f.ceiling);
	gm_raw_close(&raw);
	gm_daemon_stop(&daemon);
	gm_gate_end(&gate);
}
END_TEST

START_TEST(creations_of_several_clients_take_turns)
{
	struct gm_gate gate;
	struct gm_daemon daemon;
	struct gm_raw greedy, modest;
	gm_gate_make(&gate);
	gm_daemon_start(&daemon, &(struct gm_daemon_options){.env = gate.env});
	gm_raw_join(&greedy, &daemon);
	gm_raw_join(&modest, &daemon);
	Gm__Wire__Lease ask = GM__WIRE__LEASE__INIT;
	ask.bytes = GM_CHUNK_MIN;
	for (int i = 0; i < 40; i++)
		gm_raw_send(&greedy, GM_RAW_PACKET(LEASE, lease, &ask));
	GM_UNTIL(gm_figures_now(&daemon).admitted == 40 * GM_CHUNK_MIN);
	gm_raw_send(&modest, GM_RAW_PACKET(LEASE, lease, &ask));
	GM_UNTIL(gm_figures_now(&daemon).admitted == 41 * GM_CHUNK_MIN);
	/* One that was at the backend already, one more of the greedy, one of the modest. */
	gm_gate_let(&gate, 3);
	GM_REQUIRE(gm_raw_receive(&modest));
	GM_REQUIRE_EQ(modest.packet->body_case, GM__WIRE__PACKET__BODY_LEASE_REPLY);
	gm_gate_let(&gate, 38);
	for (int i = 0; i < 40; i++)
		GM_REQUIRE(gm_raw_receive(&greedy));
	gm_raw_close(&greedy);
	gm_raw_close(&modest);
	gm_daemon_stop(&daemon);
	gm_gate_end(&gate);
}
END_TEST

START_TEST(sigterm_while_the_backend_is_busy_ends_once_it_is_through)
{
	struct gm_gate gate;
	struct gm_daemon daemon;
	struct gm_raw raw;
	gm_gate_make(&gate);
	gm_daemon_start(&daemon, &(struct gm_daemon_options){.env = gate.env});
	gm_raw_join(&raw, &daemon);
	Gm__Wire__Lease ask = GM__WIRE__LEASE__INIT;
	ask.bytes = GM_CHUNK_MIN;
	gm_raw_send(&raw, GM_RAW_PACKET(LEASE, lease, &ask));
	GM_UNTIL(gm_figures_now(&daemon).admitted == GM_CHUNK_MIN);
	gm_daemon_signal(&daemon, SIGTERM);
	do
		GM_REQUIRE(gm_raw_receive_event(&raw));
	while (raw.event.kind != GM_PAGE_EVENT_GOODBYE);
	gm_gate_let(&gate, 1);
	GM_REQUIRE_EQ(gm_daemon_wait(&daemon), 0);
	gm_raw_close(&raw);
	gm_daemon_stop(&daemon);
	gm_gate_end(&gate);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("signals");
	TCase *tc = tcase_create("signals");
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, sigterm_says_goodbye_to_clients_and_ends_with_status_0);
	tcase_add_test(tc, sigterm_ends_a_daemon_whose_client_does_not_read);
	tcase_add_test(tc, sigint_ends_it_just_as_well);
	tcase_add_test(tc, sigio_is_of_no_account);
	tcase_add_test(tc, sighup_takes_a_good_configuration_and_keeps_the_old_one_for_a_bad);
	tcase_add_test(tc, a_size_changed_by_a_reload_stays_and_is_said);
	tcase_add_test(tc, a_killed_daemon_leaves_its_clients_their_memory);
	suite_add_tcase(suite, tc);
	tc = tcase_create("slow backend");
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, a_pool_hit_is_answered_while_the_backend_is_busy_with_a_miss);
	tcase_add_test(tc, a_client_that_goes_while_its_chunks_are_made_leaves_nothing_charged);
	tcase_add_test(tc, who_asks_and_cancels_keeps_nobody_from_memory);
	tcase_add_test(tc, a_lease_returned_while_it_grows_is_gone_with_what_was_being_made_for_it);
	tcase_add_test(tc, creations_of_several_clients_take_turns);
	tcase_add_test(tc, sigterm_while_the_backend_is_busy_ends_once_it_is_through);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
