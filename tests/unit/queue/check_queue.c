/* SPDX-License-Identifier: Apache-2.0 */
/* daemon/queue/queue.c, through the core: who waits, in which order, how long, and for whom in vain.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/device/limit.h"
#include "daemon/queue/queue.h"
#include "tests/bound.h"
#include "tests/tap.h"
#include "tests/unit/core/fake_core.h"

#define SECOND UINT64_C(1000000000)
#define MS     UINT64_C(1000000)

static struct fake_core fake;
static uint32_t d;
static char detail[GM_DETAIL_BYTES];
static struct gm_session *a, *b, *c;

/* 16 GiB, no levels, nobody can be asked. */
static void setup(void)
{
	struct gm_core_device_info info = fake_info(16 * GiB);
	fake_no_levels(&info.policy);
	fake_core_init(&fake);
	d = fake_core_add(&fake, &info);
	a = fake_session(&fake, 1, 1);
	b = fake_session(&fake, 2, 2);
	c = fake_session(&fake, 3, 3);
}

static void teardown(void)
{
	fake_core_deinit(&fake);
}

static void prefer(uid_t uid, int32_t priority)
{
	struct gm_owner o;
	struct gm_limit_values v = {.set = GM_LIMIT_PRIORITY, .priority = priority};
	gm_owner_by_id(GM_OWNER_UID, uid, &o);
	ck_assert_int_eq(gm_core_set_limit(fake.core, &o, GM_ALL_DEVICES, &v, detail), GPUMEM_OK);
}

static void limit(uid_t uid, uint64_t max, uint64_t guarantee)
{
	struct gm_owner o;
	struct gm_limit_values v = {
		.set = GM_LIMIT_MAX | GM_LIMIT_GUARANTEE, .max = max, .guarantee = guarantee};
	gm_owner_by_id(GM_OWNER_UID, uid, &o);
	ck_assert_int_eq(gm_core_set_limit(fake.core, &o, GM_ALL_DEVICES, &v, detail), GPUMEM_OK);
}

struct listed {
	const struct gm_request *requests[64];
	struct gm_queue_info info[64];
	size_t n;
};

static bool list(void *ctx, const struct gm_queue_info *info)
{
	struct listed *listed = ctx;
	ck_assert_uint_lt(listed->n, 64);
	listed->info[listed->n] = *info;
	listed->requests[listed->n++] = info->request;
	return true;
}

static struct listed queue(void)
{
	struct listed listed = {0};
	gm_core_queue_each(fake.core, d, &GM_QUEUE_FIRST, list, &listed);
	ck_assert_uint_eq(listed.n, fake_queue_length(&fake, d));
	return listed;
}

START_TEST(a_request_that_waits_is_granted_in_the_call_that_brings_the_memory_back)
{
	struct gm_lease *lease = fake_lease(&fake, a, d, 16 * GiB);
	static struct fake_request q;
	fake_wait(&fake, &q, b, d, 2 * GiB, 10 * SECOND);
	ck_assert_uint_eq(q.ended, 0);
	fake.now += 3 * SECOND;
	struct listed l = queue();
	ck_assert_uint_eq(l.n, 1);
	ck_assert_ptr_eq(l.info[0].session, b);
	ck_assert_uint_eq(l.info[0].bytes, 2 * GiB);
	ck_assert_uint_eq(l.info[0].waited_ns, 3 * SECOND);
	ck_assert_uint_eq(l.info[0].left_ns, 7 * SECOND);
	ck_assert_int_eq(l.info[0].block, GM_BLOCK_DEVICE);
	ck_assert_uint_eq(gm_session_held(b, d), 0);
	gm_lease_return(a, lease);
	/* Its chunks are being made: it waits no more. */
	ck_assert_uint_eq(queue().n, 0);
	ck_assert_uint_eq(gm_session_held(b, d), 2 * GiB);
	fake_core_run(&fake);
	ck_assert_uint_eq(q.ended, 1);
	ck_assert_int_eq(q.status, GPUMEM_OK);
	fake_core_check(&fake, d);
}
END_TEST

/* No time is asserted: looks are counted. Were each of them a walk over all clients, this would take
 * minutes, and end by the time that a test has. */
