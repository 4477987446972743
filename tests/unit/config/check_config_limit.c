/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * The sections of the configuration that say who may hold what, on all devices or on one: how
 * owners are named, what contradicts what, and what does not fit the devices.
 */

#include "tests/bound.h"
#include "tests/tap.h"
#include "tests/unit/config/config_fixture.h"

START_TEST(limits_are_read_with_their_owners_by_name_or_number)
{
	accept_text("[limit uid:root]\nmax = 48G\nguarantee = 8G\npriority = -10\n"
		    "[limit gid:4711]\nmax = none\n"
		    "[limit unit:training@1.service]\npriority = 1000\n"
		    "[Limit container:Box 7]\nmax = 0\n[limit\tclient:a b]\nmax=1B\n");
	ck_assert_uint_eq(config->n_limits, 5);
	const struct gm_config_limit *l = config->limits;
	ck_assert_str_eq(l[0].owner, "uid:0");
	ck_assert(l[0].values.set == GM_LIMIT_ALL);
	ck_assert_uint_eq(l[0].values.max, UINT64_C(48) << 30);
	ck_assert_uint_eq(l[0].values.guarantee, UINT64_C(8) << 30);
	ck_assert_int_eq(l[0].values.priority, -10);
	ck_assert_str_eq(l[1].owner, "gid:4711");
	ck_assert(l[1].values.set == GM_LIMIT_MAX);
	ck_assert_uint_eq(l[1].values.max, UINT64_MAX);
	ck_assert_str_eq(l[2].owner, "unit:training@1.service");
	ck_assert_int_eq(l[2].values.priority, 1000);
	ck_assert_str_eq(l[3].owner, "container:Box 7");
	ck_assert_uint_eq(l[3].values.max, 0);
	ck_assert_str_eq(l[4].owner, "client:a b");
	expect("limit uid:0", "max", "48G", ":2");
	expect("limit container:Box 7", "max", "0", ":10");
}
END_TEST

START_TEST(the_name_of_an_owner_may_have_any_character_and_its_case_counts)
{
	accept_text("[limit unit:A.service]\nmax = 1G\n[limit unit:a.service]\nmax = 2G\n"
		    "[limit client:Ünit!]\nmax = 3G\n[device 0 limit client:]x]\nmax = 4G\n");
	ck_assert_uint_eq(config->n_limits, 4);
	expect("limit unit:A.service", "max", "1G", ":2");
	expect("limit unit:a.service", "max", "2G", ":4");
	expect("limit client:Ünit!", "max", "3G", ":6");
	expect("device 0 limit client:]x", "max", "4G", ":8");
}
END_TEST

START_TEST(an_owners_limit_may_stand_in_several_files_under_several_names)
{
	put_drop_in("a.conf", "[limit uid:0]\nmax = 2G\n");
	put_drop_in("b.conf", "[limit uid:root]\npriority = 3\n");
	accept_text("[limit uid:root]\nmax = 1G\nguarantee = 1G\n");
	ck_assert_uint_eq(config->n_limits, 1);
	ck_assert_uint_eq(config->limits[0].values.max, UINT64_C(2) << 30);
	ck_assert_uint_eq(config->limits[0].values.guarantee, UINT64_C(1) << 30);
	ck_assert_int_eq(config->limits[0].values.priority, 3);
	expect("limit uid:0", "max", "2G", "/a.conf:2");
	expect("limit uid:0", "priority", "3", "/b.conf:2");
}
END_TEST

START_TEST(owners_that_there_are_not_are_named_with_their_line)
{
	refuse_text("[limit uid:nobody-has-this-name]\nmax = 1G\n"
		    "[limit gid:nor-this]\nmax = 1G\n"
		    "[limit uid:4294967295]\nmax = 1G\n"
		    "[limit unit:training]\nmax = 1G\n"
		    "[limit unit:a b.service]\nmax = 1G\n"
		    "[limit session:7]\nmax = 1G\n"
		    "[limit uid:]\nmax = 1G\n[limit]\n[limits uid:0]\n",
		"1: [limit uid:nobody-has-this-name]: there is no user \"nobody-has-this-name\"\n"
		"3: [limit gid:nor-this]: there is no group \"nor-this\"\n"
		"5: [limit uid:4294967295]: \"4294967295\" is too large for a uid\n"
		"7: [limit unit:training]: \"training\" is not a unit's name; did you mean "
		"training.service?\n"
		"9: [limit unit:a b.service]: \"a b.service\" is not a unit's name\n"
		"11: [limit session:7]: \"session:7\" names no owner; write uid:, gid:, unit:, container: or client: and a name\n"
		"13: [limit uid:]: \"uid:\" needs a name after the colon\n"
		"15: [limit]: \"\" names no owner; write uid:, gid:, unit:, container: or client: and a name\n"
		"16: [limits uid:0]: unknown section; did you mean [limit uid:0]?");
}
END_TEST

