/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * The check of the service manager: whether there is one, whether it has units of the daemon, what became of
 * them, and whether what they need is there. systemctl is asked for that: it is there wherever systemd is, and needs no rights.
 */

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/system/platform.h"
#include "ctl/doctor/doctor.h"
#include "ctl/io/user_name.h"
#include "daemon/config/config_machine.h"

#define SERVICE_KEEPER     "gpumemd-keeper.service"
#define SERVICE_ADMIN      "gpumemd-admin.socket"
#define SERVICE_SOCKET     "gpumemd.socket"
#define SERVICE_FOLDER     "/run/gpumemd"
#define SERVICE_VALUE      64
#define SERVICE_NO_PROGRAM "203" /* ExecMainStatus= if the program could not be started */

#define SERVICE_KEEPER_SOCKET SERVICE_FOLDER "/keeper"
#define SERVICE_USER          "gpumemd" /* that systemd-sysusers makes */

/* What systemd says about the unit. All texts are "" if it says nothing. */
struct doctor_unit {
	char load[32], active[32], result[32], status[8], text[300];
};

/* In the child. */
static _Noreturn void service_ask(int out, const char *name)
{
	char *const words[] = {"systemctl", "show",
		"--property=LoadState,ActiveState,Result,ExecMainStatus,StatusText", "--",
		(char *)name, NULL};
	GM_AUTO_FD int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(null, STDERR_FILENO) < 0 ||
		dup2(out, STDOUT_FILENO) < 0)
		_exit(EXIT_FAILURE);
	execvp(words[0], words);
	_exit(EXIT_FAILURE);
}

/* Reads what the child writes, as text, until it ends or until the time is over. */
static void service_hear(int in, uint64_t until_ns, char *text, size_t size)
{
	struct pollfd ready = {.fd = in, .events = POLLIN};
	size_t used = 0;

	while (used + 1 < size) {
		int r = poll(&ready, 1, gm_clock_poll_ms(until_ns));
		if (r < 0 && errno == EINTR)
			continue;
		ssize_t got = r > 0 ? read(in, text + used, size - 1 - used) : 0;
		if (got <= 0)
			break;
		used += (size_t)got;
	}
	text[used] = '\0';
}

