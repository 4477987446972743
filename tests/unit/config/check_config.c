/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The configuration's values: what they become, which one wins, and which are refused with file,
 * line and key, all mistakes at once.
 */

#include "tests/unit/config/config_fixture.h"

#include "daemon/config/config_keys.h"
#include "daemon/config/config_value.h"
#include "tests/bound.h"
#include "tests/tap.h"

START_TEST(an_empty_file_gives_every_key_its_default)
{
	accept_text("");
	size_t general = 0;
	for (size_t i = 0; i < GM_CONFIG_N_KEYS; i++) {
		const struct gm_config_key *key = gm_config_key(i);
		if (!(key->place & GM_CONFIG_GENERAL))
			continue;
		general++;
		expect("", key->name, key->presets[0], "default");
	}
	ck_assert_uint_eq(config->n_entries, general);
	ck_assert_str_eq(config->preset, "default");
	ck_assert_str_eq(config->backend, "auto");
	ck_assert_str_eq(config->socket, "");
	ck_assert_str_eq(config->socket_group, "");
	ck_assert_str_eq(config->admin_group, "gpumem");
	ck_assert_str_eq(config->observer_group, "gpumem-observer");
	ck_assert_uint_eq(config->socket_mode, 0666);
	ck_assert_int_eq(config->trust, GM_DOMAIN_TRUST_CONTAINER);
	ck_assert_int_eq(config->transport, GM_TRANSPORT_AUTO);
	ck_assert_int_eq(config->track, GM_TRACK_LARGE);
	ck_assert_uint_eq(config->decay_ns, UINT64_C(10000000000));
	ck_assert_uint_eq(config->hello_deadline_ns, UINT64_C(5000000000));
	ck_assert_uint_eq(config->connections_per_uid, 1024);
	ck_assert_uint_eq(config->n_devices, 0);
	for (size_t i = 0; i < GM_BOUND_DEVICES; i++) {
		const struct gm_policy *policy = &config->devices[i].policy;
		ck_assert_uint_eq(config->devices[i].size, 0);
		ck_assert_double_eq(policy->fraction, 0.9);
		ck_assert_uint_eq(policy->min_free, 512 << 20);
		ck_assert_uint_eq(policy->max_pool, UINT64_MAX);
		ck_assert_double_eq(config->devices[i].max_pool_share, 0.25);
		ck_assert_uint_eq(policy->max_per_bucket, 0);
		ck_assert_uint_eq(policy->pool_decay_ns, UINT64_C(60000000000));
		ck_assert_uint_eq(policy->reserve, 64 << 20);
		ck_assert(policy->pooling);
		ck_assert_uint_eq(policy->level_ppm[0], 600000);
		ck_assert_uint_eq(policy->level_ppm[1], 800000);
		ck_assert_uint_eq(policy->level_ppm[2], 950000);
		ck_assert_uint_eq(policy->hysteresis_ppm, 50000);
		ck_assert_uint_eq(policy->dwell_ns, UINT64_C(1000000000));
	}
}
END_TEST

