/* SPDX-License-Identifier: Apache-2.0 */
/* Metadata of names: what is refused, what it is charged, when it ends, and what a later daemon has. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/books/fds.h"
#include "daemon/lease/metadata_private.h"
#include "tests/bound.h"
#include "tests/unit/failing_malloc.h"
#include "tests/unit/lease/names_fixture.h"

static void setup(void)
{
	names_setup(4 * GiB);
}

static gpumem_status put(struct gm_session *session, struct gm_lease *lease, uint64_t size,
	uint64_t offset, const char *bytes)
{
	const struct gm_metadata_piece piece = {size, offset, bytes, strlen(bytes)};
	detail[0] = '\0';
	return gm_lease_put_metadata(session, lease, &piece, detail);
}

/* Publishes as "llama", with the metadata if it is not NULL. */
static gpumem_status publish(struct gm_lease *lease, const char *text)
{
	struct gm_name_publish what = {.text = "llama", .replace = true};
	if (text) {
		ck_assert_int_eq(put(maker, lease, strlen(text), 0, text), GPUMEM_OK);
		what.metadata_bytes = strlen(text);
	}
	return gm_lease_publish(maker, lease, &what, &version, detail);
}

static struct gm_lease *some(void)
{
	return fake_lease(&fake, maker, 0, 2 * MiB);
}

static void is_read(const struct gm_metadata_info *found, const char *text)
{
	char bytes[64] = "";
	ck_assert_uint_eq(found->size, strlen(text));
	ck_assert(!found->id == !found->size);
	if (found->id)
		ck_assert_int_eq(
			gm_core_read_metadata(fake.core, found->id, 0, bytes, strlen(text)), 0);
	ck_assert_str_eq(bytes, text);
}

/* The name has this metadata, for one of the domain. */
static void has(const char *text, uint64_t of_version)
{
	struct gm_session *reader = client(100, 5, "100 ");
	struct gm_metadata_info found;
	ck_assert_int_eq(
		gm_session_find_metadata(reader, 100, "llama", NULL, 0, &found), GPUMEM_OK);
	is_read(&found, text);
	ck_assert_uint_eq(found.version, of_version);
	gm_session_end_unmapped(reader);
}

static uint64_t charged(void)
{
	return fake.core->env.users->all[GM_USER_METADATA];
}

static size_t open_files(void)
{
	DIR *folder = opendir("/proc/self/fd");
	size_t n = 0;
	while (readdir(folder))
		n++;
	closedir(folder);
	return n;
}

static void nothing_is_left(void)
{
	ck_assert_uint_eq(charged(), 0);
	ck_assert_uint_eq(ledger.n_deposits, 0);
	ck_assert_uint_eq(fake_ledger_count(&ledger, GM_RECORD_METADATA), 0);
	ck_assert_ptr_null(fake.core->metadata);
}

START_TEST(metadata_is_read_without_attaching)
{
	struct gm_lease *lease = some();
	struct gm_metadata_info found;

	ck_assert_int_eq(publish(lease, "{\"layers\": 32}"), GPUMEM_OK);
	has("{\"layers\": 32}", 1);
	ck_assert_uint_eq(charged(), gm_metadata_cost(14));

	/* To those who may not attach, the name does not exist. */
	ck_assert_int_eq(
		gm_session_find_metadata(client(200, 6, "200 "), 100, "llama", NULL, 0, &found),
		GPUMEM_E_NOT_FOUND);
	ck_assert_int_eq(
		gm_session_find_metadata(client(100, 7, "100 /box"), 100, "llama", NULL, 0, &found),
		GPUMEM_E_NOT_FOUND);
	ck_assert_int_eq(
		gm_session_find_metadata(maker, 100, "a/b", NULL, 0, &found), GPUMEM_E_NOT_FOUND);

	/* Its maker may end. */
	gm_session_end_died(maker);
	fake_core_run(&fake);
	has("{\"layers\": 32}", 1);
	ck_assert_int_eq(gm_core_unpublish(fake.core, &administrator, 100, "llama"), GPUMEM_OK);
	nothing_is_left();
}
END_TEST

