/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * The check of the keeper: whether it serves the daemon, and how it is if the daemon does not answer. A keeper that serves a daemon
 * must not be ended in place of that daemon, because what clients hold would be lost. So the keeper is asked which process it serves.
 */

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/arith.h"
#include "common/cleanup.h"
#include "common/wire/keeper_wire.h"
#include "common/wire/seqpacket.h"
#include "ctl/doctor/doctor.h"

/* Descriptors that a keeper has for itself. */
#define KEEPER_OWN 64
/* Maximum time that a keeper has to answer, in ms. */
#define KEEPER_ANSWER_MS 2000

enum keeper_state {
	KEEPER_ABSENT, /* nobody listens, or this user may not connect */
	KEEPER_ALONE,  /* it serves no daemon */
	KEEPER_SERVES, /* it serves a daemon, which lives */
	KEEPER_CLOSED, /* it does not talk to this process: to another user, or in a container */
	KEEPER_HUNG,
};

struct keeper_look {
	enum keeper_state state;
	int pid;                   /* 0: not known */
	unsigned long long daemon; /* the pid of the daemon that it serves */
};

static enum keeper_state keeper_take_answer(int fd, struct keeper_look *look)
{
	struct gm_keeper_message message = {0};
	struct gm_conn_packet packet;

	if (gm_seqpacket_receive(fd, &message, sizeof(message), &packet) < 0)
		return KEEPER_CLOSED;
	gm_fdlist_deinit(&packet.fds);
	look->daemon = message.id;
	return message.verb == GM_KEEPER_BUSY      ? KEEPER_SERVES
	       : message.verb == GM_KEEPER_WELCOME ? KEEPER_ALONE
						   : KEEPER_CLOSED;
}

/* Greets the keeper as a daemon does, and hangs up. A keeper that serves a daemon answers with the daemon's pid. */
static struct keeper_look keeper_ask(const struct gm_doctor *doctor)
{
	struct gm_keeper_message hello = {.verb = GM_KEEPER_HELLO, .value = GM_KEEPER_VERSION};
	uint64_t wait_ms = gm_u64_min(doctor->timeout_ms, KEEPER_ANSWER_MS);
	struct keeper_look look = {.state = KEEPER_ABSENT};
	struct ucred who;
	socklen_t n = sizeof(who);
	GM_AUTO_FD int fd = -1;
	int r = gm_seqpacket_connect(doctor->daemon.keeper_socket, wait_ms, &fd);

	if (r < 0) {
		look.state = r == -ETIMEDOUT ? KEEPER_HUNG : KEEPER_ABSENT;
		return look;
	}
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) == 0)
		look.pid = who.pid;
	/* A keeper that is busy has answered already, and has hung up. */
	(void)gm_seqpacket_send(fd, &hello, sizeof(hello), NULL, 0);
	struct pollfd answer = {.fd = fd, .events = POLLIN};
	look.state =
		poll(&answer, 1, (int)wait_ms) > 0 ? keeper_take_answer(fd, &look) : KEEPER_HUNG;
	return look;
}

/* The daemon does not answer. A keeper that runs all the same has what clients hold. */
static void keeper_tell_without_daemon(struct gm_doctor *doctor)
{
	struct keeper_look look = keeper_ask(doctor);
	char remedy[192];

	switch (look.state) {
	case KEEPER_ABSENT:
		break;
	case KEEPER_ALONE:
		gm_doctor_say(doctor, GM_DOCTOR_NOTE, "keeper", GM_DOCTOR_NO_DEVICE,
			"start the daemon; to give up what it keeps, end the keeper",
			"pid %d, runs without a daemon: what clients hold waits for the next one",
			look.pid);
		break;
	case KEEPER_SERVES:
		snprintf(remedy, sizeof(remedy),
			"end that daemon, not the keeper: 'kill %llu', or 'kill -9 %llu' if it does not end; then "
			"start it again: what clients hold waits for it",
			look.daemon, look.daemon);
		gm_doctor_say(doctor, GM_DOCTOR_FAIL, "keeper", GM_DOCTOR_NO_DEVICE, remedy,
			"pid %d serves a daemon that runs (pid %llu) and does not answer here: it hangs, "
			"or its socket was removed or replaced",
			look.pid, look.daemon);
		break;
	case KEEPER_CLOSED:
		gm_doctor_say(doctor, GM_DOCTOR_NOTE, "keeper", GM_DOCTOR_NO_DEVICE,
			"run 'gpumemctl doctor' as root, outside of containers",
			"pid %d runs, and does not tell this user whether its daemon does",
			look.pid);
		break;
	case KEEPER_HUNG:
		snprintf(remedy, sizeof(remedy),
			"'kill -CONT %d' lets it go on if it was stopped; to end it gives up what clients hold",
			look.pid);
		gm_doctor_say(doctor, GM_DOCTOR_FAIL, "keeper", GM_DOCTOR_NO_DEVICE,
			look.pid ? remedy : NULL,
			"pid %d does not answer, and no daemon can start without it", look.pid);
		break;
	}
}

