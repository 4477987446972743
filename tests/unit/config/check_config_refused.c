/* SPDX-License-Identifier: Apache-2.0 */

/* What a configuration is refused for, and the reason that is told. */

#include "tests/unit/config/config_fixture.h"

#include "daemon/config/config_keys.h"
#include "daemon/config/config_value.h"
#include "tests/bound.h"
#include "tests/tap.h"

START_TEST(what_this_machine_does_not_have_is_refused_where_the_file_is_to_be_used)
{
	static const struct gm_config_known here = {.listens = true}, elsewhere = {0};
	char text[1024], want[2048];
	snprintf(text, sizeof(text),
		"[gpumemd]\nsocket = %s/no-such-folder/socket\nsocket_group = no-such-group\n"
		"admin_group = nor-this\nfraction = 2\n",
		folder);
	snprintf(want, sizeof(want),
		"%1$s:2: socket: there is no folder %2$s/no-such-folder; create it, or write socket = auto\n"
		"%1$s:3: socket_group: there is no group \"no-such-group\"; create it with groupadd, or leave out the key\n"
		"%1$s:4: admin_group: there is no group \"nor-this\"; create it with groupadd, or leave out the key\n"
		"%1$s:5: fraction: \"2\" is not a fraction, such as 0.9 or 90%%",
		path, folder);
	put(path, text, strlen(text));
	ck_assert_int_eq(gm_config_load_for(path, &here, &config, &error), -EINVAL);
	ck_assert_str_eq(error, want);
	forget();

	/* What is not a socket, or not a folder. */
	snprintf(text, sizeof(text), "[gpumemd]\nsocket = %s\nadmin_group = root\n", path);
	put(path, text, strlen(text));
	ck_assert_int_eq(gm_config_load_for(path, &here, &config, &error), -EINVAL);
	ck_assert_ptr_nonnull(strstr(error, "exists and is not a socket; remove it"));
	forget();
	snprintf(text, sizeof(text), "[gpumemd]\nsocket = %s/socket\nsocket_group =\n", path);
	put(path, text, strlen(text));
	ck_assert_int_eq(gm_config_load_for(path, &here, &config, &error), -EINVAL);
	ck_assert_ptr_nonnull(strstr(error, ":2: socket: "));
	ck_assert_ptr_nonnull(strstr(error, "is not a folder"));
	forget();

	/* A daemon that listens elsewhere does not mind. */
	ck_assert_int_eq(gm_config_load_for(path, &elsewhere, &config, &error), 0);
	forget();
	snprintf(text, sizeof(text), "[gpumemd]\nsocket = %s/socket\n", folder);
	put(path, text, strlen(text));
	ck_assert_int_eq(gm_config_load_for(path, &here, &config, &error), 0);
}
END_TEST

START_TEST(mistakes_in_several_files_are_told_together_and_in_order)
{
	put_drop_in("1.conf", "[gpumemd]\nfraction = x\n");
	put_drop_in("2.conf", "[gpumemd]\nfraction = 0.5\ncolour = red\n");
	ck_assert_int_eq(load("[gpumemd]\n\nfraction = y\n"), -EINVAL);
	char want[2048];
	snprintf(want, sizeof(want),
		"%s:3: fraction: \"y\" is not a fraction, such as 0.9 or 90%%\n"
		"%s.d/1.conf:2: fraction: \"x\" is not a fraction, such as 0.9 or 90%%\n"
		"%s.d/2.conf:3: colour: unknown key; see gpumemd.conf(5)",
		path, path, path);
	ck_assert_str_eq(error, want);
}
END_TEST

