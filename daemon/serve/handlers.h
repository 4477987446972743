/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_HANDLERS_H
#define GM_DAEMON_HANDLERS_H

#include "daemon/serve/serve.h"

/*
 * The handlers of all requests, for the table in serve_dispatch.c. Each is in the file that is named before it.
 *
 * Requests of gpumemctl (gm_admin_...): everybody sees the totals of all clients, and the details of
 * their own clients (same uid, same container). Administrators see everything, and only they may change
 * anything.
 */

/* serve_session.c: the begin and the end of a session, and the list of devices. */
gm_serve_handler gm_serve_hello, gm_serve_goodbye, gm_serve_get_devices;
/* serve_lease.c: requests for memory, returns, and memory that clients make themselves and declare. */
gm_serve_handler gm_serve_lease, gm_serve_grow, gm_serve_declare, gm_serve_cancel, gm_serve_return,
	gm_serve_get_handles;
/* serve_share.c: sharing, by token and by name. */
gm_serve_handler gm_serve_share, gm_serve_open, gm_serve_unshare, gm_serve_publish, gm_serve_attach,
	gm_serve_unpublish, gm_serve_expire_name, gm_serve_get_makers, gm_serve_share_chunks;
/* serve_metadata.c: the metadata of names. */
gm_serve_handler gm_serve_put_metadata, gm_serve_get_metadata;
/* serve_place.c: which device has room. */
gm_serve_handler gm_serve_place;

/* admin.c: figures, clients and their buffers. */
gm_serve_handler gm_admin_get_status, gm_admin_get_pools, gm_admin_get_clients,
	gm_admin_get_buffers, gm_admin_get_config;
/* admin_names.c: the names of leases that the asker may attach to; an administrator sees all. */
gm_serve_handler gm_admin_get_names;
/* admin_stacks.c: where a client allocated its buffers, for those who may see the buffers. */
gm_serve_handler gm_admin_get_stacks;
/* admin_processes.c: which processes use the devices. */
gm_serve_handler gm_admin_get_processes;
/* admin_limits.c: limits and the queue. */
gm_serve_handler gm_admin_get_limits, gm_admin_set_limit, gm_admin_reset_limit, gm_admin_get_queue;
/* admin_trim.c, admin_drain.c, admin_cleanup.c, admin_evict.c: memory that is got back by hand. */
gm_serve_handler gm_admin_trim, gm_admin_drain, gm_admin_cleanup, gm_admin_evict;
/* admin_daemon.c: the end of the daemon, and a reload of its configuration. */
gm_serve_handler gm_admin_stop, gm_admin_reload;
/* watch.c: a peer that wants to be sent all news. */
gm_serve_handler gm_watch_start;

#endif
