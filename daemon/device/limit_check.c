/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules for guarantees: no max is below one, only one kind of owner has them, no client's name has one, and they fit
 * the capacity of their device. A refusal of a configuration tells which value was set at run time, and which line of a file
 * contradicts it.
 */
#include "daemon/books/hash_table.h"
#include "daemon/device/limit_private.h"

#include <stdio.h>
#include <string.h>

#include "common/text/units.h"

void gm_limit_put(struct gm_limit_values *values, const struct gm_limit_values *over)
{
	for (unsigned bit = 1; bit <= GM_LIMIT_ALL; bit <<= 1)
		if (over->set & bit)
			gm_limit_values_set(values, bit, gm_limit_values_get(over, bit));
}

struct gm_limit_values gm_limit_in_force(const struct gm_limit_on_device *on)
{
	struct gm_limit_values values = GM_LIMIT_VALUES_UNSET;
	gm_limit_put(&values, &on->configured);
	gm_limit_put(&values, &on->run_time);
	return values;
}

/* A check of one table. */
struct check {
	const struct gm_limits *limits;
	const struct gm_limit_config *config; /* or NULL */
	const struct gm_limit *guaranteed;    /* an entry with a guarantee, or NULL */
	const struct gm_limit *run_time; /* an entry with a guarantee of the run time, or NULL */
	char *detail;
};

/* Returns the line of a value of the owner's limit on a device; NULL: it is not known. The rule of the device comes first. */
static const char *check_source(
	const struct check *check, const struct gm_limit *q, uint32_t device, unsigned place)
{
	const char *source = NULL;

	for (size_t i = 0; i < check->config->n_rules; i++) {
		const struct gm_limit_rule *rule = &check->config->rules[i];
		if (!(rule->values.set & gm_limit_kinds[place].bit) ||
			memcmp(&rule->owner, &q->owner, sizeof(q->owner)) != 0)
			continue;
		if (rule->device == device)
			return rule->sources[place];
		if (rule->device == GM_ALL_DEVICES)
			source = rule->sources[place];
	}
	return source;
}

/* Adds to a refusal of a configuration which value of the entry was set at run time (by its place in GM_LIMIT_KINDS), and how to
 * undo that. file: the value of the configuration that contradicts it; GM_LIMIT_N_KINDS: it is not the same owner's. */
static void check_explain(const struct check *check, const struct gm_limit *q, uint32_t device,
	unsigned value, unsigned file)
{
	char why[GM_DETAIL_BYTES], owner[GM_OWNER_TEXT], other[GM_OWNER_TEXT];
	const char *source = file < GM_LIMIT_N_KINDS ? check_source(check, q, device, file) : NULL;

	memcpy(why, check->detail, sizeof(why));
	gm_owner_name(&q->owner, owner);
	if (source)
		gm_text_say(check->detail,
			"%s; the %s is from %s, the %s was set at run time; to use the configuration: gpumemctl limit reset %s",
			why, gm_limit_kinds[file].name, source, gm_limit_kinds[value].name, owner);
	else
		gm_text_say(check->detail,
			"%s; the %s of %s was set at run time; to use the configuration: gpumemctl limit reset %s",
			why, gm_limit_kinds[value].name, gm_owner_format(&q->owner, other), owner);
}

/* Refuses a max that is below the guarantee. */
static gpumem_status check_refuse_max(
	const struct check *check, const struct gm_limit *q, uint32_t device)
{
	const struct gm_limit_on_device *on = &q->devices[device];
	struct gm_limit_values v = gm_limit_in_force(on);
	char owner[GM_OWNER_TEXT], max[GM_UNITS_TEXT], guarantee[GM_UNITS_TEXT];
	bool run_time_max = on->run_time.set & GM_LIMIT_MAX;
	bool run_time_guarantee = on->run_time.set & GM_LIMIT_GUARANTEE;

	gm_text_say(check->detail, "%s: max %s is below guarantee %s",
		gm_owner_format(&q->owner, owner), gm_format_size(v.max, max),
		gm_format_size(v.guarantee, guarantee));
	if (check->config && run_time_max && !run_time_guarantee)
		check_explain(check, q, device, GM_LIMIT_AT_MAX, GM_LIMIT_AT_GUARANTEE);
	else if (check->config && run_time_guarantee && !run_time_max)
		check_explain(check, q, device, GM_LIMIT_AT_GUARANTEE, GM_LIMIT_AT_MAX);
	else if (!check->config)
		gm_text_say(check->detail,
			"%s: max %s is below guarantee %s; raise max, or lower guarantee", owner,
			max, guarantee);
	return GPUMEM_E_INVALID;
}

