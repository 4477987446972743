/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_COMMON_ESTIMATE_H
#define GM_COMMON_ESTIMATE_H

#include "gpumem/gpumem_plan.h"

/* How much memory a model takes for inference. */

#define GM_ESTIMATE_WRONG 256

/*
 * Fills all of *ret_estimate but its size. The sizes of both structures are not looked at. On
 * GPUMEM_E_INVALID, wrong says which member of the model is impossible and why, and *ret_estimate is
 * untouched.
 */
gpumem_status gm_estimate_inference(
	const gpumem_model *model, gpumem_estimate *ret_estimate, char wrong[GM_ESTIMATE_WRONG]);

/* Sets the members that may be 0 (head_dim, bytes_per_value) to what the estimate uses. The model must be
 * one that gm_estimate_inference() accepts. */
void gm_estimate_fill(gpumem_model *model);

#endif
