/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Clients that misuse the sharing of chunks (ShareChunks), and their return by index: with ids and tokens of others, while the lease
 * goes back, without reading the answers, and by dying. Nobody gets at memory that is not his, no client
 * escapes its limit, and the daemon keeps nothing of what they tried.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/integration/witness.h"
#include "tests/tap.h"

#define MIB UINT64_C(0x100000)

/* A lease of so many chunks of 2 MiB: it grows by one after the other. Its descriptors are closed. */
static void lease_of(struct gm_raw *raw, size_t n, uint64_t *ret_lease, uint64_t *ret_chunks)
{
	struct gm_raw_lease lease;

	for (size_t i = 0; i < n; i++) {
		GM_REQUIRE_EQ(i ? gm_raw_grow(raw, &lease, GM_CHUNK_MIN)
				: gm_raw_lease(raw, 0, GM_CHUNK_MIN, &lease),
			GPUMEM_OK);
		GM_REQUIRE_EQ(lease.n, i + 1);
		ret_chunks[i] = lease.chunks[i].id;
		close(lease.chunks[i].fd);
		lease.chunks[i].fd = -1;
	}
	*ret_lease = lease.id;
	gm_raw_lease_clear(&lease);
}

/* ---- what is not one's own */

START_TEST(nobody_shares_or_ends_what_another_has)
{
	struct gm_witness witness;
	struct gm_raw raw, owner;
	uint64_t leases[2], chunks[2], own_lease, own_chunk;
	uint8_t token[GM_TOKEN_BYTES], forged[GM_TOKEN_BYTES];
	struct gm_raw_lease lease;

	gm_witness_start(&witness, NULL);
	gm_raw_join(&owner, &witness.daemon);
	gm_raw_join(&raw, &witness.daemon);
	lease_of(&owner, 2, &leases[0], chunks);
	leases[1] = leases[0];
	lease_of(&raw, 1, &own_lease, &own_chunk);

	/* Before the chunks are leases of their own, and afterwards. */
	for (int shared = 0; shared < 2; shared++) {
		const uint64_t names[] = {own_lease, leases[0], 0, UINT64_MAX};
		for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
			for (size_t k = 0; k < 2; k++)
				GM_REQUIRE_EQ(gm_raw_share_chunks(&raw, &names[i], &chunks[k], 1, 0,
						      forged, NULL),
					GPUMEM_E_NOT_FOUND);
		if (!shared)
			GM_REQUIRE_EQ(
				gm_raw_share_chunks(&owner, leases, chunks, 2, 0, token, leases),
				GPUMEM_OK);
	}

	/* It knows the token, and may open it. It can neither add to it nor end it. */
	memcpy(forged, token, sizeof(forged));
	for (uint32_t first = 1; first < 4; first++)
		GM_REQUIRE_EQ(
			gm_raw_share_chunks(&raw, &own_lease, &own_chunk, 1, first, forged, NULL),
			GPUMEM_E_NOT_FOUND);
	GM_REQUIRE_EQ(gm_raw_unshare_chunks(&raw, token, UINT32_MAX), GPUMEM_OK);
	for (uint32_t i = 0; i < 2; i++) {
		GM_REQUIRE_EQ(gm_raw_open_index(&raw, token, i, &lease), GPUMEM_OK);
		GM_REQUIRE_EQ(lease.id, leases[i]);
		/* The client may not share a lease that it has only opened. */
		uint64_t opened = lease.id;
		GM_REQUIRE_EQ(gm_raw_share_chunks(&raw, &opened, &chunks[i], 1, 0, forged, NULL),
			GPUMEM_E_NOT_FOUND);
		GM_REQUIRE_EQ(gm_raw_give_back(&raw, &lease), GPUMEM_OK);
	}
	GM_REQUIRE_EQ(gm_raw_open_index(&raw, token, UINT32_MAX, &lease), GPUMEM_E_NOT_FOUND);

	GM_REQUIRE_EQ(gm_raw_goodbye(&raw), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_raw_goodbye(&owner), GPUMEM_OK);
	gm_raw_close(&raw);
	gm_raw_close(&owner);
	gm_witness_stop(&witness);
}
END_TEST

