/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Requests, from a connection through core to a device thread and back. Everything runs in one
 * process, so that each allocation of the daemon can be made to fail in turn. Then the client gets
 * an answer or the end of its connection, no memory is lost, and the next client is served as if
 * nothing had happened.
 */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/system/random.h"
#include "daemon/backend/backend.h"
#include "daemon/serve/serve_dispatch.h"
#include "daemon/tenant/client_news.h"
#include "daemon/backend/worker.h"
#include "tests/tap.h"
#include "tests/unit/failing_malloc.h"
#include "tests/unit/daemon/wire_client.h"

#define MIB UINT64_C(0x100000)

static uv_loop_t loop;
static struct gm_hub hub;
static struct gm_core *core;
static struct gm_clients clients;
static struct gm_serve serve;
static struct gm_worker *device;
static struct gm_config config = {
	.trust = GM_DOMAIN_TRUST_UID, .track = GM_TRACK_ALL, .preset = "default"};
static void *backend;
static uint64_t last_id;
static size_t peers;

static void do_create(void *ctx, struct gm_chunk *chunk, uint64_t turn)
{
	gm_worker_create(device, chunk, turn);
}

static void do_destroy(void *ctx, struct gm_chunk *chunk)
{
	gm_worker_destroy(device, chunk);
}

static uint64_t now_ns(void *ctx)
{
	return gm_clock_ns();
}

static uint64_t new_id(void *ctx)
{
	return ++last_id;
}

static void random_bytes(void *ctx, void *bytes, size_t n)
{
	if (gm_random(bytes, n) < 0)
		abort(); /* an assertion would allocate */
}

static void device_changed(void *ctx, uint32_t number)
{
	gm_clients_device_changed(&clients, number);
}

static void session_changed(void *ctx, struct gm_session *session, uint32_t number)
{
	gm_clients_session_changed(session, number);
}

static void level_changed(void *ctx, uint32_t number, enum gm_pressure_level level)
{
	gm_clients_level_changed(&clients, number);
}

static const struct gm_core_ops core_ops = {
	.create = do_create,
	.destroy = do_destroy,
	.now_ns = now_ns,
	.new_id = new_id,
	.random = random_bytes,
	.device_changed = device_changed,
	.session_changed = session_changed,
	.level_changed = level_changed,
};

static void on_created(void *ctx, struct gm_chunk *chunk, int result)
{
	gm_core_created(core, chunk, result);
}

static void on_destroyed(void *ctx, struct gm_chunk *chunk)
{
	gm_core_destroyed(core, chunk);
}

static void on_sampled(void *ctx, uint32_t number, int result, uint64_t free_bytes, bool latest)
{
	ck_assert_int_eq(result, 0);
	gm_core_sample(core, number, free_bytes);
}

static void on_surveyed(void *ctx, uint32_t number, struct gm_usage *usage)
{
	gm_usage_free(usage);
}

static const struct gm_worker_events worker_events = {
	.created = on_created,
	.destroyed = on_destroyed,
	.sampled = on_sampled,
	.surveyed = on_surveyed,
};

static void on_closed(void *ctx, struct gm_peer *peer)
{
	peers--;
	gm_serve_dispatch_closed(ctx, peer);
}

static const struct gm_peer_ops peer_ops = {
	.packet = gm_serve_dispatch_packet, .closed = on_closed};

static void on_flushed(void *ctx)
{
}

static uint64_t total = 256 * MIB;

static void setup(void)
{
	struct gm_backend_config sizes = {.size = {total}};
	const struct gm_core_device_info info = {
		.total = total,
		.transport_fd = true,
		.policy = {.fraction = 1,
			.max_pool = total,
			.pooling = true,
			.level_ppm = {600000, 800000, 950000}},
	};
	char why[256];
	uint32_t n;
	ck_assert_int_eq(uv_loop_init(&loop), 0);
	ck_assert_int_eq(gm_backend_host.open(&sizes, &backend, &n, why), 0);
	ck_assert_int_eq(gm_hub_init(&hub, &loop, 1), 0);
	ck_assert_int_eq(gm_core_new(&core_ops, NULL, &core), 0);
	ck_assert_int_eq(gm_clients_init(&clients, &hub, core, 1, on_flushed, NULL), 0);
	ck_assert_int_eq(
		gm_worker_new(&loop, &gm_backend_host, backend, 0, &worker_events, NULL, &device),
		0);
	ck_assert_int_eq(gm_core_add_device(core, &info, &n), 0);
	serve = (struct gm_serve){.core = core,
		.clients = &clients,
		.config = &config,
		.ops = &gm_backend_host,
		.backend = backend,
		.socket = "/nowhere",
		.n_devices = 1,
		.uid = geteuid(),
		.admin_group = (gid_t)-1,
		.observer_group = (gid_t)-1};
	gm_backend_host.device_info(backend, 0, &serve.devices[0]);
}

