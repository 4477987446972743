/* SPDX-License-Identifier: Apache-2.0 */
/* The ledger that outlives the daemon: what a process leaves that dies at any instruction, and what is
 * read of a ledger that is damaged, cut, newer, or has no room. */
#include "daemon/store/store_records.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "common/cleanup.h"
#include "common/system/memfd.h"
#include "tests/sanitized.h"
#include "tests/tap.h"

#define EXTENT 65536

static struct gm_store_records *make(void)
{
	char why[GM_STORE_RECORDS_WHY] = "";
	struct gm_store_records *records = NULL;
	ck_assert_msg(gm_store_records_new(0, &records, why) == 0, "%s", why);
	return records;
}

/* A copy of the file, as it is now. The first `bytes` of it; 0: all. */
static int snapshot(const struct gm_store_records *records, uint64_t bytes)
{
	static char buffer[8 * EXTENT];
	struct gm_store_records_state state;
	int fd = -1;
	gm_store_records_get_state(records, &state);
	bytes = bytes ? bytes : state.bytes;
	ck_assert(bytes <= sizeof(buffer));
	ck_assert(pread(gm_store_records_fd(records), buffer, bytes, 0) == (ssize_t)bytes);
	ck_assert_int_eq(gm_memfd_create("test", bytes, &fd), 0);
	ck_assert(pwrite(fd, buffer, bytes, 0) == (ssize_t)bytes);
	return fd;
}

static struct gm_store_records *reopen(int fd)
{
	char why[GM_STORE_RECORDS_WHY] = "";
	struct gm_store_records *records = NULL;
	ck_assert_msg(gm_store_records_open(fd, &records, why) == 0, "%s", why);
	return records;
}

static uint64_t damaged(const struct gm_store_records *records)
{
	struct gm_store_records_state state;
	gm_store_records_get_state(records, &state);
	return state.damaged;
}

/* What was found of each id below 512: 0 nothing, else the first word of its content. */
struct seen {
	uint64_t word[512];
	uint32_t place[512];
	uint32_t kind[512];
	size_t size[512];
	unsigned int n;
};

/* Every word of a record's content is the same, so that a mixture would show. */
static void see(
	void *ctx, uint32_t kind, uint64_t id, uint32_t place, const void *bytes, size_t size)
{
	struct seen *seen = ctx;
	const uint64_t *words = bytes;
	ck_assert(id < 512);
	ck_assert_uint_eq(seen->word[id], 0);
	for (size_t i = 0; i < size / 8; i++)
		ck_assert(words[i] == words[0]);
	seen->word[id] = words[0];
	seen->place[id] = place;
	seen->kind[id] = kind;
	seen->size[id] = size;
	seen->n++;
}

static struct seen look(const struct gm_store_records *records, uint32_t kind)
{
	struct seen seen = {.n = 0};
	gm_store_records_each(records, kind, see, &seen);
	return seen;
}

static int put(
	struct gm_store_records *records, uint64_t id, uint32_t *place, uint64_t word, size_t size)
{
	uint64_t words[GM_STORE_RECORDS_BYTES / 8 + 1];
	for (size_t i = 0; i < sizeof(words) / 8; i++)
		words[i] = word;
	return gm_store_records_write(records, 7, id, place, words, size);
}

START_TEST(what_is_written_is_read_by_the_next_daemon)
{
	static const size_t sizes[] = {
		8, 90, 96, 97, 224, 225, 480, 992, 993, GM_STORE_RECORDS_BYTES};
	struct gm_store_records *records = make();
	uint32_t place[10] = {0};

	for (unsigned int i = 0; i < 10; i++) {
		ck_assert_int_eq(put(records, i, &place[i], 100 + i, sizes[i]), 0);
		ck_assert(place[i]);
	}
	ck_assert_int_eq(put(records, 3, &place[3], 200, 200), 0);
	gm_store_records_erase(records, &place[4]);
	ck_assert_uint_eq(place[4], 0);
	gm_store_records_erase(records, &place[4]);

	struct gm_store_records *next = reopen(snapshot(records, 0));
	struct seen seen = look(next, 0);
	ck_assert_uint_eq(seen.n, 9);
	ck_assert_uint_eq(look(next, 7).n, 9);
	ck_assert_uint_eq(look(next, 8).n, 0);
	ck_assert_uint_eq(damaged(next), 0);
	for (unsigned int i = 0; i < 10; i++) {
		ck_assert_uint_eq(seen.word[i], i == 3 ? 200 : i == 4 ? 0 : 100 + i);
		ck_assert_uint_eq(seen.size[i], i == 3 ? 200 : i == 4 ? 0 : sizes[i]);
		ck_assert_uint_eq(seen.place[i], place[i]);
	}

	/* And can be changed by its place. */
	ck_assert_int_eq(put(next, 3, &seen.place[3], 300, 8), 0);
	gm_store_records_erase(next, &seen.place[9]);
	seen = look(next, 0);
	ck_assert_uint_eq(seen.n, 8);
	ck_assert_uint_eq(seen.word[3], 300);
	gm_store_records_free(next);
	gm_store_records_free(records);
}
END_TEST

