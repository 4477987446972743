/* SPDX-License-Identifier: Apache-2.0 */
/* Items that outlive the keeper, in the descriptor store of its unit (keeper_store.h). */
#include "keeper/keeper_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-daemon.h>

#include "common/cleanup.h"
#include "common/wire/keeper_store.h"

/* Maximum time to wait until the service manager has read a message, in µs. */
#define KEEPER_TOLD_US 1000000

int gm_keeper_leave(struct gm_keeper *keeper)
{
	struct gm_keeper_store store;
	const struct keeper_item *item;
	int r = gm_keeper_store_begin(&store);
	if (r < 0)
		return r;
	gm_keeper_drain(keeper);
	for (item = keeper->items; item; item = item->hh.next)
		gm_keeper_store_add(&store, item->key.kind, item->key.id, item->fd);
	return gm_keeper_store_end(&store);
}

static int keeper_take_one(void *ctx, uint64_t kind, uint64_t id, int fd)
{
	return gm_keeper_put(ctx, kind, id, fd);
}

int gm_keeper_take_left(struct gm_keeper *keeper)
{
	char **names = NULL;
	int result = 0;
	int n = sd_listen_fds_with_names(1, &names);

	for (int i = 0; i < n; i++) {
		GM_AUTO_FD int fd = SD_LISTEN_FDS_START + i;
		int r = strcmp(names[i], GM_KEEPER_STORE_NAME) == 0
				? gm_keeper_store_take(fd, keeper_take_one, keeper)
				: 0;
		if (r < 0)
			result = r;
		free(names[i]);
	}
	free(names);
	if (n > 0)
		gm_keeper_store_forget();
	return n < 0 ? n : result;
}

void gm_keeper_tell_ready(void)
{
	(void)sd_notify(0, "READY=1");
}

void gm_keeper_tell_failed(const char *why)
{
	char text[512];

	snprintf(text, sizeof(text), "STATUS=%.480s", why);
	if (sd_notify(0, text) > 0)
		(void)sd_notify_barrier(0, KEEPER_TOLD_US);
}
