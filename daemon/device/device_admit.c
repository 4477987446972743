/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Admission: the one place that knows why a request cannot have memory. It promises that the ledger
 * agrees when it says yes, and that its refusal names the cause with its figures, and the remedy.
 * It must never change anything but the highest priority, which it caches.
 */
#include "daemon/device/device_admit.h"

#include "common/arith.h"
#include "common/text/uid_name.h"
#include "common/text/units.h"
#include "daemon/device/limit_private.h"

#include <stdio.h>
#include <string.h>

/* Room for " (... too much)". */
#define EXCESS_TEXT    (GM_UNITS_TEXT + 16)
#define FOREIGNER_TEXT 96

/* The highest priority of all payers on a device; INT32_MIN: there is none. */
static int32_t device_admit_top_priority(struct gm_device *device)
{
	if (!device->top_stale)
		return device->top_priority;

	device->top_stale = false;
	device->top_priority = INT32_MIN;
	/* Most have the same one, so that this is soon over. */
	for (const struct gm_account_payer *p = device->env->payers;
		p && device->top_priority < device->top_most; p = p->hh.next)
		if (!p->ending && p->session &&
			p->accounts[device->number].priority > device->top_priority)
			device->top_priority = p->accounts[device->number].priority;
	device->top_most = device->top_priority;
	return device->top_priority;
}

/* While pressure is critical, only the highest priority gets anything new. */
static bool device_admit_held_back(struct gm_device *device, const struct gm_account *account)
{
	return account->priority < device->top_most &&
	       gm_device_level_now(device) == GM_PRESSURE_LEVEL_CRITICAL &&
	       account->priority < device_admit_top_priority(device);
}

bool gm_device_admit_now(struct gm_device *device, const struct gm_account *account, uint64_t bytes,
	struct gm_request_refusal *ret)
{
	const struct gm_ledger *ledger = &device->ledger;
	uint64_t ceiling = gm_device_ceiling(device);
	bool fits = bytes <= gm_ledger_room(ledger, account, ceiling);
	if (fits && !device->drain.on && !device_admit_held_back(device, account))
		return true;

	*ret = (struct gm_request_refusal){0};
	if (device->drain.on) {
		ret->block = GM_BLOCK_DRAIN;
		return false;
	}
	for (unsigned i = 0; i < account->n_tallies && !ret->tally; i++)
		if (bytes > gm_u64_minus(account->tallies[i]->max, account->tallies[i]->held))
			ret->tally = account->tallies[i];
	if (ret->tally)
		ret->block = GM_BLOCK_LIMIT;
	else if (fits || device_admit_held_back(device, account))
		ret->block = GM_BLOCK_CRITICAL;
	else if (bytes > gm_policy_available(ceiling, gm_ledger_charged(ledger)))
		ret->block = GM_BLOCK_DEVICE;
	else
		ret->block = GM_BLOCK_GUARANTEE;
	return false;
}

/* All that is guaranteed to owners other than the account's. */
static uint64_t device_admit_kept_for_others(
	const struct gm_device *device, const struct gm_account *account)
{
	uint64_t own = account->guaranteed ? account->guaranteed->guarantee : 0;
	return device->guaranteed - own;
}

bool gm_device_admit_ever(const struct gm_device *device, const struct gm_account *account,
	uint64_t bytes, struct gm_request_refusal *ret)
{
	/* Nobody knows how long a drain lasts. And a holder that waited for more would keep the device
	 * from becoming empty. */
	if (device->drain.on) {
		*ret = (struct gm_request_refusal){.block = GM_BLOCK_DRAIN, .never = true};
		return false;
	}

	for (unsigned i = 0; i < account->n_tallies; i++) {
		if (bytes <= account->tallies[i]->max)
			continue;
		*ret = (struct gm_request_refusal){
			.block = GM_BLOCK_LIMIT, .tally = account->tallies[i], .never = true};
		return false;
	}

	uint64_t capacity = gm_device_capacity(device);
	if (bytes <= gm_u64_minus(capacity, device_admit_kept_for_others(device, account)))
		return true;
	*ret = (struct gm_request_refusal){
		.block = bytes > capacity ? GM_BLOCK_DEVICE : GM_BLOCK_GUARANTEE, .never = true};
	return false;
}

