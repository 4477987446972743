/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One thread per device. A job is about one chunk and lives in the chunk, so queueing it cannot
 * fail. worker_queue.c decides which job is next.
 *
 * Results come back through uv_async in the order of the work, samples included, because a sample
 * is meaningful only together with the chunks that existed when it was taken. The thread must never
 * touch the loop, and must never hold the lock while it calls the backend.
 */
#include "daemon/backend/worker.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/arith.h"
#include "common/cond.h"
#include "daemon/backend/worker_queue.h"

/* How many results the loop takes before others have their turn. */
#define GM_WORKER_RESULTS 2
#define GM_WORKER_STACK   (1024 * 1024)
/* Number of bytes of a chunk that are freed before others have their turn: about a millisecond. */
#define GM_WORKER_DISCARD (UINT64_C(4) << 20)

struct gm_job_queue {
	struct gm_chunk *first, *last;
};

/* How much was free, and when that was. */
struct worker_sample {
	bool ready; /* there is one to pass on */
	int result;
	uint64_t free_bytes;
	uint64_t after; /* n_done when it was taken */
	uint64_t asks;  /* n_asks when it began */
};

/* Who used the device, and when that was. */
struct worker_survey {
	bool ready;
	struct gm_usage *usage; /* NULL: there was no memory for it */
	uint64_t after;         /* n_done when it was made */
};

/* A count, and when that was. */
struct worker_count {
	struct gm_usage_sample *counted;
	uint64_t after; /* n_done when it was made */
};
/* If the loop is so far behind, no more counts are made. */
#define GM_WORKER_COUNTS 16

struct gm_worker {
	const struct gm_backend_ops *ops;
	void *backend;
	uint32_t number;
	bool discards; /* before it destroys a chunk */
	const struct gm_worker_events *events;
	void *ctx;
	uv_async_t async;
	pthread_t thread;

	pthread_mutex_t lock; /* of everything below, except n_told */
	pthread_cond_t wake;
	struct gm_worker_queue turns; /* jobs that have not begun */
	struct gm_job_queue done;
	uint64_t n_done;  /* since the start */
	uint64_t n_taken; /* of them, by the loop */
	bool want_sample, want_survey;
	struct worker_sample sample;
	struct worker_survey survey;
	bool want_count;
	uint32_t uncounted; /* chunks that were watched and destroyed since the last count */
	uint64_t paced_ns;  /* the time that counts have used up: see GM_WORKER_PACE */
	uint64_t pause_ns;  /* by how much the last one moved it on */
	struct worker_count counts[GM_WORKER_COUNTS]; /* oldest first */
	unsigned n_counts;
	uint64_t n_counted; /* since the start */
	uint64_t n_asks;    /* for samples, since the start; only the loop's thread counts it up */
	bool stop;

	uint64_t n_told; /* how many of n_done were passed on; only the loop's thread uses it */
};

static void worker_queue_push(struct gm_job_queue *queue, struct gm_chunk *chunk)
{
	chunk->job.next = NULL;
	if (queue->last)
		queue->last->job.next = chunk;
	else
		queue->first = chunk;
	queue->last = chunk;
}

static struct gm_chunk *worker_queue_pop(struct gm_job_queue *queue)
{
	struct gm_chunk *chunk = queue->first;
	if (!chunk)
		return NULL;
	queue->first = chunk->job.next;
	if (!queue->first)
		queue->last = NULL;
	chunk->job.next = NULL;
	return chunk;
}

/* Whether chunks of the device have to be emptied before they are destroyed. */
static bool worker_discards(const struct gm_backend_ops *ops, void *backend, uint32_t number)
{
	struct gm_backend_device info = {.reopened = true};

	if (ops->device_info)
		ops->device_info(backend, number, &info);
	return ops->discard && info.reopened;
}

/* Frees a part of a chunk that is about to be destroyed. Returns whether that was all of it. */
static bool worker_discard_some(const struct gm_worker *worker, struct gm_chunk *chunk)
{
	uint64_t from = chunk->job.discarded;
	if (!worker->discards || chunk->last)
		return true;
	chunk->job.discarded += gm_u64_min(chunk->bytes - from, GM_WORKER_DISCARD);
	worker->ops->discard(worker->backend, &chunk->handle, from, chunk->job.discarded - from);
	return chunk->job.discarded == chunk->bytes;
}

/* Returns false if the job needs another turn. */
static bool worker_run_job(struct gm_worker *worker, struct gm_chunk *chunk)
{
	struct gm_backend_seen seen = {chunk->domain, chunk->payer_uid, chunk->several};
	if (chunk->job.destroy) {
		if (!worker_discard_some(worker, chunk))
			return false;
		worker->ops->destroy(worker->backend, worker->number, chunk->transport,
			chunk->bytes, &seen, &chunk->handle);
		chunk->job.result = 0;
		return true;
	}
	chunk->job.result = worker->ops->create(worker->backend, worker->number, chunk->transport,
		chunk->bytes, &seen, &chunk->handle);
	return true;
}

