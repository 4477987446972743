/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trims. A pool may have very many chunks, so they are released in slices: one for each packet of the
 * answer, on the turns of the user that asked. Each packet says what its own slice released.
 */
#include "daemon/serve/admin_trim.h"

#include "common/text/units.h"
#include "daemon/serve/answer.h"
#include "daemon/tenant/client_news.h"

struct trim_slices {
	struct gm_answer head;
	uint32_t device, end;       /* the next device, and the one behind the last */
	bool asked;                 /* the device's clients were asked */
	bool untold;                /* the reply below has not been sent */
	uint64_t released, n_asked; /* in all */
	Gm__Wire__TrimReply reply;
};

static void trim_release_slice(struct trim_slices *trim, const struct gm_peer *peer)
{
	const struct gm_serve *serve = trim->head.serve;

	gm__wire__trim_reply__init(&trim->reply);
	do {
		uint64_t slice = GM_CORE_TRIM_SLICE;
		trim->reply.released += gm_core_trim(serve->core, trim->device, &slice);
		if (!trim->asked)
			trim->reply.clients_asked +=
				gm_clients_reclaim(serve->clients, trim->device, false);
		trim->asked = slice == 0;
		trim->device += slice > 0;
	} while (trim->device < trim->end && !gm_peer_time_is_up(peer));
	trim->released += trim->reply.released;
	trim->n_asked += trim->reply.clients_asked;
	trim->untold = true;
}

static int trim_next(struct gm_stream *stream, struct gm_peer *peer)
{
	struct trim_slices *trim = (struct trim_slices *)stream;

	if (!trim->untold)
		trim_release_slice(trim, peer);
	int r = gm_answer_emit(stream, peer, trim->device < trim->end,
		GM__WIRE__PACKET__BODY_TRIM_REPLY, &trim->reply);
	if (r < 0)
		return r;

	trim->untold = false;
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
	const Gm__Wire__Trim *what = packet->trim;

	if (!gm_serve_require_admin(serve, peer, packet->id, "trimming"))
		return;
	if (!what->all_devices && !gm_serve_require_device(serve, peer, packet->id, what->device))
		return;

	struct trim_slices *trim = gm_answer_new(serve, peer, packet->id, trim_next, sizeof(*trim));
	if (!trim) {
		gm_serve_fail_memory(peer, packet->id);
		return;
	}
	trim->device = what->all_devices ? 0 : what->device;
	trim->end = what->all_devices ? serve->n_devices : what->device + 1;
	gm_peer_start(peer, &trim->head.stream);
}
