/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_SESSION_GPUMEM_SESSION_H
#define GM_CLIENT_SESSION_GPUMEM_SESSION_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/backoff.h"
#include "common/lock.h"
#include "client/session/capture.h"
#include "client/session/conn.h"
#include "client/session/error.h"
#include "client/session/fork.h"
#include "client/session/conn_hello.h"
#include "client/session/session_pages.h"
#include "common/system/path.h"
#include "gpumem/gpumem.h"

/*
 * The folder client/session/ promises a session that outlives its connections: it says hello to the
 * daemon, carries requests and answers, and notices when the daemon is away. It must never know what a
 * request is about. Leases and their return are in client/grant/, and so is resuming a session, which has to find
 * the leases again.
 *
 * This header has the session itself. The layers above keep their own state in it, behind pointers
 * that this folder never follows.
 *
 * Locks: common/lock.h has their order.
 */

struct gm_alloc_lists;
struct gm_arena;
struct gm_buffer_list;
struct gm_copy_limit;
struct gm_lease_return_item;
struct gm_map_ops;
struct gm_requests;
struct gm_region_list;
struct gm_retired_list;
struct gm_session_lease;
struct gm_supply;
struct gm_thread;

/* One device, as this process uses it. */
struct gm_session_device {
	_Atomic(struct gm_arena *) arena;       /* the first gpumem_alloc() makes it */
	struct gm_supply *supply;               /* where the arena gets its chunks from */
	_Atomic(const struct gm_map_ops *) map; /* NULL until gm_map_chunks_open() */
	void *backend;                          /* does not change once map is set */
	gpumem_device_info_t info; /* as of the hello; capacity and available go stale */
	_Atomic uint64_t pressure; /* as last read from the page: level << 32 | ppm */

	/* The heap's blocks in the page's table; the session's listing protects these fields. */
	uint64_t listed_changes; /* gm_arena_changes() at the last listing */
	uint64_t listed_from;    /* track_from at the last listing */
	uint64_t unlisted;       /* blocks for which no row was free */

	/* Figures of buffers; the session's lock protects these fields. */
	uint64_t buffer_in_use;  /* bytes requested */
	uint64_t buffer_opened;  /* part of it: in leases of other processes, which pay for them */
	uint64_t buffer_held;    /* bytes of the leases that this process made */
	uint64_t buffer_unused;  /* part of it: leases that regions could give back now */
	uint64_t buffers;        /* not destroyed yet */
	uint64_t declared;       /* bytes that this session has declared: session_declared.c */
	uint64_t undeclared;     /* bytes no longer declared, which the daemon was not told yet */
	uint64_t uncharged;      /* part of declared: the daemon did not take it over */
	uint64_t buffer_misses;  /* buffers ever made */
	uint64_t buffer_returns; /* chunks given back */
	uint64_t peak;           /* the highest use of the device that was seen, heap included */
	uint64_t evictable;      /* bytes of the buffers that could be evicted */
	uint64_t in_host;        /* bytes of this device's buffers that are in host memory */
	uint64_t fallbacks;      /* buffers that were made there */
	uint64_t passed;         /* calls for memory that the driver served instead */
	bool relieved;           /* by the last event, pressure is not high */
	bool return_due;         /* so buffers may return from host memory */
	struct gpumem_buffer *evictables; /* those, the ones first that were not used for longest */

	/* Used only by the library's thread. */
	uint64_t spill_wanted;   /* bytes that evictable buffers should give back */
	uint64_t spill_until_ns; /* when that is forgotten */
};

/* How this session tracks memory. */
enum gm_session_tracking {
	GM_SESSION_TRACK_LATER = 0, /* the library's thread lists large blocks, if they live long */
	GM_SESSION_TRACK_ALL,       /* everything, when it is allocated */
	GM_SESSION_TRACK_STACKS,    /* and where */
};

enum gm_session_state {
	GM_SESSION_UP,     /* connected */
	GM_SESSION_AWAY,   /* the daemon cannot be reached: held memory works, requests wait */
	GM_SESSION_CLOSED, /* being disconnected: nothing is sent any more */
};

/* A session, the object behind a program's handle. Fields before the lock do not change once the session is made, except
 * atomics, captures and pages (which have locks of their own), and the fields of device[] that name
 * their lock. */
