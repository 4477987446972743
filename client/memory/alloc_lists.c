/* SPDX-License-Identifier: Apache-2.0 */
/* See alloc_lists.h. */
#include "client/memory/alloc_lists.h"

#include <errno.h>
#include <stdlib.h>

int gm_alloc_lists_init(struct gpumem_session *session)
{
	session->allocated = calloc(1, sizeof(*session->allocated));
	if (!session->allocated)
		return -ENOMEM;
	gm_lock_init(&session->allocated->listing, GM_LOCK_LISTING);
	return 0;
}

void gm_alloc_lists_deinit(struct gpumem_session *session)
{
	if (!session->allocated)
		return;
	gm_lock_deinit(&session->allocated->listing);
	free(session->allocated);
	session->allocated = NULL;
}
