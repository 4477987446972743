/* SPDX-License-Identifier: Apache-2.0 */

/* Names of devices: as nvidia-smi, lspci and the driver write them, and what only looks like one.
 */

#include <errno.h>
#include <string.h>

#include "common/text/device_name.h"
#include "tests/tap.h"

static const uint8_t uuid[GM_UUID_BYTES] = {
	0xf4, 0x6b, 0x65, 0, 0x67, 0x70, 0x75, 0x6d, 0x65, 0x6d, 0x64, 0, 0, 0, 0, 7};

static struct gm_device_name parse(const char *text)
{
	struct gm_device_name name;
	ck_assert_msg(gm_device_name_parse(text, &name) == 0, "\"%s\"", text);
	return name;
}

START_TEST(a_device_goes_by_its_number)
{
	struct gm_device_name name = parse("15");
	ck_assert(gm_device_name_means(&name, 15, uuid, "0000:A0:00.0", false));
	ck_assert(!gm_device_name_means(&name, 1, uuid, "0000:A0:00.0", false));
	ck_assert_int_eq(gm_device_name_parse("16", &name), -ERANGE);
	ck_assert_int_eq(gm_device_name_parse("99999999999999999999999", &name), -ERANGE);
}
END_TEST

START_TEST(pinned_host_memory_has_a_name_and_its_number_is_that_of_no_gpu)
{
	struct gm_device_name name = parse("Pinned"), again = parse("pinned"), number = parse("0");
	ck_assert(gm_device_name_means(&name, 3, NULL, "", true));
	ck_assert(!gm_device_name_means(&name, 3, uuid, "0000:A0:00.0", false));
	ck_assert(gm_device_name_same(&name, &again));
	ck_assert(!gm_device_name_same(&name, &number));
}
END_TEST

START_TEST(a_device_goes_by_its_uuid_as_nvidia_smi_has_it)
{
	static const char *const texts[] = {"GPU-f46b6500-6770-756d-656d-640000000007",
		"MIG-f46b6500-6770-756d-656d-640000000007", "f46b6500-6770-756d-656d-640000000007",
		"gpu-F46B6500-6770-756D-656D-640000000007"};
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct gm_device_name name = parse(texts[i]), first = parse(texts[0]);
		ck_assert(gm_device_name_means(&name, 3, uuid, "", false));
		ck_assert(!gm_device_name_means(&name, 3, NULL, "", false));
		ck_assert(gm_device_name_same(&name, &first));
		name.uuid[15] ^= 1;
		ck_assert(!gm_device_name_means(&name, 3, uuid, "", false));
		ck_assert(!gm_device_name_same(&name, &first));
	}
}
END_TEST

START_TEST(a_device_goes_by_its_pci_address_however_its_domain_is_written)
{
	static const char *const texts[] = {
		"0000:A0:1f.7", "a0:1f.7", "00000000:a0:1F.7", "00000:A0:1f.7"};
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct gm_device_name name = parse(texts[i]), first = parse(texts[0]);
		ck_assert(gm_device_name_same(&name, &first));
		ck_assert(gm_device_name_means(&name, 0, NULL, "0000:A0:1F.7", false));
		ck_assert(!gm_device_name_means(&name, 0, NULL, "0001:A0:1F.7", false));
		ck_assert(!gm_device_name_means(&name, 0, NULL, "0000:A1:1F.7", false));
		ck_assert(!gm_device_name_means(&name, 0, NULL, "0000:A0:1E.7", false));
		ck_assert(!gm_device_name_means(&name, 0, NULL, "0000:A0:1F.6", false));
		ck_assert(!gm_device_name_means(&name, 0, NULL, "", false));
	}
}
END_TEST

START_TEST(a_sentence_says_once_which_device_it_is_about)
{
	char text[GM_DEVICE_NAME_BEFORE];

	ck_assert_str_eq(gm_device_name_before(3, "device 3 is full", text), "");
	ck_assert_str_eq(gm_device_name_before(3, "device 31 is full", text), "device 3: ");
	ck_assert_str_eq(gm_device_name_before(3, "uid 7 may hold 1.0G", text), "device 3: ");
	ck_assert_str_eq(gm_device_name_before(UINT32_MAX, "", text), "device 4294967295: ");
}
END_TEST

START_TEST(what_is_no_name_is_refused_and_changes_nothing)
{
	static const char *const texts[] = {"", " ", "-1", "+1", " 1", "1 ", "0x1", "1.5", "GPU-",
		"GPU-f46b", "GPU-f46b6500-6770-756d-656d-64000000000",
		"GPU-f46b6500-6770-756d-656d-6400000000077",
		"GPU-f46b6500-6770-756d-656d-64000000000g",
		"GPU-f46b650067-70-756d-656d-640000000007",
		"GPU-GPU-f46b6500-6770-756d-656d-640000000007",
		"TPU-f46b6500-6770-756d-656d-640000000007", "f46b65006770756d656d640000000007",
		"a0:00", "a0:00.", "a0:00.8", "a0:20.0", "a0:0.0", "0:a0:00.0", "000000000:a0:00.0",
		"a0:00.0 ", "a0:00.00", ":a0:00.0", "a0:00:0.0", "0000:a0:00.0:", "\xff",
		"GPU-f46b6500-6770-756d-656d-640000000007\n"};
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct gm_device_name name, untouched;
		memset(&name, 0x5a, sizeof(name));
		untouched = name;
		ck_assert_msg(gm_device_name_parse(texts[i], &name) == -EINVAL, "\"%s\"", texts[i]);
		ck_assert(!memcmp(&name, &untouched, sizeof(name)));
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("device_name");
	TCase *tcase = tcase_create("device_name");

	tcase_add_test(tcase, a_device_goes_by_its_number);
	tcase_add_test(tcase, pinned_host_memory_has_a_name_and_its_number_is_that_of_no_gpu);
	tcase_add_test(tcase, a_device_goes_by_its_uuid_as_nvidia_smi_has_it);
	tcase_add_test(tcase, a_device_goes_by_its_pci_address_however_its_domain_is_written);
	tcase_add_test(tcase, a_sentence_says_once_which_device_it_is_about);
	tcase_add_test(tcase, what_is_no_name_is_refused_and_changes_nothing);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
