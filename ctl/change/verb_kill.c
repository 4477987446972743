/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * gpumemctl kill: sends a signal to the process of a client. gpumemctl does so itself, so the kernel
 * decides who may: the daemon has no part in it and needs no privilege for it.
 *
 * The signal must not hit another process that got the number of a client that has ended. So
 * gpumemctl opens the process by its number and then asks the daemon again. The daemon holds the
 * process of each client by a pidfd. If it says that the process has not ended, nobody else can have
 * the number, and the process that was opened is the client's.
 */

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/text/units.h"
#include "ctl/io/user_name.h"
#include "ctl/verb/verb.h"

static const struct gm_column columns[] = {
	{"session", "SESSION", GM_COLUMN_RIGHT},
	{"pid", "PID", GM_COLUMN_RIGHT},
	{"uid", NULL, 0},
	{"user", "USER", GM_COLUMN_OWNER},
	{"name", "NAME", GM_COLUMN_NAME},
	{"held", "HELD", GM_COLUMN_RIGHT},
};

struct kill_client {
	uint64_t session, held;
	int64_t pid;
	uint32_t uid;
	bool ended, hidden;
	char name[GM_BOUND_NAME_BYTES + 1];
};

struct kill_answer {
	struct kill_client *clients; /* all that the daemon knows */
	size_t n, room;
	bool no_memory;
	uint64_t pid_namespace;
};

/* ---- asking */

static void kill_take_status(void *user, const Gm__Wire__Packet *packet)
{
	struct kill_answer *answer = user;

	answer->pid_namespace = packet->status->pid_namespace;
}

static void kill_take_clients(void *user, const Gm__Wire__Packet *packet)
{
	struct kill_answer *answer = user;

	for (size_t i = 0; i < packet->clients->n_clients; i++) {
		const Gm__Wire__Client *client = packet->clients->clients[i];

		if (client->left) /* there is no process */
			continue;
		if (answer->n == answer->room) {
			size_t room = answer->room ? 2 * answer->room : 64;
			struct kill_client *grown =
				reallocarray(answer->clients, room, sizeof(*grown));
			if (!grown) {
				answer->no_memory = true;
				return;
			}
			answer->clients = grown;
			answer->room = room;
		}

		struct kill_client *kept = &answer->clients[answer->n++];
		*kept = (struct kill_client){
			.session = client->session,
			.pid = client->pid,
			.uid = client->uid,
			.ended = client->ended,
			.hidden = !client->details,
		};
		snprintf(kept->name, sizeof(kept->name), "%s", client->name);
		for (size_t j = 0; j < client->n_use; j++)
			kept->held += client->use[j]->held;
	}
}

static gpumem_status kill_ask_clients(
	struct gm_ctl *ctl, struct gm_ctl_conn *conn, struct kill_answer *answer)
{
	answer->n = 0;
	gpumem_status status = gm_ctl_conn_get(
		conn, GM__WIRE__PACKET__BODY_GET_CLIENTS, kill_take_clients, answer, &ctl->trouble);
	if (status == GPUMEM_OK && answer->no_memory)
		status = gm_trouble_set(&ctl->trouble, GPUMEM_E_HOST_MEMORY, "out of memory");
	return status;
}

/* Process numbers mean nothing across pid namespaces. */
static gpumem_status kill_check_namespace(
	struct gm_ctl *ctl, struct gm_ctl_conn *conn, struct kill_answer *answer)
{
	struct stat own;

	gpumem_status status = gm_ctl_conn_get(
		conn, GM__WIRE__PACKET__BODY_GET_STATUS, kill_take_status, answer, &ctl->trouble);
	if (status != GPUMEM_OK)
		return status;

	if (!answer->pid_namespace || stat("/proc/self/ns/pid", &own) < 0)
		return gm_trouble_set(&ctl->trouble, GPUMEM_E_UNSUPPORTED,
			"cannot tell whether gpumemctl and the daemon number processes alike; use kill(1) where the client runs");
	if (own.st_ino != answer->pid_namespace)
		return gm_trouble_set(&ctl->trouble, GPUMEM_E_UNSUPPORTED,
			"gpumemctl and the daemon are in different pid namespaces, so a pid means another process here; run gpumemctl outside of the container");
	return GPUMEM_OK;
}

