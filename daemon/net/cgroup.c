/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which unit and which container a process runs in, from its cgroup path. It only works on text, so
 * that tests can try samples of every container runtime. It must never let anybody inside a
 * container choose which container they are taken for. So the outermost match counts, and the scope
 * is the whole path down to it.
 */
#include "daemon/net/cgroup.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/text/units.h"

static bool cgroup_is_hex(const char *text, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!isxdigit((unsigned char)text[i]))
			return false;
	return true;
}

static bool cgroup_has_suffix(const char *text, size_t n, const char *suffix)
{
	size_t m = strlen(suffix);
	return n > m && memcmp(text + n - m, suffix, m) == 0;
}

static bool cgroup_has_prefix(const char *text, size_t n, const char *prefix)
{
	size_t m = strlen(prefix);
	return n > m && memcmp(text, prefix, m) == 0;
}

static bool cgroup_is_component(const char *text, size_t n, const char *word)
{
	return n == strlen(word) && memcmp(text, word, n) == 0;
}

/* Copies a name and undoes systemd's escapes: it writes "-" inside a name as "\x2d". A name that
 * does not fit is cut, because it is only shown to people. */
static void cgroup_copy_name(char *to, size_t room, const char *from, size_t n)
{
	size_t used = 0;
	for (size_t i = 0; i < n && used + 1 < room; i++) {
		if (from[i] == '\\' && i + 3 < n && from[i + 1] == 'x' &&
			cgroup_is_hex(from + i + 2, 2)) {
			const char digits[] = {from[i + 2], from[i + 3], '\0'};
			char c = (char)strtoul(digits, NULL, 16);
			to[used++] = isprint((unsigned char)c) ? c : '?';
			i += 3;
		} else {
			to[used++] = isprint((unsigned char)from[i]) ? from[i] : '?';
		}
	}
	to[used] = '\0';
}

/* Some runtimes call their scopes PREFIX-ID.scope, where ID is 64 hexadecimal digits. Their
 * monitors (libpod-conmon-…, crio-conmon-…) run outside the container and do not match. */
static const char *const scope_prefixes[] = {
	"docker-", "libpod-", "cri-containerd-", "crio-", "nerdctl-", "containerd-", NULL};

/* Whether a component of the path is a container, and which part of it is the container's name.
 * before is the component in front of it ("" for the first). */
static bool cgroup_find_container(const char *before, size_t n_before, const char *text, size_t n,
	const char **ret_name, size_t *ret_n)
{
	/* docker, ECS, containerd and kubelet with plain cgroups name a folder by the id. */
	if (n == 64 && cgroup_is_hex(text, n)) {
		*ret_name = text;
		*ret_n = n;
		return true;
	}

	for (size_t i = 0; scope_prefixes[i]; i++) {
		size_t m = strlen(scope_prefixes[i]);
		if (!cgroup_has_prefix(text, n, scope_prefixes[i]))
			continue;
		size_t rest = n - m;
		if (cgroup_has_suffix(text, n, ".scope"))
			rest -= strlen(".scope");
		if (rest == 64 && cgroup_is_hex(text + m, rest)) {
			*ret_name = text + m;
			*ret_n = rest;
			return true;
		}
	}

	/* containerd with a systemd name but without the systemd driver: SLICE:cri-containerd:ID */
	if (n > 65 && text[n - 65] == ':' && cgroup_is_hex(text + n - 64, 64)) {
		*ret_name = text + n - 64;
		*ret_n = 64;
		return true;
	}
	if (cgroup_has_prefix(text, n, "lxc.payload.")) {
		*ret_name = text + strlen("lxc.payload.");
		*ret_n = n - strlen("lxc.payload.");
		return true;
	}
	if (n && (cgroup_is_component(before, n_before, "lxc") ||
			 cgroup_is_component(before, n_before, "lxc.payload"))) {
		*ret_name = text;
		*ret_n = n;
		return true;
	}
	if (cgroup_has_prefix(text, n, "systemd-nspawn@") &&
		cgroup_has_suffix(text, n, ".service")) {
		*ret_name = text + strlen("systemd-nspawn@");
		*ret_n = n - strlen("systemd-nspawn@") - strlen(".service");
		return *ret_n > 0;
	}

	/* systemd-nspawn started by hand. Virtual machines are registered the same way, but their
	 * process is the emulator, which runs on the host. */
	if (cgroup_is_component(before, n_before, "machine.slice") &&
		cgroup_has_prefix(text, n, "machine-") && cgroup_has_suffix(text, n, ".scope") &&
		!cgroup_has_prefix(text, n, "machine-qemu\\x2d")) {
		*ret_name = text + strlen("machine-");
		*ret_n = n - strlen("machine-") - strlen(".scope");
		return *ret_n > 0;
	}
	return false;
}

/* Whether a component is a pod's folder. It counts for processes in a pod that are in no container
 * we know. */
