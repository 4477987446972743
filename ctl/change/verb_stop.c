/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * gpumemctl stop: ends the daemon, and waits until it has ended. What clients hold waits for the
 * next one, unless it is to be forgotten.
 *
 * The end of the connection does not tell that the daemon has ended: it closes connections first.
 * To connect again could start the next daemon. So gpumemctl asks for the daemon's pid, and opens
 * the process before it sends the request. The daemon answers the request after that, so the process
 * that was opened is the daemon and no other that got its number.
 */

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/system/path.h"
#include "common/text/units.h"
#include "ctl/io/other_daemon.h"
#include "ctl/verb/client_list.h"
#include "ctl/verb/verb.h"

struct stop_daemon {
	uint64_t pid, pid_namespace, uid;
	enum gm_daemon_kind kind;
	bool has_clients;              /* or what clients have published, or left behind */
	bool connected;                /* clients are */
	struct gm_client_list holders; /* of what is forgotten: what they hold stays mapped */
};

static void stop_take_status(void *user, const Gm__Wire__Packet *packet)
{
	struct stop_daemon *daemon = user;

	daemon->pid = packet->status->pid;
	daemon->pid_namespace = packet->status->pid_namespace;
	daemon->uid = packet->status->uid;
	daemon->has_clients = packet->status->clients || packet->status->leases;
	daemon->connected = packet->status->clients;
}

/* Opens the daemon's process. Returns -1 if gpumemctl cannot tell which one it is: a pid means
 * nothing across pid namespaces, and an old kernel cannot open processes. */
static int stop_open_process(const struct stop_daemon *daemon)
{
	struct stat own;

	if (!daemon->pid || daemon->pid > INT32_MAX || !daemon->pid_namespace ||
		stat("/proc/self/ns/pid", &own) < 0 || own.st_ino != daemon->pid_namespace)
		return -1;
	return (int)syscall(SYS_pidfd_open, (pid_t)daemon->pid, 0);
}

/* Waits until the process has ended. */
static gpumem_status stop_await_end(
	struct gm_ctl *ctl, const struct stop_daemon *daemon, int process)
{
	uint64_t timeout_ms =
		ctl->options->timeout_ms > INT32_MAX ? INT32_MAX : ctl->options->timeout_ms;
	uint64_t end_ns = gm_clock_ns() + timeout_ms * GM_NS_PER_MS;
	struct pollfd pollfd = {.fd = process, .events = POLLIN};
	char text[GM_UNITS_TEXT];
	int n;

	do
		n = poll(&pollfd, 1, gm_clock_poll_ms(end_ns));
	while ((n < 0 && errno == EINTR) || (n == 0 && gm_clock_ns() < end_ns));
	if (n > 0)
		return GPUMEM_OK;
	return gm_trouble_set(&ctl->trouble, GPUMEM_E_BUSY,
		"the daemon (pid %llu) is ending, but has not ended within %s; its log may say why (to wait longer, use --timeout)",
		(unsigned long long)daemon->pid,
		gm_format_duration(timeout_ms * GM_NS_PER_MS, text));
}

/* Whether the user means this daemon. Without a name, gpumemctl takes the system's daemon if the user's own does not run.
 * For a user that has just ended its own, that would be a surprise. */
static bool stop_is_meant(const struct gm_ctl *ctl, const struct stop_daemon *daemon)
{
	uid_t uid = geteuid();

	return daemon->kind != GM_DAEMON_SYSTEM || ctl->options->socket ||
	       getenv("GPUMEM_SOCKET") || uid == 0 || uid == daemon->uid;
}

/* Ends the daemon. *ret_ended: it is known to have ended. ret_daemon->holders needs gm_client_list_deinit(), whatever this
 * returns. */
static gpumem_status stop_daemon_at(struct gm_ctl *ctl, struct gm_ctl_conn *conn, bool forget,
	struct stop_daemon *ret_daemon, bool *ret_ended)
{
	Gm__Wire__Stop body = GM__WIRE__STOP__INIT;
	Gm__Wire__Packet request = GM_WIRE_PACKET(STOP, stop, &body);
	struct stop_daemon *daemon = ret_daemon;

	gpumem_status status = gm_ctl_conn_get(
		conn, GM__WIRE__PACKET__BODY_GET_STATUS, stop_take_status, daemon, &ctl->trouble);
	if (status != GPUMEM_OK)
		return status;

	daemon->kind = gm_other_daemon_kind(gm_ctl_conn_path(conn));
	if (!stop_is_meant(ctl, daemon))
		return gm_trouble_set(&ctl->trouble, GPUMEM_E_NOT_FOUND,
			"your own daemon does not run, and the system's (pid %llu) is not ended in its place; "
			"to end that one, an administrator can run: gpumemctl stop%s --socket " GM_SYSTEM_SOCKET,
			(unsigned long long)daemon->pid, forget ? " --forget" : "");
	GM_AUTO_FD int process = stop_open_process(daemon);
	if (forget && daemon->has_clients)
		status = gm_client_list_ask(&daemon->holders, ctl, conn);
	body.forget = forget;
	if (status == GPUMEM_OK)
		status = gm_ctl_conn_ask(
			conn, &request, GM__WIRE__PACKET__BODY_DONE, NULL, NULL, &ctl->trouble);
	if (status == GPUMEM_OK && process >= 0)
		status = stop_await_end(ctl, daemon, process);
	*ret_ended = status == GPUMEM_OK && process >= 0;
	return status;
}

