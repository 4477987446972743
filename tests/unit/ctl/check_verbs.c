/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * The verbs against a scripted daemon: what is on the wire must be what people and programs get,
 * within 80 columns, whatever clients call themselves.
 */

#include "tests/tap.h"
#include "tests/unit/ctl/long_user.h"
#include "tests/unit/ctl/verbs_fixture.h"

static uint8_t uuid[16] = {0xde, 0xad, 0xbe, 0xef, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};

static void device_init(Gm__Wire__Device *device, uint32_t number)
{
	gm__wire__device__init(device);
	device->number = number;
	device->name = (char *)"NVIDIA GeForce RTX 4090 Laptop GPU";
	device->backend = (char *)"cuda";
	device->pci = (char *)"0000:01:00.0";
	device->uuid.data = uuid;
	device->uuid.len = sizeof(uuid);
	device->total = 140 * G;
	device->capacity = 126 * G;
	device->ceiling = 120 * G;
	device->available = 72 * G;
	device->leased = 47 * G;
	device->quarantined = 1 * G;
	device->pooled = 1023 * (G / 1024) + 900 * 1024;
	device->foreign = 12 * G;
	device->pressure_ppm = 428571;
	device->fraction = 0.9;
	device->min_free = G / 2;
	device->peak_charged = 50 * G;
	device->chunks = 90;
	device->transport_fd = device->transport_ipc = true;
	device->measured = true;
}

static bool
	client_has_most; /* of the foreign memory of device 1, and the other declared what it has */

/* Device 0: a client, another, one that ended meanwhile. Device 1: more than can be listed. Device
 * 2: nobody knows. */
static void send_processes(struct gm_fake *f)
{
	const Gm__Wire__Packet *request = gm_fake_expect(f, GM__WIRE__PACKET__BODY_GET_PROCESSES);
	Gm__Wire__ProcessesReply reply = GM__WIRE__PROCESSES_REPLY__INIT;
	Gm__Wire__DeviceProcesses device = GM__WIRE__DEVICE_PROCESSES__INIT, *devices = &device;
	Gm__Wire__Process processes[3], *list[3] = {&processes[0], &processes[1], &processes[2]};
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;

	if (!request)
		return;
	uint64_t id = request->id;
	for (int i = 0; i < 3; i++) {
		gm__wire__process__init(&processes[i]);
		processes[i].pid = 4711 + i;
		processes[i].bytes = 10 * G;
		processes[i].bytes_known = i != 2;
		processes[i].uid_known = i != 2;
	}
	processes[0].command = (char *)"python3 -m something.long.enough.to.be.cut.off";
	processes[1].kind = GM__WIRE__PROCESS_KIND__PROCESS_CLIENT;
	processes[1].bytes = client_has_most ? 12 * G : G / 2;
	processes[1].declared_seen = client_has_most ? G : 0;
	packet.body_case = GM__WIRE__PACKET__BODY_PROCESSES;
	packet.processes = &reply;
	reply.n_devices = 1;
	reply.devices = &devices;
	device.known = true;
	device.n_processes = 2;
	device.processes = list;
	send_answer(f, &packet, id, true);
	device.device = 1;
	device.n_processes = 3;
	device.unlisted = 7;
	send_answer(f, &packet, id, true);
	device = (Gm__Wire__DeviceProcesses)GM__WIRE__DEVICE_PROCESSES__INIT;
	device.device = 2;
	send_answer(f, &packet, id, false);
}

/* Two requests wait. */
static void send_queue(struct gm_fake *f)
{
	const Gm__Wire__Packet *request = gm_fake_expect(f, GM__WIRE__PACKET__BODY_GET_QUEUE);
	Gm__Wire__QueueReply reply = GM__WIRE__QUEUE_REPLY__INIT;
	Gm__Wire__Waiting rows[2] = {GM__WIRE__WAITING__INIT, GM__WIRE__WAITING__INIT};
	Gm__Wire__Waiting *list[2] = {&rows[0], &rows[1]};
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;

	if (!request)
		return;
	packet.body_case = GM__WIRE__PACKET__BODY_QUEUE;
	packet.queue = &reply;
	reply.n_requests = 2;
	reply.requests = list;
	send_answer(f, &packet, request->id, false);
}