START_TEST(every_key_can_be_written)
{
	accept_text(
		"[gpumemd]\npreset=constrained\nbackend=host\nsocket=/x/y\nsocket_mode=0640\n"
		"socket_group=gpu\nadmin_group=ops\nobserver_group=eyes\ntrust=client\ntransport=ipc\ntrack=all\n"
		"fraction=50%\nmin_free=1.5G\nmax_pool=3G\nmax_pooled_per_bucket=7\n"
		"pool_decay=90s\nreserve=0\ndecay=250ms\npressure_medium=0.1\npressure_high=20%\n"
		"pressure_critical=1\npressure_hysteresis=0\npressure_dwell=0\n"
		"hello_deadline=1min\nconnections_per_uid=8192\n[device 0]\nsize=2G\n");
	const struct gm_policy *policy = &config->devices[0].policy;
	ck_assert_str_eq(config->preset, "constrained");
	ck_assert_str_eq(config->backend, "host");
	ck_assert_str_eq(config->socket, "/x/y");
	ck_assert_uint_eq(config->socket_mode, 0640);
	ck_assert_str_eq(config->socket_group, "gpu");
	ck_assert_str_eq(config->admin_group, "ops");
	ck_assert_str_eq(config->observer_group, "eyes");
	ck_assert_int_eq(config->trust, GM_DOMAIN_TRUST_CLIENT);
	ck_assert(!policy->pooling);
	ck_assert_int_eq(config->transport, GM_TRANSPORT_IPC);
	ck_assert_int_eq(config->track, GM_TRACK_ALL);
	ck_assert_double_eq(policy->fraction, 0.5);
	ck_assert_uint_eq(policy->min_free, UINT64_C(1536) << 20);
	ck_assert_uint_eq(policy->max_pool, UINT64_C(3) << 30);
	ck_assert_double_lt(config->devices[0].max_pool_share, 0);
	ck_assert_uint_eq(policy->max_per_bucket, 7);
	ck_assert_uint_eq(policy->pool_decay_ns, UINT64_C(90000000000));
	ck_assert_uint_eq(config->pinned.policy.pool_decay_ns, UINT64_C(90000000000));
	ck_assert_uint_eq(policy->reserve, 0);
	ck_assert_uint_eq(config->decay_ns, 250000000);
	ck_assert_uint_eq(policy->level_ppm[0], 100000);
	ck_assert_uint_eq(policy->level_ppm[1], 200000);
	ck_assert_uint_eq(policy->level_ppm[2], 1000000);
	ck_assert_uint_eq(policy->hysteresis_ppm, 0);
	ck_assert_uint_eq(policy->dwell_ns, 0);
	ck_assert_uint_eq(config->hello_deadline_ns, UINT64_C(60000000000));
	ck_assert_uint_eq(config->connections_per_uid, 8192);
	ck_assert_uint_eq(config->devices[0].size, UINT64_C(2) << 30);
	ck_assert_uint_eq(config->n_devices, 1);
}
END_TEST

START_TEST(every_value_of_the_table_can_be_read_and_every_preset_stands_by_itself)
{
	for (size_t i = 0; i < GM_CONFIG_N_KEYS; i++) {
		const struct gm_config_key *key = gm_config_key(i);
		for (size_t preset = 0; preset < GM_CONFIG_N_PRESETS; preset++) {
			struct gm_config_value value;
			char why[GM_CONFIG_WHY_BYTES];
			if (key->presets[preset])
				ck_assert_int_eq(gm_config_value_parse(
							 key, key->presets[preset], &value, why),
					0);
		}
		ck_assert_ptr_nonnull(key->presets[0]);
		for (size_t j = 0; j < i; j++)
			ck_assert_str_ne(key->name, gm_config_key(j)->name);
	}
	accept_text("[gpumemd]\npreset = default\n");
	accept_text("[gpumemd]\npreset = inference\n");
	ck_assert_double_eq(config->devices[3].policy.fraction, 0.95);
	ck_assert_uint_eq(config->devices[3].policy.min_free, 256 << 20);
	ck_assert_double_gt(config->devices[3].max_pool_share, 0.25);
	expect("", "fraction", "0.95", "preset inference");
	expect("", "trust", "container", "default");
	accept_text("[gpumemd]\npreset = constrained\n");
	ck_assert_double_eq(config->devices[3].policy.fraction, 0.6);
	ck_assert_uint_eq(config->devices[3].policy.min_free, 1 << 30);
	ck_assert_double_lt(config->devices[3].max_pool_share, 0.25);
	ck_assert_uint_eq(config->devices[3].policy.max_per_bucket, 8);
	ck_assert_uint_lt(config->decay_ns, UINT64_C(10000000000));
	ck_assert_uint_lt(config->devices[3].policy.pool_decay_ns, UINT64_C(60000000000));
}
END_TEST

START_TEST(the_report_names_every_file_that_was_read)
{
	struct gm_config_report report;
	char want[1024];
	put(path, "[gpumemd]\n", 10);
	put_drop_in("20-b.conf", "[gpumemd]\nfraction = 2\n");
	put_drop_in("10-a.conf", "[gpumemd]\n");
	ck_assert_int_eq(gm_config_read(path, NULL, &config, &report), -EINVAL);
	snprintf(want, sizeof(want), "%1$s\n%1$s.d/10-a.conf\n%1$s.d/20-b.conf", path);
	ck_assert_str_eq(report.files, want);
	ck_assert_str_eq(report.path, path);
	ck_assert_ptr_nonnull(strstr(report.errors, "20-b.conf:2: fraction"));
	gm_config_report_deinit(&report);

	/* A file that cannot be read is not among them. */
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(gm_config_read(path, NULL, &config, &report), -ENOENT);
	snprintf(want, sizeof(want), "%1$s.d/10-a.conf\n%1$s.d/20-b.conf", path);
	ck_assert_str_eq(report.files, want);
	ck_assert_str_eq(report.path, path);
	gm_config_report_deinit(&report);

	/* The default file need not exist. */
	snprintf(want, sizeof(want), "%s/gpumemd/gpumemd.conf", folder);
	setenv("XDG_CONFIG_HOME", folder, 1);
	ck_assert_int_eq(gm_config_read(NULL, NULL, &config, &report), 0);
	ck_assert_str_eq(report.path, geteuid() < 1000 ? "/etc/gpumemd/gpumemd.conf" : want);
	if (access(report.path, F_OK) < 0)
		ck_assert_str_eq(report.files, "");
	ck_assert_ptr_null(report.errors);
	gm_config_report_deinit(&report);
}
END_TEST

