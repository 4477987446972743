/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/* A daemon, two clients and an observer: see scene.h. It must never wait for time. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/wire/page.h"
#include "tests/integration/scene.h"

void gm_scene_start(struct gm_scene *scene, const char *config)
{
	gm_scene_start_with(scene, &(struct gm_daemon_options){.config = config});
}

void gm_scene_start_with(struct gm_scene *scene, const struct gm_daemon_options *options)
{
	gm_daemon_start(&scene->daemon, options);
	gm_raw_join(&scene->a, &scene->daemon);
	gm_raw_join(&scene->b, &scene->daemon);
	gm_raw_observe(&scene->ctl, &scene->daemon);
}

void gm_scene_stop(struct gm_scene *scene)
{
	gm_raw_close(&scene->a);
	gm_raw_close(&scene->b);
	gm_raw_close(&scene->ctl);
	gm_daemon_stop(&scene->daemon);
}

gpumem_status gm_scene_lease(struct gm_raw *raw, uint64_t bytes, uint64_t *ret_id)
{
	struct gm_raw_lease got;
	gpumem_status status = gm_raw_lease(raw, 0, bytes, &got);
	if (status == GPUMEM_OK) {
		if (ret_id)
			*ret_id = got.id;
		gm_raw_lease_clear(&got);
	}
	return status;
}

void gm_scene_give(struct gm_raw *raw, uint64_t id)
{
	GM_REQUIRE_EQ(gm_raw_return(raw, id, NULL, 0), GPUMEM_OK);
}

uint64_t gm_scene_ask(struct gm_raw *raw, uint64_t bytes, uint64_t wait_ms)
{
	Gm__Wire__Lease body = GM__WIRE__LEASE__INIT;
	body.bytes = bytes;
	body.wait_ms = wait_ms;
	return gm_raw_send(raw, GM_RAW_PACKET(LEASE, lease, &body));
}

gpumem_status gm_scene_answer(struct gm_raw *raw, uint64_t id, uint64_t *ret_lease)
{
	GM_REQUIRE(gm_raw_receive(raw));
	GM_REQUIRE_EQ(raw->packet->id, id);
	if (raw->packet->body_case == GM__WIRE__PACKET__BODY_FAILURE)
		return (gpumem_status)raw->packet->failure->status;
	struct gm_raw_lease got = {0};
	GM_REQUIRE_EQ(raw->packet->body_case, GM__WIRE__PACKET__BODY_LEASE_REPLY);
	uint64_t lease_id = raw->packet->lease_reply->lease;
	GM_REQUIRE_EQ(gm_raw_collect(raw, &got), GPUMEM_OK);
	gm_raw_lease_clear(&got);
	if (ret_lease)
		*ret_lease = lease_id;
	return GPUMEM_OK;
}

gpumem_status gm_scene_set_limit(struct gm_scene *scene, const char *owner, uint32_t set,
	uint64_t max, uint64_t guarantee, int32_t priority)
{
	Gm__Wire__SetLimit body = GM__WIRE__SET_LIMIT__INIT;
	body.owner = (char *)owner;
	body.all_devices = true;
	body.set = set;
	body.max = max;
	body.guarantee = guarantee;
	body.priority = priority;
	return gm_raw_call(&scene->ctl, GM_RAW_PACKET(SET_LIMIT, set_limit, &body));
}

gpumem_status gm_scene_reset_limit(struct gm_scene *scene, const char *owner)
{
	Gm__Wire__ResetLimit body = GM__WIRE__RESET_LIMIT__INIT;
	body.owner = (char *)owner;
	body.all_devices = true;
	return gm_raw_call(&scene->ctl, GM_RAW_PACKET(RESET_LIMIT, reset_limit, &body));
}

const Gm__Wire__Limit *gm_scene_limit(struct gm_scene *scene, const char *owner)
{
	Gm__Wire__GetLimits body = GM__WIRE__GET_LIMITS__INIT;
	GM_REQUIRE_EQ(
		gm_raw_call(&scene->ctl, GM_RAW_PACKET(GET_LIMITS, get_limits, &body)), GPUMEM_OK);
	GM_REQUIRE_EQ(scene->ctl.packet->body_case, GM__WIRE__PACKET__BODY_LIMITS);
	for (size_t i = 0; i < scene->ctl.packet->limits->n_limits; i++)
		if (!strcmp(scene->ctl.packet->limits->limits[i]->owner, owner))
			return scene->ctl.packet->limits->limits[i];
	return NULL;
}

const Gm__Wire__QueueReply *gm_scene_queue(struct gm_scene *scene)
{
	Gm__Wire__GetQueue body = GM__WIRE__GET_QUEUE__INIT;
	GM_REQUIRE_EQ(
		gm_raw_call(&scene->ctl, GM_RAW_PACKET(GET_QUEUE, get_queue, &body)), GPUMEM_OK);
	GM_REQUIRE_EQ(scene->ctl.packet->body_case, GM__WIRE__PACKET__BODY_QUEUE);
	return scene->ctl.packet->queue;
}

bool gm_scene_logged(const struct gm_scene *scene, const char *text)
{
	return gm_daemon_said(&scene->daemon, text) > 0;
}

const char *gm_scene_uid(void)
{
	static char text[32];
	snprintf(text, sizeof(text), "uid:%u", getuid());
	return text;
}

const char *gm_scene_session(const struct gm_raw *raw)
{
	static char text[2][48];
	static int turn;
	turn = !turn;
	snprintf(text[turn], sizeof(text[0]), "session:%llu", (unsigned long long)raw->session);
	return text[turn];
}

void gm_scene_claim_cached(struct gm_raw *raw, uint64_t bytes)
{
	struct gm_page_use use = {.cached = bytes};
	GM_REQUIRE_EQ(
		pwrite(raw->client_page, &use, sizeof(use), offsetof(struct gm_page_client, use)),
		(long long)sizeof(use));
}

void gm_scene_await_reclaim(struct gm_raw *raw)
{
	do
		GM_REQUIRE(gm_raw_receive_event(raw));
	while (raw->event.kind != GM_PAGE_EVENT_RECLAIM);
}