START_TEST(limits_that_contradict_each_other_are_refused)
{
	refuse_text("[limit uid:0]\nmax = 1G\nguarantee = 2G\n",
		"3: guarantee: max (1G) is less than guarantee (2G)");
	refuse_text("[limit uid:0]\nguarantee = 2G\n[limit unit:a.service]\nguarantee = 1G\n",
		"4: guarantee: guarantees can be given to one kind of owner only, and uid:0 has one");
	refuse_text("[limit client:x]\nguarantee = 2G\n",
		"2: guarantee: clients choose their own names, so nothing can be guaranteed to a name; use uid:, gid:, unit: or container:");
	refuse_text("[limit uid:0]\n",
		"1: [limit uid:0]: sets nothing; set max, guarantee or priority");
	refuse_text("[limit uid:0]\nmaximum = 1G\nfraction = 0.5\npriority = 1001\n"
		    "[gpumemd]\nmax = 1G\noom = kill\n[limit uid:root]\npriority = 1.5\n",
		"2: maximum: unknown key; see gpumemd.conf(5)\n"
		"3: fraction: belongs in [gpumemd], not in [limit uid:0]\n"
		"4: priority: \"1001\" is not between -1000 and 1000\n"
		"6: max: belongs in a [limit OWNER] section, not in [gpumemd]\n"
		"7: oom: \"kill\" is not one of refuse, wait, terminate\n"
		"9: priority: is already set on line 4");
	/* No guarantee at all is none that could count twice. */
	accept_text("[limit uid:0]\nguarantee = 1G\n[limit gid:0]\nguarantee = 0\n");
}
END_TEST

START_TEST(a_devices_own_limit_goes_over_that_for_all_devices_key_by_key)
{
	put_drop_in("a.conf", "[device 1 limit uid:0]\npriority = 3\n");
	accept_text("[device 1 limit uid:root]\nmax = 1G\n"
		    "[limit uid:root]\nmax = 2G\nguarantee = 1G\n"
		    "[DEVICE\t0  Limit client:device 1 limit]\nmax = none\n"
		    "[device 15 limit unit:a.service]\npriority = -1\n");
	ck_assert_uint_eq(config->n_limits, 4);
	const struct gm_config_limit *l = config->limits;
	ck_assert_str_eq(l[0].owner, "uid:0");
	ck_assert_uint_eq(l[0].device, 1);
	ck_assert(l[0].values.set == (GM_LIMIT_MAX | GM_LIMIT_PRIORITY));
	ck_assert_uint_eq(l[0].values.max, UINT64_C(1) << 30);
	ck_assert_int_eq(l[0].values.priority, 3);
	ck_assert_str_eq(l[1].owner, "uid:0");
	ck_assert_uint_eq(l[1].device, GM_CONFIG_ALL_DEVICES);
	ck_assert_uint_eq(l[1].values.max, UINT64_C(2) << 30);
	/* Whatever a name is made of. */
	ck_assert_str_eq(l[2].owner, "client:device 1 limit");
	ck_assert_uint_eq(l[2].device, 0);
	ck_assert_uint_eq(l[3].device, 15);
	/* It names no device that would have to be there. */
	ck_assert_uint_eq(config->n_devices, 0);
	expect("limit uid:0", "max", "2G", ":4");
	expect("device 1 limit uid:0", "max", "1G", ":2");
	expect("device 1 limit uid:0", "priority", "3", "/a.conf:2");
}
END_TEST