START_TEST(a_record_too_long_for_its_slot_is_refused_and_stays)
{
	struct gm_store_records *records = make();
	uint32_t place = 0, none = 0;

	ck_assert_int_eq(put(records, 1, &place, 5, 96), 0);
	ck_assert_int_eq(put(records, 1, &place, 6, 97), -EMSGSIZE);
	ck_assert_int_eq(put(records, 2, &none, 6, GM_STORE_RECORDS_BYTES + 1), -EMSGSIZE);
	ck_assert_int_eq(put(records, 2, &none, 6, 0), -EMSGSIZE);
	ck_assert_uint_eq(none, 0);
	ck_assert_uint_eq(look(records, 0).word[1], 5);
	gm_store_records_free(records);
}
END_TEST

START_TEST(places_are_used_again_and_the_file_grows_by_need)
{
	struct gm_store_records *records = make();
	uint32_t place[300] = {0};
	struct gm_store_records_state before, after;

	for (unsigned int round = 0; round < 20; round++) {
		for (unsigned int i = 0; i < 300; i++)
			ck_assert_int_eq(put(records, i, &place[i], i + 1, 64), 0);
		if (round == 0)
			gm_store_records_get_state(records, &before);
		ck_assert_uint_eq(look(records, 0).n, 300);
		for (unsigned int i = 0; i < 300; i++)
			gm_store_records_erase(records, &place[i]);
	}
	gm_store_records_get_state(records, &after);
	ck_assert_uint_eq(before.records, 300);
	ck_assert_uint_eq(after.records, 0);
	ck_assert_uint_eq(before.bytes, after.bytes);
	ck_assert_uint_eq(look(records, 0).n, 0);
	gm_store_records_free(records);
}
END_TEST

/* ---- dying */

/* What a daemon does that is killed at some instruction: a record is replaced, one is erased, and one
 * is new. */
static void steps(struct gm_store_records *records, uint32_t place[3])
{
	put(records, 0, &place[0], 20, 64);
	gm_store_records_erase(records, &place[1]);
	put(records, 2, &place[2], 22, 64);
}

START_TEST(a_death_at_any_instruction_leaves_whole_records)
{
	struct gm_store_records *records = make();
	uint32_t place[3] = {0};
	unsigned int seen_states = 0, n = 0;
	int status;

	ck_assert_int_eq(put(records, 0, &place[0], 10, 64), 0);
	ck_assert_int_eq(put(records, 1, &place[1], 11, 64), 0);
	fflush(NULL);
	pid_t child = fork();
	if (child == 0) {
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
			_exit(1);
		raise(SIGSTOP);
		steps(records, place);
		_exit(0);
	}

	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_msg(WIFSTOPPED(status), "this process may not trace its child");
	while (WIFSTOPPED(status)) {
		struct gm_store_records *next = reopen(snapshot(records, 0));
		struct seen seen = look(next, 0);
		ck_assert_uint_eq(damaged(next), 0);
		ck_assert(seen.word[0] == 10 || seen.word[0] == 20);
		ck_assert(seen.word[1] == 11 || seen.word[1] == 0);
		ck_assert(seen.word[2] == 0 || seen.word[2] == 22);
		/* In this order. */
		if (!seen.word[1])
			ck_assert_uint_eq(seen.word[0], 20);
		if (seen.word[2])
			ck_assert_uint_eq(seen.word[1], 0);
		seen_states |= 1U << ((seen.word[0] == 20) + !seen.word[1] + !!seen.word[2]);
		gm_store_records_free(next);
		ck_assert(ptrace(PTRACE_SINGLESTEP, child, NULL, NULL) == 0);
		ck_assert_int_eq(waitpid(child, &status, 0), child);
		n++;
	}
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	ck_assert_msg(seen_states == 15 && n > 100, "states %x after %u steps", seen_states, n);
	gm_store_records_free(records);
}
END_TEST

/* ---- damage */