static void setup_large(void)
{
	total = 1024 * MIB;
	setup();
}

static void teardown(void)
{
	gm_clients_end_all(&clients);
	gm_core_shutdown(core);
	while (!gm_core_idle(core))
		uv_run(&loop, UV_RUN_ONCE);
	uint64_t free_bytes;
	ck_assert_int_eq(gm_backend_host.memory_free(backend, 0, &free_bytes), 0);
	ck_assert_uint_eq(free_bytes, total);
	gm_worker_stop(device);
	gm_clients_close(&clients);
	gm_hub_close(&hub);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&loop), 0);
	gm_core_free(core);
	gm_clients_deinit(&clients);
	gm_hub_deinit(&hub);
	gm_backend_host.close(backend);
	ck_assert_uint_eq(peers, 0);
}

/* Only allocations of the daemon may fail, not those of the test. */
static void turn_loop(void)
{
	failing_malloc_pause(false);
	uv_run(&loop, UV_RUN_ONCE);
	failing_malloc_pause(true);
}

/* The identity that the daemon sees. scope "": in no container. */
struct guise {
	uid_t uid;
	const char *scope, *container;
	bool loose; /* the name proves nothing */
};

static void disguise(struct gm_identity *identity, const struct guise *guise)
{
	identity->uid = guise->uid;
	identity->confined = false;
	snprintf(identity->cgroup.scope, sizeof(identity->cgroup.scope), "%s", guise->scope);
	snprintf(identity->cgroup.container, sizeof(identity->cgroup.container), "%s",
		guise->container);
	identity->cgroup.name_is_loose = guise->loose;
}

static int send_buffer; /* of the daemon's end of the next connections; 0: the default */

/* Connects a client in this process; guise NULL: with its own identity. Returns false if the daemon
 * could not even accept the connection. */
static bool join(struct wire_client *client, const struct guise *guise)
{
	int ends[2];
	char why[256];
	struct gm_identity *identity;
	struct gm_peer *peer;
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	client->socket = ends[1];
	if (send_buffer)
		ck_assert_int_eq(setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &send_buffer,
					 sizeof(send_buffer)),
			0);
	failing_malloc_pause(false);
	int r = gm_identity_read(ends[0], &identity, why);
	if (r == 0) {
		if (guise)
			disguise(identity, guise);
		r = gm_peer_new(
			&hub, ends[0], identity, identity->uid, 60000, &peer_ops, &serve, &peer);
		gm_identity_unref(identity);
	}
	failing_malloc_pause(true);
	if (r < 0) {
		ck_assert_int_eq(r, -ENOMEM);
		close(ends[0]);
		return false;
	}
	peers++;
	return true;
}

static struct wire_client *new_client(void)
{
	struct wire_client *client = calloc(1, sizeof(*client));
	ck_assert_ptr_nonnull(client);
	client->socket = client->wakeup = client->daemon_page = client->client_page = -1;
	gm_wire_arena_init(&client->arena);
	gm_fdlist_init(&client->in.fds);
	return client;
}

static bool readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	return poll(&p, 1, 0) == 1;
}

/* Sends a request, lets the loop turn, and returns the last packet of the answer, or NULL if the
 * connection has ended. */
static Gm__Wire__Packet *call(
	struct wire_client *client, Gm__Wire__Packet__BodyCase body, void *message)
{
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	Gm__Wire__Packet *answer;
	packet.body_case = body;
	packet.hello = message; /* every member of the union is a pointer */
	wire_send(client, &packet);
	do {
		while (!readable(client->socket))
			turn_loop();
		answer = wire_receive(client);
	} while (answer && answer->more);
	return answer;
}

static bool failed(const Gm__Wire__Packet *answer)
{
	return !answer || answer->body_case == GM__WIRE__PACKET__BODY_FAILURE;
}