START_TEST(a_drop_in_that_cannot_be_read_is_told)
{
	char file[600], target[600];
	put_drop_in("1.conf", "");
	snprintf(file, sizeof(file), "%s.d/2.conf", path);
	ck_assert_int_eq(mkdir(file, 0755), 0);
	snprintf(target, sizeof(target), "%s.d/3.conf", path);
	ck_assert_int_eq(symlink("/nowhere/at/all", target), 0);
	ck_assert_int_eq(load("[gpumemd]\nzzz=1\n"), -EISDIR);
	ck_assert_ptr_nonnull(strstr(error, "gpumemd.conf:2: zzz: unknown key"));
	ck_assert_ptr_nonnull(strstr(error, "2.conf: cannot be read: Is a directory"));
	ck_assert_ptr_nonnull(strstr(error, "3.conf: cannot be read: No such file or directory"));
	/* Masked by a link to nothing, it is empty. */
	ck_assert_int_eq(rmdir(file), 0);
	ck_assert_int_eq(unlink(target), 0);
	ck_assert_int_eq(symlink("/dev/null", target), 0);
	accept_text("");
	/* A file where the folder should be. */
	snprintf(file, sizeof(file), "rm -r %s.d; touch %s.d", path, path);
	ck_assert_int_eq(system(file), 0);
	ck_assert_int_eq(load(""), -ENOTDIR);
	ck_assert_ptr_nonnull(strstr(error, "gpumemd.conf.d: cannot be read: Not a directory"));
}
END_TEST

START_TEST(a_named_file_must_be_a_file_that_can_be_read)
{
	ck_assert_int_eq(gm_config_load(path, &config, &error), -ENOENT);
	ck_assert_ptr_nonnull(strstr(error, "gpumemd.conf: cannot be read: No such file"));
	forget();
	ck_assert_int_eq(gm_config_load(folder, &config, &error), -EISDIR);
	forget();
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	ck_assert_int_eq(gm_config_load(path, &config, &error), -EINVAL);
	ck_assert_ptr_nonnull(strstr(error, "not an ordinary file"));
	forget();
	ck_assert_int_eq(gm_config_load("/dev/zero", &config, &error), -EINVAL);
	forget();
	ck_assert_int_eq(gm_config_load("", &config, &error), -ENOENT);
	forget();
	ck_assert_int_eq(gm_config_load("/dev/null", &config, &error), 0);
	ck_assert_int_eq(unlink(path), 0);
	put(path, "", 0);
	forget();
	ck_assert_int_eq(chmod(path, 0), 0);
	ck_assert_int_eq(chmod(folder, 0755), 0);
	if (getuid() == 0)
		ck_assert_int_eq(setresuid(-1, ORDINARY_UID, -1), 0);
	ck_assert_int_eq(gm_config_load(path, &config, &error), -EACCES);
	ck_assert_ptr_nonnull(strstr(error, "cannot be read: Permission denied"));
	if (getuid() == 0)
		ck_assert_int_eq(setresuid(-1, 0, -1), 0);
}
END_TEST

START_TEST(unknown_keys_and_sections_are_refused_with_what_may_have_been_meant)
{
	refuse_text("[gpumemd]\nfractoin = 0.5\nmin-free = 1G\nmax pool = 1\nFRACTIONS = 1\n"
		    "hostlimit = 1G\nswizzle = wait\nsize = 1G\n a.b = 1\na!b = 1\n\xc3\xa4 = 1\n",
		"2: fractoin: unknown key; did you mean fraction?\n"
		"3: min-free: unknown key; did you mean min_free?\n"
		"4: max pool: unknown key; did you mean max_pool?\n"
		"5: FRACTIONS: unknown key; did you mean fraction?\n"
		"6: hostlimit: unknown key; did you mean host_limit?\n"
		"7: swizzle: unknown key; see gpumemd.conf(5)\n"
		"8: size: belongs in a [device N] section, not in [gpumemd]\n"
		"9: a.b: unknown key; see gpumemd.conf(5)\n"
		"10: a!b: unknown key; see gpumemd.conf(5)\n"
		"11: \xc3\xa4: unknown key; see gpumemd.conf(5)\n");
	refuse_text(
		"[gpumem]\nx=1\n[quota uid:0]\nmax=1G\n[device]\n[device x]\n[device -1]\n[default]\n"
		"fraction=0.5\n[device0]\n[]\n[a.b!c]\n[device 1 ]\ntrust=uid\n",
		"1: [gpumem]: unknown section; did you mean [gpumemd]?\n"
		"2: x: unknown key; see gpumemd.conf(5)\n"
		"3: [quota uid:0]: unknown section; there are "
		"[gpumemd], [device N], [limit OWNER] and [device N limit OWNER]\n"
		"5: [device]: unknown section; did you mean [device 0]?\n"
		"6: [device x]: unknown section; did you mean [device 0]?\n"
		"7: [device -1]: unknown section; did you mean [device 0]?\n"
		"8: [default]: unknown section; there are "
		"[gpumemd], [device N], [limit OWNER] and [device N limit OWNER]\n"
		"10: [device0]: unknown section; did you mean [device 0]?\n"
		"11: []: unknown section; there are "
		"[gpumemd], [device N], [limit OWNER] and [device N limit OWNER]\n"
		"12: [a.b!c]: unknown section; there are "
		"[gpumemd], [device N], [limit OWNER] and [device N limit OWNER]\n"
		"14: trust: belongs in [gpumemd], not in [device 1]\n");
}
END_TEST

