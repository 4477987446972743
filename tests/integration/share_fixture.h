/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_INTEGRATION_SHARE_FIXTURE_H
#define GM_TESTS_INTEGRATION_SHARE_FIXTURE_H

/* Processes of several users that share memory, or try to. */

#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/integration/raw.h"
#include "tests/tap.h"

#define UID_A 54321
#define UID_B 54322

static struct gm_daemon daemon_;

static inline void set_up(void)
{
	gm_daemon_start(&daemon_, NULL);
}

static inline void tear_down(void)
{
	gm_daemon_stop(&daemon_);
}

static inline void become(uid_t uid, gid_t further)
{
	GM_REQUIRE(setgroups(further ? 1 : 0, &further) == 0);
	GM_REQUIRE(setresgid(uid, uid, uid) == 0);
	GM_REQUIRE(setresuid(uid, uid, uid) == 0);
}

/*
 * A worker that does what it is told: the test scripts both sides of a share by these orders.
 */
enum verb {
	LEASE = 1,
	LEASE_FOR_OTHERS,
	FILL,
	IS,
	SHARE,
	OPEN,
	UNSHARE,
	RETURN,
	GOODBYE,
	WRITE_PROTECTED,
	MAP,
	END
};
struct order {
	enum verb verb;
	uint64_t bytes;
	uint8_t byte;
	uint8_t token[GM_TOKEN_BYTES];
	Gm__Wire__Audience audience;
	uint32_t id;
	bool read_only;
};
struct report {
	gpumem_status status;
	bool yes;
	uint8_t token[GM_TOKEN_BYTES];
	uint64_t session, bytes, user_bytes;
	bool read_only;
};
struct person {
	uid_t uid;
	gid_t further;
};

/* Not one byte of it can be written, by no way that is open to this process. */
static inline bool write_protected(const struct gm_alloc_raw_chunk *chunk)
{
	if (gm_raw_map(chunk, true) != MAP_FAILED)
		return false;
	void *at = gm_raw_map(chunk, false);
	GM_REQUIRE(at != MAP_FAILED);
	bool ok = mprotect(at, chunk->bytes, PROT_READ | PROT_WRITE) == -1;
	munmap(at, chunk->bytes);
	if (pwrite(chunk->fd, "w", 1, 0) >= 0)
		ok = false;
	char path[64];
	snprintf(path, sizeof(path), "/proc/self/fd/%d", chunk->fd);
	int again = open(path, O_RDWR | O_CLOEXEC);
	if (again >= 0) {
		close(again);
		ok = false;
	}
	/* Not even after trying to change the mode. */
	if (fchmod(chunk->fd, 0777) == 0)
		ok = false;
	if (fallocate(chunk->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == 0)
		ok = false;
	return ok;
}

static inline void obey(int channel, void *argument)
{
	const struct person *who = argument;
	if (who->uid)
		become(who->uid, who->further);
	struct gm_raw raw;
	struct gm_raw_lease lease = {0};
	struct gm_alloc_raw_chunk *chunk;
	gm_raw_join(&raw, &daemon_);
	for (;;) {
		struct order order;
		struct report report = {.session = raw.session};
		gm_hear(channel, &order, sizeof(order));
		switch (order.verb) {
		case LEASE:
			report.status = gm_raw_lease(&raw, 0, order.bytes, &lease);
			break;
		case LEASE_FOR_OTHERS:
			report.status = gm_raw_lease_for_others(&raw, 0, order.bytes, &lease);
			break;
		case FILL:
			for (chunk = lease.chunks; chunk < lease.chunks + lease.n; chunk++)
				gm_alloc_raw_chunk_fill(chunk, order.byte);
			break;
		case IS:
			report.yes = lease.n > 0;
			for (chunk = lease.chunks; chunk < lease.chunks + lease.n; chunk++)
				report.yes = report.yes && gm_alloc_raw_chunk_is(chunk, order.byte);
			break;
		case SHARE:
			report.status = gm_raw_share(&raw, lease.id, order.audience, order.id,
				order.read_only, report.token);
			break;
		case OPEN:
			report.status = gm_raw_open(&raw, order.token, &lease);
			break;
		case UNSHARE:
			report.status = gm_raw_unshare(&raw, lease.id);
			break;
		case RETURN: {
			/* To return is to say that nothing of it is held here any more. */
			uint64_t id = lease.id;
			gm_raw_lease_clear(&lease);
			report.status = gm_raw_return(&raw, id, NULL, 0);
			break;
		}
		case GOODBYE:
			gm_raw_lease_clear(&lease);
			report.status = gm_raw_goodbye(&raw);
			break;
		case WRITE_PROTECTED:
			report.yes = write_protected(&lease.chunks[0]);
			break;
		case MAP:
			report.yes = gm_raw_map(&lease.chunks[0], true) != MAP_FAILED;
			break;
		case END:
			return;
		}
		report.bytes = lease.bytes;
		report.user_bytes = lease.user_bytes;
		report.read_only = lease.read_only;
		gm_text_say(channel, &report, sizeof(report));
	}
}

static inline struct report tell(struct gm_worker *worker, struct order order)
{
	struct report report;
	gm_text_say(worker->channel, &order, sizeof(order));
	gm_hear(worker->channel, &report, sizeof(report));
	return report;
}

static inline void end(struct gm_worker *worker)
{
	struct order order = {.verb = END};
	gm_text_say(worker->channel, &order, sizeof(order));
	gm_worker_join(worker);
}

#define TELL(worker, ...) tell(&(worker), (struct order){__VA_ARGS__})

#endif