/* Does everything that a client and gpumemctl do. Stops at the first failure. */
static bool scenario(struct wire_client *client)
{
	Gm__Wire__Hello hello = GM__WIRE__HELLO__INIT;
	Gm__Wire__Lease lease = GM__WIRE__LEASE__INIT;
	Gm__Wire__Grow grow = GM__WIRE__GROW__INIT;
	Gm__Wire__GetHandles handles = GM__WIRE__GET_HANDLES__INIT;
	Gm__Wire__Share share = GM__WIRE__SHARE__INIT;
	Gm__Wire__Open open = GM__WIRE__OPEN__INIT;
	Gm__Wire__Unshare unshare = GM__WIRE__UNSHARE__INIT;
	Gm__Wire__Return back = GM__WIRE__RETURN__INIT;
	Gm__Wire__GetDevices devices = GM__WIRE__GET_DEVICES__INIT;
	Gm__Wire__GetStatus status = GM__WIRE__GET_STATUS__INIT;
	Gm__Wire__GetPools pools = GM__WIRE__GET_POOLS__INIT;
	Gm__Wire__GetClients list = GM__WIRE__GET_CLIENTS__INIT;
	Gm__Wire__GetBuffers buffers = GM__WIRE__GET_BUFFERS__INIT;
	Gm__Wire__GetConfig settings = GM__WIRE__GET_CONFIG__INIT;
	Gm__Wire__Trim trim = GM__WIRE__TRIM__INIT;
	Gm__Wire__Goodbye goodbye = GM__WIRE__GOODBYE__INIT;
	uint8_t token[GM_TOKEN_BYTES];
	Gm__Wire__Packet *answer;

	if (!join(client, NULL))
		return false;
	hello.major = GM_WIRE_MAJOR;
	if (failed(call(client, GM__WIRE__PACKET__BODY_HELLO, &hello)))
		return false;
	lease.bytes = 3 * MIB;
	lease.tag = (char *)"tag";
	answer = call(client, GM__WIRE__PACKET__BODY_LEASE, &lease);
	if (failed(answer))
		return false;
	ck_assert_uint_eq(client->in.fds.n, answer->lease_reply->n_chunks);
	grow.lease = handles.lease = share.lease = unshare.lease = back.lease =
		answer->lease_reply->lease;
	grow.bytes = 4 * MIB;
	if (failed(call(client, GM__WIRE__PACKET__BODY_GROW, &grow)) ||
		failed(call(client, GM__WIRE__PACKET__BODY_GET_HANDLES, &handles)))
		return false;
	answer = call(client, GM__WIRE__PACKET__BODY_SHARE, &share);
	if (failed(answer))
		return false;
	memcpy(token, answer->share_reply->token.data, sizeof(token));
	open.token.data = token;
	open.token.len = sizeof(token);
	trim.all_devices = true;
	return !failed(call(client, GM__WIRE__PACKET__BODY_OPEN, &open)) &&
	       !failed(call(client, GM__WIRE__PACKET__BODY_UNSHARE, &unshare)) &&
	       !failed(call(client, GM__WIRE__PACKET__BODY_GET_DEVICES, &devices)) &&
	       !failed(call(client, GM__WIRE__PACKET__BODY_GET_STATUS, &status)) &&
	       !failed(call(client, GM__WIRE__PACKET__BODY_GET_POOLS, &pools)) &&
	       !failed(call(client, GM__WIRE__PACKET__BODY_GET_CLIENTS, &list)) &&
	       !failed(call(client, GM__WIRE__PACKET__BODY_GET_BUFFERS, &buffers)) &&
	       !failed(call(client, GM__WIRE__PACKET__BODY_GET_CONFIG, &settings)) &&
	       !failed(call(client, GM__WIRE__PACKET__BODY_RETURN_CHUNKS, &back)) &&
	       !failed(call(client, GM__WIRE__PACKET__BODY_RETURN_CHUNKS, &back)) &&
	       !failed(call(client, GM__WIRE__PACKET__BODY_TRIM, &trim)) &&
	       !failed(call(client, GM__WIRE__PACKET__BODY_GOODBYE, &goodbye));
}

static void leave(struct wire_client *client)
{
	wire_close(client);
	while (peers)
		uv_run(&loop, UV_RUN_ONCE);
	/* What the client still holds stays charged, because this process lives. End it here. */
	gm_clients_end_all(&clients);
}

START_TEST(every_request_is_answered)
{
	struct wire_client *client = new_client();
	ck_assert(scenario(client));
	leave(client);
}
END_TEST

START_TEST(whichever_allocation_fails_somebody_is_told_and_nothing_is_lost)
{
	uint64_t n = 0;
	bool fired;
	do {
		struct wire_client *client = new_client();
		failing_malloc_pause(true);
		failing_malloc_arm(++n);
		bool ok = scenario(client);
		fired = failing_malloc_fired();
		ck_assert(ok || fired);
		leave(client);
		/* The next client is served as if nothing had happened. */
		client = new_client();
		ck_assert(scenario(client));
		leave(client);
	} while (fired);
	ck_assert_uint_gt(n, 20);
}
END_TEST

