/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Limits of one device among several, from the configuration: where they hold and where not, what a
 * reload makes of them, and what the daemon says of those that cannot stand. And a daemon that is
 * to end clients and may not.
 */

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/system/path.h"
#include "tests/integration/raw.h"
#include "tests/tap.h"

#define MiB (UINT64_C(1) << 20)

/* Two devices of host memory, of 256 and 128 MiB, and room for limits. */
#define DEVICES GM_DAEMON_CONFIG_WITH("", "256M") "[device 1]\nsize = 128M\n"

static struct gm_daemon daemon_;
static struct gm_raw a, ctl;

static const char *with_limits(const char *format, ...) __attribute__((format(printf, 1, 2)));

static const char *with_limits(const char *format, ...)
{
	static char text[1024];
	va_list args;
	int n = snprintf(text, sizeof(text), "%s", DEVICES);
	va_start(args, format);
	vsnprintf(text + n, sizeof(text) - (size_t)n, format, args);
	va_end(args);
	return text;
}

static gpumem_status lease(uint32_t device, uint64_t bytes)
{
	struct gm_raw_lease got;
	gpumem_status status = gm_raw_lease(&a, device, bytes, &got);
	if (status == GPUMEM_OK)
		gm_raw_lease_clear(&got);
	return status;
}

/* An owner's limit on a device, as it is shown. NULL: none. Good until the next packet. */
static const Gm__Wire__Limit *limit(const char *owner, uint32_t device)
{
	Gm__Wire__GetLimits body = GM__WIRE__GET_LIMITS__INIT;
	GM_REQUIRE_EQ(gm_raw_call(&ctl, GM_RAW_PACKET(GET_LIMITS, get_limits, &body)), GPUMEM_OK);
	for (size_t i = 0; i < ctl.packet->limits->n_limits; i++) {
		const Gm__Wire__Limit *row = ctl.packet->limits->limits[i];
		if (!strcmp(row->owner, owner) && row->device == device)
			return row;
	}
	return NULL;
}

static const char *own_uid(void)
{
	static char text[32];
	snprintf(text, sizeof(text), "uid:%u", getuid());
	return text;
}

static bool logged(const char *format, ...) __attribute__((format(printf, 1, 2)));

static bool logged(const char *format, ...)
{
	char want[512];
	va_list args;
	va_start(args, format);
	vsnprintf(want, sizeof(want), format, args);
	va_end(args);
	return gm_daemon_said(&daemon_, want) > 0;
}

static void start(const char *config)
{
	gm_daemon_start(&daemon_, &(struct gm_daemon_options){.config = config});
	gm_raw_join(&a, &daemon_);
	/* To set hundreds of limits takes long turns. Administrators do not rest after these on a socket of their own. */
	struct gm_daemon admin = daemon_;
	char path[GM_PATH_BYTES];
	GM_REQUIRE_EQ(gm_path_admin_socket(daemon_.socket, path), 0);
	GM_REQUIRE(snprintf(admin.socket, sizeof(admin.socket), "%s", path) <
		   (int)sizeof(admin.socket));
	gm_raw_observe(&ctl, &admin);
}

static void stop(void)
{
	gm_raw_close(&a);
	gm_raw_close(&ctl);
	gm_daemon_stop(&daemon_);
}

START_TEST(a_devices_own_limit_holds_there_and_nowhere_else)
{
	char want[128];
	start(with_limits("[limit %s]\nmax = 64M\npriority = 2\n[device 1 limit %s]\nmax = 16M\n"
			  "[device 0 limit uid:64999]\nguarantee = 160M\n",
		own_uid(), own_uid()));
	GM_REQUIRE_EQ(lease(1, 18 * MiB), GPUMEM_E_LIMIT);
	snprintf(want, sizeof(want), "%s may hold 16.0M, holds 0B, asked for 18.0M", gm_own_user());
	GM_REQUIRE(strstr(gm_raw_detail(&a), want));
	GM_REQUIRE_EQ(lease(1, 16 * MiB), GPUMEM_OK);
	GM_REQUIRE_EQ(lease(1, 1), GPUMEM_E_LIMIT);
	GM_REQUIRE_EQ(lease(0, 66 * MiB), GPUMEM_E_LIMIT);
	GM_REQUIRE_EQ(lease(0, 64 * MiB), GPUMEM_OK);
	const Gm__Wire__Limit *row = limit(own_uid(), 0);
	GM_REQUIRE(row && row->max == 64 * MiB && row->held == 64 * MiB && row->priority == 2);
	row = limit(own_uid(), 1);
	GM_REQUIRE(row && row->max == 16 * MiB && row->held == 16 * MiB && row->priority == 2);
	GM_REQUIRE(limit("uid:64999", 0) && !limit("uid:64999", 1));
	/* What is guaranteed on device 0 is missing there alone. */
	gm_daemon_reload(&daemon_, with_limits("[device 0 limit uid:64999]\nguarantee = 160M\n"));
	GM_REQUIRE_EQ(lease(0, 34 * MiB), GPUMEM_E_NO_MEMORY);
	GM_REQUIRE_EQ(lease(0, 32 * MiB), GPUMEM_OK);
	GM_REQUIRE_EQ(lease(1, 112 * MiB), GPUMEM_OK);
	stop();
}
END_TEST