static void service_take_line(struct doctor_unit *unit, const char *line)
{
	const struct {
		const char *key;
		char *to;
		size_t size;
	} rows[] = {
		{"LoadState=", unit->load, sizeof(unit->load)},
		{"ActiveState=", unit->active, sizeof(unit->active)},
		{"Result=", unit->result, sizeof(unit->result)},
		{"ExecMainStatus=", unit->status, sizeof(unit->status)},
		{"StatusText=", unit->text, sizeof(unit->text)},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		if (!strncmp(line, rows[i].key, strlen(rows[i].key)))
			snprintf(rows[i].to, rows[i].size, "%s", line + strlen(rows[i].key));
}

/* Asks systemd about the unit, for no longer than gpumemctl waits for the daemon. */
static void service_look(const struct gm_doctor *doctor, const char *name, struct doctor_unit *unit)
{
	uint64_t until_ns = gm_clock_ns() + doctor->timeout_ms * GM_NS_PER_MS;
	char text[2048], *rest = text;
	int ends[2];

	*unit = (struct doctor_unit){0};
	if (pipe2(ends, O_CLOEXEC) < 0)
		return;
	pid_t child = fork();
	if (child == 0)
		service_ask(ends[1], name);
	gm_close(ends[1]);
	if (child > 0) {
		service_hear(ends[0], until_ns, text, sizeof(text));
		kill(child, SIGKILL);
		while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
			;
		for (char *line; (line = strsep(&rest, "\n"));)
			service_take_line(unit, line);
	}
	gm_close(ends[0]);
}

/* The service ended by itself, and systemd has not started it again since. */
static bool service_failed(const struct doctor_unit *unit)
{
	return *unit->result && strcmp(unit->result, "success") != 0 &&
	       strcmp(unit->active, "active") != 0;
}

static void service_take_value(void *ctx, const char *value)
{
	snprintf(ctx, SERVICE_VALUE, "%.60s", value);
}

/* Says that systemd cannot start a unit at all. Returns false if that is not so. */
static bool service_tell_load(struct gm_doctor *doctor, enum gm_doctor_state state,
	const char *name, const struct doctor_unit *unit)
{
	bool masked = !strcmp(unit->load, "masked");
	char remedy[192];

	if (!masked && strcmp(unit->load, "bad-setting") != 0 && strcmp(unit->load, "error") != 0)
		return false;
	snprintf(remedy, sizeof(remedy),
		masked ? "run 'systemctl unmask %s', then 'systemctl restart %s'"
		       : "'systemd-analyze verify %s' names the mistake; correct it, then run "
			 "'systemctl daemon-reload' and 'systemctl restart %s'",
		name, name);
	gm_doctor_say(doctor, state, "service", GM_DOCTOR_NO_DEVICE, remedy,
		masked ? "%s is masked, so systemd does not start it"
		       : "systemd cannot load %s (%s), so it does not start it",
		name, unit->load);
	return true;
}

/* Says that systemd cannot start a unit, or could not keep it running, and its last error. state: how bad that is. Returns false if
 * neither is so. */
static bool service_tell_failure(struct gm_doctor *doctor, enum gm_doctor_state state,
	const char *name, const struct doctor_unit *unit)
{
	bool coded = !strcmp(unit->result, "exit-code") && *unit->status;
	char remedy[192];

	if (service_tell_load(doctor, doctor->daemon.up ? GM_DOCTOR_WARN : state, name, unit))
		return true;
	if (!service_failed(unit))
		return false;
	snprintf(remedy, sizeof(remedy),
		"remove the cause, then run 'systemctl restart %s'; 'journalctl -u %s' has the whole log",
		name, name);
	gm_doctor_say(doctor, state, "service", GM_DOCTOR_NO_DEVICE, remedy,
		"systemd could not keep %s running (%s%s%s): %s", name, unit->result,
		coded ? " " : "", coded ? unit->status : "",
		*unit->text ? unit->text
		: coded && !strcmp(unit->status, SERVICE_NO_PROGRAM)
			? "its program is missing or cannot be run"
			: "it left no message");
	return true;
}

/* Says that the unit of the socket is active, but the file of its socket is gone, so that no client can connect. Returns false if
 * that is not so. */
static bool service_tell_socket(struct gm_doctor *doctor, const struct doctor_unit *unit)
{
	char listens[SERVICE_VALUE] = "", path[PATH_MAX], folder[PATH_MAX];
	bool runs = !strcmp(unit->active, "active");
	struct doctor_unit socket;
	struct stat st;

	gm_platform_unit(doctor->root, SERVICE_SOCKET, "ListenSequentialPacket", service_take_value,
		listens);
	if (*listens != '/' ||
		lstat(gm_doctor_path(doctor, listens, path, sizeof(path)), &st) == 0 ||
		errno != ENOENT)
		return false;
	service_look(doctor, SERVICE_SOCKET, &socket);
	if (!runs && strcmp(socket.active, "active") != 0)
		return false;
	gm_doctor_path(doctor, listens, folder, sizeof(folder));
	*strrchr(folder, '/') = '\0';
	gm_doctor_say(doctor, GM_DOCTOR_FAIL, "service", GM_DOCTOR_NO_DEVICE,
		stat(folder, &st) == 0
			? "run 'systemctl restart " SERVICE_SOCKET "'"
			: "run 'systemd-tmpfiles --create gpumemd.conf', then 'systemctl restart gpumemd-keeper', then "
			  "'systemctl restart " SERVICE_SOCKET "'",
		"%s, but its socket file is gone (%s): no client can connect",
		runs ? "the service runs" : SERVICE_SOCKET " is active", listens);
	return true;
}

/* ---- what a step of the installation left out */

/* Says that the folder of the system's sockets belongs to another user than the service's. */
static void service_tell_owner(struct gm_doctor *doctor, enum gm_doctor_state state, uid_t uid,
	const char *user, const char *remedy)
{
	char owner[GM_USER_NAME_TEXT], back[320];

	gm_user_name(uid, owner);
	if (uid == 0) {
		gm_doctor_say(doctor, state, "service", GM_DOCTOR_NO_DEVICE, remedy,
			SERVICE_FOLDER
			" belongs to the user %s, and the service, which runs as %s, cannot make "
			"files in it: its keeper could not start again",
			owner, user);
		return;
	}
	snprintf(back, sizeof(back),
		"run 'systemctl edit gpumemd' and write \"[Service]\" and \"User=%.64s\", then restart the "
		"service: what clients hold stays; another user of the service needs another owner of "
		"the folder and a new keeper, which gives up what clients hold",
		owner);
	gm_doctor_say(doctor, state, "service", GM_DOCTOR_NO_DEVICE, back,
		SERVICE_FOLDER
		" belongs to the user %s, and so does what its keeper has; the service runs as %s",
		owner, user);
}

static void service_take_there(void *ctx, const char *value)
{
	(void)value;
	*(bool *)ctx = true;
}

/* Says what is wrong with the folder of the system's sockets. user: as which the service runs; "": not known. */
static void service_tell_folder(struct gm_doctor *doctor, const char *user)
{
	static const char remedy[] =
		"run 'systemd-tmpfiles --create gpumemd.conf', then restart the daemon; without systemd: "
		"'chown gpumemd " SERVICE_FOLDER " && chmod 755 " SERVICE_FOLDER "'";
	enum gm_doctor_state state = doctor->daemon.up ? GM_DOCTOR_WARN : GM_DOCTOR_FAIL;
	const struct passwd *wanted = *user ? getpwnam(user) : NULL;
	char path[PATH_MAX];
	bool passed = false; /* systemd makes the socket, whatever the mode of the folder */
	struct stat st;

	if (stat(gm_doctor_path(doctor, SERVICE_FOLDER, path, sizeof(path)), &st) < 0) {
		if (errno == ENOENT && wanted && !doctor->daemon.up)
			gm_doctor_say(doctor, GM_DOCTOR_FAIL, "service", GM_DOCTOR_NO_DEVICE,
				remedy,
				"there is no folder " SERVICE_FOLDER
				", in which the daemon and its keeper make their sockets");
		return;
	}
	bool open = st.st_mode & 0022;
	gm_platform_unit(doctor->root, SERVICE_SOCKET, "ListenSequentialPacket", service_take_there,
		&passed);
	if (wanted && st.st_uid != wanted->pw_uid)
		service_tell_owner(doctor, state, st.st_uid, user, remedy);
	else if (!S_ISDIR(st.st_mode) || (st.st_mode & 0722) != 0700)
		gm_doctor_say(doctor, open && passed ? GM_DOCTOR_WARN : state, "service",
			GM_DOCTOR_NO_DEVICE, remedy, SERVICE_FOLDER " has mode %04o: %s",
			(unsigned)st.st_mode & 07777,
			!open ? "its user cannot make sockets in it"
			: passed
				? "other users can put sockets of their own in the place of the daemon's"
				: "other users can write to it, so the daemon refuses it");
	else if (!(st.st_mode & 0001))
		gm_doctor_say(doctor, st.st_mode & 0010 ? GM_DOCTOR_WARN : GM_DOCTOR_FAIL,
			"service", GM_DOCTOR_NO_DEVICE, remedy,
			SERVICE_FOLDER " has mode %04o: %s reach the socket in it",
			(unsigned)st.st_mode & 07777,
			st.st_mode & 0010 ? "only its group can" : "other users cannot");
}

static void service_tell_user(struct gm_doctor *doctor, const char *user)
{
	if (!*user || getpwnam(user) || user[strspn(user, "0123456789")] == '\0')
		return;
	gm_doctor_say(doctor, GM_DOCTOR_FAIL, "service", GM_DOCTOR_NO_DEVICE,
		strcmp(user, SERVICE_USER) == 0
			? "run 'systemd-sysusers' and 'systemd-tmpfiles --create gpumemd.conf', then "
			  "'systemctl restart gpumemd.socket gpumemd'"
			: "name a user that exists in User= of the unit ('systemctl edit gpumemd'), then "
			  "'systemctl restart gpumemd'; systemd-sysusers makes only the user " SERVICE_USER,
		"there is no user %s, as which the service runs", user);
}

/* Says that a unit of a socket names a group that does not exist. Returns false if that is not so. */
static bool service_tell_group(
	struct gm_doctor *doctor, enum gm_doctor_state state, const char *unit, const char *without)
{
	char group[SERVICE_VALUE] = "", remedy[256];

	gm_platform_unit(doctor->root, unit, "SocketGroup", service_take_value, group);
	if (!*group || getgrnam(group) || group[strspn(group, "0123456789")] == '\0')
		return false;
	snprintf(remedy, sizeof(remedy),
		"run 'systemd-sysusers' if the group came with gpumemd, or name another one in SocketGroup= "
		"('systemctl edit %s'); then 'systemctl restart %s'",
		unit, unit);
	gm_doctor_say(doctor, state, "service", GM_DOCTOR_NO_DEVICE, remedy,
		"there is no group %s, so %s fails, and %s", group, unit, without);
	return true;
}

/* Says that the daemon cannot find the keeper that systemd runs, or that systemd runs none. */
static void service_tell_keeper(struct gm_doctor *doctor, const struct doctor_unit *keeper)
{
	struct doctor_unit daemon;

	if (doctor->daemon.up)
		return;
	if (!strcmp(keeper->active, "active") && !gm_doctor_exists(doctor, SERVICE_KEEPER_SOCKET)) {
		gm_doctor_say(doctor, GM_DOCTOR_FAIL, "service", GM_DOCTOR_NO_DEVICE,
			"'systemctl cat " SERVICE_KEEPER
			"' shows the path that it listens on (--socket); correct that, then run "
			"'systemctl restart gpumemd-keeper'",
			SERVICE_KEEPER " runs, but not on " SERVICE_KEEPER_SOCKET
				       ", where the service looks for it");
		return;
	}
	service_look(doctor, GM_CONFIG_SERVICE_UNIT, &daemon);
	if (!strcmp(keeper->active, "inactive") && !strcmp(daemon.active, "activating"))
		gm_doctor_say(doctor, GM_DOCTOR_FAIL, "service", GM_DOCTOR_NO_DEVICE,
			"run 'systemctl start gpumemd-keeper'",
			SERVICE_KEEPER " does not run, and the service waits for it");
}

/* Says what keeps the units beside that of the daemon from running. */
static void service_tell_parts(struct gm_doctor *doctor, const char *user)
{
	static const struct {
		const char *unit, *key; /* key: one that the unit has */
		enum gm_doctor_state state;
		const char *without;
	} parts[] = {
		{SERVICE_KEEPER, "User", GM_DOCTOR_FAIL, NULL},
		{SERVICE_SOCKET, "SocketGroup", GM_DOCTOR_FAIL, "the service cannot start"},
		{SERVICE_ADMIN, "SocketGroup", GM_DOCTOR_WARN,
			"administrators have no socket of their own"},
	};
	char value[SERVICE_VALUE] = "";

	service_tell_user(doctor, user);
	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
		const char *unit = parts[i].unit;
		struct doctor_unit said;

		if (!gm_platform_unit(doctor->root, unit, parts[i].key, service_take_value, value))
			continue;
		if (parts[i].without &&
			service_tell_group(doctor, parts[i].state, unit, parts[i].without))
			continue;
		service_look(doctor, unit, &said);
		if (!service_tell_failure(doctor, parts[i].state,
			    parts[i].without ? unit : "gpumemd-keeper", &said) &&
			!parts[i].without)
			service_tell_keeper(doctor, &said);
	}
}

