/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_FAKE_DAEMON_H
#define GM_TESTS_FAKE_DAEMON_H

#include <stdbool.h>
#include <stdint.h>

#include "common/wire/page.h"
#include "gpumem/status.h"

/*
 * A gpumemd in a thread of a test: real sockets, real memfds, real pages, and a will of its own.
 * It keeps the books of one client at a time and does what it is told to do wrong.
 */
struct fake;

struct fake *fake_start(void);
void fake_stop(struct fake *fake);
const char *fake_path(const struct fake *fake);

/* What it does wrong, from the next request on. */
struct fake_will {
	uint32_t major, minor; /* of its hello reply */
	gpumem_status refuse;  /* every hello */
	unsigned turn_away;    /* so many connections are refused before their hello is read */
	bool mute_hello;       /* never answers one */
	bool nonsense_hello;   /* answers it with something else */
	bool forget;           /* knows no session any more: a resume gets a new one */
	int hold;      /* requests of this body are answered when the will changes, not before */
	int drop;      /* a request of this body is carried out, then the connection is closed */
	int die;       /* a request of this body is not carried out, and the connection is closed */
	int half;      /* a request of this body is carried out, and the first packet of the answer,
		       * with one chunk, is all that is sent before the connection is closed */
	bool repeats;  /* knows a Lease or Grow again by its id, and grants nothing twice */
	int fail;      /* a request of this body is refused with GPUMEM_E_NO_MEMORY */
	int fail_once; /* the first request of this body is refused so */
	unsigned cut;  /* so many answers announce more handles than they bring */
	bool loses;    /* then they bring none */
	bool twice;    /* answers list their last chunk twice, under an index of its own */
	uint32_t per_packet; /* chunks in one packet of an answer; 0: as many as fit */
	bool signals;        /* says that leases have signals */
	int control;         /* and that this is their control block; 0: does not send one */
	int whose;           /* what it says of a name of this process's user */
};
void fake_will(struct fake *fake, const struct fake_will *will);

/* Closes every connection and listens no more, or again. */
void fake_away(struct fake *fake);
void fake_back(struct fake *fake);
/* Closes every connection, and listens on. */
void fake_hang_up(struct fake *fake);

/* How many requests of a body came so far; waits until it is at least so many. */
unsigned fake_seen(struct fake *fake, int body);
void fake_wait_seen(struct fake *fake, int body, unsigned n);
/* Leases and chunks in its books; waits until that many leases are left. */
unsigned fake_leases(struct fake *fake);
unsigned fake_chunks(struct fake *fake);
void fake_wait_leases(struct fake *fake, unsigned n);
/* Until no client is connected any more. */
void fake_wait_idle(struct fake *fake);
/* The most leases that were in its books at a time, since the call before. */
unsigned fake_most_leases(struct fake *fake);
/* How many requests had an id that an earlier one had. */
unsigned fake_repeated(struct fake *fake);
/* Puts a lease into the books that no client asked for. */
void fake_add_lease(struct fake *fake, uint64_t bytes);

/* Figures in the daemon's page of the last client; events on its channel. */
void fake_pressure(struct fake *fake, uint32_t device, uint32_t ppm, uint32_t level);
/* What its page says the client could get. */
void fake_room(struct fake *fake, uint32_t device, uint64_t room);
void fake_send_pressure(struct fake *fake, uint32_t device, uint32_t ppm, uint32_t level);
void fake_send_reclaim(struct fake *fake, uint32_t device, bool urgent, uint64_t bytes);
void fake_send_goodbye(struct fake *fake, const char *reason);
/* The client's page, as the daemon sees it. */
void fake_read_use(struct fake *fake, uint32_t device, struct gm_page_use *ret);
void fake_read_row(struct fake *fake, uint32_t row, struct gm_page_row *ret);

#endif
