/* SPDX-License-Identifier: Apache-2.0 */
/* daemon/lease/request.c and daemon/queue/queue_request.c: what is refused and in which words, what is created, and what if that
 * fails. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/tap.h"
#include "tests/unit/core/fake_core.h"
#include "tests/unit/failing_malloc.h"

static struct fake_core fake;
static struct gm_session *s;
static struct fake_request q;
static uint32_t d;

static void setup(void)
{
	struct gm_core_device_info info = fake_info(4 * GiB);
	fake_core_init(&fake);
	d = fake_core_add(&fake, &info);
	s = fake_session(&fake, 1, 1000);
}

static void teardown(void)
{
	fake_core_check(&fake, d);
	fake_core_deinit(&fake);
}

static void refused(gpumem_status status, const char *word)
{
	ck_assert_uint_eq(q.ended, 1);
	ck_assert_int_eq(q.status, status);
	ck_assert_msg(strstr(q.detail, word), "\"%s\" says nothing of %s", q.detail, word);
	fake_core_check(&fake, d);
}

START_TEST(sizes_that_make_no_sense_are_invalid)
{
	static const uint64_t sizes[] = {
		0, GM_LEASE_BYTES_MAX + 1, UINT64_C(1) << 63, UINT64_MAX, UINT64_MAX - 1};
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		fake_ask(&fake, &q, s, d, sizes[i], GM_TRANSPORT_AUTO);
		refused(GPUMEM_E_INVALID, "64.0T");
	}
	struct gm_lease *l = fake_lease(&fake, s, d, MiB);
	fake_grow(&fake, &q, s, l, 0);
	refused(GPUMEM_E_INVALID, "asked for 0 bytes");
	fake_ask(&fake, &q, s, d, 70 * 1024 * GiB, GM_TRANSPORT_AUTO);
	refused(GPUMEM_E_INVALID, "asked for 70.0T; a request is for 1 byte to 64.0T");
	fake_ask(&fake, &q, s, d, GM_LEASE_BYTES_MAX, GM_TRANSPORT_AUTO);
	refused(GPUMEM_E_NO_MEMORY, "asked for 64.0T");
	ck_assert_uint_eq(gm_session_held(s, d), 2 * MiB);
}
END_TEST

START_TEST(one_chunk_is_made_to_measure_and_never_pooled)
{
	gm_lease_return(s, fake_lease(&fake, s, d, 8 * MiB));
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 8 * MiB);

	/* More than the largest chunk of the pool, and no power of two; and what the pool has, too. */
	static const uint64_t sizes[] = {GiB + 6 * MiB, 8 * MiB, 2 * MiB};
	struct gm_lease *leases[3];
	fake.one_chunk = true;
	for (size_t i = 0; i < 3; i++) {
		leases[i] = fake_lease(&fake, s, d, sizes[i]);
		const struct gm_chunk *chunk = gm_lease_chunk(leases[i], 0);
		ck_assert_uint_eq(chunk->bytes, sizes[i]);
		ck_assert_ptr_null(chunk->next);
	}
	ck_assert_uint_eq(gm_session_held(s, d), GiB + 16 * MiB);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 8 * MiB);
	for (size_t i = 0; i < 3; i++)
		gm_lease_return(s, leases[i]);
	fake_core_run(&fake);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 8 * MiB);
	ck_assert_uint_eq(gm_session_held(s, d), 0);

	/* Nor is it when nobody wants it any more. */
	fake_ask(&fake, &q, s, d, 6 * MiB, GM_TRANSPORT_FD);
	gm_core_cancel(fake.core, &q.r);
	fake_core_run(&fake);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 8 * MiB);
}
END_TEST

