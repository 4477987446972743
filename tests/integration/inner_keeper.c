/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

#include "tests/integration/inner_keeper.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/wire/seqpacket.h"
#include "tests/integration/harness.h"

void gm_inner_keeper_open(struct gm_inner_keeper *keeper, const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	*keeper = (struct gm_inner_keeper){.daemon = -1};
	GM_REQUIRE((size_t)snprintf(keeper->path, sizeof(keeper->path), "%s", path) <
		   sizeof(address.sun_path));
	snprintf(address.sun_path, sizeof(address.sun_path), "%.107s", path);
	keeper->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	GM_REQUIRE(keeper->listener >= 0);
	GM_REQUIRE(bind(keeper->listener, (struct sockaddr *)&address, sizeof(address)) == 0);
	GM_REQUIRE(listen(keeper->listener, 4) == 0);
}

static struct gm_inner_item *inner_find(struct gm_inner_keeper *keeper, uint64_t kind, uint64_t id)
{
	for (size_t i = 0; i < keeper->n; i++)
		if (keeper->items[i].kind == kind && keeper->items[i].id == id)
			return &keeper->items[i];
	return NULL;
}

const struct gm_inner_item *gm_inner_keeper_find(
	const struct gm_inner_keeper *keeper, uint64_t kind, uint64_t id)
{
	return inner_find((struct gm_inner_keeper *)keeper, kind, id);
}

static void inner_forget(struct gm_inner_keeper *keeper, struct gm_inner_item *item)
{
	if (!item)
		return;
	close(item->fd);
	*item = keeper->items[--keeper->n];
	keeper->changes++;
}

static void inner_put(struct gm_inner_keeper *keeper, uint64_t kind, uint64_t id, int fd)
{
	struct stat st;
	GM_REQUIRE(fd >= 0 && fstat(fd, &st) == 0);
	inner_forget(keeper, inner_find(keeper, kind, id));
	GM_REQUIRE(keeper->n < GM_INNER_ITEMS);
	keeper->items[keeper->n++] = (struct gm_inner_item){.kind = kind,
		.id = id,
		.fd = fd,
		.inode = st.st_ino,
		.bytes = (uint64_t)st.st_size};
	keeper->changes++;
}

static void inner_say(struct gm_inner_keeper *keeper, struct gm_keeper_message message)
{
	GM_REQUIRE_EQ(gm_seqpacket_send(keeper->daemon, &message, sizeof(message), NULL, 0), 0);
}

static void inner_take(struct gm_inner_keeper *keeper, const struct gm_keeper_message *message,
	struct gm_conn_packet *packet)
{
	switch (message->verb) {
	case GM_KEEPER_HELLO:
		GM_REQUIRE_EQ(keeper->n, 0);
		inner_say(keeper, (struct gm_keeper_message){.verb = GM_KEEPER_WELCOME,
					  .id = GM_INNER_ITEMS,
					  .value = GM_KEEPER_VERSION});
		inner_say(keeper, (struct gm_keeper_message){.verb = GM_KEEPER_DONE});
		break;
	case GM_KEEPER_DEPOSIT:
		inner_put(keeper, message->kind, message->id, gm_fdlist_steal(&packet->fds, 0));
		break;
	case GM_KEEPER_CLOSE:
		inner_forget(keeper, inner_find(keeper, message->kind, message->id));
		inner_say(keeper, (struct gm_keeper_message){.verb = GM_KEEPER_CLOSED,
					  .kind = message->kind,
					  .id = message->id});
		break;
	case GM_KEEPER_END:
		while (keeper->n > 0)
			inner_forget(keeper, &keeper->items[keeper->n - 1]);
		break;
	default:
		GM_FAIL("the daemon sent its keeper the verb %u", (unsigned)message->verb);
	}
}

void gm_inner_keeper_serve(struct gm_inner_keeper *keeper)
{
	if (keeper->daemon < 0)
		keeper->daemon =
			accept4(keeper->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	while (keeper->daemon >= 0) {
		struct gm_keeper_message message = {0};
		struct gm_conn_packet packet;
		int r = gm_seqpacket_receive(keeper->daemon, &message, sizeof(message), &packet);
		if (r == -EAGAIN)
			return;
		if (r < 0) {
			close(keeper->daemon);
			keeper->daemon = -1;
			return;
		}
		GM_REQUIRE_EQ(packet.n, sizeof(message));
		inner_take(keeper, &message, &packet);
		gm_fdlist_deinit(&packet.fds);
	}
}

static void *inner_run(void *argument)
{
	struct gm_inner_keeper *keeper = argument;
	for (;;) {
		struct pollfd fds[] = {{.fd = keeper->stop, .events = POLLIN},
			{.fd = keeper->daemon < 0 ? keeper->listener : keeper->daemon,
				.events = POLLIN}};
		GM_REQUIRE(poll(fds, 2, -1) > 0);
		if (fds[0].revents)
			return NULL;
		gm_inner_keeper_serve(keeper);
	}
}

void gm_inner_keeper_begin(struct gm_inner_keeper *keeper)
{
	keeper->stop = eventfd(0, EFD_CLOEXEC);
	GM_REQUIRE(keeper->stop >= 0);
	GM_REQUIRE_EQ(pthread_create(&keeper->thread, NULL, inner_run, keeper), 0);
}

void gm_inner_keeper_end(struct gm_inner_keeper *keeper)
{
	GM_REQUIRE(eventfd_write(keeper->stop, 1) == 0);
	GM_REQUIRE_EQ(pthread_join(keeper->thread, NULL), 0);
	close(keeper->stop);
}

void gm_inner_keeper_close(struct gm_inner_keeper *keeper)
{
	while (keeper->n > 0)
		inner_forget(keeper, &keeper->items[keeper->n - 1]);
	if (keeper->daemon >= 0)
		close(keeper->daemon);
	close(keeper->listener);
	unlink(keeper->path);
}
