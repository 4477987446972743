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

/* Who is charged, with or without the maker. */
static struct gm_fds_user *word_payer(const struct gm_lease *lease)
{
	return lease->estate->session->fds;
}

gpumem_status gm_word_make(struct gm_lease *lease, struct gm_request *request, bool *ret_waits,
	char detail[GM_DETAIL_BYTES])
{
	struct gm_env *env = lease->device->env;

	*ret_waits = false;
	int r = word_create(&lease->word);
	if (r < 0)
		return gm_refuse(GPUMEM_E_HOST_MEMORY, detail,
			"the daemon has no memory, or no file descriptor, for signals; try again");
	gm_fds_take(env, word_payer(lease));
	if (!env->ops.deposit)
		return GPUMEM_OK;

	r = env->ops.deposit(env->ctx, GM_ITEM_WORD, lease->id, lease->word, request);
	if (r == -ENOMEM)
		return gm_refuse(GPUMEM_E_HOST_MEMORY, detail,
			"the daemon has no memory for signals; try again");
	if (r < 0)
		return gm_refuse(GPUMEM_E_LIMIT, detail,
			"the keeper has no room for the file descriptor of signals; return some "
			"memory, or raise LimitNOFILE= of gpumemd-keeper.service");
	*ret_waits = r == GM_DEPOSIT_WAITS;
	lease->word_kept = true;
	GM_STEP("signals: deposited");
	return GPUMEM_OK;
}

void gm_word_drop(struct gm_lease *lease)
{
	struct gm_env *env = lease->device->env;

	if (lease->word < 0)
		return;
	if (lease->word_kept)
		env->ops.withdraw(env->ctx, GM_ITEM_WORD, lease->id);
	lease->word = gm_close(lease->word);
	gm_fds_give(env, word_payer(lease));
}

void gm_word_adopt(struct gm_lease *lease, int fd)
{
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

	lease->word = fd;
	lease->word_kept = env->ops.deposit != NULL;
	gm_fds_take(env, word_payer(lease));
}
