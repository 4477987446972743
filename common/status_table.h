/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_COMMON_STATUS_H
#define GM_COMMON_STATUS_H

#include "gpumem/status.h"

const char *gm_status_text(
	gpumem_status status); /* "unknown status" for a number not in the table */
const char *gm_status_name(
	gpumem_status status); /* "GPUMEM_E_LIMIT"; "GPUMEM_E_UNKNOWN" for a number not there */
int gm_status_exit(
	gpumem_status status); /* gpumemctl's exit status; 1 for a number not in the table */
/* What a negative errno of ours means to a caller of the API; its sign does not matter. What is no
 * one else's is GPUMEM_E_SYSTEM. -ENOMEM is the host's memory: a device's has its own status. */
gpumem_status gm_status_from_errno(int error);

#endif
