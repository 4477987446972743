/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connects core and the clients to the keeper, so that what they have outlives this daemon. It keeps
 * the order of steps that makes a death at any instruction safe:
 *   - A new chunk is deposited before core hears of it. So whoever gets it, gets it after that.
 *   - A chunk is destroyed after the keeper has closed its copy. Until then it counts as dying.
 * This file must never hold a rule about memory: those belong to core.
 */
#include "daemon/broker_private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/step.h"
#include "daemon/serve/journal.h"
#include "daemon/tenant/client_adopt.h"
#include "daemon/tenant/client_store.h"

/* How long to wait at the start for a keeper that somebody else starts. */
#define GM_BROKER_KEEPER_MS 10000

/* ---- chunks */

void gm_broker_store_created(struct gm_broker *broker, struct gm_chunk *chunk, int result)
{
	int r = 0;
	GM_STEP("chunk: created");
	if (result == 0 && broker->store && chunk->transport == GM_TRANSPORT_FD)
		r = gm_store_deposit(
			broker->store, GM_STORE_CHUNK, chunk->id, chunk->handle.fd, chunk);
	if (r == GM_STORE_E_WAIT) {
		broker->undeposited[chunk->device]++;
		return;
	}
	if (r < 0) {
		/* The chunk must not be handed out, so it goes before core hears that there is none. */
		chunk->unkept = r;
		gm_worker_destroy(broker->workers[chunk->device], chunk);
		return;
	}
	GM_STEP("chunk: deposited");
	gm_core_created(broker->core, chunk, result);
}

/* A chunk that had to wait for the keeper is there now, so core may hear of it. */
static void broker_store_on_chunk(struct gm_broker *broker, struct gm_chunk *chunk)
{
	uint32_t device = chunk->device;
	uid_t payer_uid = chunk->payer_uid;
	uint64_t began_ns = gm_hub_flow_begin_work(&broker->hub.flows);

	broker->undeposited[device]--;
	gm_core_created(broker->core, chunk, 0);
	gm_hub_flow_end_work_of(&broker->hub.flows, payer_uid, began_ns);
	if (!broker->undeposited[device] && broker->resample & UINT32_C(1) << device) {
		broker->resample &= ~(UINT32_C(1) << device);
		gm_worker_sample(broker->workers[device]);
	}
}

static void broker_store_on_deposited(void *ctx, enum gm_store_kind kind, uint64_t id, void *user)
{
	struct gm_broker *broker = ctx;
	switch (kind) {
	case GM_STORE_CHUNK:
		broker_store_on_chunk(broker, user);
		break;
	case GM_STORE_CONTROL_BLOCK:
		gm_core_control_block_deposited(broker->core, user);
		break;
	case GM_STORE_RECORDS_FILE:
	case GM_STORE_PROCESS:
	case GM_STORE_PAGE:
	case GM_STORE_FORMER:
	case GM_STORE_METADATA:
	case GM_STORE_REFS:
		break; /* nobody waits for these */
	}
	gm_broker_check_idle(broker);
}

bool gm_broker_store_hides(struct gm_broker *broker, uint32_t device, bool latest)
{
	if (!broker->undeposited[device])
		return false;
	if (latest)
		broker->resample |= UINT32_C(1) << device;
	return true;
}

bool gm_broker_store_failed(struct gm_broker *broker, struct gm_chunk *chunk)
{
	int r = chunk->unkept;
	if (!r)
		return false;
	chunk->unkept = 0;
	gm_core_created(broker->core, chunk, r == -ENOSPC ? -EXFULL : r);
	return true;
}

/* A creation that needs the room of chunks which the keeper has not closed yet would not wait for
 * them: the device's thread does not know of them. So it waits here. */
void gm_broker_store_create(struct gm_broker *broker, struct gm_chunk *chunk, uint64_t turn)
{
	struct gm_broker_closing *closing = &broker->closing[chunk->device];
	if (!chunk->after_doomed || closing->asked == closing->done) {
		gm_worker_create(broker->workers[chunk->device], chunk, turn);
		return;
	}

	chunk->job.turn = turn;
	chunk->job.number = closing->asked;
	chunk->job.next = NULL;
	if (closing->last)
		closing->last->job.next = chunk;
	else
		closing->first = chunk;
	closing->last = chunk;
}