static void script_status(struct gm_fake *f, void *user)
{
	if (!gm_fake_hello(f))
		return;
	const Gm__Wire__Packet *request = gm_fake_expect(f, GM__WIRE__PACKET__BODY_GET_STATUS);
	Gm__Wire__StatusReply reply = GM__WIRE__STATUS_REPLY__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	Gm__Wire__Device devices[2], *list[2] = {&devices[0], &devices[1]};

	if (!request)
		return;
	uint64_t id = request->id;
	device_init(&devices[0], 0);
	device_init(&devices[1], 1);
	devices[1].level = 3;
	devices[1].pressure_ppm = 990000;
	devices[1].available = G;
	devices[1].ceiling = 60 * G;
	devices[1].foreign = 72 * G;
	devices[1].declared = 3 * G;
	devices[1].declared_seen = 2 * G;
	reply.version = (char *)"0.1.0";
	reply.pid = 812;
	reply.uptime_ms = 200000;
	reply.clients = 12;
	reply.quarantined_clients = 1;
	reply.leases = 34;
	reply.backend = (char *)"cuda";
	reply.socket = (char *)"/run/gpumemd/socket";
	reply.preset = (char *)"default";
	reply.requests = 123456;
	reply.refusals = 2;
	reply.n_devices = 2;
	reply.devices = list;
	packet.body_case = GM__WIRE__PACKET__BODY_STATUS;
	packet.status = &reply;
	send_answer(f, &packet, id, false);
	send_processes(f);
	send_queue(f);
}

START_TEST(status_is_one_screen_and_calls_out_what_is_unusual)
{
	char *text = run_text("status", script_status);

	has(text, "gpumemd 0.1.0, up 3min 20s, pid 812, user root");
	has(text, "/run/gpumemd/socket");
	has(text, "12, with 34 leases");
	has(text, "123456, 2 refused");
	has(text, "! device 1: pressure is critical, 1.0G available");
	has(text, "! device 1: foreign memory is 72.0G, so 66.0G of the capacity cannot be");
	has(text, ", pid 4711 of user root has\n  10.0G of it; see gpumemctl who 1\n");
	has(text, "! 1 client in quarantine, holding 2.0G");
	has(text, "! 2 requests are waiting; see gpumemctl queue\n");
	/* Memory of clients in quarantine counts as leased. */
	has(text, " 48.0G ");
	has(text, "critical");
	has(text, "DECLARED");
	has(text, " 3.0G ");
	ck_assert_ptr_null(strstr(text, "! device 0"));
	fits_screen(text, 24);
	free(text);
}
END_TEST

START_TEST(status_names_who_has_most_foreign_memory_client_or_not)
{
	client_has_most = true;
	char *text = run_text("status", script_status);

	client_has_most = false;
	has(text, "\n  pid 4712 of user root has 11.0G of it; see gpumemctl who 1\n");
	free(text);
}
END_TEST

