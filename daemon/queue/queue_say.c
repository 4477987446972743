/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is said of requests that fail although there is device memory for them: the sentence for the client, and the report for
 * the journal; and the reports of requests that wait. The sentences for lack of memory are in device_admit.c.
 */
#include "daemon/queue/queue_private.h"

#include <errno.h>
#include <string.h>

#include "common/arith.h"
#include "common/clock.h"
#include "common/text/uid_name.h"
#include "common/text/units.h"
#include "daemon/books/fds.h"
#include "daemon/reclaim/reclaim_backoff.h"

gpumem_status gm_request_say_backend(const struct gm_device *device, const struct gm_chunk *chunk,
	int result, char detail[GM_DETAIL_BYTES])
{
	const struct gm_env *env = device->env;
	char trouble[GM_DETAIL_BYTES], size[GM_UNITS_TEXT];
	char user[GM_UID_NAME_TEXT];
	bool said = env->ops.trouble && env->ops.trouble(env->ctx, device->number, trouble);

	if (result == -EOPNOTSUPP)
		return gm_text_refuse(GPUMEM_E_UNSUPPORTED, detail,
			"device %u has no %s transport: its driver refused; ask for the other one, "
			"or set transport = auto in gpumemd.conf",
			device->number, chunk->transport == GM_TRANSPORT_IPC ? "ipc" : "fd");
	if (result == -EDQUOT)
		return gm_text_refuse(GPUMEM_E_LIMIT, detail,
			"no ipc block can be made for %s that no old handle would open; ask "
			"for the fd transport, or restart gpumemd; see the daemon's log",
			gm_uid_name_say(chunk->payer_uid, user));
	if (result == -EMFILE || result == -ENFILE)
		return gm_text_refuse(GPUMEM_E_LIMIT, detail,
			"the daemon has no file descriptors left; raise its LimitNOFILE=");
	if (result == -EXFULL)
		return gm_text_refuse(GPUMEM_E_LIMIT, detail,
			"the keeper has no room for another chunk's file descriptor; return some "
			"memory, or raise LimitNOFILE= of gpumemd-keeper.service");
	return gm_text_refuse(GPUMEM_E_SYSTEM, detail,
		"device %u could not make a chunk of %s: %.160s; see the daemon's log",
		device->number, gm_format_size(chunk->bytes, size),
		said ? trouble : strerror(-result));
}

__attribute__((cold)) gpumem_status gm_request_say_fds(const struct gm_account_payer *payer,
	const struct gm_env *env, uint64_t n, char detail[GM_DETAIL_BYTES])
{
	const struct gm_user *user = payer->user;
	const struct gm_fd_budget *fds = env->fds;
	char name[GM_UID_NAME_PAYER_TEXT];

	return gm_text_refuse(GPUMEM_E_LIMIT, detail,
		"%s holds %llu file descriptors of the daemon and asked for %llu more (for chunks, "
		"signals and metadata); %llu of %llu are left, and others need some; return some, ask "
		"for larger leases, or raise LimitNOFILE= of the daemon and its keeper",
		gm_uid_name_say_payer(user->uid, payer->uid, name),
		(unsigned long long)user->has[GM_USER_CHUNK_FDS], (unsigned long long)n,
		(unsigned long long)gm_u64_minus(gm_fd_budget_for_chunks(fds), fds->chunks),
		(unsigned long long)gm_fd_budget_for_chunks(fds));
}

__attribute__((cold)) void gm_request_tell(struct gm_device *device,
	const struct gm_request *request, gpumem_status status, const char *detail)
{
	const struct gm_account *account = &request->payer->accounts[device->number];
	char text[GM_DETAIL_BYTES];

	if (request->again || gm_request_host_will_do(request, status))
		return;
	gm_text_say(text, "refused: %s", detail);
	gm_env_tell(device->env, &(struct gm_event){
					 .kind = GM_EVENT_REFUSED,
					 .device = device->number,
					 .text = text,
					 .session = request->payer->session,
					 .asked = request->bytes,
					 .held = account->held,
					 .priority = account->priority,
					 .status = (int)status,
				 });
}

const struct gm_owner *gm_request_blocker(const struct gm_device *device,
	const struct gm_limits *limits, const struct gm_request *request,
	struct gm_limit_most *last)
{
	const struct gm_queue_wait *w = &request->waiting;

	if (w->ask.block == GM_BLOCK_LIMIT)
		return gm_limit_owner(w->ask.tally->limit);
	if (w->ask.block == GM_BLOCK_GUARANTEE)
		return gm_limits_most_kept(
			limits, device->number, &request->payer->accounts[device->number], last);
	return NULL;
}

/* ---- reports of the queue */

void gm_queue_tell(struct gm_device *device, const struct gm_request *request,
	enum gm_event_kind kind, int status, const char *verb, const char *why)
{
	const struct gm_queue_wait *w = &request->waiting;
	char text[GM_DETAIL_BYTES];
	struct gm_event event = {
		.kind = kind,
		.device = device->number,
		.text = text,
		.session = request->payer->session,
		.asked = w->ask.exact,
		.held = w->ask.account->held,
		.waited_ns = gm_device_now(device) - w->arrived_ns,
		.priority = w->priority,
		.block = w->ask.block,
		.status = status,
	};
	if (w->ask.block == GM_BLOCK_LIMIT) {
		event.owner = gm_limit_owner(w->ask.tally->limit);
		event.max = w->ask.tally->max;
		event.held = w->ask.tally->held;
	}
	gm_text_say(text, "%s: %s", verb, why);
	gm_env_tell(device->env, &event);
}

void gm_queue_tell_refused(struct gm_device *device, const struct gm_request *request,
	gpumem_status status, const char *detail)
{
	const struct gm_queue_wait *w = &request->waiting;
	char verb[GM_DETAIL_BYTES], after[GM_UNITS_TEXT];
	uint64_t waited = gm_device_now(device) - w->arrived_ns;

	if (request->at_once || request->again || gm_request_host_will_do(request, status) ||
		(w->ask.block == GM_BLOCK_LIMIT && w->told_limit))
		return;
	/* One that may not wait may have done so while clients were asked, or the device was probed.
	 * The detail of one that may wait says how long it did. */
	if (w->ask.nowait && waited >= GM_NS_PER_MS)
		gm_text_say(verb, "refused after %s", gm_format_duration(waited, after));
	else
		gm_text_say(verb, "refused%s", waited && !w->ask.nowait ? "" : " without waiting");
	gm_queue_tell(device, request, GM_EVENT_REFUSED, status, verb, detail);
}

void gm_queue_tell_rest(struct gm_device *device, struct gm_request *request)
{
	char verb[GM_DETAIL_BYTES], why[GM_DETAIL_BYTES], asked[GM_UNITS_TEXT];
	struct gm_queue_wait *w = &request->waiting;

	if (w->told_rest || gm_reclaim_backoff_left_ns(device, &w->ask) == 0)
		return;
	w->told_rest = true;
	gm_reclaim_backoff_say(device, &w->ask, why);
	gm_text_say(verb, "rests, asked for %s", gm_format_size(w->ask.exact, asked));
	gm_queue_tell(device, request, GM_EVENT_RESTS, GPUMEM_OK, verb, why);
}