START_TEST(one_device_more_than_there_can_be_is_refused)
{
	GM_BOUND_TEST(DEVICES);
	accept_text("[device 15]\nfraction=0.5\n");
	ck_assert_uint_eq(config->n_devices, GM_BOUND_DEVICES);
	refuse_text("[device 16]\nfraction=0.5\n[device 99999999999999999999999]\n",
		"1: [device 16]: devices are numbered from 0 to 15, or named by UUID or PCI address\n"
		"3: [device 99999999999999999999999]: devices are numbered from 0 to 15, or named by UUID or PCI address\n");
}
END_TEST

START_TEST(a_key_that_is_set_twice_in_one_file_is_refused)
{
	refuse_text("[gpumemd]\nfraction=0.5\nfraction=0.5\n[device 1]\nfraction=0.1\n[gpumemd]\n"
		    "Fraction=0.7\n[device  1]\nfraction=0.2\n[DEVICE 1]\nFRACTION=0.3\n",
		"3: fraction: is already set on line 2\n"
		"7: fraction: is already set on line 2\n"
		"9: fraction: is already set on line 5\n"
		"11: fraction: is already set on line 5\n");
	/* Also if the first one was no good. */
	refuse_text("[gpumemd]\nfraction=2\nfraction=0.5\n",
		"2: fraction: \"2\" is not a fraction, such as 0.9 or 90%\n"
		"3: fraction: is already set on line 2\n");
	accept_text("[gpumemd]\nfraction=0.5\n[device 1]\nfraction=0.1\n[gpumemd]\ntrust=uid\n");
	ck_assert_int_eq(config->trust, GM_DOMAIN_TRUST_UID);
	ck_assert_double_eq(config->devices[0].policy.fraction, 0.5);
}
END_TEST