bool gm_broker_store_call_off(struct gm_broker *broker, struct gm_chunk *chunk)
{
	struct gm_broker_closing *closing = &broker->closing[chunk->device];
	struct gm_chunk *before = NULL;
	for (struct gm_chunk *at = closing->first; at; before = at, at = at->job.next) {
		if (at != chunk)
			continue;
		if (before)
			before->job.next = at->job.next;
		else
			closing->first = at->job.next;
		if (closing->last == at)
			closing->last = before;
		return true;
	}
	return gm_worker_call_off(broker->workers[chunk->device], chunk);
}

/* The keeper closes in the order in which it is asked, so a number says what is closed. */
static void broker_store_closed(struct gm_broker *broker, uint32_t device)
{
	struct gm_broker_closing *closing = &broker->closing[device];
	closing->done++;
	while (closing->first && closing->first->job.number <= closing->done) {
		struct gm_chunk *chunk = closing->first;
		closing->first = chunk->job.next;
		if (!closing->first)
			closing->last = NULL;
		gm_worker_create(broker->workers[device], chunk, chunk->job.turn);
	}
}

void gm_broker_store_destroy(struct gm_broker *broker, struct gm_chunk *chunk)
{
	int r = 0;
	if (broker->store && chunk->transport == GM_TRANSPORT_FD)
		r = gm_store_withdraw(broker->store, GM_STORE_CHUNK, chunk->id, chunk);
	GM_STEP("chunk: withdrawn");
	if (r == GM_STORE_E_WAIT)
		broker->closing[chunk->device].asked++;
	else
		gm_worker_destroy(broker->workers[chunk->device], chunk);
}

static void broker_store_on_withdrawn(void *ctx, enum gm_store_kind kind, uint64_t id, void *user)
{
	struct gm_broker *broker = ctx;
	struct gm_chunk *chunk = user;
	/* A chunk that could not be adopted is nobody's. */
	if (kind != GM_STORE_CHUNK || !chunk)
		return;
	GM_STEP("chunk: the keeper has closed it");
	gm_worker_destroy(broker->workers[chunk->device], chunk);
	broker_store_closed(broker, chunk->device);
}

static void broker_store_on_changed(void *ctx, bool ready)
{
	if (ready)
		gm_broker_check_idle(ctx);
}

static const struct gm_store_events broker_keep_events = {
	.deposited = broker_store_on_deposited,
	.withdrawn = broker_store_on_withdrawn,
	.changed = broker_store_on_changed,
};

/* ---- records, and what clients have */

/*
 * Tells the keeper what the record says about who needs what: a chunk is needed while its lease is, and a lease while a client
 * holds it or it has a name. What is charged without a client, and what an administrator set, is needed until a daemon says
 * otherwise.
 */
static void broker_store_refer(
	void *ctx, uint32_t kind, uint64_t id, uint32_t place, const void *bytes, size_t size)
{
	struct gm_broker *broker = ctx;
	uint64_t child = id, parent;
	switch (kind) {
	case GM_RECORD_CHUNK: {
		const struct gm_record_chunk *chunk = bytes;
		parent = chunk->state == GM_RECORD_LEASED ? chunk->owner : GM_KEEPER_ALWAYS;
		break;
	}
	case GM_RECORD_LEASE:
		parent = ((const struct gm_record_lease *)bytes)->session;
		break;
	case GM_RECORD_REF:
		child = ((const struct gm_record_ref *)bytes)->lease;
		parent = ((const struct gm_record_ref *)bytes)->session;
		break;
	case GM_RECORD_NAME:
		child = ((const struct gm_record_name *)bytes)->lease;
		parent = GM_KEEPER_ALWAYS;
		break;
	case GM_RECORD_LIMIT: {
		const struct gm_record_limit *limit = bytes;
		parent = limit->owner.kind == GM_OWNER_SESSION ? 0 : GM_KEEPER_ALWAYS;
		break;
	}
	case GM_RECORD_DRAIN:
	case GM_RECORD_ORPHAN_MAP:
		parent = GM_KEEPER_ALWAYS;
		break;
	default:
		return;
	}
	gm_store_refer(broker->store, place, child, parent);
}

int gm_broker_store_record(
	void *ctx, uint32_t kind, uint64_t id, uint32_t *place, const void *bytes, size_t size)
{
	struct gm_broker *broker = ctx;
	int r = gm_store_record(broker->store, kind, id, place, bytes, size);
	if (r == 0)
		broker_store_refer(broker, kind, id, *place, bytes, size);
	return r;
}

void gm_broker_store_erase(void *ctx, uint32_t *place)
{
	struct gm_broker *broker = ctx;
	gm_store_erase(broker->store, place);
}