START_TEST(one_chunk_has_whole_2_mib_and_a_descriptor)
{
	fake.one_chunk = true;
	fake_ask(&fake, &q, s, d, 3 * MiB, GM_TRANSPORT_FD);
	refused(GPUMEM_E_INVALID, "whole 2 MiB");
	fake_ask(&fake, &q, s, d, UINT64_C(1) << 63, GM_TRANSPORT_FD);
	refused(GPUMEM_E_INVALID, "64.0T");
	fake_ask(&fake, &q, s, d, 2 * MiB, GM_TRANSPORT_IPC);
	refused(GPUMEM_E_UNSUPPORTED, "fd transport");
	fake_ask(&fake, &q, s, d, 8 * GiB, GM_TRANSPORT_FD);
	refused(GPUMEM_E_NO_MEMORY, "asked for 8.0G");

	/* Where the device has no fd transport, the daemon must not choose the other one. */
	struct gm_core_device_info info = fake_info(GiB);
	struct fake_core other;
	info.transport_fd = false;
	info.transport_ipc = true;
	fake_core_init(&other);
	uint32_t ipc = fake_core_add(&other, &info);
	other.one_chunk = true;
	fake_ask(&other, &q, fake_session(&other, 1, 1), ipc, 2 * MiB, GM_TRANSPORT_AUTO);
	refused(GPUMEM_E_UNSUPPORTED, "no fd transport");
	fake_core_deinit(&other);
}
END_TEST

START_TEST(an_unknown_device_or_transport_is_refused)
{
	fake_ask(&fake, &q, s, 1, MiB, GM_TRANSPORT_AUTO);
	refused(GPUMEM_E_NOT_FOUND, "no device 1");
	fake_ask(&fake, &q, s, UINT32_MAX, MiB, GM_TRANSPORT_AUTO);
	refused(GPUMEM_E_NOT_FOUND, "no device");
	fake_ask(&fake, &q, s, d, MiB, GM_TRANSPORT_IPC);
	refused(GPUMEM_E_UNSUPPORTED, "no ipc transport");
	fake_ask(&fake, &q, s, d, MiB, (enum gm_transport)7);
	refused(GPUMEM_E_INVALID, "transport 7");
}
END_TEST

START_TEST(a_transport_is_had_by_name_where_the_device_has_it)
{
	struct gm_core_device_info info = fake_info(GiB);
	struct fake_core other;
	fake_ask(&fake, &q, s, d, MiB, GM_TRANSPORT_FD);
	fake_core_run(&fake);
	ck_assert_int_eq(q.status, GPUMEM_OK);
	fake_core_init(&other);
	info.transport_ipc = true;
	uint32_t both = fake_core_add(&other, &info);
	info.transport_fd = false;
	uint32_t ipc = fake_core_add(&other, &info);
	info.transport_ipc = false;
	uint32_t none = fake_core_add(&other, &info);
	struct gm_session *x = fake_session(&other, 1, 1);
	struct gm_lease_info got;
	gm_lease_info(fake_lease(&other, x, both, MiB), x, &got);
	ck_assert_int_eq(got.transport, GM_TRANSPORT_FD);
	gm_lease_info(fake_lease(&other, x, ipc, MiB), x, &got);
	ck_assert_int_eq(got.transport, GM_TRANSPORT_IPC);
	fake_ask(&other, &q, x, both, MiB, GM_TRANSPORT_IPC);
	fake_core_run(&other);
	ck_assert_int_eq(q.status, GPUMEM_OK);
	fake_ask(&other, &q, x, ipc, MiB, GM_TRANSPORT_FD);
	ck_assert_int_eq(q.status, GPUMEM_E_UNSUPPORTED);
	fake_ask(&other, &q, x, none, MiB, GM_TRANSPORT_AUTO);
	ck_assert_int_eq(q.status, GPUMEM_E_UNSUPPORTED);
	fake_core_deinit(&other);
}
END_TEST

START_TEST(a_request_that_names_no_transport_gets_the_configured_one)
{
	struct gm_core_device_info info = fake_info(GiB);
	struct fake_core other;
	struct gm_lease_info got;
	fake_core_init(&other);
	info.transport_ipc = true;
	info.policy.transport = GM_TRANSPORT_IPC;
	uint32_t both = fake_core_add(&other, &info);
	info.transport_ipc = false;
	info.ipc_why = "nobody made it";
	uint32_t fd = fake_core_add(&other, &info);
	struct gm_session *x = fake_session(&other, 1, 1);

	gm_lease_info(fake_lease(&other, x, both, MiB), x, &got);
	ck_assert_int_eq(got.transport, GM_TRANSPORT_IPC);
	fake_ask(&other, &q, x, fd, MiB, GM_TRANSPORT_AUTO);
	ck_assert_int_eq(q.status, GPUMEM_E_UNSUPPORTED);
	ck_assert_str_eq(q.detail,
		"device 1 has no ipc transport: nobody made it; gpumemd.conf asks for it: set transport = auto");
	other.signals = true;
	fake_ask(&other, &q, x, both, MiB, GM_TRANSPORT_AUTO);
	ck_assert_int_eq(q.status, GPUMEM_E_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(q.detail, "signals need the fd transport"));
	fake_core_deinit(&other);
}
END_TEST

