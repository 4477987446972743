/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Journal entries about memory: the id, the fields and the line of every event, and that gpumemd(8)
 * documents all of them. Also the way to the journal's socket, where the test can put a socket of
 * its own in its place.
 */

#include <ctype.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/log.h"
#include "daemon/device/limit.h"
#include "daemon/serve/journal.h"
#include "daemon/service.h"
#include "tests/tap.h"
#include "tests/unit/core/fake_core.h"

static struct fake_core fake;
static struct gm_session *session;
static struct gm_identity identity = {.pid = 4711, .uid = 1002, .pidfd = -1, .command = "python3"};
static struct gm_owner owner;

static struct {
	unsigned lines;
	enum gm_log_level level;
	char message[1024];
	char fields[32][512];
	size_t n;
} last;

static void sink(enum gm_log_level level, const char *message, const char *const *fields)
{
	last.lines++;
	last.level = level;
	snprintf(last.message, sizeof(last.message), "%s", message);
	for (last.n = 0; fields[last.n]; last.n++)
		snprintf(last.fields[last.n], sizeof(last.fields[0]), "%s", fields[last.n]);
}

static const char *field(const char *name)
{
	const char *found = NULL;
	for (size_t i = 0; i < last.n; i++) {
		size_t n = strlen(name);
		if (strncmp(last.fields[i], name, n) || last.fields[i][n] != '=')
			continue;
		ck_assert_msg(!found, "%s is there twice", name);
		found = last.fields[i] + n + 1;
	}
	return found;
}

static void is(const char *name, const char *value)
{
	const char *got = field(name);
	ck_assert_msg(
		got && !strcmp(got, value), "%s is %s, not %s", name, got ? got : "missing", value);
}

static void setup(void)
{
	struct gm_core_device_info info = fake_info(GiB);
	fake_core_init(&fake);
	fake_core_add(&fake, &info);
	session = fake_session(&fake, 1, 1002);
	gm_owner_by_id(GM_OWNER_UID, 1002, &owner);
	memset(&last, 0, sizeof(last));
	gm_log_set_level(GM_LOG_DEBUG);
	gm_log_set_sink(sink);
}

static void teardown(void)
{
	gm_log_set_sink(NULL);
	fake_core_deinit(&fake);
}

static char *manual(void)
{
	char path[4096], *text = NULL;
	size_t room = 0;
	const char *top = getenv("top_srcdir");
	snprintf(path, sizeof(path), "%s/man/gpumemd.8.scd", top ? top : ".");
	FILE *file = fopen(path, "re");
	ck_assert_msg(file != NULL, "%s cannot be read", path);
	ck_assert_int_gt(getdelim(&text, &room, '\0', file), 0);
	fclose(file);
	return text;
}

/* Checks what every event must have, and that the manual documents it. */
static void check_event(const char *kind, const char *id)
{
	char row[256];
	char *page = manual();
	ck_assert_uint_eq(last.lines, 1);
	last.lines = 0;
	is("GPUMEM_EVENT", kind);
	is("MESSAGE_ID", id);
	ck_assert_uint_eq(strlen(id), 32);
	ck_assert_uint_eq(strspn(id, "0123456789abcdef"), 32);
	ck_assert_ptr_null(strchr(last.message, '\n'));
	ck_assert_uint_gt(strlen(last.message), 10);
	snprintf(row, sizeof(row), "|  %s: ", kind);
	const char *told = strstr(page, row);
	ck_assert_msg(told != NULL, "gpumemd(8) does not tell of %s", kind);
	snprintf(row, sizeof(row), "\n:- %s\n", id);
	ck_assert_msg(strstr(told, row) && strstr(told, row) < strstr(told + 1, "\n\n"),
		"gpumemd(8) has another id for %s", kind);
	ck_assert_ptr_eq(strstr(told, "\n:- "), strstr(told, row));
	for (size_t i = 0; i < last.n; i++) {
		size_t n = strcspn(last.fields[i], "=");
		if (!strncmp(last.fields[i], "MESSAGE_ID", n) ||
			!strncmp(last.fields[i], "ERRNO", n))
			continue;
		for (size_t k = 0; k < n; k++)
			ck_assert(isupper((unsigned char)last.fields[i][k]) ||
				  last.fields[i][k] == '_');
		snprintf(row, sizeof(row), "*%.*s*", (int)n, last.fields[i]);
		ck_assert_msg(strstr(page, row), "gpumemd(8) does not tell of %s", row);
	}
	free(page);
}

