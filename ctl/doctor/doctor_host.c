/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * The checks of everything but GPUs and the service manager: the configuration, the platform, the
 * daemon and its socket, and file descriptors.
 */

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "common/arith.h"
#include "common/kept.h"
#include "common/system/path.h"
#include "common/system/platform.h"
#include "common/system/reach.h"
#include "common/text/units.h"
#include "ctl/doctor/doctor.h"
#include "ctl/io/ctl_conn.h"
#include "ctl/io/other_daemon.h"
#include "common/text/text.h"
#include "ctl/io/user_name.h"
#include "daemon/config/config_machine.h"

/* What the daemon keeps open for a client: its socket, its wakeup, a pidfd, two pages. */
#define FDS_PER_CLIENT 5
#define FDS_OF_DAEMON  64
/* Every chunk needs one. Memory is the only bound on chunks; so many are enough for most uses. */
#define FDS_PER_DEVICE 8192

/* Says what the daemon accepts all the same, line by line, and what could not be checked. */
static void doctor_tell_warnings(struct gm_doctor *doctor, const char *unchecked)
{
	for (const char *at = doctor->config ? doctor->config->warnings : "", *end; *at;
		at = *end ? end + 1 : end) {
		end = at + strcspn(at, "\n");
		gm_doctor_say(doctor, GM_DOCTOR_WARN, "config", GM_DOCTOR_NO_DEVICE, NULL, "%.*s",
			(int)gm_u64_min((uint64_t)(end - at), 400), at);
	}
	if (unchecked)
		gm_doctor_say(doctor, GM_DOCTOR_NOTE, "config", GM_DOCTOR_NO_DEVICE,
			"run 'gpumemctl config check' where the daemon runs, as its user", "%.400s",
			unchecked);
}

void gm_doctor_configuration(struct gm_doctor *doctor)
{
	char path[PATH_MAX];
	char *unchecked = NULL;
	struct gm_config_report report;
	/* The root of a test may have its own. Otherwise the daemon's rules find the file. */
	bool own = *doctor->root && gm_doctor_exists(doctor, GM_CONFIG_SYSTEM_FILE);
	const struct gm_config_known known = {.listens = true};
	int r = gm_config_machine_read(
		own ? gm_doctor_path(doctor, GM_CONFIG_SYSTEM_FILE, path, sizeof(path)) : NULL,
		&known, &doctor->config, &report, &unchecked);

	if (r < 0) {
		doctor->config = report.rest;
		report.rest = NULL;
		if (report.errors)
			report.errors[strcspn(report.errors, "\n")] = '\0';
		gm_doctor_say(doctor, GM_DOCTOR_FAIL, "config", GM_DOCTOR_NO_DEVICE,
			"'gpumemctl config check' lists all mistakes", "%.400s",
			report.errors ? report.errors : strerror(-r));
	} else {
		static const char *const transports[] = {"auto", "fd", "ipc"};

		gm_doctor_say(doctor, GM_DOCTOR_OK, "config", GM_DOCTOR_NO_DEVICE, NULL,
			"%.*s%s: backend %s, transport %s, preset %s",
			(int)strcspn(report.files ? report.files : "", "\n"),
			report.files ? report.files : "",
			report.files && *report.files ? "" : "no configuration file",
			doctor->config->backend, transports[doctor->config->transport],
			doctor->config->preset);
	}
	doctor_tell_warnings(doctor, unchecked);
	doctor->config_files = report.files;
	report.files = NULL;
	gm_config_report_deinit(&report);
	free(unchecked);
}

void gm_doctor_platform(struct gm_doctor *doctor)
{
	struct utsname name;

	doctor->wsl = gm_platform_is_wsl(doctor->root);
	if (uname(&name) < 0)
		return;
	if (doctor->wsl)
		gm_doctor_say(doctor, GM_DOCTOR_NOTE, "platform", GM_DOCTOR_NO_DEVICE, NULL,
			"WSL2, %s: the daemon tries the fd transport before it uses it; NVML names "
			"no processes",
			name.machine);
	else
		gm_doctor_say(doctor, GM_DOCTOR_OK, "platform", GM_DOCTOR_NO_DEVICE, NULL,
			"Linux %s, %s", name.release, name.machine);
}

