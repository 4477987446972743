/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What gpumemctl devices says of memory that did not come from the broker, on fake GPUs: how much
 * it is, whose it is, and that it goes when they do. The processes are real, and so is the
 * accounting (the kernel does it).
 */

#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/cuda/cuda.h"
#include "gpumem/gpumem.h"
#include "gpumem/gpumem_managed.h"
#include "tests/gpu/puppet.h"
#include "tests/integration/harness.h"
#include "tests/tap.h"

#define MIB UINT64_C(0x100000)
/* What the fake driver takes for each process: tests/fake/fake.h. */
#define INIT_BYTES    MIB
#define CONTEXT_BYTES (16 * MIB)

static const char config[] =
	"[gpumemd]\nfraction = 1.0\nmin_free = 0\nreserve = 0\nmax_pool = 100%\n";
static const char *const on_gpus[] = {"--backend", "cuda", NULL};
static struct gm_daemon broker;

static void start(const char *const *env)
{
	gm_daemon_start(&broker,
		&(struct gm_daemon_options){.config = config, .args = on_gpus, .env = env});
}

static json_t *ask(const char *verb)
{
	const char *top = getenv("top_builddir");
	char command[512];
	snprintf(command, sizeof(command), "%s/ctl/gpumemctl --socket %s %s --json",
		top ? top : ".", broker.socket, verb);
	FILE *out = popen(command, "r");
	GM_REQUIRE(out);
	json_t *json = json_loadf(out, 0, NULL);
	GM_REQUIRE(pclose(out) == 0);
	GM_REQUIRE(json);
	return json;
}

static uint64_t figure(const json_t *json, size_t device, const char *key)
{
	const json_t *value =
		json_object_get(json_array_get(json_object_get(json, "devices"), device), key);
	GM_REQUIRE(json_is_integer(value));
	return (uint64_t)json_integer_value(value);
}

/* The row of a process, or NULL. pid 0: what no process is listed for. */
static const json_t *row(const json_t *json, size_t device, pid_t pid)
{
	size_t i;
	json_t *entry;
	json_array_foreach(json_object_get(json, "processes"), i, entry)
	{
		const json_t *number = json_object_get(entry, "pid");
		if ((size_t)json_integer_value(json_object_get(entry, "device")) == device &&
			(pid ? json_integer_value(number) == pid : json_is_null(number)))
			return entry;
	}
	return NULL;
}

static const char *text(const json_t *entry, const char *key)
{
	return json_string_value(json_object_get(entry, key));
}

static uint64_t bytes(const json_t *entry)
{
	return (uint64_t)json_integer_value(json_object_get(entry, "bytes"));
}

static bool adds_up(const json_t *json, size_t device)
{
	return figure(json, device, "total") ==
	       figure(json, device, "leased") + figure(json, device, "quarantined") +
		       figure(json, device, "pooled") + figure(json, device, "foreign") +
		       figure(json, device, "free");
}

/* What foreign is now. */
static uint64_t foreign(size_t device)
{
	json_t *json = ask("devices");
	uint64_t n = figure(json, device, "foreign");
	json_decref(json);
	return n;
}

static uint64_t orphaned(size_t device)
{
	json_t *json = ask("devices");
	uint64_t n = figure(json, device, "orphaned");
	json_decref(json);
	return n;
}

/* A device's thread that is busy from the start, here with a slow reserve, keeps nobody from
 * knowing what others use: "not yet" is not "no NVML". */
START_TEST(what_others_use_is_known_from_the_first_answer_on)
{
	static const char *const slow[] = {"GPUMEM_FAKE_DELAY=cuMemCreate:1000000", NULL};
	gm_daemon_start(&broker,
		&(struct gm_daemon_options){
			.config = "[gpumemd]\nmin_free = 0\n", .args = on_gpus, .env = slow});
	json_t *json = ask("status");
	for (size_t i = 0; i < 2; i++)
		GM_REQUIRE_EQ(figure(json, i, "foreign"), INIT_BYTES);
	GM_REQUIRE_EQ(json_array_size(json_object_get(json, "warnings")), 0);
	json_decref(json);
	gm_daemon_stop(&broker);
}
END_TEST

static bool warns(const char *part)
{
	json_t *json = ask("status");
	json_t *first = json_array_get(json_object_get(json, "warnings"), 0);
	bool found = first && strstr(text(first, "text"), part);
	json_decref(json);
	return found;
}

