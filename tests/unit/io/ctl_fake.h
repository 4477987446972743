/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_CTL_FAKE_H
#define GM_TESTS_CTL_FAKE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/wire/wire.h"

/*
 * A daemon that says what a test tells it to: a listening socket in a folder of its own, and a
 * thread that plays one script to the first who connects.
 */

struct gm_fake;
typedef void (*gm_fake_script)(struct gm_fake *fake, void *user);

struct gm_fake {
	char folder[64];
	char path[96];
	int listener, socket;
	pthread_t thread;
	gm_fake_script script;
	void *user;
	uint64_t sequence;
	struct gm_wire_arena arena;
	uint8_t bytes[GM_BOUND_PACKET_BYTES];
	char error[256]; /* what went against the script; "" if nothing did */
};

/* Ends the test if it cannot. */
void gm_fake_start(struct gm_fake *fake, gm_fake_script script, void *user);
/* Waits for the script's end; fails the test if the client did not keep to the script. */
void gm_fake_stop(struct gm_fake *fake);

/* For scripts. The next request, which must be of this kind; NULL: it was not. */
const Gm__Wire__Packet *gm_fake_expect(struct gm_fake *fake, Gm__Wire__Packet__BodyCase body);
/* Sends it with the next sequence number. */
void gm_fake_send(struct gm_fake *fake, Gm__Wire__Packet *packet);
void gm_fake_send_bytes(struct gm_fake *fake, const void *bytes, size_t n);
/* Takes a hello and answers it. false: there was none. */
bool gm_fake_hello(struct gm_fake *fake);
/* Waits until the client has closed its end. */
void gm_fake_wait_end(struct gm_fake *fake);

#endif