void gm_doctor_container(struct gm_doctor *doctor)
{
	static const struct {
		const char *path, *kind;
	} marks[] = {
		{"/.dockerenv", "Docker"},
		{"/run/.containerenv", "Podman"},
	};
	char kind[64] = "", cgroup[4096];

	for (size_t i = 0; i < sizeof(marks) / sizeof(*marks) && !*kind; i++)
		if (gm_doctor_exists(doctor, marks[i].path))
			snprintf(kind, sizeof(kind), "%s", marks[i].kind);
	if (!*kind && gm_doctor_read(doctor, "/run/systemd/container", kind, sizeof(kind)))
		kind[strcspn(kind, "\n")] = '\0';
	if (!*kind && gm_doctor_read(doctor, "/proc/self/cgroup", cgroup, sizeof(cgroup)) &&
		(strstr(cgroup, "kubepods") || strstr(cgroup, "/docker") ||
			strstr(cgroup, "libpod")))
		snprintf(kind, sizeof(kind), "by its cgroup");

	doctor->container = *kind;
	if (*kind)
		gm_doctor_say(doctor, GM_DOCTOR_NOTE, "container", GM_DOCTOR_NO_DEVICE,
			"to serve clients in other containers, mount the folder of the socket "
			"into them, too",
			"in one (%s): a daemon here is only reached from inside", kind);
	else
		gm_doctor_say(
			doctor, GM_DOCTOR_OK, "container", GM_DOCTOR_NO_DEVICE, NULL, "not in one");
}

/* ---- the daemon */

static void doctor_take_keeper(struct gm_doctor_daemon *daemon, const Gm__Wire__Keeper *keeper)
{
	if (!keeper)
		return;
	daemon->keeper = true;
	daemon->keeper_ready = keeper->ready;
	daemon->keeper_pid = keeper->pid;
	daemon->keeper_items = keeper->items;
	daemon->keeper_capacity = keeper->capacity;
	daemon->keeper_lost = keeper->lost;
	snprintf(daemon->keeper_socket, sizeof(daemon->keeper_socket), "%s", keeper->socket);
}

static void doctor_take(void *user, const Gm__Wire__Packet *packet)
{
	struct gm_doctor *doctor = user;
	const Gm__Wire__StatusReply *status = packet->status;
	struct gm_doctor_daemon *daemon = &doctor->daemon;

	if (!daemon->up) {
		daemon->up = true;
		snprintf(daemon->version, sizeof(daemon->version), "%s", status->version);
		snprintf(daemon->backend, sizeof(daemon->backend), "%s", status->backend);
		snprintf(daemon->backend_note, sizeof(daemon->backend_note), "%s",
			status->backend_note);
		daemon->pid = status->pid;
		daemon->pid_namespace = status->pid_namespace;
		daemon->uid = (uid_t)status->uid;
		daemon->fd_limit = status->fd_limit;
		doctor_take_keeper(daemon, status->keeper);
	}
	for (size_t i = 0; i < status->n_devices; i++) {
		const Gm__Wire__Device *device = status->devices[i];
		char age[GM_UNITS_TEXT];

		daemon->n_devices += !device->pinned;
		daemon->orphaned += device->orphaned;
		if (device->drainer && device->number < GM_BOUND_DEVICES) {
			daemon->devices[device->number].drained = true;
			daemon->devices[device->number].by = device->drainer->uid;
			daemon->devices[device->number].ms = device->drainer->age_ms;
		}
		daemon->by_fd |=
			!device->pinned && device->transport == GM__WIRE__TRANSPORT__TRANSPORT_FD;
		daemon->by_ipc |=
			!device->pinned && device->transport == GM__WIRE__TRANSPORT__TRANSPORT_IPC;
		if (*device->trouble)
			gm_doctor_say(doctor, GM_DOCTOR_WARN, "daemon", (int)device->number,
				"the daemon's log may say more: 'journalctl -u gpumemd'",
				"the driver reported an error %s ago: %.200s",
				gm_text_duration(device->trouble_age_ms, age), device->trouble);
	}
}