START_TEST(a_devices_own_limit_that_makes_no_sense_is_refused)
{
	refuse_text("[device 16 limit uid:0]\nmax = 1G\n[device one limit uid:0]\nmax = 1G\n"
		    "[device 99999999999999999999999999 limit uid:0]\nmax = 1G\n"
		    "[device 0 limit]\nmax = 1G\n[device 0 limit session:1]\nmax = 1G\n"
		    "[device 1 limits uid:0]\nmax = 1G\n[device limit uid:0]\nmax = 1G\n",
		"1: [device 16 limit uid:0]: devices are numbered from 0 to 15, or named by UUID or PCI address\n"
		"3: [device one limit uid:0]: devices are numbered from 0 to 15, or named by UUID or PCI address\n"
		"5: [device 99999999999999999999999999 limit uid:0]: devices are numbered from 0 to "
		"15, or named by UUID or PCI address\n"
		"7: [device 0 limit]: \"\" names no owner; write uid:, gid:, unit:, container: or client: and a name\n"
		"9: [device 0 limit session:1]: \"session:1\" names no owner; write uid:, gid:, unit:, container: or client: and a name\n"
		"11: [device 1 limits uid:0]: unknown section; did you mean [device 0 limit uid:0]?\n"
		"13: [device limit uid:0]: unknown section; did you mean [device 0 limit uid:0]?");
	refuse_text("[device 0 limit uid:0]\nsize = 1G\nmax = 1G\n[device 00 limit uid:root]\n"
		    "max = 2G\n[device 0]\nmax = 3G\n",
		"2: size: belongs in a [device N] section, not in [device 0 limit uid:0]\n"
		"5: max: is already set on line 3\n"
		"7: max: belongs in a [limit OWNER] section, not in [device 0]");
	refuse_text("[device 0 limit uid:0]\n",
		"1: [device 0 limit uid:0]: sets nothing; set max, guarantee or priority");
}
END_TEST

START_TEST(limits_contradict_each_other_across_sections)
{
	/* Told at the one that was written later, wherever it stands. */
	refuse_text("[limit uid:0]\nguarantee = 2G\n[device 1 limit uid:0]\nmax = 1G\n",
		"4: max: on device 1, max (1G) is less than guarantee (2G)");
	refuse_text("[device 1 limit uid:0]\nguarantee = 2G\n[limit uid:0]\nmax = 1G\n",
		"4: max: on device 1, max (1G) is less than guarantee (2G)");
	refuse_text("[device 1 limit uid:0]\npriority = 1\nmax = 1G\nguarantee = 2G\n",
		"4: guarantee: on device 1, max (1G) is less than guarantee (2G)");
	/* Once, not for each device that changes nothing about it. */
	refuse_text("[limit uid:0]\nmax = 1G\nguarantee = 2G\n[device 1 limit uid:0]\npriority=1\n",
		"3: guarantee: max (1G) is less than guarantee (2G)");
	refuse_text("[device 0 limit uid:0]\nguarantee = 1G\n"
		    "[device 1 limit gid:0]\nguarantee = 1G\n"
		    "[device 1 limit client:x]\nguarantee = 1G\n",
		"4: guarantee: guarantees can be given to one kind of owner only, and uid:0 has one\n"
		"6: guarantee: clients choose their own names, so nothing can be guaranteed to a name; use uid:, gid:, unit: or container:");
	accept_text(
		"[limit uid:0]\nmax = 1G\n[device 1 limit uid:0]\nmax = none\nguarantee = 2G\n");
}
END_TEST

/* For a daemon on this machine that is told to use host memory. */
static int load_for_host(const char *text)
{
	static const struct gm_config_known host = {.backend = "host"};
	forget();
	put(path, text, strlen(text));
	return gm_config_load_for(path, &host, &config, &error);
}

static void fits(const char *text)
{
	int r = load_for_host(text);
	ck_assert_msg(r == 0, "refused: %s\n%s", error, text);
}

static void does_not_fit(const char *text, const char *expected)
{
	char want[1024];
	ck_assert_int_eq(load_for_host(text), -EINVAL);
	snprintf(want, sizeof(want), expected, path, path);
	ck_assert_str_eq(error, want);
}

START_TEST(limits_are_held_against_the_devices)
{
#define HOST "[gpumemd]\nmin_free=0\nfraction=1\nhost_limit=64M\n[device 0]\nsize=1G\n"
	fits(HOST "[device 1]\nsize=256M\n[limit uid:0]\nguarantee=64M\n"
		  "[device 0 limit uid:7]\nguarantee=960M\n[device 2 limit gid:7]\nmax=1T\n");
	/* Pinned memory, the last device, is too small for that. */
	does_not_fit(HOST "[limit uid:0]\nguarantee=66M\n",
		"%s:8: guarantee: with 66.0M for uid:0, guarantees on device 1 go beyond its "
		"capacity of 64.0M; [device N limit OWNER] sets it for one device");
	/* The one that is too much is told, and every device; one of its own counts instead. */
	does_not_fit(HOST "[limit uid:0]\nguarantee=64M\n[device 0 limit uid:7]\nguarantee=962M\n"
			  "[device 1 limit uid:0]\nguarantee=0\n[device 2 limit uid:3]\nmax=1G\n",
		"%s:10: guarantee: with 962.0M for uid:7, guarantees on device 0 go beyond its "
		"capacity of 1.0G\n"
		"%s:13: [device 2 limit uid:3]: there is no device 2; there are 2, numbered "
		"from 0");
	/* What only the machine knows is not judged here. */
	fits("[gpumemd]\nhost_limit=0\n[limit uid:0]\nguarantee=64T\n");
	does_not_fit("[gpumemd]\nhost_limit=0\n[device 1 limit uid:0]\nguarantee=64T\n",
		"%s:3: [device 1 limit uid:0]: there is no device 1; there is 1, numbered from 0");
	/* Where the file is not to be used here, it is not judged at all. */
	accept_text(HOST "[limit uid:0]\nguarantee=66M\n");
#undef HOST
}
END_TEST