START_TEST(a_tag_is_a_short_printable_text)
{
	static const char *const tags[] = {"wakeup\a", "\xff",
		"0123456789012345678901234567890123456789012345678901234567890123"};
	for (size_t i = 0; i < sizeof(tags) / sizeof(tags[0]); i++) {
		memset(&q, 0, sizeof(q));
		q.r = (struct gm_request){.session = s,
			.device = d,
			.bytes = MiB,
			.tag = tags[i],
			.done = fake_request_done};
		gm_core_request(fake.core, &q.r);
		refused(GPUMEM_E_INVALID, "a tag must be printable UTF-8 of at most 63 bytes");
	}
}
END_TEST

START_TEST(a_refusal_names_the_figures)
{
	fake_lease(&fake, s, d, 3 * GiB);
	fake_ask(&fake, &q, s, d, 2 * GiB, GM_TRANSPORT_AUTO);
	refused(GPUMEM_E_NO_MEMORY, "device 0 has 1.0G available of 4.0G, asked for 2.0G");
	ck_assert_ptr_null(strstr(q.detail, "outside"));
	ck_assert_ptr_null(strstr(q.detail, "too much"));
	/* If rounding hides the reason, it says what is too much. */
	fake_ask(&fake, &q, s, d, GiB + 2 * MiB, GM_TRANSPORT_AUTO);
	refused(GPUMEM_E_NO_MEMORY,
		"device 0 has 1.0G available of 4.0G, asked for 1.0G (2.0M too much)");
	gm_core_sample(fake.core, d, 0);
	fake_ask(&fake, &q, s, d, GiB, GM_TRANSPORT_AUTO);
	refused(GPUMEM_E_NO_MEMORY, "1.0G are used outside the broker");
	/* Without it, there would not be enough either. */
	fake_ask(&fake, &q, s, d, 2 * GiB, GM_TRANSPORT_AUTO);
	refused(GPUMEM_E_NO_MEMORY, "see gpumemctl clients");
	ck_assert_ptr_null(strstr(q.detail, "outside"));
	struct gm_core_counters counters;
	gm_core_counters(fake.core, &counters);
	ck_assert_uint_eq(counters.requests, 5);
	ck_assert_uint_eq(counters.refusals, 4);
}
END_TEST

START_TEST(all_that_is_available_can_be_had_to_the_last_chunk)
{
	/* Neither is rounded: the next size with fewer chunks is more than 1/64 away. */
	fake_lease(&fake, s, d, 4 * GiB - 128 * MiB);
	fake_lease(&fake, s, d, 126 * MiB);
	fake_lease(&fake, s, d, 1);
	fake_ask(&fake, &q, s, d, 1, GM_TRANSPORT_AUTO);
	refused(GPUMEM_E_NO_MEMORY, "0B available");
}
END_TEST