START_TEST(figures_of_a_lost_gpu_are_missing_for_that_reason_and_not_for_want_of_nvml)
{
	char path[4200];
	snprintf(path, sizeof(path), "%s/gpu0.lost", getenv("GPUMEM_FAKE_DIR"));
	start(NULL);
	fclose(fopen(path, "w"));
	GM_UNTIL(
		warns("device 0: nvmlDeviceGetMemoryInfo: NVML_ERROR_GPU_IS_LOST: foreign memory"));
	unlink(path);
	/* It is back: so are they. */
	GM_UNTIL(!warns(""));
	gm_daemon_stop(&broker);
}
END_TEST

START_TEST(a_process_beside_the_broker_is_named_and_gone_when_it_ends)
{
	start(NULL);
	GM_REQUIRE_EQ(foreign(1), INIT_BYTES);
	struct puppet other = puppet_start(0);
	GM_REQUIRE_EQ(PUPPET(&other, INIT, 0).result, 0);
	GM_REQUIRE_EQ(PUPPET(&other, CONTEXT, .a = 1).result, 0);
	GM_REQUIRE_EQ(PUPPET(&other, ALLOC, .a = 64 * MIB).result, 0);
	/* Asked once: the answer is never older than the question. */
	json_t *json = ask("devices");
	uint64_t its = INIT_BYTES + CONTEXT_BYTES + 64 * MIB;
	GM_REQUIRE_EQ(figure(json, 1, "foreign"), INIT_BYTES + its);
	GM_REQUIRE(adds_up(json, 1));
	const json_t *entry = row(json, 1, other.pid);
	GM_REQUIRE(entry);
	GM_REQUIRE_EQ(bytes(entry), its);
	GM_REQUIRE(!strcmp(text(entry, "kind"), "other"));
	char path[48], command[64];
	snprintf(path, sizeof(path), "/proc/%d/comm", (int)other.pid);
	FILE *file = fopen(path, "r");
	GM_REQUIRE(file && fgets(command, sizeof(command), file));
	fclose(file);
	command[strcspn(command, "\n")] = '\0';
	GM_REQUIRE(!strcmp(text(entry, "command"), command));
	GM_REQUIRE_EQ(json_integer_value(json_object_get(entry, "uid")), geteuid());
	/* The daemon has no context, so it is what no process is listed for. */
	GM_REQUIRE(!row(json, 1, broker.pid));
	GM_REQUIRE_EQ(bytes(row(json, 1, 0)), INIT_BYTES);
	/* cuInit alone shows on the other device, without a name. */
	GM_REQUIRE(!row(json, 0, other.pid));
	GM_REQUIRE_EQ(figure(json, 0, "foreign"), 2 * INIT_BYTES);
	json_decref(json);
	pid_t pid = other.pid;
	puppet_kill(&other);
	json = ask("devices");
	GM_REQUIRE_EQ(figure(json, 1, "foreign"), INIT_BYTES);
	GM_REQUIRE(!row(json, 1, pid));
	json_decref(json);
	gm_daemon_stop(&broker);
}
END_TEST

/* A client that holds memory, and if told so forks a child that lives on. */
static void client(int channel, void *argument)
{
	gpumem_connect_options options = {.size = sizeof(options), .socket = broker.socket};
	gpumem_session *session;
	gpumem_buffer *buffer;
	pid_t child = 0;

	GM_REQUIRE_EQ(gpumem_connect(&options, &session), GPUMEM_OK);
	GM_REQUIRE_EQ(gpumem_buffer_create(session, 0, 64 * MIB, NULL, &buffer), GPUMEM_OK);
	if (argument) {
		child = fork();
		GM_REQUIRE(child >= 0);
		if (child == 0)
			for (;;)
				pause();
	}
	gm_text_say(channel, &child, sizeof(child));
	gm_hear_word(channel, 'e');
	gpumem_disconnect(session);
}

START_TEST(a_clients_own_part_is_foreign_and_its_leases_are_not)
{
	struct gm_worker worker;
	pid_t child;

	start(NULL);
	gm_worker_start(&worker, client, NULL);
	gm_hear(worker.channel, &child, sizeof(child));
	json_t *json = ask("devices");
	GM_REQUIRE_EQ(figure(json, 0, "leased"), 64 * MIB);
	GM_REQUIRE_EQ(figure(json, 0, "foreign"), 2 * INIT_BYTES + CONTEXT_BYTES);
	GM_REQUIRE(adds_up(json, 0));
	const json_t *entry = row(json, 0, worker.pid);
	GM_REQUIRE(entry);
	GM_REQUIRE(!strcmp(text(entry, "kind"), "client"));
	GM_REQUIRE_EQ(bytes(entry), INIT_BYTES + CONTEXT_BYTES);
	json_decref(json);
	gm_text_say_word(worker.channel, 'e');
	gm_worker_join(&worker);
	GM_REQUIRE_EQ(foreign(0), INIT_BYTES);
	gm_daemon_stop(&broker);
}
END_TEST