START_TEST(a_queue_full_of_one_users_requests_costs_the_others_little)
{
	enum { OTHERS = 4000, CALLS = 1000, EACH = GM_BOUND_WAITING_PER_CLIENT };
	bool device = _i;
	static struct fake_request waiting[GM_BOUND_WAITING_PER_UID];
	struct gm_session *who = NULL;
	/* They wait for their own limit, or for room on the device. */
	struct gm_lease *room = fake_lease(&fake, b, d, 2 * MiB);
	if (!device)
		limit(1, 64 * MiB, 0);
	for (int i = 0; i < OTHERS; i++)
		fake_session(&fake, 2, 2);
	/* The one who could bring it back is the last whom one would look at. */
	struct gm_lease *held = fake_lease(&fake, fake_session(&fake, 1, 1), d, 64 * MiB);
	if (device)
		fake_lease(&fake, c, d, 16 * GiB - 66 * MiB);
	gm_lease_return(b, room);
	for (int i = 0; i < GM_BOUND_WAITING_PER_UID; i++) {
		if (i % EACH == 0)
			who = fake_session(&fake, 1, 1);
		fake_wait(&fake, &waiting[i], who, d, device ? 4 * MiB : 2 * MiB, GM_WAIT_FOREVER);
	}
	ck_assert_uint_eq(fake_queue_length(&fake, d), GM_BOUND_WAITING_PER_UID);
	uint64_t steps = fake_queue_steps(&fake, d);
	for (int i = 0; i < CALLS; i++)
		gm_lease_return(b, fake_lease(&fake, b, d, 2 * MiB));
	/* A lease and a return change something a few times, and each time a slice is looked at. */
	ck_assert_uint_le(fake_queue_steps(&fake, d) - steps, CALLS * 4 * (GM_QUEUE_SLICE + 4));
	ck_assert_uint_eq(fake_queue_length(&fake, d), GM_BOUND_WAITING_PER_UID);
	ck_assert_ptr_nonnull(held);
}
END_TEST

START_TEST(what_is_pooled_for_it_is_granted_before_the_return_returns)
{
	struct gm_session *same = fake_session(&fake, 1, 1);
	struct gm_lease *lease = fake_lease(&fake, a, d, 16 * GiB);
	static struct fake_request q;
	fake_wait(&fake, &q, same, d, 16 * GiB, SECOND);
	ck_assert_uint_eq(q.ended, 0);
	gm_lease_return(a, lease);
	ck_assert_uint_eq(q.ended, 1);
	ck_assert_int_eq(q.status, GPUMEM_OK);
}
END_TEST

START_TEST(every_way_memory_comes_back_grants)
{
	static struct fake_request q;
	uint8_t token[GM_TOKEN_BYTES];
	for (int way = 0; way < 7; way++) {
		struct gm_session *holder = fake_session(&fake, 9, 9);
		struct gm_session_info info = {.domain = 5, .uid = 5, .pooling = true};
		struct gm_session *waiter;
		ck_assert_int_eq(gm_session_new(fake.core, &info, token, &waiter), 0);
		struct gm_lease *lease = fake_lease(&fake, holder, d, 15 * GiB);
		uint64_t id = gm_lease_chunk(lease, 0)->id;
		struct gm_policy policy = fake_figures(&fake, d).policy;
		struct gm_session *twin = fake_session(&fake, 5, 5);
		if (way == 5) {
			limit(5, GiB, 0);
			fake_lease(&fake, twin, d, GiB);
		}
		if (way == 6)
			gm_core_sample(fake.core, d, 0);
		fake_wait(&fake, &q, waiter, d, way >= 5 ? GiB : 2 * GiB, SECOND);
		ck_assert_msg(q.ended == 0, "way %d: %s", way, q.detail);
		switch (way) {
		case 0:
			gm_lease_return_chunks(holder, lease, &id, 1);
			break;
		case 1:
			gm_lease_return(holder, lease);
			break;
		case 2:
			gm_session_end_died(holder);
			break;
		case 3:
			gm_session_end_unmapped(holder);
			break;
		case 4:
			policy.fraction = 0.5;
			gm_core_set_policy(fake.core, d, &policy);
			ck_assert_uint_eq(q.ended, 0);
			policy.fraction = 1;
			gm_core_set_policy(fake.core, d, &policy);
			ck_assert_uint_eq(q.ended, 0);
			gm_lease_return(holder, lease);
			break;
		case 5:
			gm_lease_return(holder, lease);
			ck_assert_uint_eq(q.ended, 0);
			limit(5, 2 * GiB, 0);
			break;
		case 6:
			gm_core_sample(fake.core, d, GiB);
			break;
		}
		fake_core_run(&fake);
		ck_assert_msg(q.ended == 1 && q.status == GPUMEM_OK, "way %d: %s", way, q.detail);
		if (way != 2 && way != 3)
			gm_session_end_died(holder);
		gm_session_end_died(waiter);
		gm_session_end_died(twin);
		fake_core_run(&fake);
		gm_core_sample(fake.core, d, 16 * GiB);
	}
}
END_TEST