START_TEST(memory_is_charged_before_it_is_created)
{
	struct fake_request other;
	fake_ask(&fake, &q, s, d, 3 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_uint_eq(q.ended, 0);
	ck_assert_uint_eq(fake_figures(&fake, d).admitted, 3 * GiB);
	ck_assert_uint_eq(gm_session_held(s, d), 3 * GiB);
	fake_ask(&fake, &other, s, d, 2 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_int_eq(other.status, GPUMEM_E_NO_MEMORY);
	/* In any order; the lease has them in one order. */
	fake_core_complete(&fake, 2, 0);
	fake_core_complete(&fake, 0, 0);
	ck_assert_uint_eq(fake_figures(&fake, d).admitted, GiB);
	ck_assert_uint_eq(q.ended, 0);
	fake_core_complete(&fake, 0, 0);
	ck_assert_int_eq(q.status, GPUMEM_OK);
	ck_assert_uint_eq(fake_figures(&fake, d).leased, 3 * GiB);
	uint64_t index = 0;
	for (const struct gm_chunk *c = gm_lease_chunk(q.r.lease, 0); c; c = c->next)
		ck_assert_uint_eq(c->index, index++);
	ck_assert_uint_eq(index, 3);
}
END_TEST

START_TEST(a_hit_ends_before_the_call_returns)
{
	gm_lease_return(s, fake_lease(&fake, s, d, 64 * MiB));
	fake_ask(&fake, &q, s, d, 64 * MiB, GM_TRANSPORT_AUTO);
	ck_assert_uint_eq(q.ended, 1);
	ck_assert_int_eq(q.status, GPUMEM_OK);
	ck_assert_uint_eq(fake.n_jobs, 0);
	ck_assert_uint_eq(fake_pool(&fake, d).hits, 1);
	ck_assert_uint_eq(fake_pool(&fake, d).misses, 1);
	ck_assert_uint_eq(fake_pool(&fake, d).returns, 1);
}
END_TEST

START_TEST(another_domain_gets_new_chunks)
{
	struct gm_session *other = fake_session(&fake, 2, 1000);
	struct gm_lease *l = fake_lease(&fake, s, d, 64 * MiB);
	uint64_t id = gm_lease_chunk(l, 0)->id;
	gm_lease_return(s, l);
	l = fake_lease(&fake, other, d, 64 * MiB);
	ck_assert_uint_ne(gm_lease_chunk(l, 0)->id, id);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 64 * MiB);
}
END_TEST

START_TEST(pooled_chunks_of_the_wrong_kind_make_room)
{
	struct gm_session *other = fake_session(&fake, 2, 1001);
	gm_lease_return(s, fake_lease(&fake, s, d, 2 * GiB));
	gm_lease_return(other, fake_lease(&fake, other, d, 2 * GiB));
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 4 * GiB);
	/* For domain 1: its own two are used, the other's go. */
	fake_ask(&fake, &q, s, d, 3 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_uint_eq(fake_core_count(&fake, true), 1);
	ck_assert_uint_eq(fake_core_count(&fake, false), 1);
	fake_core_check(&fake, d);
	fake_core_run(&fake);
	ck_assert_int_eq(q.status, GPUMEM_OK);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, GiB);
}
END_TEST

START_TEST(room_is_made_before_anything_is_created_and_from_others_first)
{
	struct gm_policy p = fake_figures(&fake, d).policy;
	fake_no_levels(&p);
	gm_core_set_policy(fake.core, d, &p);
	struct gm_session *other = fake_session(&fake, 2, 1001);
	fake_lease(&fake, fake_session(&fake, 3, 1002), d, 2 * GiB + 512 * MiB);
	gm_lease_return(s, fake_lease(&fake, s, d, 512 * MiB));
	gm_lease_return(other, fake_lease(&fake, other, d, GiB));
	ck_assert_uint_eq(fake_figures(&fake, d).created, 4 * GiB);
	/* Domain 1 used the pool longer ago, but it is the one that asks. */
	fake_ask(&fake, &q, s, d, 256 * MiB, GM_TRANSPORT_AUTO);
	ck_assert_uint_eq(fake.n_jobs, 2);
	ck_assert(fake.jobs[0].destroy);
	ck_assert_uint_eq(fake.jobs[0].chunk->domain, 2);
	ck_assert(!fake.jobs[1].destroy);
	fake_core_run(&fake);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 512 * MiB);
}
END_TEST

START_TEST(out_of_memory_drops_the_pool_and_tries_once_more)
{
	gm_lease_return(s, fake_lease(&fake, s, d, 256 * MiB));
	fake_ask(&fake, &q, s, d, GiB, GM_TRANSPORT_IPC);
	fake_ask(&fake, &q, s, d, 2 * MiB, GM_TRANSPORT_AUTO);
	fake_core_complete(&fake, 0, -ENOMEM);
	ck_assert_uint_eq(q.ended, 0);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 0);
	ck_assert_uint_eq(fake_core_count(&fake, true), 1);
	ck_assert_uint_eq(fake_core_count(&fake, false), 1);
	fake_core_run(&fake);
	ck_assert_int_eq(q.status, GPUMEM_OK);
}
END_TEST

START_TEST(out_of_memory_twice_is_refused_and_names_foreign_use)
{
	fake_ask(&fake, &q, s, d, 66 * MiB, GM_TRANSPORT_AUTO);
	ck_assert_uint_eq(fake.n_jobs, 2);
	fake_core_complete(&fake, 0, -ENOMEM);
	fake_core_complete(&fake, 0, -ENOMEM);
	ck_assert_uint_eq(fake.n_jobs, 2);
	gm_core_sample(fake.core, d, GiB);
	fake_core_complete(&fake, 0, -ENOMEM);
	refused(GPUMEM_E_NO_MEMORY, "3.0G of it are used outside the broker");
	ck_assert_uint_eq(gm_session_held(s, d), 0);
	/* The other one was under way: nobody waits for it, so it is pooled as fresh. */
	fake_core_complete(&fake, 0, 0);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 2 * MiB);
}
END_TEST

