/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which processes use the devices. A round asks all device threads. Questions wait in one list,
 * each for the number of the first round that begins after the question arrived. The result of the
 * last round is kept, so that answers are made packet by packet, one device each, without a copy
 * for every question.
 *
 * Everybody sees which processes there are, their users and how much they use. As with clients, a
 * command is shown to its own user and to administrators.
 */
#include "daemon/serve/admin_processes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <utlist.h>

#include "common/arith.h"
#include "common/cleanup.h"
#include "common/text/uid_name.h"
#include "common/text/units.h"
#include "daemon/lease/declare.h"
#include "daemon/serve/answer.h"
#include "daemon/serve/handlers.h"

#define GM_ADMIN_PROCESSES_PAUSE_MS 100
/* So much more or less foreign memory is worth another survey, in bytes. */
#define GM_ADMIN_PROCESSES_CHANGE (UINT64_C(16) << 20)

_Static_assert(GM_BOUND_DEVICES <= 32, "a bit per device");

/* A question, and then its answer. */
struct question {
	struct gm_answer head;
	struct gm_peer *peer; /* while it waits */
	uint64_t round;       /* the first that answers it */
	uint32_t device;      /* whose packet is next */
	struct question *prev, *next;
};

struct gm_admin_processes {
	const struct gm_backend_ops *ops;
	struct gm_worker *const *workers;
	uint32_t devices;
	struct gm_usage *latest[GM_BOUND_DEVICES];
	/* Which of the latest are clients, or the daemon. To find that out, all clients are looked at: once in a round. */
	struct processes_marks *marks[GM_BOUND_DEVICES];
	/* The process that has most foreign memory of each device, and how much; NULL: there is none. It is part of
	 * latest. */
	struct {
		const struct gm_usage_process *process;
		uint64_t bytes;
	} foreigner[GM_BOUND_DEVICES];
	uint64_t foreign[GM_BOUND_DEVICES]; /* how much was foreign when it was last looked for */
	struct question *waiting;
	uint64_t round;   /* how many have ended */
	uint32_t missing; /* a bit per device whose result is missing; 0: no round is under way */
	uint64_t begun_ms;
	bool begun;  /* there was a round */
	bool wanted; /* a round is wanted without a question */
	uv_timer_t timer;
};

int gm_admin_processes_new(uv_loop_t *loop, const struct gm_backend_ops *ops,
	struct gm_worker *const *workers, uint32_t devices,
	struct gm_admin_processes **ret_processes)
{
	struct gm_admin_processes *processes = calloc(1, sizeof(*processes));

	if (!processes)
		return -ENOMEM;
	processes->ops = ops;
	processes->workers = workers;
	processes->devices = devices;
	uv_timer_init(loop, &processes->timer); /* cannot fail */
	processes->timer.data = processes;
	*ret_processes = processes;
	return 0;
}

static void processes_on_closed(uv_handle_t *handle)
{
	struct gm_admin_processes *processes = handle->data;

	for (uint32_t i = 0; i < GM_BOUND_DEVICES; i++) {
		gm_usage_free(processes->latest[i]);
		free(processes->marks[i]);
	}
	free(processes);
}

void gm_admin_processes_free(struct gm_admin_processes *processes)
{
	if (processes)
		uv_close((uv_handle_t *)&processes->timer, processes_on_closed);
}

void gm_admin_processes_peer_closed(struct gm_admin_processes *processes, struct gm_peer *peer)
{
	struct question *question, *next;

	if (!processes)
		return;
	DL_FOREACH_SAFE (processes->waiting, question, next) {
		if (question->peer != peer)
			continue;
		DL_DELETE(processes->waiting, question);
		free(question);
	}
}

/* ---- the answer */

/* Sorted by pid, to find the clients among many processes. */
struct processes_numbered {
	pid_t pid;
	struct processes_mark *mark;
};

struct processes_mark {
	Gm__Wire__ProcessKind kind;
	/* Part of what the process uses: it has declared that, so it is not foreign. */
	uint64_t declared_seen;
};

struct processes_marks {
	struct processes_mark list[GM_BOUND_PROCESSES];
	struct processes_numbered numbered[GM_BOUND_PROCESSES];
};

static int processes_by_pid(const void *a, const void *b)
{
	const struct processes_numbered *p = a, *q = b;

	return p->pid < q->pid ? -1 : p->pid > q->pid;
}

