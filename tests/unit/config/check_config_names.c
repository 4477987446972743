/* SPDX-License-Identifier: Apache-2.0 */

/* Sections that name a device by UUID or PCI address, with the devices known and without. */

#include "tests/unit/config/config_fixture.h"

#include "daemon/config/config_reader.h"
#include "tests/tap.h"

#define UUID_0 "GPU-f46b6500-6770-756d-656d-640000000000"
#define UUID_1 "GPU-f46b6500-6770-756d-656d-640000000001"
#define OTHER  "GPU-00000000-0000-0000-0000-000000000009"

static const uint8_t uuids[2][GM_UUID_BYTES] = {
	{0xf4, 0x6b, 0x65, 0, 0x67, 0x70, 0x75, 0x6d, 0x65, 0x6d, 0x64, 0, 0, 0, 0, 0},
	{0xf4, 0x6b, 0x65, 0, 0x67, 0x70, 0x75, 0x6d, 0x65, 0x6d, 0x64, 0, 0, 0, 0, 1},
};
/* The last is pinned host memory. */
static const struct gm_config_known known = {
	.n = 3,
	.devices = {{.uuid = uuids[0], .pci = "0000:A0:00.0"},
		{.uuid = uuids[1], .pci = "0000:A1:00.0"}, {.pci = "", .pinned = true}},
};

static int load_known(const char *text)
{
	forget();
	put(path, text, strlen(text));
	return gm_config_load_for(path, &known, &config, &error);
}

static void accept_known(const char *text)
{
	int r = load_known(text);
	ck_assert_msg(r == 0, "refused: %s\n%s", error, text);
}

static void refuse_known(const char *text, const char *line)
{
	char want[1024];
	ck_assert_int_eq(load_known(text), -EINVAL);
	snprintf(want, sizeof(want), "%s:%s", path, line);
	ck_assert_str_eq(error, want);
}

START_TEST(a_uuid_or_a_pci_address_is_as_good_as_the_number)
{
	static const char *const names[] = {"1", UUID_1, "gpu-F46B6500-6770-756D-656D-640000000001",
		"0000:a1:00.0", "A1:00.0", "00000000:A1:00.0"};
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		char text[256];
		snprintf(text, sizeof(text),
			"[device %s]\nfraction = 0.5\nmin_free = 1G\n[device %s limit uid:7]\nmax = 1G\n",
			names[i], names[i]);
		accept_known(text);
		ck_assert_uint_eq(config->n_strangers, 0);
		ck_assert_double_eq(config->devices[0].policy.fraction, 0.9);
		ck_assert_double_eq(config->devices[1].policy.fraction, 0.5);
		ck_assert_uint_eq(config->devices[1].policy.min_free, UINT64_C(1) << 30);
		expect("device 1", "fraction", "0.5", ":2");
		ck_assert_uint_eq(config->n_limits, 1);
		ck_assert_uint_eq(config->limits[0].device, 1);
		expect("device 1 limit uid:7", "max", "1G", ":5");
	}
}
END_TEST

START_TEST(one_device_under_several_names_is_one_device)
{
	/* A later file wins key by key, whatever it calls the device. */
	put_drop_in("1.conf", "[device a0:00.0]\nfraction = 0.4\n");
	accept_known(
		"[device 0]\nfraction = 0.5\nmin_free = 1G\n[device " UUID_0 "]\nreserve = 2M\n");
	expect("device 0", "fraction", "0.4", "/1.conf:2");
	expect("device 0", "min_free", "1G", ":3");
	expect("device 0", "reserve", "2M", ":5");
	put_drop_in("1.conf", "");
	refuse_known("[device 0]\nfraction = 0.5\n[device " UUID_0 "]\nfraction = 0.6\n",
		"4: fraction: is already set on line 2");
	refuse_known("[device A0:00.0 limit uid:7]\nmax = 1G\n[device " UUID_0
		     " limit uid:7]\nmax = 2G\n",
		"4: max: is already set on line 2");
}
END_TEST

