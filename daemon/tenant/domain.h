/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_DOMAIN_H
#define GM_DAEMON_DOMAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "daemon/config/config.h"
#include "daemon/core/chunk.h"
#include "daemon/net/identity.h"

/*
 * Trust domains: whose processes may see one another's old data. Equal numbers mean an equal
 * domain; a number is never given to another one. The table keeps every domain that has a session
 * and the GM_DOMAINS_KEPT most recent ones that had one, so that a worker's successor finds the
 * chunks its predecessor pooled.
 */
#define GM_DOMAINS_KEPT 1024

struct gm_domains;
int gm_domains_new(struct gm_domains **ret_domains);
void gm_domains_free(struct gm_domains *domains);

/*
 * The domain of a client, held until it is released. *ret_pooling is false where nobody else is of
 * it: trust = client, the overflow uid (which may be anyone), a container that cannot be told.
 * -ENOMEM.
 */
int gm_domains_get(struct gm_domains *domains, enum gm_trust trust,
	const struct gm_identity *identity, gm_domain *ret_domain, bool *ret_pooling);
void gm_domains_release(struct gm_domains *domains, gm_domain domain);

/* "fresh", "uid 1000", "uid 0 in CONTAINER", "one client". Which container only who is that user in
 * it is told, and who may see everything: asker NULL. Into text, which is also returned. */
#define GM_DOMAIN_TEXT (GM_CGROUP_CONTAINER_BYTES + 32)
const char *gm_domains_text(const struct gm_domains *domains, gm_domain domain,
	const struct gm_identity *asker, char text[GM_DOMAIN_TEXT]);

#endif