static void processes_mark(struct processes_numbered *list, size_t n, pid_t pid,
	Gm__Wire__ProcessKind kind, uint64_t declared_seen)
{
	const struct processes_numbered key = {.pid = pid};
	struct processes_numbered *found = bsearch(&key, list, n, sizeof(*list), processes_by_pid);

	if (!found)
		return;
	found->mark->kind = kind;
	found->mark->declared_seen += declared_seen; /* a process may have several sessions */
}

static void processes_mark_ours(const struct gm_clients *clients, uint32_t device,
	struct processes_numbered *list, size_t n)
{
	struct gm_client *client;

	qsort(list, n, sizeof(*list), processes_by_pid);
	processes_mark(list, n, getpid(), GM__WIRE__PROCESS_KIND__PROCESS_DAEMON, 0);
	DL_FOREACH (clients->list, client)
		processes_mark(list, n, client->identity->pid,
			GM__WIRE__PROCESS_KIND__PROCESS_CLIENT,
			gm_declare_seen(client->session, device));
}

/* Users may see their own processes, but only from outside of containers, where uids mean the same
 * as in the daemon. */
static bool processes_may_see(const struct gm_answer *answer, const struct gm_peer *peer,
	const struct gm_usage_process *process)
{
	const struct gm_identity *asker = gm_peer_identity(peer);

	return answer->sees_all ||
	       (process->uid_known && process->uid == asker->uid && asker->own_pid_namespace &&
		       !asker->confined && !*asker->cgroup.scope);
}

struct processes_packet {
	Gm__Wire__Process processes[GM_BOUND_PROCESSES];
	Gm__Wire__Process *list[GM_BOUND_PROCESSES];
};

/* marks: NULL: the daemon had no memory to find out who is a client. */
static void processes_fill(const struct gm_answer *answer, const struct gm_peer *peer,
	const struct gm_usage *usage, const struct processes_marks *marks,
	struct processes_packet *out, Gm__Wire__DeviceProcesses *ret)
{
	for (size_t i = 0; i < usage->n; i++) {
		const struct gm_usage_process *from = &usage->list[i];
		Gm__Wire__Process *process = out->list[i] = &out->processes[i];
		gm__wire__process__init(process);
		process->pid = from->pid;
		process->bytes_known = from->bytes != GM_BACKEND_UNKNOWN;
		process->bytes = process->bytes_known ? from->bytes : 0;
		process->uid_known = from->uid_known;
		process->uid = from->uid_known ? from->uid : 0;
		if (processes_may_see(answer, peer, from))
			process->command = (char *)from->command;
		if (marks) {
			process->kind = marks->list[i].kind;
			process->declared_seen =
				gm_u64_min(marks->list[i].declared_seen, process->bytes);
		}
	}
	ret->known = usage->known;
	ret->unlisted = usage->unlisted;
	ret->n_processes = usage->n;
	ret->processes = out->list;
}

static int processes_next(struct gm_stream *stream, struct gm_peer *peer)
{
	struct question *question = (struct question *)stream;
	const struct gm_admin_processes *processes = question->head.serve->processes;
	Gm__Wire__DeviceProcesses device = GM__WIRE__DEVICE_PROCESSES__INIT, *list = &device;
	Gm__Wire__ProcessesReply reply = GM__WIRE__PROCESSES_REPLY__INIT;
	GM_AUTO_FREE struct processes_packet *out = malloc(sizeof(*out));

	if (!out)
		return -ENOMEM;
	if (question->device < processes->devices) {
		const struct gm_usage *usage = processes->latest[question->device];
		device.device = question->device;
		if (processes->ops->exclusive)
			device.known = true; /* there can be nobody else */
		else if (usage)
			processes_fill(&question->head, peer, usage,
				processes->marks[question->device], out, &device);
		reply.n_devices = 1;
		reply.devices = &list;
	}

	int r = gm_answer_emit(stream, peer, question->device + 1 < processes->devices,
		GM__WIRE__PACKET__BODY_PROCESSES, &reply);
	if (r >= 0)
		question->device++;
	return r;
}

/* ---- rounds */

static void processes_on_timer(uv_timer_t *timer);

static void processes_begin(struct gm_admin_processes *processes)
{
	uint64_t now = uv_now(processes->timer.loop);
	uint64_t since = now - processes->begun_ms;

	if (processes->missing || (!processes->waiting && !processes->wanted))
		return;
	if (processes->begun && since < GM_ADMIN_PROCESSES_PAUSE_MS) {
		uv_timer_start(&processes->timer, processes_on_timer,
			GM_ADMIN_PROCESSES_PAUSE_MS - since, 0);
		return;
	}
	processes->begun = true;
	processes->wanted = false;
	processes->begun_ms = now;
	for (uint32_t i = 0; i < processes->devices; i++) {
		processes->missing |= UINT32_C(1) << i;
		gm_worker_survey(processes->workers[i]);
	}
}