int gm_broker_store_deposit(
	void *ctx, enum gm_store_kind kind, uint64_t id, int fd, struct gm_request *request)
{
	struct gm_broker *broker = ctx;
	int r = gm_store_deposit(broker->store, kind, id, fd, request);
	if (r != GM_STORE_E_WAIT)
		return r;
	if (kind == GM_STORE_CONTROL_BLOCK)
		return GM_DEPOSIT_WAITS;
	/* The keeper is away, or has much to read. The client tries again. */
	gm_broker_store_withdraw(broker, kind, id);
	return -EAGAIN;
}

void gm_broker_store_withdraw(void *ctx, enum gm_store_kind kind, uint64_t id)
{
	struct gm_broker *broker = ctx;
	(void)gm_store_withdraw(broker->store, kind, id, NULL);
}

static bool broker_store_deposit_item(void *ctx, enum gm_store_kind kind, uint64_t id, int fd)
{
	struct gm_broker *broker = ctx;
	return gm_store_deposit(broker->store, kind, id, fd, NULL) == 0;
}

const struct gm_clients_store gm_broker_clients_keep = {
	.deposit = broker_store_deposit_item,
	.withdraw = gm_broker_store_withdraw,
};

/* ---- the start */

/*
 * The program to start: the one that the environment names, the one beside this program, or the one of
 * the build tree. "service": somebody else runs the keeper; returns NULL.
 */
static const char *broker_store_program(char path[GM_PATH_BYTES])
{
	const char *named = secure_getenv("GPUMEM_KEEPER");
	if (named && strcmp(named, "service") == 0)
		return NULL;
	if (named && *named) {
		snprintf(path, GM_PATH_BYTES, "%s", named);
		return path;
	}

	char exe[GM_PATH_BYTES];
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
	exe[n > 0 ? n : 0] = '\0';
	char *slash = strrchr(exe, '/');
	if (slash)
		*slash = '\0';
	snprintf(path, GM_PATH_BYTES, "%.4000s/gpumem-keeper", exe);
	if (access(path, X_OK) < 0) {
		char built[GM_PATH_BYTES];
		snprintf(built, sizeof(built), "%.4000s/../keeper/gpumem-keeper", exe);
		if (access(built, X_OK) == 0)
			strcpy(path, built);
	}
	return path;
}

int gm_broker_store_open(struct gm_broker *broker)
{
	char path[GM_PATH_BYTES], program[GM_PATH_BYTES], why[GM_STORE_WHY] = "";
	const struct gm_listener_socket *endpoint = &broker->front.endpoint;
	if (!strchr(endpoint->path, '/') && !endpoint->own) {
		gm_log(GM_LOG_WARNING,
			"the socket has no path, so there is no place for a keeper's; nothing that "
			"clients hold outlives this daemon");
		return 0;
	}

	int r = gm_path_keeper_socket(endpoint->path, path);
	if (r == 0) {
		struct gm_store_options options = {
			.path = path,
			.program = broker_store_program(program),
			.wait_ms = GM_BROKER_KEEPER_MS,
			.left = broker->options->passed->left,
		};
		broker->keeper_is_ours = options.program;
		r = gm_store_open(
			&broker->loop, &options, &broker_keep_events, broker, &broker->store, why);
	}
	broker->serve.store = broker->store;
	if (r < 0)
		gm_log(GM_LOG_ERROR, "%s", why[0] ? why : strerror(-r));
	return r;
}

int gm_broker_store_forward(const struct gm_broker_options *options)
{
	const struct gm_service_passed *passed = options->passed;
	char why[GM_LISTENER_SOCKET_WHY];
	if (!passed->left || passed->left[0] < 0)
		return 0;

	GM_AUTO_FREE struct gm_broker *broker = calloc(1, sizeof(*broker));
	int r = passed->socket < 0 ? -EDESTADDRREQ : broker ? uv_loop_init(&broker->loop) : -ENOMEM;
	if (r == 0) {
		broker->options = options;
		r = gm_listener_socket_adopt(&broker->front.endpoint, passed->socket, why);
		if (r == 0)
			r = gm_broker_store_open(broker);
		gm_broker_store_close(broker);
		while (uv_run(&broker->loop, UV_RUN_DEFAULT))
			;
		uv_loop_close(&broker->loop);
	}

	/* A store that this daemon cannot read is in the keeper all the same. A socket without a path has no keeper. */
	if (r == -EPROTONOSUPPORT || r == 0)
		r = passed->left[0] < 0 ? 0 : -EDESTADDRREQ;
	if (r == 0)
		gm_log(GM_LOG_NOTICE,
			"the keeper has what clients hold; the next gpumemd that starts takes it over");
	else
		gm_log(GM_LOG_WARNING,
			"the keeper does not have what clients hold (%s); systemd keeps it while gpumemd is restarted: do not stop gpumemd before gpumemctl doctor shows a keeper; see gpumem-keeper(8)",
			strerror(-r));
	return r;
}