START_TEST(limits_are_held_against_the_devices_that_there_are)
{
	static const struct gm_config_known two = {.n = 2,
		.devices = {{.pci = "", .total = UINT64_C(1) << 30},
			{.pci = "", .total = 64 << 20, .pinned = true}}};
	static const char text[] = "[gpumemd]\nmin_free = 24M\nfraction = 1\nbackend = cuda\n"
				   "[limit uid:0]\nguarantee = 64M\n"
				   "[device 0 limit uid:1]\nguarantee = 937M\n"
				   "[device 2 limit uid:1]\nmax = 1G\n";
	char want[1024];
	put(path, text, strlen(text));
	ck_assert_int_eq(gm_config_load_for(path, &two, &config, &error), -EINVAL);
	snprintf(want, sizeof(want),
		"%s:8: guarantee: with 937.0M for uid:1, guarantees on device 0 go beyond its "
		"capacity of 1000.0M\n"
		"%s:9: [device 2 limit uid:1]: there is no device 2; there are 2, numbered from 0",
		path, path);
	ck_assert_str_eq(error, want);
}
END_TEST

START_TEST(what_the_devices_make_useless_is_warned_about)
{
	struct gm_config_known here = {.n = 2,
		.sized = true,
		.ram = UINT64_C(23) << 30,
		.devices = {{.pci = "", .name = "host memory 0", .total = UINT64_C(900) << 30},
			{.pci = "", .name = "pinned memory", .total = 1 << 30, .pinned = true}}};
	static const char text[] = "[gpumemd]\nbackend = auto\nhost_limit = 24G\n"
				   "[device 0]\nsize = 900G\n[device 1]\nfraction = 0.5\n"
				   "[device ff:00.0]\nreserve = 0\nfraction = 0.5\n";
	char want[2048];
	put(path, text, strlen(text));
	ck_assert_int_eq(gm_config_load_for(path, &here, &config, &error), 0);
	snprintf(want, sizeof(want),
		"%1$s:3: host_limit: 24.0G are more than the 23.0G of host memory here: the kernel ends "
		"processes before clients can use all of it; lower it, or write host_limit = auto\n"
		"%1$s:5: size: 900.0G are more than the 23.0G of host memory here: the kernel ends "
		"processes before clients can use all of it; write a smaller size\n"
		"%1$s:7: [device 1] has no effect: there is 1 device here, numbered from 0; "
		"pinned host memory has the settings of [gpumemd]\n"
		"%1$s:9: [device ff:00.0] has no effect: no device here has this name; see gpumemctl "
		"devices",
		path);
	ck_assert_str_eq(config->warnings, want);

	/* A size that fits, and an empty section, which has no line of its own. */
	put(path, "[device 0]\nsize = 23G\n[device 1]\n", 33);
	forget();
	ck_assert_int_eq(gm_config_load_for(path, &here, &config, &error), 0);
	ck_assert_str_eq(config->warnings,
		"[device 1] has no effect: there is 1 device here, numbered from 0; pinned host memory has the settings of [gpumemd]");

	/* GPUs have the size that they have. */
	here.sized = false;
	put(path, text, strlen(text));
	forget();
	ck_assert_int_eq(gm_config_load_for(path, &here, &config, &error), 0);
	ck_assert_ptr_nonnull(
		strstr(config->warnings, ":5: size of [device 0] has no effect: it is for "
					 "the host backend, and device 0 is a GPU (host "
					 "memory 0)\n"));

	/* Settings that limit nothing. */
	static const char idle[] =
		"[limit uid:0]\nmax = 901G\n"
		"[limit uid:1]\nmax = 900G\n[device 0 limit uid:1]\nmax = 1T\n"
		"[device pinned limit uid:2]\nmax = 2G\n[limit uid:3]\nmax = none\n";
	put(path, idle, strlen(idle));
	forget();
	ck_assert_int_eq(gm_config_load_for(path, &here, &config, &error), 0);
	snprintf(want, sizeof(want),
		"%1$s:2: max: 901.0G for uid:0 is more than any device here has (900.0G), so it limits "
		"nothing; write a smaller max, or none\n"
		"%1$s:6: max: 1.0T for uid:1 is more than device 0 (host memory 0) has (900.0G), so it "
		"limits nothing; write a smaller max, or none\n"
		"%1$s:8: max: 2.0G for uid:2 is more than device 1 (pinned memory) has (1.0G), so it "
		"limits nothing; write a smaller max, or none",
		path);
	ck_assert_str_eq(config->warnings, want);

	/* Nothing is warned about where nothing is known. */
	accept_text(text);
	ck_assert_str_eq(config->warnings, "");
}
END_TEST

