/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a buffer grows, and how much of it the program uses. Both are for gpumem_buffer_ensure() and
 * for people who look with gpumemctl; the daemon does nothing about them.
 */
#include "client/buffer/buffer.h"

#include <stdlib.h>

#include "common/arith.h"
#include "common/cancel.h"

#define FACTOR_MOST 100

static gpumem_status policy_check(const gpumem_buffer *buffer)
{
	if (!buffer)
		return gm_error(GPUMEM_E_INVALID, "buffer must not be NULL");
	if (!gm_session_ok(buffer->session))
		return gm_session_refused(buffer->session);
	return GPUMEM_OK;
}

static gpumem_status policy_check_values(const gpumem_buffer_policy *policy)
{
	/* Written so that a NaN is refused. */
	if (policy->factor != 0 && !(policy->factor >= 1 && policy->factor <= FACTOR_MOST))
		return gm_error(GPUMEM_E_INVALID, "factor must be 0, or from 1 to %d, and is %g",
			FACTOR_MOST, policy->factor);
	if (policy->step > GM_LEASE_BYTES_MAX)
		return gm_error(GPUMEM_E_INVALID, "step must be at most %llu, and is %zu",
			(unsigned long long)GM_LEASE_BYTES_MAX, policy->step);
	if (policy->ceiling > GM_LEASE_BYTES_MAX)
		return gm_error(GPUMEM_E_INVALID, "ceiling must be at most %llu, and is %zu",
			(unsigned long long)GM_LEASE_BYTES_MAX, policy->ceiling);
	return GPUMEM_OK;
}

static uint32_t policy_units(size_t bytes)
{
	return (uint32_t)(gm_round_up(bytes, GM_CHUNK_MIN) / GM_CHUNK_MIN);
}

gpumem_status gpumem_buffer_set_policy(gpumem_buffer *buffer, const gpumem_buffer_policy *policy)
{
	gpumem_buffer_policy given = GPUMEM_BUFFER_POLICY_INIT;
	gpumem_status status = policy_check(buffer);
	if (!status)
		status = gm_sized_in(&given, sizeof(given), policy);
	if (!status)
		status = policy_check_values(&given);
	if (!status && buffer->opened)
		status = gm_error(GPUMEM_E_DENIED,
			"another process made this buffer, and only that one can let it grow");
	if (status)
		return status;

	gm_lock(&buffer->session->lock);
	buffer->growth.percent = (uint16_t)(given.factor * 100 + 0.5);
	buffer->growth.step = policy_units(given.step);
	buffer->growth.ceiling = policy_units(given.ceiling);
	gm_buffer_relist(buffer);
	gm_lock_drop(&buffer->session->lock);
	return GPUMEM_OK;
}

/* The size that the policy gives the buffer if the program needs so much. 0: beyond its ceiling. */
static uint64_t policy_target(const struct gpumem_buffer *buffer,
	const struct gm_page_growth *growth, uint64_t needed, uint64_t *ret_ceiling)
{
	uint64_t size = buffer->size, reach = buffer->reach, step = growth->step * GM_CHUNK_MIN;
	uint64_t most = growth->ceiling ? growth->ceiling * GM_CHUNK_MIN : GM_LEASE_BYTES_MAX;
	uint64_t target = gm_u64_max(needed, size / 100 * growth->percent);

	*ret_ceiling = most;
	if (growth->ceiling && needed > most)
		return 0;
	/* Another thread was quicker. */
	if (needed <= size)
		return needed;
	if (step)
		target = size + (target - size + step - 1) / step * step;
	/* The policy alone does not make it move. */
	if (needed <= reach)
		most = gm_u64_min(most, reach);
	return gm_u64_max(needed, gm_u64_min(target, most));
}

gpumem_status gpumem_buffer_ensure(
	gpumem_buffer *buffer, size_t needed, gpumem_stream stream, int *ret_moved)
{
	uint64_t ceiling;
	GM_UNCANCELLED;

	gpumem_status status = policy_check(buffer);
	if (status)
		return status;
	if (needed <= buffer->size) {
		if (ret_moved)
			*ret_moved = 0;
		return GPUMEM_OK;
	}

	gm_lock(&buffer->session->lock);
	struct gm_page_growth growth = buffer->growth;
	gm_lock_drop(&buffer->session->lock);
	uint64_t target = needed > GM_LEASE_BYTES_MAX
				  ? needed
				  : policy_target(buffer, &growth, needed, &ceiling);
	if (!target)
		return gm_error(GPUMEM_E_LIMIT,
			"%zu bytes are needed, and the buffer's policy has a ceiling of %llu: raise "
			"the ceiling",
			needed, (unsigned long long)ceiling);

	/* The program does not need this much, so the call does not wait for it. */
	if (target > needed) {
		status = gm_buffer_resize(buffer, target, true, stream, 0, ret_moved);
		if (status != GPUMEM_E_NO_MEMORY && status != GPUMEM_E_LIMIT &&
			status != GPUMEM_E_TIMEOUT)
			return status;
	}
	return gm_buffer_resize(buffer, needed, true, stream, buffer->wish.wait_ms, ret_moved);
}

gpumem_status gpumem_buffer_report_use(gpumem_buffer *buffer, size_t used)
{
	gpumem_status status = policy_check(buffer);
	if (status)
		return status;

	gm_lock(&buffer->session->lock);
	size_t size = buffer->size;
	if (used <= size) {
		buffer->growth.used = used;
		buffer->growth.use_known = 1;
		gm_buffer_relist(buffer);
	}
	gm_lock_drop(&buffer->session->lock);
	if (used > size)
		return gm_error(GPUMEM_E_INVALID,
			"used must be at most the buffer's size, which is %zu, and is %zu", size,
			used);
	return GPUMEM_OK;
}