START_TEST(the_pool_can_be_kept_for_good_on_all_devices_or_on_one)
{
	accept_text("[gpumemd]\npool_decay = off\n[device 1]\npool_decay = 5s\n");
	ck_assert_uint_eq(config->devices[0].policy.pool_decay_ns, 0);
	ck_assert_uint_eq(config->devices[1].policy.pool_decay_ns, UINT64_C(5000000000));
	ck_assert_uint_eq(config->pinned.policy.pool_decay_ns, 0);
	expect("", "pool_decay", "off", ":2");
}
END_TEST

START_TEST(a_written_key_wins_over_the_preset_wherever_it_stands)
{
	accept_text("[gpumemd]\nfraction = 0.5\npreset = inference\nmin_free = 1G\n");
	expect("", "fraction", "0.5", ":2");
	expect("", "preset", "inference", ":3");
	expect("", "min_free", "1G", ":4");
	expect("", "max_pool", "50%", "preset inference");
	/* A preset that comes later, in another file, does not take back what an earlier file says.
	 */
	put_drop_in("9.conf", "[gpumemd]\npreset = constrained\n");
	accept_text("[gpumemd]\nfraction = 0.5\npreset = inference\n");
	expect("", "fraction", "0.5", ":2");
	expect("", "preset", "constrained", "/9.conf:2");
	expect("", "min_free", "1G", "preset constrained");
}
END_TEST

START_TEST(a_device_has_the_general_values_but_for_its_own)
{
	accept_text("[device 2]\nfraction=0.1\n[gpumemd]\nfraction=0.2\nreserve=8M\n[device 0]\n");
	ck_assert_uint_eq(config->n_devices, 3);
	ck_assert_double_eq(config->devices[0].policy.fraction, 0.2);
	ck_assert_double_eq(config->devices[1].policy.fraction, 0.2);
	ck_assert_double_eq(config->devices[2].policy.fraction, 0.1);
	ck_assert_double_eq(config->devices[15].policy.fraction, 0.2);
	expect("device 2", "fraction", "0.1", ":2");
	expect("device 2", "reserve", "8M", ":5");
	expect("device 2", "min_free", "512M", "default");
	expect("device 0", "fraction", "0.2", ":4");
	expect("device 0", "size", "auto", "default");
	/* Device 1 is not in the file, so it is not listed. */
	for (size_t i = 0; i < config->n_entries; i++)
		ck_assert_str_ne(config->entries[i].section, "device 1");
}
END_TEST

START_TEST(drop_ins_are_read_in_the_order_of_their_names_and_win_key_by_key)
{
	put_drop_in("20-b.conf", "[gpumemd]\ndecay = 2s\n[device 0]\nsize = 4G\n");
	put_drop_in("10-a.conf", "\n[gpumemd]\ndecay = 1s\ntrack = all\n");
	put_drop_in("B.conf", "[gpumemd]\nreserve = 1M\n");
	put_drop_in("a.conf", "[gpumemd]\nreserve = 2M\n");
	put_drop_in("30-c.conf.old", "nonsense");
	put_drop_in(".40-d.conf", "nonsense");
	put_drop_in("README", "nonsense");
	accept_text("[gpumemd]\ndecay = 3s\ntrust = uid\ntrack = off\nreserve = 3M\n");
	expect("", "decay", "2s", "/20-b.conf:2");
	expect("", "track", "all", "/10-a.conf:4");
	expect("", "trust", "uid", ":3");
	expect("", "reserve", "2M", "/a.conf:2");
	expect("device 0", "size", "4G", "/20-b.conf:4");
	expect("device 0", "reserve", "2M", "/a.conf:2");
	ck_assert_ptr_nonnull(strstr(
		config->warnings, "/30-c.conf.old: not read: its name does not end in .conf"));
	ck_assert_ptr_nonnull(
		strstr(config->warnings, "/.40-d.conf: not read: its name begins with a dot"));
	ck_assert_ptr_null(strstr(config->warnings, "README"));
}
END_TEST

