/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Daemons of other versions, and what can be wrong with the ledger and the keeper: with the real
 * programs. While no daemon runs, the test takes the daemon's place at the keeper's socket. Nothing
 * here moves memory from one client to another, and what the daemon refuses stays as it is.
 */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "common/wire/keeper_wire.h"
#include "common/wire/seqpacket.h"
#include "daemon/books/record.h"
#include "daemon/store/store_records.h"
#include "tests/end_keeper.h"
#include "tests/integration/raw.h"
#include "tests/tap.h"

#define SIZE (UINT64_C(6) << 20)
/* Exit statuses: after the first, the unit does not start the daemon again. */
#define FOR_GOOD 78
#define FOR_NOW  1

static struct gm_daemon daemon_;
static struct gm_raw ann, ben;
static struct gm_raw_lease anns, bens;
static pid_t keeper;

static void in_folder(const char *name, char path[128])
{
	snprintf(path, 128, "%s/run%s%s", daemon_.folder, *name ? "/" : "", name);
}

static pid_t keeper_now(void)
{
	char folder[128];
	in_folder("", folder);
	return gm_keeper_in(folder);
}

/* Two clients with memory, and the daemon is killed. */
static void setup(void)
{
	gm_daemon_start(&daemon_, NULL);
	gm_raw_join(&ann, &daemon_);
	gm_raw_join(&ben, &daemon_);
	GM_REQUIRE_EQ(gm_raw_lease(&ann, 0, SIZE, &anns), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_raw_lease(&ben, 0, SIZE, &bens), GPUMEM_OK);
	for (size_t i = 0; i < anns.n; i++) {
		gm_alloc_raw_chunk_fill(&anns.chunks[i], 'a');
		gm_alloc_raw_chunk_fill(&bens.chunks[i], 'b');
	}
	keeper = keeper_now();
	GM_REQUIRE(keeper > 0);
	gm_daemon_kill(&daemon_);
}

static void teardown(void)
{
	gm_raw_lease_clear(&anns);
	gm_raw_lease_clear(&bens);
	gm_raw_close(&ann);
	gm_raw_close(&ben);
	gm_daemon_stop(&daemon_);
}

/* Whatever became of the books, nobody touched what the clients have mapped. */
static void require_contents(void)
{
	for (size_t i = 0; i < anns.n; i++) {
		GM_REQUIRE(gm_alloc_raw_chunk_is(&anns.chunks[i], 'a'));
		GM_REQUIRE(gm_alloc_raw_chunk_is(&bens.chunks[i], 'b'));
	}
}

/* Whether the session goes on, with its lease. */
static bool comes_back(struct gm_raw *raw, const struct gm_raw_lease *lease, uint8_t content)
{
	struct gm_raw back;
	struct gm_raw_lease again;

	GM_REQUIRE_EQ(gm_raw_resume(&back, &daemon_, raw), GPUMEM_OK);
	bool resumed = back.resumed;
	gm_raw_close(raw);
	*raw = back;
	if (!resumed || gm_raw_handles(raw, lease->id, 0, &again) != GPUMEM_OK)
		return false;
	GM_REQUIRE_EQ(again.n, lease->n);
	for (size_t i = 0; i < again.n; i++)
		GM_REQUIRE(gm_alloc_raw_chunk_is(&again.chunks[i], content));
	gm_raw_lease_clear(&again);
	return true;
}

/* The next daemon does not start, says why, and leaves the keeper as it is. */
static void require_refusal(int expected, const char *words)
{
	size_t said = gm_daemon_said(&daemon_, words);
	int status = gm_daemon_spawn(&daemon_);
	GM_REQUIRE(status != -1 && WIFEXITED(status));
	GM_REQUIRE_EQ(WEXITSTATUS(status), expected);
	if (gm_daemon_said(&daemon_, words) != said + 1)
		GM_FAIL("it did not say '%s': %s", words, gm_daemon_log(&daemon_));
	GM_REQUIRE_EQ(keeper_now(), keeper);
	require_contents();
}