START_TEST(a_reload_changes_it_and_what_was_set_at_run_time_stays_until_it_is_reset)
{
	Gm__Wire__SetLimit set = GM__WIRE__SET_LIMIT__INIT;
	Gm__Wire__ResetLimit reset = GM__WIRE__RESET_LIMIT__INIT;
	start(with_limits("[device 1 limit %s]\nmax = 16M\n", own_uid()));
	GM_REQUIRE(!limit(own_uid(), 0));
	GM_REQUIRE_EQ(limit(own_uid(), 1)->max, 16 * MiB);
	set.owner = reset.owner = (char *)own_uid();
	set.device = reset.device = 1;
	set.set = 1;
	set.max = 8 * MiB;
	GM_REQUIRE_EQ(gm_raw_call(&ctl, GM_RAW_PACKET(SET_LIMIT, set_limit, &set)), GPUMEM_OK);
	gm_daemon_reload(&daemon_, with_limits("[device 1 limit %s]\nmax = 32M\npriority = 5\n"
					       "[device 0 limit %s]\nmax = 4M\n",
					   own_uid(), own_uid()));
	GM_REQUIRE_EQ(limit(own_uid(), 0)->max, 4 * MiB);
	GM_REQUIRE_EQ(limit(own_uid(), 0)->run_time, 0);
	GM_REQUIRE_EQ(limit(own_uid(), 1)->max, 8 * MiB);
	GM_REQUIRE_EQ(limit(own_uid(), 1)->run_time, 1);
	GM_REQUIRE_EQ(limit(own_uid(), 1)->priority, 5);
	GM_REQUIRE_EQ(lease(1, 10 * MiB), GPUMEM_E_LIMIT);
	GM_REQUIRE_EQ(
		gm_raw_call(&ctl, GM_RAW_PACKET(RESET_LIMIT, reset_limit, &reset)), GPUMEM_OK);
	GM_REQUIRE_EQ(limit(own_uid(), 1)->max, 32 * MiB);
	GM_REQUIRE_EQ(lease(1, 10 * MiB), GPUMEM_OK);
	/* Without its section it is gone, and what is held is kept. */
	gm_daemon_reload(&daemon_, DEVICES);
	GM_REQUIRE(!limit(own_uid(), 0) && !limit(own_uid(), 1));
	stop();
}
END_TEST

START_TEST(what_cannot_stand_is_told_with_its_line_and_changes_nothing)
{
	start(with_limits("[device 1 limit %s]\nmax = 16M\n", own_uid()));
	gm_daemon_reload(&daemon_, with_limits("[device 2 limit %s]\nmax = 8M\n", own_uid()));
	GM_REQUIRE(logged("%s:11: [device 2 limit %s]: there is no device 2; there are 2, numbered "
			  "from 0",
		daemon_.config, own_uid()));
	gm_daemon_reload(&daemon_, with_limits("[device 1 limit uid:7]\nguarantee = 64M\n"
					       "[device 1 limit uid:8]\nguarantee = 66M\n"));
	GM_REQUIRE(logged("%s:14: guarantee: with 66.0M for uid:8, guarantees on device 1 (",
		daemon_.config));
	GM_REQUIRE(logged(") go beyond its capacity of 128.0M"));
	gm_daemon_reload(
		&daemon_, with_limits("[device 1 limit uid:7]\nguarantee = 64M\nmax = 32M\n"));
	GM_REQUIRE(logged(
		"%s:13: max: on device 1, max (32M) is less than guarantee (64M)", daemon_.config));
	GM_REQUIRE_EQ(limit(own_uid(), 1)->max, 16 * MiB);
	GM_REQUIRE(!limit("uid:7", 1));
	/* As much as there is can stand. */
	gm_daemon_reload(&daemon_, with_limits("[device 1 limit uid:7]\nguarantee = 64M\n"
					       "[device 1 limit uid:8]\nguarantee = 64M\n"));
	GM_REQUIRE_EQ(limit("uid:8", 1)->guarantee, 64 * MiB);
	GM_REQUIRE_EQ(lease(1, 2 * MiB), GPUMEM_E_NO_MEMORY);
	GM_REQUIRE_EQ(lease(0, 256 * MiB), GPUMEM_OK);
	stop();
	/* And nothing starts with what cannot. */
	gm_daemon_prepare(
		&daemon_, &(struct gm_daemon_options){
				  .config = with_limits("[device 5 limit uid:7]\nmax = 1M\n")});
	int status = gm_daemon_spawn(&daemon_);
	GM_REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 78);
	GM_REQUIRE(logged("%s:11: [device 5 limit uid:7]: there is no device 5", daemon_.config));
	gm_daemon_stop(&daemon_);
}
END_TEST

