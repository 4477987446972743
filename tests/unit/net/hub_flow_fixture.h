/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_UNIT_NET_HUB_FLOW_FIXTURE_H
#define GM_TESTS_UNIT_NET_HUB_FLOW_FIXTURE_H

/* Flows with descriptors that are always ready. Time is what the test says, so a flow that rests does so until the test
 * lets time pass. */

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <utlist.h>

#include "daemon/net/hub_flow.h"
#include "tests/tap.h"

enum { MANY = 100 };

static uv_loop_t loop;
static struct gm_user_table users;
static struct gm_hub_flows flows;

struct source {
	struct gm_hub_flow_fd fd;
	struct gm_hub_flow_task task;
	unsigned int served, ran;
	unsigned int again;      /* the task posts itself so many times more */
	uint64_t takes_ns;       /* a turn takes so long, */
	bool waits;              /* without using the CPU */
	struct source *sends_to; /* what is sent to this one's user in a turn takes the time */
};

static uint64_t now_ns, cpu_ns;

static inline uint64_t fake_clock(clockid_t id)
{
	return id == CLOCK_MONOTONIC ? now_ns : cpu_ns;
}

static inline void spend(const struct source *source)
{
	uint64_t began_ns = 0;

	if (source->sends_to)
		began_ns = gm_hub_flow_begin_work(&flows);
	now_ns += source->takes_ns;
	cpu_ns += source->waits ? 0 : source->takes_ns;
	if (source->sends_to)
		gm_hub_flow_end_work(source->sends_to->fd.flow, began_ns);
}

static inline void on_ready(struct gm_hub_flow_fd *fd, uint32_t events)
{
	ck_assert(events & EPOLLIN);
	((struct source *)fd)->served++;
	spend((struct source *)fd);
}

static inline void on_run(struct gm_hub_flow_task *task)
{
	struct source *source = (struct source *)((char *)task - offsetof(struct source, task));

	source->ran++;
	spend(source);
	if (source->again && source->again--)
		gm_hub_flow_post(source->fd.flow, task);
}

static inline void setup(void)
{
	ck_assert_int_eq(uv_loop_init(&loop), 0);
	gm_user_table_init(&users);
	ck_assert_int_eq(gm_hub_flows_init(&flows, &loop, &users), 0);
	flows.clock = fake_clock;
}

static inline void teardown(void)
{
	ck_assert_ptr_null(flows.all);
	ck_assert_uint_eq(flows.n_queued, 0);
	ck_assert_ptr_null(flows.resting);
	gm_hub_flows_close(&flows);
	gm_user_table_deinit(&users);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&loop), 0);
}

static inline void open_source(struct source *source, uint64_t uid)
{
	struct gm_hub_flow *flow;

	memset(source, 0, sizeof(*source));
	source->fd.fd = eventfd(1, EFD_CLOEXEC);
	source->fd.events = EPOLLIN;
	source->fd.ready = on_ready;
	source->task.run = on_run;
	ck_assert_int_eq(gm_hub_flow_get(&flows, uid, &flow), 0);
	ck_assert_int_eq(gm_hub_flow_add(flow, &source->fd), 0);
}

/* One whose descriptor is not ready. */
static inline void open_idle(struct source *source, uint64_t uid)
{
	open_source(source, uid);
	ck_assert_int_eq(gm_hub_flow_change(&source->fd, 0), 0);
}

static inline void close_source(struct source *source)
{
	struct gm_hub_flow *flow = source->fd.flow;

	gm_hub_flow_withdraw(&source->task);
	gm_hub_flow_remove(&source->fd);
	close(source->fd.fd);
	gm_hub_flow_unref(flow);
}

static inline unsigned int sum_served(const struct source *sources, size_t n)
{
	unsigned int sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += sources[i].served;
	return sum;
}

/* ---- time */

enum { TURNS = 10, ENOUGH = 2000 };
#define USEC UINT64_C(1000)

static inline void run_turns(unsigned int n)
{
	for (unsigned int turn = 0; turn < n; turn++)
		uv_run(&loop, UV_RUN_NOWAIT);
}

/* Time that the source's turns took in all. */
static inline uint64_t used_ns(const struct source *source)
{
	return (source->served + source->ran) * source->takes_ns;
}

static inline void expect_alike(const struct source *a, const struct source *b)
{
	uint64_t more = used_ns(a) > used_ns(b) ? used_ns(a) - used_ns(b) : used_ns(b) - used_ns(a);
	uint64_t longest = a->takes_ns > b->takes_ns ? a->takes_ns : b->takes_ns;

	if (more > GM_HUB_FLOW_QUANTUM_NS + longest)
		ck_abort_msg("one had %llu us of the loop, the other %llu us",
			(unsigned long long)(used_ns(a) / USEC),
			(unsigned long long)(used_ns(b) / USEC));
}

/* ---- turns that take long */

#define LONG_NS (GM_HUB_FLOW_LEAD_NS + 1000000)
#define REST_NS (GM_HUB_FLOW_REST_FACTOR * UINT64_C(1000000))

static inline bool a_rest_is_over(void)
{
	const struct gm_hub_flow *flow;

	DL_FOREACH (flows.resting, flow)
		if (flow->rest_until_ns <= now_ns)
			return true;
	return false;
}

/* Lets time pass, and waits until nobody rests for whom it is over. One may have had its turn then, and rest again. */
static inline void pass(uint64_t ns)
{
	now_ns += ns;
	while (a_rest_is_over())
		uv_run(&loop, UV_RUN_ONCE);
}

#endif