START_TEST(the_order_is_priority_then_arrival)
{
	struct gm_lease *lease = fake_lease(&fake, a, d, 16 * GiB);
	static struct fake_request q[4];
	prefer(3, 10);
	fake_wait(&fake, &q[0], b, d, 4 * GiB, SECOND);
	fake_wait(&fake, &q[1], c, d, 4 * GiB, SECOND);
	fake_wait(&fake, &q[2], b, d, 4 * GiB, SECOND);
	fake_wait(&fake, &q[3], c, d, 4 * GiB, SECOND);
	static const int order[] = {1, 3, 0, 2};
	struct listed l = queue();
	for (int i = 0; i < 4; i++)
		ck_assert_ptr_eq(l.requests[i], &q[order[i]].r);
	/* A new priority takes effect at once. */
	prefer(2, 20);
	static const int turned[] = {0, 2, 1, 3};
	l = queue();
	for (int i = 0; i < 4; i++)
		ck_assert_ptr_eq(l.requests[i], &q[turned[i]].r);
	uint64_t ids[4];
	size_t n = 0;
	for (const struct gm_chunk *k = gm_lease_chunk(lease, 0); n < 4; k = k->next)
		ids[n++] = k->id;
	ck_assert_int_eq(gm_lease_return_chunks(a, lease, ids, 4), GPUMEM_OK);
	fake_core_run(&fake);
	ck_assert(q[0].ended && !q[2].ended && !q[1].ended && !q[3].ended);
}
END_TEST

/* A request that says so. */
static void wait_again(
	struct fake_request *q, struct gm_session *session, uint64_t bytes, uint64_t waited_ns)
{
	*q = (struct fake_request){.r = {.session = session,
					   .device = d,
					   .bytes = bytes,
					   .wait_ns = 100 * SECOND,
					   .waited_ns = waited_ns,
					   .done = fake_request_done}};
	gm_core_request(fake.core, &q->r);
}

START_TEST(what_waited_for_an_earlier_daemon_goes_before_what_its_user_asked_for_later)
{
	struct gm_lease *lease = fake_lease(&fake, c, d, 16 * GiB);
	static struct fake_request of_a[4], of_b[2];

	fake.now += 100 * SECOND;
	wait_again(&of_a[0], a, 9 * GiB, 5 * SECOND);
	wait_again(&of_b[0], b, 10 * GiB, 0);
	wait_again(&of_a[1], a, 11 * GiB, 7 * SECOND);
	wait_again(&of_b[1], b, 12 * GiB, 1000 * SECOND);
	wait_again(&of_a[2], a, 13 * GiB, 0);
	wait_again(&of_a[3], a, 14 * GiB, 6 * SECOND);
	/* The first place stays a's, and the second b's, however long b says that it has waited. */
	const struct fake_request *order[] = {
		&of_a[1], &of_b[1], &of_a[3], &of_b[0], &of_a[0], &of_a[2]};
	struct listed now = queue();
	ck_assert_uint_eq(now.n, 6);
	for (size_t i = 0; i < now.n; i++)
		ck_assert_msg(now.requests[i] == &order[i]->r, "%zu: %llu GiB", i,
			(unsigned long long)(now.info[i].bytes / GiB));
	ck_assert_uint_eq(now.info[0].waited_ns, 7 * SECOND);
	ck_assert_uint_eq(now.info[0].left_ns, 100 * SECOND);

	gm_lease_return(c, lease);
	fake_core_run(&fake);
	ck_assert_uint_eq(of_a[1].ended, 1);
	ck_assert_int_eq(of_a[1].status, GPUMEM_OK);
	ck_assert_uint_eq(of_a[0].ended + of_a[2].ended + of_a[3].ended + of_b[0].ended, 0);
}
END_TEST

