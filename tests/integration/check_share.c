/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Sharing between processes, trust domains and audiences: who may open what, who pays, and that
 * nobody sees what another uid left behind. Real processes of real uids, so it needs root.
 */

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/raw.h"
#include "tests/tap.h"

#define UID_A 54321
#define UID_B 54322
#define GID_C 54333

static struct gm_daemon daemon_;

static void set_up(void)
{
	gm_daemon_start(&daemon_, NULL);
}

static void tear_down(void)
{
	gm_daemon_stop(&daemon_);
}

static void become(uid_t uid, gid_t further)
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
static bool write_protected(const struct gm_raw_chunk *chunk)
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

static void obey(int channel, void *argument)
{
	const struct person *who = argument;
	if (who->uid)
		become(who->uid, who->further);
	struct gm_raw raw;
	struct gm_raw_lease lease = {0};
	struct gm_raw_chunk *chunk;
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
				gm_raw_chunk_fill(chunk, order.byte);
			break;
		case IS:
			report.yes = lease.n > 0;
			for (chunk = lease.chunks; chunk < lease.chunks + lease.n; chunk++)
				report.yes = report.yes && gm_raw_chunk_is(chunk, order.byte);
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
		gm_say(channel, &report, sizeof(report));
	}
}

static struct report tell(struct gm_worker *worker, struct order order)
{
	struct report report;
	gm_say(worker->channel, &order, sizeof(order));
	gm_hear(worker->channel, &report, sizeof(report));
	return report;
}

static void end(struct gm_worker *worker)
{
	struct order order = {.verb = END};
	gm_say(worker->channel, &order, sizeof(order));
	gm_worker_join(worker);
}

#define TELL(worker, ...) tell(&(worker), (struct order){__VA_ARGS__})

static struct report open_with(struct gm_worker *worker, const uint8_t token[GM_TOKEN_BYTES])
{
	struct order order = {.verb = OPEN};
	memcpy(order.token, token, GM_TOKEN_BYTES);
	return tell(worker, order);
}

/* ---- trust domains */

START_TEST(what_one_uid_returned_is_never_given_to_another)
{
	struct gm_worker a, b;
	struct person who_a = {UID_A, 0}, who_b = {UID_B, 0};
	gm_worker_start(&a, obey, &who_a);
	gm_worker_start(&b, obey, &who_b);
	/* All the memory there is, so that B cannot be served but by what A had. */
	uint64_t all = gm_figures_now(&daemon_).available;
	for (int round = 0; round < 4; round++) {
		GM_REQUIRE_EQ(TELL(a, .verb = LEASE, .bytes = all).status, GPUMEM_OK);
		GM_REQUIRE_EQ(TELL(a, .verb = FILL, .byte = 0xaa).status, GPUMEM_OK);
		GM_REQUIRE_EQ(TELL(a, .verb = RETURN).status, GPUMEM_OK);
		GM_REQUIRE_EQ(TELL(b, .verb = LEASE, .bytes = all).status, GPUMEM_OK);
		GM_REQUIRE(TELL(b, .verb = IS, .byte = 0).yes);
		GM_REQUIRE_EQ(TELL(b, .verb = FILL, .byte = 0xbb).status, GPUMEM_OK);
		GM_REQUIRE_EQ(TELL(b, .verb = RETURN).status, GPUMEM_OK);
	}
	end(&a);
	end(&b);
}
END_TEST

START_TEST(what_a_uid_returned_is_pooled_for_its_other_processes)
{
	struct gm_worker a, b;
	struct person who = {UID_A, 0};
	gm_worker_start(&a, obey, &who);
	gm_worker_start(&b, obey, &who);
	GM_REQUIRE_EQ(TELL(a, .verb = LEASE, .bytes = GM_CHUNK_MIN).status, GPUMEM_OK);
	TELL(a, .verb = FILL, .byte = 0xaa);
	GM_REQUIRE_EQ(TELL(a, .verb = RETURN).status, GPUMEM_OK);
	GM_REQUIRE_EQ(TELL(b, .verb = LEASE, .bytes = GM_CHUNK_MIN).status, GPUMEM_OK);
	GM_REQUIRE(TELL(b, .verb = IS, .byte = 0xaa).yes);
	end(&a);
	end(&b);
}
END_TEST