/* ---- returns by index */

/* Another user, where there is one, who knows the ids of a chunk and guesses its index. */
static void guess(int channel, void *argument)
{
	enum { TIMES = 10000 };
	uint64_t chunks[2], own_lease, own_chunk;
	struct gm_raw raw;

	if (gm_tap_has_users())
		gm_become_stranger();
	gm_raw_join(&raw, argument);
	lease_of(&raw, 1, &own_lease, &own_chunk);
	gm_hear(channel, chunks, sizeof(chunks));
	for (uint64_t i = 0; i < TIMES; i++)
		GM_REQUIRE_EQ(gm_raw_return_at(&raw, own_lease, chunks[i % 2], i / 2 % 16),
			GPUMEM_E_NOT_FOUND);
	GM_REQUIRE_EQ(gm_raw_return_at(&raw, own_lease, own_chunk, UINT64_MAX), GPUMEM_E_NOT_FOUND);
	GM_REQUIRE_EQ(gm_raw_return_at(&raw, own_lease, own_chunk, 0), GPUMEM_OK);
	gm_raw_close(&raw);
}

START_TEST(nobody_returns_what_another_has_by_its_index)
{
	struct gm_witness witness;
	struct gm_worker worker;
	struct gm_raw owner;
	struct gm_raw_lease opened;
	uint64_t leases[2], chunks[2], now[2];
	uint8_t token[GM_TOKEN_BYTES];

	gm_witness_start(&witness, NULL);
	gm_worker_start(&worker, guess, &witness.daemon);
	gm_raw_join(&owner, &witness.daemon);
	lease_of(&owner, 2, &leases[0], chunks);
	leases[1] = leases[0];
	/* One of them is a lease of its own, and the other one is not. */
	GM_REQUIRE_EQ(gm_raw_share_chunks(&owner, leases, chunks, 1, 0, token, now), GPUMEM_OK);
	gm_text_say(worker.channel, chunks, sizeof(chunks));
	gm_worker_join(&worker);
	GM_REQUIRE_EQ(gm_raw_open_index(&owner, token, 0, &opened), GPUMEM_OK);
	GM_REQUIRE_EQ(opened.id, now[0]);
	gm_raw_lease_clear(&opened);
	GM_REQUIRE_EQ(gm_raw_return_at(&owner, leases[0], chunks[1], 1), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_raw_goodbye(&owner), GPUMEM_OK);
	gm_raw_close(&owner);
	gm_witness_stop(&witness);
}
END_TEST

/* The client hears neither that its chunks were shared nor that they came back, because the daemon dies each time. */
START_TEST(a_return_by_index_counts_once_over_restarts)
{
	enum { N = 4 };
	struct gm_daemon daemon;
	struct gm_raw raw;
	uint64_t leases[N], chunks[N];
	uint8_t token[GM_TOKEN_BYTES];

	gm_daemon_start(&daemon, NULL);
	gm_raw_join(&raw, &daemon);
	lease_of(&raw, N, &leases[0], chunks);
	for (size_t i = 1; i < N; i++)
		leases[i] = leases[0];
	GM_REQUIRE_EQ(gm_raw_share_chunks(&raw, leases, chunks, N, 0, token, NULL), GPUMEM_OK);
	for (uint64_t i = 0; i < N; i++) {
		for (int times = 0; times < 2; times++) {
			gm_daemon_kill(&daemon);
			GM_REQUIRE_EQ(gm_daemon_spawn(&daemon), -1);
			gm_raw_come_back(&raw, &daemon);
			GM_REQUIRE_EQ(gm_raw_return_at(&raw, leases[0], chunks[i], i),
				times ? GPUMEM_E_NOT_FOUND : GPUMEM_OK);
		}
		GM_REQUIRE_EQ(gm_figures_now(&daemon).leased, (N - 1 - i) * GM_CHUNK_MIN);
	}
	GM_REQUIRE_EQ(gm_raw_return(&raw, leases[0], NULL, 0), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_figures_now(&daemon).leases, 0);
	gm_raw_close(&raw);
	gm_daemon_stop(&daemon);
}
END_TEST