START_TEST(a_damaged_record_is_counted_and_gone_and_the_others_stay)
{
	struct gm_store_records *records = make();
	uint32_t place[50] = {0}, found = 0;

	for (unsigned int i = 0; i < 50; i++)
		ck_assert_int_eq(put(records, i, &place[i], 1000 + i, 96), 0);
	int fd = snapshot(records, 0);
	/* A bit of the content of record 17. */
	for (uint64_t at = EXTENT; at < 2 * EXTENT; at += 8) {
		uint64_t word = 0;
		ck_assert(pread(fd, &word, 8, (off_t)at) == 8);
		if (word != 1017)
			continue;
		word ^= UINT64_C(1) << 40;
		ck_assert(pwrite(fd, &word, 8, (off_t)at) == 8);
		found++;
		break;
	}
	ck_assert_uint_eq(found, 1);

	struct gm_store_records *next = reopen(fd);
	struct seen seen = look(next, 0);
	ck_assert_uint_eq(damaged(next), 1);
	ck_assert_uint_eq(seen.n, 49);
	ck_assert_uint_eq(seen.word[17], 0);
	gm_store_records_free(next);
	gm_store_records_free(records);
}
END_TEST

START_TEST(damage_never_revives_what_was_replaced_or_erased)
{
	struct gm_store_records *records = make();
	uint32_t place[2] = {0};

	ck_assert_int_eq(put(records, 0, &place[0], 10, 8), 0);
	ck_assert_int_eq(put(records, 0, &place[0], 20, 8), 0);
	ck_assert_int_eq(put(records, 1, &place[1], 30, 8), 0);
	gm_store_records_erase(records, &place[1]);

	/* Each bit of the first slots in turn. */
	int whole = snapshot(records, 0);
	for (unsigned int bit = 0; bit < 8 * 1024; bit += gm_sanitized() ? 5 : 1) {
		uint8_t byte = 0;
		int fd = snapshot(records, 0);
		ck_assert(pread(fd, &byte, 1, EXTENT + 64 + bit / 8) == 1);
		byte ^= (uint8_t)(1U << bit % 8);
		ck_assert(pwrite(fd, &byte, 1, EXTENT + 64 + bit / 8) == 1);
		struct gm_store_records *next = reopen(fd);
		struct seen seen = look(next, 0);
		ck_assert_msg(seen.word[0] == 20 || seen.word[0] == 0, "bit %u", bit);
		ck_assert_msg(seen.word[1] == 0, "bit %u", bit);
		if (!seen.word[0])
			ck_assert_msg(damaged(next) > 0, "bit %u", bit);
		gm_store_records_free(next);
	}
	close(whole);
	gm_store_records_free(records);
}
END_TEST

START_TEST(of_a_cut_ledger_the_rest_is_read_and_the_loss_is_counted)
{
	struct gm_store_records *records = make();
	uint32_t place[500] = {0};

	for (unsigned int i = 0; i < 500; i++)
		ck_assert_int_eq(put(records, i, &place[i], 1 + i, 64), 0);

	/* At the end of an extent, in the middle of one, and after the header. */
	struct gm_store_records *next = reopen(snapshot(records, 2 * EXTENT));
	ck_assert_uint_eq(look(next, 0).n, 255);
	ck_assert_uint_eq(damaged(next), 1);
	gm_store_records_free(next);

	next = reopen(snapshot(records, 2 * EXTENT + 5000));
	ck_assert(look(next, 0).n > 255 && look(next, 0).n < 500);
	ck_assert_uint_ge(damaged(next), 1);
	uint32_t more = 0;
	ck_assert_int_eq(put(next, 511, &more, 1, 64), 0);
	gm_store_records_free(next);

	next = reopen(snapshot(records, 4096));
	ck_assert_uint_eq(look(next, 0).n, 0);
	ck_assert_uint_ge(damaged(next), 1);
	gm_store_records_free(next);
	gm_store_records_free(records);
}
END_TEST

/* Its header has a number, and no checksum yet. The file's header counts it when it is finished. */
START_TEST(an_extent_whose_writer_died_before_it_was_finished_is_not_damaged)
{
	struct gm_store_records *records = make();
	uint32_t place[300] = {0}, number = 2;

	ck_assert_int_eq(put(records, 0, &place[0], 1, 64), 0);
	int fd = snapshot(records, 0);
	ck_assert_int_eq(ftruncate(fd, 3 * EXTENT), 0);
	ck_assert(pwrite(fd, &number, sizeof(number), 2 * EXTENT + 4) == sizeof(number));
	struct gm_store_records *next = reopen(fd);
	ck_assert_uint_eq(damaged(next), 0);
	for (unsigned int i = 1; i < 300; i++)
		ck_assert_int_eq(put(next, i, &place[i], 1 + i, 64), 0);
	ck_assert_uint_eq(look(next, 0).n, 300);

	/* The same number in an extent that was in use. */
	fd = snapshot(next, 0);
	ck_assert(pwrite(fd, &place, 64, 2 * EXTENT) == 64);
	gm_store_records_free(next);
	next = reopen(fd);
	ck_assert_uint_ge(damaged(next), 1);
	gm_store_records_free(next);
	gm_store_records_free(records);
}
END_TEST

