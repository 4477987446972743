/* SPDX-License-Identifier: Apache-2.0 */
#ifndef EXAMPLES_RING_KERNEL_H
#define EXAMPLES_RING_KERNEL_H

/*
 * The far end of the ring of ring.c: answers each question with the square of its number, until the other
 * end hangs up. ring_kernel.cu makes a kernel of it. It also compiles as plain C, for a process that
 * answers where there is no GPU.
 */
#include <gpumem/gpumem_ring_device.h>

struct ring_message {
	uint64_t id;
	double number;
};

#ifdef __CUDACC__
#define RING_ANSWER_ON __device__
#else
#define RING_ANSWER_ON
#endif

RING_ANSWER_ON static inline void ring_answer(const gpumem_ring_view *view)
{
	gpumem_ring_receiver in;
	gpumem_ring_sender out;
	struct ring_message message;

	gpumem_ring_receiver_begin(&in, view);
	gpumem_ring_sender_begin(&out, view);
	for (;;) {
		/* In this order: what was sent before the other end hung up is received, too. */
		int last = gpumem_ring_receiver_closed(&in);
		int got = gpumem_ring_receiver_receive(&in, &message);

		if (got < 0 || (!got && last))
			return;
		message.number *= message.number;
		while (got && gpumem_ring_sender_send(&out, &message) == 0)
			if (gpumem_ring_receiver_closed(&in))
				return; /* perhaps nobody reads the answer any more */
	}
}

#endif