uint64_t gm_device_admit_most(const struct gm_device *device, const struct gm_account *account)
{
	uint64_t most = gm_u64_minus(
		gm_device_capacity(device), device_admit_kept_for_others(device, account));

	for (unsigned i = 0; i < account->n_tallies; i++)
		most = gm_u64_min(most, account->tallies[i]->max);
	return most - most % GM_CHUNK_MIN;
}

uint64_t gm_device_admit_missing(const struct gm_device *device, const struct gm_account *account,
	uint64_t bytes, const struct gm_request_refusal *refusal)
{
	const struct gm_ledger *ledger = &device->ledger;
	if (refusal->block == GM_BLOCK_LIMIT)
		return gm_u64_minus(bytes, gm_u64_minus(refusal->tally->max, refusal->tally->held));
	/* Charges may be past the ceiling if foreign memory took room. That must come back, too.
	 */
	uint64_t taken = gm_ledger_charged(ledger) + gm_ledger_kept_from(ledger, account);
	return gm_u64_minus(taken + bytes, gm_device_ceiling(device));
}

/* Names the owner of a limit. If that is a user who pays for a process with another uid, says so:
 * people look for that uid in vain among the limits. */
static const char *device_admit_say_owner(const struct gm_limit *limit,
	const struct gm_account_payer *payer, char text[GM_OWNER_TEXT])
{
	_Static_assert(GM_OWNER_TEXT >= GM_UID_NAME_PAYER_TEXT, "both sentences fit");
	if (gm_limit_owner(limit)->kind == GM_OWNER_UID)
		return gm_uid_name_say_payer(payer->payer_uid, payer->uid, text);
	return gm_limit_say(limit, text);
}

/* Rounded sizes can hide why a request was refused: "4.3G available, asked for 4.3G". If they do, says
 * by how much it is too large, otherwise nothing. */
static const char *device_admit_say_excess(uint64_t bytes, uint64_t most, char text[EXCESS_TEXT])
{
	char asked[GM_UNITS_TEXT], had[GM_UNITS_TEXT], excess[GM_UNITS_TEXT];
	text[0] = '\0';
	if (bytes > most && !strcmp(gm_format_size(bytes, asked), gm_format_size(most, had)))
		snprintf(text, EXCESS_TEXT, " (%s too much)", gm_format_size(bytes - most, excess));
	return text;
}

/* Says who has most of the foreign memory, in parentheses; nothing if that is not known. */
static const char *device_admit_say_foreigner(
	const struct gm_device *device, char text[FOREIGNER_TEXT])
{
	const struct gm_env *env = device->env;
	char who[GM_DETAIL_BYTES];

	text[0] = '\0';
	if (env->ops.foreigner && env->ops.foreigner(env->ctx, device->number, who))
		snprintf(text, FOREIGNER_TEXT, " (%.*s)", FOREIGNER_TEXT - 4, who);
	return text;
}

/* Returns true if another device is large enough for the request. Pinned host memory does not count as a device. */
static bool device_admit_has_other(
	const struct gm_device *device, const struct gm_account_payer *payer, uint64_t bytes)
{
	const struct gm_env *env = device->env;
	struct gm_request_refusal refusal;

	for (uint32_t i = 0; i < env->n_devices; i++)
		if (i != device->number && !env->devices[i].info.pinned &&
			gm_device_admit_ever(
				&env->devices[i], &payer->accounts[i], bytes, &refusal))
			return true;
	return false;
}