/* ---- adoption */

/* Says why a client that lives cannot be adopted. */
static void broker_store_report_unseen(const struct gm_record_client *record, int error)
{
	const char *why, *remedy;
	if (error == -EACCES) {
		why = "/proc hides its process from this daemon";
		remedy =
			"remove ProtectProc= from gpumemd.service, or hidepid= from the mount of /proc";
	} else if (record->head.uid == GM_OVERFLOW_UID) {
		why = "the earlier daemon could not tell its user from others";
		remedy =
			"give gpumemd.service PrivateUsers= as before until such clients have ended";
	} else {
		why = "the user namespace of this daemon does not have its user";
		remedy = "remove PrivateUsers= from gpumemd.service";
	}
	gm_log(GM_LOG_ERROR,
		"client %s (pid %d, uid %u) lives, and %s: not started, and nothing is given up, the keeper has what clients hold; %s, and start gpumemd again",
		*record->name ? record->name : record->command, (int)record->pid,
		(unsigned int)record->head.uid, why, remedy);
}

static int broker_store_adopt_client(void *ctx, uint64_t id, const struct gm_record_client *record,
	gm_domain *ret_domain, bool *ret_pooling)
{
	struct gm_broker *broker = ctx;
	struct gm_client_kept kept = {-1, -1, -1};
	(void)gm_store_claim(broker->store, GM_STORE_PROCESS, id, &kept.pidfd);
	(void)gm_store_claim(broker->store, GM_STORE_PAGE, id, &kept.page);
	(void)gm_store_claim(broker->store, GM_STORE_FORMER, id, &kept.former);
	int r = gm_clients_adopt(
		&broker->clients, broker->config->trust, record, &kept, ret_domain, ret_pooling);
	if (gm_adopt_is_unseen(r)) {
		broker_store_report_unseen(record, r);
	} else if (r < 0 && !gm_adopt_is_shortage(r)) {
		gm_broker_store_withdraw(broker, GM_STORE_PROCESS, id);
		gm_broker_store_withdraw(broker, GM_STORE_PAGE, id);
		gm_broker_store_withdraw(broker, GM_STORE_FORMER, id);
	}
	return r;
}

/* Reports that the device cannot take over memory that a client holds. */
static void broker_store_report_unusable(struct gm_broker *broker, uint32_t device, int error)
{
	char trouble[GM_BACKEND_TROUBLE];
	uint64_t ns;
	if (!broker->ops->trouble || !broker->ops->trouble(broker->backend, device, trouble, &ns))
		snprintf(trouble, sizeof(trouble), "%s", strerror(-error));
	gm_log(GM_LOG_ERROR,
		"device %u cannot take over what clients hold: %s: not started, and nothing is given up, the keeper has what clients hold; start gpumemd again when the device works. To give up what clients hold, end gpumem-keeper",
		device, trouble);
}

static int broker_store_adopt_chunk(void *ctx, uint64_t id, uint32_t device, uint64_t bytes,
	struct gm_backend_handle *ret_handle)
{
	struct gm_broker *broker = ctx;
	int fd = -1;
	int r = gm_store_claim(broker->store, GM_STORE_CHUNK, id, &fd);
	if (r < 0)
		return r;
	r = broker->ops->adopt(broker->backend, device, fd, bytes, ret_handle);
	if (r == -EINVAL) {
		gm_close(fd);
		(void)gm_store_withdraw(broker->store, GM_STORE_CHUNK, id, NULL);
	} else if (r < 0 && !gm_adopt_is_shortage(r)) {
		broker_store_report_unusable(broker, device, r);
		r = -EIO;
	}
	return r;
}

static int broker_store_adopt_metadata(void *ctx, uint64_t id, int *ret_fd)
{
	struct gm_broker *broker = ctx;
	return gm_store_claim(broker->store, GM_STORE_METADATA, id, ret_fd);
}

static int broker_store_adopt_word(void *ctx, uint64_t id, int *ret_fd)
{
	struct gm_broker *broker = ctx;
	return gm_store_claim(broker->store, GM_STORE_CONTROL_BLOCK, id, ret_fd);
}