/* Whoever asks and cancels holds nothing, and must not keep the device from others by it. */
START_TEST(what_is_cancelled_before_it_is_begun_is_not_made)
{
	struct gm_session *other = fake_session(&fake, 2, 2000);
	fake.calls_off = true;
	/* What is begun is not lost: it is pooled, and the rest is not made. */
	fake_ask(&fake, &q, s, d, 6 * MiB, GM_TRANSPORT_AUTO);
	fake_core_complete(&fake, 1, 0);
	gm_core_cancel(fake.core, &q.r);
	ck_assert_uint_eq(fake_core_count(&fake, false), 0);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 2 * MiB);
	for (int i = 0; i < 1000; i++) {
		fake_ask(&fake, &q, s, d, 4 * GiB, GM_TRANSPORT_AUTO);
		ck_assert_uint_gt(fake_core_count(&fake, false), 1);
		gm_core_cancel(fake.core, &q.r);
		refused(GPUMEM_E_CANCELLED, "took the request back");
		ck_assert_uint_eq(fake_core_count(&fake, false), 0);
	}
	fake_ask(&fake, &q, other, d, 4 * GiB, GM_TRANSPORT_AUTO);
	fake_core_run(&fake);
	ck_assert_int_eq(q.status, GPUMEM_OK);
}
END_TEST

START_TEST(another_failure_of_the_backend_is_told_at_once)
{
	fake_ask(&fake, &q, s, d, GiB, GM_TRANSPORT_AUTO);
	fake_core_complete(&fake, 0, -EIO);
	refused(GPUMEM_E_SYSTEM, strerror(EIO));
	ck_assert_uint_eq(fake.n_jobs, 0);
}
END_TEST

START_TEST(a_daemon_without_descriptors_says_so_and_what_to_do)
{
	static const int errors[] = {-EMFILE, -ENFILE};
	fake_ask(&fake, &q, s, d, GiB, GM_TRANSPORT_AUTO);
	fake_core_complete(&fake, 0, errors[_i]);
	refused(GPUMEM_E_LIMIT, "raise its LimitNOFILE=");
	ck_assert_uint_eq(gm_session_held(s, d), 0);
}
END_TEST

START_TEST(a_refused_request_gives_back_what_it_found_in_the_pool)
{
	gm_lease_return(s, fake_lease(&fake, s, d, 64 * MiB));
	fake_ask(&fake, &q, s, d, 128 * MiB, GM_TRANSPORT_AUTO);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 0);
	fake_core_complete(&fake, 0, -EIO);
	refused(GPUMEM_E_SYSTEM, "device 0");
	/* Still the domain's own: another one does not get it. */
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 64 * MiB);
	fake_ask(&fake, &q, fake_session(&fake, 2, 2), d, 64 * MiB, GM_TRANSPORT_AUTO);
	ck_assert_uint_eq(q.ended, 0);
	fake_core_run(&fake);
}
END_TEST

START_TEST(only_the_maker_grows_a_lease_and_ipc_leases_do_not_grow)
{
	struct gm_core_device_info info = fake_info(4 * GiB);
	struct fake_core ipc;
	info.transport_fd = false;
	info.transport_ipc = true;
	fake_core_init(&ipc);
	uint32_t n = fake_core_add(&ipc, &info);
	struct gm_session *x = fake_session(&ipc, 1, 1);
	struct gm_lease *l = fake_lease(&ipc, x, n, 70 * MiB);
	ck_assert_uint_eq(fake_chunks(l), 1);
	ck_assert_uint_eq(gm_session_held(x, n), 80 * MiB);
	fake_grow(&ipc, &q, x, l, MiB);
	ck_assert_int_eq(q.status, GPUMEM_E_UNSUPPORTED);
	fake_core_deinit(&ipc);

	struct gm_session *other = fake_session(&fake, 1, 1000);
	struct gm_lease *opened;
	uint8_t token[GM_TOKEN_BYTES];
	l = fake_lease(&fake, s, d, MiB);
	ck_assert_int_eq(gm_lease_share(s, l, &(struct gm_token_options){0}, token), GPUMEM_OK);
	ck_assert_int_eq(gm_session_open(other, token, NULL, 0, &opened), GPUMEM_OK);
	fake_grow(&fake, &q, other, opened, MiB);
	refused(GPUMEM_E_DENIED, "made a lease");
}
END_TEST