/* Whose configuration is read goes by the effective uid. */
static void act_as(bool root, uid_t uid)
{
	if (root)
		ck_assert_int_eq(setresuid(-1, uid, -1), 0);
}

START_TEST(an_ordinary_users_file_may_be_missing_and_is_found_when_there)
{
	char file[600];
	ck_assert_int_eq(chmod(folder, 0755), 0);
	snprintf(file, sizeof(file), "%s/gpumemd", folder);
	ck_assert_int_eq(mkdir(file, 0755), 0);
	bool root = getuid() < 1000;
	act_as(root, ORDINARY_UID);
	ck_assert_int_eq(setenv("XDG_CONFIG_HOME", folder, 1), 0);
	ck_assert_int_eq(gm_config_load(NULL, &config, &error), 0);
	forget();
	ck_assert_int_eq(setenv("XDG_CONFIG_HOME", "relative", 1), 0);
	ck_assert_int_eq(setenv("HOME", "/nowhere", 1), 0);
	ck_assert_int_eq(gm_config_load(NULL, &config, &error), 0);
	forget();
	ck_assert_int_eq(unsetenv("HOME"), 0);
	ck_assert_int_eq(gm_config_load(NULL, &config, &error), 0);
	forget();
	ck_assert_int_eq(setenv("XDG_CONFIG_HOME", folder, 1), 0);
	act_as(root, 0);
	/* A drop-in without the file it goes with. */
	snprintf(path, sizeof(path), "%s/gpumemd/gpumemd.conf", folder);
	put_drop_in("1.conf", "[gpumemd]\ndecay = 7s\n");
	act_as(root, ORDINARY_UID);
	ck_assert_int_eq(gm_config_load(NULL, &config, &error), 0);
	expect("", "decay", "7s", "/1.conf:2");
	forget();
	act_as(root, 0);
	put(path, "[gpumemd]\ntrust = uid\n", 22);
	act_as(root, ORDINARY_UID);
	ck_assert_int_eq(gm_config_load(NULL, &config, &error), 0);
	expect("", "trust", "uid", ":2");
	expect("", "decay", "7s", "/1.conf:2");
	forget();
	/* A link into nothing is not the same as nothing. */
	act_as(root, 0);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(symlink("/nowhere/at/all", path), 0);
	act_as(root, ORDINARY_UID);
	ck_assert_int_eq(gm_config_load(NULL, &config, &error), -ENOENT);
	act_as(root, 0);
}
END_TEST

START_TEST(names_are_read_in_any_case_and_words_are_not)
{
	accept_text("[GPUmemd]\nFRACTION = 0.5\n[Device\t3]\nReserve=2M\n");
	expect("", "fraction", "0.5", ":2");
	expect("device 3", "reserve", "2M", ":4");
	refuse_text("[gpumemd]\ntrust = UID\n",
		"2: trust: \"UID\" is not one of uid, container, client; did you mean uid?");
}
END_TEST

START_TEST(what_depends_on_the_size_is_worked_out_for_a_device)
{
	struct gm_policy policy;
	accept_text("[gpumemd]\nmin_free=100M\nfraction=0.5\nmax_pool=10%\n[device 1]\nmax_pool=0\n"
		    "[device 2]\nmax_pool=100%\nmin_free=900M\nreserve=1G\n");
	gm_config_policy(config, 0, UINT64_C(1000) << 20, &policy);
	ck_assert_uint_eq(policy.max_pool, UINT64_C(50) << 20);
	ck_assert_uint_eq(policy.reserve, UINT64_C(50) << 20);
	gm_config_policy(config, 1, UINT64_C(1000) << 20, &policy);
	ck_assert_uint_eq(policy.max_pool, 0);
	ck_assert_uint_eq(policy.reserve, 0);
	gm_config_policy(config, 2, UINT64_C(1000) << 20, &policy);
	ck_assert_uint_eq(policy.max_pool, UINT64_C(100) << 20);
	ck_assert_uint_eq(policy.reserve, UINT64_C(100) << 20);
	gm_config_policy(config, 2, UINT64_C(10) << 20, &policy);
	ck_assert_uint_eq(policy.max_pool, 0);
}
END_TEST