static void tell(struct gm_event event)
{
	char text[GM_JOURNAL_TEXT];
	event.text = "what came to pass";
	gm_journal_text(&event, event.session ? &identity : NULL, "trainer", text);
	gm_journal_event(&event, event.session ? &identity : NULL, text);
}

/* Checks that the entry says which client it is about. */
static void check_client(void)
{
	char id[32];
	snprintf(id, sizeof(id), "%llu", (unsigned long long)gm_session_id(session));
	is("GPUMEM_CLIENT", id);
	is("GPUMEM_PID", "4711");
	is("GPUMEM_UID", "1002");
	ck_assert_str_eq(last.message, "trainer (pid 4711, user 1002): what came to pass");
}

START_TEST(a_limit_that_is_met_says_whose_and_how_much)
{
	tell((struct gm_event){.kind = GM_EVENT_LIMIT,
		.device = 3,
		.session = session,
		.owner = &owner,
		.asked = 2,
		.held = 5,
		.max = 6,
		.status = GPUMEM_E_LIMIT});
	check_client();
	is("GPUMEM_DEVICE", "3");
	is("GPUMEM_OWNER", "uid:1002");
	is("GPUMEM_ASKED", "2");
	is("GPUMEM_HELD", "5");
	is("GPUMEM_MAX", "6");
	ck_assert_int_eq(last.level, GM_LOG_NOTICE);
	check_event("limit", GM_MESSAGE_LIMIT);
}
END_TEST

START_TEST(a_request_that_waits_is_followed_to_its_end)
{
	tell((struct gm_event){
		.kind = GM_EVENT_QUEUED, .session = session, .asked = 2, .priority = -10});
	check_client();
	is("GPUMEM_ASKED", "2");
	is("GPUMEM_PRIORITY", "-10");
	check_event("queued", GM_MESSAGE_QUEUED);
	tell((struct gm_event){
		.kind = GM_EVENT_RESTS, .session = session, .asked = 2, .priority = -10});
	check_client();
	is("GPUMEM_ASKED", "2");
	is("GPUMEM_PRIORITY", "-10");
	ck_assert_int_eq(last.level, GM_LOG_INFO);
	check_event("rests", GM_MESSAGE_RESTS);
	tell((struct gm_event){.kind = GM_EVENT_GRANTED,
		.session = session,
		.asked = 2,
		.waited_ns = UINT64_C(1500000000)});
	is("GPUMEM_WAITED_MS", "1500");
	ck_assert_ptr_null(field("GPUMEM_STATUS"));
	check_event("granted", GM_MESSAGE_GRANTED);
	tell((struct gm_event){.kind = GM_EVENT_REFUSED,
		.session = session,
		.asked = 2,
		.status = GPUMEM_E_TIMEOUT});
	char status[16];
	snprintf(status, sizeof(status), "%d", GPUMEM_E_TIMEOUT);
	is("GPUMEM_STATUS", status);
	ck_assert_int_eq(last.level, GM_LOG_NOTICE);
	check_event("refused", GM_MESSAGE_REFUSED);
	tell((struct gm_event){.kind = GM_EVENT_CANCELLED,
		.session = session,
		.asked = 2,
		.status = GPUMEM_E_CANCELLED});
	ck_assert_int_eq(last.level, GM_LOG_INFO);
	check_event("cancelled", GM_MESSAGE_CANCELLED);
}
END_TEST

START_TEST(a_reclaim_says_what_for_and_what_came)
{
	static const char *const triggers[] = {"request", "pressure", "min-free", "manual"};
	for (unsigned t = 0; t < GM_TRIGGERS; t++) {
		tell((struct gm_event){.kind = GM_EVENT_RECLAIM_STARTED,
			.trigger = (enum gm_reclaim_trigger)t,
			.need = 7,
			.stages = {1, 2}});
		is("GPUMEM_TRIGGER", triggers[t]);
		is("GPUMEM_NEED", "7");
		is("GPUMEM_BYTES", "3");
		ck_assert_ptr_null(field("GPUMEM_REACHED"));
		ck_assert_ptr_null(field("GPUMEM_CLIENT"));
		check_event("reclaim-started", GM_MESSAGE_RECLAIM_STARTED);
	}
	tell((struct gm_event){.kind = GM_EVENT_RECLAIM_ENDED, .reached = true, .stages = {4, 4}});
	is("GPUMEM_REACHED", "1");
	is("GPUMEM_BYTES", "8");
	check_event("reclaim-ended", GM_MESSAGE_RECLAIM_ENDED);
	tell((struct gm_event){
		.kind = GM_EVENT_IGNORED, .session = session, .asked = 9, .bytes = 4});
	check_client();
	is("GPUMEM_ASKED", "9");
	is("GPUMEM_BYTES", "4");
	/* Limits that the same user runs against do not hide it. */
	ck_assert_int_eq(last.level, GM_LOG_NOTICE);
	ck_assert_int_eq(gm_journal_counts_as(GM_EVENT_IGNORED), GM_LOG_WARNING);
	ck_assert_int_eq(gm_journal_counts_as(GM_EVENT_LIMIT), GM_LOG_NOTICE);
	check_event("ignored", GM_MESSAGE_IGNORED);
	/* 0 bytes are said, not left out. */
	tell((struct gm_event){.kind = GM_EVENT_IGNORED, .session = session, .asked = 9});
	is("GPUMEM_ASKED", "9");
	is("GPUMEM_BYTES", "0");
	check_event("ignored", GM_MESSAGE_IGNORED);
}
END_TEST