START_TEST(its_time_is_kept)
{
	fake_lease(&fake, a, d, 16 * GiB);
	static struct fake_request q, r;
	fake_wait(&fake, &q, b, d, 2 * GiB, 250 * MS);
	fake_wait(&fake, &r, b, d, 2 * GiB, 2 * SECOND);
	fake_pass(&fake, 250 * MS - 1);
	ck_assert_uint_eq(q.ended, 0);
	fake_pass(&fake, 1);
	ck_assert_uint_eq(q.ended, 1);
	ck_assert_int_eq(q.status, GPUMEM_E_TIMEOUT);
	ck_assert_ptr_nonnull(strstr(q.detail, "waited 250ms: device 0 has 0B available of 16.0G"));
	ck_assert_uint_eq(r.ended, 0);
	fake_pass(&fake, 2 * SECOND);
	ck_assert_int_eq(r.status, GPUMEM_E_TIMEOUT);
	ck_assert_uint_eq(queue().n, 0);
	ck_assert_uint_eq(gm_core_tick(fake.core), UINT64_MAX);
}
END_TEST

START_TEST(a_time_without_end_does_not_overflow)
{
	struct gm_lease *lease = fake_lease(&fake, a, d, 16 * GiB);
	static struct fake_request q;
	fake_wait(&fake, &q, b, d, 2 * GiB, GM_WAIT_FOREVER);
	ck_assert_uint_eq(queue().info[0].left_ns, UINT64_MAX);
	fake_pass(&fake, 3600 * SECOND);
	ck_assert_uint_eq(q.ended, 0);
	gm_lease_return(a, lease);
	ck_assert_uint_eq(queue().n, 0);
}
END_TEST

START_TEST(oom_says_what_becomes_of_a_request_that_does_not_say)
{
	struct gm_policy policy = fake_figures(&fake, d).policy;
	fake_lease(&fake, a, d, 16 * GiB);
	static struct fake_request q;
	fake_wait(&fake, &q, b, d, 2 * GiB, 0);
	ck_assert_int_eq(q.status, GPUMEM_E_NO_MEMORY);
	policy.oom = GM_POLICY_OOM_WAIT;
	policy.wait_ns = 5 * SECOND;
	gm_core_set_policy(fake.core, d, &policy);
	fake_wait(&fake, &q, b, d, 2 * GiB, 0);
	ck_assert_uint_eq(q.ended, 0);
	ck_assert_uint_eq(queue().info[0].left_ns, 5 * SECOND);
	fake_pass(&fake, 5 * SECOND);
	ck_assert_int_eq(q.status, GPUMEM_E_TIMEOUT);
	fake_wait(&fake, &q, b, d, 2 * GiB, GM_WAIT_NEVER);
	ck_assert_int_eq(q.status, GPUMEM_E_NO_MEMORY);
	policy.oom = GM_POLICY_OOM_TERMINATE;
	policy.wait_ns = 0;
	gm_core_set_policy(fake.core, d, &policy);
	fake_wait(&fake, &q, b, d, 2 * GiB, 0);
	ck_assert_uint_eq(queue().info[0].left_ns, GM_WAIT_NS);
}
END_TEST

START_TEST(more_than_could_ever_be_granted_is_refused_at_once)
{
	static struct fake_request q;
	fake_wait(&fake, &q, b, d, 16 * GiB + 1, SECOND);
	ck_assert_int_eq(q.status, GPUMEM_E_NO_MEMORY);
	ck_assert_ptr_nonnull(strstr(
		q.detail, "of 16.0G, asked for 16.0G (2.0M too much), which it can never give"));
	/* There is no other device. */
	ck_assert_str_eq(strrchr(q.detail, ';'), "; ask for less");
	limit(2, 4 * GiB, 0);
	fake_wait(&fake, &q, b, d, 4 * GiB + 1, SECOND);
	ck_assert_int_eq(q.status, GPUMEM_E_LIMIT);
	ck_assert_ptr_nonnull(strstr(q.detail, "which it can never have"));
	limit(3, UINT64_MAX, 10 * GiB);
	fake_wait(&fake, &q, a, d, 6 * GiB + 1, SECOND);
	ck_assert_int_eq(q.status, GPUMEM_E_NO_MEMORY);
	ck_assert_ptr_nonnull(strstr(q.detail,
		"keeps 10.0G of 16.0G for owners with a guarantee, asked for 6.0G (2.0M too much), "
		"which it can never"));
	/* What is kept for itself is not in its way. */
	limit(1, UINT64_MAX, 4 * GiB);
	fake_wait(&fake, &q, a, d, 6 * GiB + 1, SECOND);
	ck_assert_int_eq(q.status, GPUMEM_E_NO_MEMORY);
	ck_assert_ptr_nonnull(strstr(q.detail,
		"keeps 10.0G of 16.0G for owners with a guarantee, asked for 6.0G (2.0M too much), "
		"which it can never"));
	limit(1, UINT64_MAX, 0);
	fake_wait(&fake, &q, c, d, 16 * GiB, SECOND);
	fake_core_run(&fake);
	ck_assert_int_eq(q.status, GPUMEM_OK);
	/* And as soon as it can never be granted any more. */
	static struct fake_request w;
	fake_wait(&fake, &w, a, d, 5 * GiB, SECOND);
	ck_assert_uint_eq(w.ended, 0);
	limit(1, 4 * GiB, 0);
	ck_assert_int_eq(w.status, GPUMEM_E_LIMIT);
}
END_TEST

