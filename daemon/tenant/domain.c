/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trust domains by number. The key of a domain is the uid and, with trust = container, the cgroup
 * path down to the container. The container's name would not do: whoever starts a container can
 * choose its name.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>
#include <utlist.h>

#include "daemon/tenant/domain.h"

struct domain {
	gm_domain number;
	uid_t uid;
	size_t sessions;
	char container[GM_CGROUP_CONTAINER_BYTES];
	char *key; /* NULL: the domain of one client, found by number only */
	UT_hash_handle by_key, by_number;
	struct domain *prev, *next; /* of those without a session, longest unused first */
};

struct gm_domains {
	gm_domain last;
	struct domain *by_key, *by_number;
	struct domain *unused;
	size_t n_unused;
};

int gm_domains_new(struct gm_domains **ret_domains)
{
	struct gm_domains *domains = calloc(1, sizeof(*domains));

	if (!domains)
		return -ENOMEM;
	domains->last = GM_DOMAIN_FRESH;
	*ret_domains = domains;
	return 0;
}

static void domain_forget(struct gm_domains *domains, struct domain *domain)
{
	if (domain->key)
		HASH_DELETE(by_key, domains->by_key, domain);
	HASH_DELETE(by_number, domains->by_number, domain);
	free(domain->key);
	free(domain);
}

void gm_domains_free(struct gm_domains *domains)
{
	struct domain *domain, *next;

	if (!domains)
		return;
	HASH_ITER (by_number, domains->by_number, domain, next)
		domain_forget(domains, domain);
	free(domains);
}

/* key NULL: a domain of one client. */
static int domain_add(struct gm_domains *domains, const struct gm_identity *identity,
	const char *key, bool with_container, struct domain **ret)
{
	struct domain *domain = calloc(1, sizeof(*domain));

	if (!domain)
		return -ENOMEM;
	domain->uid = identity->uid;
	if (with_container)
		memcpy(domain->container, identity->cgroup.container, sizeof(domain->container));
	domain->number = domains->last + 1;
	HASH_ADD(by_number, domains->by_number, number, sizeof(domain->number), domain);
	if (!domain->by_number.tbl) {
		free(domain);
		return -ENOMEM;
	}
	if (key) {
		domain->key = strdup(key);
		if (domain->key)
			HASH_ADD_KEYPTR(
				by_key, domains->by_key, domain->key, strlen(domain->key), domain);
		if (!domain->by_key.tbl) {
			free(domain->key);
			domain->key = NULL;
			domain_forget(domains, domain);
			return -ENOMEM;
		}
	}
	domains->last++;
	*ret = domain;
	return 0;
}

bool gm_domain_key(enum gm_domain_trust trust, const struct gm_identity *identity,
	char key[GM_DOMAIN_KEY_BYTES])
{
	if (trust == GM_DOMAIN_TRUST_CLIENT || identity->uid == GM_OVERFLOW_UID ||
		(trust == GM_DOMAIN_TRUST_CONTAINER && identity->confined))
		return false;
	snprintf(key, GM_DOMAIN_KEY_BYTES, "%u %s", identity->uid,
		trust == GM_DOMAIN_TRUST_CONTAINER ? identity->cgroup.scope : "");
	return true;
}

int gm_domains_get(struct gm_domains *domains, enum gm_domain_trust trust,
	const struct gm_identity *identity, gm_domain *ret_domain, bool *ret_pooling)
{
	bool container = trust == GM_DOMAIN_TRUST_CONTAINER && identity->cgroup.scope[0];
	struct domain *domain = NULL;
	char key[GM_DOMAIN_KEY_BYTES];
	bool alone = !gm_domain_key(trust, identity, key);

	if (!alone)
		HASH_FIND(by_key, domains->by_key, key, strlen(key), domain);
	if (!domain) {
		int r = domain_add(domains, identity, alone ? NULL : key, container, &domain);
		if (r < 0)
			return r;
	} else if (domain->sessions == 0) {
		DL_DELETE(domains->unused, domain);
		domains->n_unused--;
	}
	domain->sessions++;
	*ret_domain = domain->number;
	*ret_pooling = !alone;
	return 0;
}

void gm_domains_release(struct gm_domains *domains, gm_domain number)
{
	struct domain *domain;

	HASH_FIND(by_number, domains->by_number, &number, sizeof(number), domain);
	if (!domain || --domain->sessions > 0)
		return;
	if (!domain->key) {
		domain_forget(domains, domain);
		return;
	}
	DL_APPEND(domains->unused, domain);
	if (++domains->n_unused > GM_DOMAINS_KEPT) {
		struct domain *oldest = domains->unused;
		DL_DELETE(domains->unused, oldest);
		domains->n_unused--;
		domain_forget(domains, oldest);
	}
}

static bool domain_is_of(const struct domain *domain, const struct gm_identity *asker)
{
	char key[GM_DOMAIN_KEY_BYTES];

	return domain->key && gm_domain_key(GM_DOMAIN_TRUST_CONTAINER, asker, key) &&
	       strcmp(domain->key, key) == 0;
}

const char *gm_domains_text(const struct gm_domains *domains, gm_domain number,
	const struct gm_identity *asker, char text[GM_DOMAIN_TEXT])
{
	struct domain *domain;

	HASH_FIND(by_number, domains->by_number, &number, sizeof(number), domain);
	if (number == GM_DOMAIN_FRESH)
		snprintf(text, GM_DOMAIN_TEXT, "fresh");
	else if (!domain)
		snprintf(text, GM_DOMAIN_TEXT, "a domain that is gone");
	else if (!domain->key)
		snprintf(text, GM_DOMAIN_TEXT, "one client");
	else if (domain->container[0])
		snprintf(text, GM_DOMAIN_TEXT, "uid %u in %s", domain->uid,
			!asker || domain_is_of(domain, asker) ? domain->container : "a container");
	else
		snprintf(text, GM_DOMAIN_TEXT, "uid %u", domain->uid);
	return text;
}