/* ---- the last stage, without the right to it */

/* Takes nearly all there is, and gives nothing back. */
static void eat(int channel, void *argument)
{
	struct gm_raw raw;
	struct gm_raw_lease got;
	gm_become_stranger();
	gm_raw_join(&raw, &daemon_);
	GM_REQUIRE_EQ(gm_raw_lease(&raw, 0, *(uint64_t *)argument, &got), GPUMEM_OK);
	gm_raw_lease_clear(&got);
	gm_text_say_word(channel, 'h');
	gm_hear_word(channel, 'e');
	gm_raw_close(&raw);
}

START_TEST(a_daemon_that_may_not_end_a_client_says_so_at_start_and_in_need_and_refuses)
{
	uint64_t most = 250 * MiB;
	struct gm_worker worker;
	static const char *const without[] = {
		"setpriv", "--bounding-set=-kill", "--inh-caps=-kill", NULL};
	static const char config[] =
		GM_DAEMON_CONFIG_WITH("oom = terminate\noom_wait = 1ms\nafter_action = 1ms\n"
				      "reclaim_deadline = 1ms\n",
			"256M");
	gm_daemon_start(&daemon_, &(struct gm_daemon_options){.config = config, .runner = without});
	GM_REQUIRE(logged("oom = terminate: this daemon cannot end clients of other users"));
	gm_raw_join(&a, &daemon_);
	gm_worker_start(&worker, eat, &most);
	gm_hear_word(worker.channel, 'h');
	GM_UNTIL(logged("should be terminated, but the daemon has no right to"));
	GM_UNTIL(logged("(pid %d, user %d): should be", (int)worker.pid, GM_STRANGER));
	/* It goes no further than refusing, and says it once while it lasts. */
	GM_REQUIRE_EQ(lease(0, 8 * MiB), GPUMEM_E_TIMEOUT);
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).leased, most);
	GM_REQUIRE_EQ(kill(worker.pid, 0), 0);
	GM_REQUIRE_EQ(gm_daemon_said(&daemon_, "should be terminated"), 1);
	gm_text_say_word(worker.channel, 'e');
	gm_worker_join(&worker);
	GM_REQUIRE_EQ(lease(0, 8 * MiB), GPUMEM_OK);
	gm_raw_close(&a);
	gm_daemon_stop(&daemon_);
}
END_TEST

START_TEST(limits_that_no_packet_takes_are_all_listed_each_once)
{
	enum { MANY = 250 };
	bool seen[MANY] = {false};
	unsigned packets = 1, n = 0;
	char owner[32];
	start(DEVICES);
	for (unsigned i = 0; i < MANY; i++) {
		Gm__Wire__SetLimit set = GM__WIRE__SET_LIMIT__INIT;
		snprintf(owner, sizeof(owner), "client:c%u", i);
		set.owner = owner;
		set.set = 1; /* its max */
		set.max = (i + 1) * MiB;
		set.all_devices = true;
		GM_REQUIRE_EQ(
			gm_raw_call(&ctl, GM_RAW_PACKET(SET_LIMIT, set_limit, &set)), GPUMEM_OK);
	}
	Gm__Wire__GetLimits get = GM__WIRE__GET_LIMITS__INIT;
	GM_REQUIRE_EQ(gm_raw_call(&ctl, GM_RAW_PACKET(GET_LIMITS, get_limits, &get)), GPUMEM_OK);
	for (;; packets++) {
		GM_REQUIRE_EQ(ctl.packet->body_case, GM__WIRE__PACKET__BODY_LIMITS);
		for (size_t k = 0; k < ctl.packet->limits->n_limits; k++) {
			const Gm__Wire__Limit *row = ctl.packet->limits->limits[k];
			unsigned i;
			if (row->device != 0)
				continue;
			GM_REQUIRE(sscanf(row->owner, "client:c%u", &i) == 1 && i < MANY);
			GM_REQUIRE(!seen[i]);
			GM_REQUIRE_EQ(row->max, (i + 1) * MiB);
			seen[i] = true;
			n++;
		}
		if (!ctl.packet->more)
			break;
		GM_REQUIRE(gm_raw_receive(&ctl));
	}
	GM_REQUIRE_EQ(n, MANY);
	GM_REQUIRE(packets > 1);
	stop();
}
END_TEST