struct gpumem_session {
	struct gm_fork_mark mark;
	uint32_t devices; /* all devices */
	uint32_t counted; /* without pinned host memory, which is the last device */
	_Atomic uint64_t
		track_from; /* buffers of at least this many bytes are listed in the page */
	/* GM_SESSION_DIRTY or _DIRTY_TRACKING, plus GM_SESSION_AWAITED for each call that waits
	 * for memory and could use what another thread frees. One word, so that freeing reads one
	 * word. */
	_Atomic uint32_t dirty;
	bool peers;        /* GPUs may use one another's memory */
	bool host_will_do; /* the program takes host memory for what a GPU's heap is refused */
	enum gm_session_tracking tracking;
	bool report; /* the program asked for the tracking, so its end says what was not freed */
	struct gm_session_device device[GM_BOUND_DEVICES];

	char path[GM_PATH_BYTES];
	char why[64]; /* why that path */
	char name[GM_BOUND_NAME_BYTES + 1];
	char run[GM_BOUND_RUN_BYTES + 1]; /* what gpumem-run said in the environment */
	uint64_t run_max;
	int32_t run_priority;
	char run_name[GM_BOUND_NAME_BYTES + 1];
	uint64_t timeout_ns;
	uint64_t away_ns;     /* how long a request waits for an absent daemon */
	_Atomic uint64_t ids; /* the last id of a request, on any connection */
	struct gm_session_pages pages;
	_Atomic int wake; /* an eventfd; another one after the program has closed it (thread.c) */
	/* Tries once to resume the session: gm_session_resumption(). On success, the session is up. */
	gpumem_status (*resume)(struct gpumem_session *session);
	/* Gives back what regions no longer use: gm_region_trim(). A call that waits for memory runs it,
	 * and knows no regions. */
	uint64_t (*trim_regions)(struct gpumem_session *session, uint32_t device, uint64_t bytes);
	struct gm_conn_request
		goodbye; /* allocated in advance: the end must not fail for lack of memory */
	struct gm_thread *thread;
	struct gm_alloc_lists *allocated; /* client/memory/alloc_lists.h */
	struct gm_buffer_list *buffers;   /* client/buffer/gpumem_buffer.h */
	struct gm_copy_limit *copies;     /* client/copy/copy_slots.h */
	struct gm_region_list *regions;   /* client/region/region_state.h */
	struct gm_retired_list *retired;  /* freed, and not given back: client/device/retired.h */
	uint64_t spill_rounds; /* used only by the thread: how often it evicted buffers */

	struct gm_captures captures; /* memory that graphs use */
	struct gm_lock opening;      /* held while a device's mapping is made */
	struct gm_lock flushing;     /* held while kept returns are sent */
	struct gm_lock
		declaring;       /* held while the library tells the daemon that less is declared */
	_Atomic bool declares;   /* something was ever declared */
	_Atomic bool kept;       /* something could not be unmapped and is still mapped */
	_Atomic bool makers_due; /* the makers of opened buffers with signals are to be asked for */
	_Atomic uint32_t names_awaited; /* calls that wait until a name is published */

	struct gm_lock lock; /* of the fields below and of buffer figures; held only briefly */
	enum gm_session_state state;
	pthread_cond_t changed;    /* of the state, and of what waiting requests look at */
	char away[GM_ERROR_BYTES]; /* why the daemon cannot be reached */
	struct gm_conn *conn;      /* NULL unless up */
	int wakeup;                /* for events, until the library's thread takes it; or -1 */
	bool resumed;              /* the daemon still knew the session */
	uint64_t losses;           /* how often the connection was lost */
	uint64_t since_ns;         /* when the connection began */
	struct gm_backoff backoff; /* when to try to resume */
	bool resuming;             /* a thread is trying */
	struct gm_conn *greeting;  /* the connection that it is trying with */
	bool closing;              /* nobody tries or waits any longer */
	/* The library's thread, which resumes the session, is busy with the program's event
	 * function. Then a thread that waits for the daemon resumes the session itself: the
	 * function may be waiting for that thread, or may be the one that waits. */
	bool busy;
	unsigned waiting; /* requests that wait for the daemon */
	uint64_t freed;   /* grows when memory was freed that a waiting request may use */
	bool begun;       /* there are requests that no thread waits for in a call */
	struct gm_requests *requests; /* those: client/request/request_list.h */
	uint64_t id;
	uint8_t token[GM_TOKEN_BYTES];
	uint64_t generation;
	uint64_t decay_ms;
	uint64_t wait_ms; /* how long a request may wait if it does not say so itself */
	/* Grows when the daemon no longer knows the old session. The daemon does not know leases of
	 * an older epoch either, so they are dropped without a message. */
	uint64_t epoch;
	struct gm_session_lease *leases; /* every lease that the daemon may have granted */
	uint64_t views;                  /* how many of them were opened, not made */
	struct gm_lease_return_item
		*returning; /* to be given back when the daemon can be reached */
	bool flush;         /* some of it is being sent */
	/* Grants whose answers were lost, and the requests that may claim them: lease_unclaimed.c. */
	struct gm_lease_return_item *unclaimed;
	uint64_t resumes;      /* how often the session was resumed */
	unsigned asking;       /* requests for memory under way */
	unsigned asking_older; /* those of them that began before the last resume */
};