START_TEST(an_end_by_force_is_a_warning_with_its_victim)
{
	tell((struct gm_event){
		.kind = GM_EVENT_VICTIM, .session = session, .held = 8, .priority = -3});
	check_client();
	is("GPUMEM_HELD", "8");
	is("GPUMEM_PRIORITY", "-3");
	ck_assert_ptr_null(field("ERRNO"));
	ck_assert_int_eq(last.level, GM_LOG_WARNING);
	check_event("terminated", GM_MESSAGE_TERMINATED);
	tell((struct gm_event){.kind = GM_EVENT_VICTIM, .session = session, .error = -EPERM});
	is("ERRNO", "1");
	check_event("terminated", GM_MESSAGE_TERMINATED);
}
END_TEST

START_TEST(a_level_says_what_is_left_and_what_is_done)
{
	static const char *const levels[] = {"low", "medium", "high", "critical"};
	struct gm_device_figures figures = {
		.available = 3 * GiB, .capacity = 72 * GiB, .foreign = GiB, .pressure_ppm = 958333};
	for (unsigned l = 0; l < GM_LEVELS; l++) {
		char want[128];
		figures.level = (enum gm_pressure_level)l;
		gm_journal_pressure(1, &figures);
		is("GPUMEM_LEVEL", levels[l]);
		is("GPUMEM_PRESSURE_PPM", "958333");
		is("GPUMEM_AVAILABLE", "3221225472");
		is("GPUMEM_FOREIGN", "1073741824");
		is("GPUMEM_DEVICE", "1");
		snprintf(want, sizeof(want), "device 1: pressure is %s: 3.0G of 72.0G available; ",
			levels[l]);
		ck_assert_ptr_eq(strstr(last.message, want), last.message);
		check_event("pressure", GM_MESSAGE_PRESSURE);
	}
}
END_TEST

START_TEST(who_changes_limits_is_named)
{
	gm_journal_limits(&identity, "uid:7", "now max 1.0G");
	is("GPUMEM_UID", "1002");
	is("GPUMEM_OWNER", "uid:7");
	ck_assert_str_eq(
		last.message, "user 1002 (python3, pid 4711) changed limits: uid:7 now max 1.0G");
	check_event("limits", GM_MESSAGE_LIMITS_SET);
	/* Owners are shown by name, where the name is known. */
	char name[GM_JOURNAL_OWNER];
	gm_uid_name_read("/etc/passwd");
	ck_assert_str_eq(gm_journal_owner("uid:0", name), "uid:root");
	gm_uid_name_read("/nowhere/at/all");
	ck_assert_str_eq(gm_journal_owner("uid:0", name), "uid:0");
	ck_assert_str_eq(gm_journal_owner("unit:uid:0", name), "unit:uid:0");
	/* The one id that belongs to no event. */
	char *page = manual();
	ck_assert_ptr_nonnull(strstr(page, ":- " GM_MESSAGE_POWERLESS "\n"));
	free(page);
}
END_TEST