/* The next daemon knows everything. */
static void require_everything(void)
{
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).leases, 2);
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).quarantined, 2 * SIZE);
	GM_REQUIRE(comes_back(&ann, &anns, 'a'));
	GM_REQUIRE(comes_back(&ben, &bens, 'b'));
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).leased, 2 * SIZE);
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).quarantined, 0);
}

/* ---- the daemon's place at the keeper's socket */

/* Connects as a daemon does. Returns the socket, and the ledger that the keeper has. */
static int take_place(int *ret_ledger)
{
	struct gm_keeper_message message = {.verb = GM_KEEPER_HELLO, .value = GM_KEEPER_VERSION};
	struct gm_conn_packet in = {0};
	char path[128];
	int fd, r;

	in_folder("keeper", path);
	GM_REQUIRE_EQ(gm_seqpacket_connect(path, GM_PATIENCE_MS, &fd), 0);
	GM_REQUIRE_EQ(gm_seqpacket_send(fd, &message, sizeof(message), NULL, 0), 0);
	*ret_ledger = -1;
	do {
		while ((r = gm_seqpacket_receive(fd, &message, sizeof(message), &in)) == -EAGAIN)
			poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, GM_PATIENCE_MS);
		GM_REQUIRE_EQ(r, 0);
		if (message.verb == GM_KEEPER_ITEM && message.kind == GM_STORE_RECORDS_FILE)
			*ret_ledger = fcntl(in.fds.fds[0], F_DUPFD_CLOEXEC, 0);
		gm_fdlist_deinit(&in.fds);
	} while (message.verb != GM_KEEPER_DONE);
	GM_REQUIRE(*ret_ledger >= 0);
	return fd;
}

static int get_ledger(void)
{
	int ledger;
	close(take_place(&ledger));
	return ledger;
}

/* Has the keeper hold this file as the ledger. */
static void put_ledger(int file)
{
	struct gm_keeper_message message = {
		.verb = GM_KEEPER_DEPOSIT, .kind = GM_STORE_RECORDS_FILE, .id = 1};
	int ledger, fd = take_place(&ledger);
	GM_REQUIRE_EQ(gm_seqpacket_send(fd, &message, sizeof(message), &file, 1), 0);
	close(fd);
	close(ledger);
}

static struct gm_store_records *open_records(void)
{
	struct gm_store_records *records = NULL;
	char why[GM_STORE_RECORDS_WHY];
	int r = gm_store_records_open(get_ledger(), &records, why);
	if (r < 0)
		GM_FAIL("%s", why);
	return records;
}

/* ---- other versions */

START_TEST(a_ledger_of_a_newer_format_is_refused_until_the_newer_daemon_is_back)
{
	uint32_t newer = GM_STORE_RECORDS_FORMAT + 1, same = GM_STORE_RECORDS_FORMAT;
	int ledger = get_ledger();
	GM_REQUIRE(pwrite(ledger, &newer, sizeof(newer), 8) == sizeof(newer));
	require_refusal(FOR_GOOD, "start the newer gpumemd again");
	require_refusal(FOR_GOOD, "start the newer gpumemd again");
	GM_REQUIRE(pwrite(ledger, &same, sizeof(same), 8) == sizeof(same));
	close(ledger);
	require_everything();
}
END_TEST

/* The file is as it was, but a newer daemon wrote a record that this one cannot read: of a kind that it
 * does not know, or with more fields. */
START_TEST(so_is_one_with_a_record_of_a_newer_format)
{
	uint32_t kind = _i ? GM_RECORD_DEVICE : GM_RECORD_KINDS + 7, place = 0;
	struct {
		struct gm_record head;
		uint64_t news[4];
	} record = {.news = {1, 2, 3, 4}};
	gm_record_begin(&record.head, (enum gm_record_kind)kind, 4711, sizeof(record), 0);
	record.head.format = GM_RECORD_FORMAT + 1;
	struct gm_store_records *records = open_records();
	GM_REQUIRE_EQ(
		gm_store_records_write(records, kind, 4711, &place, &record, sizeof(record)), 0);
	gm_store_records_free(records);
	require_refusal(FOR_GOOD, "start the newer gpumemd again");

	/* The newer one erases it. */
	records = open_records();
	gm_store_records_erase(records, &place);
	gm_store_records_free(records);
	require_everything();
}
END_TEST

