/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_BOOKS_PAYER_H
#define GM_BOOKS_PAYER_H

#include <stdbool.h>
#include <stdint.h>

#include <uthash.h>

#include "common/text/limit_values.h"
#include "daemon/books/chunk.h"
#include "daemon/books/ledger.h"
#include "daemon/books/owner.h"

struct gm_user;
struct gm_request;

/*
 * The one that memory is charged to: the part of a session, or of an orphaned account, that the modules below daemon/lease need to
 * know. It is embedded in struct gm_session and struct gm_orphan.
 */
struct gm_account_payer {
	uint64_t id;
	/* Opaque here: for the functions of gm_core_ops. NULL: an orphaned account, which stands for what clients left behind. Nobody
	 * can ask it or end it. quarantined is set as well. */
	struct gm_session *session;
	uid_t uid;            /* of the process: for sentences only */
	uid_t payer_uid;      /* the user that it counts for: gm_session_info */
	pid_t pid;            /* several sessions may have the same */
	bool quarantined;     /* its connection is gone, so it cannot be asked for anything */
	bool ending;          /* it has ended: it holds nothing, and no list shows it */
	bool limited;         /* a limit applies to it */
	bool pooling;         /* false: what it returns is never pooled */
	gm_domain domain;     /* whose used chunks it may have */
	struct gm_user *user; /* of payer_uid: what is counted for it */
	/* Kept by daemon/queue. */
	struct gm_request *pending;   /* oldest first */
	uint64_t n_new;               /* of them: those that make an object of their own */
	uint64_t n_waiting;           /* requests in the queue */
	struct gm_limit_values run;   /* the limit of its run; nothing is set: it has none */
	UT_hash_handle hh;            /* of gm_env.payers */
	struct gm_account accounts[]; /* one per device, in order of number */
};

#endif
