/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * The check of the service manager: whether there is one, whether it has a unit of the daemon, and what
 * became of the unit. systemctl is asked for that: it is there wherever systemd is, and needs no rights.
 */

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/system/platform.h"
#include "ctl/doctor/doctor.h"
#include "daemon/config/config_machine.h"

/* What systemd says about the unit. All texts are "" if it says nothing. */
struct doctor_unit {
	char active[32], result[32], status[8], text[300];
};

/* In the child. */
static _Noreturn void service_ask(int out)
{
	char *const words[] = {"systemctl", "show",
		"--property=ActiveState,Result,ExecMainStatus,StatusText", "--",
		GM_CONFIG_MACHINE_UNIT, NULL};
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
static void service_look(const struct gm_doctor *doctor, struct doctor_unit *unit)
{
	uint64_t until_ns = gm_clock_ns() + doctor->timeout_ms * GM_NS_PER_MS;
	char text[2048], *rest = text;
	int ends[2];

	*unit = (struct doctor_unit){0};
	if (pipe2(ends, O_CLOEXEC) < 0)
		return;
	pid_t child = fork();
	if (child == 0)
		service_ask(ends[1]);
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

static void service_take_store(void *ctx, const char *value)
{
	snprintf(ctx, 64, "%.20s", value);
}

void gm_doctor_service(struct gm_doctor *doctor)
{
	char store[64] = "";
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
		    service_take_store, store)) {
		gm_doctor_say(doctor, GM_DOCTOR_NOTE, "service", GM_DOCTOR_NO_DEVICE,
			"'make install' puts gpumemd.service and gpumemd.socket in place",
			"systemd, without a unit for gpumemd");
		return;
	}

	service_look(doctor, &unit);
	if (service_failed(&unit)) {
		gm_doctor_say(doctor, GM_DOCTOR_FAIL, "service", GM_DOCTOR_NO_DEVICE,
			"remove the cause, then run 'systemctl restart gpumemd'; 'journalctl -u gpumemd' "
			"has the whole log",
			"systemd could not keep gpumemd running (%s%s%s): %s", unit.result,
			strcmp(unit.result, "exit-code") ? "" : " ",
			strcmp(unit.result, "exit-code") ? "" : unit.status,
			*unit.text ? unit.text : "it left no message");
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
