/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Memory that the daemon destroyed and that a process still maps: a forked child of a worker that was
 * killed, or a client that returned it falsely. The driver counts it for that process, so it is charged
 * to the uid as orphaned, and counts against the uid's limit, until it is gone. One source for the fake
 * driver and a real GPU.
 */

#include <fcntl.h>

#include "tests/gpu/broker.h"

#define BYTES (64 * MIB)

static void set_up(void)
{
	static char config[512];
	snprintf(config, sizeof(config),
		"[gpumemd]\nfraction = 0.9\nmin_free = 16M\nreserve = 0\nmax_pool = 0\n"
		"host_limit = 0\n[limit uid:%u]\nmax = 64M\n",
		(unsigned)getuid());
	start_with(config);
}

static uint64_t orphaned(void)
{
	return gm_figures_now(&daemon_).orphaned;
}

/* ---- workers */

static void have_memory(void)
{
	gpumem_buffer *buffer;
	use_gpu();
	OK(create(BYTES, GPUMEM_TRANSPORT_FD, &buffer));
	fill(gpumem_buffer_ptr(buffer), BYTES, 1, NULL);
	CU(cuda->cuStreamSynchronize(NULL));
}

static void childless(int channel, void *argument)
{
	join("childless");
	have_memory();
	gm_text_say_word(channel, 'c');
	gm_hear_word(channel, 'e'); /* it is killed instead */
}

/* A worker that has memory and a child, which lives as long as the test has the other end of a pipe. */
static void parent(int channel, void *argument)
{
	const int *ends = argument;
	char word;
	close(ends[1]);
	join("parent");
	have_memory();
	pid_t child = fork();
	GM_REQUIRE(child >= 0);
	if (child == 0) {
		close(channel);
		(void)!read(ends[0], &word, 1);
		_exit(0);
	}
	gm_text_say_word(channel, 'f');
	gm_hear_word(channel, 'e'); /* it is killed instead */
}

/* Kills a worker that has BYTES and a child. Returns the end of the pipe that keeps the child. */
static int kill_a_parent(void)
{
	struct gm_worker worker;
	int ends[2];
	GM_REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
	gm_worker_start(&worker, parent, ends);
	close(ends[0]);
	gm_hear_word(worker.channel, 'f');
	GM_REQUIRE_EQ(orphaned(), 0);
	gm_worker_kill(&worker);
	return ends[1];
}

static void is_refused(int channel, void *argument)
{
	gpumem_buffer *buffer;
	join("refused");
	REFUSED(create(2 * MIB, GPUMEM_TRANSPORT_FD, &buffer), GPUMEM_E_LIMIT, "64.0M");
	gpumem_disconnect(session);
}

static void gets_it(int channel, void *argument)
{
	gpumem_buffer *buffer;
	join("granted");
	use_gpu();
	OK(create(BYTES, GPUMEM_TRANSPORT_FD, &buffer));
	gpumem_buffer_destroy(buffer);
	gpumem_disconnect(session);
}

/* ---- clients without the library, which can lie */

static gm_cu_ptr map_chunk(const struct gm_alloc_raw_chunk *chunk)
{
	gm_cu_access access = {0};
	gm_cu_mem mem;
	gm_cu_ptr at;
	access.location.type = GM_CU_MEM_LOCATION_TYPE_DEVICE;
	access.flags = GM_CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	CU(cuda->cuMemImportFromShareableHandle(
		&mem, (void *)(intptr_t)chunk->fd, GM_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	CU(cuda->cuMemAddressReserve(&at, chunk->bytes, 0, 0, 0));
	CU(cuda->cuMemMap(at, chunk->bytes, 0, mem, 0));
	CU(cuda->cuMemRelease(mem));
	CU(cuda->cuMemSetAccess(at, chunk->bytes, &access, 1));
	return at;
}

static void unmap_chunk(gm_cu_ptr at, uint64_t bytes)
{
	CU(cuda->cuMemUnmap(at, bytes));
	CU(cuda->cuMemAddressFree(at, bytes));
}

#define MOST_CHUNKS 64

/* Leases and maps BYTES, closes the fds, and unmaps the chunks unless it lies; then returns them. */
static size_t lease_and_return(struct gm_raw *raw, bool lie, gm_cu_ptr at[], uint64_t bytes[])
{
	struct gm_raw_lease lease = {0};
	GM_REQUIRE_EQ(gm_raw_lease(raw, 0, BYTES, &lease), GPUMEM_OK);
	size_t n = lease.n;
	uint64_t id = lease.id;
	GM_REQUIRE(n <= MOST_CHUNKS);
	for (size_t i = 0; i < n; i++) {
		bytes[i] = lease.chunks[i].bytes;
		at[i] = map_chunk(&lease.chunks[i]);
		fill((void *)(uintptr_t)at[i], bytes[i], 3, NULL);
	}
	CU(cuda->cuStreamSynchronize(NULL));
	for (size_t i = 0; i < n && !lie; i++)
		unmap_chunk(at[i], bytes[i]);
	gm_raw_lease_clear(&lease);
	GM_REQUIRE_EQ(gm_raw_return(raw, id, NULL, 0), GPUMEM_OK);
	return n;
}

static void liar(int channel, void *argument)
{
	gm_cu_ptr at[MOST_CHUNKS];
	uint64_t bytes[MOST_CHUNKS];
	struct gm_raw raw;
	use_gpu();
	gm_raw_join(&raw, &daemon_);
	size_t n = lease_and_return(&raw, true, at, bytes);
	gm_text_say_word(channel, 'l');
	gm_hear_word(channel, 'u');
	for (size_t i = 0; i < n; i++) {
		GM_REQUIRE(all((void *)(uintptr_t)at[i], bytes[i], 3, NULL));
		unmap_chunk(at[i], bytes[i]);
	}
	gm_text_say_word(channel, 'u');
	gm_hear_word(channel, 'e');
	gm_raw_close(&raw);
}

/* Gets more and more memory of its own while its chunks are destroyed, and keeps it. Its sizes are no
 * sums of chunks, so that none of it is ever taken for an orphaned mapping. */
static void honest(int channel, void *argument)
{
	gm_cu_ptr at[MOST_CHUNKS], own;
	uint64_t bytes[MOST_CHUNKS];
	struct gm_raw raw;
	use_gpu();
	gm_raw_join(&raw, &daemon_);
	for (int i = 0; i < 10; i++) {
		lease_and_return(&raw, false, at, bytes);
		CU(cuda->cuMemAlloc(&own, 6 * MIB));
	}
	gm_text_say_word(channel, 'd');
	gm_hear_word(channel, 'e');
	gm_raw_close(&raw);
}

/* ---- tests */

START_TEST(what_a_child_of_a_killed_worker_maps_is_charged_until_the_child_ends)
{
	set_up();
	int end = kill_a_parent();
	GM_UNTIL(orphaned() == BYTES);
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).quarantined, BYTES);
	one_worker(is_refused, NULL);
	GM_REQUIRE_EQ(orphaned(), BYTES);
	close(end);
	GM_UNTIL(orphaned() == 0);
	one_worker(gets_it, NULL);
	GM_UNTIL(gm_figures_now(&daemon_).leased == 0);
	GM_REQUIRE_EQ(orphaned(), 0);
	tear_down();
}
END_TEST