/* A device of 512 MiB, whose default of min_free leaves nothing. */
static struct gm_config_known small_device(void)
{
	return (struct gm_config_known){
		.n = 1, .devices = {{.pci = "", .name = "GPU", .total = 512 << 20}}};
}

static void expect_mistake(const struct gm_config_known *known, const char *text, const char *what)
{
	char want[512];

	put(path, text, strlen(text));
	forget();
	ck_assert_int_eq(gm_config_load_for(path, known, &config, &error), -EINVAL);
	snprintf(want, sizeof(want), "%s:%s", path, what);
	ck_assert_str_eq(error, want);
}

START_TEST(what_a_file_sets_must_leave_something_of_each_device)
{
	struct gm_config_known here = small_device();

	expect_mistake(&here, "[gpumemd]\nmin_free = 512M\n",
		"2: min_free: 512M leaves nothing to give out on device 0 (GPU), which has 512.0M; write a smaller min_free");
	expect_mistake(&here, "[device 0]\nmin_free = 511M\n",
		"2: min_free: 511M leaves nothing to give out on device 0 (GPU), which has 512.0M; write a smaller min_free");
	expect_mistake(&here, "[gpumemd]\nmin_free = 0\nfraction = 0.001\n",
		"3: fraction: 0.001 leaves nothing to give out on device 0 (GPU), which has 512.0M: the smallest piece of memory has 2.0M; write a larger fraction");
	/* A size of a file is judged without the device. */
	here.sized = true;
	expect_mistake(&here, "[gpumemd]\nmin_free = 1G\n[device 0]\nsize = 512M\n",
		"4: size: a size of 512M leaves nothing to give out, because min_free is 1G");
	expect_mistake(&here, "[device 0]\nsize = 513M\n",
		"2: size: a size of 513M leaves nothing to give out, because min_free is 512M");
}
END_TEST

START_TEST(pinned_host_memory_is_limited_by_its_name_and_not_by_a_number)
{
	static const char text[] = "[device pinned limit uid:0]\nguarantee = 1G\n"
				   "[device Pinned limit uid:1]\npriority = 3\n";
	struct gm_config_known here = {.n = 2,
		.devices = {{.pci = "0000:A0:00.0", .name = "GPU", .total = UINT64_C(9) << 30},
			{.pci = "", .name = "pinned memory", .total = 1 << 30, .pinned = true}}};

	put(path, text, strlen(text));
	forget();
	ck_assert_int_eq(gm_config_load_for(path, &here, &config, &error), 0);
	ck_assert_uint_eq(config->n_limits, 2);
	ck_assert_uint_eq(config->limits[0].device, 1);
	expect("device pinned limit uid:1", "priority", "3", ":4");

	/* Somebody meant the second GPU, which is not here. */
	expect_mistake(&here,
		"[device 0 limit uid:0]\nmax = 1G\n[device 1 limit uid:0]\nmax = 1G\n",
		"3: [device 1 limit uid:0]: there is 1 device here, numbered from 0, and 1 is pinned "
		"host memory; did you mean [device pinned limit uid:0]?");

	/* Without pinned memory, and where nobody knows, the section has no effect. */
	here.n = 1;
	put(path, text, strlen(text));
	forget();
	ck_assert_int_eq(gm_config_load_for(path, &here, &config, &error), 0);
	ck_assert_uint_eq(config->n_limits, 0);
	ck_assert_ptr_nonnull(strstr(config->warnings,
		":1: [device pinned] has no effect: no device here has this name"));
	accept_text(text);
}
END_TEST