START_TEST(nothing_can_change_published_metadata)
{
	struct gm_lease *lease = some();
	ck_assert_int_eq(publish(lease, "true"), GPUMEM_OK);

	ck_assert_int_eq(put(maker, lease, 4, 0, "lies"), GPUMEM_E_BUSY);
	ck_assert_ptr_nonnull(strstr(detail, "llama"));
	ck_assert_ptr_nonnull(strstr(detail, "replace"));
	/* Not even with the memfd itself. */
	ck_assert_uint_eq(ledger.n_deposits, 1);
	int fd = ledger.deposits[0].fd;
	ck_assert_int_eq(pwrite(fd, "lies", 4, 0), -1);
	ck_assert_int_eq(errno, EPERM);
	ck_assert_int_eq(ftruncate(fd, 0), -1);
	ck_assert_int_eq(ftruncate(fd, 8), -1);
	ck_assert_int_eq(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4), -1);
	ck_assert_ptr_eq(mmap(NULL, 4, PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
	has("true", 1);
	/* To say it again without metadata changes nothing. */
	ck_assert_int_eq(publish(lease, NULL), GPUMEM_OK);
	has("true", 1);
}
END_TEST

START_TEST(metadata_belongs_to_a_version)
{
	struct gm_lease *first = some(), *second = some(), *third = some(), *opened;
	struct gm_session *reader = client(100, 5, "100 ");
	struct gm_metadata_info found;

	ck_assert_int_eq(publish(first, "one"), GPUMEM_OK);
	gm_lease_return(maker, first);
	ck_assert_int_eq(
		gm_session_attach(reader, 100, "llama", NULL, 0, 0, false, &opened), GPUMEM_OK);
	ck_assert_int_eq(publish(second, "two and a bit"), GPUMEM_OK);
	has("two and a bit", 2);

	/* The reader of the first one has its metadata still. */
	gm_lease_metadata(opened, &found);
	is_read(&found, "one");
	ck_assert_uint_eq(found.version, 1);
	gm_session_end_unmapped(reader);
	ck_assert_uint_eq(ledger.n_deposits, 1);
	ck_assert_uint_eq(charged(), gm_metadata_cost(13));

	/* The third one has none. */
	gm_lease_return(maker, second);
	ck_assert_int_eq(publish(third, NULL), GPUMEM_OK);
	has("", 3);
	nothing_is_left();
}
END_TEST

START_TEST(a_lease_that_is_published_again_has_the_later_metadata)
{
	struct gm_lease *lease = some();

	ck_assert_int_eq(publish(lease, "one"), GPUMEM_OK);
	ck_assert_int_eq(gm_core_unpublish(fake.core, &administrator, 100, "llama"), GPUMEM_OK);
	ck_assert_uint_eq(ledger.n_deposits, 1); /* its maker has the lease */
	ck_assert_int_eq(publish(lease, "two"), GPUMEM_OK);
	ck_assert_uint_eq(ledger.n_deposits, 1);
	ck_assert_uint_eq(charged(), gm_metadata_cost(3));

	/* With a reader, the old one stays until the new one is published. */
	struct gm_session *reader = client(100, 5, "100 ");
	struct gm_lease *opened;
	struct gm_metadata_info found;
	ck_assert_int_eq(
		gm_session_attach(reader, 100, "llama", NULL, 0, 0, false, &opened), GPUMEM_OK);
	ck_assert_int_eq(gm_core_unpublish(fake.core, &administrator, 100, "llama"), GPUMEM_OK);
	ck_assert_int_eq(put(maker, lease, 5, 0, "three"), GPUMEM_OK);
	gm_lease_metadata(opened, &found);
	is_read(&found, "two");
	ck_assert_int_eq(publish(lease, "three"), GPUMEM_OK);
	has("three", 1);
	ck_assert_uint_eq(ledger.n_deposits, 1);
	ck_assert_int_eq(gm_core_unpublish(fake.core, &administrator, 100, "llama"), GPUMEM_OK);
	gm_lease_return(reader, opened);
	gm_lease_return(maker, lease);
	nothing_is_left();
}
END_TEST

START_TEST(a_draft_comes_in_pieces)
{
	struct gm_lease *lease = some();
	struct gm_name_publish what = {.text = "llama", .metadata_bytes = 9};

	ck_assert_int_eq(put(maker, lease, 9, 0, "abc"), GPUMEM_OK);
	/* All of it is charged before it is there. */
	ck_assert_uint_eq(charged(), gm_metadata_cost(9));
	ck_assert_int_eq(put(maker, lease, 9, 3, "def"), GPUMEM_OK);
	ck_assert_int_eq(put(maker, lease, 9, 3, "def"), GPUMEM_OK); /* a repeated request */
	ck_assert_int_eq(put(maker, lease, 9, 6, "ghi"), GPUMEM_OK);
	ck_assert_int_eq(gm_lease_publish(maker, lease, &what, &version, detail), GPUMEM_OK);
	has("abcdefghi", 1);
}
END_TEST

START_TEST(what_is_not_whole_is_sent_again)
{
	struct gm_lease *lease = some();
	struct gm_name_publish what = {.text = "llama", .metadata_bytes = 9};

	/* None, a part, a gap, and another size. */
	for (int i = 0; i < 4; i++) {
		if (i == 1)
			ck_assert_int_eq(put(maker, lease, 9, 0, "abcdef"), GPUMEM_OK);
		if (i == 2) {
			ck_assert_int_eq(put(maker, lease, 9, 0, "abc"), GPUMEM_OK);
			ck_assert_int_eq(put(maker, lease, 9, 6, "ghi"), GPUMEM_OK);
			ck_assert_uint_eq(charged(), 0);
		}
		if (i == 3)
			ck_assert_int_eq(put(maker, lease, 8, 0, "abcdefgh"), GPUMEM_OK);
		ck_assert_int_eq(gm_lease_publish(maker, lease, &what, &version, detail),
			GPUMEM_E_NOT_FOUND);
		nothing_is_left();
	}
	ck_assert_ptr_null(fake.core->names);
	/* After a restart, the client goes on with the next piece. */
	ck_assert_int_eq(put(maker, lease, 9, 6, "ghi"), GPUMEM_OK);
	ck_assert_uint_eq(charged(), 0);
}
END_TEST

START_TEST(what_cannot_be_kept_is_sent_again)
{
	struct gm_lease *lease = some();

	ledger.refuses_deposits = -EAGAIN;
	ck_assert_int_eq(publish(lease, "text"), GPUMEM_E_NOT_FOUND);
	nothing_is_left();
	ledger.refuses_deposits = -ENOSPC;
	ck_assert_int_eq(publish(lease, "text"), GPUMEM_E_HOST_MEMORY);
	nothing_is_left();
	ledger.refuses_deposits = 0;
	ledger.full = true;
	ck_assert_int_eq(publish(lease, "text"), GPUMEM_E_HOST_MEMORY);
	nothing_is_left();
	ck_assert_ptr_null(fake.core->names);
	ledger.full = false;
	ck_assert_int_eq(publish(lease, "text"), GPUMEM_OK);
	has("text", 1);
}
END_TEST

START_TEST(longer_metadata_is_refused)
{
	GM_BOUND_TEST(METADATA_BYTES);
	struct gm_lease *lease = some();

	ck_assert_int_eq(put(maker, lease, GM_BOUND_METADATA_BYTES, 0, "x"), GPUMEM_OK);
	/* What is wrong changes nothing. */
	ck_assert_int_eq(put(maker, lease, GM_BOUND_METADATA_BYTES + 1, 0, "x"), GPUMEM_E_INVALID);
	ck_assert_ptr_nonnull(strstr(detail, "16777216"));
	ck_assert_int_eq(put(maker, lease, UINT64_MAX, 0, "x"), GPUMEM_E_INVALID);
	ck_assert_int_eq(put(maker, lease, 0, 0, "x"), GPUMEM_E_INVALID);
	ck_assert_int_eq(put(maker, lease, 4, 0, ""), GPUMEM_E_INVALID);
	ck_assert_int_eq(put(maker, lease, 4, 0, "12345"), GPUMEM_E_INVALID);
	ck_assert_int_eq(put(maker, lease, 4, 4, "1"), GPUMEM_E_INVALID);
	ck_assert_int_eq(put(maker, lease, 4, UINT64_MAX, "1"), GPUMEM_E_INVALID);
	ck_assert_uint_eq(charged(), gm_metadata_cost(GM_BOUND_METADATA_BYTES));
}
END_TEST

START_TEST(only_the_maker_sends_metadata)
{
	struct gm_lease *lease = some(), *opened;
	struct gm_session *reader = client(100, 5, "100 ");
	struct gm_name_publish what = {.text = "mine", .metadata_bytes = 4};

	ck_assert_int_eq(publish(lease, NULL), GPUMEM_OK);
	ck_assert_int_eq(
		gm_session_attach(reader, 100, "llama", NULL, 0, 0, false, &opened), GPUMEM_OK);
	ck_assert_int_eq(gm_core_unpublish(fake.core, &administrator, 100, "llama"), GPUMEM_OK);
	ck_assert_int_eq(put(maker, lease, 4, 0, "true"), GPUMEM_OK);
	ck_assert_int_eq(put(reader, lease, 4, 0, "lies"), GPUMEM_E_DENIED);
	ck_assert_int_eq(gm_lease_publish(reader, lease, &what, &version, detail), GPUMEM_E_DENIED);
	/* The maker's draft is still there. */
	ck_assert_int_eq(gm_lease_publish(maker, lease, &what, &version, detail), GPUMEM_OK);
	ck_assert_uint_eq(ledger.n_deposits, 1);
}
END_TEST

/* _i: it dies, it says goodbye, it returns the lease, its publish is refused, it publishes without. */
START_TEST(a_draft_ends_with_its_maker_or_with_any_publish)
{
	struct gm_lease *lease = some();
	size_t files = open_files();
	uid_t payer = gm_session_info(maker)->payer_uid;
	struct gm_name_publish what = {.text = _i == 3 ? "a/b" : "llama", .metadata_bytes = 4};

	ck_assert_int_eq(put(maker, lease, 4, 0, "text"), GPUMEM_OK);
	ck_assert_uint_gt(charged(), 0);
	switch (_i) {
	case 0:
		gm_session_end_died(maker);
		break;
	case 1:
		gm_session_end_unmapped(maker);
		break;
	case 2:
		gm_lease_return(maker, lease);
		break;
	case 3:
		ck_assert_int_eq(
			gm_lease_publish(maker, lease, &what, &version, detail), GPUMEM_E_INVALID);
		break;
	default:
		ck_assert_int_eq(publish(lease, NULL), GPUMEM_OK);
	}
	nothing_is_left();
	ck_assert_uint_eq(open_files(), files);
	/* To close the last descriptor of a large file takes long. */
	ck_assert_uint_eq(fake.closed_aside, 1);
	ck_assert_uint_eq(fake.closed_for, payer);
}
END_TEST

/* Sends the first byte of drafts of this size, each for a lease of its own, until one is refused. Returns how
 * many there were. */
static uint64_t fill(struct gm_session *session, uint64_t size)
{
	for (uint64_t n = 0;; n++) {
		gpumem_status status =
			put(session, fake_lease(&fake, session, 0, 2 * MiB), size, 0, "x");
		if (status != GPUMEM_OK) {
			ck_assert_int_eq(status, GPUMEM_E_LIMIT);
			return n;
		}
	}
}

/* As much as a quarter of the bound of a user, with the page that is added. */
static uint64_t a_quarter(void)
{
	uint64_t size = GM_BOUND_METADATA_PER_UID / 4 - (uint64_t)sysconf(_SC_PAGESIZE);
	ck_assert_uint_eq(gm_metadata_cost(size), GM_BOUND_METADATA_PER_UID / 4);
	return size;
}

START_TEST(a_user_has_a_bound_of_its_own_for_metadata)
{
	GM_BOUND_TEST(METADATA_PER_UID);
	struct gm_session *other = client(200, 6, "200 ");

	ck_assert_uint_eq(fill(maker, a_quarter()), 4);
	ck_assert_ptr_nonnull(strstr(detail, "user 100 may have 64.0M of metadata, has 64.0M"));
	ck_assert_ptr_nonnull(strstr(detail, "remove a name"));
	ck_assert_uint_eq(charged(), GM_BOUND_METADATA_PER_UID);
	/* Nor one byte more. */
	ck_assert_int_eq(put(maker, some(), 1, 0, "x"), GPUMEM_E_LIMIT);
	struct gm_lease *lease = fake_lease(&fake, other, 0, 2 * MiB);
	ck_assert_int_eq(put(other, lease, GM_BOUND_METADATA_BYTES, 0, "x"), GPUMEM_OK);
	/* To replace one's own draft takes no more. */
	ck_assert_int_eq(put(other, lease, GM_BOUND_METADATA_BYTES, 0, "x"), GPUMEM_OK);
	ck_assert_uint_eq(
		charged(), GM_BOUND_METADATA_PER_UID + gm_metadata_cost(GM_BOUND_METADATA_BYTES));
}
END_TEST

START_TEST(a_uid_leaves_metadata_to_others)
{
	GM_BOUND_TEST(METADATA);
	const uint64_t users = GM_BOUND_METADATA / GM_BOUND_METADATA_PER_UID;

	for (uint64_t i = 1; i < users; i++)
		ck_assert_uint_eq(
			fill(client((uid_t)(200 + i), (int)i + 10, "x "), a_quarter()), 4);
	/* The last one may have half of the rest. */
	ck_assert_uint_eq(fill(maker, a_quarter()), 2);
	ck_assert_ptr_nonnull(strstr(detail, "user 100"));
	ck_assert_ptr_nonnull(strstr(detail, "the most is 1.0G for all"));
	ck_assert_uint_eq(charged(), GM_BOUND_METADATA - GM_BOUND_METADATA_PER_UID / 2);
}
END_TEST

START_TEST(ten_thousand_versions_cost_as_much_as_one)
{
	size_t files = 0;

	for (int i = 0; i < 10000; i++) {
		struct gm_lease *lease = some();
		ck_assert_int_eq(publish(lease, "text"), GPUMEM_OK);
		gm_lease_return(maker, lease);
		fake_core_run(&fake);
		if (i == 0)
			files = open_files();
	}
	has("text", 10000);
	ck_assert_uint_eq(open_files(), files);
	ck_assert_uint_eq(ledger.n_deposits, 1);
	ck_assert_uint_eq(charged(), gm_metadata_cost(4));
}
END_TEST

START_TEST(metadata_counts_as_a_descriptor_of_its_user)
{
	struct gm_fd_budget *fds = fake.core->env.fds;
	struct gm_lease *lease = some();
	uint64_t held = maker->payer.user->has[GM_USER_CHUNK_FDS], chunks = fds->chunks;

	ck_assert_int_eq(put(maker, lease, 4, 0, "text"), GPUMEM_OK);
	ck_assert_uint_eq(maker->payer.user->has[GM_USER_CHUNK_FDS], held + 1);
	ck_assert_uint_eq(fds->chunks, chunks + 1);
	gm_metadata_drop_draft(lease);
	ck_assert_uint_eq(maker->payer.user->has[GM_USER_CHUNK_FDS], held);
	fds->total = 0; /* none is left */
	ck_assert_int_eq(put(maker, lease, 4, 0, "text"), GPUMEM_E_LIMIT);
	ck_assert_ptr_nonnull(strstr(detail, "LimitNOFILE="));
	fds->total = UINT64_MAX / 8;
	nothing_is_left();
}
END_TEST

/* The memfd must not take a descriptor that is still being closed, nor one that others wait for. */
START_TEST(metadata_waits_while_descriptors_are_being_closed)
{
	struct gm_fd_budget *fds = fake.core->env.fds;
	struct gm_lease *lease = some();
	uint64_t held = maker->payer.user->has[GM_USER_CHUNK_FDS], files = open_files();

	for (int i = 0; i < 2; i++) {
		uint64_t *column = i ? &fds->waiting : &fds->dying;
		uint64_t many = i ? 1 : fds->total;
		*column += many;
		ck_assert_int_eq(put(maker, lease, 4, 0, "text"), GPUMEM_OK);
		ck_assert_ptr_null(lease->draft);
		ck_assert_uint_eq(maker->payer.user->has[GM_USER_CHUNK_FDS], held);
		ck_assert_uint_eq(open_files(), files);
		/* A piece that follows is not written, either. */
		ck_assert_int_eq(put(maker, lease, 4, 2, "xt"), GPUMEM_OK);
		ck_assert_int_eq(publish(lease, "text"), GPUMEM_E_NOT_FOUND);
		ck_assert_ptr_nonnull(strstr(detail, "send it again"));
		*column -= many;
	}
	ck_assert_int_eq(put(maker, lease, 4, 0, "text"), GPUMEM_OK);
	ck_assert_int_eq(publish(lease, "text"), GPUMEM_OK);
}
END_TEST

START_TEST(without_memory_nothing_is_left)
{
	for (uint64_t n = 1;; n++) {
		struct gm_lease *lease = some();
		struct gm_name_publish what = {
			.text = "llama", .metadata_bytes = 4, .lifetime_ns = 5};

		failing_malloc_arm(n);
		gpumem_status status = put(maker, lease, 4, 0, "text");
		if (status == GPUMEM_OK)
			status = gm_lease_publish(maker, lease, &what, &version, detail);
		if (!failing_malloc_fired()) {
			ck_assert_int_eq(status, GPUMEM_OK);
			ck_assert_uint_gt(n, 3);
			return;
		}
		ck_assert_int_eq(status, GPUMEM_E_HOST_MEMORY);
		nothing_is_left();
		ck_assert_uint_eq(fake.core->expiries.n, 0);
		gm_lease_return(maker, lease);
	}
}
END_TEST

/* ---- restarts */

START_TEST(a_later_daemon_has_the_metadata)
{
	ck_assert_int_eq(publish(some(), "text"), GPUMEM_OK);
	gm_session_end_died(maker);
	for (int i = 0; i < 2; i++) {
		restart();
		ck_assert_uint_eq(result.adopted[GM_RECORD_METADATA], 1);
		has("text", 1);
		ck_assert_uint_eq(charged(), gm_metadata_cost(4));
	}
	ck_assert_int_eq(gm_core_unpublish(fake.core, &administrator, 100, "llama"), GPUMEM_OK);
	nothing_is_left();
}
END_TEST

/* Whatever an earlier daemon allowed, also one that knew no bound of a user, is there and counts. */
START_TEST(a_later_daemon_counts_metadata_and_refuses_none_that_is_there)
{
	static char bytes[GM_BOUND_METADATA_BYTES];
	const struct gm_metadata_piece piece = {sizeof(bytes), 0, bytes, sizeof(bytes)};
	uint64_t cost = gm_metadata_cost(sizeof(bytes)), n = GM_BOUND_METADATA_PER_UID / cost + 2;

	for (uint64_t i = 0; i < n; i++) {
		struct gm_lease *lease = some();
		struct gm_name_publish what = {.metadata_bytes = sizeof(bytes)};
		char text[16];
		snprintf(text, sizeof(text), "m%u", (unsigned)i);
		what.text = text;
		maker->payer.user->has[GM_USER_METADATA] -= i * cost;
		ck_assert_int_eq(gm_lease_put_metadata(maker, lease, &piece, detail), GPUMEM_OK);
		maker->payer.user->has[GM_USER_METADATA] += i * cost;
		ck_assert_int_eq(
			gm_lease_publish(maker, lease, &what, &version, detail), GPUMEM_OK);
	}
	gm_session_end_died(maker);
	for (int i = 0; i < 2; i++) {
		restart();
		ck_assert_uint_eq(result.adopted[GM_RECORD_METADATA], n);
		ck_assert_uint_eq(charged(), n * cost);
	}
	struct gm_session *later = client(100, 5, "100 ");
	ck_assert_int_eq(
		put(later, fake_lease(&fake, later, 0, 2 * MiB), 1, 0, "x"), GPUMEM_E_LIMIT);
	ck_assert_ptr_nonnull(strstr(detail, "may have 64.0M"));
	for (uint64_t i = 0; i < n - 1; i++) {
		char text[16];
		snprintf(text, sizeof(text), "m%u", (unsigned)i);
		ck_assert_int_eq(
			gm_core_unpublish(fake.core, &administrator, 100, text), GPUMEM_OK);
	}
	ck_assert_uint_eq(charged(), cost);
	ck_assert_int_eq(put(later, fake_lease(&fake, later, 0, 2 * MiB), 1, 0, "x"), GPUMEM_OK);
}
END_TEST

/* The name is gone, and a reader that comes back has the metadata of its version still. */
START_TEST(a_reader_of_an_older_version_has_it_after_a_restart)
{
	struct gm_session *reader =
		fake_ledger_join(&fake, 100, NULL, (uint8_t[GM_TOKEN_BYTES]){0});
	struct gm_lease *opened;
	struct gm_metadata_info found;
	struct gm_name_publish what = {.text = "llama", .replace = true, .metadata_bytes = 3};

	what.share = (struct gm_token_options){.audience = GM_NAME_AUDIENCE_UID, .id = 100};
	fake.for_others = true;
	for (int i = 0; i < 2; i++) {
		struct gm_lease *lease = some();
		ck_assert_int_eq(put(maker, lease, 3, 0, i ? "two" : "one"), GPUMEM_OK);
		ck_assert_int_eq(
			gm_lease_publish(maker, lease, &what, &version, detail), GPUMEM_OK);
		if (i == 0)
			ck_assert_int_eq(
				gm_session_attach(reader, 100, "llama", NULL, 0, 1, false, &opened),
				GPUMEM_OK);
	}
	uint64_t id = gm_session_id(reader);
	gm_session_end_died(maker);
	fake_core_run(&fake);
	restart();
	ck_assert_uint_eq(result.adopted[GM_RECORD_METADATA], 2);
	reader = gm_core_find_session(fake.core, id);
	ck_assert_ptr_nonnull(reader);
	gm_lease_metadata(gm_session_next_lease(reader, NULL), &found);
	is_read(&found, "one");
	ck_assert_uint_eq(found.version, 1);
	fake_ledger_leave(&fake, reader, true);
	fake_core_run(&fake);
	ck_assert_uint_eq(ledger.n_deposits, 1);
}
END_TEST

START_TEST(metadata_that_is_damaged_or_gone_is_given_up)
{
	ck_assert_int_eq(publish(some(), "text"), GPUMEM_OK);
	gm_session_end_died(maker);
	struct fake_record *found = fake_ledger_find(&ledger, GM_RECORD_METADATA, 0);
	struct gm_record_metadata *record = (struct gm_record_metadata *)(void *)found->bytes;
	int fd;

	switch (_i) {
	case 0:
		record->bytes = 5;
		break;
	case 1:
		record->bytes = UINT64_MAX;
		break;
	case 2:
		record->head.uid = 200;
		break;
	case 3: /* not sealed */
		fd = memfd_create("fake", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		ck_assert_int_eq(ftruncate(fd, 4), 0);
		ck_assert_int_ge(dup2(fd, ledger.deposits[0].fd), 0);
		close(fd);
		break;
	default: /* the keeper has lost it */
		close(ledger.deposits[0].fd);
		ledger.n_deposits = 0;
	}
	restart();
	ck_assert_uint_eq(result.damaged[GM_RECORD_METADATA], _i < 4);
	/* A name without its metadata would be another one. */
	ck_assert_uint_eq(result.incomplete, 1);
	ck_assert_uint_eq(result.adopted[GM_RECORD_NAME], 0);
	ck_assert_int_eq(
		gm_core_unpublish(fake.core, &administrator, 100, "llama"), GPUMEM_E_NOT_FOUND);
	fake_core_run(&fake);
	nothing_is_left();
}
END_TEST

/* Every write is the last in turn: the name has the metadata of its version, or does not exist. */
START_TEST(a_daemon_that_dies_while_it_publishes_has_all_of_it_or_nothing)
{
	for (uint64_t step = 1;; step++) {
		struct gm_name_publish what = {
			.text = "llama", .replace = true, .metadata_bytes = 3};
		struct gm_session *s =
			fake_ledger_join(&fake, 100, NULL, (uint8_t[GM_TOKEN_BYTES]){0});
		struct gm_lease *first = fake_lease(&fake, s, 0, 2 * MiB);
		struct gm_lease *second = fake_lease(&fake, s, 0, 4 * MiB);

		ck_assert_int_eq(put(s, first, 3, 0, "one"), GPUMEM_OK);
		ck_assert_int_eq(gm_lease_publish(s, first, &what, &version, detail), GPUMEM_OK);
		ledger.stop_at = ledger.writes + step;
		ck_assert_int_eq(put(s, second, 3, 0, "two"), GPUMEM_OK);
		gm_lease_publish(s, second, &what, &version, detail);
		gm_lease_return(s, first);
		gm_lease_return(s, second);
		bool complete = !ledger.stopped;

		restart();
		ck_assert_uint_eq(result.damaged[GM_RECORD_METADATA], 0);
		struct gm_name *name = fake.core->names;
		struct gm_metadata_info found;
		ck_assert_ptr_nonnull(name);
		gm_lease_metadata(name->lease, &found);
		is_read(&found, name->version == 1 ? "one" : "two");
		for (struct gm_session *each; (each = fake_next_session(&fake, NULL));)
			fake_ledger_leave(&fake, each, true);
		fake_core_run(&fake);
		ck_assert_uint_eq(charged(), gm_metadata_cost(3));
		ck_assert_uint_eq(ledger.n_deposits, 1);
		ck_assert_int_eq(
			gm_core_unpublish(fake.core, &administrator, 100, "llama"), GPUMEM_OK);
		fake_core_run(&fake);
		nothing_is_left();
		if (complete) {
			ck_assert_uint_gt(step, 6);
			return;
		}
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("metadata");
	TCase *tcase = tcase_create("metadata");
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, metadata_is_read_without_attaching);
	tcase_add_test(tcase, nothing_can_change_published_metadata);
	tcase_add_test(tcase, metadata_belongs_to_a_version);
	tcase_add_test(tcase, a_lease_that_is_published_again_has_the_later_metadata);
	tcase_add_test(tcase, a_draft_comes_in_pieces);
	tcase_add_test(tcase, what_is_not_whole_is_sent_again);
	tcase_add_test(tcase, what_cannot_be_kept_is_sent_again);
	tcase_add_test(tcase, longer_metadata_is_refused);
	tcase_add_test(tcase, only_the_maker_sends_metadata);
	tcase_add_loop_test(tcase, a_draft_ends_with_its_maker_or_with_any_publish, 0, 5);
	tcase_add_test(tcase, a_user_has_a_bound_of_its_own_for_metadata);
	tcase_add_test(tcase, a_uid_leaves_metadata_to_others);
	tcase_add_test(tcase, ten_thousand_versions_cost_as_much_as_one);
	tcase_add_test(tcase, metadata_counts_as_a_descriptor_of_its_user);
	tcase_add_test(tcase, metadata_waits_while_descriptors_are_being_closed);
	tcase_add_test(tcase, without_memory_nothing_is_left);
	tcase_add_test(tcase, a_later_daemon_has_the_metadata);
	tcase_add_test(tcase, a_later_daemon_counts_metadata_and_refuses_none_that_is_there);
	tcase_add_test(tcase, a_reader_of_an_older_version_has_it_after_a_restart);
	tcase_add_loop_test(tcase, metadata_that_is_damaged_or_gone_is_given_up, 0, 5);
	tcase_add_test(tcase, a_daemon_that_dies_while_it_publishes_has_all_of_it_or_nothing);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