START_TEST(with_trust_client_nothing_returned_is_given_to_anybody)
{
	gm_daemon_configure(&daemon_, GM_DAEMON_CONFIG_WITH("trust = client\n", "64M"));
	gm_daemon_kill(&daemon_);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	struct gm_worker a, b;
	struct person who = {UID_A, 0};
	gm_worker_start(&a, obey, &who);
	gm_worker_start(&b, obey, &who);
	uint64_t all = gm_figures_now(&daemon_).available;
	GM_REQUIRE_EQ(TELL(a, .verb = LEASE, .bytes = all).status, GPUMEM_OK);
	TELL(a, .verb = FILL, .byte = 0xaa);
	GM_REQUIRE_EQ(TELL(a, .verb = RETURN).status, GPUMEM_OK);
	GM_REQUIRE_EQ(TELL(b, .verb = LEASE, .bytes = all).status, GPUMEM_OK);
	GM_REQUIRE(TELL(b, .verb = IS, .byte = 0).yes);
	end(&a);
	end(&b);
}
END_TEST

/* ---- sharing */

START_TEST(a_buffer_is_one_memory_in_two_processes)
{
	struct gm_worker maker, opener;
	struct person who = {UID_A, 0};
	gm_worker_start(&maker, obey, &who);
	gm_worker_start(&opener, obey, &who);
	GM_REQUIRE_EQ(TELL(maker, .verb = LEASE, .bytes = 3 * GM_CHUNK_MIN - 5).status, GPUMEM_OK);
	TELL(maker, .verb = FILL, .byte = 1);
	struct report share = TELL(maker, .verb = SHARE);
	GM_REQUIRE_EQ(share.status, GPUMEM_OK);
	struct report open = open_with(&opener, share.token);
	GM_REQUIRE_EQ(open.status, GPUMEM_OK);
	GM_REQUIRE_EQ(open.user_bytes, 3 * GM_CHUNK_MIN - 5);
	GM_REQUIRE_EQ(open.bytes, share.bytes);
	GM_REQUIRE(!open.read_only);
	GM_REQUIRE(TELL(opener, .verb = IS, .byte = 1).yes);
	TELL(opener, .verb = FILL, .byte = 2);
	GM_REQUIRE(TELL(maker, .verb = IS, .byte = 2).yes);
	/* Paid once, by the maker. */
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).leased, share.bytes);
	struct gm_client_row row;
	GM_REQUIRE(gm_client_row(&daemon_, share.session, &row));
	GM_REQUIRE_EQ(row.held, share.bytes);
	GM_REQUIRE(gm_client_row(&daemon_, open.session, &row));
	GM_REQUIRE_EQ(row.held, 0);
	/* An opener's return ends its view, not the memory. */
	GM_REQUIRE_EQ(TELL(opener, .verb = RETURN).status, GPUMEM_OK);
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).leased, share.bytes);
	GM_REQUIRE(TELL(maker, .verb = IS, .byte = 2).yes);
	GM_REQUIRE_EQ(TELL(maker, .verb = RETURN).status, GPUMEM_OK);
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).leased, 0);
	end(&maker);
	end(&opener);
}
END_TEST