START_TEST(a_default_of_min_free_gives_way_on_a_small_device)
{
	static const char guarantee[] = "[limit uid:0]\nguarantee = 256M\n";
	struct gm_config_known here = small_device();
	struct gm_policy policy;

	put(path, guarantee, strlen(guarantee));
	forget();
	ck_assert_int_eq(gm_config_load_for(path, &here, &config, &error), 0);
	ck_assert_str_eq(config->warnings,
		"min_free: 512M, as by default, would leave nothing to give out on device 0 (GPU), "
		"which has 512.0M: 256.0M stay free instead; write a smaller min_free");
	gm_config_policy(config, 0, 512 << 20, &policy);
	ck_assert_uint_eq(policy.min_free, 256 << 20);

	/* It does not, where it leaves something, and with a preset it is that of the preset. */
	gm_config_policy(config, 0, 514 << 20, &policy);
	ck_assert_uint_eq(policy.min_free, 512 << 20);
	put(path, "[gpumemd]\npreset = constrained\n", 31);
	forget();
	here.devices[0].total = 900 << 20;
	ck_assert_int_eq(gm_config_load_for(path, &here, &config, &error), 0);
	gm_config_policy(config, 0, 900 << 20, &policy);
	ck_assert_uint_eq(policy.min_free, 450 << 20);
}
END_TEST

START_TEST(warnings_come_with_mistakes_too)
{
	struct gm_config_known here = {
		.n = 1, .sized = true, .devices = {{.pci = "", .total = UINT64_C(1) << 30}}};
	struct gm_config_report report;
	static const char text[] = "[gpumemd]\ntrust = nobody\n[limit uid:0]\nmax = 2G\n";
	put(path, text, strlen(text));
	ck_assert_int_eq(gm_config_read(path, &here, &config, &report), -EINVAL);
	ck_assert_ptr_null(config);
	ck_assert_ptr_nonnull(strstr(report.errors, ":2: trust: "));
	ck_assert_ptr_nonnull(strstr(report.rest->warnings, ":4: max: 2.0G for uid:0 is more"));
	ck_assert(!report.rest->devices_doubtful);
	gm_config_report_deinit(&report);

	/* No warning is by a value that a mistake may have been meant to set. */
	put(path, "[gpumemd]\nmin_fre = 2G\n[device 0]\nsize = much\n", 45);
	here.devices[0].total = 256 << 20;
	ck_assert_int_eq(gm_config_read(path, &here, &config, &report), -EINVAL);
	ck_assert_str_eq(report.rest->warnings, "");
	ck_assert(report.rest->devices_doubtful);
	gm_config_report_deinit(&report);
}
END_TEST

START_TEST(a_backend_without_a_device_is_a_mistake_because_no_daemon_starts_with_it)
{
	struct gm_config_known here = {.lack = "no NVIDIA driver"};
	char want[1024];
	put(path, "[gpumemd]\nbackend = cuda\nmax_pool = 7\n", 38);
	ck_assert_int_eq(gm_config_load_for(path, &here, &config, &error), -EINVAL);
	snprintf(want, sizeof(want),
		"%1$s:2: backend: cuda has no device here: no NVIDIA driver; the daemon does not start\n"
		"%1$s:3: max_pool: \"7\" is neither a size, such as 512M, nor a share, such as 25%%",
		path);
	ck_assert_str_eq(error, want);

	/* The command line names no line of a file. */
	here.backend = "cuda";
	put(path, "[gpumemd]\nbackend = host\n", 25);
	forget();
	ck_assert_int_eq(gm_config_load_for(path, &here, &config, &error), -EINVAL);
	ck_assert_str_eq(error,
		"backend: cuda has no device here: no NVIDIA driver; the daemon does not start");
}
END_TEST