static bool cgroup_find_pod(const char *before, size_t n_before, const char *text, size_t n)
{
	if (cgroup_has_prefix(text, n, "kubepods") && cgroup_has_suffix(text, n, ".slice")) {
		for (size_t i = 0; i + 4 < n; i++)
			if (memcmp(text + i, "-pod", 4) == 0)
				return true;
		return false;
	}
	return cgroup_has_prefix(text, n, "pod") && n >= 35 &&
	       (cgroup_is_component(before, n_before, "kubepods") ||
		       cgroup_is_component(before, n_before, "burstable") ||
		       cgroup_is_component(before, n_before, "besteffort"));
}

static bool cgroup_is_unit(const char *text, size_t n)
{
	return cgroup_has_suffix(text, n, ".service") || cgroup_has_suffix(text, n, ".scope") ||
	       cgroup_has_suffix(text, n, ".socket") || cgroup_has_suffix(text, n, ".mount") ||
	       cgroup_has_suffix(text, n, ".swap");
}

/* The container is the path up to end. Its name is for people. */
static int cgroup_set_container(
	struct gm_cgroup *cgroup, const char *path, size_t end, const char *name, size_t n_name)
{
	if (end >= sizeof(cgroup->scope))
		return -ENAMETOOLONG;
	memcpy(cgroup->scope, path, end);
	cgroup->scope[end] = '\0';
	cgroup->name_is_loose = cgroup->unit[0] || n_name >= sizeof(cgroup->container);
	/* A user can give a folder of its own the id of somebody else's container. The path says whose it is. */
	if (cgroup->name_is_loose) {
		snprintf(cgroup->container, sizeof(cgroup->container), "%.*s",
			(int)sizeof(cgroup->container) - 1, cgroup->scope);
		gm_text_mend(cgroup->container);
	} else {
		cgroup_copy_name(cgroup->container, sizeof(cgroup->container), name, n_name);
	}
	return 0;
}

static int cgroup_parse_path(const char *path, size_t n_path, struct gm_cgroup *cgroup)
{
	const char *before = "", *pod = NULL;
	size_t n_before = 0, n_pod = 0;

	for (size_t at = 0; at < n_path;) {
		const char *text = path + at;
		const char *slash = memchr(text, '/', n_path - at);
		size_t n = slash ? (size_t)(slash - text) : n_path - at;
		if (n == 0) {
			at++;
			continue;
		}

		const char *name;
		size_t n_name;
		if (cgroup_find_container(before, n_before, text, n, &name, &n_name))
			return cgroup_set_container(cgroup, path, at + n, name, n_name);
		if (!pod && cgroup_find_pod(before, n_before, text, n)) {
			pod = text;
			n_pod = n;
		}

		/* The first unit belongs to the system manager. Those below it were named by
		 * whoever the manager delegated the cgroup to. */
		if (!cgroup->unit[0] && cgroup_is_unit(text, n))
			cgroup_copy_name(cgroup->unit, sizeof(cgroup->unit), text, n);
		before = text;
		n_before = n;
		at += n + 1;
	}

	if (!pod)
		return 0;
	return cgroup_set_container(cgroup, path, (size_t)(pod + n_pod - path), pod, n_pod);
}

/* Takes over the unit and the container that `to` does not have yet. */
static void cgroup_add(struct gm_cgroup *to, const struct gm_cgroup *from)
{
	if (!to->scope[0] && from->scope[0]) {
		memcpy(to->scope, from->scope, sizeof(to->scope));
		memcpy(to->container, from->container, sizeof(to->container));
		to->name_is_loose = from->name_is_loose;
	}
	if (!to->unit[0])
		memcpy(to->unit, from->unit, sizeof(to->unit));
}

int gm_cgroup_parse(const char *text, struct gm_cgroup *ret)
{
	/* The unified hierarchy is best, then systemd's own, then any other. */
	struct gm_cgroup best[3];
	memset(best, 0, sizeof(best));
	while (*text) {
		size_t n = strcspn(text, "\n");
		const char *controllers = memchr(text, ':', n);
		const char *path = controllers ? memchr(controllers + 1, ':',
							 n - (size_t)(controllers + 1 - text))
					       : NULL;
		if (path) {
			controllers++;
			size_t n_controllers = (size_t)(path - controllers);
			path++;
			int rank = n_controllers == 0 ? 0
				   : cgroup_is_component(controllers, n_controllers, "name=systemd")
					   ? 1
					   : 2;
			struct gm_cgroup one;
			memset(&one, 0, sizeof(one));
			int r = cgroup_parse_path(path, n - (size_t)(path - text), &one);
			if (r < 0)
				return r;
			cgroup_add(&best[rank], &one);
		}
		text += n;
		if (*text == '\n')
			text++;
	}

	memset(ret, 0, sizeof(*ret));
	for (int rank = 0; rank < 3; rank++)
		cgroup_add(ret, &best[rank]);
	return 0;
}

const char *gm_cgroup_limit_name(const struct gm_cgroup *cgroup)
{
	return cgroup->name_is_loose ? cgroup->scope : cgroup->container;
}