/* key, value, and the reason after "2: key: " */
static const char *const bad_values[][3] = {
	{"preset", "fast", "\"fast\" is not one of default, inference, constrained"},
	{"backend", "rocm", "\"rocm\" is not one of auto, cuda, host"},
	{"transport", "FD", "\"FD\" is not one of auto, fd, ipc; did you mean fd?"},
	{"track", "on", "\"on\" is not one of off, large, all, stacks"},
	{"trust", "uid container", "\"uid container\" is not one of uid, container, client"},
	{"socket", "run/socket", "\"run/socket\" is not an absolute path; give one, or auto"},
	{"socket", "@abstract", "\"@abstract\" is not an absolute path; give one, or auto"},
	{"socket", "/run/gpumemd/", "\"/run/gpumemd/\" names a folder, not a socket"},
	{"socket", "", "has no value"},
	{"socket_mode", "0888",
		"\"0888\" is not a mode of three or four octal digits, such as 0666"},
	{"socket_mode", "66", "\"66\" is not a mode of three or four octal digits, such as 0666"},
	{"socket_mode", "rw", "\"rw\" is not a mode of three or four octal digits, such as 0666"},
	{"socket_mode", "4666", "\"4666\" sets more than permission bits; the most is 0777"},
	{"socket_mode", "0066", "\"0066\" locks out the daemon's own user; it needs at least 0600"},
	{"admin_group", "", "has no value"},
	{"admin_group", "a b", "\"a b\" is not a group's name"},
	{"admin_group", "a:b", "\"a:b\" is not a group's name"},
	{"fraction", "0", "\"0\" is too small; it must be more than 0"},
	{"fraction", "0.0000001", "\"0.0000001\" is too small; it must be more than 0"},
	{"fraction", "1.01", "\"1.01\" is not a fraction, such as 0.9 or 90%"},
	{"fraction", "101%", "\"101%\" is more than 100%"},
	{"fraction", "-0.5", "\"-0.5\" is not a fraction, such as 0.9 or 90%"},
	{"fraction", "nan", "\"nan\" is not a fraction, such as 0.9 or 90%"},
	{"fraction", "inf", "\"inf\" is not a fraction, such as 0.9 or 90%"},
	{"fraction", "0x1p-1", "\"0x1p-1\" is not a fraction, such as 0.9 or 90%"},
	{"fraction", "0,9", "\"0,9\" is not a fraction, such as 0.9 or 90%"},
	{"fraction", "0.9 # most",
		"\"0.9 # most\" is not a fraction, such as 0.9 or 90%; a comment needs a line of its own"},
	{"min_free", "2G ; two gigs",
		"\"2G ; two gigs\" is not a size, such as 512M or 1.5G; a comment needs a line of its own"},
	{"trust", "uid # all",
		"\"uid # all\" is not one of uid, container, client; a comment needs a line of its own"},
	{"decay", "5 minutes", "\"5 minutes\" is not a time, such as 100ms, 10s or 5min"},
	{"fraction", "\"0.9\"", "\"\"0.9\"\" is not a fraction, such as 0.9 or 90%"},
	{"fraction", "", "has no value"},
	{"min_free", "20",
		"\"20\" is a number of bytes, and less than any memory that gpumemd hands out; did you mean 20G? Bytes are written 20B"},
	{"reserve", "512",
		"\"512\" is a number of bytes, and less than any memory that gpumemd hands out; did you mean 512M? Bytes are written 512B"},
	{"host_limit", "8",
		"\"8\" is a number of bytes, and less than any memory that gpumemd hands out; did you mean 8G? Bytes are written 8B"},
	{"max_pool", "25", "\"25\" is neither a size, such as 512M, nor a share, such as 25%"},
	{"min_free", "-1", "\"-1\" is not a size, such as 512M or 1.5G"},
	{"min_free", "512Q", "\"512Q\" is not a size, such as 512M or 1.5G"},
	{"min_free", "512 M M", "\"512 M M\" is not a size, such as 512M or 1.5G"},
	{"min_free", "65T", "\"65T\" is too large; the most is 64.0T"},
	{"min_free", "99999999999999999999",
		"\"99999999999999999999\" is too large; the most is 64.0T"},
	{"min_free", "50%", "\"50%\" is not a size, such as 512M or 1.5G"},
	{"max_pool", "0.25", "\"0.25\" is neither a size, such as 512M, nor a share, such as 25%"},
	{"max_pool", "101%", "\"101%\" is not a share from 0% to 100%"},
	{"max_pool", "%", "\"%\" is not a share from 0% to 100%"},
	{"max_pooled_per_bucket", "2147483648", "\"2147483648\" is not between 0 and 2147483647"},
	{"max_pooled_per_bucket", "many", "\"many\" is not a whole number"},
	{"max_pooled_per_bucket", "8.5", "\"8.5\" is not a whole number"},
	{"reserve", "64m?", "\"64m?\" is not a size, such as 512M or 1.5G"},
	{"host_limit", "1M", "\"1M\" is too small; the least is 2.0M"},
	{"host_limit", "65T", "\"65T\" is too large; the most is 64.0T"},
	{"host_limit", "25%", "\"25%\" is not a size, such as 512M or 1.5G"},
	{"host_limit", "", "has no value"},
	{"cpu_fallback", "maybe", "\"maybe\" is not one of no, yes"},
	{"host_memory", "driver", "\"driver\" is not one of auto, memfd"},
	{"decay", "10 parsecs", "\"10 parsecs\" is not a time, such as 100ms, 10s or 5min"},
	{"decay", "2d", "\"2d\" is not between 0s and 1d"},
	{"decay", "99999999999999999999s", "\"99999999999999999999s\" is not between 0s and 1d"},
	{"decay", "-1s", "\"-1s\" is not a time, such as 100ms, 10s or 5min"},
	{"pool_decay", "0", "\"0\" is no time; write off if it should never happen"},
	{"pool_decay", "1us", "\"1us\" is not between 1ms and 1d"},
	{"pool_decay", "2d", "\"2d\" is not between 1ms and 1d"},
	{"pool_decay", "never", "\"never\" is not a time, such as 100ms, 10s or 5min"},
	{"pressure_hysteresis", "0.51", "\"0.51\" is too large; the most is 0.5"},
	{"hello_deadline", "0", "\"0\" is not between 1ms and 1h"},
	{"connections_per_uid", "0", "\"0\" is not between 1 and 8192"},
	{"connections_per_uid", "8193", "\"8193\" is not between 1 and 8192"},
	{"connections_per_uid", "-1", "\"-1\" is not a whole number"},
	{"connections_per_uid", "0x10", "\"0x10\" is not a whole number"},
	{"connections_per_uid", "18446744073709551617",
		"\"18446744073709551617\" is not between 1 and 8192"},
};