/* The records of an older daemon: two of a client, of one id. */
struct older {
	struct gm_store_records *records;
	struct gm_record_session sessions[2];
	size_t n;
};

static void make_older(
	void *ctx, uint32_t kind, uint64_t id, uint32_t place, const void *bytes, size_t size)
{
	struct older *older = ctx;
	uint64_t copy[GM_STORE_RECORDS_BYTES / 8];
	struct gm_record *head = (struct gm_record *)copy;
	memcpy(copy, bytes, size);
	head->format = 1;
	if (kind == GM_RECORD_CLIENT) {
		const struct gm_record_client *client = bytes;
		GM_REQUIRE(older->n < 2);
		struct gm_record_session *session = &older->sessions[older->n++];
		*session = (struct gm_record_session){
			.token = client->token, .pid = client->pid, .gid = client->gid};
		gm_record_begin(&session->head, GM_RECORD_SESSION, id,
			offsetof(struct gm_record_session, name), client->head.uid);
		session->head.format = 1;
		head->size = offsetof(struct gm_record_client, payer_uid);
	}
	GM_REQUIRE_EQ(
		gm_store_records_write(older->records, kind, id, &place, copy, head->size), 0);
}

START_TEST(a_ledger_of_an_older_daemon_is_taken_over)
{
	struct older older = {.records = open_records()};
	gm_store_records_each(older.records, 0, make_older, &older);
	GM_REQUIRE_EQ(older.n, 2);
	for (size_t i = 0; i < older.n; i++) {
		const struct gm_record *head = &older.sessions[i].head;
		uint32_t place = 0;
		GM_REQUIRE_EQ(gm_store_records_write(older.records, head->kind, head->id, &place,
				      head, head->size),
			0);
	}
	gm_store_records_free(older.records);
	require_everything();
	GM_REQUIRE_EQ(gm_daemon_said(&daemon_, "damaged"), 0);

	/* The next one finds the new records. */
	gm_daemon_kill(&daemon_);
	require_everything();
	GM_REQUIRE_EQ(gm_daemon_said(&daemon_, "damaged"), 0);
}
END_TEST

/* ---- ledgers that are damaged */

static void find_place(
	void *ctx, uint32_t kind, uint64_t id, uint32_t place, const void *bytes, size_t size)
{
	uint64_t *wanted = ctx;
	if (id == wanted[0])
		wanted[1] = place;
}

/* One byte of the record of ann's lease is another. Ben has everything. */
START_TEST(of_a_damaged_ledger_the_sound_records_are_taken_over)
{
	struct gm_store_records *records = open_records();
	uint64_t wanted[2] = {anns.id, 0};
	gm_store_records_each(records, GM_RECORD_LEASE, find_place, wanted);
	GM_REQUIRE(wanted[1]);
	int ledger = fcntl(gm_store_records_fd(records), F_DUPFD_CLOEXEC, 0);
	gm_store_records_free(records);

	/* It is somewhere in the file, in one copy or two. */
	struct stat st;
	GM_REQUIRE(fstat(ledger, &st) == 0);
	uint8_t *file =
		mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, ledger, 0);
	GM_REQUIRE(file != MAP_FAILED);
	size_t found = 0;
	for (off_t at = 0; at + 16 < st.st_size; at += 8) {
		struct gm_record head;
		memcpy(&head, file + at, sizeof(head));
		if (head.kind != GM_RECORD_LEASE || head.id != anns.id || !head.format)
			continue;
		file[at + 40] ^= 0x10;
		found++;
	}
	munmap(file, (size_t)st.st_size);
	close(ledger);
	GM_REQUIRE(found > 0);

	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	GM_REQUIRE(gm_daemon_said(&daemon_, "records were damaged"));
	GM_REQUIRE(comes_back(&ben, &bens, 'b'));
	GM_REQUIRE(!comes_back(&ann, &anns, 'a'));
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).leases, 1);
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).leased, SIZE);
	require_contents();
}
END_TEST

