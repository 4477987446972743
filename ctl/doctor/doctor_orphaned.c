/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Which processes still have memory that the daemon cannot free. The daemon does not know them, and
 * often may not look into them. Root may, and compares what they map and have open with what the daemon
 * has open. That is known for host memory only; for a GPU, the processes of 'gpumemctl devices' tell.
 */

#include "ctl/doctor/doctor.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/text/units.h"
#include "ctl/io/user_name.h"

#define CHUNK_NAME "/memfd:gpumem-chunk"
#define NAMED      3

/* What is known of the clients. */
struct doctor_client {
	uint64_t pid, held;
	uint32_t uid;
};

struct orphaned_search {
	struct doctor_client *clients;
	size_t n, room;
	ino_t *chunks; /* that the daemon has, in order */
	size_t n_chunks, chunk_room;
	uint64_t open; /* of the process that is looked at */
	bool no_memory;
	unsigned found, unread;
	char text[320];
};

static void orphaned_take(void *ctx, const Gm__Wire__Packet *packet)
{
	struct orphaned_search *search = ctx;
	const Gm__Wire__ClientsReply *reply = packet->clients;

	for (size_t i = 0; i < reply->n_clients; i++) {
		const Gm__Wire__Client *client = reply->clients[i];
		if (client->left)
			continue;
		if (search->n == search->room) {
			size_t room = search->room ? 2 * search->room : 64;
			void *more = realloc(search->clients, room * sizeof(*search->clients));
			search->no_memory |= !more;
			if (!more)
				return;
			search->clients = more;
			search->room = room;
		}
		struct doctor_client *row = &search->clients[search->n++];
		*row = (struct doctor_client){.pid = (uint64_t)client->pid, .uid = client->uid};
		for (size_t k = 0; k < client->n_use; k++)
			row->held += client->use[k]->held;
	}
}

static int orphaned_by_number(const void *a, const void *b)
{
	ino_t m = *(const ino_t *)a, n = *(const ino_t *)b;
	return m < n ? -1 : m > n;
}

static bool orphaned_is_ours(const struct orphaned_search *search, ino_t inode)
{
	return search->n_chunks > 0 &&
	       bsearch(&inode, search->chunks, search->n_chunks, sizeof(inode), orphaned_by_number);
}

/* Calls fn for each chunk that a process has open, of whatever daemon. Returns false if that cannot
 * be read. */
static bool orphaned_each_open(const char *pid, struct orphaned_search *search,
	void (*fn)(struct orphaned_search *search, const struct stat *st))
{
	char path[320], name[64];

	snprintf(path, sizeof(path), "/proc/%.20s/fd", pid);
	DIR *folder = opendir(path);
	if (!folder)
		return false;
	for (struct dirent *entry; (entry = readdir(folder));) {
		struct stat st;
		snprintf(path, sizeof(path), "/proc/%.20s/fd/%s", pid, entry->d_name);
		ssize_t n = readlink(path, name, sizeof(name) - 1);
		if (n < 0)
			continue;
		name[n] = '\0';
		if (!strncmp(name, CHUNK_NAME, strlen(CHUNK_NAME)) && stat(path, &st) == 0)
			fn(search, &st);
	}
	closedir(folder);
	return true;
}

static void orphaned_add_chunk(struct orphaned_search *search, const struct stat *st)
{
	if (search->n_chunks == search->chunk_room) {
		size_t room = search->chunk_room ? 2 * search->chunk_room : 256;
		void *more = realloc(search->chunks, room * sizeof(*search->chunks));
		search->no_memory |= !more;
		if (!more)
			return;
		search->chunks = more;
		search->chunk_room = room;
	}
	search->chunks[search->n_chunks++] = st->st_ino;
}

static void orphaned_add_open(struct orphaned_search *search, const struct stat *st)
{
	if (orphaned_is_ours(search, st->st_ino))
		search->open += (uint64_t)st->st_size;
}

/* How much of the daemon's chunks a process maps. Returns false if that cannot be read. */
static bool orphaned_mapped(
	const struct orphaned_search *search, const char *pid, uint64_t *ret_bytes)
{
	char path[64], line[512];
	uint64_t from, to, inode, sum = 0;

	snprintf(path, sizeof(path), "/proc/%.20s/maps", pid);
	FILE *file = fopen(path, "re");
	if (!file)
		return errno == ENOENT || errno == ESRCH;
	while (fgets(line, sizeof(line), file))
		if (strstr(line, CHUNK_NAME) &&
			sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %*s %*s %" SCNu64, &from, &to,
				&inode) == 3 &&
			orphaned_is_ours(search, (ino_t)inode))
			sum += to - from;
	bool read = !ferror(file);
	fclose(file);
	*ret_bytes = sum;
	return read;
}