static void service_tell(struct gm_doctor *doctor)
{
	char store[SERVICE_VALUE] = "";
	struct doctor_unit unit;

	if (!gm_doctor_exists(doctor, "/run/systemd/system")) {
		gm_doctor_say(doctor, GM_DOCTOR_NOTE, "service", GM_DOCTOR_NO_DEVICE,
			doctor->container
				? "start gpumemd by hand, or let the supervisor of the container start it"
				: "start gpumemd by hand, as an ordinary user or as the user gpumemd: "
				  "see FIRST STEPS in gpumemd(8)",
			"no systemd here: nothing restarts the daemon");
		return;
	}

	if (!gm_platform_unit(doctor->root, GM_CONFIG_SERVICE_UNIT, "FileDescriptorStoreMax",
		    service_take_value, store)) {
		gm_doctor_say(doctor, GM_DOCTOR_NOTE, "service", GM_DOCTOR_NO_DEVICE,
			"'make install' puts gpumemd.service and gpumemd.socket in place",
			"systemd, without a unit for gpumemd");
		return;
	}

	service_look(doctor, GM_CONFIG_SERVICE_UNIT, &unit);
	if (service_tell_failure(doctor, GM_DOCTOR_FAIL, "gpumemd", &unit) ||
		service_tell_socket(doctor, &unit))
		return;

	if (!strcmp(unit.active, "activating") && *unit.text) {
		gm_doctor_say(doctor, GM_DOCTOR_WARN, "service", GM_DOCTOR_NO_DEVICE,
			"if it goes on, 'journalctl -u gpumemd' has the whole log",
			"the service does not serve yet: %s", unit.text);
		return;
	}

	if (doctor->daemon.seen && !doctor->daemon.of_service) {
		gm_doctor_say(doctor, GM_DOCTOR_NOTE, "service", GM_DOCTOR_NO_DEVICE,
			"to run it as the service, end it and run 'systemctl start gpumemd'",
			"systemd, unit installed, but the daemon that runs (pid %llu) is not the "
			"service's: nothing restarts it",
			(unsigned long long)doctor->daemon.pid);
		return;
	}

	bool stores = *store && strcmp(store, "0") != 0;
	gm_doctor_say(doctor, GM_DOCTOR_OK, "service", GM_DOCTOR_NO_DEVICE, NULL,
		"systemd, unit installed%s%s; fd store: %s%s", *unit.active ? ", " : "",
		unit.active, stores ? "for " : "none",
		stores ? store
		       : ", so a restart while the keeper is missing gives up what clients hold");
}

void gm_doctor_service(struct gm_doctor *doctor)
{
	char user[SERVICE_VALUE] = "";
	bool here = gm_doctor_exists(doctor, "/run/systemd/system") &&
		    gm_platform_unit(
			    doctor->root, GM_CONFIG_SERVICE_UNIT, "User", service_take_value, user);

	service_tell(doctor);
	if (here)
		service_tell_parts(doctor, user);
	service_tell_folder(doctor, here ? user : "");
}