/* A client that makes memory itself: first 128 MiB that it declares, if it is told so, and then as much that it does not. */
static void maker(int channel, void *argument)
{
	gpumem_connect_options options = {.size = sizeof(options), .socket = broker.socket};
	gpumem_session *session;
	gpumem_managed *managed;
	const struct gm_cuda *cuda;
	char why[GM_CUDA_WHY_BYTES];
	gm_cu_ctx context;
	gm_cu_ptr memory;

	GM_REQUIRE_EQ(gpumem_connect(&options, &session), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_cuda_load(&cuda, why), 0);
	GM_REQUIRE_EQ(cuda->cuDevicePrimaryCtxRetain(&context, 0), GM_CUDA_SUCCESS);
	GM_REQUIRE_EQ(cuda->cuCtxPushCurrent(context), GM_CUDA_SUCCESS);
	if (argument) {
		GM_REQUIRE_EQ(
			gpumem_managed_create(session, 0, 128 * MIB, NULL, &managed), GPUMEM_OK);
		memset(gpumem_managed_ptr(managed), 1, 128 * MIB);
		GM_REQUIRE_EQ(
			gpumem_managed_prefetch(managed, 0, 128 * MIB, GPUMEM_MANAGED_ON_DEVICE, 0),
			GPUMEM_OK);
		GM_REQUIRE_EQ(cuda->cuStreamSynchronize(NULL), GM_CUDA_SUCCESS);
		gm_text_say_word(channel, 'd');
		gm_hear_word(channel, 'n');
	}
	GM_REQUIRE_EQ(cuda->cuMemAlloc(&memory, 128 * MIB), GM_CUDA_SUCCESS);
	gm_text_say_word(channel, 'u');
	gm_hear_word(channel, 'e');
	gpumem_disconnect(session);
}

/* Whether a request that would fit without foreign memory is refused with these words. */
static bool refuses_with(const char *part)
{
	gpumem_connect_options options = {.size = sizeof(options), .socket = broker.socket};
	gpumem_session *session;
	gpumem_buffer *buffer;

	GM_REQUIRE_EQ(gpumem_connect(&options, &session), GPUMEM_OK);
	GM_REQUIRE_EQ(
		gpumem_buffer_create(session, 0, 370 * MIB, NULL, &buffer), GPUMEM_E_NO_MEMORY);
	bool found = strstr(gpumem_error_detail(), part) != NULL;
	gpumem_disconnect(session);
	return found;
}

START_TEST(a_client_is_named_if_it_has_most_of_the_foreign_memory)
{
	struct gm_worker worker;
	char in_status[64], refused[64];

	start(NULL);
	struct puppet other = puppet_start(0);
	GM_REQUIRE_EQ(PUPPET(&other, INIT, 0).result, 0);
	GM_REQUIRE_EQ(PUPPET(&other, CONTEXT, .a = 0).result, 0);
	GM_REQUIRE_EQ(PUPPET(&other, ALLOC, .a = 64 * MIB).result, 0);
	gm_worker_start(&worker, maker, &worker);

	/* What a client declared is more, but not foreign. */
	gm_hear_word(worker.channel, 'd');
	snprintf(in_status, sizeof(in_status), ", pid %d of user ", (int)other.pid);
	snprintf(refused, sizeof(refused), "(pid %d of ", (int)other.pid);
	GM_UNTIL(warns(in_status));
	GM_UNTIL(refuses_with(refused));

	gm_text_say_word(worker.channel, 'n');
	gm_hear_word(worker.channel, 'u');
	snprintf(in_status, sizeof(in_status), ", pid %d of user ", (int)worker.pid);
	snprintf(refused, sizeof(refused), "(pid %d of ", (int)worker.pid);
	GM_UNTIL(warns(in_status));
	GM_UNTIL(refuses_with(refused));
	gm_text_say_word(worker.channel, 'e');
	gm_worker_join(&worker);
	puppet_stop(&other);
	gm_daemon_stop(&broker);
}
END_TEST