START_TEST(a_right_token_of_the_wrong_uid_finds_nothing)
{
	struct gm_worker maker, stranger, root;
	struct person who = {UID_A, 0}, other = {UID_B, 0}, super = {0, 0};
	gm_worker_start(&maker, obey, &who);
	gm_worker_start(&stranger, obey, &other);
	gm_worker_start(&root, obey, &super);
	GM_REQUIRE_EQ(
		TELL(maker, .verb = LEASE_FOR_OTHERS, .bytes = GM_CHUNK_MIN).status, GPUMEM_OK);
	struct report domain = TELL(maker, .verb = SHARE);
	struct report uid = TELL(
		maker, .verb = SHARE, .audience = GM__WIRE__AUDIENCE__AUDIENCE_UID, .id = UID_A);
	struct report gid = TELL(
		maker, .verb = SHARE, .audience = GM__WIRE__AUDIENCE__AUDIENCE_GID, .id = GID_C);
	struct report none = TELL(maker, .verb = SHARE,
		.audience = GM__WIRE__AUDIENCE__AUDIENCE_UID, .id = UID_A + 7);
	const struct report *all[] = {&domain, &uid, &gid, &none};
	for (size_t i = 0; i < 4; i++) {
		GM_REQUIRE_EQ(all[i]->status, GPUMEM_OK);
		GM_REQUIRE_EQ(open_with(&stranger, all[i]->token).status, GPUMEM_E_NOT_FOUND);
	}
	/* Root is another uid, too: the token is bound to whom it was made for. */
	GM_REQUIRE_EQ(open_with(&root, domain.token).status, GPUMEM_E_NOT_FOUND);
	end(&maker);
	end(&stranger);
	end(&root);
}
END_TEST

START_TEST(old_data_is_not_shared_with_others)
{
	struct gm_worker maker;
	struct person who = {UID_A, 0};
	gm_worker_start(&maker, obey, &who);
	/* What the pool has is the maker's own, but the others' to see. */
	GM_REQUIRE_EQ(TELL(maker, .verb = LEASE, .bytes = GM_CHUNK_MIN).status, GPUMEM_OK);
	TELL(maker, .verb = FILL, .byte = 9);
	GM_REQUIRE_EQ(TELL(maker, .verb = RETURN).status, GPUMEM_OK);

	GM_REQUIRE_EQ(TELL(maker, .verb = LEASE, .bytes = GM_CHUNK_MIN).status, GPUMEM_OK);
	GM_REQUIRE(TELL(maker, .verb = IS, .byte = 9).yes);
	GM_REQUIRE_EQ(TELL(maker, .verb = SHARE, .audience = GM__WIRE__AUDIENCE__AUDIENCE_UID,
			      .id = UID_B)
			      .status,
		GPUMEM_E_UNSUPPORTED);
	GM_REQUIRE_EQ(TELL(maker, .verb = SHARE, .audience = GM__WIRE__AUDIENCE__AUDIENCE_GID,
			      .id = GID_C)
			      .status,
		GPUMEM_E_UNSUPPORTED);
	GM_REQUIRE_EQ(TELL(maker, .verb = SHARE).status, GPUMEM_OK);
	GM_REQUIRE_EQ(TELL(maker, .verb = RETURN).status, GPUMEM_OK);

	GM_REQUIRE_EQ(
		TELL(maker, .verb = LEASE_FOR_OTHERS, .bytes = GM_CHUNK_MIN).status, GPUMEM_OK);
	GM_REQUIRE(TELL(maker, .verb = IS, .byte = 0).yes);
	end(&maker);
}
END_TEST