static void orphaned_name(
	struct orphaned_search *search, const char *pid, const char *how, uint64_t bytes)
{
	char path[64], command[32] = "?", user[GM_USER_NAME_TEXT], size[GM_UNITS_TEXT];
	struct stat st;

	if (search->found++ >= NAMED)
		return;
	snprintf(path, sizeof(path), "/proc/%.20s/comm", pid);
	FILE *file = fopen(path, "re");
	if (file) {
		if (fgets(command, sizeof(command), file))
			command[strcspn(command, "\n")] = '\0';
		fclose(file);
	}
	for (char *c = command; *c; c++)
		*c = isprint((unsigned char)*c) ? *c : '?';
	snprintf(path, sizeof(path), "/proc/%.20s", pid);
	bool known = stat(path, &st) == 0;

	size_t used = strlen(search->text);
	gm_format_size(bytes, size);
	snprintf(search->text + used, sizeof(search->text) - used, "%s pid %.20s (%s%s%s) %s %s",
		used ? "," : "", pid, command, known ? ", user " : "",
		known ? gm_user_name(st.st_uid, user) : "", how, size);
}

static void orphaned_look_at(
	const struct gm_doctor *doctor, struct orphaned_search *search, const char *pid)
{
	uint64_t number = strtoull(pid, NULL, 10), mapped = 0;
	const struct doctor_client *client = NULL;

	if (number == doctor->daemon.pid || number == doctor->daemon.keeper_pid)
		return;
	for (size_t i = 0; i < search->n; i++)
		if (search->clients[i].pid == number)
			client = &search->clients[i];
	if (!orphaned_mapped(search, pid, &mapped)) {
		search->unread++;
		return;
	}

	/* A client has more than it holds if it returned memory falsely. */
	uint64_t held = client ? client->held : 0;
	search->open = 0;
	if (!client)
		(void)orphaned_each_open(pid, search, orphaned_add_open);
	if (mapped > held)
		orphaned_name(search, pid,
			client ? "is a client and maps, beyond its leases," : "maps",
			mapped - held);
	else if (search->open > 0)
		orphaned_name(search, pid, "has open", search->open);
}

static void orphaned_tell(struct gm_doctor *doctor, const struct orphaned_search *search)
{
	char size[GM_UNITS_TEXT], more[48] = "", unread[96] = "";

	gm_format_size(doctor->daemon.orphaned, size);
	if (search->found > NAMED)
		snprintf(more, sizeof(more), " and %u more", search->found - NAMED);
	if (search->unread)
		snprintf(unread, sizeof(unread), "; you may not look into %u process%s",
			search->unread, search->unread == 1 ? "" : "es");
	gm_doctor_say(doctor, GM_DOCTOR_WARN, "orphaned", GM_DOCTOR_NO_DEVICE,
		!search->found && search->unread ? "run 'gpumemctl doctor' as root"
		: search->found                  ? "end these processes, or let them unmap it"
						 : "look for children of programs that have ended",
		"%s cannot be freed yet:%s%s%s", size,
		search->found ? search->text : " no process was seen to have it", more, unread);
}

void gm_doctor_orphaned(struct gm_doctor *doctor, struct gm_ctl_conn *conn)
{
	struct orphaned_search search = {0};
	struct gm_trouble trouble;

	if (doctor->daemon.orphaned == 0)
		return;
	bool asked = gm_ctl_conn_get(conn, GM__WIRE__PACKET__BODY_GET_CLIENTS, orphaned_take,
			     &search, &trouble) == GPUMEM_OK;
	char daemon[24];
	snprintf(daemon, sizeof(daemon), "%llu", (unsigned long long)doctor->daemon.pid);
	bool seen = orphaned_each_open(daemon, &search, orphaned_add_chunk);
	if (search.n_chunks > 0)
		qsort(search.chunks, search.n_chunks, sizeof(*search.chunks), orphaned_by_number);
	search.unread += !seen;

	DIR *folder = seen && asked && !search.no_memory ? opendir("/proc") : NULL;
	for (struct dirent *entry; folder && (entry = readdir(folder));)
		if (isdigit((unsigned char)entry->d_name[0]))
			orphaned_look_at(doctor, &search, entry->d_name);
	if (folder)
		closedir(folder);
	orphaned_tell(doctor, &search);
	free(search.clients);
	free(search.chunks);
}