/* ---- finding the client */

/* What the word is, the first one that any client fits. A client chooses its name, so a name must
 * not stand for, or protect, the process that has the number. */
enum kill_meaning { KILL_PID, KILL_SESSION, KILL_NAME, KILL_MEANINGS };

static bool kill_is_meant(
	const struct kill_client *client, const char *word, enum kill_meaning meaning)
{
	uint64_t n;

	if (meaning == KILL_NAME)
		return !client->hidden && !strcmp(client->name, word) && *word;
	if (gm_parse_u64(word, &n) < 0 || !n)
		return false;
	return meaning == KILL_SESSION ? n == client->session
				       : client->pid > 0 && n == (uint64_t)client->pid;
}

static gpumem_status kill_ambiguous(struct gm_ctl *ctl, const struct kill_answer *answer,
	const char *word, enum kill_meaning meaning)
{
	char text[sizeof(ctl->trouble.text)], user[GM_USER_NAME_TEXT];
	size_t used = 0;

	for (size_t i = 0; i < answer->n && used < sizeof(text); i++) {
		const struct kill_client *client = &answer->clients[i];

		if (kill_is_meant(client, word, meaning))
			used += (size_t)snprintf(text + used, sizeof(text) - used,
				"%spid %lld (session %llu, %s%suser %s)", used ? ", " : "",
				(long long)client->pid, (unsigned long long)client->session,
				client->name, *client->name ? ", " : "",
				gm_user_name(client->uid, user));
	}
	return gm_verb_wrong_use(
		ctl, "'%.64s' means several processes: %.400s; name one by its pid", word, text);
}

/* Finds the one process that the word means. */
static gpumem_status kill_find(struct gm_ctl *ctl, const struct kill_answer *answer,
	const char *word, const struct kill_client **ret)
{
	const struct kill_client *found = NULL;
	bool hidden = false;

	for (enum kill_meaning meaning = KILL_PID; meaning < KILL_MEANINGS && !found; meaning++) {
		for (size_t i = 0; i < answer->n; i++) {
			const struct kill_client *client = &answer->clients[i];

			hidden = hidden || client->hidden;
			if (!kill_is_meant(client, word, meaning))
				continue;
			if (found && found->pid != client->pid)
				return kill_ambiguous(ctl, answer, word, meaning);
			found = client;
		}
	}

	if (!found)
		return gm_verb_no_client(ctl, word, hidden);
	if (found->pid <= 0)
		return gm_trouble_set(&ctl->trouble, GPUMEM_E_UNSUPPORTED,
			"client %llu runs in a pid namespace that the daemon does not see; use kill(1) where it runs",
			(unsigned long long)found->session);
	*ret = found;
	return GPUMEM_OK;
}

/* ---- sending */

static gpumem_status kill_gone(struct gm_ctl *ctl, const char *word, int64_t pid)
{
	return gm_trouble_set(&ctl->trouble, GPUMEM_E_NOT_FOUND,
		"client '%.64s' (pid %lld) has ended already", word, (long long)pid);
}

static gpumem_status kill_send(
	struct gm_ctl *ctl, const char *word, const struct kill_client *client, int pidfd)
{
	char user[GM_USER_NAME_TEXT];

	if (syscall(SYS_pidfd_send_signal, pidfd, ctl->options->signal, NULL, 0) == 0)
		return GPUMEM_OK;
	if (errno == ESRCH)
		return kill_gone(ctl, word, client->pid);
	if (errno == EPERM)
		return gm_trouble_set(&ctl->trouble, GPUMEM_E_DENIED,
			"you may not send a signal to pid %lld of user %s; run gpumemctl as that user or as root",
			(long long)client->pid, gm_user_name(client->uid, user));
	return gm_trouble_set(&ctl->trouble, GPUMEM_E_SYSTEM,
		"cannot send a signal to pid %lld: %s", (long long)client->pid, strerror(errno));
}

/* Opens the process, makes sure that it is the client's, and sends the signal. */
static gpumem_status kill_process(struct gm_ctl *ctl, struct gm_ctl_conn *conn,
	struct kill_answer *answer, const char *word, struct kill_client *ret_client)
{
	const struct kill_client *found = NULL;