START_TEST(status_gives_programs_bytes)
{
	json_t *json = run_json("status", script_status);

	ck_assert_int_eq(json_integer_value(json_object_get(json, "uptime_ms")), 200000);
	ck_assert_int_eq(json_integer_value(json_object_get(json, "quarantined_clients")), 1);
	ck_assert_int_eq(json_integer_value(at(json, "devices", 0, "total")), (int64_t)(140 * G));
	ck_assert_int_eq(json_integer_value(at(json, "devices", 1, "ceiling")), (int64_t)(60 * G));
	ck_assert_int_eq(json_integer_value(at(json, "devices", 1, "declared")), (int64_t)(3 * G));
	ck_assert_int_eq(
		json_integer_value(at(json, "devices", 1, "declared_seen")), (int64_t)(2 * G));
	ck_assert_double_eq_tol(
		json_real_value(at(json, "devices", 0, "pressure")), 0.428571, 1e-9);
	ck_assert_double_eq_tol(json_real_value(at(json, "devices", 0, "fraction")), 0.9, 1e-9);
	ck_assert_str_eq(json_string_value(at(json, "devices", 1, "level")), "critical");
	ck_assert_str_eq(json_string_value(at(json, "devices", 0, "uuid")),
		"GPU-deadbeef-0102-0304-0506-0708090a0b0c");
	ck_assert_str_eq(json_string_value(at(json, "warnings", 0, "kind")), "pressure");
	ck_assert_uint_eq(json_array_size(json_object_get(json, "warnings")), 4);
	json_decref(json);
}
END_TEST

static void script_devices(struct gm_fake *f, void *user)
{
	if (!gm_fake_hello(f))
		return;
	send_processes(f);
	const Gm__Wire__Packet *request = gm_fake_expect(f, GM__WIRE__PACKET__BODY_GET_DEVICES);
	Gm__Wire__DevicesReply reply = GM__WIRE__DEVICES_REPLY__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	Gm__Wire__Device device, *list = &device;

	if (!request)
		return;
	uint64_t id = request->id;
	packet.body_case = GM__WIRE__PACKET__BODY_DEVICES;
	packet.devices = &reply;
	reply.n_devices = 1;
	reply.devices = &list;
	for (uint32_t i = 0; i < 16; i++) {
		device_init(&device, i);
		device.uuid.len = i == 3 ? 5 : 16; /* not one: left out */
		device.measured = i != 2;
		device.free = 79 * G;
		send_answer(f, &packet, id, i < 15);
	}
}

START_TEST(devices_come_in_as_many_packets_as_they_like)
{
	char *text = run_text("devices", script_devices);
	has(text, "device: 0, NVIDIA GeForce RTX 4090 Laptop GPU\n");
	has(text, "device: 15,");
	has(text, "capacity: 126.0G (fraction 0.9, min_free 512.0M)\n");
	has(text, "charged: 48.0G (of which 0B admitted), at most 50.0G so far\n");
	has(text, "leased: 47.0G\n");
	has(text, "quarantined: 1.0G\n");
	has(text, "foreign: 12.0G, which leaves a ceiling of 120.0G\n");
	has(text, "free: 79.0G\n");
	has(text, "foreign: not known (no figures from NVML); see gpumemctl doctor\n");
	has(text, "free: at most 79.0G\n");
	has(text, "  0 4711 root");
	has(text, "512.0M outside leases\n");
	has(text, "1.5G no process\n");
	has(text, "! 7 more processes use less memory and are not shown\n");
	has(text, "uuid: GPU-deadbeef-0102-0304-0506-0708090a0b0c\n");
	fits_screen(text, 1000);
	free(text);
	json_t *json = run_json("devices", script_devices);
	ck_assert_uint_eq(json_array_size(json_object_get(json, "devices")), 16);
	ck_assert_int_eq(json_integer_value(at(json, "devices", 15, "device")), 15);
	ck_assert(json_is_null(at(json, "devices", 3, "uuid")));
	ck_assert(json_is_true(at(json, "devices", 0, "measured")));
	ck_assert(json_is_null(at(json, "devices", 2, "foreign")));
	ck_assert(json_is_false(at(json, "devices", 2, "measured")));
	ck_assert_int_eq(json_integer_value(at(json, "devices", 0, "free")), (int64_t)(79 * G));
	/* Two and three listed; one rest on device 0 (on 1 it cannot be told), one on each other.
	 */
	ck_assert_int_eq(json_integer_value(at(json, "processes", 0, "pid")), 4711);
	ck_assert_str_eq(json_string_value(at(json, "processes", 0, "kind")), "other");
	ck_assert_str_eq(json_string_value(at(json, "processes", 1, "kind")), "client");
	ck_assert_int_eq(json_integer_value(at(json, "processes", 1, "bytes")), (int64_t)(G / 2));
	ck_assert(json_is_null(at(json, "processes", 4, "bytes")));
	ck_assert(json_is_null(at(json, "processes", 4, "uid")));
	ck_assert_str_eq(json_string_value(at(json, "processes", 5, "kind")), "unlisted");
	ck_assert_int_eq(
		json_integer_value(at(json, "processes", 5, "bytes")), (int64_t)(G + G / 2));
	ck_assert_uint_eq(json_array_size(json_object_get(json, "processes")), 6);
	ck_assert_str_eq(json_string_value(at(json, "warnings", 0, "kind")), "unlisted");
	json_decref(json);
}
END_TEST