gpumem_status gm_device_admit_say(struct gm_device *device, const struct gm_account_payer *payer,
	uint64_t bytes, const struct gm_request_refusal *refusal, char detail[GM_DETAIL_BYTES])
{
	const struct gm_account *account = &payer->accounts[device->number];
	const struct gm_ledger_tally *tally = refusal->tally;
	const char *never = refusal->never ? ", which it can never give" : "";
	uint64_t foreign = device->ledger.foreign;
	uint64_t kept = gm_ledger_kept_from(&device->ledger, account);
	uint64_t of = gm_device_available(device), capacity = gm_device_capacity(device);
	char owner[GM_OWNER_TEXT], a[GM_UNITS_TEXT], b[GM_UNITS_TEXT], c[GM_UNITS_TEXT];
	char asked[GM_UNITS_TEXT], user[GM_UID_NAME_TEXT], excess[EXCESS_TEXT];
	char foreigner[FOREIGNER_TEXT], see[40];
	gm_format_size(bytes, asked);

	switch (refusal->block) {
	case GM_BLOCK_LIMIT:
		device_admit_say_owner(tally->limit, payer, owner);
		return gm_text_refuse(GPUMEM_E_LIMIT, detail,
			"%.100s may hold %s, holds %s, asked for %s%s%s; see gpumemctl limit",
			owner, gm_format_size(tally->max, a), gm_format_size(tally->held, b), asked,
			device_admit_say_excess(bytes,
				refusal->never ? tally->max : gm_u64_minus(tally->max, tally->held),
				excess),
			refusal->never ? ", which it can never have" : "");
	case GM_BLOCK_CRITICAL:
		return gm_text_refuse(GPUMEM_E_NO_MEMORY, detail,
			"device %u is at critical pressure, and priority %d gets nothing new while "
			"there are clients of priority %d, asked for %s; see gpumemctl pressure",
			device->number, account->priority, device_admit_top_priority(device),
			asked);
	case GM_BLOCK_GUARANTEE:
		if (refusal->never) {
			kept = device_admit_kept_for_others(device, account);
			of = capacity;
		}
		return gm_text_refuse(GPUMEM_E_NO_MEMORY, detail,
			"device %u keeps %s of %s for owners with a guarantee, asked for %s%s%s; "
			"see gpumemctl limit",
			device->number, gm_format_size(kept, a), gm_format_size(of, b), asked,
			device_admit_say_excess(bytes, gm_u64_minus(of, kept), excess), never);
	case GM_BLOCK_OVERTAKEN:
		return gm_text_refuse(GPUMEM_E_NO_MEMORY, detail,
			"another request waits for device %u and goes first for a while, asked for "
			"%s; try again, or see gpumemctl queue",
			device->number, asked);
	case GM_BLOCK_DRAIN:
		return gm_text_refuse(GPUMEM_E_NO_MEMORY, detail,
			"device %u is being drained by %s, so nobody gets new memory on it, asked "
			"for %s; %s",
			device->number, gm_uid_name_say(device->drain.uid, user), asked,
			device_admit_has_other(device, payer, bytes)
				? "use another device, or see gpumemctl status"
				: "see gpumemctl status");
	case GM_BLOCK_NONE:
	case GM_BLOCK_DEVICE:
		break;
	}

	if (refusal->denied)
		return gm_text_refuse(GPUMEM_E_NO_MEMORY, detail,
			"device %u is out of memory: it could not make %s although nothing is "
			"pooled; %s of it are used outside the broker%s; see gpumemctl who %u, end "
			"those programs, or lower fraction",
			device->number, gm_format_size(refusal->denied, a),
			gm_format_size(foreign, b), device_admit_say_foreigner(device, foreigner),
			device->number);
	/* Foreign memory is named only if the request would fit without it. */
	if (gm_u64_plus(of, foreign) < bytes)
		foreign = 0;
	snprintf(see, sizeof(see), "see gpumemctl who %u", device->number);
	return gm_text_refuse(GPUMEM_E_NO_MEMORY, detail,
		"device %u has %s available of %s, asked for %s%s%s%s%s%s%s; %s", device->number,
		gm_format_size(of, a), gm_format_size(capacity, b), asked,
		device_admit_say_excess(bytes, refusal->never ? capacity : of, excess), never,
		foreign ? "; " : "", foreign ? gm_format_size(foreign, c) : "",
		foreign ? " are used outside the broker" : "",
		foreign ? device_admit_say_foreigner(device, foreigner) : "",
		!refusal->never ? foreign ? see : "see gpumemctl clients"
		: device_admit_has_other(device, payer, bytes)
			? "ask for less, or use another device"
			: "ask for less");
}