START_TEST(a_share_for_a_uid_or_gid_is_opened_by_it)
{
	struct gm_worker maker, by_uid, by_gid;
	struct person who = {UID_A, 0}, uid_b = {UID_B, 0}, in_c = {UID_B + 1, GID_C};
	gm_worker_start(&maker, obey, &who);
	gm_worker_start(&by_uid, obey, &uid_b);
	gm_worker_start(&by_gid, obey, &in_c);
	GM_REQUIRE_EQ(
		TELL(maker, .verb = LEASE_FOR_OTHERS, .bytes = GM_CHUNK_MIN).status, GPUMEM_OK);
	TELL(maker, .verb = FILL, .byte = 7);
	struct report uid = TELL(
		maker, .verb = SHARE, .audience = GM__WIRE__AUDIENCE__AUDIENCE_UID, .id = UID_B);
	struct report gid = TELL(
		maker, .verb = SHARE, .audience = GM__WIRE__AUDIENCE__AUDIENCE_GID, .id = GID_C);
	GM_REQUIRE_EQ(open_with(&by_gid, uid.token).status, GPUMEM_E_NOT_FOUND);
	GM_REQUIRE_EQ(open_with(&by_uid, gid.token).status, GPUMEM_E_NOT_FOUND);
	GM_REQUIRE_EQ(open_with(&by_uid, uid.token).status, GPUMEM_OK);
	GM_REQUIRE(TELL(by_uid, .verb = IS, .byte = 7).yes);
	GM_REQUIRE_EQ(open_with(&by_gid, gid.token).status, GPUMEM_OK);
	TELL(by_gid, .verb = FILL, .byte = 8);
	GM_REQUIRE(TELL(maker, .verb = IS, .byte = 8).yes);
	/* It crossed domains: when all have let go, it is pooled for nobody. */
	GM_REQUIRE_EQ(TELL(by_uid, .verb = RETURN).status, GPUMEM_OK);
	GM_REQUIRE_EQ(TELL(by_gid, .verb = RETURN).status, GPUMEM_OK);
	GM_REQUIRE_EQ(TELL(maker, .verb = RETURN).status, GPUMEM_OK);
	GM_UNTIL(gm_figures_now(&daemon_).chunks == 0);
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).pooled, 0);
	end(&maker);
	end(&by_uid);
	end(&by_gid);
}
END_TEST

START_TEST(a_read_only_share_cannot_be_written_by_its_opener)
{
	struct gm_worker maker, opener;
	struct person who = {UID_A, 0}, other = {UID_B, 0};
	gm_worker_start(&maker, obey, &who);
	gm_worker_start(&opener, obey, &other);
	GM_REQUIRE_EQ(
		TELL(maker, .verb = LEASE_FOR_OTHERS, .bytes = GM_CHUNK_MIN).status, GPUMEM_OK);
	TELL(maker, .verb = FILL, .byte = 3);
	struct report share = TELL(maker, .verb = SHARE,
		.audience = GM__WIRE__AUDIENCE__AUDIENCE_UID, .id = UID_B, .read_only = true);
	struct report open = open_with(&opener, share.token);
	GM_REQUIRE_EQ(open.status, GPUMEM_OK);
	GM_REQUIRE(open.read_only);
	GM_REQUIRE(TELL(opener, .verb = IS, .byte = 3).yes);
	GM_REQUIRE(TELL(opener, .verb = WRITE_PROTECTED).yes);
	/* The maker's own handle still writes. */
	TELL(maker, .verb = FILL, .byte = 4);
	GM_REQUIRE(TELL(opener, .verb = IS, .byte = 4).yes);
	/* An opener cannot make a wider share of it. */
	GM_REQUIRE(TELL(opener, .verb = SHARE).status != GPUMEM_OK);
	end(&maker);
	end(&opener);
}
END_TEST

START_TEST(a_chunk_of_another_uid_cannot_be_reopened_for_more_than_it_was_given)
{
	struct gm_worker maker, opener;
	struct person who = {UID_A, 0};
	gm_worker_start(&maker, obey, &who);
	gm_worker_start(&opener, obey, &who);
	/* Of the same uid, even: what the daemon made is the daemon's. */
	GM_REQUIRE_EQ(TELL(maker, .verb = LEASE, .bytes = GM_CHUNK_MIN).status, GPUMEM_OK);
	struct report share = TELL(maker, .verb = SHARE, .read_only = true);
	GM_REQUIRE_EQ(open_with(&opener, share.token).status, GPUMEM_OK);
	GM_REQUIRE(TELL(opener, .verb = WRITE_PROTECTED).yes);
	end(&maker);
	end(&opener);
}
END_TEST

