/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control blocks of leases with signals (common/control.h). Each is a memfd of its own, so whoever has
 * one lease open cannot reach the signals of another. This file promises that no client gets a block
 * before the next daemon would have it, too, and that each counts as a descriptor of the user who made
 * the lease. It must never read or write a block.
 */
#include "daemon/core/hash_table.h"
#include "daemon/core/session_private.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "common/cleanup.h"
#include "common/control.h"
#include "common/memfd.h"
#include "common/step.h"
#include "daemon/core/fds.h"

static int word_create(int *ret_fd)
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

gpumem_status gm_word_make(
	struct gm_lease *lease, struct gm_request *request, char detail[GM_DETAIL_BYTES])
{
	struct gm_env *env = lease->device->env;
	int fd = -1, r = word_create(&fd);

	if (r < 0)
		return gm_refuse(GPUMEM_E_HOST_MEMORY, detail,
			"the daemon has no memory, or no file descriptor, for signals; try again");
	lease->word.fd = fd;
	lease->word.fds = request->session->fds;
	gm_fds_take(env, lease->word.fds);
	if (!env->ops.deposit)
		return GPUMEM_OK;

	r = env->ops.deposit(env->ctx, GM_ITEM_WORD, lease->id, fd, lease);
	if (r == GM_DEPOSIT_WAITS) {
		lease->word.request = request;
		r = 0;
	}
	if (r < 0)
		return gm_refuse(GPUMEM_E_LIMIT, detail,
			"the keeper has no room for the file descriptor of signals; return some "
			"memory, or raise LimitNOFILE= of gpumemd-keeper.service");
	lease->word.deposited = true;
	GM_STEP("signals: deposited");
	return GPUMEM_OK;
}

void gm_word_deposited(struct gm_lease *lease)
{
	struct gm_request *request = gm_steal_ptr(&lease->word.request);

	if (request)
		gm_request_go_on(request);
}

void gm_word_drop(struct gm_lease *lease)
{
	struct gm_env *env = lease->device->env;

	if (lease->word.fd < 0)
		return;
	if (lease->word.deposited)
		env->ops.withdraw(env->ctx, GM_ITEM_WORD, lease->id);
	lease->word.fd = gm_close(lease->word.fd);
	gm_fds_give(env, lease->word.fds);
}

void gm_word_adopt(struct gm_lease *lease, int fd)
{
	const struct gm_session *payer = lease->maker ? lease->maker : lease->estate->session;
	struct gm_env *env = lease->device->env;
	struct stat st;
	int seals = fcntl(fd, F_GET_SEALS);

	if (seals < 0 || (seals & GM_CONTROL_SEALS) != GM_CONTROL_SEALS || fstat(fd, &st) < 0 ||
		st.st_size != GM_CONTROL_BYTES) {
		gm_close(fd);
		if (env->ops.withdraw)
			env->ops.withdraw(env->ctx, GM_ITEM_WORD, lease->id);
		return;
	}

	lease->word.fd = fd;
	lease->word.fds = payer->fds;
	lease->word.deposited = env->ops.deposit != NULL;
	gm_fds_take(env, lease->word.fds);
}
