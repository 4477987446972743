/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_DOMAIN_H
#define GM_DAEMON_DOMAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "daemon/books/chunk.h"
#include "daemon/config/config.h"
#include "daemon/net/identity.h"

/*
 * Trust domains: processes of one domain may see each other's old data. Every domain has a number,
 * which no other domain ever gets. The table keeps all domains that have a session, and the
 * GM_DOMAINS_KEPT that lost their last session most recently. So a worker finds the chunks that its
 * predecessor left in the pool.
 */
#define GM_DOMAINS_KEPT 1024

struct gm_domains;
int gm_domains_new(struct gm_domains **ret_domains);
void gm_domains_free(struct gm_domains *domains);

/*
 * Gets the domain of a client, until gm_domains_release(). *ret_pooling is false if nobody else can
 * ever be in it: with trust = client, for the overflow uid (it may stand for anyone), and for a
 * process whose container is not known. Returns 0 or -ENOMEM.
 */
int gm_domains_get(struct gm_domains *domains, enum gm_domain_trust trust,
	const struct gm_identity *identity, gm_domain *ret_domain, bool *ret_pooling);
/* The name of a process's domain, which is the same in a later daemon. Returns false if it is a domain of one
 * client. */
#define GM_DOMAIN_KEY_BYTES (GM_CGROUP_SCOPE_BYTES + 24)
bool gm_domain_key(enum gm_domain_trust trust, const struct gm_identity *identity,
	char key[GM_DOMAIN_KEY_BYTES]);
void gm_domains_release(struct gm_domains *domains, gm_domain domain);

/*
 * Writes what people call the domain into text, and returns text: "fresh", "uid 1000", "uid 0 in
 * CONTAINER", "one client". Only an asker that is this user in this container learns the container.
 * asker NULL: the text is for an administrator, who sees everything.
 */
#define GM_DOMAIN_TEXT (GM_CGROUP_CONTAINER_BYTES + 32)
const char *gm_domains_text(const struct gm_domains *domains, gm_domain domain,
	const struct gm_identity *asker, char text[GM_DOMAIN_TEXT]);

#endif
