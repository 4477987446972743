/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_COMMON_STATUS_TABLE_H
#define GM_COMMON_STATUS_TABLE_H

#include "gpumem/status.h"

/* A status in a few words, or "unknown status" if the number is not in the table. */
const char *gm_status_text(gpumem_status status);
/* The exit status of gpumemctl; 1 if the number is not in the table. */
int gm_status_exit(gpumem_status status);
/* What an errno, of either sign, means to a program; GPUMEM_E_SYSTEM if no other status fits.
 * ENOMEM means host memory: a lack of device memory is ENOBUFS. */
gpumem_status gm_status_from_errno(int error);

#endif
