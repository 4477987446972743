/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_SYSTEM_REACH_H
#define GM_SYSTEM_REACH_H

/*
 * Why nobody was reached at the path of a socket, and what to do about it: the same words for the
 * client library and gpumemctl. "no daemon listens there, because the socket does not exist", and
 * "check the path, or run 'gpumemd --socket mine'".
 */
struct gm_reach {
	int error; /* what is wrong, as a negative errno. -ENOTSOCK: something else has this path */
	char cause[256];
	char remedy[256];
};

/* error: what connecting to the path returned, a negative errno. Looks at the file system. */
void gm_reach_explain(const char *path, int error, struct gm_reach *ret_reach);

/* Says what may be the matter if the socket at the path takes connections and nobody answers there. The service manager's socket does
 * so while its service cannot start. */
const char *gm_reach_silence(const char *path);

#endif
