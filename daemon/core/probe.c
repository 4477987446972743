/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looks: see look.h. It promises that a look which ended began after it was wanted, and that no
 * device has two under way. It must never decide about a request: it only wakes the queue.
 */
#include "daemon/core/hash_table.h"
#include "daemon/core/probe.h"

#include <assert.h>

#include "daemon/core/core_private.h"
#include "daemon/core/session.h"

bool gm_look_helps(const struct gm_device *device, const struct gm_session *session, uint64_t bytes)
{
	const struct gm_ledger *ledger = &device->ledger;
	const struct gm_account *account = &session->accounts[device->number];
	if (ledger->foreign == 0 || !device->core->ops.look)
		return false;
	return gm_ledger_charged(ledger) + gm_ledger_kept_from(ledger, account) + bytes <=
	       gm_device_capacity(device);
}

static void look_begin(struct gm_device *device)
{
	struct gm_core *core = device->core;
	device->look.begun++;
	core->ops.look(core->ctx, device->number);
}

uint64_t gm_look_want(struct gm_device *device)
{
	struct gm_look *look = &device->look;
	look->wanted = look->begun + 1;
	if (look->told == look->begun)
		look_begin(device);
	return look->wanted;
}

bool gm_look_over(const struct gm_device *device, uint64_t number)
{
	return number <= device->look.told;
}

void gm_look_told(struct gm_device *device)
{
	struct gm_look *look = &device->look;
	if (look->told == look->begun)
		return;
	look->told = look->begun;
	look->told_ns = gm_device_now(device);
	if (look->wanted > look->begun)
		look_begin(device);
	if (device->queue.length > 0)
		device->core->woken = device->queue.woken = true;
}

uint64_t gm_look_again(struct gm_device *device, uint64_t now)
{
	const struct gm_look *look = &device->look;
	if (look->told != look->begun)
		return UINT64_MAX;
	if (now < look->told_ns + GM_LOOK_NS)
		return look->told_ns + GM_LOOK_NS;
	gm_look_want(device);
	return UINT64_MAX;
}