/* Must be called with the lock held, and releases it during the backend's call. */
static void worker_take_sample(struct gm_worker *worker)
{
	struct worker_sample sample = {.ready = true, .asks = worker->n_asks};
	worker->want_sample = false;
	pthread_mutex_unlock(&worker->lock);
	sample.result =
		worker->ops->memory_free(worker->backend, worker->number, &sample.free_bytes);
	pthread_mutex_lock(&worker->lock);
	sample.after = worker->n_done;
	worker->sample = sample;
	uv_async_send(&worker->async);
}

/* Must be called with the lock held, and releases it during the calls. Takes a sample first, so
 * that what is free is seen together with who uses it. */
static void worker_take_survey(struct gm_worker *worker)
{
	worker->want_survey = false;
	worker_take_sample(worker);
	pthread_mutex_unlock(&worker->lock);
	struct gm_usage *usage = gm_usage_read(worker->ops, worker->backend, worker->number);
	pthread_mutex_lock(&worker->lock);
	gm_usage_free(worker->survey.usage);
	worker->survey =
		(struct worker_survey){.ready = true, .usage = usage, .after = worker->n_done};
	uv_async_send(&worker->async);
}

/* Must be called with the lock held, and releases it during the calls. */
static void worker_take_count(struct gm_worker *worker)
{
	uint64_t began = gm_clock_ns(), free_bytes = 0;

	worker->want_count = false;
	worker->uncounted = 0;
	worker->n_counted++;
	pthread_mutex_unlock(&worker->lock);
	bool sampled = worker->ops->memory_free(worker->backend, worker->number, &free_bytes) == 0;
	struct gm_usage_sample *counted =
		gm_usage_count(worker->ops, worker->backend, worker->number);
	pthread_mutex_lock(&worker->lock);

	uint64_t now = gm_clock_ns();
	worker->pause_ns = GM_WORKER_PACE * (now - began);
	worker->paced_ns = gm_u64_max(worker->paced_ns, now) + worker->pause_ns;
	if (!counted)
		return;
	counted->sampled = sampled;
	counted->free_bytes = free_bytes;
	worker->counts[worker->n_counts++] = (struct worker_count){counted, worker->n_done};
	uv_async_send(&worker->async);
}

/* When the thread may count by itself. After a pause, it may do so twice. */
static uint64_t worker_may_count_at(const struct gm_worker *worker)
{
	return gm_u64_minus(worker->paced_ns, worker->pause_ns);
}

static bool worker_may_count(const struct gm_worker *worker)
{
	return worker->n_counts < GM_WORKER_COUNTS && worker_may_count_at(worker) <= gm_clock_ns();
}

static bool worker_is_watched(const struct gm_chunk *chunk)
{
	return chunk && chunk->job.destroy && chunk->watched;
}

/* A chunk whose process no count has seen is worth a count at any pace. One is enough for all chunks
 * that were queued before it. */
static bool worker_must_count(const struct gm_worker *worker, const struct gm_chunk *chunk)
{
	return worker->n_counts < GM_WORKER_COUNTS && chunk->unseen &&
	       chunk->job.queued == worker->n_counted;
}

/* Whether a count is due before this job. */
static bool worker_counts_before(const struct gm_worker *worker, const struct gm_chunk *chunk)
{
	if (!worker_is_watched(chunk))
		return false;
	return worker_must_count(worker, chunk) || (!worker->uncounted && worker_may_count(worker));
}

/* Returns whether the loop has to take results before the next job begins. */
static bool worker_is_ahead(const struct gm_worker *worker)
{
	return worker->n_done - worker->n_taken >= GM_WORKER_AHEAD;
}

/* Returns the job to do now, or NULL. */
static struct gm_chunk *worker_next_job(struct gm_worker *worker)
{
	return worker_is_ahead(worker) ? NULL : gm_worker_queue_next(&worker->turns);
}

/* Waits for something to do, or until the last destructions may be counted. */
static void worker_wait(struct gm_worker *worker)
{
	if (worker->uncounted && worker->n_counts < GM_WORKER_COUNTS)
		gm_cond_wait_until(&worker->wake, &worker->lock, worker_may_count_at(worker));
	else
		pthread_cond_wait(&worker->wake, &worker->lock);
}

