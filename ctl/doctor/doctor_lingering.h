/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CTL_DOCTOR_LINGERING_H
#define GM_CTL_DOCTOR_LINGERING_H

#include "ctl/doctor/doctor.h"
#include "ctl/io/ctl_conn.h"

/* Names the processes that have memory which lingers, if any does. */
void gm_doctor_lingering(struct gm_doctor *doctor, struct gm_ctl_conn *conn);

#endif
