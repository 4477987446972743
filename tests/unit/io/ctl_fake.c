/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * The scripted daemon of gpumemctl's tests. Its thread never asserts: it notes what was wrong, and
 * gm_fake_stop() fails the test with it.
 */

#include <check.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/wire/seqpacket.h"
#include "tests/scratch.h"
#include "tests/unit/io/ctl_fake.h"

static void note(struct gm_fake *fake, const char *what, int error)
{
	if (!*fake->error)
		snprintf(fake->error, sizeof(fake->error), "%s: %s", what, strerror(error));
}

static void *play(void *user)
{
	struct gm_fake *fake = user;

	fake->socket = accept4(fake->listener, NULL, NULL, SOCK_CLOEXEC);
	if (fake->socket < 0)
		note(fake, "accept", errno);
	else
		fake->script(fake, fake->user);
	if (fake->socket >= 0)
		close(fake->socket);
	return NULL;
}

void gm_fake_start(struct gm_fake *fake, gm_fake_script script, void *user)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	memset(fake, 0, sizeof(*fake));
	fake->script = script;
	fake->user = user;
	gm_wire_arena_init(&fake->arena);
	gm_scratch_folder(fake->folder, sizeof(fake->folder));
	snprintf(fake->path, sizeof(fake->path), "%s/socket", fake->folder);
	strcpy(address.sun_path, fake->path);
	fake->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	ck_assert_int_ge(fake->listener, 0);
	ck_assert_int_eq(bind(fake->listener, (struct sockaddr *)&address, sizeof(address)), 0);
	ck_assert_int_eq(listen(fake->listener, 1), 0);
	ck_assert_int_eq(pthread_create(&fake->thread, NULL, play, fake), 0);
}

void gm_fake_stop(struct gm_fake *fake)
{
	pthread_join(fake->thread, NULL);
	close(fake->listener);
	unlink(fake->path);
	gm_wire_arena_deinit(&fake->arena);
	ck_assert_msg(!*fake->error, "against the script: %s", fake->error);
}

static int wait_for(struct gm_fake *fake, short events)
{
	struct pollfd pollfd = {.fd = fake->socket, .events = events};
	int n;

	do
		n = poll(&pollfd, 1, 20000);
	while (n < 0 && errno == EINTR);
	return n > 0 ? 0 : -ETIMEDOUT;
}

const Gm__Wire__Packet *gm_fake_expect(struct gm_fake *fake, Gm__Wire__Packet__BodyCase body)
{
	struct gm_conn_packet in;
	Gm__Wire__Packet *packet;
	int r;

	do {
		r = wait_for(fake, POLLIN);
		if (r == 0)
			r = gm_seqpacket_receive(
				fake->socket, fake->bytes, sizeof(fake->bytes), &in);
	} while (r == -EAGAIN);
	if (r < 0) {
		note(fake, "awaiting a request", -r);
		return NULL;
	}
	if (in.fds.n)
		note(fake, "a client sent file descriptors", EPROTO);
	gm_fdlist_deinit(&in.fds);
	r = gm_wire_unpack(&fake->arena, fake->bytes, in.n, &packet);
	if (r != 0) {
		note(fake, "a request that cannot be read", -r);
		return NULL;
	}
	if (packet->body_case != body || packet->id == 0) {
		note(fake, "another request than the script has", EPROTO);
		return NULL;
	}
	return packet;
}

void gm_fake_send_bytes(struct gm_fake *fake, const void *bytes, size_t n)
{
	int r;

	do {
		r = wait_for(fake, POLLOUT);
		if (r == 0)
			r = gm_seqpacket_send(fake->socket, bytes, n, NULL, 0);
	} while (r == -EAGAIN);
	/* That the client has had enough is its right. */
	if (r < 0 && r != -EPIPE)
		note(fake, "sending", -r);
}

void gm_fake_send(struct gm_fake *fake, Gm__Wire__Packet *packet)
{
	size_t n;

	packet->sequence = ++fake->sequence;
	packet->generation = 1;
	int r = gm_wire_pack(packet, fake->bytes, sizeof(fake->bytes), &n);
	if (r < 0)
		note(fake, "packing", -r);
	else
		gm_fake_send_bytes(fake, fake->bytes, n);
}

bool gm_fake_hello(struct gm_fake *fake)
{
	const Gm__Wire__Packet *request = gm_fake_expect(fake, GM__WIRE__PACKET__BODY_HELLO);
	Gm__Wire__HelloReply reply = GM__WIRE__HELLO_REPLY__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;

	if (!request)
		return false;
	if (!request->hello->observer)
		note(fake, "gpumemctl did not come as an observer", EPROTO);
	reply.major = GM_WIRE_MAJOR;
	reply.minor = GM_WIRE_MINOR + 7; /* a newer minor is fine */
	reply.version = (char *)"9.8.7";
	packet.id = request->id;
	packet.body_case = GM__WIRE__PACKET__BODY_HELLO_REPLY;
	packet.hello_reply = &reply;
	gm_fake_send(fake, &packet);
	return true;
}

void gm_fake_wait_end(struct gm_fake *fake)
{
	struct gm_conn_packet in;
	int r;

	do {
		r = wait_for(fake, POLLIN);
		if (r == 0) {
			r = gm_seqpacket_receive(
				fake->socket, fake->bytes, sizeof(fake->bytes), &in);
			if (r == 0)
				gm_fdlist_deinit(&in.fds);
		}
	} while (r == 0 || r == -EAGAIN);
	if (r != -EPIPE)
		note(fake, "the client did not close", -r);
}