static void doctor_tell_daemon(struct gm_doctor *doctor)
{
	const struct gm_doctor_daemon *daemon = &doctor->daemon;
	char user[GM_USER_NAME_TEXT];

	if (!strcmp(daemon->backend, "host") && doctor->cuda && !gm_doctor_wants(doctor, "host"))
		gm_doctor_say(doctor, GM_DOCTOR_WARN, "daemon", GM_DOCTOR_NO_DEVICE,
			"if the lines above are ok, restart the daemon; run 'gpumemctl doctor' as "
			"its user to see what it sees",
			"gpumemd %s serves host memory, although there is a GPU%s%s",
			daemon->version, *daemon->backend_note ? ": " : "", daemon->backend_note);
	else
		gm_doctor_say(doctor, GM_DOCTOR_OK, "daemon", GM_DOCTOR_NO_DEVICE, NULL,
			"%s: gpumemd %s, pid %llu, user %s, serves %u device%s (%s)%s%s%s",
			gm_other_daemon_words(daemon->kind), daemon->version,
			(unsigned long long)daemon->pid, gm_user_name(daemon->uid, user),
			daemon->n_devices, daemon->n_devices == 1 ? "" : "s", daemon->backend,
			daemon->by_fd || daemon->by_ipc ? "; clients get " : "",
			daemon->by_fd    ? "fd"
			: daemon->by_ipc ? "ipc"
					 : "",
			daemon->by_fd && daemon->by_ipc ? " or ipc, depending on the device" : "");
}

/* ---- the configuration of the running daemon */

/* The files that its settings come from. */
struct doctor_sources {
	const char *files;      /* those that doctor has read, one per line */
	bool any;               /* a setting comes from a file */
	char foreign[PATH_MAX]; /* one that doctor has not read; "": there is none */
};

/* Returns the length of the file's name at the end of a source, such as "after a restart: /x/y.conf:12", and
 * where it begins; 0: the source is no file. */
static size_t doctor_source_file(const char *source, const char **ret_file)
{
	const char *file = strchr(source, '/'), *colon = strrchr(source, ':');

	if (!file || !colon || colon <= file || !colon[1] ||
		colon[1 + strspn(colon + 1, "0123456789")])
		return 0;
	*ret_file = file;
	return (size_t)(colon - file);
}

static bool doctor_has_read(const char *files, const char *file, size_t n)
{
	for (const char *at = files, *end; *at; at = *end ? end + 1 : end) {
		end = at + strcspn(at, "\n");
		if ((size_t)(end - at) == n && !strncmp(at, file, n))
			return true;
	}
	return false;
}

static void doctor_take_sources(void *user, const Gm__Wire__Packet *packet)
{
	struct doctor_sources *sources = user;

	for (size_t i = 0; i < packet->config->n_entries; i++) {
		const char *file;
		size_t n = doctor_source_file(packet->config->entries[i]->source, &file);

		if (!n)
			continue;
		sources->any = true;
		if (!doctor_has_read(sources->files, file, n))
			snprintf(sources->foreign, sizeof(sources->foreign), "%.*s", (int)n, file);
	}
}