START_TEST(a_list_longer_than_the_daemon_keeps_for_a_peer_comes_through)
{
	/* On every device there is: 15 of host memory. */
	enum { MANY = 600, NAME = 200, DEVICES_MOST = 15 };
	static bool seen[MANY][DEVICES_MOST];
	size_t n, bytes = 0, rows = 0;
	unsigned devices = gm_on_gpu() ? 2 : DEVICES_MOST;
	char config[1024], owner[NAME + 32];
	n = (size_t)snprintf(config, sizeof(config), "%s", GM_DAEMON_CONFIG_WITH("", "64M"));
	for (unsigned i = 1; i < devices; i++)
		n += (size_t)snprintf(
			config + n, sizeof(config) - n, "[device %u]\nsize = 64M\n", i);
	GM_REQUIRE(n < sizeof(config));
	start(config);
	for (unsigned i = 0; i < MANY; i++) {
		Gm__Wire__SetLimit set = GM__WIRE__SET_LIMIT__INIT;
		snprintf(owner, sizeof(owner), "unit:%0*u.service", NAME, i);
		set.owner = owner;
		set.set = 1; /* its max */
		set.max = (i + 1) * MiB;
		set.all_devices = true;
		GM_REQUIRE_EQ(
			gm_raw_call(&ctl, GM_RAW_PACKET(SET_LIMIT, set_limit, &set)), GPUMEM_OK);
		size_t answered = ctl.packet->limits->n_limits;
		while (ctl.packet->more) {
			GM_REQUIRE(gm_raw_receive(&ctl));
			answered += ctl.packet->limits->n_limits;
		}
		GM_REQUIRE_EQ(answered, devices);
	}
	Gm__Wire__GetLimits get = GM__WIRE__GET_LIMITS__INIT;
	GM_REQUIRE_EQ(gm_raw_call(&ctl, GM_RAW_PACKET(GET_LIMITS, get_limits, &get)), GPUMEM_OK);
	for (;;) {
		GM_REQUIRE_EQ(ctl.packet->body_case, GM__WIRE__PACKET__BODY_LIMITS);
		bytes += gm__wire__packet__get_packed_size(ctl.packet);
		for (size_t k = 0; k < ctl.packet->limits->n_limits; k++) {
			const Gm__Wire__Limit *row = ctl.packet->limits->limits[k];
			unsigned i;
			GM_REQUIRE(sscanf(row->owner, "unit:%u.service", &i) == 1 && i < MANY);
			GM_REQUIRE(row->device < devices && !seen[i][row->device]);
			GM_REQUIRE_EQ(row->max, (i + 1) * MiB);
			seen[i][row->device] = true;
			rows++;
		}
		if (!ctl.packet->more)
			break;
		GM_REQUIRE(gm_raw_receive(&ctl));
	}
	GM_REQUIRE_EQ(rows, MANY * devices);
	if (devices == DEVICES_MOST)
		GM_REQUIRE(bytes > GM_BOUND_SEND_QUEUE_BYTES + 512 * 1024);
	stop();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("limits");
	TCase *tcase = tcase_create("devices");
	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, a_devices_own_limit_holds_there_and_nowhere_else);
	tcase_add_test(
		tcase, a_reload_changes_it_and_what_was_set_at_run_time_stays_until_it_is_reset);
	tcase_add_test(tcase, what_cannot_stand_is_told_with_its_line_and_changes_nothing);
	tcase_add_test(tcase, limits_that_no_packet_takes_are_all_listed_each_once);
	tcase_add_test(tcase, a_list_longer_than_the_daemon_keeps_for_a_peer_comes_through);
	if (GM_TAP_WITH_USERS(
		    a_daemon_that_may_not_end_a_client_says_so_at_start_and_in_need_and_refuses))
		tcase_add_test(tcase,
			a_daemon_that_may_not_end_a_client_says_so_at_start_and_in_need_and_refuses);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
