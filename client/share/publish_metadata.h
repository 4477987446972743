/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_SHARE_PUBLISH_METADATA_H
#define GM_CLIENT_SHARE_PUBLISH_METADATA_H

#include "client/buffer/gpumem_buffer.h"

struct gm_share_name;

/* Reads the name of a published buffer that a program gives. Refuses a session that cannot be used. */
gpumem_status gm_publish_name_read(
	gpumem_session *session, const char *name, struct gm_share_name *ret_name);
/* Checks the metadata that a program gives, by the names of its options. */
gpumem_status gm_publish_metadata_check(const void *metadata, size_t size);
/* Sends the metadata that the buffer is to be published with. The daemon may lose it until then: it
 * says so when it is asked to publish. */
gpumem_status gm_publish_metadata_send(gpumem_buffer *buffer, const void *metadata, size_t size);

#endif