/* The ledger is cut: behind its header, in the middle, or within the header. */
START_TEST(of_a_truncated_ledger_the_rest_is_taken_over)
{
	static const off_t keep[] = {65536, 65536 + 30000, 10};
	int ledger = get_ledger();
	int cut = memfd_create("cut", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	char bytes[4096];
	GM_REQUIRE(cut >= 0);
	for (off_t at = 0; at < keep[_i];) {
		ssize_t n = pread(ledger, bytes, sizeof(bytes), at);
		GM_REQUIRE(n > 0 && pwrite(cut, bytes, (size_t)n, at) == n);
		at += n;
	}
	GM_REQUIRE(ftruncate(cut, keep[_i]) == 0);
	put_ledger(cut);
	close(cut);
	close(ledger);

	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	GM_REQUIRE(gm_daemon_said(&daemon_, "damaged") + gm_daemon_said(&daemon_, "truncated"));
	/* Who is not known gets another session, and nobody else's memory. */
	comes_back(&ann, &anns, 'a');
	comes_back(&ben, &bens, 'b');
	require_contents();
	struct gm_raw_lease fresh;
	GM_REQUIRE_EQ(gm_raw_lease(&ann, 0, SIZE, &fresh), GPUMEM_OK);
	for (size_t i = 0; i < fresh.n; i++)
		GM_REQUIRE(gm_alloc_raw_chunk_is(&fresh.chunks[i], 0));
	GM_REQUIRE_EQ(gm_raw_give_back(&ann, &fresh), GPUMEM_OK);
}
END_TEST

/* ---- keepers that are no use. These start with a daemon that was never there. */

static void start_over(const struct gm_daemon_options *options)
{
	gm_daemon_prepare(&daemon_, options);
}

/* The daemon ends with a message, and not with a signal. */
static void require_message(const char *words)
{
	int status = gm_daemon_spawn(&daemon_);
	GM_REQUIRE(status != -1);
	if (!WIFEXITED(status) || !gm_daemon_said(&daemon_, words))
		GM_FAIL("status %d: %s", status, gm_daemon_log(&daemon_));
	GM_REQUIRE(WEXITSTATUS(status) != 0);
}

START_TEST(without_room_for_the_ledger_the_daemon_says_so)
{
	static const char *const runner[] = {"prlimit", "--fsize=60000", "--", NULL};
	start_over(&(struct gm_daemon_options){.runner = runner});
	require_message("the store: there is no room for it in memory");
	daemon_.options.runner = NULL;
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	gm_daemon_stop(&daemon_);
}
END_TEST

START_TEST(a_keepers_socket_of_somebody_else_is_refused)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char folder[128], path[128];
	start_over(NULL);
	in_folder("", folder);
	in_folder("keeper", path);
	mkdir(folder, 0755);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	snprintf(address.sun_path, sizeof(address.sun_path), "%.100s", path);
	GM_REQUIRE(bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
	GM_REQUIRE(listen(fd, 4) == 0 && chown(path, GM_STRANGER, GM_STRANGER) == 0);
	require_message("belongs to");
	GM_REQUIRE(access(path, F_OK) == 0);
	unlink(path);
	close(fd);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	gm_daemon_stop(&daemon_);
}
END_TEST

/* A keeper with room for very few descriptors: what it cannot take is refused, and the rest is safe. */
START_TEST(a_full_keeper_costs_requests_and_nothing_else)
{
	char script[128], env[160], program[4096];
	const char *const environment[] = {env, NULL};
	const char *build = getenv("top_builddir");
	struct gm_raw_lease leases[64];
	size_t n = 0;

	GM_REQUIRE(realpath(build ? build : ".", program));
	start_over(NULL);
	snprintf(script, sizeof(script), "%s/small-keeper", daemon_.folder);
	snprintf(env, sizeof(env), "GPUMEM_KEEPER=%s", script);
	int file = open(script, O_CREAT | O_WRONLY | O_CLOEXEC, 0755);
	GM_REQUIRE(file >= 0);
	GM_REQUIRE(dprintf(file, "#!/bin/sh\nulimit -n 40\nexec %s/keeper/gpumem-keeper \"$@\"\n",
			   program) > 0);
	close(file);
	daemon_.options.env = environment;
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);

	gm_raw_join(&ann, &daemon_);
	gpumem_status status = GPUMEM_OK;
	while (n < 64 && (status = gm_raw_lease(&ann, 0, GM_CHUNK_MIN, &leases[n])) == GPUMEM_OK) {
		gm_alloc_raw_chunk_fill(&leases[n].chunks[0], (uint8_t)(n + 1));
		n++;
	}
	GM_REQUIRE(n > 0 && n < 64);
	GM_REQUIRE_EQ(status, GPUMEM_E_LIMIT);
	if (!strstr(gm_raw_detail(&ann), "raise LimitNOFILE= of the daemon and its keeper"))
		GM_FAIL("%s", gm_raw_detail(&ann));

	gm_daemon_kill(&daemon_);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).leases, n);
	for (size_t i = 0; i < n; i++) {
		GM_REQUIRE(gm_alloc_raw_chunk_is(&leases[i].chunks[0], (uint8_t)(i + 1)));
		gm_raw_lease_clear(&leases[i]);
	}
	gm_raw_close(&ann);
	unlink(script);
	gm_daemon_stop(&daemon_);
}
END_TEST