START_TEST(after_unshare_a_token_finds_nothing_and_openers_keep_what_they_have)
{
	struct gm_worker maker, early, late;
	struct person who = {UID_A, 0};
	gm_worker_start(&maker, obey, &who);
	gm_worker_start(&early, obey, &who);
	gm_worker_start(&late, obey, &who);
	GM_REQUIRE_EQ(TELL(maker, .verb = LEASE, .bytes = GM_CHUNK_MIN).status, GPUMEM_OK);
	struct report one = TELL(maker, .verb = SHARE), two = TELL(maker, .verb = SHARE);
	GM_REQUIRE(memcmp(one.token, two.token, GM_TOKEN_BYTES) != 0);
	GM_REQUIRE_EQ(open_with(&early, one.token).status, GPUMEM_OK);
	GM_REQUIRE_EQ(TELL(maker, .verb = UNSHARE).status, GPUMEM_OK);
	GM_REQUIRE_EQ(open_with(&late, one.token).status, GPUMEM_E_NOT_FOUND);
	GM_REQUIRE_EQ(open_with(&late, two.token).status, GPUMEM_E_NOT_FOUND);
	TELL(early, .verb = FILL, .byte = 5);
	GM_REQUIRE(TELL(maker, .verb = IS, .byte = 5).yes);
	end(&maker);
	end(&early);
	end(&late);
}
END_TEST

START_TEST(when_the_maker_dies_its_uid_pays_and_the_opener_keeps_the_memory)
{
	struct gm_worker maker, first, second, late;
	struct person who = {UID_A, 0};
	gm_worker_start(&maker, obey, &who);
	gm_worker_start(&first, obey, &who);
	gm_worker_start(&second, obey, &who);
	gm_worker_start(&late, obey, &who);
	GM_REQUIRE_EQ(TELL(maker, .verb = LEASE, .bytes = GM_CHUNK_MIN).status, GPUMEM_OK);
	TELL(maker, .verb = FILL, .byte = 6);
	struct report share = TELL(maker, .verb = SHARE);
	struct report one = open_with(&first, share.token), two = open_with(&second, share.token);
	GM_REQUIRE_EQ(one.status, GPUMEM_OK);
	GM_REQUIRE_EQ(two.status, GPUMEM_OK);
	gm_worker_kill(&maker);
	struct gm_client_row row;
	GM_UNTIL(!gm_client_row(&daemon_, share.session, &row));
	GM_REQUIRE(gm_client_row(&daemon_, one.session, &row));
	GM_REQUIRE_EQ(row.held, 0);
	GM_REQUIRE(gm_client_row(&daemon_, two.session, &row));
	GM_REQUIRE_EQ(row.held, 0);
	GM_REQUIRE_EQ(gm_left_by(&daemon_, UID_A), GM_CHUNK_MIN);
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).leased, GM_CHUNK_MIN);
	GM_REQUIRE(TELL(first, .verb = IS, .byte = 6).yes);
	TELL(second, .verb = FILL, .byte = 9);
	GM_REQUIRE(TELL(first, .verb = IS, .byte = 9).yes);
	/* Then an opener dies: the other one keeps the memory, and nobody else pays. */
	gm_worker_kill(&first);
	GM_UNTIL(!gm_client_row(&daemon_, one.session, &row));
	GM_REQUIRE(gm_client_row(&daemon_, two.session, &row));
	GM_REQUIRE_EQ(row.held, 0);
	GM_REQUIRE_EQ(gm_left_by(&daemon_, UID_A), GM_CHUNK_MIN);
	/* The last one lets go: a dead maker's memory is never pooled. */
	GM_REQUIRE_EQ(TELL(second, .verb = RETURN).status, GPUMEM_OK);
	GM_UNTIL(gm_figures_now(&daemon_).chunks == 0);
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).leased, 0);
	GM_REQUIRE_EQ(gm_left_by(&daemon_, UID_A), 0);
	end(&second);
	end(&late);
}
END_TEST

