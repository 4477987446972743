/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUMEM_GRAPH_H
#define GPUMEM_GRAPH_H

/*
 * Streams that a program captures into graphs, and the memory that the graphs use. gpumem_stream(3) says more.
 * gpumem.h includes this header.
 */

#include "gpumem.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Call gpumem_capture_begin() before you begin a capture, and gpumem_capture_end() when it has ended, or if it did not begin. In
 * between, the library records no event for all streams of a context, because that would break the capture. The calls
 * nest, and apply to the whole process.
 */
GPUMEM_API void gpumem_capture_begin(void);
GPUMEM_API void gpumem_capture_end(void);

/*
 * Call gpumem_capture_keep_out() before you wait for a context (cuCtxSynchronize()) or record an event for all of its streams,
 * and gpumem_capture_let_in() in the same thread afterwards. In between, gpumem_capture_begin() waits, for a second at most.
 * Returns GPUMEM_E_BUSY while a capture is announced. Then the thread must not make its call, which would break the
 * capture, and must not call gpumem_capture_let_in(). Neither call needs a session.
 */
GPUMEM_API gpumem_status gpumem_capture_keep_out(void);
GPUMEM_API void gpumem_capture_let_in(void);

/*
 * A captured graph uses the same addresses each time it is launched. So memory that is allocated or
 * freed on a stream while the stream is being captured stays in place. Even after it was freed, the
 * library neither reuses it nor gives it back, until the program says that the graph and everything
 * instantiated from it are gone.
 */

/*
 * The number of the graph that the stream is being captured into, or 0 if it is not being captured.
 * Call it between the begin and the end of the capture.
 *
 * The library may query a stream that was passed to it during a capture until the stream is passed
 * to it again. So before you destroy such a stream, call this function, or allocate or free on the
 * stream, once after the end of the capture. Do not destroy it while it is being captured, not even
 * if it has only joined the capture of another stream.
 *
 * A thread that has captured its own default stream (CU_STREAM_PER_THREAD) also passes it once more:
 * no other thread can query that one, so until then the capture counts as going on.
 */
GPUMEM_API gpumem_status gpumem_graph_of(
	gpumem_session *session, uint32_t device, gpumem_stream stream, uint64_t *ret_graph);
/* Says that the graph will not be launched again: memory that was kept for it and has been freed is
 * now really free. If the library keeps nothing for that number, returns GPUMEM_E_NOT_FOUND. */
GPUMEM_API gpumem_status gpumem_graph_gone(gpumem_session *session, uint64_t graph);

#ifdef __cplusplus
}
#endif

#endif