START_TEST(what_is_no_ledger_or_a_newer_one_is_refused_and_stays_the_callers)
{
	struct gm_store_records *records = make(), *next = NULL;
	char why[GM_STORE_RECORDS_WHY];
	uint32_t place = 0, newer = 2;
	uint64_t nonsense = 3;
	ck_assert_int_eq(put(records, 1, &place, 5, 64), 0);

	int fd = snapshot(records, 0);
	ck_assert(pwrite(fd, &nonsense, 8, 0) == 8);
	ck_assert_int_eq(gm_store_records_open(fd, &next, why), -EBADMSG);
	ck_assert_int_eq(close(fd), 0);

	fd = snapshot(records, 16);
	ck_assert_int_eq(gm_store_records_open(fd, &next, why), -EBADMSG);
	ck_assert_int_eq(close(fd), 0);

	/* The format is behind the magic word. Any checksum is right for a format we do not know. */
	fd = snapshot(records, 0);
	ck_assert(pwrite(fd, &newer, 4, 8) == 4);
	ck_assert_int_eq(gm_store_records_open(fd, &next, why), -EPROTONOSUPPORT);
	ck_assert_msg(strstr(why, "newer gpumemd"), "%s", why);
	ck_assert_int_eq(close(fd), 0);

	int pipes[2];
	ck_assert_int_eq(pipe(pipes), 0);
	ck_assert_int_lt(gm_store_records_open(pipes[0], &next, why), 0);
	ck_assert_int_eq(close(pipes[0]), 0);
	close(pipes[1]);
	gm_store_records_free(records);
}
END_TEST

/* ---- no room */

START_TEST(without_room_nothing_changes_and_what_is_there_can_still_be_changed)
{
	char why[GM_STORE_RECORDS_WHY] = "";
	struct gm_store_records *records = NULL;
	uint32_t place[256] = {0};

	ck_assert_int_eq(gm_store_records_new(100, &records, why), -ENOSPC);
	ck_assert_msg(strstr(why, "no room"), "%s", why);
	ck_assert_int_eq(gm_store_records_new(2 * EXTENT, &records, why), 0);
	for (unsigned int i = 0; i < 255; i++)
		ck_assert_int_eq(put(records, i, &place[i], i + 1, 96), 0);
	ck_assert_int_eq(put(records, 255, &place[255], 256, 96), -ENOSPC);
	ck_assert_uint_eq(place[255], 0);
	ck_assert_int_eq(put(records, 3, &place[3], 500, 96), 0);
	gm_store_records_erase(records, &place[9]);
	ck_assert_int_eq(put(records, 255, &place[255], 256, 96), 0);
	ck_assert_uint_eq(look(records, 0).n, 255);
	gm_store_records_free(records);
}
END_TEST

START_TEST(the_kernels_refusal_is_no_death)
{
	char why[GM_STORE_RECORDS_WHY] = "";
	struct gm_store_records *records = make();
	struct rlimit limit = {EXTENT, RLIM_INFINITY};
	uint32_t place = 0;

	signal(SIGXFSZ, SIG_IGN);
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
	ck_assert_int_eq(put(records, 1, &place, 1, 96), -ENOSPC);
	ck_assert_uint_eq(place, 0);
	limit.rlim_cur = 1000;
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
	struct gm_store_records *second = NULL;
	ck_assert_int_eq(gm_store_records_new(0, &second, why), -ENOSPC);
	ck_assert_msg(strstr(why, "no room"), "%s", why);
	gm_store_records_free(records);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("records");
	TCase *tc = tcase_create("records");
	tcase_set_timeout(tc, 60); /* one case follows a process instruction by instruction */
	tcase_add_test(tc, what_is_written_is_read_by_the_next_daemon);
	tcase_add_test(tc, a_record_too_long_for_its_slot_is_refused_and_stays);
	tcase_add_test(tc, places_are_used_again_and_the_file_grows_by_need);
	tcase_add_test(tc, a_death_at_any_instruction_leaves_whole_records);
	tcase_add_test(tc, a_damaged_record_is_counted_and_gone_and_the_others_stay);
	tcase_add_test(tc, damage_never_revives_what_was_replaced_or_erased);
	tcase_add_test(tc, of_a_cut_ledger_the_rest_is_read_and_the_loss_is_counted);
	tcase_add_test(tc, an_extent_whose_writer_died_before_it_was_finished_is_not_damaged);
	tcase_add_test(tc, what_is_no_ledger_or_a_newer_one_is_refused_and_stays_the_callers);
	tcase_add_test(tc, without_room_nothing_changes_and_what_is_there_can_still_be_changed);
	tcase_add_test(tc, the_kernels_refusal_is_no_death);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
