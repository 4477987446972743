/* SPDX-License-Identifier: Apache-2.0 */
/* Code that all handlers share: administrators and observers, common refusals, devices as messages. */
#include "daemon/serve/serve.h"

#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "common/text/uid_name.h"
#include "daemon/books/owner.h"

bool gm_serve_is_admin(const struct gm_serve *serve, const struct gm_peer *peer)
{
	return gm_identity_has_role(gm_peer_identity(peer), serve->uid, serve->admin_group);
}

bool gm_serve_sees_all(const struct gm_serve *serve, const struct gm_peer *peer)
{
	return gm_serve_is_admin(serve, peer) ||
	       gm_identity_has_role(gm_peer_identity(peer), serve->uid, serve->observer_group);
}

bool gm_serve_is_private(const struct gm_owner *owner)
{
	return owner && (owner->kind == GM_OWNER_UNIT || owner->kind == GM_OWNER_CONTAINER ||
				owner->kind == GM_OWNER_NAME || owner->kind == GM_OWNER_RUN);
}

bool gm_serve_require_admin(
	const struct gm_serve *serve, struct gm_peer *peer, uint64_t id, const char *what)
{
	const char *group = serve->config->admin_group;
	bool there = serve->admin_group != (gid_t)-1;
	char detail[GM_DETAIL_BYTES], rest[GM_DETAIL_BYTES] = "";
	char user[GM_UID_NAME_TEXT], who[GM_UID_NAME_TEXT + 16] = "root";

	if (gm_serve_is_admin(serve, peer))
		return true;
	if (serve->uid)
		snprintf(who, sizeof(who), "root%s%s", there ? ", " : " or ",
			gm_uid_name_say(serve->uid, user));
	if (!gm_peer_identity(peer)->own_pid_namespace)
		gm_text_say(rest, " in the daemon's pid namespace; this process is in another one");
	else if (there)
		gm_text_say(rest,
			"; root adds a user with 'usermod -a -G %s USER', which takes effect at the user's next login",
			group);
	else if (*group)
		gm_text_say(rest,
			"; for a group of administrators, root runs 'groupadd --system %s', 'usermod -a -G %s USER' and 'gpumemctl config reload'; USER must log in again",
			group, group);
	gm_text_say(detail, "%s needs %s%s%s%s", what, who, there ? " or the group " : "",
		there ? group : "", rest);
	gm_peer_send_failure(peer, id, GPUMEM_E_DENIED, detail);
	return false;
}

bool gm_serve_require_device(
	const struct gm_serve *serve, struct gm_peer *peer, uint64_t id, uint32_t device)
{
	char detail[GM_DETAIL_BYTES];

	if (device < serve->n_devices)
		return true;
	snprintf(detail, sizeof(detail), "there is no device %u; there %s %u, numbered from 0",
		device, serve->n_devices == 1 ? "is" : "are", serve->n_devices);
	gm_peer_send_failure(peer, id, GPUMEM_E_NOT_FOUND, detail);
	return false;
}

bool gm_serve_require_list(struct gm_peer *peer, uint64_t id, size_t n)
{
	char detail[GM_DETAIL_BYTES];

	if (n <= GM_BOUND_LIST_ITEMS)
		return true;
	gm_text_say(detail, "a list of %zu: a request has at most %d; send several", n,
		GM_BOUND_LIST_ITEMS);
	gm_peer_send_failure(peer, id, GPUMEM_E_INVALID, detail);
	return false;
}

void gm_serve_fail_memory(struct gm_peer *peer, uint64_t id)
{
	gm_peer_send_failure(peer, id, GPUMEM_E_SYSTEM, "the daemon is out of memory");
}

static void serve_fill_device(const struct gm_serve *serve, uint32_t device,
	char trouble[GM_BACKEND_TROUBLE], Gm__Wire__Drainer *drainer, Gm__Wire__Device *ret)
{
	const struct gm_backend_device *info = &serve->devices[device];
	struct gm_device_figures figures;
	uint64_t when;

	gm_core_device_figures(serve->core, device, &figures);
	gm__wire__device__init(ret);
	ret->number = device;
	ret->name = (char *)info->name;
	ret->pinned = info->pinned;
	ret->mig = info->mig;
	ret->visibility = (Gm__Wire__Visibility)info->visibility;
	if (!info->pinned) {
		ret->uuid.data = (uint8_t *)info->uuid;
		ret->uuid.len = sizeof(info->uuid);
	}
	ret->backend = (char *)(info->mapping ? info->mapping : serve->ops->name);
#define SERVE_FIGURE(name, ...) ret->name = figures.name;
	GM_DEVICE_FIGURES(SERVE_FIGURE, GM_FIGURE_SKIP)
#undef SERVE_FIGURE
	ret->pressure_ppm = figures.pressure_ppm;
	ret->level = figures.level;
	ret->transport_fd = info->transport_fd;
	ret->transport_ipc = info->transport_ipc;
	ret->transport = (Gm__Wire__Transport)gm_policy_transport(
		&figures.policy, GM_TRANSPORT_AUTO, info->transport_fd);
	ret->pci = (char *)info->pci;
	ret->fraction = figures.policy.fraction;
	ret->min_free = figures.policy.min_free;
	ret->measured = serve->ops->exclusive || info->pinned || figures.measured;
	if (figures.drain.on) {
		gm__wire__drainer__init(drainer);
		drainer->uid = figures.drain.uid;
		drainer->age_ms = (gm_clock_ns() - figures.drain.since_ns) / GM_NS_PER_MS;
		ret->drainer = drainer;
	}
	if (serve->ops->trouble && serve->ops->trouble(serve->backend, device, trouble, &when)) {
		ret->trouble = trouble;
		ret->trouble_age_ms = (gm_clock_ns() - when) / GM_NS_PER_MS;
	}
}

void gm_serve_list_devices(const struct gm_serve *serve, struct gm_serve_devices *ret)
{
	for (uint32_t i = 0; i < serve->n_devices; i++) {
		serve_fill_device(serve, i, ret->troubles[i], &ret->drainers[i], &ret->devices[i]);
		ret->list[i] = &ret->devices[i];
	}
}

struct gm_name_asker gm_serve_asker(const struct gm_serve *serve, const struct gm_peer *peer)
{
	const struct gm_client *client = gm_peer_user(peer);
	char key[GM_DOMAIN_KEY_BYTES];
	bool has = gm_domain_key(serve->config->trust, gm_peer_identity(peer), key);

	return (struct gm_name_asker){
		.admin = gm_serve_is_admin(serve, peer),
		.session = client ? client->session : NULL,
		.domain = gm_core_domain(serve->core, has ? key : NULL),
	};
}

void gm_serve_answer_status(
	struct gm_peer *peer, uint64_t id, gpumem_status status, const char *detail)
{
	if (status == GPUMEM_OK)
		gm_peer_send_done(peer, id);
	else
		gm_peer_send_failure(peer, id, status, detail);
}