START_TEST(a_long_name_of_a_user_leaves_room_for_what_a_process_is)
{
	long_user = "a-user-with-a-name-as-long-as-some-of-them-are";
	char *text = run_text("devices", script_devices);
	long_user = NULL;
	has(text, "512.0M outside leases\n");
	has(text, "1.5G no process\n");
	has(text, "! cut, too narrow: USER, COMMAND; see --json\n");
	fits_screen(text, 1000);
	free(text);
}
END_TEST

static void script_pools(struct gm_fake *f, void *user)
{
	if (!gm_fake_hello(f))
		return;
	const Gm__Wire__Packet *request = gm_fake_expect(f, GM__WIRE__PACKET__BODY_GET_POOLS);
	Gm__Wire__PoolsReply reply = GM__WIRE__POOLS_REPLY__INIT;
	Gm__Wire__PoolTotals totals = GM__WIRE__POOL_TOTALS__INIT, other = totals;
	Gm__Wire__PoolTotals *list[] = {&totals, &other};
	Gm__Wire__PoolBucket bucket = GM__WIRE__POOL_BUCKET__INIT, *buckets = &bucket;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;

	if (!request)
		return;
	uint64_t id = request->id;
	packet.body_case = GM__WIRE__PACKET__BODY_POOLS;
	packet.pools = &reply;
	totals.pooled = 2 * G;
	totals.peak = 1023 * (G / 1024) + 900 * 1024;
	totals.max_pool = 31 * G;
	totals.reserve = G / 16;
	totals.hits = 123456789;
	totals.misses = 41152263;
	totals.returns = 123456789;
	totals.released = 123456789;
	totals.pool_decay_ms = 60 * 1000;
	other.device = 1;
	reply.n_totals = 2;
	reply.totals = list;
	send_answer(f, &packet, id, true);
	reply.n_totals = 0;
	bucket.chunk_bytes = G / 512;
	bucket.chunks = 64;
	bucket.transport = GM__WIRE__TRANSPORT__TRANSPORT_FD;
	bucket.domain = (char *)"uid 0 in "
				"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
	bucket.oldest_ms = 3600 * 1000;
	bucket.decays = true;
	bucket.decay_ms = 12 * 1000;
	reply.n_buckets = 1;
	reply.buckets = &buckets;
	send_answer(f, &packet, id, true);
	bucket.decays = false;
	bucket.transport = (Gm__Wire__Transport)77;
	bucket.chunk_bytes = UINT64_MAX;
	bucket.domain = (char *)"fresh";
	send_answer(f, &packet, id, false);
}