/* It is listed with its dead parent, as the driver has it, and charged to the uid. */
START_TEST(what_a_dead_clients_child_keeps_is_orphaned_until_it_ends_too)
{
	struct gm_worker worker;
	pid_t child;

	start(NULL);
	gm_worker_start(&worker, client, &worker);
	gm_hear(worker.channel, &child, sizeof(child));
	GM_REQUIRE(child > 0);
	pid_t pid = worker.pid;
	gm_worker_kill(&worker);
	/* Released by the broker, and still there. */
	GM_UNTIL(orphaned(0) == 64 * MIB);
	json_t *json = ask("devices");
	GM_REQUIRE_EQ(figure(json, 0, "leased") + figure(json, 0, "pooled"), 0);
	GM_REQUIRE_EQ(figure(json, 0, "quarantined"), 64 * MIB);
	GM_REQUIRE_EQ(figure(json, 0, "foreign"), 2 * INIT_BYTES + CONTEXT_BYTES);
	GM_REQUIRE(adds_up(json, 0));
	const json_t *entry = row(json, 0, pid);
	GM_REQUIRE(entry);
	GM_REQUIRE_EQ(bytes(entry), 64 * MIB + INIT_BYTES + CONTEXT_BYTES);
	/* What the daemon has without a context. */
	entry = row(json, 0, 0);
	GM_REQUIRE(entry);
	GM_REQUIRE(!strcmp(text(entry, "kind"), "unlisted"));
	GM_REQUIRE_EQ(bytes(entry), INIT_BYTES);
	json_decref(json);
	GM_REQUIRE(kill(child, SIGKILL) == 0);
	GM_UNTIL(foreign(0) == INIT_BYTES);
	GM_UNTIL(orphaned(0) == 0);
	gm_daemon_stop(&broker);
}
END_TEST

/* Takes and gives back, so that the daemon makes and destroys chunks all the time. */
static void churn(int channel, void *argument)
{
	gpumem_connect_options options = {.size = sizeof(options), .socket = broker.socket};
	gpumem_session *session;
	gpumem_buffer *buffer;
	char word;

	GM_REQUIRE_EQ(gpumem_connect(&options, &session), GPUMEM_OK);
	gm_text_say_word(channel, 'r');
	do {
		GM_REQUIRE_EQ(gpumem_buffer_create(session, 0, 62 * MIB, NULL, &buffer), GPUMEM_OK);
		gpumem_buffer_destroy(buffer);
	} while (recv(channel, &word, 1, MSG_DONTWAIT) != 1);
	gpumem_disconnect(session);
}

START_TEST(foreign_holds_still_while_chunks_come_and_go)
{
	static const char nothing_pooled[] =
		"[gpumemd]\nfraction = 1.0\nmin_free = 0\nreserve = 0\nmax_pool = 0\n";
	struct gm_worker worker;

	gm_daemon_start(
		&broker, &(struct gm_daemon_options){.config = nothing_pooled, .args = on_gpus});
	gm_worker_start(&worker, churn, NULL);
	gm_hear_word(worker.channel, 'r');
	GM_UNTIL(foreign(0) >= 2 * INIT_BYTES + CONTEXT_BYTES);
	for (int i = 0; i < 30; i++) {
		json_t *json = ask("devices");
		/* Its context and no chunk of ours, neither one that is being made nor one that is
		 * on its way out; a chunk that the client has not unmapped yet would be its own
		 * fault, and it says that it has. */
		GM_REQUIRE_EQ(figure(json, 0, "foreign"), 2 * INIT_BYTES + CONTEXT_BYTES);
		json_decref(json);
	}
	gm_text_say_word(worker.channel, 'e');
	gm_worker_join(&worker);
	gm_daemon_stop(&broker);
}
END_TEST

/* Uses most of device 0 and some pinned host memory, and leaves in good order. */
static void visit(int channel, void *argument)
{
	gpumem_connect_options options = {.size = sizeof(options), .socket = broker.socket};
	gpumem_session *session;
	gpumem_buffer *buffer;
	void *pinned;

	GM_REQUIRE_EQ(gpumem_connect(&options, &session), GPUMEM_OK);
	GM_REQUIRE_EQ(gpumem_buffer_create(session, 0, 400 * MIB, NULL, &buffer), GPUMEM_OK);
	GM_REQUIRE_EQ(gpumem_host_alloc(session, 8 * MIB, NULL, &pinned), GPUMEM_OK);
	gpumem_disconnect(session);
}

static uint64_t pooled(size_t device)
{
	json_t *json = ask("devices");
	uint64_t n = figure(json, device, "pooled");
	json_decref(json);
	return n;
}

