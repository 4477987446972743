/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_FAKE_DAEMON_IMPL_H
#define GM_TESTS_FAKE_DAEMON_IMPL_H

#include <pthread.h>

#include "common/bounds.h"
#include "common/wire/wire.h"
#include "tests/unit/session/fake_books.h"
#include "tests/unit/session/fake_daemon.h"

/* The fake daemon from inside: its server (fake_daemon.c) and its answers (fake_answer.c). */

#define FAKE_CONNS  16
#define FAKE_BODIES 128

struct fake_held;

struct fake {
	char dir[64], path[96];
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	int listener, wake;
	int conns[FAKE_CONNS];
	int wakeups[FAKE_CONNS];
	bool stop;
	struct fake_will will;
	struct fake_held *held;
	unsigned seen[FAKE_BODIES];
	uint64_t *ids; /* of all requests of its client */
	size_t n_ids;
	unsigned repeated;
	struct gm_wire_arena arena;
	uint8_t packet[GM_BOUND_PACKET_BYTES], out[GM_BOUND_PACKET_BYTES];
	/* its client */
	uint64_t session;
	uint8_t token[GM_TOKEN_BYTES];
	int wakeup;        /* of the client that came last: one of the above */
	uint64_t sequence; /* of the last event */
	int client_page;
	struct gm_page_daemon *page;
	struct fake_books books;
};

/* Locked, all of them. Carries a request out and sends the answer; fd -1: it leads nowhere. half:
 * only its first packet is sent. */
void fake_answer(struct fake *fake, int fd, const Gm__Wire__Packet *packet, bool half);
void fake_answer_refuse(
	struct fake *fake, int fd, uint64_t id, gpumem_status status, const char *detail);
/* A packet of its own accord. */
void fake_answer_send(
	struct fake *fake, int fd, Gm__Wire__Packet *packet, const int *fds, size_t n);

#endif
