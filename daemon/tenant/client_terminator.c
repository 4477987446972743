/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ending processes by force, the last stage of reclaim. One timer serves all grace periods, and
 * runs only while there is one. A process is identified by its pidfd only: by the end of its grace
 * period, its pid may belong to another process.
 */
#include "daemon/tenant/client_terminator.h"

#include <errno.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <utlist.h>

#include "common/arith.h"
#include "common/clock.h"

struct victim {
	struct gm_identity *identity;
	uint64_t kill_ns;
	struct victim *prev, *next;
};

struct gm_client_terminator {
	uv_timer_t timer;
	struct victim *victims; /* in no particular order */
};

int gm_client_terminator_new(uv_loop_t *loop, struct gm_client_terminator **ret_terminator)
{
	struct gm_client_terminator *terminator = calloc(1, sizeof(*terminator));

	if (!terminator)
		return -ENOMEM;
	uv_timer_init(loop, &terminator->timer); /* cannot fail */
	terminator->timer.data = terminator;
	*ret_terminator = terminator;
	return 0;
}

static void client_terminator_on_closed(uv_handle_t *handle)
{
	free(handle->data);
}

static void client_terminator_drop(struct gm_client_terminator *terminator, struct victim *victim)
{
	DL_DELETE(terminator->victims, victim);
	gm_identity_unref(victim->identity);
	free(victim);
}

void gm_client_terminator_free(struct gm_client_terminator *terminator)
{
	if (!terminator)
		return;
	while (terminator->victims)
		client_terminator_drop(terminator, terminator->victims);
	uv_close((uv_handle_t *)&terminator->timer, client_terminator_on_closed);
}

static int client_terminator_send_signal(const struct gm_identity *identity, int number)
{
	return syscall(SYS_pidfd_send_signal, identity->pidfd, number, NULL, 0) < 0 ? -errno : 0;
}

static void client_terminator_on_timer(uv_timer_t *timer);

static void client_terminator_set_timer(struct gm_client_terminator *terminator)
{
	uint64_t first = UINT64_MAX, now = gm_clock_ns();
	struct victim *victim;

	DL_FOREACH (terminator->victims, victim)
		first = gm_u64_min(first, victim->kill_ns);
	if (first == UINT64_MAX) {
		uv_timer_stop(&terminator->timer);
		return;
	}
	uint64_t wait_ms = first > now ? (first - now) / GM_NS_PER_MS + 1 : 0;
	uv_update_time(terminator->timer.loop);
	uv_timer_start(&terminator->timer, client_terminator_on_timer, wait_ms, 0);
}

static void client_terminator_on_timer(uv_timer_t *timer)
{
	struct gm_client_terminator *terminator = timer->data;
	struct victim *victim, *next;
	uint64_t now = gm_clock_ns();

	DL_FOREACH_SAFE (terminator->victims, victim, next) {
		bool dead = gm_identity_dead(victim->identity);
		if (!dead && victim->kill_ns > now)
			continue;
		if (!dead)
			(void)client_terminator_send_signal(victim->identity, SIGKILL);
		client_terminator_drop(terminator, victim);
	}
	client_terminator_set_timer(terminator);
}

int gm_client_terminator_end(
	struct gm_client_terminator *terminator, struct gm_identity *identity, uint64_t grace_ns)
{
	struct victim *victim;

	DL_FOREACH (terminator->victims, victim)
		if (victim->identity == identity)
			return 0;
	if (grace_ns == 0)
		return client_terminator_send_signal(identity, SIGKILL);

	victim = calloc(1, sizeof(*victim));
	if (!victim)
		return -ENOMEM;
	int r = client_terminator_send_signal(identity, SIGTERM);
	if (r < 0) {
		free(victim);
		return r;
	}
	victim->identity = gm_identity_ref(identity);
	victim->kill_ns = gm_clock_ns() + grace_ns;
	DL_APPEND(terminator->victims, victim);
	client_terminator_set_timer(terminator);
	return 0;
}

bool gm_client_terminator_may(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2] = {{0}};

	if (syscall(SYS_capget, &header, data) < 0)
		return false;
	return data[CAP_TO_INDEX(CAP_KILL)].effective & CAP_TO_MASK(CAP_KILL);
}