static void broker_store_drop_chunk(
	void *ctx, uint64_t id, uint32_t device, uint64_t bytes, struct gm_backend_handle *handle)
{
	struct gm_broker *broker = ctx;
	struct gm_backend_seen nobody = {.domain = GM_DOMAIN_FRESH, .payer_uid = (uid_t)-1};
	/* The keeper's copy of the descriptor keeps the memory. */
	broker->ops->destroy(broker->backend, device, GM_TRANSPORT_FD, bytes, &nobody, handle);
}

static void broker_store_report_limit(void *ctx, const struct gm_owner *owner, uint32_t device,
	const struct gm_limit_values *set, const struct gm_limit_values *now, const char *why)
{
	gm_journal_contradiction(owner, device, set, now, why);
}

static const struct gm_adopt_ops broker_keep_adopt_ops = {
	.client = broker_store_adopt_client,
	.chunk = broker_store_adopt_chunk,
	.metadata = broker_store_adopt_metadata,
	.word = broker_store_adopt_word,
	.limit = broker_store_report_limit,
	.drop = broker_store_drop_chunk,
};

struct broker_store_reading {
	struct gm_adopt *adopt;
	int result;
};

static void broker_store_read(
	void *ctx, uint32_t kind, uint64_t id, uint32_t place, const void *bytes, size_t size)
{
	struct broker_store_reading *reading = ctx;
	if (reading->result == 0)
		reading->result = gm_adopt_add(reading->adopt, kind, id, place, bytes, size);
}

/* Says which devices are gone, and with them what clients had there. */
static void broker_store_report_elsewhere(const struct gm_adopt_result *result)
{
	unsigned long long devices = result->elsewhere[GM_RECORD_DEVICE];
	unsigned long long leases = result->elsewhere[GM_RECORD_LEASE];

	if (leases)
		gm_log(GM_LOG_WARNING,
			"store: %llu lease%s on devices that this daemon does not have: given up, and charged to nobody",
			leases, leases == 1 ? " is" : "s are");
	else if (devices)
		gm_log(GM_LOG_INFO,
			"the earlier daemon had %llu device%s that this one does not have; no client held memory there",
			devices, devices == 1 ? "" : "s");
}

/* Says what was taken over, and what was not. */
static void broker_store_report(
	const struct gm_adopt_result *result, uint64_t gone, uint64_t closed)
{
	static const char *const names[GM_RECORD_KINDS] = {
		[GM_RECORD_NONE] = "records of an unknown kind",
#define GM_BROKER_STORE_NAME(kind, number, type, text) [number] = (text),
		GM_RECORDS(GM_BROKER_STORE_NAME)
#undef GM_BROKER_STORE_NAME
	};
	for (unsigned int kind = 0; kind < GM_RECORD_KINDS; kind++)
		if (result->damaged[kind])
			gm_log(GM_LOG_WARNING, "store: discarded %llu damaged %s",
				(unsigned long long)result->damaged[kind], names[kind]);
	broker_store_report_elsewhere(result);
	if (result->incomplete)
		gm_log(GM_LOG_WARNING,
			"discarded incomplete leases and names: %llu; the keeper has only a part of each",
			(unsigned long long)result->incomplete);
	else if (result->lost)
		gm_log(GM_LOG_INFO,
			"the keeper closed the memory of %llu chunk%s after their processes had ended",
			(unsigned long long)result->lost, result->lost == 1 ? "" : "s");
	if (result->ipc)
		gm_log(GM_LOG_WARNING,
			"store: %llu lease%s on the ipc transport ended with the daemon that made %s",
			(unsigned long long)result->ipc, result->ipc == 1 ? "" : "s",
			result->ipc == 1 ? "it" : "them");
	if (result->adopted[GM_RECORD_CLIENT] || closed)
		gm_log(GM_LOG_NOTICE,
			"took over from an earlier daemon: clients: %llu (ended meanwhile: %llu), "
			"leases: %llu, chunks: %llu; descriptors that nobody needs any more: %llu",
			(unsigned long long)result->adopted[GM_RECORD_CLIENT],
			(unsigned long long)gone,
			(unsigned long long)result->adopted[GM_RECORD_LEASE],
			(unsigned long long)result->adopted[GM_RECORD_CHUNK],
			(unsigned long long)closed);
}

/* Says that adoption ends for want of memory or descriptors. Returns the error. */
static int broker_store_short(int error)
{
	gm_log(GM_LOG_ERROR,
		"cannot take over from an earlier daemon: %s; the keeper has what clients hold",
		strerror(-error));
	return error;
}

