/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trims of one device or of all. A pool may have very many chunks, so they are released in slices. Each packet says
 * what was released since the one before.
 */
#include "common/text/units.h"
#include "daemon/serve/admin_reclaim.h"
#include "daemon/serve/handlers.h"
#include "daemon/tenant/client_news.h"

struct trim_job {
	struct gm_admin_reclaim job;
	uint32_t end;               /* the device behind the last */
	bool asked;                 /* the device's clients were asked */
	uint64_t released, n_asked; /* in all */
	Gm__Wire__TrimReply reply;  /* what was done since the last packet */
};

static int trim_slice(struct gm_admin_reclaim *job, struct gm_peer *peer)
{
	struct trim_job *trim = (struct trim_job *)job;
	const struct gm_serve *serve = job->head.serve;
	uint64_t slice = GM_CORE_TRIM_SLICE;

	trim->reply.released += gm_core_trim(serve->core, job->device, &slice);
	if (!trim->asked)
		trim->reply.clients_asked += gm_clients_reclaim(serve->clients, job->device, false);
	trim->asked = slice == 0;
	job->device += slice > 0;
	return job->device < trim->end;
}

static int trim_tell(struct gm_admin_reclaim *job, struct gm_peer *peer)
{
	struct trim_job *trim = (struct trim_job *)job;
	int r = gm_answer_emit(&job->head.stream, peer, job->more,
		GM__WIRE__PACKET__BODY_TRIM_REPLY, &trim->reply);
	if (r < 0)
		return r;

	trim->released += trim->reply.released;
	trim->n_asked += trim->reply.clients_asked;
	gm__wire__trim_reply__init(&trim->reply);
	if (r == 0) {
		char size[GM_UNITS_TEXT];
		gm_peer_log(peer, GM_LOG_INFO,
			"a trim released %s and asked %llu client%s for memory",
			gm_format_size(trim->released, size), (unsigned long long)trim->n_asked,
			trim->n_asked == 1 ? "" : "s");
	}
	return r;
}

void gm_admin_trim(struct gm_serve *serve, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	static const struct gm_admin_reclaim_way way = {
		.slice = trim_slice, .tell = trim_tell, .progress = true};
	const Gm__Wire__Trim *what = packet->trim;

	if (!gm_serve_require_admin(serve, peer, packet->id, "trimming"))
		return;
	if (!what->all_devices && !gm_serve_require_device(serve, peer, packet->id, what->device))
		return;

	struct trim_job *trim = gm_admin_reclaim_new(
		serve, peer, packet->id, &way, what->all_devices ? 0 : what->device, sizeof(*trim));
	if (!trim)
		return;
	trim->end = what->all_devices ? serve->n_devices : what->device + 1;
	gm__wire__trim_reply__init(&trim->reply);
	gm_admin_reclaim_start(&trim->job, 0);
}