static void keeper_tell_hung(struct gm_doctor *doctor)
{
	unsigned long long pid = doctor->daemon.keeper_pid;
	char remedy[192];

	if (doctor->daemon.of_service)
		snprintf(remedy, sizeof(remedy),
			"'systemctl restart gpumemd-keeper' while gpumemd runs, which gives the next keeper everything");
	else
		snprintf(remedy, sizeof(remedy),
			"'kill -9 %llu' while gpumemd runs, which gives the next keeper everything",
			pid);
	gm_doctor_say(doctor, GM_DOCTOR_FAIL, "keeper", GM_DOCTOR_NO_DEVICE, remedy,
		"pid %llu does not answer: new memory waits for it, and the next gpumemd could not start",
		pid);
}

void gm_doctor_keeper(struct gm_doctor *doctor)
{
	const struct gm_doctor_daemon *daemon = &doctor->daemon;

	if (!daemon->up) {
		keeper_tell_without_daemon(doctor);
		return;
	}
	if (!daemon->keeper)
		gm_doctor_say(doctor, GM_DOCTOR_WARN, "keeper", GM_DOCTOR_NO_DEVICE,
			"give the daemon a socket with a path, where a keeper can have its own",
			"none: what clients hold is forgotten when the daemon restarts");
	else if (!daemon->keeper_ready)
		gm_doctor_say(doctor, GM_DOCTOR_FAIL, "keeper", GM_DOCTOR_NO_DEVICE,
			"'systemctl start gpumemd-keeper'; without systemd, the daemon's log says why it cannot start one",
			"away (%s): new memory waits for it; until it is back, do not stop gpumemd: "
			"what clients hold would be lost",
			daemon->keeper_socket);
	else if (keeper_ask(doctor).state == KEEPER_HUNG)
		keeper_tell_hung(doctor);
	else if (daemon->keeper_lost)
		gm_doctor_say(doctor, GM_DOCTOR_WARN, "keeper", GM_DOCTOR_NO_DEVICE,
			"raise LimitNOFILE= of gpumemd-keeper.service to that of gpumemd.service",
			"pid %llu could not take %llu descriptor%s: lost if the daemon restarts",
			(unsigned long long)daemon->keeper_pid,
			(unsigned long long)daemon->keeper_lost,
			daemon->keeper_lost == 1 ? "" : "s");
	else if (daemon->fd_limit > daemon->keeper_capacity + KEEPER_OWN)
		gm_doctor_say(doctor, GM_DOCTOR_WARN, "keeper", GM_DOCTOR_NO_DEVICE,
			"raise LimitNOFILE= of gpumemd-keeper.service to that of gpumemd.service",
			"pid %llu can hold %llu descriptors, fewer than the daemon may have (%llu)",
			(unsigned long long)daemon->keeper_pid,
			(unsigned long long)daemon->keeper_capacity,
			(unsigned long long)daemon->fd_limit);
	else
		gm_doctor_say(doctor, GM_DOCTOR_OK, "keeper", GM_DOCTOR_NO_DEVICE, NULL,
			"pid %llu holds %llu descriptor%s for the next daemon",
			(unsigned long long)daemon->keeper_pid,
			(unsigned long long)daemon->keeper_items,
			daemon->keeper_items == 1 ? "" : "s");
}