START_TEST(pools_show_totals_and_buckets_wherever_their_packets_fall)
{
	char *text = run_text("pools", script_pools);
	has(text, "HIT RATE");
	has(text, "75%");
	has(text, "128.0M");
	has(text, "…");
	has(text, " user root in 01234");
	fits_screen(text, 24);
	free(text);
	json_t *json = run_json("pools", script_pools);
	ck_assert_int_eq(json_integer_value(at(json, "pools", 0, "pool_decay_ms")), 60000);
	ck_assert_int_eq(json_integer_value(at(json, "pools", 1, "device")), 1);
	ck_assert(json_is_null(at(json, "pools", 1, "pool_decay_ms")));
	ck_assert(json_is_null(at(json, "pools", 1, "hit_rate")));
	ck_assert_int_eq(json_integer_value(at(json, "buckets", 0, "decay_ms")), 12000);
	ck_assert(json_is_null(at(json, "buckets", 1, "decay_ms")));
	ck_assert_double_eq_tol(json_real_value(at(json, "pools", 0, "hit_rate")), 0.75, 1e-6);
	ck_assert_int_eq(json_integer_value(at(json, "buckets", 0, "bytes")), 128 << 20);
	ck_assert_str_eq(json_string_value(at(json, "buckets", 0, "transport")), "fd");
	ck_assert_str_eq(json_string_value(at(json, "buckets", 1, "transport")), "unknown");
	ck_assert_str_eq(json_string_value(at(json, "buckets", 1, "domain")), "fresh");
	ck_assert_str_eq(json_string_value(at(json, "buckets", 1, "domain_name")), "fresh");
	ck_assert_int_eq(
		strncmp(json_string_value(at(json, "buckets", 0, "domain")), "uid 0 in ", 9), 0);
	ck_assert_int_eq(strncmp(json_string_value(at(json, "buckets", 0, "domain_name")),
				 "user root in ", 13),
		0);
	json_decref(json);
}
END_TEST

static Gm__Wire__Trim asked_trim;

static void script_trim(struct gm_fake *f, void *user)
{
	if (!gm_fake_hello(f))
		return;
	const Gm__Wire__Packet *request = gm_fake_expect(f, GM__WIRE__PACKET__BODY_TRIM);
	Gm__Wire__TrimReply reply = GM__WIRE__TRIM_REPLY__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;

	if (!request)
		return;
	asked_trim = *request->trim;
	packet.body_case = GM__WIRE__PACKET__BODY_TRIM_REPLY;
	packet.trim_reply = &reply;
	reply.released = 2 * G;
	reply.clients_asked = 3;
	send_answer(f, &packet, request->id, false);
}

START_TEST(trim_says_what_came_back)
{
	char *text = run_text("trim", script_trim);
	ck_assert(asked_trim.all_devices);
	has(text, "2.0G");
	has(text, "Asked 3 clients");
	has(text, "It goes to the pool; 'gpumemctl cleanup' releases that, too.");
	free(text);
	json_t *json = run_json("trim", script_trim);
	ck_assert_int_eq(json_integer_value(json_object_get(json, "released")), (int64_t)(2 * G));
	json_decref(json);
	struct gm_options options = {.device = 4, .given = GM_OPTION_DEVICE};
	free(run("trim", script_trim, false, &options));
	ck_assert(!asked_trim.all_devices);
	ck_assert_uint_eq(asked_trim.device, 4);
}
END_TEST

static void script_denied(struct gm_fake *f, void *user)
{
	if (!gm_fake_hello(f))
		return;
	const Gm__Wire__Packet *request = gm_fake_expect(f, GM__WIRE__PACKET__BODY_TRIM);
	Gm__Wire__Failure failure = GM__WIRE__FAILURE__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;

	if (!request)
		return;
	failure.status = GPUMEM_E_DENIED;
	failure.detail = (char *)"only administrators may trim";
	packet.body_case = GM__WIRE__PACKET__BODY_FAILURE;
	packet.failure = &failure;
	send_answer(f, &packet, request->id, false);
}

START_TEST(a_refusal_leaves_nothing_on_stdout)
{
	ck_assert_ptr_null(run("trim", script_denied, false, NULL));
	ck_assert_int_eq(trouble.status, GPUMEM_E_DENIED);
	ck_assert_int_eq(gm_status_exit(trouble.status), 4);
	ck_assert_str_eq(trouble.text, "only administrators may trim");
}
END_TEST

