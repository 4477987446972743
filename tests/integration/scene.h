/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_INTEGRATION_SCENE_H
#define GM_TESTS_INTEGRATION_SCENE_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/integration/raw.h"

/*
 * What most tests of a shortage begin with: a daemon, two clients of this process and an observer,
 * and what they say to the daemon when memory is short. What fails here that has nothing to do with
 * the daemon's answer fails the test.
 */
struct gm_scene {
	struct gm_daemon daemon;
	struct gm_raw a, b, ctl;
};

/* config: NULL is GM_DAEMON_CONFIG. */
void gm_scene_start(struct gm_scene *scene, const char *config);
void gm_scene_start_with(struct gm_scene *scene, const struct gm_daemon_options *options);
/* The daemon must end cleanly. */
void gm_scene_stop(struct gm_scene *scene);
bool gm_scene_logged(const struct gm_scene *scene, const char *text);

/* A lease on device 0 that is kept by its id alone; ret_id may be NULL. */
gpumem_status gm_scene_lease(struct gm_raw *raw, uint64_t bytes, uint64_t *ret_id);
void gm_scene_give(struct gm_raw *raw, uint64_t lease);
/* Asks for a lease that waits, and does not wait for the answer. The request's id. */
uint64_t gm_scene_ask(struct gm_raw *raw, uint64_t bytes, uint64_t wait_ms);
/* The answer to that; of a lease all of it. ret_lease may be NULL. */
gpumem_status gm_scene_answer(struct gm_raw *raw, uint64_t id, uint64_t *ret_lease);
const Gm__Wire__QueueReply *gm_scene_queue(struct gm_scene *scene);

/* Limits. set: a bit each for max, guarantee, priority. */
gpumem_status gm_scene_set_limit(struct gm_scene *scene, const char *owner, uint32_t set,
	uint64_t max, uint64_t guarantee, int32_t priority);
gpumem_status gm_scene_reset_limit(struct gm_scene *scene, const char *owner);
/* The limit of an owner, as it is shown. NULL: none. Good until the next packet. */
const Gm__Wire__Limit *gm_scene_limit(struct gm_scene *scene, const char *owner);
/* Names of owners: this process's user, and a client. Good until they are asked for again (twice,
 * of clients). */
const char *gm_scene_uid(void);
const char *gm_scene_session(const struct gm_raw *raw);

/* Says in its page that so much of what it holds is not in use. */
void gm_scene_claim_cached(struct gm_raw *raw, uint64_t bytes);
/* Waits until it is asked for memory: raw->packet. */
void gm_scene_await_reclaim(struct gm_raw *raw);

#endif