/* ---- a flood */

/* Sends a request for these chunks, and does not wait. */
static void send_share(struct gm_raw *raw, uint64_t lease, const uint64_t *chunks, size_t n)
{
	uint64_t leases[256];
	Gm__Wire__ShareChunks share = GM__WIRE__SHARE_CHUNKS__INIT;

	for (size_t i = 0; i < n; i++)
		leases[i] = lease;
	share.leases = leases;
	share.chunks = (uint64_t *)(uintptr_t)chunks;
	share.n_leases = share.n_chunks = n;
	gm_raw_send(raw, GM_RAW_PACKET(SHARE_CHUNKS, share_chunks, &share));
}

static void flood(int channel, void *argument)
{
	enum { CHUNKS = 8, TIMES = 10000 };
	uint64_t chunks[CHUNKS], lease;
	struct gm_raw raw;

	gm_raw_join(&raw, argument);
	lease_of(&raw, CHUNKS, &lease, chunks);
	for (int i = 0; i < TIMES; i++)
		send_share(&raw, lease, chunks, CHUNKS);
	gm_text_say_word(channel, 'f');
	gm_hear_word(channel, 'e');
}

START_TEST(a_client_that_shares_and_never_reads_is_dropped)
{
	struct gm_witness witness;
	struct gm_worker worker;

	gm_witness_start(&witness, NULL);
	gm_worker_start(&worker, flood, &witness.daemon);
	gm_hear_word(worker.channel, 'f');
	gm_witness_served(&witness);
	/* What is not answered because it does not read counts as much as answers that it does not
	 * read. */
	GM_UNTIL(gm_daemon_said(&witness.daemon, "dropped: it does not read its answers") +
			 gm_daemon_said(&witness.daemon,
				 "dropped: too many requests of this client are unanswered") ==
		 1);
	gm_text_say_word(worker.channel, 'e');
	gm_worker_join(&worker);
	GM_UNTIL(gm_figures_now(&witness.daemon).quarantined == 0);
	gm_witness_stop(&witness);
}
END_TEST

/* ---- deaths */

enum { HALF = 16 };

/* Shares all that it has, and waits to be killed. */
static void share_all(int channel, void *argument)
{
	uint64_t leases[HALF], chunks[HALF];
	uint8_t token[GM_TOKEN_BYTES];
	struct gm_raw raw;

	gm_raw_join(&raw, argument);
	lease_of(&raw, HALF, &leases[0], chunks);
	for (size_t i = 1; i < HALF; i++)
		leases[i] = leases[0];
	GM_REQUIRE_EQ(gm_raw_share_chunks(&raw, leases, chunks, HALF, 0, token, NULL), GPUMEM_OK);
	gm_text_say(channel, token, sizeof(token));
	gm_hear_word(channel, 'e');
}

/* A user may have 64 MiB. Processes that share 32 MiB with a friend and die leave it charged, also over a
 * restart of the daemon, so the user never has more. */