static void script_version(struct gm_fake *f, void *user)
{
	if (gm_fake_hello(f))
		gm_fake_wait_end(f);
}

START_TEST(version_shows_both_sides)
{
	char *text = run_text("version", script_version);
	has(text, "gpumemctl: " PACKAGE_VERSION ", protocol 1.4\n");
	has(text, "gpumemd: 9.8.7, protocol 1.11\n");
	free(text);
	json_t *json = run_json("version", script_version);
	ck_assert_str_eq(json_string_value(json_object_get(json, "gpumemd")), "9.8.7");
	json_decref(json);
}
END_TEST

/* The longest name that a client can have. */
#define LONG_CLIENT "client:a-trainer-with-a-name-that-is-as-long-as-names-of-clients-can-be"
static bool long_name;
static bool twin_run;  /* another run has the name of the first */
static bool run_limit; /* of a run that has a name */

static void script_config(struct gm_fake *f, void *user)
{
	if (!gm_fake_hello(f))
		return;
	const Gm__Wire__Packet *request = gm_fake_expect(f, GM__WIRE__PACKET__BODY_GET_CONFIG);
	Gm__Wire__ConfigReply reply = GM__WIRE__CONFIG_REPLY__INIT;
	Gm__Wire__ConfigEntry entry = GM__WIRE__CONFIG_ENTRY__INIT, *list = &entry;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;

	if (!request)
		return;
	packet.body_case = GM__WIRE__PACKET__BODY_CONFIG;
	packet.config = &reply;
	reply.n_entries = 1;
	reply.entries = &list;
	entry.key = (char *)"fraction";
	entry.value = (char *)"0.9";
	entry.source = (char *)"/etc/gpumemd/gpumemd.conf.d/"
			       "10-a-file-whose-name-is-rather-long-and-goes-on-and-on.conf:12";
	send_answer(f, &packet, request->id, false);

	/* A limit of the configuration, and others that were set at run time, in part. */
	request = gm_fake_expect(f, GM__WIRE__PACKET__BODY_GET_LIMITS);
	Gm__Wire__LimitsReply limits = GM__WIRE__LIMITS_REPLY__INIT;
	Gm__Wire__Limit rows[3] = {
		GM__WIRE__LIMIT__INIT, GM__WIRE__LIMIT__INIT, GM__WIRE__LIMIT__INIT};
	Gm__Wire__Limit *all[3] = {&rows[0], &rows[1], &rows[2]};
	if (!request)
		return;
	packet.body_case = GM__WIRE__PACKET__BODY_LIMITS;
	packet.limits = &limits;
	limits.n_limits = 3;
	limits.limits = all;
	limits.hidden_owners = 2;
	for (size_t i = 0; i < 3; i++) {
		rows[i].owner = (char *)(i != 2      ? "uid:1002"
					 : long_name ? LONG_CLIENT
						     : "client:trainer");
		rows[i].device = i == 1;
		rows[i].set = 7;
		rows[i].max = i == 2 ? UINT64_MAX : 3 * G / 2;
		rows[i].guarantee = 1025;
		rows[i].priority = -3;
	}
	rows[1].run_time = 1;
	rows[2].run_time = 7;
	if (run_limit) {
		rows[1].owner = (char *)"run:0123456789abcdef";
		rows[1].name = (char *)"nightly";
	}
	if (twin_run) {
		rows[2].owner = (char *)"run:fedcba9876543210";
		rows[2].name = (char *)"nightly";
	}
	send_answer(f, &packet, request->id, false);
}

