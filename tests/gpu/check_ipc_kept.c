/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Handles of the ipc transport that somebody kept: they never open what another trust domain has
 * since. One source for the fake driver (make check) and a real GPU (make check-gpu).
 */

#include "tests/gpu/broker.h"

#define KEPT (8 * MIB)

/* Nothing is pooled, so what is returned is freed and its place is to be had. */
#define NO_POOL IPC_CONFIG "max_pool = 0\n"

/* Has a block all the time, so that the daemon's context stays: in a new one numbers begin anew. */
static void stayer(int channel, void *argument)
{
	gpumem_buffer *buffer;
	join("stayer");
	use_gpu();
	OK(create(KEPT, GPUMEM_TRANSPORT_IPC, &buffer));
	gm_text_say_word(channel, 'h');
	gm_hear_word(channel, 'e');
	gpumem_buffer_destroy(buffer);
	gpumem_disconnect(session);
}

/* Has a block, tells its handle and gives it back; of another uid by any argument. */
static void former(int channel, void *argument)
{
	unsigned char handle[GPUMEM_IPC_HANDLE_BYTES];
	gpumem_buffer *buffer;
	if (argument)
		become(UID_A);
	join("former");
	use_gpu();
	OK(create(KEPT, GPUMEM_TRANSPORT_IPC, &buffer));
	OK(gpumem_buffer_ipc_handle(buffer, handle));
	gpumem_buffer_destroy(buffer);
	gpumem_disconnect(session);
	gm_text_say(channel, handle, sizeof(handle));
}

/* The same with a block that another uid opens meanwhile. */
static void sharer(int channel, void *argument)
{
	gpumem_share_options options = GPUMEM_SHARE_OPTIONS_INIT;
	gpumem_buffer *buffer;
	gpumem_token token;
	options.audience = GPUMEM_AUDIENCE_UID;
	options.id = UID_A;
	options.flags = GPUMEM_READERS_CAN_WRITE;
	join("sharer");
	use_gpu();
	OK(create_for_others(KEPT, GPUMEM_TRANSPORT_IPC, &buffer));
	OK(gpumem_share(buffer, &options, &token));
	gm_text_say(channel, &token, sizeof(token));
	gm_hear_word(channel, 'o');
	gpumem_buffer_destroy(buffer);
	gpumem_disconnect(session);
}

static void guest(int channel, void *argument)
{
	unsigned char handle[GPUMEM_IPC_HANDLE_BYTES];
	gpumem_buffer *buffer;
	gpumem_token token;
	become(UID_A);
	gm_hear(channel, &token, sizeof(token));
	join("guest");
	use_gpu();
	OK(gpumem_open(session, &token, &buffer));
	OK(gpumem_buffer_ipc_handle(buffer, handle));
	gpumem_buffer_destroy(buffer);
	gpumem_disconnect(session);
	gm_text_say(channel, handle, sizeof(handle));
}

/* Has blocks of the same size now, with something in them. */
static void successor(int channel, void *argument)
{
	gpumem_buffer *buffer[4];
	join("successor");
	use_gpu();
	for (int i = 0; i < 4; i++) {
		OK(create(KEPT, GPUMEM_TRANSPORT_IPC, &buffer[i]));
		GM_REQUIRE(all(gpumem_buffer_ptr(buffer[i]), KEPT, 0, NULL));
		fill(gpumem_buffer_ptr(buffer[i]), KEPT, 0x66, NULL);
	}
	CU(cuda->cuStreamSynchronize(NULL));
	gm_text_say_word(channel, 'h');
	gm_hear_word(channel, 'e');
	for (int i = 0; i < 4; i++) {
		GM_REQUIRE(all(gpumem_buffer_ptr(buffer[i]), KEPT, 0x66, NULL));
		gpumem_buffer_destroy(buffer[i]);
	}
	gpumem_disconnect(session);
}

/* Says whether the handle opens anything. */
static void keeper(int channel, void *argument)
{
	gm_cu_ipc_mem handle;
	gm_cu_ptr ptr;
	become(UID_A);
	gm_hear(channel, &handle, sizeof(handle));
	use_gpu();
	bool opens =
		cuda->cuIpcOpenMemHandle(&ptr, handle, GM_CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) == 0;
	gm_text_say(channel, &opens, sizeof(opens));
}

static void an_old_handle_opens_nothing_of_a_successor(
	const unsigned char handle[GPUMEM_IPC_HANDLE_BYTES])
{
	struct gm_worker now, keep;
	bool opens;
	GM_UNTIL(gm_figures_now(&daemon_).leased == KEPT);
	gm_worker_start(&now, successor, NULL);
	gm_hear_word(now.channel, 'h');
	gm_worker_start(&keep, keeper, NULL);
	gm_text_say(keep.channel, handle, GPUMEM_IPC_HANDLE_BYTES);
	gm_hear(keep.channel, &opens, sizeof(opens));
	gm_worker_join(&keep);
	GM_REQUIRE(!opens);
	end_worker(&now);
}

/* Another uid; or the same one, where every client is a domain of its own. The second time with the
 * places that the first successor had, too. */
START_TEST(an_old_handle_does_not_open_what_another_domain_has_since)
{
	unsigned char handle[GPUMEM_IPC_HANDLE_BYTES];
	struct gm_worker before, stay;
	start_with(_i ? IPC_CONFIG "trust = client\n" : NO_POOL);
	gm_worker_start(&stay, stayer, NULL);
	gm_hear_word(stay.channel, 'h');
	for (int round = 0; round < 2; round++) {
		gm_worker_start(&before, former, _i ? NULL : "");
		gm_hear(before.channel, handle, sizeof(handle));
		gm_worker_join(&before);
		an_old_handle_opens_nothing_of_a_successor(handle);
	}
	end_worker(&stay);
}
END_TEST

START_TEST(a_handle_that_another_domain_was_given_does_not_open_what_its_maker_has_since)
{
	unsigned char handle[GPUMEM_IPC_HANDLE_BYTES];
	struct gm_worker a, b, stay;
	gpumem_token token;
	start_with(NO_POOL);
	gm_worker_start(&stay, stayer, NULL);
	gm_hear_word(stay.channel, 'h');
	gm_worker_start(&a, sharer, NULL);
	gm_worker_start(&b, guest, NULL);
	gm_hear(a.channel, &token, sizeof(token));
	gm_text_say(b.channel, &token, sizeof(token));
	gm_hear(b.channel, handle, sizeof(handle));
	gm_worker_join(&b);
	gm_text_say_word(a.channel, 'o');
	gm_worker_join(&a);
	an_old_handle_opens_nothing_of_a_successor(handle);
	end_worker(&stay);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ipc handles that are kept");
	TCase *t = tcase_create("ipc");
	tcase_set_timeout(t, 120);
	tcase_add_checked_fixture(t, NULL, tear_down);
	if (GM_TAP_WITH_USERS(an_old_handle_does_not_open_what_another_domain_has_since))
		tcase_add_loop_test(
			t, an_old_handle_does_not_open_what_another_domain_has_since, 0, 2);
	if (GM_TAP_WITH_USERS(
		    a_handle_that_another_domain_was_given_does_not_open_what_its_maker_has_since))
		tcase_add_test(t,
			a_handle_that_another_domain_was_given_does_not_open_what_its_maker_has_since);
	suite_add_tcase(s, t);
	return gm_tap_run(s);
}
