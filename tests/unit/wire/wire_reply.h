/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_WIRE_REPLY_H
#define GM_TESTS_WIRE_REPLY_H

#include "common/wire/wire.h"

/* Makes a packet that uses every field of the envelope, with a body that has lists, texts and bytes. */
static inline void make_reply(Gm__Wire__Packet *packet, Gm__Wire__LeaseReply *reply,
	Gm__Wire__Chunk chunks[3], Gm__Wire__Chunk *pointers[3])
{
	*packet = (Gm__Wire__Packet)GM__WIRE__PACKET__INIT;
	*reply = (Gm__Wire__LeaseReply)GM__WIRE__LEASE_REPLY__INIT;
	for (int i = 0; i < 3; i++) {
		chunks[i] = (Gm__Wire__Chunk)GM__WIRE__CHUNK__INIT;
		chunks[i].id = UINT64_MAX - (uint64_t)i;
		chunks[i].index = (uint64_t)i;
		chunks[i].bytes = GM_CHUNK_MIN << i;
		pointers[i] = &chunks[i];
	}
	chunks[1].ipc_handle.data = (uint8_t *)"0123456789abcdef0123456789abcdef0123456789abcdef"
					       "0123456789abcdef";
	chunks[1].ipc_handle.len = GM_IPC_HANDLE_BYTES;
	reply->lease = UINT64_C(1) << 63;
	reply->device = 3;
	reply->transport = GM__WIRE__TRANSPORT__TRANSPORT_FD;
	reply->bytes = GM_LEASE_BYTES_MAX;
	reply->n_chunks = 3;
	reply->chunks = pointers;
	reply->read_only = 1;
	reply->tag = "weights \xc3\xb6";
	packet->id = 99;
	packet->sequence = UINT64_MAX;
	packet->generation = 5;
	packet->more = 1;
	packet->fds = 3;
	packet->body_case = GM__WIRE__PACKET__BODY_LEASE_REPLY;
	packet->lease_reply = reply;
}

#endif