/* Every call begins with this check; gm_session_refused() says why it failed. */
gpumem_status gm_session_refused(const struct gpumem_session *session);
static inline bool gm_session_ok(const struct gpumem_session *session)
{
	return session && gm_fork_same(&session->mark);
}
gpumem_status gm_session_no_device(const struct gpumem_session *session, uint32_t device);

/* Translate between a device's index and the number that programs use for it. They differ for
 * pinned host memory, whose number does not depend on how many GPUs there are.
 * gm_session_find_device() returns false if there is no such device. */
static inline uint32_t gm_session_device_name(const struct gpumem_session *session, uint32_t device)
{
	return device < session->counted ? device : GPUMEM_DEVICE_HOST;
}
static inline bool gm_session_find_device(
	const struct gpumem_session *session, uint32_t name, uint32_t *ret_device)
{
	*ret_device = name == GPUMEM_DEVICE_HOST ? session->counted : name;
	return name < session->counted ||
	       (name == GPUMEM_DEVICE_HOST && session->counted < session->devices);
}

/* Wakes the library's thread: it checks the connection, its timers, and whether there is work. */
void gm_session_wake(void *session);

#define GM_SESSION_DIRTY UINT32_C(1) /* the library's thread is publishing the figures */
/* The same in a session that tracks everything. There, the first bit stays clear, so that a block that
 * was allocated takes the slow path, and tracking costs other sessions nothing. */
#define GM_SESSION_DIRTY_TRACKING UINT32_C(2)
#define GM_SESSION_AWAITED        UINT32_C(4)

static inline uint32_t gm_session_dirty_bit(const struct gpumem_session *session)
{
	return session->tracking ? GM_SESSION_DIRTY_TRACKING : GM_SESSION_DIRTY;
}

/* Something changed, so the figures must be published, and calls that wait may find memory here. */
void gm_session_dirty_now(struct gpumem_session *session);

/* Whether the slow path is needed after an allocation: gm_session_dirty_now() and, if the session
 * tracks everything, a row for the block. This costs one load. */
static inline bool gm_session_clean(const struct gpumem_session *session)
{
	uint32_t dirty = atomic_load_explicit(&session->dirty, memory_order_relaxed);
	return __builtin_expect(!(dirty & GM_SESSION_DIRTY), 0);
}

/* Something was allocated, so the figures must be published. While the library's thread is
 * publishing, this costs one load. */
static inline void gm_session_dirty(struct gpumem_session *session)
{
	if (gm_session_clean(session))
		gm_session_dirty_now(session);
}

/* Something was freed. If no call waits for memory, this costs as much as gm_session_dirty(). */
static inline void gm_session_dirty_freed(struct gpumem_session *session)
{
	uint32_t dirty = atomic_load_explicit(&session->dirty, memory_order_relaxed);
	if (__builtin_expect(dirty != GM_SESSION_DIRTY, 0))
		gm_session_dirty_now(session);
}

uint64_t gm_session_epoch(struct gpumem_session *session);
/* How long the daemon lets a request wait if it does not say so itself; 0: not at all. */
uint64_t gm_session_wait_ms(struct gpumem_session *session);

/* Connects and says hello (gm_conn_hello()). Resumes the session if it has an id and anew is false, and makes a new session otherwise.
 * held: bytes of the leases that this process made. */
gpumem_status gm_session_hello(struct gpumem_session *session, bool anew, uint64_t held,
	struct gm_conn_hello *ret_hello, bool *ret_refused);
/* Takes over the connection, the wakeup and the settings that a hello brought. The caller must
 * still deinit the hello. */
void gm_session_adopt(struct gpumem_session *session, struct gm_conn_hello *hello);

/* For structs with a size field: copy the fields that both sides know, from or to the program's
 * struct (given). Other fields of known stay as they are. Return GPUMEM_E_INVALID if the size is
 * not set. In gm_sized_in(), given may be NULL. */
gpumem_status gm_sized_in(void *known, size_t known_bytes, const void *given);
gpumem_status gm_sized_out(void *given, const void *known, size_t known_bytes);

#endif