START_TEST(it_is_dropped_when_its_client_goes_and_when_it_is_cancelled)
{
	struct gm_lease *lease = fake_lease(&fake, a, d, 14 * GiB);
	struct gm_lease *grown = fake_lease(&fake, c, d, 2 * GiB);
	static struct fake_request q[5];
	for (int i = 0; i < 3; i++)
		fake_wait(&fake, &q[i], i < 2 ? b : c, d, 2 * GiB, SECOND);
	gm_core_cancel(fake.core, &q[0].r);
	ck_assert_int_eq(q[0].status, GPUMEM_E_CANCELLED);
	ck_assert_uint_eq(queue().n, 2);
	gm_session_end_died(b);
	ck_assert_int_eq(q[1].status, GPUMEM_E_CANCELLED);
	/* A lease that is to grow and is returned. */
	memset(&q[3], 0, sizeof(q[3]));
	q[3].r = q[2].r;
	gm_core_cancel(fake.core, &q[2].r);
	fake_wait(&fake, &q[4], c, d, 2 * GiB, SECOND);
	q[3].r.lease = grown;
	q[3].r.wait_ns = SECOND;
	gm_core_request(fake.core, &q[3].r);
	ck_assert_uint_eq(q[3].ended, 0);
	gm_core_cancel(fake.core, &q[4].r);
	gm_lease_return(c, grown);
	ck_assert_int_eq(q[3].status, GPUMEM_E_CANCELLED);
	fake_wait(&fake, &q[4], c, d, 4 * GiB, SECOND);
	ck_assert_uint_eq(q[4].ended, 0);
	gm_session_quarantine(c);
	ck_assert_int_eq(q[4].status, GPUMEM_E_CANCELLED);
	ck_assert_uint_eq(queue().n, 0);
	/* One whose chunks are being made can be cancelled as well. */
	fake_ask(&fake, &q[0], a, d, GiB, GM_TRANSPORT_AUTO);
	gm_core_cancel(fake.core, &q[0].r);
	ck_assert_int_eq(q[0].status, GPUMEM_E_CANCELLED);
	fake_core_run(&fake);
	fake_core_check(&fake, d);
	gm_lease_return(a, lease);
}
END_TEST

/* Gives back one chunk of 2 MiB. */
static void give_one(struct gm_session *session, struct gm_lease *lease)
{
	uint64_t id = gm_lease_chunk(lease, 0)->id;
	ck_assert_int_eq(gm_lease_return_chunks(session, lease, &id, 1), GPUMEM_OK);
	fake_core_run(&fake);
}

START_TEST(among_equals_the_users_take_turns)
{
	enum { FLOOD = 8 };
	struct gm_lease *small[2 * FLOOD];
	static struct fake_request of_b[FLOOD], of_c[2];
	for (int i = 0; i < 2 * FLOOD; i++)
		small[i] = fake_lease(&fake, a, d, 2 * MiB);
	fake_lease(&fake, a, d, 16 * GiB - 2 * FLOOD * 2 * MiB);
	for (int i = 0; i < FLOOD; i++)
		fake_wait(&fake, &of_b[i], b, d, 2 * MiB, SECOND);
	for (int i = 0; i < 2; i++)
		fake_wait(&fake, &of_c[i], c, d, 2 * MiB, SECOND);
	/* b, c, b, c, and then b alone; each by arrival. */
	static const unsigned b_has[] = {1, 1, 2, 2, 3, 4, 5, 6, 7, 8};
	for (unsigned k = 0; k < FLOOD + 2; k++) {
		unsigned n = 0;
		give_one(a, small[k]);
		while (n < FLOOD && of_b[n].ended)
			n++;
		ck_assert_uint_eq(n, b_has[k]);
		n = of_c[0].ended + of_c[1].ended;
		ck_assert_uint_eq(n, k + 1 - b_has[k]);
		ck_assert(of_c[0].ended || !of_c[1].ended);
	}
	/* All at once is shared in the same way. */
	for (int i = 0; i < FLOOD; i++)
		fake_wait(&fake, &of_b[i], b, d, 2 * MiB, SECOND);
	for (int i = 0; i < 2; i++)
		fake_wait(&fake, &of_c[i], c, d, 2 * MiB, SECOND);
	gm_session_end_died(b);
	ck_assert_int_eq(of_b[0].status, GPUMEM_E_CANCELLED);
	fake_core_run(&fake);
	ck_assert_int_eq(of_c[1].status, GPUMEM_OK);
}
END_TEST