/* B opens what A makes and returns, again and again: nothing of it may be charged to B, whose limit
 * it would exceed, and A cannot make more than its own limit that way. */
START_TEST(opening_and_returning_moves_no_charge_past_a_limit)
{
	enum { ROUNDS = 8, EACH = 16 * 1024 * 1024 };
	struct gm_worker maker, openers[ROUNDS];
	struct person a = {UID_A, 0}, b = {UID_B, 0};
	gm_daemon_configure(&daemon_,
		GM_DAEMON_CONFIG_WITH(
			"", "256M") "[limit uid:54321]\nmax = 64M\n[limit uid:54322]\nmax = 16M\n");
	gm_daemon_kill(&daemon_);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);

	gm_worker_start(&maker, obey, &a);
	int made = 0;
	for (; made < ROUNDS; made++) {
		if (TELL(maker, .verb = LEASE_FOR_OTHERS, .bytes = EACH).status != GPUMEM_OK)
			break;
		struct report share = TELL(maker, .verb = SHARE,
			.audience = GM__WIRE__AUDIENCE__AUDIENCE_UID, .id = UID_B);
		gm_worker_start(&openers[made], obey, &b);
		struct report open = open_with(&openers[made], share.token);
		GM_REQUIRE_EQ(open.status, GPUMEM_OK);
		GM_REQUIRE_EQ(TELL(maker, .verb = RETURN).status, GPUMEM_OK);

		struct gm_client_row row;
		GM_REQUIRE(gm_client_row(&daemon_, open.session, &row));
		GM_REQUIRE_EQ(row.held, 0);
	}
	GM_REQUIRE_EQ(made, 4);
	GM_REQUIRE_EQ(gm_left_by(&daemon_, UID_A), 4 * EACH);
	GM_REQUIRE_EQ(gm_left_by(&daemon_, UID_B), 0);

	/* B can use its own limit in full. A can make more as soon as an opener has left. */
	GM_REQUIRE_EQ(TELL(openers[0], .verb = RETURN).status, GPUMEM_OK);
	GM_REQUIRE_EQ(TELL(openers[0], .verb = LEASE_FOR_OTHERS, .bytes = EACH).status, GPUMEM_OK);
	GM_REQUIRE_EQ(TELL(maker, .verb = LEASE_FOR_OTHERS, .bytes = EACH).status, GPUMEM_OK);
	end(&maker);
	for (int i = 0; i < made; i++)
		end(&openers[i]);
}
END_TEST

/* ---- memory that a process keeps although it is nobody's */

#define STEP (16 * 1024 * 1024)

static const char limited[] = GM_DAEMON_CONFIG_WITH(
	"", "256M") "[limit uid:54321]\nmax = 64M\n[limit uid:54322]\nmax = 64M\n";

static void restart_limited(void)
{
	gm_daemon_configure(&daemon_, limited);
	gm_daemon_kill(&daemon_);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
}

/*
 * Leases memory and hands it to a forked child, again and again, each time in a process that then
 * exits. The children keep the memory mapped until the channel closes. Tells how often it worked.
 */
