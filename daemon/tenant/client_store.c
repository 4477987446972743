/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/tenant/client_store.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "common/step.h"

static int client_store_read_boot(uint8_t boot[GM_RECORD_BOOT_BYTES])
{
	char text[64];
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	ssize_t n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return n < 0 ? -errno : -EIO;

	text[n] = '\0';
	size_t digits = 0;
	memset(boot, 0, GM_RECORD_BOOT_BYTES);
	for (const char *at = text; *at && digits < 2 * GM_RECORD_BOOT_BYTES; at++) {
		static const char hex[] = "0123456789abcdef";
		const char *place = strchr(hex, *at);
		if (!place)
			continue;
		unsigned digit = (unsigned)(place - hex);
		boot[digits / 2] |= (uint8_t)(digits % 2 ? digit : digit << 4);
		digits++;
	}
	return digits == 2 * GM_RECORD_BOOT_BYTES ? 0 : -EBADMSG;
}

int gm_clients_set_store(
	struct gm_clients *clients, const struct gm_clients_store *store, void *ctx)
{
	int r = client_store_read_boot(clients->boot);
	if (r < 0)
		return r;
	clients->store = store;
	clients->keep_ctx = ctx;
	return 0;
}

bool gm_client_store_fd(const struct gm_client *client, enum gm_store_kind kind, int fd)
{
	const struct gm_clients *clients = client->clients;
	if (!clients->store)
		return true;
	if (fd >= 0)
		return clients->store->deposit(clients->keep_ctx, kind, client->id, fd);
	clients->store->withdraw(clients->keep_ctx, kind, client->id);
	return true;
}

void gm_client_unstore(const struct gm_clients *clients, uint64_t id)
{
	if (!clients->store)
		return;
	clients->store->withdraw(clients->keep_ctx, GM_STORE_PROCESS, id);
	GM_STEP("end: process withdrawn");
	clients->store->withdraw(clients->keep_ctx, GM_STORE_PAGE, id);
	clients->store->withdraw(clients->keep_ctx, GM_STORE_FORMER, id);
}