START_TEST(a_higher_priority_goes_before_any_turn)
{
	struct gm_lease *small[4];
	static struct fake_request q[4];
	prefer(3, 1);
	for (int i = 0; i < 4; i++)
		small[i] = fake_lease(&fake, a, d, 2 * MiB);
	fake_lease(&fake, a, d, 16 * GiB - 8 * MiB);
	for (int i = 0; i < 4; i++)
		fake_wait(&fake, &q[i], i < 2 ? b : c, d, 2 * MiB, SECOND);
	static const int order[] = {2, 3, 0, 1};
	for (int i = 0; i < 4; i++) {
		ck_assert_uint_eq(q[order[i]].ended, 0);
		give_one(a, small[i]);
		ck_assert_int_eq(q[order[i]].status, GPUMEM_OK);
	}
}
END_TEST

/* However long a line is, each of its requests is looked at in the end. */
START_TEST(in_a_long_line_nobody_is_forgotten)
{
	enum { LONG = 3 * GM_QUEUE_SLICE };
	static struct fake_request q[LONG], last, due;
	struct gm_lease *lease = fake_lease(&fake, a, d, 2 * MiB);
	fake_lease(&fake, a, d, 16 * GiB - 2 * MiB);
	for (int i = 0; i < LONG; i++)
		fake_wait(&fake, &q[i], b, d, 4 * MiB, GM_WAIT_FOREVER);
	fake_wait(&fake, &due, b, d, 4 * MiB, SECOND);
	fake_wait(&fake, &last, b, d, 2 * MiB, GM_WAIT_FOREVER);
	gm_lease_return(a, lease);
	fake_pass(&fake, MS);
	fake_core_run(&fake);
	ck_assert_int_eq(last.status, GPUMEM_OK);
	ck_assert_uint_eq(last.ended, 1);
	ck_assert_uint_eq(due.ended, 0);
	fake_pass(&fake, SECOND);
	ck_assert_int_eq(due.status, GPUMEM_E_TIMEOUT);
	/* And when all have been, nothing is due at once. */
	ck_assert_uint_gt(gm_core_tick(fake.core), fake.now + MS);
	for (int i = 0; i < LONG; i++)
		ck_assert_uint_eq(q[i].ended, 0);
}
END_TEST

START_TEST(who_waits_for_a_guarantee_is_told_the_owner_for_whom_most_is_kept)
{
	limit(1, UINT64_MAX, GiB);
	limit(2, UINT64_MAX, 6 * GiB);
	limit(3, UINT64_MAX, 4 * GiB);
	fake_lease(&fake, a, d, 2 * GiB);
	fake_lease(&fake, b, d, 3 * GiB);
	static struct fake_request w;
	/* 11 GiB are available; 3 of them are kept for b, and 4 for c. */
	fake_wait(&fake, &w, a, d, 6 * GiB, SECOND);
	ck_assert_int_eq(queue().info[0].block, GM_BLOCK_GUARANTEE);
	ck_assert_uint_eq(queue().info[0].owner->id, 3);
}
END_TEST