START_TEST(all_mistakes_come_at_once_and_none_twice)
{
	/* A bad value, two that contradict each other, and limits that do not fit. */
	does_not_fit("[gpumemd]\nmin_free=0\nfraction=1\nhost_limit=none\npressure_high=0.3\n"
		     "pressure_medium=0.4\n[device 0]\nsize=1G\n[limit uid:0]\nguarantee=2G\n"
		     "[limit uid:1]\nmax=much\nguarantee=1G\n",
		"%1$s:4: host_limit: \"none\" is not a size, such as 512M or 1.5G\n"
		"%1$s:6: pressure_medium: the levels are out of order: pressure_medium (0.4) must be "
		"below pressure_high (0.3)\n"
		"%1$s:10: guarantee: with 2.0G for uid:0, guarantees on device 0 go beyond its "
		"capacity of 1.0G; [device N limit OWNER] sets it for one device\n"
		"%1$s:12: max: \"much\" is not a size, such as 512M or 1.5G");
	/* Nobody is blamed for what a misspelt line was to say. */
	does_not_fit("[gpumemd]\nmin_free=0\npressure_medium=0.85\npresure_high=0.9\n"
		     "[device 1]\nszie=1G\n[device 2]\nsize=1G\n[limit uid:0]\nmx=1G\n"
		     "[device 2 limit uid:0]\nmax=1G\n",
		"%1$s:4: presure_high: unknown key; did you mean pressure_high?\n"
		"%1$s:6: szie: unknown key; did you mean size?\n"
		"%1$s:10: mx: unknown key; did you mean max?");
	/* Nor for what a refused preset would set. */
	does_not_fit("[gpumemd]\npreset=infrence\n[device 0]\nsize=300M\n",
		"%s:2: preset: \"infrence\" is not one of default, inference, constrained; did you "
		"mean inference?");
}
END_TEST

/* Each mistake comes before a contradiction with a default and a gap between the devices. */
static const char *const mistakes[][2] = {
	{"[nonsense]\n", "1: [nonsense]: unknown section; there are [gpumemd], [device N], "
			 "[limit OWNER] and [device N limit OWNER]"},
	{"[limit uid:nobody-has-this]\n",
		"1: [limit uid:nobody-has-this]: there is no user \"nobody-has-this\""},
	{"[limit gid:nor-this]\n", "1: [limit gid:nor-this]: there is no group \"nor-this\""},
	{"[device 0]\ntrust = uid\n", "2: trust: belongs in [gpumemd], not in [device 0]"},
	{"[gpumemd]\ncolour = red\n", "2: colour: unknown key; see gpumemd.conf(5)"},
	{"[gpumemd]\nfractoin = 1\n", "2: fractoin: unknown key; did you mean fraction?"},
	{"[gpumemd]\ntrust uid\n",
		"2: \"trust uid\" is neither a section, nor \"key = value\", nor a "
		"comment; a value cannot continue on another line"},
	{"trust = uid\n", "1: trust: stands before any section; put [gpumemd] above it"},
	{"[gpumemd]\ntrust=uid\ntrust=uid\n", "3: trust: is already set on line 2"},
};

START_TEST(a_mistake_does_not_hide_a_contradiction)
{
	const char *text = mistakes[_i][0];
	char file[512], want[1024];
	int lines = 0;
	for (const char *p = text; *p; p++)
		lines += *p == '\n';

	snprintf(file, sizeof(file),
		"%s[gpumemd]\nmin_free=0\npressure_high=0.5\n[device 2]\nsize=1G\n", text);
	snprintf(want, sizeof(want),
		"%s\n%d: pressure_high: the levels are out of order: pressure_medium (0.60) must be "
		"below pressure_high (0.5)\n%d: size: [device 2] has a size but [device 1] has none; "
		"devices are numbered without gaps",
		mistakes[_i][1], lines + 3, lines + 5);
	refuse_text(file, want);
}
END_TEST

START_TEST(keys_in_a_refused_section_are_checked)
{
	refuse_text("[limit uid:0]\nmax = 20\nguarantee = 300\n[device 0]\nsize = 16\n",
		"2: max: \"20\" is a number of bytes, and less than any memory that gpumemd hands out; did you mean 20G? Bytes are written 20B\n"
		"3: guarantee: \"300\" is a number of bytes, and less than any memory that gpumemd hands out; did you mean 300M? Bytes are written 300B\n"
		"5: size: \"16\" is a number of bytes, and less than any memory that gpumemd hands out; did you mean 16G? Bytes are written 16B");
	refuse_text("[limit uid:nobody-has-this]\nmax = much\nmx = 1\ntrust = uid\n"
		    "[device 16]\nfraction = 2\nsize = 1G\n[gpumem]\ndecay = soon\nmax = 1G\n",
		"1: [limit uid:nobody-has-this]: there is no user \"nobody-has-this\"\n"
		"2: max: \"much\" is not a size, such as 512M or 1.5G\n"
		"3: mx: unknown key; did you mean max?\n"
		"4: trust: belongs in [gpumemd], not in [limit uid:nobody-has-this]\n"
		"5: [device 16]: devices are numbered from 0 to 15, or named by UUID or PCI address\n"
		"6: fraction: \"2\" is not a fraction, such as 0.9 or 90%\n"
		"8: [gpumem]: unknown section; did you mean [gpumemd]?\n"
		"9: decay: \"soon\" is not a time, such as 100ms, 10s or 5min");
}
END_TEST

