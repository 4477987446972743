/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_SHARE_PUBLISH_METADATA_H
#define GM_CLIENT_SHARE_PUBLISH_METADATA_H

#include "client/buffer/gpumem_buffer.h"

struct gm_token_name;

/* Reads the name of a published buffer that a program gives. Refuses a session that cannot be used. */
gpumem_status gm_name_publish_name_read(
	gpumem_session *session, const char *name, struct gm_token_name *ret_name);
/* Returns status. If it is GPUMEM_E_NOT_FOUND, the sentence for gpumem_error_detail() names the name, as the program
 * gave it. */
gpumem_status gm_name_publish_name_missing(const char *name, gpumem_status status);
/* Checks the metadata that a program gives. The sentence of an error uses the names of the program's options. */
gpumem_status gm_name_publish_metadata_check(const void *metadata, size_t size);
/* Sends the metadata that the buffer is to be published with. The daemon may lose it before that: then its answer to
 * the publish says so. */
gpumem_status gm_name_publish_metadata_send(
	gpumem_buffer *buffer, const void *metadata, size_t size);

#endif