/* Ends a refusal of guarantees of several owners. */
static gpumem_status check_refuse_guarantees(const struct check *check)
{
	if (check->config && check->run_time)
		check_explain(check, check->run_time, 0, GM_LIMIT_AT_GUARANTEE, GM_LIMIT_N_KINDS);
	return GPUMEM_E_INVALID;
}

/* The guarantees of all other owners. */
static uint64_t check_others(const struct check *check, const struct gm_limit *self, uint32_t d)
{
	uint64_t sum = 0;

	for (const struct gm_limit *q = check->limits->by_owner; q; q = q->hh.next)
		if (q != self)
			sum = gm_u64_plus(sum, gm_limit_in_force(&q->devices[d]).guarantee);
	return sum;
}

static gpumem_status check_device(struct check *check, uint32_t d, uint64_t capacity)
{
	char owner[GM_OWNER_TEXT], other[GM_OWNER_TEXT], a[GM_UNITS_TEXT], b[GM_UNITS_TEXT];
	char c[GM_UNITS_TEXT];
	uint64_t sum = 0;

	for (const struct gm_limit *q = check->limits->by_owner; q; q = q->hh.next) {
		struct gm_limit_values v = gm_limit_in_force(&q->devices[d]);
		if (v.guarantee == 0)
			continue;

		if (q->devices[d].run_time.set & GM_LIMIT_GUARANTEE)
			check->run_time = q;
		if (q->owner.kind == GM_OWNER_NAME)
			return gm_text_refuse(GPUMEM_E_INVALID, check->detail,
				"%s: a client's name is its own word: it can have a max, but no "
				"guarantee",
				gm_owner_format(&q->owner, owner));
		if (check->guaranteed && check->guaranteed->owner.kind != q->owner.kind) {
			gm_text_say(check->detail,
				"%s and %s: guarantees can be given to one kind of owner only",
				gm_owner_format(&check->guaranteed->owner, other),
				gm_owner_format(&q->owner, owner));
			return check_refuse_guarantees(check);
		}
		check->guaranteed = q;
		if (v.max < v.guarantee)
			return check_refuse_max(check, q, d);
		if (v.guarantee > capacity - sum) {
			gm_text_say(check->detail,
				"%s: with a guarantee of %s, and %s for other owners, guarantees "
				"on device %u go beyond its capacity of %s",
				gm_owner_format(&q->owner, owner), gm_format_size(v.guarantee, a),
				gm_format_size(check_others(check, q, d), c), d,
				gm_format_size(capacity, b));
			return check_refuse_guarantees(check);
		}
		sum += v.guarantee;
	}
	return GPUMEM_OK;
}

gpumem_status gm_limit_check(const struct gm_limits *limits, const struct gm_limit_config *config,
	char detail[GM_DETAIL_BYTES])
{
	const struct gm_env *env = limits->env;
	struct check check = {.limits = limits, .config = config, .detail = detail};
	gpumem_status status = GPUMEM_OK;

	for (uint32_t d = 0; d < env->n_devices && status == GPUMEM_OK; d++) {
		const struct gm_device *device = &env->devices[d];
		uint64_t capacity =
			config && config->policies
				? gm_policy_capacity(&config->policies[d], device->info.total)
				: gm_device_capacity(device);
		status = check_device(&check, d, capacity);
	}
	return status;
}
