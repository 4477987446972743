/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/driver/preload_contexts.h"
#include "common/lock.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <utlist.h>

struct contexts_green {
	gm_cu_ctx ctx;
	struct contexts_green *next;
};

static struct gm_lock contexts_lock = GM_LOCK_INITIALIZER(GM_LOCK_LEAF);
static struct contexts_green *contexts_greens;
static atomic_bool contexts_any; /* set for good by the first one */

/* Another thread may have had the lock when the process forked. */
static void contexts_after_fork(void)
{
	gm_lock_init(&contexts_lock, GM_LOCK_LEAF);
}

static __attribute__((constructor)) void contexts_prepare(void)
{
	pthread_atfork(NULL, NULL, contexts_after_fork);
}

/* With the lock held. */
static struct contexts_green *contexts_find(gm_cu_ctx ctx)
{
	struct contexts_green *green;

	LL_FOREACH (contexts_greens, green)
		if (green->ctx == ctx)
			return green;
	return NULL;
}

void gm_driver_contexts_add_green(gm_cu_ctx ctx)
{
	struct contexts_green *green = malloc(sizeof *green);
	if (!green)
		return; /* then it counts as a context of its own */

	*green = (struct contexts_green){.ctx = ctx};
	gm_lock(&contexts_lock);
	if (!contexts_find(ctx)) {
		LL_PREPEND(contexts_greens, green);
		green = NULL;
	}
	atomic_store_explicit(&contexts_any, true, memory_order_release);
	gm_lock_drop(&contexts_lock);
	free(green);
}

void gm_driver_contexts_remove_green(gm_cu_ctx ctx)
{
	gm_lock(&contexts_lock);
	struct contexts_green *green = contexts_find(ctx);
	if (green)
		LL_DELETE(contexts_greens, green);
	gm_lock_drop(&contexts_lock);
	free(green);
}

gm_cu_ctx gm_driver_contexts_owner(
	const struct gm_driver *driver, gm_cu_ctx ctx, gm_cu_device device)
{
	if (!atomic_load_explicit(&contexts_any, memory_order_acquire))
		return ctx;
	gm_lock(&contexts_lock);
	bool green = contexts_find(ctx);
	gm_lock_drop(&contexts_lock);

	gm_cu_ctx primary = green ? gm_driver_contexts_primary(driver, device) : NULL;
	return primary ? primary : ctx;
}

gm_cu_ctx gm_driver_contexts_primary(const struct gm_driver *driver, gm_cu_device device)
{
	gm_cu_ctx ctx = NULL;
	unsigned int flags;
	int active = 0;

	if (!driver->cuDevicePrimaryCtxGetState || !driver->cuDevicePrimaryCtxRetain ||
		!driver->cuDevicePrimaryCtxRelease_v2 ||
		driver->cuDevicePrimaryCtxGetState(device, &flags, &active) || !active ||
		driver->cuDevicePrimaryCtxRetain(&ctx, device))
		return NULL;
	(void)driver->cuDevicePrimaryCtxRelease_v2(device);
	return ctx;
}