START_TEST(pinned_memory_has_its_limit_for_capacity_and_no_reserve)
{
	struct gm_policy policy;
	accept_text("[gpumemd]\nmin_free=100M\nfraction=0.5\nmax_pool=10%\nreserve=1M\n");
	ck_assert_uint_eq(config->host_limit, UINT64_MAX);
	gm_config_pinned_policy(config, UINT64_C(1000) << 20, &policy);
	ck_assert_double_eq(policy.fraction, 1);
	ck_assert_uint_eq(policy.min_free, 0);
	ck_assert_uint_eq(policy.max_pool, UINT64_C(100) << 20);
	ck_assert_uint_eq(policy.reserve, 0);
	ck_assert(policy.pooling);
	accept_text("[gpumemd]\nhost_limit=2M\ntrust=client\nmax_pool=1M\n");
	ck_assert_uint_eq(config->host_limit, UINT64_C(2) << 20);
	gm_config_pinned_policy(config, UINT64_C(1000) << 20, &policy);
	ck_assert_uint_eq(policy.max_pool, UINT64_C(1) << 20);
	ck_assert(!policy.pooling);
	ck_assert_int_eq(config->host_memory, GM_BACKEND_HOST_MEMORY_AUTO);
	accept_text("[gpumemd]\nhost_limit=0\nhost_memory=memfd\n");
	ck_assert_uint_eq(config->host_limit, 0);
	ck_assert_int_eq(config->host_memory, GM_BACKEND_HOST_MEMORY_MEMFD);
	ck_assert(config->cpu_fallback);
	accept_text("[gpumemd]\ncpu_fallback=no\n");
	ck_assert(!config->cpu_fallback);
}
END_TEST

START_TEST(what_a_reload_cannot_change_is_named)
{
	static const char base[] =
		"[gpumemd]\nmin_free=0\nbackend=host\n[device 0]\nsize=1G\n[device 1]\nsize=1G\n";
	accept_text(base);
	struct gm_config *old = config;
	config = NULL;
	accept_text(base);
	ck_assert_ptr_null(gm_config_fixed_changes(old, config));
	accept_text(
		"[gpumemd]\nmin_free=1M\nbackend=host\ntrust=uid\nfraction=0.1\ndecay=1s\n[device 0]\nsize=1024M\n"
		"[device 1]\nsize=1G\nreserve=0\n");
	ck_assert_ptr_null(gm_config_fixed_changes(old, config));
	/* A section that gives no size changes none. */
	accept_text(
		"[gpumemd]\nmin_free=0\nbackend=host\n[device 0]\nsize=1G\n[device 1]\nsize=1G\n[device 2]\nfraction=0.5\n");
	ck_assert_ptr_null(gm_config_fixed_changes(old, config));
	accept_text(
		"[gpumemd]\nmin_free=0\nhost_limit=1G\nhost_memory=memfd\nbackend=auto\nsocket=/x\nsocket_mode=0600\nsocket_group=x\n"
		"[device 0]\nsize=2G\n");
	char *changes = gm_config_fixed_changes(old, config);
	ck_assert_str_eq(changes,
		"backend, host_limit, host_memory, socket, socket_mode, socket_group, size of [device 0], size of [device 1]");
	free(changes);
	/* What is not in force yet says so where people look it up. */
	ck_assert_uint_eq(strncmp(entry("", "backend")->source, "after a restart: /", 18), 0);
	ck_assert_uint_eq(strncmp(entry("", "host_limit")->source, "after a restart: /", 18), 0);
	ck_assert_uint_eq(strncmp(entry("device 0", "size")->source, "after a restart: /", 18), 0);
	expect("", "min_free", "0", ":2");
	gm_config_free(old);
	gm_config_free(NULL);
}
END_TEST

START_TEST(without_a_socket_of_its_own_its_keys_have_no_effect)
{
	accept_text("[gpumemd]\nmin_free=0\n");
	struct gm_config *old = config;
	config = NULL;
	gm_config_drop_socket(old);
	ck_assert_str_eq(old->dropped, "");

	accept_text("[gpumemd]\nmin_free=0\nsocket=/x\nsocket_mode=0666\nsocket_group=x\n");
	gm_config_drop_socket(config);
	ck_assert_str_eq(config->dropped, "socket, socket_mode, socket_group");
	ck_assert_uint_eq(strncmp(entry("", "socket")->source, "no effect: /", 12), 0);
	ck_assert_uint_eq(strncmp(entry("", "socket_mode")->source, "no effect: /", 12), 0);
	ck_assert_str_eq(entry("", "socket_mode")->value, "0666");
	ck_assert_uint_eq(strncmp(entry("", "socket_group")->source, "no effect: /", 12), 0);
	expect("", "min_free", "0", ":2");

	/* A restart would not change that. */
	ck_assert_ptr_null(gm_config_fixed_changes(old, config));
	gm_config_free(old);
}
END_TEST