static void processes_on_timer(uv_timer_t *timer)
{
	processes_begin(timer->data);
}

/* Finds out which processes are clients, or the daemon. NULL: there are none, or no memory. */
static struct processes_marks *processes_find_ours(
	const struct gm_clients *clients, uint32_t device, const struct gm_usage *usage)
{
	size_t n = usage ? usage->n : 0;
	struct processes_marks *marks = n ? calloc(1, sizeof(*marks)) : NULL;

	if (!marks)
		return NULL;
	for (size_t i = 0; i < n; i++)
		marks->numbered[i] =
			(struct processes_numbered){usage->list[i].pid, &marks->list[i]};
	processes_mark_ours(clients, device, marks->numbered, n);
	return marks;
}

/* Finds the process that has most foreign memory, a client or not. How much of the daemon's own is foreign is not known,
 * because of ipc chunks. */
static void processes_find_foreigner(struct gm_admin_processes *processes, uint32_t device)
{
	const struct gm_usage *usage = processes->latest[device];
	const struct processes_marks *marks = processes->marks[device];
	size_t n = usage && usage->known && marks ? usage->n : 0;

	processes->foreigner[device].process = NULL;
	processes->foreigner[device].bytes = 0;
	for (size_t i = 0; i < n; i++) {
		uint64_t bytes = usage->list[i].bytes;

		if (bytes == GM_BACKEND_UNKNOWN ||
			marks->list[i].kind == GM__WIRE__PROCESS_KIND__PROCESS_DAEMON)
			continue;
		bytes = gm_u64_minus(bytes, marks->list[i].declared_seen);
		if (bytes <= processes->foreigner[device].bytes)
			continue;
		processes->foreigner[device].process = &usage->list[i];
		processes->foreigner[device].bytes = bytes;
	}
}

bool gm_admin_processes_foreigner(
	const struct gm_admin_processes *processes, uint32_t device, char text[GM_DETAIL_BYTES])
{
	const struct gm_usage_process *process =
		processes ? processes->foreigner[device].process : NULL;
	char size[GM_UNITS_TEXT], user[GM_UID_NAME_TEXT];

	if (!process || processes->foreigner[device].bytes > processes->foreign[device])
		return false;
	gm_format_size(processes->foreigner[device].bytes, size);
	if (process->uid_known)
		snprintf(text, GM_DETAIL_BYTES, "pid %d of %s has %s", (int)process->pid,
			gm_uid_name_say(process->uid, user), size);
	else
		snprintf(text, GM_DETAIL_BYTES, "pid %d has %s", (int)process->pid, size);
	return true;
}

void gm_admin_processes_watch(
	struct gm_admin_processes *processes, uint32_t device, uint64_t foreign)
{
	uint64_t before = processes ? processes->foreign[device] : foreign;

	if (gm_u64_max(foreign, before) - gm_u64_min(foreign, before) < GM_ADMIN_PROCESSES_CHANGE)
		return;
	processes->foreign[device] = foreign;
	processes->wanted = true;
	processes_begin(processes);
}

void gm_admin_processes_update(struct gm_serve *serve, uint32_t device, struct gm_usage *usage)
{
	struct gm_admin_processes *processes = serve->processes;
	struct question *question, *next;

	gm_usage_free(processes->latest[device]);
	processes->latest[device] = usage;
	free(processes->marks[device]);
	processes->marks[device] = processes_find_ours(serve->clients, device, usage);
	processes_find_foreigner(processes, device);
	processes->missing &= ~(UINT32_C(1) << device);
	if (processes->missing)
		return;

	processes->round++;
	DL_FOREACH_SAFE (processes->waiting, question, next) {
		if (question->round > processes->round)
			continue;
		DL_DELETE(processes->waiting, question);
		gm_peer_start(question->peer, &question->head.stream);
	}
	processes_begin(processes);
}

void gm_admin_get_processes(
	struct gm_serve *serve, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	struct gm_admin_processes *processes = serve->processes;
	struct question *question =
		gm_answer_new(serve, peer, packet->id, processes_next, sizeof(*question));

	if (!question) {
		gm_serve_fail_memory(peer, packet->id);
		return;
	}
	if (processes->ops->exclusive || processes->devices == 0) {
		gm_peer_start(peer, &question->head.stream);
		return;
	}
	question->peer = peer;
	question->round = processes->round + (processes->missing ? 2 : 1);
	DL_APPEND(processes->waiting, question);
	processes_begin(processes);
}