START_TEST(a_bad_value_is_refused_with_the_reason)
{
	const char *const *bad = bad_values[_i];
	char text[256], want[512];
	snprintf(text, sizeof(text), "[gpumemd]\n%s = %s\n", bad[0], bad[1]);
	snprintf(want, sizeof(want), "2: %s: %s", bad[0], bad[2]);
	refuse_text(text, want);
}
END_TEST

START_TEST(a_socket_path_one_byte_too_long_is_refused_not_cut)
{
	GM_BOUND_TEST(SOCKET_PATH_BYTES);
	char text[256], socket[GM_BOUND_SOCKET_PATH_BYTES + 2];
	memset(socket, 'x', sizeof(socket));
	socket[0] = '/';
	socket[GM_BOUND_SOCKET_PATH_BYTES] = '\0';
	snprintf(text, sizeof(text), "[gpumemd]\nsocket = %s\n", socket);
	accept_text(text);
	ck_assert_str_eq(config->socket, socket);
	socket[GM_BOUND_SOCKET_PATH_BYTES] = 'x';
	socket[GM_BOUND_SOCKET_PATH_BYTES + 1] = '\0';
	snprintf(text, sizeof(text), "[gpumemd]\nsocket = %s\n", socket);
	refuse_text(text, "2: socket: the path of a socket has 108 bytes; the most is 107");
}
END_TEST

START_TEST(a_socket_whose_keeper_could_have_no_address_is_refused_where_it_is_made)
{
	GM_BOUND_TEST(SOCKET_NAME_BYTES);
	static const struct gm_config_known here = {.listens = true}, elsewhere = {0};
	char text[256], name[GM_BOUND_SOCKET_NAME_BYTES + 2];
	memset(name, 'x', sizeof(name));
	name[GM_BOUND_SOCKET_NAME_BYTES + 1] = '\0';
	snprintf(text, sizeof(text), "[gpumemd]\nsocket = /tmp/%s\n", name);
	put(path, text, strlen(text));
	ck_assert_int_eq(gm_config_load_for(path, &here, &config, &error), -EINVAL);
	ck_assert_ptr_nonnull(strstr(
		error, ":2: socket: the last part of the path has 79 bytes; the most is 78"));
	forget();
	ck_assert_int_eq(gm_config_load_for(path, &elsewhere, &config, &error), 0);
	forget();
	name[GM_BOUND_SOCKET_NAME_BYTES] = '\0';
	snprintf(text, sizeof(text), "[gpumemd]\nsocket = /tmp/%s\n", name);
	put(path, text, strlen(text));
	ck_assert_int_eq(gm_config_load_for(path, &here, &config, &error), 0);
}
END_TEST

START_TEST(a_group_name_one_byte_too_long_is_refused_not_cut)
{
	GM_BOUND_TEST(NAME_BYTES);
	char text[256], group[GM_BOUND_NAME_BYTES + 2];
	memset(group, 'g', sizeof(group));
	group[GM_BOUND_NAME_BYTES] = '\0';
	snprintf(text, sizeof(text), "[gpumemd]\nadmin_group = %s\n", group);
	accept_text(text);
	ck_assert_str_eq(config->admin_group, group);
	group[GM_BOUND_NAME_BYTES] = 'g';
	group[GM_BOUND_NAME_BYTES + 1] = '\0';
	snprintf(text, sizeof(text), "[gpumemd]\nadmin_group = %s\n", group);
	refuse_text(text, "2: admin_group: the name has 64 bytes; the most is 63");
}
END_TEST