START_TEST(who_waits_for_its_own_limit_is_in_nobody_elses_way)
{
	limit(2, 2 * GiB, 0);
	fake_lease(&fake, b, d, GiB);
	struct gm_session *twin = fake_session(&fake, 2, 2);
	static struct fake_request w, q;
	fake_wait(&fake, &w, twin, d, 2 * GiB, SECOND);
	ck_assert_int_eq(queue().info[0].block, GM_BLOCK_LIMIT);
	ck_assert_uint_eq(queue().info[0].owner->id, 2);
	for (unsigned i = 0; i < 2 * GM_QUEUE_HEAD_OVERTAKES; i++) {
		fake_wait(&fake, &q, c, d, 2 * MiB, GM_WAIT_NEVER);
		fake_core_run(&fake);
		ck_assert_int_eq(q.status, GPUMEM_OK);
	}
	ck_assert_uint_eq(queue().info[0].overtaken, 0);
	/* Nor in the way of those under the same limit: what fits there is served. */
	for (unsigned i = 0; i < 2 * GM_QUEUE_HEAD_OVERTAKES; i++) {
		fake_wait(&fake, &q, b, d, 2 * MiB, GM_WAIT_NEVER);
		fake_core_run(&fake);
		ck_assert_int_eq(q.status, GPUMEM_OK);
	}
	ck_assert_ptr_null(fake_queue_holder(&fake, d));
}
END_TEST

START_TEST(all_uids_that_one_user_pays_for_wait_in_one_line)
{
	enum { EACH = GM_BOUND_WAITING_PER_UID / 2 };
	struct gm_lease *lease = fake_lease(&fake, a, d, 16 * GiB);
	static struct fake_request q[2][EACH], more, other;
	uint8_t token[GM_TOKEN_BYTES];
	struct gm_session *sub[2];
	for (uid_t i = 0; i < 2; i++) {
		struct gm_session_info info = {
			.uid = 100000 + i, .payer_uid = 5, .domain = 50 + i, .pooling = true};
		ck_assert_int_eq(gm_session_new(fake.core, &info, token, &sub[i]), 0);
		for (size_t n = 0; n < EACH; n++)
			fake_wait(&fake, &q[i][n], sub[i], d, 2 * MiB, SECOND);
	}
	ck_assert_uint_eq(fake_queue_length(&fake, d), GM_BOUND_WAITING_PER_UID);

	fake_wait(&fake, &more, sub[1], d, 2 * MiB, SECOND);
	ck_assert_int_eq(more.status, GPUMEM_E_NO_MEMORY);
	ck_assert_ptr_nonnull(strstr(
		more.detail, "user 5 (with subordinate uid 100001) has 1024 requests that wait"));
	fake_wait(&fake, &other, b, d, 2 * MiB, SECOND);
	ck_assert_uint_eq(other.ended, 0);
	gm_lease_return(a, lease);
	fake_core_run(&fake);
	ck_assert_uint_eq(other.ended, 1);
	ck_assert_int_eq(other.status, GPUMEM_OK);
}
END_TEST

START_TEST(a_request_too_many_is_refused_instead_of_waiting)
{
	GM_BOUND_TEST(WAITING_PER_UID);
	struct gm_lease *lease = fake_lease(&fake, a, d, 16 * GiB);
	struct fake_request *q = calloc(GM_BOUND_WAITING_PER_UID + 1, sizeof(*q));
	ck_assert_ptr_nonnull(q);
	for (size_t i = 0; i <= GM_BOUND_WAITING_PER_UID; i++)
		fake_wait(&fake, &q[i], b, d, 2 * MiB, SECOND);
	ck_assert_uint_eq(fake_queue_length(&fake, d), GM_BOUND_WAITING_PER_UID);
	ck_assert_int_eq(q[GM_BOUND_WAITING_PER_UID].status, GPUMEM_E_NO_MEMORY);
	ck_assert_str_eq(q[GM_BOUND_WAITING_PER_UID].detail,
		"user 2 has 1024 requests that wait for device 0, which is the most; try again "
		"later: device 0 has 0B available of 16.0G, asked for 2.0M; see gpumemctl clients");
	/* Another session of the uid may not either, but another uid may. */
	static struct fake_request same, other;
	fake_wait(&fake, &same, fake_session(&fake, 2, 2), d, 2 * MiB, SECOND);
	ck_assert_int_eq(same.status, GPUMEM_E_NO_MEMORY);
	fake_wait(&fake, &other, c, d, 2 * MiB, SECOND);
	ck_assert_uint_eq(other.ended, 0);
	gm_lease_return(a, lease);
	fake_core_run(&fake);
	ck_assert_int_eq(other.status, GPUMEM_OK);
	for (size_t i = 0; i < GM_BOUND_WAITING_PER_UID; i++)
		ck_assert_int_eq(q[i].status, GPUMEM_OK);
	gm_session_end_died(b);
	fake_core_run(&fake);
	free(q);
}
END_TEST

