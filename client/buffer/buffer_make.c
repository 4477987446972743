/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes the buffers that a program asks for: checks its wishes, asks the daemon for a lease, and has
 * buffer.c make a buffer of that. It refuses what can never work before the daemon is asked.
 */
#include "client/buffer/buffer_make.h"
#include "client/grant/session_ask.h"

#include <stdio.h>
#include <string.h>

#include "client/device/wait_elsewhere.h"
#include "client/device/map_chunks.h"
#include "client/device/spill.h"
#include "common/text/units.h"

/* The flags that let the library move a buffer. */
#define EVICTABLE ((uint32_t)(GPUMEM_BUFFER_EVICTABLE | GPUMEM_BUFFER_CPU_OK))

gpumem_status gm_buffer_tag_check(const char *tag)
{
	if (tag && !gm_name_ok(tag))
		return gm_error(GPUMEM_E_INVALID,
			"a tag must be printable UTF-8 of at most %d bytes", GM_BOUND_NAME_BYTES);
	return GPUMEM_OK;
}

static gpumem_status buffer_make_check_kind(const char *what, const char *text)
{
	if (text && (!gm_name_ok(text) || strlen(text) > GM_BOUND_KIND_BYTES))
		return gm_error(GPUMEM_E_INVALID, "%s must be printable UTF-8 of at most %d bytes",
			what, GM_BOUND_KIND_BYTES);
	return GPUMEM_OK;
}

gpumem_status gm_buffer_kinds_check(const char *type, const char *precision)
{
	gpumem_status status = buffer_make_check_kind("type", type);
	return status ? status : buffer_make_check_kind("precision", precision);
}

static gpumem_status buffer_make_check_evictable(
	struct gpumem_session *session, uint32_t device, const gpumem_buffer_options *options)
{
	if (options->flags & GPUMEM_BUFFER_SIGNALS)
		return gm_error(GPUMEM_E_INVALID,
			"a buffer with signals cannot be evictable: others wait for them where they are");
	if (options->transport == GPUMEM_TRANSPORT_IPC)
		return gm_error(GPUMEM_E_INVALID,
			"an evictable buffer cannot be on the ipc transport, which chooses the address "
			"itself");
	return gm_spill_check(session, device);
}

/* Checks what is asked for, and prepares the device for mapping. */
static gpumem_status buffer_make_prepare(struct gpumem_session *session, uint32_t device,
	size_t size, const gpumem_buffer_options *options)
{
	if (!size || size > GM_LEASE_BYTES_MAX)
		return gm_error(GPUMEM_E_INVALID,
			"a buffer has 1 to %llu bytes; %zu were asked for",
			(unsigned long long)GM_LEASE_BYTES_MAX, size);
	gpumem_status status = gm_buffer_tag_check(options->tag);
	if (!status)
		status = gm_buffer_kinds_check(options->type, options->precision);
	if (status)
		return status;
	if (options->transport != GPUMEM_TRANSPORT_AUTO &&
		options->transport != GPUMEM_TRANSPORT_FD &&
		options->transport != GPUMEM_TRANSPORT_IPC)
		return gm_error(
			GPUMEM_E_INVALID, "there is no transport %d", (int)options->transport);
	if (options->flags &
		~(uint32_t)(GPUMEM_BUFFER_FOR_OTHERS | GPUMEM_BUFFER_SIGNALS | EVICTABLE))
		return gm_error(GPUMEM_E_INVALID, "flags 0x%x are not known", options->flags);
	if (options->max_size &&
		(options->max_size < size || options->max_size > GM_LEASE_BYTES_MAX))
		return gm_error(GPUMEM_E_INVALID,
			"max_size is 0, or from size to %llu; %zu was given for a size of %zu",
			(unsigned long long)GM_LEASE_BYTES_MAX, options->max_size, size);
	if (options->max_size && options->flags & GPUMEM_BUFFER_SIGNALS)
		return gm_error(GPUMEM_E_INVALID,
			"a buffer with signals cannot grow, so max_size must be 0");
	if (options->flags & EVICTABLE)
		status = buffer_make_check_evictable(session, device, options);
	if (!status && options->flags & GPUMEM_BUFFER_SIGNALS)
		status = gm_signals_check(session, device, options->transport);
	return status ? status : gm_map_chunks_open(session, device);
}