static const char *const auto_backend[] = {"--backend", "auto", NULL};
static const char *const host_backend[] = {"--backend", "host", NULL};
static const char *const no_gpus[] = {"CUDA_VISIBLE_DEVICES=", NULL};

START_TEST(memory_of_gpus_is_not_forgotten_while_the_driver_cannot_be_used)
{
	const char *const *env = daemon_.options.env;

	daemon_.options.args = auto_backend;
	daemon_.options.env = no_gpus;
	if (gm_on_gpu())
		require_refusal(
			FOR_NOW, "clients hold memory of GPUs, and this daemon can use none");

	/* Host memory needs no driver. */
	if (gm_on_gpu())
		daemon_.options.env = env;
	require_everything();
}
END_TEST

START_TEST(memory_of_gpus_is_given_up_for_a_daemon_that_shall_have_none)
{
	daemon_.options.args = host_backend;
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	GM_REQUIRE(
		gm_daemon_said(&daemon_, "2 leases are on devices that this daemon does not have"));
	GM_REQUIRE(!gm_daemon_said(&daemon_, "damaged"));
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).leases, 0);
	require_contents();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("upgrade");
	TCase *tc = tcase_create("versions"), *keepers = tcase_create("keepers");
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, a_ledger_of_a_newer_format_is_refused_until_the_newer_daemon_is_back);
	tcase_add_loop_test(tc, so_is_one_with_a_record_of_a_newer_format, 0, 2);
	tcase_add_test(tc, a_ledger_of_an_older_daemon_is_taken_over);
	tcase_add_test(tc, of_a_damaged_ledger_the_sound_records_are_taken_over);
	tcase_add_loop_test(tc, of_a_truncated_ledger_the_rest_is_taken_over, 0, 3);
	tcase_add_test(tc, memory_of_gpus_is_not_forgotten_while_the_driver_cannot_be_used);
	if (gm_on_gpu())
		tcase_add_test(tc, memory_of_gpus_is_given_up_for_a_daemon_that_shall_have_none);
	suite_add_tcase(suite, tc);
	tcase_add_test(keepers, without_room_for_the_ledger_the_daemon_says_so);
	if (GM_TAP_WITH_USERS(a_keepers_socket_of_somebody_else_is_refused))
		tcase_add_test(keepers, a_keepers_socket_of_somebody_else_is_refused);
	tcase_add_test(keepers, a_full_keeper_costs_requests_and_nothing_else);
	suite_add_tcase(suite, keepers);
	return gm_tap_run(suite);
}