START_TEST(a_limit_that_contradicts_the_configuration_is_named_with_the_remedy)
{
	struct gm_limit_values set = {.set = GM_LIMIT_MAX, .max = 50 * MiB};
	struct gm_limit_values now = {
		.set = GM_LIMIT_MAX | GM_LIMIT_GUARANTEE, .max = 50 * MiB, .guarantee = 50 * MiB};

	gm_journal_contradiction(&owner, 3, &set, &now, "WHY");
	is("GPUMEM_DEVICE", "3");
	is("GPUMEM_OWNER", "uid:1002");
	ck_assert_int_eq(last.level, GM_LOG_WARNING);
	ck_assert_str_eq(last.message,
		"user 1002, device 3: the limit that was set at run time (max 50.0M) contradicts the configuration (WHY): the max stays, and the guarantee is now 50.0M; to use the configuration: gpumemctl limit reset uid:1002");
	check_event("contradiction", GM_MESSAGE_CONTRADICTION);

	set = (struct gm_limit_values){
		.set = GM_LIMIT_GUARANTEE | GM_LIMIT_PRIORITY, .guarantee = 100 * MiB};
	now = (struct gm_limit_values){.set = GM_LIMIT_PRIORITY};
	gm_journal_contradiction(&owner, 0, &set, &now, "WHY");
	ck_assert_str_eq(last.message,
		"user 1002, device 0: guarantee 100.0M, set at run time, contradicts the configuration and is dropped (WHY); change the configuration, or set it again: gpumemctl limit set uid:1002");
	check_event("contradiction", GM_MESSAGE_CONTRADICTION);
}
END_TEST

START_TEST(who_drains_a_device_is_named)
{
	gm_journal_drain(&identity, 3, false);
	is("GPUMEM_UID", "1002");
	is("GPUMEM_DEVICE", "3");
	ck_assert_str_eq(last.message, "user 1002 (python3, pid 4711) drains device 3");
	check_event("drain", GM_MESSAGE_DRAIN);
	gm_journal_drain(&identity, 3, true);
	ck_assert_str_eq(last.message, "user 1002 (python3, pid 4711) ended the drain of device 3");
}
END_TEST

/* Puts a socket of the test in the place of the journal's. Returns -1 if that is not possible. */
static int own_journal(void)
{
	struct sockaddr_un address = {
		.sun_family = AF_UNIX, .sun_path = "/run/systemd/journal/socket"};
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
		mount("tmpfs", "/run", "tmpfs", 0, NULL) < 0)
		return -1;
	ck_assert_int_eq(mkdir("/run/systemd", 0755), 0);
	ck_assert_int_eq(mkdir("/run/systemd/journal", 0755), 0);
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	return fd;
}

START_TEST(the_journal_gets_the_line_and_its_fields)
{
	char stream[64], entry[4096];
	struct stat st;
	int journal = own_journal();
	if (journal < 0) {
		puts("# no mount namespace of our own: not tried with a journal's socket");
		return;
	}
	gm_log_set_sink(NULL);
	ck_assert_int_eq(fstat(STDERR_FILENO, &st), 0);
	snprintf(stream, sizeof(stream), "%llu:%llu", (unsigned long long)st.st_dev,
		(unsigned long long)st.st_ino);
	setenv("JOURNAL_STREAM", stream, 1);
	gm_service_init_log();
	gm_journal_limits(&identity, "uid:7", "now max 1.0G");
	ssize_t n = recv(journal, entry, sizeof(entry) - 1, MSG_DONTWAIT);
	ck_assert_int_gt(n, 0);
	entry[n] = '\0';
	ck_assert_ptr_nonnull(strstr(entry, "MESSAGE_ID=" GM_MESSAGE_LIMITS_SET "\n"));
	ck_assert_ptr_nonnull(strstr(entry, "GPUMEM_EVENT=limits\n"));
	ck_assert_ptr_nonnull(strstr(entry, "GPUMEM_OWNER=uid:7\n"));
	ck_assert_ptr_nonnull(strstr(entry, "PRIORITY=5\n"));
	ck_assert_ptr_nonnull(strstr(entry,
		"MESSAGE=user 1002 (python3, pid 4711) changed limits: uid:7 now max 1.0G\n"));
	close(journal);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("journal");
	TCase *tcase = tcase_create("journal");
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_limit_that_is_met_says_whose_and_how_much);
	tcase_add_test(tcase, a_request_that_waits_is_followed_to_its_end);
	tcase_add_test(tcase, a_reclaim_says_what_for_and_what_came);
	tcase_add_test(tcase, an_end_by_force_is_a_warning_with_its_victim);
	tcase_add_test(tcase, a_level_says_what_is_left_and_what_is_done);
	tcase_add_test(tcase, who_changes_limits_is_named);
	tcase_add_test(tcase, a_limit_that_contradicts_the_configuration_is_named_with_the_remedy);
	tcase_add_test(tcase, who_drains_a_device_is_named);
	tcase_add_test(tcase, the_journal_gets_the_line_and_its_fields);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