static void expect_domain(struct wire_client *client, const char *want)
{
	Gm__Wire__GetPools pools = GM__WIRE__GET_POOLS__INIT;
	const Gm__Wire__Packet *answer = call(client, GM__WIRE__PACKET__BODY_GET_POOLS, &pools);
	ck_assert(!failed(answer));
	ck_assert_uint_eq(answer->pools->n_buckets, 1);
	ck_assert_str_eq(answer->pools->buckets[0]->domain, want);
}

START_TEST(which_container_left_memory_in_the_pool_is_not_told_to_everybody)
{
	const struct guise owner = {1000, "/docker/a", "box", false};
	const struct {
		struct guise guise;
		const char *sees;
	} askers[] = {
		{{1000, "/docker/a", "box", false}, "uid 1000 in box"},
		{{1000, "/docker/b", "other", false}, "uid 1000 in a container"},
		{{1000, "", "", false}, "uid 1000 in a container"},
		{{2000, "/docker/a", "box", false}, "uid 1000 in a container"},
		{{0, "", "", false}, "uid 1000 in box"}, /* an administrator sees everything */
	};
	Gm__Wire__Hello hello = GM__WIRE__HELLO__INIT;
	Gm__Wire__Lease lease = GM__WIRE__LEASE__INIT;
	Gm__Wire__Return back = GM__WIRE__RETURN__INIT;
	struct wire_client *client = new_client();
	config.trust = GM_DOMAIN_TRUST_CONTAINER;
	serve.uid = 0; /* so that the user who runs this test is no administrator */
	ck_assert(join(client, &owner));
	hello.major = GM_WIRE_MAJOR;
	ck_assert(!failed(call(client, GM__WIRE__PACKET__BODY_HELLO, &hello)));
	lease.bytes = 2 * MIB;
	const Gm__Wire__Packet *answer = call(client, GM__WIRE__PACKET__BODY_LEASE, &lease);
	ck_assert(!failed(answer));
	back.lease = answer->lease_reply->lease;
	ck_assert(!failed(call(client, GM__WIRE__PACKET__BODY_RETURN_CHUNKS, &back)));
	hello.observer = true;
	for (size_t i = 0; i < sizeof(askers) / sizeof(askers[0]); i++) {
		struct wire_client *asker = new_client();
		ck_assert(join(asker, &askers[i].guise));
		ck_assert(!failed(call(asker, GM__WIRE__PACKET__BODY_HELLO, &hello)));
		expect_domain(asker, askers[i].sees);
		wire_close(asker);
	}
	leave(client);
	config.trust = GM_DOMAIN_TRUST_UID;
}
END_TEST

START_TEST(a_container_whose_name_proves_nothing_does_not_see_the_limit_of_that_name)
{
	const struct {
		struct guise guise;
		size_t sees;
	} askers[] = {
		{{1000, "/docker/prod", "prod", false}, 1},
		{{1000, "/user.slice/user@1000.service/lxc.payload.prod", "prod", true}, 0},
	};
	struct gm_limit_values values = {.set = GM_LIMIT_MAX, .max = 123 * MIB};
	Gm__Wire__Hello hello = GM__WIRE__HELLO__INIT;
	Gm__Wire__GetLimits get = GM__WIRE__GET_LIMITS__INIT;
	char detail[GM_DETAIL_BYTES];
	struct gm_owner owner;

	serve.uid = 0; /* so that the user who runs this test is no administrator */
	ck_assert_int_eq(gm_owner_parse("container:prod", &owner), 0);
	ck_assert_int_eq(
		gm_core_set_limit(core, &owner, GM_ALL_DEVICES, &values, detail), GPUMEM_OK);
	hello.major = GM_WIRE_MAJOR;
	for (size_t i = 0; i < 2; i++) {
		struct wire_client *asker = new_client();
		ck_assert(join(asker, &askers[i].guise));
		ck_assert(!failed(call(asker, GM__WIRE__PACKET__BODY_HELLO, &hello)));
		const Gm__Wire__Packet *answer =
			call(asker, GM__WIRE__PACKET__BODY_GET_LIMITS, &get);
		ck_assert(!failed(answer));
		ck_assert_uint_eq(answer->limits->n_limits, askers[i].sees);
		ck_assert_uint_eq(answer->limits->hidden_owners, 1 - askers[i].sees);
		leave(asker);
	}
	ck_assert_int_eq(gm_core_reset_limit(core, &owner, GM_ALL_DEVICES, detail), GPUMEM_OK);
}
END_TEST