/* How many of a device's buckets say when their chunks go back. */
static size_t decaying(size_t device)
{
	json_t *json = ask("pools"), *entry;
	size_t i, n = 0;
	json_array_foreach(json_object_get(json, "buckets"), i, entry) n +=
		(size_t)json_integer_value(json_object_get(entry, "device")) == device &&
		json_is_integer(json_object_get(entry, "decay_ms"));
	json_decref(json);
	return n;
}

START_TEST(programs_outside_get_what_clients_left_in_the_pool)
{
	static const char rest[] = "fraction = 1.0\nmin_free = 0\nmax_pool = 100%\n"
				   "host_limit = 64M\nreserve = 16M\n";
	enum { PINNED = 2 };
	struct gm_worker worker;
	char text_of[256];

	snprintf(text_of, sizeof(text_of), "[gpumemd]\npool_decay = off\n%s", rest);
	gm_daemon_start(&broker, &(struct gm_daemon_options){.config = text_of, .args = on_gpus});
	gm_worker_start(&worker, visit, NULL);
	gm_worker_join(&worker);
	GM_UNTIL(pooled(0) >= 400 * MIB && pooled(PINNED) >= 8 * MIB);
	GM_REQUIRE_EQ(decaying(0) + decaying(PINNED), 0);

	struct puppet other = puppet_start(0);
	GM_REQUIRE_EQ(PUPPET(&other, INIT, 0).result, 0);
	GM_REQUIRE_EQ(PUPPET(&other, CONTEXT, .a = 0).result, 0);
	GM_REQUIRE(PUPPET(&other, ALLOC, .a = 400 * MIB).result != 0);

	/* A reload tells when it goes, and another one lets it go now. */
	snprintf(text_of, sizeof(text_of), "[gpumemd]\npool_decay = 1h\n%s", rest);
	gm_daemon_reload(&broker, text_of);
	GM_REQUIRE(decaying(0) > 0 && decaying(PINNED) > 0);
	snprintf(text_of, sizeof(text_of), "[gpumemd]\npool_decay = 1ms\n%s", rest);
	gm_daemon_reload(&broker, text_of);
	GM_UNTIL(pooled(0) == 16 * MIB && pooled(PINNED) == 0);
	GM_REQUIRE_EQ(PUPPET(&other, ALLOC, .a = 400 * MIB).result, 0);
	puppet_stop(&other);
	gm_daemon_stop(&broker);
}
END_TEST

START_TEST(without_nvml_the_ledger_alone_counts_and_that_is_said)
{
	static const char *const env[] = {"GPUMEM_FAKE_WITHOUT=nvml", NULL};

	start(env);
	json_t *json = ask("devices");
	const json_t *device = json_array_get(json_object_get(json, "devices"), 0);
	GM_REQUIRE(json_is_false(json_object_get(device, "measured")));
	GM_REQUIRE(json_is_null(json_object_get(device, "foreign")));
	GM_REQUIRE_EQ(figure(json, 0, "free"), figure(json, 0, "total"));
	GM_REQUIRE_EQ(json_array_size(json_object_get(json, "processes")), 0);
	json_decref(json);
	json = ask("status");
	GM_REQUIRE(!strcmp(
		text(json_array_get(json_object_get(json, "warnings"), 0), "kind"), "unmeasured"));
	json_decref(json);
	gm_daemon_stop(&broker);
}
END_TEST

int main(int argc, char **argv)
{
	puppet_main(argc, argv);
	Suite *suite = suite_create("foreign");
	TCase *tests = tcase_create("foreign");
	tcase_set_timeout(tests, 120);
	tcase_add_test(tests, what_others_use_is_known_from_the_first_answer_on);
	tcase_add_test(
		tests, figures_of_a_lost_gpu_are_missing_for_that_reason_and_not_for_want_of_nvml);
	tcase_add_test(tests, a_process_beside_the_broker_is_named_and_gone_when_it_ends);
	tcase_add_test(tests, a_clients_own_part_is_foreign_and_its_leases_are_not);
	tcase_add_test(tests, a_client_is_named_if_it_has_most_of_the_foreign_memory);
	tcase_add_test(tests, what_a_dead_clients_child_keeps_is_orphaned_until_it_ends_too);
	tcase_add_test(tests, foreign_holds_still_while_chunks_come_and_go);
	tcase_add_test(tests, programs_outside_get_what_clients_left_in_the_pool);
	tcase_add_test(tests, without_nvml_the_ledger_alone_counts_and_that_is_said);
	suite_add_tcase(suite, tests);
	return gm_tap_run(suite);
}
