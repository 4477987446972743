/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_CONFIG_OWNER_H
#define GM_DAEMON_CONFIG_OWNER_H

#include <stdbool.h>

/*
 * The owner of a limit, as people write it: uid:1002 or uid:alice, gid:100 or gid:video,
 * unit:training.service, container:NAME, client:NAME (the name that a client gives itself). The
 * names of users and groups are looked up here and nowhere else, so that the daemon only handles
 * numbers.
 */

#define GM_CONFIG_OWNER_BYTES 272
#define GM_CONFIG_OWNER_WHY   256

#define GM_CONFIG_OWNER_E_NONE 1

/*
 * Writes an owner in its one canonical form, such as "uid:1002" for uid:alice. Returns 0, or
 * GM_CONFIG_OWNER_E_NONE: the text names no owner, and ret_why says what is wrong and what would be
 * right. session allows "session:17", one client by its number, which means nothing after that
 * client has left.
 */
int gm_config_owner_parse(const char *text, bool session, char ret_owner[GM_CONFIG_OWNER_BYTES],
	char ret_why[GM_CONFIG_OWNER_WHY]);

#endif