/* Says if the running daemon has another configuration than the one that doctor has read. */
static void doctor_tell_configuration(struct gm_doctor *doctor, struct gm_ctl_conn *conn)
{
	const char *files = doctor->config_files ? doctor->config_files : "", *file;
	struct doctor_sources sources = {.files = files};
	struct gm_trouble trouble;
	bool ours = false;

	for (size_t i = 0; doctor->config && i < doctor->config->n_entries; i++)
		ours = ours || doctor_source_file(doctor->config->entries[i].source, &file);
	if (gm_ctl_conn_get(conn, GM__WIRE__PACKET__BODY_GET_CONFIG, doctor_take_sources, &sources,
		    &trouble) != GPUMEM_OK)
		return;
	if (!*sources.foreign && (sources.any || !ours))
		return;
	gm_doctor_say(doctor, GM_DOCTOR_NOTE, "config", GM_DOCTOR_NO_DEVICE,
		"'gpumemctl config show' has the settings of the running daemon",
		"%.*s is not the configuration of the running daemon%s%.300s",
		*files ? (int)gm_u64_min(strcspn(files, "\n"), 300) : 4, *files ? files : "this",
		*sources.foreign ? ", which reads " : "", sources.foreign);
}

static void doctor_tell_others(struct gm_doctor *doctor, const char *path)
{
	struct gm_other_daemon others[GM_OTHER_DAEMONS];
	size_t n = gm_other_daemon_find(path, doctor->timeout_ms, others);

	for (size_t i = 0; i < n; i++) {
		const struct gm_other_daemon *other = &others[i];
		char remedy[GM_PATH_BYTES + 128], who[GM_USER_NAME_TEXT + 64] = "",
									  user[GM_USER_NAME_TEXT];

		if (!strcmp(other->state, "running"))
			snprintf(who, sizeof(who), ", pid %llu, user %s",
				(unsigned long long)other->pid,
				gm_user_name((uid_t)other->uid, user));
		snprintf(remedy, sizeof(remedy),
			"to use it, set GPUMEM_SOCKET=%s, or give gpumemctl --socket", other->path);
		gm_doctor_say(doctor, GM_DOCTOR_NOTE, "daemon", GM_DOCTOR_NO_DEVICE, remedy,
			"%s is here, too (%s%s)", gm_other_daemon_words(other->kind), other->state,
			who);
	}
}

void gm_doctor_daemon(struct gm_doctor *doctor)
{
	char path[GM_PATH_BYTES], keeper[GM_PATH_BYTES], owner[GM_USER_NAME_TEXT];
	const char *why = "--socket", *given = doctor->socket;
	struct gm_trouble trouble;
	struct gm_ctl_conn *conn;
	struct stat st;

	if (given)
		snprintf(path, sizeof(path), "%s", given);
	else if (gm_path_client_socket(path, &why) < 0)
		snprintf(path, sizeof(path), "%s", GM_SYSTEM_SOCKET);
	if (gm_path_keeper_socket(path, keeper) == 0)
		snprintf(doctor->daemon.keeper_socket, sizeof(doctor->daemon.keeper_socket),
			"%.255s", keeper);

	if (lstat(path, &st) < 0) {
		int error = errno;
		struct gm_reach reach;

		gm_reach_explain(path, -error, &reach);
		gm_doctor_say(doctor, error == ENOENT ? GM_DOCTOR_NOTE : GM_DOCTOR_FAIL, "socket",
			GM_DOCTOR_NO_DEVICE,
			error == ENOENT ? reach.remedy
					: "let clients enter the folder of the socket (mode 0755)",
			"%.200s (%s): %s", path, why,
			error == ENOENT ? "no daemon listens there" : strerror(error));
		return;
	}

	if (!S_ISSOCK(st.st_mode)) {
		gm_doctor_say(doctor, GM_DOCTOR_FAIL, "socket", GM_DOCTOR_NO_DEVICE,
			"remove it, or name another path: the daemon does not start while it is there",
			"%.200s (%s): this is %s, not a socket", path, why,
			S_ISDIR(st.st_mode) ? "a folder" : "a file");
		return;
	}

	gpumem_status status = gm_ctl_conn_open(given, doctor->timeout_ms, &trouble, &conn);
	if (status != GPUMEM_OK) {
		bool down = trouble.status == GPUMEM_E_DISCONNECTED && access(path, W_OK) == 0;
		gm_doctor_say(doctor, down ? GM_DOCTOR_NOTE : GM_DOCTOR_FAIL, "socket",
			GM_DOCTOR_NO_DEVICE, *trouble.hint ? trouble.hint : NULL, "%.400s",
			trouble.text);
		return;
	}

	gm_doctor_say(doctor, GM_DOCTOR_OK, "socket", GM_DOCTOR_NO_DEVICE, NULL,
		"%.200s (%s), mode %04o, owner %s", path, why, (unsigned)st.st_mode & 07777,
		gm_user_name(st.st_uid, owner));

	doctor->daemon.kind = gm_other_daemon_kind(path);
	status = gm_ctl_conn_get(
		conn, GM__WIRE__PACKET__BODY_GET_STATUS, doctor_take, doctor, &trouble);
	if (status != GPUMEM_OK) {
		gm_doctor_say(doctor, GM_DOCTOR_FAIL, "daemon", GM_DOCTOR_NO_DEVICE,
			*trouble.hint ? trouble.hint : NULL, "%.400s", trouble.text);
	} else {
		gm_doctor_process(doctor);
		doctor_tell_daemon(doctor);
		doctor_tell_configuration(doctor, conn);
		gm_doctor_orphaned(doctor, conn);
	}
	doctor_tell_others(doctor, path);
	gm_ctl_conn_free(conn);
}