START_TEST(a_tag_that_is_too_long_is_invalid)
{
	char tag[GM_BOUND_NAME_BYTES + 2];
	memset(tag, 'x', sizeof(tag));
	tag[sizeof(tag) - 1] = 0;
	memset(&q, 0, sizeof(q));
	fake_ask(&fake, &q, s, d, MiB, GM_TRANSPORT_AUTO);
	fake_core_run(&fake);
	struct fake_request again = q;
	again.ended = 0;
	again.r.lease = NULL;
	again.r.tag = tag;
	gm_core_request(fake.core, &again.r);
	ck_assert_int_eq(again.status, GPUMEM_E_INVALID);
	tag[GM_BOUND_NAME_BYTES] = 0;
	again.ended = 0;
	gm_core_request(fake.core, &again.r);
	fake_core_run(&fake);
	ck_assert_int_eq(again.status, GPUMEM_OK);
	struct gm_lease_info info;
	gm_lease_info(again.r.lease, s, &info);
	ck_assert_str_eq(info.tag, tag);
}
END_TEST

/* A user with many small leases must not use up anything but memory: what is guaranteed to another
 * user stays free for it. */
START_TEST(memory_is_the_only_bound_on_chunks)
{
	enum { MANY = 10240 };
	struct gm_core_device_info info = fake_info(64 * GiB);
	const struct gm_owner owner = {.kind = GM_OWNER_UID, .id = 2};
	const struct gm_limit_values kept = {.set = GM_LIMIT_GUARANTEE, .guarantee = 8 * GiB};
	char why[GM_DETAIL_BYTES];
	struct fake_core big;
	fake_core_init(&big);
	uint32_t n = fake_core_add(&big, &info);
	ck_assert_int_eq(gm_core_set_limit(big.core, &owner, n, &kept, why), GPUMEM_OK);
	struct gm_session *x = fake_session(&big, 1, 1), *y = fake_session(&big, 2, 2);
	struct gm_lease *l = fake_lease(&big, x, n, 2 * MiB);
	for (int i = 1; i < MANY; i++) {
		fake_grow(&big, &q, x, l, 2 * MiB);
		ck_assert_uint_eq(big.n_jobs, 1);
		fake_core_complete(&big, 0, 0);
		ck_assert_int_eq(q.status, GPUMEM_OK);
	}
	ck_assert_uint_eq(fake_figures(&big, n).chunks, MANY);
	fake_ask(&big, &q, y, n, 8 * GiB, GM_TRANSPORT_AUTO);
	fake_core_run(&big);
	ck_assert_int_eq(q.status, GPUMEM_OK);
	fake_core_check(&big, n);
	fake_core_deinit(&big);
}
END_TEST

START_TEST(each_allocation_that_fails_is_a_refusal_and_nothing_else)
{
	/* One failure after the other, until a request needs no more of them. */
	int failures = 0;
	for (uint64_t n = 1;; n++) {
		failing_malloc_arm(n);
		fake_ask(&fake, &q, s, d, 66 * MiB, GM_TRANSPORT_AUTO);
		bool fired = failing_malloc_fired();
		if (fired)
			refused(GPUMEM_E_HOST_MEMORY, "no memory");
		else
			ck_assert_uint_eq(q.ended, 0);
		ck_assert_uint_eq(gm_session_lease_count(s), 0);
		if (!fired)
			break;
		failures++;
		ck_assert_uint_eq(fake.n_jobs, 0);
	}
	ck_assert_int_ge(failures, 3);
	/* The last step needs some too: the session's table of leases. */
	ck_assert_uint_eq(fake.n_jobs, 2);
	fake_core_complete(&fake, 0, 0);
	failing_malloc_arm(1);
	fake_core_complete(&fake, 0, 0);
	ck_assert(failing_malloc_fired());
	refused(GPUMEM_E_HOST_MEMORY, "no memory");
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 66 * MiB);
	ck_assert_uint_eq(gm_session_held(s, d), 0);
}
END_TEST