gpumem_status gm_buffer_check(struct gpumem_session *session, uint32_t name, size_t size,
	const gpumem_buffer_options *options, gpumem_buffer_options *ret_given,
	uint32_t *ret_device)
{
	gpumem_buffer_options given = GPUMEM_BUFFER_OPTIONS_INIT;

	if (!gm_session_find_device(session, name, ret_device))
		return gm_session_no_device(session, name);
	gpumem_status status = gm_sized_in(&given, sizeof(given), options);
	if (status)
		return status;
	*ret_given = given;
	return buffer_make_prepare(session, *ret_device, size, &given);
}

gpumem_status gm_buffer_of_lease(struct gpumem_session *session, struct gm_session_lease *lease,
	struct gm_session_chunk *chunks, size_t size, const char *tag, enum gm_buffer_kind kind,
	const struct gm_buffer_wish *wish, gpumem_buffer **ret_buffer)
{
	/* The size that the program asked for, not the one that the daemon repeated. */
	lease->user_bytes = size;
	snprintf(lease->tag, sizeof(lease->tag), "%s", tag ? tag : "");
	return gm_buffer_new(session, lease, chunks, kind, wish, ret_buffer);
}

struct gm_buffer_wish gm_buffer_wish_of(const gpumem_buffer_options *options)
{
	return (struct gm_buffer_wish){
		.max_size = options->max_size,
		.wait_ms = options->wait_ms,
		.for_others = options->flags & GPUMEM_BUFFER_FOR_OTHERS,
		.signals = options->flags & GPUMEM_BUFFER_SIGNALS,
		.evictable = options->flags & EVICTABLE,
		.cpu_ok = options->flags & GPUMEM_BUFFER_CPU_OK,
	};
}

enum gm_transport gm_buffer_transport_of(const gpumem_buffer_options *options)
{
	/* Only the fd transport maps memory at addresses of the library's choice. */
	return options->flags & EVICTABLE ? GM_TRANSPORT_FD : (enum gm_transport)options->transport;
}

/* Asks for the memory of a buffer that may be had. */
static gpumem_status buffer_make_take(struct gpumem_session *session, uint32_t device, size_t size,
	const gpumem_buffer_options *options, enum gm_buffer_kind kind, gpumem_buffer **ret_buffer)
{
	const struct gm_buffer_wish wish = gm_buffer_wish_of(options);
	struct gm_wait_elsewhere elsewhere = {.session = session, .device = device, .bytes = size};
	struct gm_session_lease *lease;
	struct gm_session_chunk *chunks;

	if (device < session->counted)
		gm_retired_settle(session, GM_RETIRED_NO_WAIT);
	else
		gm_retired_settle(session, GM_RETIRED_HOST_WAIT);
	struct gm_wait wait = gm_wait_elsewhere_wait(&elsewhere, options->wait_ms);
	if (!options->wait_ms && wish.cpu_ok)
		wait.mode = GM_WAIT_FOR_DAEMON;
	const struct gm_lease_what what = {
		.device = device,
		.bytes = size,
		.transport = gm_buffer_transport_of(options),
		.tag = options->tag,
		.for_others = wish.for_others,
		.signals = wish.signals,
	};
	gpumem_status status = gm_session_lease_take(session, &what, &wait, &lease, &chunks);
	return status ? status
		      : gm_buffer_of_lease(session, lease, chunks, size, options->tag, kind, &wish,
				ret_buffer);
}

gpumem_status gm_buffer_make(struct gpumem_session *session, uint32_t device, size_t size,
	const gpumem_buffer_options *options, enum gm_buffer_kind kind, gpumem_buffer **ret_buffer)
{
	gpumem_status status = buffer_make_prepare(session, device, size, options);
	if (!status)
		status = buffer_make_take(session, device, size, options, kind, ret_buffer);
	if (!status) {
		gm_buffer_note(*ret_buffer, options->type, options->precision);
		gm_buffer_made_here(*ret_buffer);
	}
	return status;
}