int gm_broker_store_adopt(struct gm_broker *broker)
{
	struct broker_store_reading reading = {NULL, 0};
	struct gm_adopt_result result = {0};
	if (!broker->store)
		return 0;
	GM_STEP("start: everything taken back");

	int r = gm_adopt_new(broker->core, &reading.adopt);
	if (r < 0)
		return broker_store_short(r);
	gm_store_each_record(broker->store, 0, broker_store_read, &reading);
	if (reading.result == -EPROTONOSUPPORT)
		gm_log(GM_LOG_ERROR,
			"the store has records of a newer gpumemd (this one reads formats up to %d); "
			"start the newer gpumemd again, or end gpumem-keeper, which gives up all memory",
			GM_RECORD_FORMAT);
	else if (reading.result < 0)
		broker_store_short(reading.result);
	if (reading.result < 0) {
		gm_adopt_free(reading.adopt);
		return reading.result;
	}
	if (broker->serve.backend_note[0] && gm_adopt_is_elsewhere(reading.adopt)) {
		/* A driver that cannot be used now, for example because it was just upgraded, is no
		 * reason to forget who holds what. */
		gm_log(GM_LOG_ERROR,
			"clients hold memory of GPUs, and this daemon can use none (%s); start it again when it can. To give up what clients hold, use the backend host, or end gpumem-keeper",
			broker->serve.backend_note);
		gm_adopt_free(reading.adopt);
		return -ENODEV;
	}
	r = gm_core_adopt(reading.adopt, &broker_keep_adopt_ops, broker, &result);
	if (gm_adopt_is_shortage(r))
		broker_store_short(r);
	if (r < 0)
		return r;
	GM_STEP("start: core has adopted");

	gm_store_refer_begin(broker->store);
	gm_store_each_record(broker->store, 0, broker_store_refer, broker);
	gm_store_refer_end(broker->store);
	uint64_t gone = gm_clients_adopt_end(&broker->clients);
	GM_STEP("start: clients have been adopted");
	uint64_t closed = gm_store_settle(broker->store);
	GM_STEP("start: settled");
	broker_store_report(&result, gone, closed);
	return 0;
}

/* ---- the end */

static void broker_store_count(
	void *ctx, uint32_t kind, uint64_t id, uint32_t place, const void *bytes, size_t size)
{
	bool *worth = ctx;
	*worth = *worth || (kind != GM_RECORD_KEY && kind != GM_RECORD_DEVICE);
}

bool gm_broker_store_is_worth(struct gm_broker *broker)
{
	bool worth = false;
	if (broker->store)
		gm_store_each_record(broker->store, 0, broker_store_count, &worth);
	return worth;
}

bool gm_broker_store_is_safe(struct gm_broker *broker)
{
	return !broker->store || gm_store_is_ready(broker->store) ||
	       !gm_broker_store_is_worth(broker);
}

bool gm_broker_store_delays(const struct gm_broker *broker)
{
	bool waits = false;
	for (uint32_t i = 0; i < GM_BOUND_DEVICES; i++)
		waits |= broker->undeposited[i] ||
			 broker->closing[i].asked != broker->closing[i].done;
	return broker->store && waits;
}

void gm_broker_store_leave(struct gm_broker *broker)
{
	if (gm_broker_store_is_safe(broker))
		return;
	int r = broker->keeper_is_ours ? -ENOTCONN : gm_store_leave(broker->store);
	if (r == 0)
		gm_log(GM_LOG_WARNING,
			"no keeper took what clients hold in time; systemd has it, and gives it to the next gpumemd if this is a restart: do not stop gpumemd before gpumemctl status shows a keeper; see gpumem-keeper(8)");
	else if (r == -ENOTCONN)
		gm_log(GM_LOG_ERROR,
			"no keeper took what clients hold in time: it is given up; see gpumem-keeper(8)");
	else
		gm_log(GM_LOG_ERROR,
			"no keeper took what clients hold in time, and systemd does not take it (%s): it is given up; see gpumem-keeper(8)",
			strerror(-r));
}

void gm_broker_store_close(struct gm_broker *broker)
{
	struct gm_store *store = gm_steal_ptr(&broker->store);
	if (!store)
		return;
	broker->store = store;
	bool empty = broker->keeper_is_ours && !gm_broker_store_is_worth(broker);
	broker->store = NULL;
	gm_store_close(store, empty);
}
