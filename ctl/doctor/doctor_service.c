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

/* What systemd says about the unit. All texts are "" if it says nothing. */
struct doctor_unit {
	char active[32], result[32], status[8], text[300];
};

/* In the child. */
static _Noreturn void service_ask(int out, const char *name)
{
	char *const words[] = {"systemctl", "show",
		"--property=ActiveState,Result,ExecMainStatus,StatusText", "--", (char *)name,
		NULL};
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

/* Says that systemd could not keep a unit running, and its last error. Returns false if that is not so. */
static bool service_tell_failure(
	struct gm_doctor *doctor, const char *name, const struct doctor_unit *unit)
{
	bool coded = !strcmp(unit->result, "exit-code");
	char remedy[192];

	if (!service_failed(unit))
		return false;
	snprintf(remedy, sizeof(remedy),
		"remove the cause, then run 'systemctl restart %s'; 'journalctl -u %s' has the whole log",
		name, name);
	gm_doctor_say(doctor, GM_DOCTOR_FAIL, "service", GM_DOCTOR_NO_DEVICE, remedy,
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

/* Says what is wrong with the folder of the system's sockets. user: as which the service runs; "": not known. */
static void service_tell_folder(struct gm_doctor *doctor, const char *user)
{
	static const char remedy[] =
		"run 'systemd-tmpfiles --create gpumemd.conf', then restart the daemon; without systemd: "
		"'chown gpumemd " SERVICE_FOLDER " && chmod 755 " SERVICE_FOLDER "'";
	enum gm_doctor_state state = doctor->daemon.up ? GM_DOCTOR_WARN : GM_DOCTOR_FAIL;
	const struct passwd *wanted = *user ? getpwnam(user) : NULL;
	char path[PATH_MAX], owner[GM_USER_NAME_TEXT];
	struct stat st;

	if (stat(gm_doctor_path(doctor, SERVICE_FOLDER, path, sizeof(path)), &st) < 0) {
		if (errno == ENOENT && wanted && !doctor->daemon.up)
			gm_doctor_say(doctor, GM_DOCTOR_FAIL, "service", GM_DOCTOR_NO_DEVICE,
				remedy,
				"there is no folder " SERVICE_FOLDER
				", in which the daemon and its keeper make their sockets");
		return;
	}
	if (wanted && st.st_uid != wanted->pw_uid)
		gm_doctor_say(doctor, state, "service", GM_DOCTOR_NO_DEVICE, remedy,
			SERVICE_FOLDER
			" belongs to the user %s, and the service, which runs as %s, "
			"cannot use it",
			gm_user_name(st.st_uid, owner), user);
	else if (!S_ISDIR(st.st_mode) || (st.st_mode & 0722) != 0700)
		gm_doctor_say(doctor, state, "service", GM_DOCTOR_NO_DEVICE, remedy,
			SERVICE_FOLDER " has mode %04o: %s", (unsigned)st.st_mode & 07777,
			st.st_mode & 0022 ? "other users can write to it, so the daemon refuses it"
					  : "its user cannot make sockets in it");
	else if (!(st.st_mode & 0001))
		gm_doctor_say(doctor, st.st_mode & 0010 ? GM_DOCTOR_WARN : GM_DOCTOR_FAIL,
			"service", GM_DOCTOR_NO_DEVICE, remedy,
			SERVICE_FOLDER " has mode %04o: %s reach the socket in it",
			(unsigned)st.st_mode & 07777,
			st.st_mode & 0010 ? "only its group can" : "other users cannot");
}

/* Says what keeps the units beside that of the daemon from running. */
static void service_tell_parts(struct gm_doctor *doctor, const char *user)
{
	char group[SERVICE_VALUE] = "";
	struct doctor_unit keeper;

	if (*user && !getpwnam(user))
		gm_doctor_say(doctor, GM_DOCTOR_FAIL, "service", GM_DOCTOR_NO_DEVICE,
			"run 'systemd-sysusers' and 'systemd-tmpfiles --create gpumemd.conf', then "
			"'systemctl restart gpumemd.socket gpumemd'",
			"there is no user %s, as which the service runs", user);
	if (gm_platform_unit(doctor->root, SERVICE_KEEPER, "User", service_take_value, group)) {
		service_look(doctor, SERVICE_KEEPER, &keeper);
		service_tell_failure(doctor, "gpumemd-keeper", &keeper);
	}
	*group = '\0';
	gm_platform_unit(doctor->root, SERVICE_ADMIN, "SocketGroup", service_take_value, group);
	if (*group && !getgrnam(group))
		gm_doctor_say(doctor, GM_DOCTOR_WARN, "service", GM_DOCTOR_NO_DEVICE,
			"run 'systemd-sysusers', then 'systemctl restart " SERVICE_ADMIN "'",
			"there is no group %s, so " SERVICE_ADMIN
			" fails, and administrators have no "
			"socket of their own",
			group);
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

	if (!gm_platform_unit(doctor->root, GM_CONFIG_MACHINE_UNIT, "FileDescriptorStoreMax",
		    service_take_value, store)) {
		gm_doctor_say(doctor, GM_DOCTOR_NOTE, "service", GM_DOCTOR_NO_DEVICE,
			"'make install' puts gpumemd.service and gpumemd.socket in place",
			"systemd, without a unit for gpumemd");
		return;
	}

	service_look(doctor, GM_CONFIG_MACHINE_UNIT, &unit);
	if (service_tell_failure(doctor, "gpumemd", &unit) || service_tell_socket(doctor, &unit))
		return;

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
			    doctor->root, GM_CONFIG_MACHINE_UNIT, "User", service_take_value, user);

	service_tell(doctor);
	if (here)
		service_tell_parts(doctor, user);
	service_tell_folder(doctor, here ? user : "");
}