/* ---- what the unit allows */

void gm_doctor_drained(struct gm_doctor *doctor)
{
	char user[GM_USER_NAME_TEXT], age[GM_UNITS_TEXT], remedy[64];

	for (int i = 0; i < GM_BOUND_DEVICES; i++) {
		if (!doctor->daemon.devices[i].drained)
			continue;
		snprintf(remedy, sizeof(remedy), "'gpumemctl drain %d --undo'", i);
		gm_doctor_say(doctor, GM_DOCTOR_WARN, "drain", i, remedy,
			"drained by user %s for %s: nobody gets new memory",
			gm_user_name(doctor->daemon.devices[i].by, user),
			gm_text_duration(doctor->daemon.devices[i].ms, age));
	}
}

/* How many devices have chunks. Pinned host memory counts as one, unless it is turned off. */
static uint64_t doctor_count_devices(const struct gm_doctor *doctor)
{
	uint64_t n = doctor->n_devices ? doctor->n_devices : doctor->daemon.n_devices;

	return (n ? n : 1) + (!doctor->config || doctor->config->host_limit != 0);
}

void gm_doctor_files(struct gm_doctor *doctor)
{
	uint64_t wanted = FDS_PER_DEVICE * doctor_count_devices(doctor) +
			  (uint64_t)FDS_PER_CLIENT * GM_BOUND_CONNECTIONS + FDS_OF_DAEMON;
	const char *whose = "here";
	const char *remedy =
		"set LimitNOFILE=524288 in the unit of the daemon; without a unit, root must raise "
		"the hard limit of its user ('nofile' in /etc/security/limits.conf)";
	struct rlimit limit;
	uint64_t n = 0, of_unit = 0;
	bool found = false;

	if (gm_doctor_exists(doctor, "/run/systemd/system"))
		gm_config_machine_unit(doctor->root, "LimitNOFILE", &found, &of_unit);
	if (doctor->daemon.up && doctor->daemon.fd_limit) {
		n = doctor->daemon.fd_limit;
		whose = "of the daemon";
		if (found && of_unit >= wanted)
			remedy =
				"the unit allows more (LimitNOFILE=), but this container or machine does not: "
				"start it with a higher limit, for example 'docker run --ulimit "
				"nofile=524288'; a daemon that runs without the unit has the limit of its user";
	} else if (found) {
		n = of_unit;
		whose = "of its unit";
	} else if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		n = limit.rlim_max; /* the daemon raises its soft limit to this */
	} else {
		return;
	}

	if (n >= wanted)
		gm_doctor_say(doctor, GM_DOCTOR_OK, "descriptors", GM_DOCTOR_NO_DEVICE, NULL,
			"the limit %s is %llu; %d clients and %d chunks per device need %llu",
			whose, (unsigned long long)n, GM_BOUND_CONNECTIONS, FDS_PER_DEVICE,
			(unsigned long long)wanted);
	else
		gm_doctor_say(doctor, GM_DOCTOR_WARN, "descriptors", GM_DOCTOR_NO_DEVICE, remedy,
			"the limit %s is %llu; %d clients and %d chunks per device need %llu",
			whose, (unsigned long long)n, GM_BOUND_CONNECTIONS, FDS_PER_DEVICE,
			(unsigned long long)wanted);
}

