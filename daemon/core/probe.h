/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CORE_LOOK_H
#define GM_CORE_LOOK_H

#include <stdbool.h>
#include <stdint.h>

/*
 * A fresh look at what is foreign on a device, for a request that does not fit.
 *
 * What is foreign is known from samples. A sample is right for the moment in which it was taken:
 * the device's thread takes it between two jobs, and it is told in its place among them, so that
 * what is ours is subtracted as it was in that moment and our own creations and destructions never
 * look like somebody else's. But it grows old: a program ends, a client's context goes with it,
 * whoever still mapped what we destroyed lets go of it, and memory that is free counts as foreign
 * until the next sample. The other way round the backend says so, by being out of memory.
 *
 * So whoever lacks room on the device and would have it if nothing were foreign is not judged by a
 * figure that is older than the request. It is held in the queue, in its place, while the thread
 * looks: no client is asked for memory on its behalf and nobody is told that it waits. Who was
 * asked in vain is looked after once more before the refusal. And while such a request waits, the
 * device is looked at every GM_LOOK_NS. A request's time is kept all the same: if the look does not
 * end before that, what is known decides.
 *
 * At most one look of a device is under way; those who come meanwhile share the one after it.
 * Without gm_core_ops.look, and where nothing is foreign, nothing of this happens.
 */

#define GM_LOOK_NS UINT64_C(20000000)

struct gm_device;
struct gm_session;

struct gm_look {
	uint64_t begun;   /* looks, numbered from 1 */
	uint64_t told;    /* the last one whose end was told: begun, or the one before */
	uint64_t wanted;  /* the last one that somebody waits for */
	uint64_t told_ns; /* when it was */
};

/* Whether less foreign memory could make so many bytes fit for this session. */
bool gm_look_helps(
	const struct gm_device *device, const struct gm_session *session, uint64_t bytes);
/* Wants a look that begins after this call: its number, never 0. */
uint64_t gm_look_want(struct gm_device *device);
bool gm_look_over(const struct gm_device *device, uint64_t number);
/* The one under way ended, if there is one; what it saw was told before. */
void gm_look_told(struct gm_device *device);
/* Somebody waits for what is foreign: looks again when it is time. When that is; UINT64_MAX: one is
 * under way. */
uint64_t gm_look_again(struct gm_device *device, uint64_t now);

#endif