static void *worker_thread_main(void *arg)
{
	struct gm_worker *worker = arg;
	pthread_mutex_lock(&worker->lock);
	for (;;) {
		if (worker->want_survey)
			worker_take_survey(worker);
		else if (worker->want_sample)
			worker_take_sample(worker);
		if ((worker->want_count && worker->n_counts < GM_WORKER_COUNTS) ||
			(worker->uncounted && worker_may_count(worker)))
			worker_take_count(worker);
		struct gm_chunk *chunk = worker_next_job(worker);
		if (worker_counts_before(worker, chunk)) {
			worker_take_count(worker);
			chunk = worker_next_job(worker);
		}
		if (chunk) {
			/* A creation that has begun cannot be called off any more. */
			if (!chunk->job.destroy)
				gm_worker_queue_remove(&worker->turns, chunk);
			pthread_mutex_unlock(&worker->lock);
			uint64_t began = gm_clock_ns();
			bool through = worker_run_job(worker, chunk);
			uint64_t took = gm_clock_ns() - began;
			pthread_mutex_lock(&worker->lock);
			gm_worker_queue_charge(&worker->turns, chunk->payer_uid, took);
			if (!through)
				continue;
			if (chunk->job.destroy)
				gm_worker_queue_remove(&worker->turns, chunk);
			worker->uncounted += worker_is_watched(chunk);
			/* Core expected that the chunk would fit, so it must see first how much is
			 * free. */
			if (!chunk->job.destroy && chunk->job.result == -ENOMEM &&
				!worker->ops->exclusive)
				worker_take_sample(worker);
			worker_queue_push(&worker->done, chunk);
			worker->n_done++;
			uv_async_send(&worker->async);
			continue;
		}
		if (worker->want_sample || worker->want_survey ||
			(worker->want_count && worker->n_counts < GM_WORKER_COUNTS))
			continue;
		if (worker->stop)
			break;
		worker_wait(worker);
	}

	pthread_mutex_unlock(&worker->lock);
	return NULL;
}

/* What the loop passes on in one turn. */
struct worker_results {
	struct gm_job_queue done;
	struct worker_sample sample;
	struct worker_survey survey;
	struct worker_count counts[GM_WORKER_COUNTS];
	unsigned n_counts;
	bool more;
};

/* Takes the counts that were made by then. */
static void worker_take_counts(
	struct gm_worker *worker, uint64_t upto, struct worker_results *results)
{
	unsigned n = 0;
	while (n < worker->n_counts && worker->counts[n].after <= upto)
		n++;
	memcpy(results->counts, worker->counts, n * sizeof(worker->counts[0]));
	results->n_counts = n;
	worker->n_counts -= n;
	memmove(worker->counts, worker->counts + n, worker->n_counts * sizeof(worker->counts[0]));
	if (n > 0 && (worker->uncounted || worker->want_count))
		pthread_cond_signal(&worker->wake);
}

/* Takes a bounded number of results, and a sample or survey if it belongs among them. */
static void worker_take_results(struct gm_worker *worker, struct worker_results *results)
{
	uint64_t upto = worker->n_told;

	memset(results, 0, sizeof(*results));
	pthread_mutex_lock(&worker->lock);
	bool ahead = worker_is_ahead(worker);
	for (int i = 0; i < GM_WORKER_RESULTS && worker->done.first; i++, upto++)
		worker_queue_push(&results->done, worker_queue_pop(&worker->done));
	worker->n_taken = upto;
	if (ahead && !worker_is_ahead(worker))
		pthread_cond_signal(&worker->wake);
	results->more = worker->done.first;
	if (worker->sample.ready && worker->sample.after <= upto) {
		results->sample = worker->sample;
		worker->sample.ready = false;
	}
	if (worker->survey.ready && worker->survey.after <= upto) {
		results->survey = worker->survey;
		worker->survey.ready = false;
		worker->survey.usage = NULL;
	}
	worker_take_counts(worker, upto, results);
	pthread_mutex_unlock(&worker->lock);
}

static void worker_on_async(uv_async_t *async)
{
	struct gm_worker *worker = async->data;
	struct worker_results results;

	worker_take_results(worker, &results);
	struct worker_sample sample = results.sample;
	struct worker_survey survey = results.survey;
	struct gm_chunk *chunk;
	unsigned told = 0;
	for (;;) {
		for (; told < results.n_counts && results.counts[told].after == worker->n_told;
			told++)
			worker->events->counted(
				worker->ctx, worker->number, results.counts[told].counted);
		if (sample.ready && worker->n_told == sample.after) {
			sample.ready = false;
			/* An event above may have asked for another sample. */
			worker->events->sampled(worker->ctx, worker->number, sample.result,
				sample.free_bytes, sample.asks == worker->n_asks);
		}
		if (survey.ready && worker->n_told == survey.after) {
			survey.ready = false;
			worker->events->surveyed(worker->ctx, worker->number, survey.usage);
		}
		chunk = worker_queue_pop(&results.done);
		if (!chunk)
			break;
		worker->n_told++;
		if (chunk->job.destroy)
			worker->events->destroyed(worker->ctx, chunk);
		else
			worker->events->created(worker->ctx, chunk, chunk->job.result);
	}
	if (results.more)
		uv_async_send(&worker->async);
}