/* Lets a new client of that uid, which is a domain of its own, lease a chunk. */
static struct wire_client *lease_as(uid_t uid, uint64_t *ret_lease)
{
	const struct guise guise = {uid, "", "", false};
	Gm__Wire__Hello hello = GM__WIRE__HELLO__INIT;
	Gm__Wire__Lease lease = GM__WIRE__LEASE__INIT;
	struct wire_client *client = new_client();
	ck_assert(join(client, &guise));
	hello.major = GM_WIRE_MAJOR;
	ck_assert(!failed(call(client, GM__WIRE__PACKET__BODY_HELLO, &hello)));
	lease.bytes = 2 * MIB;
	const Gm__Wire__Packet *answer = call(client, GM__WIRE__PACKET__BODY_LEASE, &lease);
	ck_assert(!failed(answer));
	*ret_lease = answer->lease_reply->lease;
	return client;
}

START_TEST(buckets_that_empty_while_the_pools_are_told_hide_no_others)
{
	enum { DOMAINS = 400, TAKEN = 3, FIRST = 3000 };
	static unsigned told[DOMAINS];
	struct wire_client *takers[TAKEN], *asker = new_client();
	Gm__Wire__Hello hello = GM__WIRE__HELLO__INIT;
	Gm__Wire__GetPools pools = GM__WIRE__GET_POOLS__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	Gm__Wire__Packet *answer;
	uint64_t lease;
	size_t n_taken = 0, pages = 0;
	bool last = false;
	for (unsigned i = 0; i < DOMAINS; i++) {
		struct wire_client *client = lease_as(FIRST + i, &lease);
		Gm__Wire__Return back = GM__WIRE__RETURN__INIT;
		back.lease = lease;
		ck_assert(!failed(call(client, GM__WIRE__PACKET__BODY_RETURN_CHUNKS, &back)));
		leave(client);
	}
	/* The asker's socket takes one packet at a time. */
	send_buffer = 4096;
	ck_assert(join(asker, NULL));
	hello.major = GM_WIRE_MAJOR;
	hello.observer = true;
	ck_assert(!failed(call(asker, GM__WIRE__PACKET__BODY_HELLO, &hello)));
	send_buffer = 0;
	packet.body_case = GM__WIRE__PACKET__BODY_GET_POOLS;
	packet.get_pools = &pools;
	wire_send(asker, &packet);
	while (!last) {
		unsigned uid = 0;
		while (!readable(asker->socket))
			turn_loop();
		answer = wire_receive(asker);
		ck_assert(!failed(answer));
		for (size_t i = 0; i < answer->pools->n_buckets; i++) {
			ck_assert_int_eq(
				sscanf(answer->pools->buckets[i]->domain, "uid %u", &uid), 1);
			ck_assert(uid >= FIRST && uid < FIRST + DOMAINS);
			told[uid - FIRST]++;
		}
		last = !answer->more;
		pages++;
		/* The uid listed last takes its chunk back, so its bucket is empty. */
		if (n_taken < TAKEN && !last)
			takers[n_taken++] = lease_as(uid, &lease);
	}
	ck_assert_uint_gt(pages, 2);
	ck_assert_uint_gt(n_taken, 1);
	for (unsigned i = 0; i < DOMAINS; i++)
		ck_assert_msg(told[i] == 1, "uid %u was told %u times", FIRST + i, told[i]);
	for (size_t i = 0; i < n_taken; i++)
		wire_close(takers[i]);
	leave(asker);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("dispatch");
	TCase *tests = tcase_create("dispatch");
	tcase_add_checked_fixture(tests, setup, teardown);
	tcase_add_test(tests, every_request_is_answered);
	tcase_add_test(tests, which_container_left_memory_in_the_pool_is_not_told_to_everybody);
	tcase_add_test(
		tests, a_container_whose_name_proves_nothing_does_not_see_the_limit_of_that_name);
	tcase_add_test(tests, whichever_allocation_fails_somebody_is_told_and_nothing_is_lost);
	suite_add_tcase(suite, tests);
	tests = tcase_create("long lists");
	tcase_add_checked_fixture(tests, setup_large, teardown);
	tcase_add_test(tests, buckets_that_empty_while_the_pools_are_told_hide_no_others);
	suite_add_tcase(suite, tests);
	return gm_tap_run(suite);
}