static void fork_and_exit(int channel, void *argument)
{
	become(UID_A, 0);
	int rounds = 0;
	for (gpumem_status status = GPUMEM_OK; status == GPUMEM_OK && rounds < 12; rounds++) {
		int outcome[2];
		GM_REQUIRE(pipe2(outcome, O_CLOEXEC) == 0);
		pid_t leaser = fork();
		GM_REQUIRE(leaser >= 0);
		if (leaser == 0) {
			struct gm_raw raw;
			struct gm_raw_lease lease;
			gm_raw_join(&raw, &daemon_);
			status = gm_raw_lease(&raw, 0, STEP, &lease);
			void *at = status == GPUMEM_OK
					   ? gm_raw_map(&lease.chunks[0], *(bool *)argument)
					   : NULL;
			GM_REQUIRE(at != MAP_FAILED);
			if (status == GPUMEM_OK && fork() == 0) {
				char word;
				close(outcome[1]);
				gm_raw_lease_clear(&lease);
				(void)!recv(channel, &word, 1, MSG_PEEK);
				_exit(0);
			}
			GM_REQUIRE(write(outcome[1], &status, sizeof(status)) == sizeof(status));
			_exit(0);
		}
		GM_REQUIRE(read(outcome[0], &status, sizeof(status)) == sizeof(status));
		GM_REQUIRE(waitpid(leaser, NULL, 0) == leaser);
		close(outcome[0]);
		close(outcome[1]);
		GM_UNTIL(gm_figures_now(&daemon_).clients == 0);
		rounds -= status != GPUMEM_OK;
	}
	gm_say(channel, &rounds, sizeof(rounds));
	char word;
	(void)!recv(channel, &word, 1, MSG_PEEK);
}

/* For mappings that can be written (0) and that can only be read (1). */
START_TEST(memory_that_forked_children_keep_counts_for_their_uid_until_they_end)
{
	struct gm_worker attacker, victim;
	struct person b = {UID_B, 0};
	bool writable = _i == 0;
	int rounds;
	restart_limited();
	gm_worker_start(&attacker, fork_and_exit, &writable);
	gm_hear(attacker.channel, &rounds, sizeof(rounds));
	GM_REQUIRE_EQ(rounds, 4); /* 64M in all, as the limit says */
	struct gm_figures f = gm_figures_now(&daemon_);
	GM_REQUIRE_EQ(f.lingering, 4 * STEP);
	GM_REQUIRE_EQ(f.quarantined, 4 * STEP);
	GM_REQUIRE_EQ(f.available, f.ceiling - 4 * STEP);
	GM_REQUIRE_EQ(gm_left_by(&daemon_, UID_A), 4 * STEP);

	/* Another uid is not charged for it. */
	gm_worker_start(&victim, obey, &b);
	GM_REQUIRE_EQ(TELL(victim, .verb = LEASE, .bytes = 4 * STEP).status, GPUMEM_OK);
	GM_REQUIRE(TELL(victim, .verb = IS, .byte = 0).yes);
	end(&victim);

	/* The children end: it comes back, and is not pooled. */
	gm_worker_kill(&attacker);
	GM_UNTIL(gm_figures_now(&daemon_).lingering == 0);
	GM_UNTIL(gm_figures_now(&daemon_).chunks == 0);
	GM_REQUIRE_EQ(gm_left_by(&daemon_, UID_A), 0);
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).pooled, 0);
}
END_TEST

/* Says falsely that it has unmapped what it returns. */
static void return_falsely(int channel, void *argument)
{
	become(UID_A, 0);
	struct gm_raw raw;
	struct gm_raw_lease lease;
	int rounds = 0;
	gm_raw_join(&raw, &daemon_);
	while (rounds < 12 && gm_raw_lease(&raw, 0, STEP, &lease) == GPUMEM_OK) {
		GM_REQUIRE(gm_raw_map(&lease.chunks[0], true) != MAP_FAILED);
		uint64_t id = lease.id;
		gm_raw_lease_clear(&lease);
		GM_REQUIRE_EQ(gm_raw_return(&raw, id, NULL, 0), GPUMEM_OK);
		rounds++;
	}
	gm_say(channel, &rounds, sizeof(rounds));
	gm_hear_word(channel, 'e');
}

