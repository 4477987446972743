/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_COMMON_STORE_KIND_H
#define GM_COMMON_STORE_KIND_H

/*
 * Kind of an item in the keeper: a descriptor that outlives the daemon. Kind and id are its name. The keeper interprets
 * CHUNK, PROCESS, REFS and LEDGER only. Never change a number.
 */
enum gm_store_kind {
	GM_STORE_RECORDS_FILE = 1,  /* the daemon's records */
	GM_STORE_CHUNK = 2,         /* id: the chunk's */
	GM_STORE_PROCESS = 3,       /* a client's pidfd; id: the client's */
	GM_STORE_PAGE = 4,          /* a client's page; id: the client's */
	GM_STORE_FORMER = 5,        /* its page from before it resumed; id: the client's */
	GM_STORE_METADATA = 6,      /* of a published lease; id: that of its record */
	GM_STORE_CONTROL_BLOCK = 7, /* the control block of a lease with signals; id: the lease's */
	GM_STORE_REFS = 8,          /* what is needed while there is no daemon: keeper_wire.h */
};

#endif