START_TEST(a_killed_worker_without_a_child_owes_nothing)
{
	struct gm_worker worker;
	set_up();
	gm_worker_start(&worker, childless, NULL);
	gm_hear_word(worker.channel, 'c');
	gm_worker_kill(&worker);
	GM_UNTIL(gm_figures_now(&daemon_).clients == 0);
	one_worker(gets_it, NULL);
	GM_UNTIL(gm_figures_now(&daemon_).clients == 0);
	GM_REQUIRE_EQ(orphaned(), 0);
	tear_down();
}
END_TEST

START_TEST(what_is_returned_falsely_is_charged_until_it_is_unmapped)
{
	struct gm_worker worker;
	set_up();
	gm_worker_start(&worker, liar, NULL);
	gm_hear_word(worker.channel, 'l');
	GM_UNTIL(orphaned() == BYTES);
	one_worker(is_refused, NULL);
	gm_text_say_word(worker.channel, 'u');
	gm_hear_word(worker.channel, 'u');
	GM_UNTIL(orphaned() == 0);
	one_worker(gets_it, NULL);
	end_worker(&worker);
	tear_down();
}
END_TEST

/* What the liar owes comes after all that the honest one returned, and goes while it still has what it
 * got. */
START_TEST(an_honest_client_owes_nothing_beside_a_liar)
{
	struct gm_worker good, bad;
	set_up();
	gm_worker_start(&good, honest, NULL);
	gm_hear_word(good.channel, 'd');
	gm_worker_start(&bad, liar, NULL);
	gm_hear_word(bad.channel, 'l');
	GM_UNTIL(orphaned() == BYTES);
	gm_text_say_word(bad.channel, 'u');
	gm_hear_word(bad.channel, 'u');
	GM_UNTIL(orphaned() == 0);
	end_worker(&bad);
	end_worker(&good);
	tear_down();
}
END_TEST

START_TEST(what_is_orphaned_is_charged_by_the_next_daemon_too)
{
	set_up();
	int end = kill_a_parent();
	GM_UNTIL(orphaned() == BYTES);
	gm_daemon_kill(&daemon_);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	GM_REQUIRE_EQ(orphaned(), BYTES);
	one_worker(is_refused, NULL);
	GM_REQUIRE_EQ(orphaned(), BYTES);
	close(end);
	GM_UNTIL(orphaned() == 0);
	one_worker(gets_it, NULL);
	tear_down();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("orphaned");
	TCase *tcase = tcase_create("orphaned");
	tcase_set_timeout(tcase, 240);
	tcase_add_test(tcase, what_a_child_of_a_killed_worker_maps_is_charged_until_the_child_ends);
	tcase_add_test(tcase, a_killed_worker_without_a_child_owes_nothing);
	tcase_add_test(tcase, what_is_returned_falsely_is_charged_until_it_is_unmapped);
	tcase_add_test(tcase, an_honest_client_owes_nothing_beside_a_liar);
	tcase_add_test(tcase, what_is_orphaned_is_charged_by_the_next_daemon_too);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
