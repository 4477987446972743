/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel of ring.c: one thread that answers. ring_kernel.ptx.h has it as PTX; make ring-kernel makes that. */
#include "ring_kernel.h"

extern "C" __global__ void ring_kernel(gpumem_ring_view view)
{
	ring_answer(&view);
}
