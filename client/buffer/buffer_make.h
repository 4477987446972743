/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_BUFFER_BUFFER_MAKE_H
#define GM_CLIENT_BUFFER_BUFFER_MAKE_H

#include "client/buffer/buffer.h"

/* Checks a tag from a program, which may be NULL. */
gpumem_status gm_buffer_tag_check(const char *tag);
/* The same for the type and the precision. */
gpumem_status gm_buffer_kinds_check(const char *type, const char *precision);

/* Checks the arguments of gpumem_buffer_create(), and prepares the device for mapping. */
gpumem_status gm_buffer_check(struct gpumem_session *session, uint32_t name, size_t size,
	const gpumem_buffer_options *options, gpumem_buffer_options *ret_given,
	uint32_t *ret_device);
/* gpumem_buffer_create() for a device by its index. The options have all fields. */
gpumem_status gm_buffer_make(struct gpumem_session *session, uint32_t device, size_t size,
	const gpumem_buffer_options *options, enum gm_buffer_kind kind, gpumem_buffer **ret_buffer);
/* As gm_buffer_new(), for a buffer of that size and tag that this process asked for. */
gpumem_status gm_buffer_of_lease(struct gpumem_session *session, struct gm_session_lease *lease,
	struct gm_session_chunk *chunks, size_t size, const char *tag, enum gm_buffer_kind kind,
	const struct gm_buffer_wish *wish, gpumem_buffer **ret_buffer);
struct gm_buffer_wish gm_buffer_wish_of(const gpumem_buffer_options *options);
enum gm_transport gm_buffer_transport_of(const gpumem_buffer_options *options);

#endif