START_TEST(a_user_does_not_escape_a_limit_by_sharing_and_dying)
{
	struct gm_daemon daemon;
	struct gm_raw friend;
	struct gm_worker worker;
	struct gm_raw_lease opened[HALF], lease;
	uint8_t token[GM_TOKEN_BYTES];
	char config[512];

	snprintf(config, sizeof(config), "%s[limit uid:%u]\nmax = 64M\n", GM_DAEMON_CONFIG,
		(unsigned)geteuid());
	gm_daemon_start(&daemon, &(struct gm_daemon_options){.config = config});
	gm_raw_join(&friend, &daemon);
	gm_worker_start(&worker, share_all, &daemon);
	gm_hear(worker.channel, token, sizeof(token));
	for (uint32_t i = 0; i < HALF; i++)
		GM_REQUIRE_EQ(gm_raw_open_index(&friend, token, i, &opened[i]), GPUMEM_OK);
	gm_worker_kill(&worker);
	GM_UNTIL(gm_left_by(&daemon, geteuid()) == HALF * GM_CHUNK_MIN);

	for (int restarted = 0; restarted < 2; restarted++) {
		struct gm_raw next;
		gm_raw_join(&next, &daemon);
		GM_REQUIRE_EQ(gm_raw_lease(&next, 0, 34 * MIB, &lease), GPUMEM_E_LIMIT);
		GM_REQUIRE_EQ(gm_raw_lease(&next, 0, 32 * MIB, &lease), GPUMEM_OK);
		GM_REQUIRE_EQ(gm_raw_give_back(&next, &lease), GPUMEM_OK);
		GM_REQUIRE_EQ(gm_raw_goodbye(&next), GPUMEM_OK);
		gm_raw_close(&next);
		if (!restarted) {
			gm_daemon_kill(&daemon);
			GM_REQUIRE_EQ(gm_daemon_spawn(&daemon), -1);
			GM_REQUIRE_EQ(gm_left_by(&daemon, geteuid()), HALF * GM_CHUNK_MIN);
		}
	}
	for (uint32_t i = 0; i < HALF; i++)
		gm_raw_lease_clear(&opened[i]);
	gm_raw_close(&friend);
	GM_UNTIL(gm_left_by(&daemon, geteuid()) == 0);
	gm_daemon_stop(&daemon);
}
END_TEST

/* ---- a storm */

enum { STORMERS = 6, OPS = 500, PLACES = 12, OWN = 16, HELD = 128, MOST_CHUNKS = 6, KILLS = 3 };

/* The board, where all of them post their ids and tokens for the others, also for the other user, who has every second
 * place. They write without a lock, so that some of what they read is nonsense. */
struct place {
	uint64_t lease, chunk, index;
};
struct board {
	_Atomic unsigned done, shared, opened, returned;
	struct place places[PLACES];
	uint8_t tokens[PLACES][GM_TOKEN_BYTES];
};
static struct board *board;
static struct gm_daemon *storm_daemon;
static bool storm_users; /* there are two */

struct stormer {
	struct gm_raw raw;
	unsigned seed, user;
	struct place own[OWN];         /* what it posted itself */
	uint8_t token[GM_TOKEN_BYTES]; /* the last one that it got */
	uint64_t held[HELD], n_held;   /* leases that it got last */
};

static unsigned roll(struct stormer *s, unsigned n)
{
	return (unsigned)rand_r(&s->seed) % n;
}

static void storm_post(struct stormer *s, uint64_t lease, uint64_t chunk, uint64_t index)
{
	struct place *own = &s->own[roll(s, OWN)];

	s->held[s->n_held++ % HELD] = lease;
	own->lease = lease;
	own->chunk = chunk;
	own->index = index;
	board->places[roll(s, PLACES / 2) * 2 + s->user] = *own;
}

/* Picks a place of its own in two of three cases, which it may have given back since, and else one of the board. */
static struct place storm_pick(struct stormer *s)
{
	return roll(s, 3) ? s->own[roll(s, OWN)] : board->places[roll(s, PLACES)];
}

static gpumem_status storm_return_all(struct stormer *s)
{
	gpumem_status status = GPUMEM_OK;

	for (unsigned i = 0; i < HELD && status != GPUMEM_E_DISCONNECTED; i++)
		status = gm_raw_return(&s->raw, s->held[i], NULL, 0);
	return status;
}

/* Leases, and forgets the descriptors at once. If there is no memory left, it returns
 * what it knows of. */
static gpumem_status storm_lease(struct stormer *s)
{
	struct gm_raw_lease lease;
	uint64_t bytes = (1 + roll(s, 20)) * 2 * MIB - roll(s, 2);
	gpumem_status status = gm_raw_lease(&s->raw, 0, bytes, &lease);
	if (status == GPUMEM_E_NO_MEMORY)
		return storm_return_all(s);

	for (size_t i = 0; status == GPUMEM_OK && i < lease.n; i++)
		storm_post(s, lease.id, lease.chunks[i].id, lease.chunks[i].index);
	gm_raw_lease_clear(&lease);
	return status;
}