START_TEST(nobody_is_blamed_for_what_a_refused_line_was_to_set)
{
	static const char *const lines[] = {"[gpumem]\npressure_medium = 0.3\n",
		"[device 0]\npressure_medium = 0.3\n", "pressure_medium = 0.3\n",
		"[gpumemd]\npressure_medium: 0.3\n", "[gpumemd]\npresure medium = 0.3\n",
		"[gpumemd]\nprest = inference\n", "[gpumemd]\n= 0.3\n",
		"[gpumemd\npressure_medium = 0.3\n", "[gpumemd]\npressure_medium \x01= 0.3\n"};
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		char file[512];
		snprintf(file, sizeof(file), "%s[gpumemd]\npressure_high=0.5\n", lines[i]);
		ck_assert_int_eq(load(file), -EINVAL);
		ck_assert_msg(!strstr(error, "out of order"), "%s\n%s", file, error);
	}
	/* The section of a limit sets something, once its line is right. */
	refuse_text("[limit uid:0]\nmaximum = 1G\n[limit uid:1]\nmax 1G\n[limit uid:2]\n",
		"2: maximum: unknown key; see gpumemd.conf(5)\n"
		"4: \"max 1G\" is neither a section, nor \"key = value\", nor a comment; a value "
		"cannot continue on another line\n"
		"5: [limit uid:2]: sets nothing; set max, guarantee or priority");
}
END_TEST

START_TEST(a_limit_past_the_most_is_refused)
{
	GM_BOUND_TEST(LIMITS);
	static char text[64 * 1024];
	size_t n = 0;
	for (int i = 0; i < GM_BOUND_LIMITS; i++)
		n += snprintf(text + n, sizeof(text) - n, "[limit uid:%d]\nmax = 1G\n", i);
	accept_text(text);
	ck_assert_uint_eq(config->n_limits, GM_BOUND_LIMITS);
	snprintf(text + n, sizeof(text) - n, "[limit uid:70000]\nmax = 1G\n");
	refuse_text(
		text, "2049: [limit uid:70000]: is one limit too many; there can be at most 1024");
	/* A further device of an owner that has one is no further limit. */
	snprintf(text + n, sizeof(text) - n, "[device 3 limit uid:7]\nmax = 1G\n");
	accept_text(text);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("config_limit");
	TCase *tcase = tcase_create("limits");
	/* A thousand sections, also where a sanitizer watches and others build. */
	tcase_set_timeout(tcase, 60);
	tcase_add_checked_fixture(tcase, make_folder, remove_folder);
	tcase_add_test(tcase, limits_are_read_with_their_owners_by_name_or_number);
	tcase_add_test(tcase, the_name_of_an_owner_may_have_any_character_and_its_case_counts);
	tcase_add_test(tcase, an_owners_limit_may_stand_in_several_files_under_several_names);
	tcase_add_test(tcase, owners_that_there_are_not_are_named_with_their_line);
	tcase_add_test(tcase, limits_that_contradict_each_other_are_refused);
	tcase_add_test(tcase, a_devices_own_limit_goes_over_that_for_all_devices_key_by_key);
	tcase_add_test(tcase, a_devices_own_limit_that_makes_no_sense_is_refused);
	tcase_add_test(tcase, limits_contradict_each_other_across_sections);
	tcase_add_test(tcase, limits_are_held_against_the_devices);
	tcase_add_test(tcase, limits_are_held_against_the_devices_that_there_are);
	tcase_add_test(tcase, what_the_devices_make_useless_is_warned_about);
	tcase_add_test(tcase, what_a_file_sets_must_leave_something_of_each_device);
	tcase_add_test(tcase, pinned_host_memory_is_limited_by_its_name_and_not_by_a_number);
	tcase_add_test(tcase, a_default_of_min_free_gives_way_on_a_small_device);
	tcase_add_test(tcase, warnings_come_with_mistakes_too);
	tcase_add_test(
		tcase, a_backend_without_a_device_is_a_mistake_because_no_daemon_starts_with_it);
	tcase_add_test(tcase, all_mistakes_come_at_once_and_none_twice);
	tcase_add_loop_test(tcase, a_mistake_does_not_hide_a_contradiction, 0,
		sizeof(mistakes) / sizeof(mistakes[0]));
	tcase_add_test(tcase, keys_in_a_refused_section_are_checked);
	tcase_add_test(tcase, nobody_is_blamed_for_what_a_refused_line_was_to_set);
	tcase_add_test(tcase, a_limit_past_the_most_is_refused);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
