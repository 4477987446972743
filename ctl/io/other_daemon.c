/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Looks for daemons at the two places where clients look. A socket without a daemon behind it
 * counts for nothing.
 */

#include "ctl/io/other_daemon.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/arith.h"
#include "ctl/io/ctl_conn.h"

/* A daemon that hangs must not hold up an answer about another one. */
#define OTHER_TIMEOUT_MS 500

const char *gm_other_daemon_word(enum gm_daemon_kind kind)
{
	static const char *const words[] = {"system", "user", "elsewhere"};

	return words[kind];
}

const char *gm_other_daemon_words(enum gm_daemon_kind kind)
{
	static const char *const words[] = {
		"the system's daemon", "your own daemon", "a daemon at another path"};

	return words[kind];
}

/* Whether two paths lead to the same socket. */
static bool daemon_same_socket(const char *a, const char *b)
{
	struct stat x, y;

	if (!strcmp(a, b))
		return true;
	return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

enum gm_daemon_kind gm_other_daemon_kind(const char *path)
{
	char users[GM_PATH_BYTES];

	if (daemon_same_socket(path, GM_SYSTEM_SOCKET))
		return GM_DAEMON_SYSTEM;
	if (gm_path_find_user_socket(geteuid(), users) && daemon_same_socket(path, users))
		return GM_DAEMON_USER;
	return GM_DAEMON_ELSEWHERE;
}

static void daemon_take_status(void *user, const Gm__Wire__Packet *packet)
{
	struct gm_other_daemon *other = user;

	other->pid = packet->status->pid;
	other->uid = packet->status->uid;
}

/* Asks who listens there. Returns false if nobody does. */
static bool daemon_ask(struct gm_other_daemon *other, uint64_t timeout_ms)
{
	struct gm_trouble trouble;
	struct gm_ctl_conn *conn = NULL;

	gpumem_status status = gm_ctl_conn_open(
		other->path, gm_u64_min(timeout_ms, OTHER_TIMEOUT_MS), &trouble, &conn);
	if (status == GPUMEM_OK)
		status = gm_ctl_conn_get(conn, GM__WIRE__PACKET__BODY_GET_STATUS,
			daemon_take_status, other, &trouble);
	gm_ctl_conn_free(conn);

	other->state = status == GPUMEM_OK         ? "running"
		       : status == GPUMEM_E_DENIED ? "denied"
						   : "silent";
	return status != GPUMEM_E_DISCONNECTED;
}

size_t gm_other_daemon_find(
	const char *besides, uint64_t timeout_ms, struct gm_other_daemon ret_list[GM_OTHER_DAEMONS])
{
	size_t n = 0;

	for (enum gm_daemon_kind kind = GM_DAEMON_SYSTEM; kind <= GM_DAEMON_USER; kind++) {
		struct gm_other_daemon *other = &ret_list[n];

		*other = (struct gm_other_daemon){.kind = kind};
		if (kind == GM_DAEMON_SYSTEM)
			strcpy(other->path, GM_SYSTEM_SOCKET);
		else if (!gm_path_find_user_socket(geteuid(), other->path))
			continue;
		if (!daemon_same_socket(other->path, besides) && daemon_ask(other, timeout_ms))
			n++;
	}
	return n;
}