START_TEST(config_show_names_the_source_of_each_value)
{
	struct gm_options options = {.args = {"show"}, .n_args = 1};
	char *text = run("config", script_config, false, &options);
	has(text, "fraction");
	/* Where the path is too long, its end says more than its beginning. */
	has(text, "goes-on-and-on.conf:12");
	has(text, "set at run time");
	has(text, "2 more owners have limits");
	fits_screen(text, 24);
	free(text);
	text = run("config", script_config, true, &options);
	json_t *json = json_loads(text, 0, NULL);
	ck_assert(json_is_null(at(json, "config", 0, "section")));
	ck_assert_str_eq(json_string_value(at(json, "config", 0, "value")), "0.9");
	has(json_string_value(at(json, "config", 0, "source")), "/etc/gpumemd");
	ck_assert_uint_eq(json_array_size(json_object_get(json, "config")), 5);
	static const char *const expected[4][3] = {
		{"device 1 limit uid:1002", "max", "1536M"},
		{"device 0 limit client:trainer", "max", "none"},
		{"device 0 limit client:trainer", "guarantee", "1025B"},
		{"device 0 limit client:trainer", "priority", "-3"},
	};
	for (size_t i = 0; i < 4; i++) {
		static const char *const keys[] = {"section", "key", "value"};
		for (size_t k = 0; k < 3; k++)
			ck_assert_str_eq(json_string_value(at(json, "config", i + 1, keys[k])),
				expected[i][k]);
		ck_assert_str_eq(json_string_value(at(json, "config", i + 1, "source")),
			"set at run time, in no file");
	}
	json_decref(json);
	free(text);
}
END_TEST

START_TEST(config_show_has_runs_by_their_names)
{
	struct gm_options options = {.args = {"show"}, .n_args = 1};

	run_limit = true;
	char *text = run("config", script_config, false, &options);
	ck_assert_msg(text != NULL, "%s", trouble.text);
	has(text, "device 1 limit run:nightly ");
	free(text);
	json_t *json = parse(run("config", script_config, true, &options));
	equals(json, "config", 1, "section", "device 1 limit run:0123456789abcdef");
	equals(json, "config", 1, "section_name", "device 1 limit run:nightly");
	json_decref(json);

	/* Two of them have one name. */
	twin_run = true;
	text = run("config", script_config, false, &options);
	ck_assert_msg(text != NULL, "%s", trouble.text);
	has(text, "device 1 limit run:nightly#01234567 ");
	has(text, "device 0 limit run:nightly#fedcba98 ");
	free(text);
	run_limit = twin_run = false;
}
END_TEST

START_TEST(config_show_cuts_the_section_and_neither_values_nor_headings)
{
	struct gm_options options = {.args = {"show"}, .n_args = 1};

	long_name = true;
	char *text = run("config", script_config, false, &options);
	long_name = false;
	ck_assert_msg(text != NULL, "%s", trouble.text);
	has(text, "\nSECTION ");
	has(text, " KEY       VALUE SOURCE\n");
	has(text, " max       1536M ");
	has(text, " guarantee 1025B ");
	has(text, "client:a-trainer");
	fits_screen(text, 24);
	free(text);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("verbs");
	TCase *tcase = tcase_create("verbs");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, status_is_one_screen_and_calls_out_what_is_unusual);
	tcase_add_test(tcase, status_names_who_has_most_foreign_memory_client_or_not);
	tcase_add_test(tcase, status_gives_programs_bytes);
	tcase_add_test(tcase, devices_come_in_as_many_packets_as_they_like);
	tcase_add_test(tcase, a_long_name_of_a_user_leaves_room_for_what_a_process_is);
	tcase_add_test(tcase, pools_show_totals_and_buckets_wherever_their_packets_fall);
	tcase_add_test(tcase, trim_says_what_came_back);
	tcase_add_test(tcase, a_refusal_leaves_nothing_on_stdout);
	tcase_add_test(tcase, version_shows_both_sides);
	tcase_add_test(tcase, config_show_names_the_source_of_each_value);
	tcase_add_test(tcase, config_show_has_runs_by_their_names);
	tcase_add_test(tcase, config_show_cuts_the_section_and_neither_values_nor_headings);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