static void ask_again(struct gm_request *request, gpumem_status status, const char *detail)
{
	struct fake_request *first = (struct fake_request *)request;
	first->ended++;
	first->status = status;
	if (status == GPUMEM_OK)
		gm_lease_return(request->session, request->lease);
	fake_ask(&fake, &q, request->session, d, MiB, GM_TRANSPORT_AUTO);
}

START_TEST(what_done_asks_for_is_served)
{
	struct fake_request first = {
		.r = {.session = s, .device = d, .bytes = MiB, .done = ask_again}};
	gm_core_request(fake.core, &first.r);
	fake_core_complete(&fake, 0, 0);
	ck_assert_uint_eq(first.ended, 1);
	ck_assert_uint_eq(q.ended, 1);
	ck_assert_int_eq(q.status, GPUMEM_OK);
	/* A request that a quarantine ends may ask as well, and is told no. */
	first.r.lease = NULL;
	first.r.bytes = GiB;
	first.ended = 0;
	gm_core_request(fake.core, &first.r);
	gm_session_quarantine(s);
	ck_assert_int_eq(first.status, GPUMEM_E_CANCELLED);
	ck_assert_int_eq(q.status, GPUMEM_E_DISCONNECTED);
}
END_TEST

static struct gm_session *survivor;

static void ask_for_another(struct gm_request *request, gpumem_status status, const char *detail)
{
	struct fake_request *first = (struct fake_request *)request;
	first->status = status;
	fake_ask(&fake, &q, survivor, d, MiB, GM_TRANSPORT_AUTO);
}

START_TEST(nothing_is_granted_while_the_daemon_stops)
{
	struct fake_request first = {
		.r = {.session = s, .device = d, .bytes = MiB, .done = ask_for_another}};
	survivor = fake_session(&fake, 1, 1000);
	gm_core_request(fake.core, &first.r);
	gm_core_shutdown(fake.core);
	ck_assert_int_eq(first.status, GPUMEM_E_CANCELLED);
	refused(GPUMEM_E_DISCONNECTED, "stopping");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("request");
	TCase *tcase = tcase_create("request");
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, sizes_that_make_no_sense_are_invalid);
	tcase_add_test(tcase, one_chunk_is_made_to_measure_and_never_pooled);
	tcase_add_test(tcase, one_chunk_has_whole_2_mib_and_a_descriptor);
	tcase_add_test(tcase, an_unknown_device_or_transport_is_refused);
	tcase_add_test(tcase, a_transport_is_had_by_name_where_the_device_has_it);
	tcase_add_test(tcase, a_request_that_names_no_transport_gets_the_configured_one);
	tcase_add_test(tcase, a_tag_is_a_short_printable_text);
	tcase_add_test(tcase, a_refusal_names_the_figures);
	tcase_add_test(tcase, all_that_is_available_can_be_had_to_the_last_chunk);
	tcase_add_test(tcase, memory_is_charged_before_it_is_created);
	tcase_add_test(tcase, a_hit_ends_before_the_call_returns);
	tcase_add_test(tcase, another_domain_gets_new_chunks);
	tcase_add_test(tcase, pooled_chunks_of_the_wrong_kind_make_room);
	tcase_add_test(tcase, room_is_made_before_anything_is_created_and_from_others_first);
	tcase_add_test(tcase, out_of_memory_drops_the_pool_and_tries_once_more);
	tcase_add_test(tcase, out_of_memory_twice_is_refused_and_names_foreign_use);
	tcase_add_test(tcase, what_is_cancelled_before_it_is_begun_is_not_made);
	tcase_add_test(tcase, another_failure_of_the_backend_is_told_at_once);
	tcase_add_loop_test(tcase, a_daemon_without_descriptors_says_so_and_what_to_do, 0, 2);
	tcase_add_test(tcase, a_refused_request_gives_back_what_it_found_in_the_pool);
	tcase_add_test(tcase, only_the_maker_grows_a_lease_and_ipc_leases_do_not_grow);
	tcase_add_test(tcase, a_tag_that_is_too_long_is_invalid);
	tcase_add_test(tcase, memory_is_the_only_bound_on_chunks);
	tcase_add_test(tcase, each_allocation_that_fails_is_a_refusal_and_nothing_else);
	tcase_add_test(tcase, what_done_asks_for_is_served);
	tcase_add_test(tcase, nothing_is_granted_while_the_daemon_stops);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
