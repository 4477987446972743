/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_FAKE_STREAM_H
#define GM_TESTS_FAKE_STREAM_H

#include "tests/fake/fake.h"

/*
 * What streams, events and captures of the fake driver know of one another. All of it is behind one
 * lock, which is never held while an operation runs, nor together with fake.lock.
 */

/* A point in a stream is a count of its operations; an event is a set of such points, and so is
 * what an operation waits for. */
struct fake_point {
	struct fake_stream *stream;
	uint64_t count;
};

struct fake_points {
	struct fake_point *at;
	size_t n;
};

/* A capture into a graph, which the fake does not run: what is submitted is only counted. */
struct fake_capture {
	gm_cu_u64 id; /* never given twice */
	gm_cu_capture_mode mode;
	struct fake_stream *origin;
	pthread_t thread; /* that began it */
	bool broken;
	struct fake_graph *graph; /* that it becomes */
	struct fake_capture *prev, *next;
};

enum fake_kind { FAKE_SET, FAKE_COPY, FAKE_CALL, FAKE_WAIT, FAKE_WRITE_WORD, FAKE_AWAIT_WORD };

struct fake_op {
	enum fake_kind kind;
	int device; /* that works */
	gm_cu_ptr to, from;
	unsigned char value;
	gm_cu_u64 word; /* what is written to one, or waited for */
	size_t n;
	gm_cu_host_fn fn;
	void *user;
	struct fake_points after;
	struct fake_op *prev, *next;
};

struct fake_stream {
	unsigned long long id;
	int context;
	bool legacy;
	bool blocking; /* waits for the legacy stream, and it for this one */
	bool destroyed;
	bool staging; /* a call copies pageable memory: nobody else can submit to the stream */
	bool threaded;
	pthread_t thread;
	uint64_t submitted, completed;
	struct fake_op *queue;
	struct fake_capture *capture; /* it is part of; NULL: none */
	uint64_t captured;            /* operations in it */
	struct fake_points seen;      /* what these come after, in other streams of it */
	struct fake_stream *prev, *next;
};

struct gm_cu_event_opaque {
	struct gm_cu_event_opaque *self; /* the key */
	int context;
	gm_cu_u64 capture; /* the one it was last recorded in; 0: in none */
	struct fake_points points;
	UT_hash_handle hh;
};

struct fake_streams {
	pthread_mutex_t lock;
	pthread_cond_t moved;
	struct fake_stream *list;
	struct fake_capture *captures;
	struct gm_cu_event_opaque *events;
	unsigned long long next_id;
	gm_cu_u64 next_capture;
	unsigned ending; /* calls that wait for all work, and let nobody launch any until then */
};
extern struct fake_streams fake_streams;

/* stream.c, with the lock held */
gm_cu_result fake_stream_find(gm_cu_stream handle, struct fake_stream **ret_stream);
bool fake_points_passed(const struct fake_points *points);
/* The point counts for all before it in its stream: there is at most one per stream. */
bool fake_points_add(struct fake_points *points, struct fake_stream *stream, uint64_t count);
bool fake_points_merge(struct fake_points *points, const struct fake_points *more);
/* Where a stream is, with what the legacy stream and those that wait for it owe one another. */
bool fake_points_now(struct fake_points *points, struct fake_stream *stream);
/* stream.c, without the lock */
/* The context that a stream is of, which need not be current, and its device, if all can be used.
 */
gm_cu_result fake_stream_context(
	gm_cu_stream handle, struct fake_device **ret_device, int *ret_context);
gm_cu_result fake_submit(gm_cu_stream handle, const struct fake_op *op);
/* The same for a copy that the calling thread itself takes part in: returns when it is done. Until then
 * others that call this, or fake_staging_pass(), or submit to this stream, wait. */
gm_cu_result fake_submit_staged(gm_cu_stream handle, const struct fake_op *op);
/* Waits for all work of the process. Until then others that submit, or call fake_ending_pass(), wait. */
void fake_sync_all_alone(void);
void fake_ending_pass(void);
/* Waits until no call copies pageable memory. */
void fake_staging_pass(void);
/* With the lock held. Waits until the stream takes something. */
void fake_stream_await_staging(const struct fake_stream *stream);

/* work.c: what a stream's thread does for an operation. */
void fake_perform(const struct fake_op *op);

/* capture.c, with the lock held. What a use of the stream gives, which may break captures; true in
 * ret_captured: it becomes part of a graph. */
gm_cu_result fake_capture_use(struct fake_stream *stream, bool *ret_captured);
/* The same for a question that a captured stream cannot answer; unsafe: nor can any, to a thread
 * that a capture binds. */
gm_cu_result fake_capture_ask(struct fake_stream *stream, bool unsafe);
/* Without the lock: whether a use of the stream becomes part of a graph, or fails. */
bool fake_captured(gm_cu_stream handle, gm_cu_result *ret_result);
/* Breaks every capture in a context. */
gm_cu_result fake_capture_break(int context);
/* What the order "stream waits for event" gives where a capture has part in it. */
gm_cu_result fake_capture_wait(struct fake_stream *stream, gm_cu_event event, bool *ret_captured);
struct fake_capture *fake_capture_find(gm_cu_u64 id);

/* event.c, with the lock held */
void fake_events_end(int context);

#endif
