/* SPDX-License-Identifier: Apache-2.0 */
/* client/session/conn.c: callers that look elsewhere while they wait for their answer. */
#include <semaphore.h>

#include "tests/tap.h"
#include "tests/unit/session/conn_fixture.h"

/* A caller with a look, which tells the test that it was called and waits for what to return. */
struct looker {
	pthread_t thread;
	struct probe probe;
	struct gm_wait_look look;
	sem_t looks, go;
	_Atomic uint64_t next;
	int r;
	uint64_t id;
};

static uint64_t look(void *ctx)
{
	struct looker *looker = ctx;
	sem_post(&looker->looks);
	sem_wait(&looker->go);
	return looker->next;
}

static void *looker_run(void *ctx)
{
	struct looker *looker = ctx;
	Gm__Wire__Lease body = GM__WIRE__LEASE__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	body.bytes = 1;
	packet.body_case = GM__WIRE__PACKET__BODY_LEASE;
	packet.lease = &body;
	looker->probe.call.ops = &probe_ops;
	looker->probe.call.look = &looker->look;
	looker->r = gm_conn_call(conn, &packet, &looker->probe.call, gm_clock_ns() + LONG_NS);
	looker->id = packet.id;
	return NULL;
}

/* Returns what it asked for. */
static struct asked looker_start(struct looker *looker, uint64_t first_ns)
{
	memset(looker, 0, sizeof(*looker));
	looker->look = (struct gm_wait_look){.look = look, .ctx = looker, .at_ns = first_ns};
	looker->next = UINT64_MAX;
	sem_init(&looker->looks, 0, 0);
	sem_init(&looker->go, 0, 0);
	ck_assert_int_eq(pthread_create(&looker->thread, NULL, looker_run, looker), 0);
	return far_read();
}

static void looker_join(struct looker *looker)
{
	ck_assert_int_eq(pthread_join(looker->thread, NULL), 0);
	sem_destroy(&looker->looks);
	sem_destroy(&looker->go);
}

START_TEST(a_poke_lets_a_caller_look_as_often_as_it_comes)
{
	struct looker looker;
	struct asked asked = looker_start(&looker, UINT64_MAX);
	for (int i = 0; i < 3; i++) {
		gm_conn_poke(conn);
		sem_wait(&looker.looks);
		sem_post(&looker.go);
	}
	far_answer(&asked);
	looker_join(&looker);
	ck_assert_int_eq(looker.r, 0);
	ck_assert_uint_eq(looker.probe.lease, 1);
}
END_TEST

START_TEST(a_caller_looks_at_the_time_it_names)
{
	struct looker looker;
	struct asked asked = looker_start(&looker, gm_clock_ns() + GM_NS_PER_MS);
	sem_wait(&looker.looks);
	looker.next = gm_clock_ns() + GM_NS_PER_MS;
	sem_post(&looker.go);
	sem_wait(&looker.looks);
	looker.next = UINT64_MAX;
	sem_post(&looker.go);
	far_answer(&asked);
	looker_join(&looker);
	ck_assert_int_eq(looker.r, 0);
}
END_TEST

START_TEST(a_caller_that_found_something_leaves_its_call_behind)
{
	struct looker looker;
	struct asked asked = looker_start(&looker, UINT64_MAX);
	gm_conn_poke(conn);
	sem_wait(&looker.looks);
	looker.next = 0;
	sem_post(&looker.go);
	looker_join(&looker);
	ck_assert_int_eq(looker.r, -ECANCELED);
	ck_assert_uint_eq(looker.id, asked.id);
	/* What is still granted has an owner, and nobody is poked any more. */
	ck_assert(gm_conn_unread(conn));
	gm_conn_poke(conn);
	far_answer(&asked);
	gm_conn_drain(conn);
	ck_assert(looker.probe.late);
	ck_assert_uint_eq(looker.probe.lease, 1);
}
END_TEST

START_TEST(an_answer_that_comes_during_a_look_is_the_callers)
{
	struct looker looker;
	struct caller other = {0};
	struct asked asked = looker_start(&looker, UINT64_MAX);
	gm_conn_poke(conn);
	sem_wait(&looker.looks);
	/* Another one leads meanwhile, and reads both answers. */
	caller_start(&other, 2, LONG_NS);
	struct asked second = far_read();
	far_answer(&asked);
	far_answer(&second);
	caller_join(&other);
	ck_assert_int_eq(other.r, 0);
	looker.next = 0;
	sem_post(&looker.go);
	looker_join(&looker);
	ck_assert_int_eq(looker.r, 0);
	ck_assert_uint_eq(looker.probe.lease, 1);
	ck_assert(!looker.probe.late);
}
END_TEST

START_TEST(a_poke_reaches_those_who_do_not_lead)
{
	enum { N = 4 };
	struct looker lookers[N];
	struct asked asked[N], first;
	struct caller leader = {0};
	caller_start(&leader, 9, LONG_NS);
	first = far_read();
	for (int i = 0; i < N; i++)
		asked[i] = looker_start(&lookers[i], UINT64_MAX);
	gm_conn_poke(conn);
	for (int i = 0; i < N; i++)
		sem_wait(&lookers[i].looks);
	for (int i = 0; i < N; i++)
		sem_post(&lookers[i].go);
	far_answer(&first);
	for (int i = 0; i < N; i++)
		far_answer(&asked[i]);
	caller_join(&leader);
	for (int i = 0; i < N; i++) {
		looker_join(&lookers[i]);
		ck_assert_int_eq(lookers[i].r, 0);
	}
}
END_TEST

START_TEST(the_end_of_the_connection_ends_a_call_that_looks)
{
	struct looker looker;
	(void)looker_start(&looker, UINT64_MAX);
	gm_conn_poke(conn);
	sem_wait(&looker.looks);
	gm_conn_kill(conn, "over");
	sem_post(&looker.go);
	looker_join(&looker);
	ck_assert_int_eq(looker.r, -EPIPE);
	ck_assert(!looker.probe.late);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("conn_again");
	TCase *tcase = tcase_create("conn_again");
	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, a_poke_lets_a_caller_look_as_often_as_it_comes);
	tcase_add_test(tcase, a_caller_looks_at_the_time_it_names);
	tcase_add_test(tcase, a_caller_that_found_something_leaves_its_call_behind);
	tcase_add_test(tcase, an_answer_that_comes_during_a_look_is_the_callers);
	tcase_add_test(tcase, a_poke_reaches_those_who_do_not_lead);
	tcase_add_test(tcase, the_end_of_the_connection_ends_a_call_that_looks);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