START_TEST(a_device_that_is_not_here_is_checked_and_shown_and_holds_for_nobody)
{
	accept_known(
		"[device " OTHER "]\nfraction = 0.5\n[device ff:1f.7 limit uid:7]\nmax = 1G\n");
	ck_assert_uint_eq(config->n_strangers, 2);
	ck_assert_str_eq(config->strangers[0], OTHER);
	ck_assert_str_eq(config->strangers[1], "ff:1f.7");
	for (int i = 0; i < GM_BOUND_DEVICES; i++)
		ck_assert_double_eq(config->devices[i].policy.fraction, 0.9);
	ck_assert_uint_eq(config->n_devices, 0);
	ck_assert_uint_eq(config->n_limits, 0);
	expect("device " OTHER, "fraction", "0.5", ":2");
	expect("device ff:1f.7 limit uid:7", "max", "1G", ":4");
	refuse_known("[device " OTHER "]\nfraction = x\n",
		"2: fraction: \"x\" is not a fraction, such as 0.9 or 90%");
	refuse_known("[device " OTHER "]\nmax_pool = 1M\nreserve = 2M\n",
		"3: reserve: the reserve (2M) is part of the pool and cannot be more than max_pool (1M)");
	refuse_known("[device ff:1f.7 limit uid:7]\nmax = 1G\nguarantee = 2G\n",
		"3: guarantee: on device ff:1f.7, max (1G) is less than guarantee (2G)");
}
END_TEST

START_TEST(without_the_devices_every_name_is_a_stranger)
{
	accept_text("[device " UUID_0 "]\nfraction = 0.5\n[device " UUID_0 "]\nmin_free = 1G\n");
	ck_assert_uint_eq(config->n_strangers, 1);
	expect("device " UUID_0, "fraction", "0.5", ":2");
	expect("device " UUID_0, "min_free", "1G", ":4");
}
END_TEST

START_TEST(what_is_no_name_is_told)
{
	refuse_text("[device 16]\nfraction=0.5\n",
		"1: [device 16]: devices are numbered from 0 to 15, or named by UUID or PCI address");
	refuse_text("[device 16 limit uid:7]\nmax=1G\n",
		"1: [device 16 limit uid:7]: devices are numbered from 0 to 15, or named by UUID or PCI address");
	refuse_text("[device GPU-1 limit uid:7]\nmax=1G\n",
		"1: [device GPU-1 limit uid:7]: devices are numbered from 0 to 15, or named by UUID or PCI address");
	ck_assert_int_eq(load("[device GPU-f46b]\nfraction=0.5\n"), -EINVAL);
	ck_assert_ptr_nonnull(strstr(error, "[device GPU-f46b]: unknown section"));
	refuse_text("[device " UUID_0 "]\nsize=1G\n",
		"2: size: is for host memory only, so its section must give the device's number: [device N]");
}
END_TEST

START_TEST(more_strangers_than_there_can_be_are_refused)
{
	char text[4096];
	size_t n = 0;
	for (int i = 0; i < GM_CONFIG_STRANGERS; i++)
		n += (size_t)snprintf(
			text + n, sizeof(text) - n, "[device %02x:00.0]\nreserve=0\n", i);
	accept_text(text);
	ck_assert_uint_eq(config->n_strangers, GM_CONFIG_STRANGERS);
	snprintf(text + n, sizeof(text) - n, "[device ff:00.0]\nreserve=0\n");
	refuse_text(text,
		"33: [device ff:00.0]: is one device too many; files can name at most 16 that this machine does not have");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("config_names");
	TCase *tcase = tcase_create("config_names");

	tcase_add_checked_fixture(tcase, make_folder, remove_folder);
	tcase_add_test(tcase, a_uuid_or_a_pci_address_is_as_good_as_the_number);
	tcase_add_test(tcase, one_device_under_several_names_is_one_device);
	tcase_add_test(tcase, a_device_that_is_not_here_is_checked_and_shown_and_holds_for_nobody);
	tcase_add_test(tcase, without_the_devices_every_name_is_a_stranger);
	tcase_add_test(tcase, what_is_no_name_is_told);
	tcase_add_test(tcase, more_strangers_than_there_can_be_are_refused);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