START_TEST(memory_that_is_returned_falsely_stays_charged_and_is_never_pooled)
{
	struct gm_worker liar;
	int rounds;
	restart_limited();
	gm_worker_start(&liar, return_falsely, NULL);
	gm_hear(liar.channel, &rounds, sizeof(rounds));
	GM_REQUIRE_EQ(rounds, 4);
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).pooled, 0);
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).lingering, 4 * STEP);
	GM_REQUIRE_EQ(gm_left_by(&daemon_, UID_A), 4 * STEP);
	gm_say_word(liar.channel, 'e');
	gm_worker_join(&liar);
	GM_UNTIL(gm_figures_now(&daemon_).lingering == 0);
	GM_UNTIL(gm_figures_now(&daemon_).chunks == 0);
}
END_TEST

/* ---- what others may see */

static void look_around(int channel, void *argument)
{
	struct person who = {UID_B, 0};
	uint64_t session;
	gm_hear(channel, &session, sizeof(session));
	become(who.uid, 0);
	struct gm_client_row row;
	GM_REQUIRE(gm_client_row(&daemon_, session, &row));
	GM_REQUIRE(!row.details);
	GM_REQUIRE_EQ(row.held, GM_CHUNK_MIN);
	GM_REQUIRE(strcmp(row.name, "") == 0);
	struct gm_raw raw;
	gm_raw_observe(&raw, &daemon_);
	Gm__Wire__Trim trim = GM__WIRE__TRIM__INIT;
	trim.all_devices = true;
	GM_REQUIRE_EQ(gm_raw_call(&raw, GM_RAW_PACKET(TRIM, trim, &trim)), GPUMEM_E_DENIED);
	gm_raw_close(&raw);
}

START_TEST(an_ordinary_user_sees_totals_and_changes_nothing)
{
	struct gm_worker holder, looker;
	struct person who = {UID_A, 0};
	gm_worker_start(&holder, obey, &who);
	struct report lease = TELL(holder, .verb = LEASE, .bytes = GM_CHUNK_MIN);
	gm_worker_start(&looker, look_around, NULL);
	gm_say(looker.channel, &lease.session, sizeof(lease.session));
	gm_worker_join(&looker);
	end(&holder);
}
END_TEST

int main(void)
{
	if (!gm_tap_has_users()) {
		printf("1..0 # SKIP needs root, for processes of several users\n");
		return 0;
	}
	Suite *suite = suite_create("share");
	TCase *tc = tcase_create("share");
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, what_one_uid_returned_is_never_given_to_another);
	tcase_add_test(tc, what_a_uid_returned_is_pooled_for_its_other_processes);
	tcase_add_test(tc, with_trust_client_nothing_returned_is_given_to_anybody);
	tcase_add_test(tc, a_buffer_is_one_memory_in_two_processes);
	tcase_add_test(tc, a_right_token_of_the_wrong_uid_finds_nothing);
	tcase_add_test(tc, old_data_is_not_shared_with_others);
	tcase_add_test(tc, a_share_for_a_uid_or_gid_is_opened_by_it);
	/* On a GPU read-only is a request: whoever has the handle chooses its access. */
	if (!gm_on_gpu()) {
		tcase_add_test(tc, a_read_only_share_cannot_be_written_by_its_opener);
		tcase_add_test(
			tc, a_chunk_of_another_uid_cannot_be_reopened_for_more_than_it_was_given);
		/* On a GPU nobody can tell who maps a chunk. */
		tcase_add_loop_test(tc,
			memory_that_forked_children_keep_counts_for_their_uid_until_they_end, 0, 2);
		tcase_add_test(
			tc, memory_that_is_returned_falsely_stays_charged_and_is_never_pooled);
	}
	tcase_add_test(tc, after_unshare_a_token_finds_nothing_and_openers_keep_what_they_have);
	tcase_add_test(tc, when_the_maker_dies_its_uid_pays_and_the_opener_keeps_the_memory);
	tcase_add_test(tc, opening_and_returning_moves_no_charge_past_a_limit);
	tcase_add_test(tc, an_ordinary_user_sees_totals_and_changes_nothing);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