START_TEST(what_the_command_line_says_is_in_force_and_no_restart_changes_it)
{
	accept_text("[gpumemd]\nmin_free=0\nbackend=cuda\n");
	struct gm_config *old = config;
	config = NULL;
	gm_config_use_options(old, "host", "/x/socket");

	accept_text("[gpumemd]\nmin_free=0\nsocket=/y\n");
	gm_config_use_options(config, "host", "/x/socket");
	ck_assert_str_eq(config->backend, "host");
	ck_assert_str_eq(config->socket, "/x/socket");
	ck_assert_str_eq(entry("", "backend")->value, "host");
	ck_assert_str_eq(entry("", "backend")->source, "command line (-b)");
	ck_assert_str_eq(entry("", "socket")->value, "/x/socket");
	ck_assert_str_eq(entry("", "socket")->source, "command line (-s)");
	ck_assert_ptr_null(gm_config_fixed_changes(old, config));

	/* What the command line does not have stays. */
	gm_config_free(old);
	accept_text("[gpumemd]\nmin_free=0\nsocket=/y\n");
	gm_config_use_options(config, NULL, NULL);
	expect("", "socket", "/y", ":3");
}
END_TEST

START_TEST(what_happens_when_memory_is_short_is_read_per_device)
{
	accept_text("[gpumemd]\noom = wait\noom_wait = 2s\nreclaim_deadline = 50ms\n"
		    "after_action = 3s\nterminate_grace = 0\ndeadlock_after = 4s\n"
		    "[device 1]\noom = terminate\n");
	ck_assert_int_eq(config->devices[0].policy.oom, GM_POLICY_OOM_WAIT);
	ck_assert_int_eq(config->devices[1].policy.oom, GM_POLICY_OOM_TERMINATE);
	ck_assert_uint_eq(config->devices[1].policy.wait_ns, UINT64_C(2000000000));
	ck_assert_uint_eq(config->devices[0].policy.reclaim_ns, 50000000);
	ck_assert_uint_eq(config->devices[0].policy.settle_ns, UINT64_C(3000000000));
	ck_assert_uint_eq(config->devices[1].policy.deadlock_ns, UINT64_C(4000000000));
	ck_assert_uint_eq(config->terminate_grace_ns, 0);
	accept_text("");
	ck_assert_int_eq(config->devices[0].policy.oom, GM_POLICY_OOM_REFUSE);
	ck_assert_uint_eq(config->devices[0].policy.deadlock_ns, GM_QUEUE_DEADLOCK_NS);
	ck_assert_uint_eq(config->terminate_grace_ns, UINT64_C(5000000000));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("config");
	TCase *tcase = tcase_create("values");
	tcase_add_checked_fixture(tcase, make_folder, remove_folder);
	tcase_add_test(tcase, the_report_names_every_file_that_was_read);
	tcase_add_test(tcase, the_pool_can_be_kept_for_good_on_all_devices_or_on_one);
	tcase_add_test(tcase, an_empty_file_gives_every_key_its_default);
	tcase_add_test(tcase, every_key_can_be_written);
	tcase_add_test(
		tcase, every_value_of_the_table_can_be_read_and_every_preset_stands_by_itself);
	tcase_add_test(tcase, a_written_key_wins_over_the_preset_wherever_it_stands);
	tcase_add_test(tcase, a_device_has_the_general_values_but_for_its_own);
	tcase_add_test(tcase, drop_ins_are_read_in_the_order_of_their_names_and_win_key_by_key);
	tcase_add_test(tcase, an_ordinary_users_file_may_be_missing_and_is_found_when_there);
	tcase_add_test(tcase, names_are_read_in_any_case_and_words_are_not);
	tcase_add_test(tcase, what_depends_on_the_size_is_worked_out_for_a_device);
	tcase_add_test(tcase, pinned_memory_has_its_limit_for_capacity_and_no_reserve);
	tcase_add_test(tcase, what_a_reload_cannot_change_is_named);
	tcase_add_test(tcase, without_a_socket_of_its_own_its_keys_have_no_effect);
	tcase_add_test(tcase, what_the_command_line_says_is_in_force_and_no_restart_changes_it);
	tcase_add_test(tcase, what_happens_when_memory_is_short_is_read_per_device);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