static void worker_on_closed(uv_handle_t *handle)
{
	struct gm_worker *worker = handle->data;
	gm_usage_free(worker->survey.usage);
	for (unsigned i = 0; i < worker->n_counts; i++)
		free(worker->counts[i].counted);
	pthread_cond_destroy(&worker->wake);
	pthread_mutex_destroy(&worker->lock);
	free(worker);
}

static int worker_start_thread(struct gm_worker *worker)
{
	pthread_attr_t attr;
	int r = pthread_attr_init(&attr);
	if (r)
		return -r;

	sigset_t all, before;
	sigfillset(&all);
	r = pthread_attr_setstacksize(&attr, GM_WORKER_STACK);
	if (!r)
		r = pthread_sigmask(SIG_SETMASK, &all, &before);
	if (!r) {
		r = pthread_create(&worker->thread, &attr, worker_thread_main, worker);
		pthread_sigmask(SIG_SETMASK, &before, NULL);
	}

	pthread_attr_destroy(&attr);
	if (r)
		return -r;

	char name[16];
	snprintf(name, sizeof(name), "device-%u", worker->number);
	pthread_setname_np(worker->thread, name);
	return 0;
}

int gm_worker_new(uv_loop_t *loop, const struct gm_backend_ops *ops, void *backend, uint32_t number,
	const struct gm_worker_events *events, void *ctx, struct gm_worker **ret_worker)
{
	struct gm_worker *worker = calloc(1, sizeof(*worker));
	if (!worker)
		return -ENOMEM;

	worker->ops = ops;
	worker->discards = worker_discards(ops, backend, number);
	worker->backend = backend;
	worker->number = number;
	worker->events = events;
	worker->ctx = ctx;
	pthread_mutex_init(&worker->lock, NULL);
	gm_cond_init(&worker->wake);
	int r = uv_async_init(loop, &worker->async, worker_on_async);
	if (r < 0) {
		pthread_cond_destroy(&worker->wake);
		pthread_mutex_destroy(&worker->lock);
		free(worker);
		return r;
	}

	worker->async.data = worker;
	r = worker_start_thread(worker);
	if (r < 0) {
		uv_close((uv_handle_t *)&worker->async, worker_on_closed);
		return r;
	}

	*ret_worker = worker;
	return 0;
}

void gm_worker_stop(struct gm_worker *worker)
{
	if (!worker)
		return;
	pthread_mutex_lock(&worker->lock);
	worker->stop = true;
	pthread_cond_signal(&worker->wake);
	pthread_mutex_unlock(&worker->lock);
	pthread_join(worker->thread, NULL);
	uv_close((uv_handle_t *)&worker->async, worker_on_closed);
}

static void worker_submit(
	struct gm_worker *worker, struct gm_chunk *chunk, bool destroy, uint64_t turn)
{
	chunk->job.destroy = destroy;
	chunk->job.turn = turn;
	chunk->job.result = 0;
	chunk->job.discarded = 0;
	pthread_mutex_lock(&worker->lock);
	chunk->job.queued = worker->n_counted;
	gm_worker_queue_add(&worker->turns, chunk);
	pthread_cond_signal(&worker->wake);
	pthread_mutex_unlock(&worker->lock);
}

void gm_worker_create(struct gm_worker *worker, struct gm_chunk *chunk, uint64_t turn)
{
	worker_submit(worker, chunk, false, turn);
}

bool gm_worker_call_off(struct gm_worker *worker, struct gm_chunk *chunk)
{
	pthread_mutex_lock(&worker->lock);
	bool waits = chunk->job.waits;
	if (waits)
		gm_worker_queue_remove(&worker->turns, chunk);
	pthread_mutex_unlock(&worker->lock);
	return waits;
}

void gm_worker_destroy(struct gm_worker *worker, struct gm_chunk *chunk)
{
	worker_submit(worker, chunk, true, 0);
}

void gm_worker_sample(struct gm_worker *worker)
{
	if (worker->ops->exclusive)
		return;
	pthread_mutex_lock(&worker->lock);
	worker->want_sample = true;
	worker->n_asks++;
	pthread_cond_signal(&worker->wake);
	pthread_mutex_unlock(&worker->lock);
}

void gm_worker_count(struct gm_worker *worker)
{
	pthread_mutex_lock(&worker->lock);
	worker->want_count = true;
	pthread_cond_signal(&worker->wake);
	pthread_mutex_unlock(&worker->lock);
}

void gm_worker_survey(struct gm_worker *worker)
{
	pthread_mutex_lock(&worker->lock);
	worker->want_survey = true;
	pthread_cond_signal(&worker->wake);
	pthread_mutex_unlock(&worker->lock);
}