	gpumem_status status = kill_find(ctl, answer, word, &found);
	if (status != GPUMEM_OK)
		return status;
	struct kill_client client = *found;

	GM_AUTO_FD int pidfd = (int)syscall(SYS_pidfd_open, (pid_t)client.pid, 0);
	if (pidfd < 0)
		return errno == ESRCH ? kill_gone(ctl, word, client.pid)
				      : gm_trouble_set(&ctl->trouble, GPUMEM_E_SYSTEM,
						"cannot open pid %lld: %s", (long long)client.pid,
						strerror(errno));

	status = kill_ask_clients(ctl, conn, answer);
	if (status != GPUMEM_OK)
		return status;
	for (size_t i = 0; i < answer->n; i++) {
		const struct kill_client *now = &answer->clients[i];

		if (now->session != client.session || now->pid != client.pid || now->ended)
			continue;
		*ret_client = client;
		return kill_send(ctl, word, &client, pidfd);
	}
	return kill_gone(ctl, word, client.pid);
}

static void kill_tell(
	struct gm_ctl *ctl, const struct kill_answer *answer, const struct kill_client *client)
{
	struct gm_table *table = GM_TABLE_NEW(columns);
	const char *signal = sigabbrev_np(ctl->options->signal);
	char user[GM_USER_NAME_TEXT], text[GM_UNITS_TEXT];
	uint64_t held = 0;
	size_t n = 0;

	for (size_t i = 0; i < answer->n; i++) {
		const struct kill_client *one = &answer->clients[i];

		if (one->pid != client->pid)
			continue;
		held += one->held;
		n++;
		gm_table_row(table);
		gm_verb_add_client(table, one->session, one->pid, one->uid, one->name);
		gm_table_size(table, one->held);
	}

	gm_writer_count(ctl->writer, "pid", (uint64_t)client->pid);
	gm_writer_text(ctl->writer, "signal", signal);
	gm_writer_line(ctl->writer, "", "Sent %s to pid %lld (%s%suser %s), which holds %s.",
		signal ? signal : "the signal", (long long)client->pid, client->name,
		*client->name ? ", " : "", gm_user_name(client->uid, user),
		gm_writer_bytes(ctl->writer, held, text));
	if (n > 1) {
		gm_writer_line(
			ctl->writer, "", "The process is %zu clients, which share its fate:", n);
		gm_writer_table(ctl->writer, "clients", table);
	} else {
		gm_writer_data(ctl->writer, "clients", table);
	}
}

static gpumem_status kill_run(struct gm_ctl *ctl)
{
	struct kill_answer answer = {0};
	struct kill_client client;
	struct gm_ctl_conn *conn;

	if (!ctl->options->n_args)
		return gm_verb_wrong_use(ctl,
			"'kill' needs a client: its session, its pid or its name; see 'gpumemctl clients'");

	gpumem_status status = gm_verb_connect(ctl, &conn);
	if (status != GPUMEM_OK)
		return status;
	status = kill_check_namespace(ctl, conn, &answer);
	if (status == GPUMEM_OK)
		status = kill_ask_clients(ctl, conn, &answer);
	if (status == GPUMEM_OK)
		status = kill_process(ctl, conn, &answer, ctl->options->args[0], &client);
	gm_ctl_conn_free(conn);

	if (status == GPUMEM_OK)
		kill_tell(ctl, &answer, &client);
	free(answer.clients);
	return status;
}

const struct gm_verb gm_verb_kill = {
	.name = "kill",
	.arguments = "CLIENT",
	.summary = "end the process of a client",
	.help = "  --signal SIGNAL  TERM (the default), KILL, or another name or number\n\n"
		"CLIENT is a pid, the number of a session, or a name, in this order, as\n"
		"'gpumemctl clients --columns session,pid,name' shows them. gpumemctl sends the\n"
		"signal itself, so you may end your own processes, and root may end all. If a\n"
		"process has several sessions, all of them end with it.\n",
	.takes = GM_OPTION_SIGNAL,
	.max_args = 1,
	.run = kill_run,
};