START_TEST(values_that_contradict_each_other_are_refused)
{
	refuse_text("[gpumemd]\npressure_high = 0.5\n",
		"2: pressure_high: the levels are out of order: pressure_medium (0.60) must be below pressure_high (0.5)");
	refuse_text("[gpumemd]\npressure_medium = 0.9\npressure_high=0.9\npressure_critical=80%\n",
		"3: pressure_high: the levels are out of order: pressure_medium (0.9) must be below pressure_high (0.9)\n"
		"4: pressure_critical: the levels are out of order: pressure_high (0.9) must be below pressure_critical (80%)");
	refuse_text("[gpumemd]\npressure_hysteresis=0.3\npressure_medium=0.3\n",
		"3: pressure_medium: pressure_hysteresis (0.3) must be below pressure_medium (0.3), or the pressure never becomes low again");
	refuse_text("[gpumemd]\nmax_pool=32M\nreserve=33M\n",
		"3: reserve: the reserve (33M) is part of the pool and cannot be more than max_pool (32M)");
	refuse_text("[gpumemd]\nreserve=33M\n[device 4]\nmax_pool=32M\n",
		"4: max_pool: the reserve (33M) is part of the pool and cannot be more than max_pool (32M)");
	refuse_text("[device 0]\nsize=512M\n",
		"2: size: a size of 512M leaves nothing to give out, because min_free is 512M");
	refuse_text("[device 0]\nsize=512M\n[gpumemd]\npreset=constrained\nmin_free=1G\n",
		"5: min_free: a size of 512M leaves nothing to give out, because min_free is 1G");
	refuse_text("[gpumemd]\nmin_free=0\n[device 3]\nsize=1G\n[device 1]\nsize=1G\n",
		"4: size: [device 3] has a size but [device 2] has none; devices are numbered without gaps");
	refuse_text("[gpumemd]\ntransport=ipc\nreserve=32M\n",
		"3: reserve: the reserve (32M) holds memory for the fd transport, which no client gets with transport = ipc; leave out one of the two");
	refuse_text("[device 1]\nreserve=32M\n[gpumemd]\nreserve=0\ntransport=ipc\n",
		"5: transport: the reserve (32M) holds memory for the fd transport, which no client gets with transport = ipc; leave out one of the two");
	refuse_text("[gpumemd]\nbackend=cuda\n[device 0]\nsize=1G\n",
		"4: size: the size of a GPU cannot be set: [device 0] can have a size only with backend = host, and backend is cuda");
	accept_text("[gpumemd]\nmin_free=0\n[device 2]\nsize=1G\n[device 1]\nsize=2M\n");
	accept_text("[gpumemd]\nmax_pool=0\n");
	accept_text("[gpumemd]\ntransport=ipc\npreset=inference\n");
	accept_text("[gpumemd]\ntransport=ipc\nreserve=0\n[device 0]\nfraction=0.5\n");
	accept_text("[gpumemd]\ntransport=fd\nreserve=32M\n");
	accept_text("[gpumemd]\nbackend=cuda\n[device 0]\nsize=auto\n");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("config");
	TCase *tcase = tcase_create("values");
	tcase_add_checked_fixture(tcase, make_folder, remove_folder);
	tcase_add_test(
		tcase, what_this_machine_does_not_have_is_refused_where_the_file_is_to_be_used);
	tcase_add_test(tcase, mistakes_in_several_files_are_told_together_and_in_order);
	tcase_add_test(tcase, a_drop_in_that_cannot_be_read_is_told);
	tcase_add_test(tcase, a_named_file_must_be_a_file_that_can_be_read);
	tcase_add_test(tcase, unknown_keys_and_sections_are_refused_with_what_may_have_been_meant);
	tcase_add_test(tcase, one_device_more_than_there_can_be_is_refused);
	tcase_add_test(tcase, a_key_that_is_set_twice_in_one_file_is_refused);
	tcase_add_loop_test(tcase, a_bad_value_is_refused_with_the_reason, 0,
		sizeof(bad_values) / sizeof(bad_values[0]));
	tcase_add_test(tcase, a_socket_path_one_byte_too_long_is_refused_not_cut);
	tcase_add_test(
		tcase, a_socket_whose_keeper_could_have_no_address_is_refused_where_it_is_made);
	tcase_add_test(tcase, a_group_name_one_byte_too_long_is_refused_not_cut);
	tcase_add_test(tcase, values_that_contradict_each_other_are_refused);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