static gpumem_status storm_share(struct stormer *s)
{
	uint64_t leases[MOST_CHUNKS], chunks[MOST_CHUNKS], now[MOST_CHUNKS], at[MOST_CHUNKS];
	uint8_t token[GM_TOKEN_BYTES];
	size_t n = 1 + roll(s, roll(s, 3) ? 1 : MOST_CHUNKS);
	uint32_t first = roll(s, 4) ? 0 : roll(s, roll(s, 2) ? 4 : 5000);

	for (size_t i = 0; i < n; i++) {
		struct place place = storm_pick(s);
		leases[i] = place.lease;
		chunks[i] = roll(s, 8) ? place.chunk : 0;
		at[i] = place.index;
	}
	memcpy(token, s->token, sizeof(token));
	gpumem_status status = gm_raw_share_chunks(&s->raw, leases, chunks, n, first, token, now);
	board->shared += status == GPUMEM_OK;
	if (status == GPUMEM_OK) {
		memcpy(s->token, token, sizeof(token));
		memcpy(board->tokens[roll(s, PLACES / 2) * 2 + s->user], token, sizeof(token));
	}
	/* It remembers what it heard, or acts as if it had not. */
	for (size_t i = 0; status == GPUMEM_OK && i < n; i++)
		storm_post(s, roll(s, 2) ? now[i] : leases[i], chunks[i], at[i]);
	return status;
}

static gpumem_status storm_open(struct stormer *s)
{
	unsigned at = roll(s, PLACES);
	struct gm_raw_lease lease;
	uint8_t token[GM_TOKEN_BYTES];

	memcpy(token, board->tokens[at], sizeof(token));
	gpumem_status status =
		gm_raw_open_index(&s->raw, token, roll(s, 2) ? 0 : roll(s, 8), &lease);
	if (storm_users && at % 2 != s->user)
		GM_REQUIRE(status == GPUMEM_E_NOT_FOUND || status == GPUMEM_E_DISCONNECTED);
	board->opened += status == GPUMEM_OK;
	if (status == GPUMEM_OK && lease.n)
		storm_post(s, lease.id, lease.chunks[0].id, lease.chunks[0].index);
	gm_raw_lease_clear(&lease);
	return status;
}

static gpumem_status storm_return(struct stormer *s)
{
	struct place place = storm_pick(s);

	if (roll(s, 2))
		return gm_raw_return(&s->raw, place.lease, &place.chunk, roll(s, 2));
	gpumem_status status =
		gm_raw_return_at(&s->raw, place.lease, place.chunk, place.index + !roll(s, 4));
	board->returned += status == GPUMEM_OK;
	return status;
}

static gpumem_status storm_op(struct stormer *s)
{
	uint8_t token[GM_TOKEN_BYTES];
	struct gm_raw_lease lease = {.id = storm_pick(s).lease};

	switch (roll(s, 12)) {
	case 0:
	case 1:
		return storm_lease(s);
	case 2:
	case 3:
	case 4:
		return storm_share(s);
	case 5:
	case 6:
	case 7:
		return storm_open(s);
	case 8: {
		gpumem_status status = gm_raw_grow(&s->raw, &lease, GM_CHUNK_MIN);
		gm_raw_lease_clear(&lease);
		return status;
	}
	case 9:
		memcpy(token, board->tokens[roll(s, PLACES)], sizeof(token));
		return gm_raw_unshare_chunks(&s->raw, token, roll(s, 10));
	case 10:
		return gm_raw_share(&s->raw, lease.id, GM__WIRE__AUDIENCE__AUDIENCE_DOMAIN, 0,
			roll(s, 2), token);
	default:
		return storm_return(s);
	}
}

