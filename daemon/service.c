/* SPDX-License-Identifier: Apache-2.0 */
/*
 * systemd. Little else of the daemon uses libsystemd (keeper_store.h), so the daemon is the same program with and without a
 * service manager. If the manager cannot be told something, that is not an error.
 */
#include "daemon/service.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>
#include <systemd/sd-journal.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/log.h"
#include "daemon/store/store.h"

#define GM_SERVICE_FIELDS 32
/* Maximum time to wait until the service manager has read a message, in µs. */
#define GM_SERVICE_TOLD_US 1000000
/* The names that systemd gives to the descriptors of its socket units. A second daemon's units have
 * other names, so the end of the name says which is the administrators'. */
#define GM_SERVICE_SOCKET    "gpumemd.socket"
#define GM_SERVICE_ADMIN_END "-admin.socket"

static void service_to_journal(
	enum gm_log_level level, const char *message, const char *const *fields)
{
	char priority[16];
	char *text;
	struct iovec parts[2 + GM_SERVICE_FIELDS];
	int n = 0;
	snprintf(priority, sizeof(priority), "PRIORITY=%d", (int)level);
	if (asprintf(&text, "MESSAGE=%s", message) < 0)
		return;
	parts[n++] = (struct iovec){.iov_base = priority, .iov_len = strlen(priority)};
	parts[n++] = (struct iovec){.iov_base = text, .iov_len = strlen(text)};
	for (size_t i = 0; fields[i] && i < GM_SERVICE_FIELDS; i++)
		parts[n++] =
			(struct iovec){.iov_base = (char *)fields[i], .iov_len = strlen(fields[i])};
	(void)sd_journal_sendv(parts, n);
	free(text);
}

void gm_service_init_log(void)
{
	const char *stream = getenv("JOURNAL_STREAM");
	unsigned long long device, inode;
	struct stat st;
	if (!stream || sscanf(stream, "%llu:%llu", &device, &inode) != 2)
		return;

	/* Child processes inherit the variable, even if their stderr goes elsewhere. */
	if (fstat(STDERR_FILENO, &st) == 0 && st.st_dev == device && st.st_ino == inode)
		gm_log_set_sink(service_to_journal);
}

/* Finds the sockets by their units' names; the one for all is else the only one. Returns -EINVAL if that is unclear. */
static int service_find_sockets(char *const *names, int n, struct gm_service_passed *passed)
{
	int named = -1, alike = -1, admin = -1;
	bool several = false, wrong = false;
	for (int i = 0; i < n; i++) {
		int fd = SD_LISTEN_FDS_START + i;
		bool fits = sd_is_socket_unix(fd, SOCK_SEQPACKET, 1, NULL, 0) > 0;
		size_t length = strlen(names[i]), end = strlen(GM_SERVICE_ADMIN_END);
		bool is_admin =
			length > end && strcmp(names[i] + length - end, GM_SERVICE_ADMIN_END) == 0;
		if (is_admin || strcmp(names[i], GM_SERVICE_SOCKET) == 0) {
			int *found = is_admin ? &admin : &named;
			if (!fits || *found >= 0)
				return -EINVAL;
			*found = fd;
		} else if (fits) {
			several |= alike >= 0;
			alike = fd;
		} else {
			wrong |= sd_is_socket(fd, AF_UNSPEC, 0, 1) > 0;
		}
	}

	if (named < 0 && (several || wrong || (admin >= 0 && alike < 0)))
		return -EINVAL;

	passed->socket = named >= 0 ? named : alike;
	passed->admin_socket = admin;
	return 0;
}

/* Sets aside what the daemon before left in the unit's store. Closes other descriptors from there, which another version may have
 * left; systemd has copies. */
static void service_sort_others(char *const *names, int n, struct gm_service_passed *passed)
{
	const char *first = NULL;
	int closed = 0, n_left = 0;
	int *left = calloc((size_t)n + 1, sizeof(*left));
	for (int i = 0; i < n; i++) {
		int fd = SD_LISTEN_FDS_START + i;
		if (left && strcmp(names[i], GM_KEEPER_STORE_NAME) == 0) {
			left[n_left++] = fd;
			continue;
		}
		if (passed->unclear || fd == passed->socket || fd == passed->admin_socket)
			continue;
		first = first ? first : names[i];
		close(fd);
		closed++;
	}
	if (closed)
		gm_log(GM_LOG_WARNING,
			"%d descriptor%s passed by the service manager and not known here (first: %s): closed; stop the service to empty its fd store",
			closed, closed == 1 ? "" : "s", first);
	if (left)
		left[n_left] = -1;
	passed->left = left;
}

void gm_service_take_passed(struct gm_service_passed *ret)
{
	char **names = NULL;
	int n = sd_listen_fds_with_names(1, &names);

	*ret = (struct gm_service_passed){.socket = -1, .admin_socket = -1};
	ret->unclear = n < 0 || service_find_sockets(names, n, ret) < 0;
	if (n > 0)
		service_sort_others(names, n, ret);
	for (int i = 0; i < n; i++)
		free(names[i]);
	free(names);
}

/* Tells the service manager something, unless that would have to wait: sd_notify() waits while the manager does not
 * read, and the loop stands still. Returns 0, also without a manager, or -EAGAIN: its queue is full, or this process
 * lacks a descriptor or memory right now. */
static int service_tell(const char *text)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	size_t n = path ? strlen(path) : 0;
	if (n == 0)
		return 0;
	if ((*path != '/' && *path != '@') || n >= sizeof(address.sun_path)) {
		(void)sd_notify(0, text);
		return 0;
	}

	memcpy(address.sun_path, path, n);
	if (*path == '@') /* a name that no file system knows */
		address.sun_path[0] = '\0';
	GM_AUTO_FD int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -EAGAIN;
	socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + (*path == '/'));
	ssize_t sent =
		sendto(fd, text, strlen(text), MSG_NOSIGNAL, (struct sockaddr *)&address, size);
	bool later = errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM;
	return sent < 0 && later ? -EAGAIN : 0;
}

bool gm_service_ready(const char *status)
{
	char text[512];

	snprintf(text, sizeof(text), "READY=1\nSTATUS=%s", status);
	return service_tell(text) == 0;
}

void gm_service_reloading(void)
{
	char text[64];

	snprintf(text, sizeof(text), "RELOADING=1\nMONOTONIC_USEC=%llu",
		(unsigned long long)(gm_clock_ns() / GM_NS_PER_US));
	(void)service_tell(text);
}

void gm_service_stopping(void)
{
	(void)service_tell("STOPPING=1\nSTATUS=Stopping");
}

void gm_service_failed(const char *why)
{
	char text[600], last[512];

	gm_log_last_error(last, sizeof(last));
	why = why ? why : last;
	snprintf(text, sizeof(text), "STATUS=%.*s", (int)strcspn(why, "\n"), why);
	if (sd_notify(0, text) > 0)
		(void)sd_notify_barrier(0, GM_SERVICE_TOLD_US);
}

uint64_t gm_service_watchdog_ms(void)
{
	uint64_t usec;
	if (sd_watchdog_enabled(0, &usec) <= 0)
		return 0;
	uint64_t half = usec / 2000;
	return half ? half : 1;
}

void gm_service_alive(void)
{
	(void)service_tell("WATCHDOG=1");
}