/* Finds out how much memory the daemon may use, and how many descriptors: the one that runs, or else the one that the
 * unit would start. Returns false if nothing says so. */
static bool doctor_find_memory(
	const struct gm_doctor *doctor, uint64_t *ret_most, uint64_t *ret_files)
{
	bool found;

	if (doctor->daemon.seen) {
		*ret_most = doctor->daemon.memory_max;
		*ret_files = doctor->daemon.fd_limit;
		return true;
	}
	if (!gm_doctor_exists(doctor, "/run/systemd/system") ||
		!gm_config_machine_unit(doctor->root, "MemoryMax", &found, ret_most) || !found)
		return false;
	gm_config_machine_unit(doctor->root, "LimitNOFILE", &found, ret_files);
	return true;
}

/* Compares the memory that the daemon may use with the maximum that it can need. */
void gm_doctor_memory(struct gm_doctor *doctor)
{
	const struct gm_config *config = doctor->config;
	const struct gm_doctor_daemon *daemon = &doctor->daemon;
	char has[GM_UNITS_TEXT], needs[GM_UNITS_TEXT], host_text[GM_UNITS_TEXT], line[256];
	char may[64 + GM_UNITS_TEXT];
	uint64_t most = 0, files = 0, host = 0;

	if (!doctor_find_memory(doctor, &most, &files))
		return;
	/* By default there is as much of it as the unit leaves. */
	if (config && config->host_memory == GM_BACKEND_HOST_MEMORY_MEMFD &&
		config->host_limit != UINT64_MAX)
		host = config->host_limit;

	uint64_t wanted = gm_kept_bytes(files) + host;
	wanted = gm_round_up(wanted, UINT64_C(1) << 30);
	gm_format_size(host, host_text);
	gm_format_size(wanted, needs);
	if (most == UINT64_MAX && !daemon->seen)
		snprintf(may, sizeof(may), "the unit sets no limit");
	else if (most == UINT64_MAX)
		snprintf(may, sizeof(may), "the daemon (pid %llu) has no limit",
			(unsigned long long)daemon->pid);
	else if (daemon->seen)
		snprintf(may, sizeof(may), "the daemon (pid %llu) may use %s",
			(unsigned long long)daemon->pid, gm_format_size(most, has));
	else
		snprintf(may, sizeof(may), "the unit lets the daemon use %s",
			gm_format_size(most, has));

	if (most >= wanted) {
		gm_doctor_say(doctor, GM_DOCTOR_OK, "memory", GM_DOCTOR_NO_DEVICE, NULL,
			"%s; all its clients and chunks, and %s of memfds, need %s at most", may,
			host_text, needs);
		return;
	}
	if (daemon->seen && !daemon->of_service)
		snprintf(line, sizeof(line),
			"it does not run as the service: raise the limit of the container or the "
			"session that it runs in to %lluG, or start gpumemd.service",
			(unsigned long long)(wanted >> 30));
	else
		snprintf(line, sizeof(line),
			"write \"[Service]\" and \"MemoryMax=%lluG\" to "
			"/etc/systemd/system/gpumemd.service.d/memory.conf, then restart the service",
			(unsigned long long)(wanted >> 30));
	gm_doctor_say(doctor, GM_DOCTOR_WARN, "memory", GM_DOCTOR_NO_DEVICE, line,
		"%s; all its clients and chunks, and %s of memfds, "
		"can need %s, and the kernel ends a daemon that needs more than it may use",
		may, host_text, needs);
}