/* Takes so many, and then no more. */
struct part {
	unsigned room, n;
	const struct gm_request *requests[64];
};

static bool take(void *ctx, const struct gm_queue_info *info)
{
	struct part *part = ctx;
	if (part->room == 0)
		return false;
	part->room--;
	ck_assert_uint_lt(part->n, 64);
	part->requests[part->n++] = info->request;
	return true;
}

START_TEST(a_list_in_parts_has_each_request_once_whoever_comes_and_goes_in_between)
{
	static struct fake_request q[6], late[2];
	struct gm_queue_place place = GM_QUEUE_FIRST;
	struct part part = {.room = 2};
	prefer(3, 5);
	fake_lease(&fake, a, d, 16 * GiB);
	for (int i = 0; i < 6; i++)
		fake_wait(&fake, &q[i], i % 2 ? c : b, d, 2 * GiB, 10 * SECOND);
	/* In order: 1, 3, 5 of c, then 0, 2, 4 of b. */
	ck_assert(gm_core_queue_each(fake.core, d, &place, take, &part));
	ck_assert_uint_eq(part.n, 2);
	/* One that was listed goes, and so does the next one; one comes before the place, whose
	 * client has a higher priority, and one behind all. */
	gm_core_cancel(fake.core, &q[1].r);
	gm_core_cancel(fake.core, &q[5].r);
	prefer(4, 9);
	fake_wait(&fake, &late[0], fake_session(&fake, 4, 4), d, 2 * GiB, 10 * SECOND);
	fake_wait(&fake, &late[1], b, d, 2 * GiB, 10 * SECOND);
	part.room = 1;
	ck_assert(gm_core_queue_each(fake.core, d, &place, take, &part));
	part.room = 60;
	ck_assert(!gm_core_queue_each(fake.core, d, &place, take, &part));
	const struct gm_request *const want[] = {
		&q[1].r, &q[3].r, &q[0].r, &q[2].r, &q[4].r, &late[1].r};
	ck_assert_uint_eq(part.n, sizeof(want) / sizeof(want[0]));
	for (unsigned i = 0; i < part.n; i++)
		ck_assert_ptr_eq(part.requests[i], want[i]);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("queue");
	TCase *tcase = tcase_create("queue");
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(
		tcase, a_request_that_waits_is_granted_in_the_call_that_brings_the_memory_back);
	tcase_add_test(tcase, what_is_pooled_for_it_is_granted_before_the_return_returns);
	tcase_add_test(tcase, every_way_memory_comes_back_grants);
	tcase_add_test(tcase, the_order_is_priority_then_arrival);
	tcase_add_test(
		tcase, a_list_in_parts_has_each_request_once_whoever_comes_and_goes_in_between);
	tcase_add_test(
		tcase, what_waited_for_an_earlier_daemon_goes_before_what_its_user_asked_for_later);
	tcase_add_test(tcase, its_time_is_kept);
	tcase_add_test(tcase, a_time_without_end_does_not_overflow);
	tcase_add_test(tcase, oom_says_what_becomes_of_a_request_that_does_not_say);
	tcase_add_test(tcase, more_than_could_ever_be_granted_is_refused_at_once);
	tcase_add_test(tcase, it_is_dropped_when_its_client_goes_and_when_it_is_cancelled);
	tcase_add_test(tcase, among_equals_the_users_take_turns);
	tcase_add_test(tcase, a_higher_priority_goes_before_any_turn);
	tcase_add_test(tcase, in_a_long_line_nobody_is_forgotten);
	tcase_add_test(tcase, who_waits_for_a_guarantee_is_told_the_owner_for_whom_most_is_kept);
	tcase_add_test(tcase, who_waits_for_its_own_limit_is_in_nobody_elses_way);
	suite_add_tcase(suite, tcase);
	/* Of thousands that wait, all are looked at whenever one more comes. */
	TCase *full = tcase_create("full");
	tcase_add_checked_fixture(full, setup, teardown);
	tcase_set_timeout(full, 120);
	tcase_add_test(full, all_uids_that_one_user_pays_for_wait_in_one_line);
	tcase_add_test(full, a_request_too_many_is_refused_instead_of_waiting);
	tcase_add_loop_test(full, a_queue_full_of_one_users_requests_costs_the_others_little, 0, 2);
	suite_add_tcase(suite, full);
	return gm_tap_run(suite);
}