/* Tells what programs keep of the memory that is forgotten. */
static void stop_say_mapped(struct gm_writer *writer, const struct gm_client_list *holders)
{
	char held[GM_UNITS_TEXT], named[GM_CLIENT_LIST_TEXT];
	bool one = holders->n == 1;

	if (holders->n)
		gm_writer_line(writer, "",
			"%zu program%s still %s %s mapped: %s. Nobody counts this memory any more; it is freed when %s.",
			holders->n, one ? "" : "s", one ? "has" : "have",
			gm_writer_bytes(writer, holders->held, held),
			gm_client_list_text(holders, named), one ? "the program ends" : "they end");
	if (holders->n_left)
		gm_writer_line(writer, "",
			"What clients had published or left behind is freed when no program has it mapped.");
}

/* Tells how long programs wait. They cannot tell this end of the daemon from a restart. */
static void stop_say_wait(struct gm_writer *writer)
{
	const gpumem_connect_options usual = GPUMEM_CONNECT_OPTIONS_INIT;
	char text[GM_UNITS_TEXT];

	gm_writer_line(writer, "",
		"Programs that ask for memory wait %s for it, unless they set another time, and then get an error.",
		gm_format_duration(usual.away_ms * GM_NS_PER_MS, text));
}

/* Returns the pid of the daemon whose socket is meant, as gm_path_lock_holder() finds it. */
static pid_t stop_find_daemon(const struct gm_ctl *ctl, char path[GM_PATH_BYTES])
{
	const char *why;

	if (ctl->options->socket)
		snprintf(path, GM_PATH_BYTES, "%s", ctl->options->socket);
	else if (gm_path_client_socket(path, &why) != 0)
		return -1;
	return gm_path_lock_holder(path);
}

/* Names the daemon that does not answer, and what ends it without its help. */
static void stop_say_hung(struct gm_ctl *ctl, bool forget)
{
	char text[GM_UNITS_TEXT], path[GM_PATH_BYTES];
	pid_t pid = stop_find_daemon(ctl, path);

	if (pid <= 0)
		return;
	gm_format_duration((uint64_t)ctl->options->timeout_ms * GM_NS_PER_MS, text);
	gm_trouble_set(&ctl->trouble, GPUMEM_E_TIMEOUT,
		"the daemon (pid %d) at %s did not answer within %s, and was not ended", (int)pid,
		path, text);
	snprintf(ctl->trouble.hint, sizeof(ctl->trouble.hint),
		"'kill -KILL %d' ends it, and its keeper has what clients hold for the next daemon%s; to wait longer, use --timeout",
		(int)pid, forget ? ", which 'gpumemctl stop --forget' then ends" : "");
}

/* Whether a daemon runs whose socket was removed. */
static bool stop_misses_socket(const struct gm_ctl *ctl)
{
	char path[GM_PATH_BYTES];

	return stop_find_daemon(ctl, path) > 0;
}

static gpumem_status stop_run(struct gm_ctl *ctl)
{
	bool forget = ctl->options->given & GM_OPTION_FORGET, ended = false;
	struct stop_daemon daemon = {.holders = {.all_devices = true, .connected = true}};
	struct gm_ctl_conn *conn = NULL;

	gpumem_status status = gm_verb_connect(ctl, &conn);
	bool runs = status == GPUMEM_E_DISCONNECTED && stop_misses_socket(ctl);
	if (status == GPUMEM_E_DISCONNECTED && !forget && !runs)
		snprintf(ctl->trouble.hint, sizeof(ctl->trouble.hint),
			"there is nothing to stop, unless the daemon has another socket");
	if (status == GPUMEM_OK)
		status = stop_daemon_at(ctl, conn, forget, &daemon, &ended);
	if (status == GPUMEM_E_TIMEOUT)
		stop_say_hung(ctl, forget);
	gm_ctl_conn_free(conn);
	if (status == GPUMEM_E_DISCONNECTED && forget && !runs)
		snprintf(ctl->trouble.hint, sizeof(ctl->trouble.hint),
			"if no daemon runs, a keeper may still have what clients hold: "
			"'gpumemctl doctor' shows its pid, and 'kill PID' in the shell ends it");
	if (status != GPUMEM_OK) {
		gm_client_list_deinit(&daemon.holders);
		return status;
	}

	gm_writer_bool(ctl->writer, "forgotten", forget);
	gm_writer_bool(ctl->writer, "ended", ended);
	gm_writer_line(ctl->writer, "", "%s %s%s",
		daemon.kind == GM_DAEMON_USER     ? "Your own daemon"
		: daemon.kind == GM_DAEMON_SYSTEM ? "The system's daemon"
						  : "The daemon",
		ended ? "has ended" : "ends",
		daemon.has_clients && !forget
			? ". What clients hold or have published waits for the next daemon."
			: ".");
	if (daemon.connected && !forget)
		stop_say_wait(ctl->writer);
	stop_say_mapped(ctl->writer, &daemon.holders);
	gm_client_list_deinit(&daemon.holders);
	return GPUMEM_OK;
}

const struct gm_verb gm_verb_stop = {
	.name = "stop",
	.arguments = "[--forget]",
	.summary = "end the daemon",
	.help = "  --forget    end all sessions, destroy all memory of the daemon, and\n"
		"              forget what was set at run time; programs keep what they\n"
		"              have mapped, but nobody counts it any more\n\n"
		"Without --forget, leases, shares, drains and limits wait for the next daemon, as\n"
		"after 'systemctl stop'. Programs do not notice a restart: a call that needs the\n"
		"daemon waits for the next one, for 30 s unless the program set another time.\n"
		"'stop' waits until the daemon has ended, so that the\n"
		"next one can start; a service manager may do so at once. A user whose own\n"
		"daemon does not run ends the system's only with --socket. For administrators:\n"
		"root, the user that runs the daemon, and the members of the configured\n"
		"admin_group.\n",
	.takes = GM_OPTION_FORGET,
	.run = stop_run,
};