/* Tells the test that the daemon is gone, and resumes the session when there is one again. */
static void storm_resume(struct stormer *s, int channel)
{
	gm_text_say_word(channel, 'd');
	gm_hear_word(channel, 'g');
	gm_raw_come_back(&s->raw, storm_daemon);
	gm_text_say_word(channel, 'r');
}

static void storm(int channel, void *argument)
{
	unsigned number = *(unsigned *)argument;
	struct stormer s = {.seed = number + 1, .user = number % 2};

	if (s.user && storm_users)
		gm_become_stranger();
	gm_raw_join(&s.raw, storm_daemon);
	for (unsigned i = 0; i < OPS; i++) {
		if (storm_op(&s) == GPUMEM_E_DISCONNECTED)
			storm_resume(&s, channel);
		board->done++;
	}
	/* Some say goodbye, and some just end. */
	if (number < STORMERS / 2)
		(void)gm_raw_goodbye(&s.raw);
	gm_text_say_word(channel, 'f');
	gm_hear_word(channel, 'e');
}

/* Lets the workers go on with the new daemon, until each has told the test that the old one is gone or
 * that it has finished. */
static void storm_reunite(struct gm_worker *workers, bool *finished)
{
	for (unsigned i = 0; i < STORMERS; i++) {
		char word = 'f';
		if (!finished[i])
			gm_hear(workers[i].channel, &word, 1);
		finished[i] = word == 'f';
		if (!finished[i])
			gm_text_say_word(workers[i].channel, 'g');
	}
	/* The next daemon may die only when all have come back. */
	for (unsigned i = 0; i < STORMERS; i++)
		if (!finished[i])
			gm_hear_word(workers[i].channel, 'r');
}

START_TEST(nothing_is_left_of_a_storm_with_restarts)
{
	struct gm_daemon daemon;
	struct gm_worker workers[STORMERS];
	unsigned numbers[STORMERS];
	bool finished[STORMERS] = {false};

	board = mmap(
		NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	GM_REQUIRE(board != MAP_FAILED);
	storm_users = gm_tap_has_users();
	gm_daemon_start(&daemon, NULL);
	storm_daemon = &daemon;
	for (unsigned i = 0; i < STORMERS; i++) {
		numbers[i] = i;
		gm_worker_start(&workers[i], storm, &numbers[i]);
	}
	for (unsigned kills = 0; kills < KILLS; kills++) {
		GM_UNTIL(board->done >= (kills + 1) * STORMERS * OPS / (KILLS + 2));
		gm_daemon_kill(&daemon);
		GM_REQUIRE_EQ(gm_daemon_spawn(&daemon), -1);
		storm_reunite(workers, finished);
	}
	for (unsigned i = 0; i < STORMERS; i++) {
		if (!finished[i])
			gm_hear_word(workers[i].channel, 'f');
		gm_text_say_word(workers[i].channel, 'e');
		gm_worker_join(&workers[i]);
	}

	GM_REQUIRE(board->shared > 20 && board->opened > 10 && board->returned > 5);
	GM_UNTIL(gm_figures_now(&daemon).clients == 0);
	struct gm_figures f;
	GM_UNTIL((f = gm_figures_now(&daemon),
		f.leased == 0 && f.quarantined == 0 && f.orphaned == 0 && f.leases == 0));
	GM_REQUIRE_EQ(gm_daemon_said(&daemon, "damaged"), 0);
	munmap(board, sizeof(*board));
	gm_daemon_stop(&daemon);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("share chunks");
	TCase *tc = tcase_create("share chunks");
	tcase_set_timeout(tc, 300);
	tcase_add_test(tc, nobody_shares_or_ends_what_another_has);
	tcase_add_test(tc, nobody_returns_what_another_has_by_its_index);
	tcase_add_test(tc, a_return_by_index_counts_once_over_restarts);
	tcase_add_test(tc, a_client_that_shares_and_never_reads_is_dropped);
	tcase_add_test(tc, a_user_does_not_escape_a_limit_by_sharing_and_dying);
	tcase_add_test(tc, nothing_is_left_of_a_storm_with_restarts);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
