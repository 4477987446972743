/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_CONFIG_OWNER_H
#define GM_DAEMON_CONFIG_OWNER_H

#include <stdint.h>

/*
 * Whom a limit is for, as people write it: uid:1002 or uid:alice, gid:100 or gid:video,
 * unit:training.service, container:NAME, client:NAME (what a client calls itself). Users and groups
 * are looked up here and nowhere else, so that what the daemon hears of are numbers.
 */

#define GM_CONFIG_OWNER_BYTES 272
#define GM_CONFIG_OWNER_WHY   256

#define GM_CONFIG_OWNER_E_NONE 1

/*
 * The one way to write an owner, into ret_owner: "uid:1002" for uid:alice. 0;
 * GM_CONFIG_OWNER_E_NONE: it is none, and why says what is wrong and what would be right. session:
 * whether "session:17", one client by its number, is taken: at run time only, for it names nobody
 * tomorrow.
 */
int gm_config_owner_parse(const char *text, int session, char ret_owner[GM_CONFIG_OWNER_BYTES],
	char ret_why[GM_CONFIG_OWNER_WHY]);

#endif
