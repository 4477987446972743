/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control blocks of leases with signals (common/control.h). Each is a memfd of its own, so whoever has
 * one lease open cannot reach the signals of another. This file promises that no client gets a block
 * before the next daemon would have it, too, and that each counts as a descriptor of the user who made
 * the lease. It must never read or write a block.
 */
#include "daemon/books/hash_table.h"
#include "daemon/lease/session_private.h"
#include "daemon/lease/control_block.h"
#include "daemon/queue/queue.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "common/cleanup.h"
#include "common/control.h"
#include "common/system/memfd.h"
#include "common/step.h"
#include "daemon/books/fds.h"

static int control_block_create(int *ret_fd)
{
	GM_AUTO_FD int fd = -1;
	int r = gm_memfd_create("gpumem-signals", GM_CONTROL_BYTES, &fd);

	if (r < 0)
		return r;
	if (fcntl(fd, F_ADD_SEALS, GM_CONTROL_SEALS) < 0)
		return -errno;
	*ret_fd = gm_steal_fd(&fd);
	return 0;
}

/* Charges the lease's user, with or without the maker. */
static void control_block_charge(struct gm_lease *lease)
{
	gm_user_charge_init(&lease->word_fd, lease->orphan->charge.user, GM_USER_CHUNK_FDS);
	gm_user_charge_add(&lease->word_fd, 1);
}

/* ---- making */

/* Whether it failed for want of a descriptor, which may come. */
static bool control_block_is_short(int r)
{
	return r == -EMFILE || r == -ENFILE;
}

static void control_block_wait(struct gm_env *env, struct gm_request *request)
{
	DL_APPEND2(env->word_waiting, request, side_prev, side_next);
	env->fds->waiting++;
}

void gm_control_block_stop_waiting(struct gm_env *env, struct gm_request *request)
{
	if (!request->side_prev)
		return;
	DL_DELETE2(env->word_waiting, request, side_prev, side_next);
	request->side_prev = request->side_next = NULL;
	env->fds->waiting--;
}

/* Returns 0, GM_DEPOSIT_WAITS, or a negative errno: -ENOSPC if the keeper is full. */
static int control_block_open(struct gm_lease *lease, struct gm_request *request)
{
	struct gm_env *env = lease->device->env;
	int r = control_block_create(&lease->word);
	if (r < 0 || !env->ops.deposit)
		return r;

	r = env->ops.deposit(env->ctx, GM_STORE_CONTROL_BLOCK, lease->id, lease->word, request);
	if (r < 0) {
		/* The next try makes another one. */
		lease->word = gm_close(lease->word);
		return r;
	}
	lease->word_kept = true;
	GM_STEP("signals: deposited");
	return r;
}

static gpumem_status control_block_refuse(int r, char detail[GM_DETAIL_BYTES])
{
	if (r == -ENOSPC)
		return gm_text_refuse(GPUMEM_E_LIMIT, detail,
			"the keeper has no room for the file descriptor of signals; return some "
			"memory, or raise LimitNOFILE= of gpumemd-keeper.service");
	if (control_block_is_short(r))
		return gm_text_refuse(GPUMEM_E_LIMIT, detail,
			"the daemon has no file descriptors left; raise its LimitNOFILE=");
	return gm_text_refuse(
		GPUMEM_E_HOST_MEMORY, detail, "the daemon has no memory for signals; try again");
}

gpumem_status gm_control_block_make(struct gm_lease *lease, struct gm_request *request,
	bool *ret_waits, char detail[GM_DETAIL_BYTES])
{
	struct gm_env *env = lease->device->env;
	int r = -EMFILE;

	request->side_prev = request->side_next = NULL;
	control_block_charge(lease);
	if (!gm_fds_short(env)) {
		r = control_block_open(lease, request);
		/* The pump tries again. It may take descriptors from the pool, which is none of a
		 * request's business as long as it has a plan. */
		env->woken = env->woken || control_block_is_short(r);
	}

	*ret_waits = control_block_is_short(r) || r == GM_DEPOSIT_WAITS;
	if (control_block_is_short(r))
		control_block_wait(env, request);
	else if (r < 0)
		return control_block_refuse(r, detail);
	return GPUMEM_OK;
}

/* The kernel has no descriptor. Returns whether there will be one. */
static bool control_block_wait_again(struct gm_env *env, struct gm_request *request)
{
	gm_device_settle_fds(env, true);
	if (env->fds->dying == 0)
		return false;
	control_block_wait(env, request);
	env->word_denied = true;
	return true;
}

void gm_control_block_make_waiting(struct gm_env *env)
{
	while (env->word_waiting && !env->word_denied && gm_fd_budget_may_open(env->fds)) {
		struct gm_request *request = env->word_waiting;
		char detail[GM_DETAIL_BYTES];

		gm_control_block_stop_waiting(env, request);
		int r = control_block_open(request->target, request);
		if (control_block_is_short(r) && control_block_wait_again(env, request))
			return;
		if (r == 0)
			gm_request_go_on(request);
		else if (r < 0)
			gm_request_fail(request, control_block_refuse(r, detail), detail);

		/* A chunk has its turn. */
		env->word_turn = false;
		gm_device_settle_fds(env, false);
	}
}

/* ---- the end, and another daemon */

void gm_control_block_drop(struct gm_lease *lease)
{
	struct gm_env *env = lease->device->env;

	if (!lease->word_fd.user)
		return;
	if (lease->word_kept)
		env->ops.withdraw(env->ctx, GM_STORE_CONTROL_BLOCK, lease->id);
	lease->word = gm_close(lease->word);
	gm_user_charge_deinit(&lease->word_fd);
}

void gm_control_block_adopt(struct gm_lease *lease, int fd)
{
	struct gm_env *env = lease->device->env;
	struct stat st;
	int seals = fcntl(fd, F_GET_SEALS);

	if (seals < 0 || (seals & GM_CONTROL_SEALS) != GM_CONTROL_SEALS || fstat(fd, &st) < 0 ||
		st.st_size != GM_CONTROL_BYTES) {
		gm_close(fd);
		if (env->ops.withdraw)
			env->ops.withdraw(env->ctx, GM_STORE_CONTROL_BLOCK, lease->id);
		return;
	}

	lease->word = fd;
	lease->word_kept = env->ops.deposit != NULL;
	control_block_charge(lease);
}
