/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waits for the other end of a ring. A process at the other end wakes this one (futex); a kernel cannot, so
 * this one looks again and again, at growing intervals. Each sleep is short, because nobody wakes this
 * process if the other one dies.
 */
#include "client/ring/ring_wait.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "client/ring/ring_owner.h"
#include "client/session/error.h"
#include "common/arith.h"
#include "common/clock.h"
#include "gpumem/gpumem.h"

/* First it looks without sleeping, because answers often come soon. Where they do not, or where the other end
 * has no processor to itself, it looks half as long each time, and seldom as long as at first. */
#define WAIT_SPIN_NS      (10 * GM_NS_PER_US)
#define WAIT_SPIN_SHORTER 7
#define WAIT_SPIN_AGAIN   64
/* How long it sleeps at most before it looks whether the other end is still there. */
#define WAIT_SLICE_NS (50 * GM_NS_PER_MS)
/* How often it looks where nobody wakes it. */
#define WAIT_LEAST_NS (20 * GM_NS_PER_US)
#define WAIT_MOST_NS  GM_NS_PER_MS

/* The half of a counter that changes with each message: a futex is 32 bits. */
static const uint32_t *wait_low_half(const uint64_t *word)
{
	return (const uint32_t *)word + (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__);
}

static bool wait_is_over(const struct gm_ring_wait *wait)
{
	return __atomic_load_n(wait->word, __ATOMIC_SEQ_CST) != wait->seen;
}

static void wait_relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

static bool wait_look(const struct gm_ring_wait *wait, uint64_t ns)
{
	uint64_t end_ns = gm_clock_ns() + ns;

	do {
		for (int i = 0; i < 16; i++) {
			if (wait_is_over(wait))
				return true;
			wait_relax();
		}
	} while (gm_clock_ns() < end_ns);
	return false;
}

static bool wait_spin(const struct gm_ring_wait *wait)
{
	struct gm_ring_spin *spin = wait->spin;

	if (spin->waits++ % WAIT_SPIN_AGAIN == 0)
		spin->shorter = 0;
	if (spin->shorter > WAIT_SPIN_SHORTER)
		return wait_is_over(wait);
	if (!wait_look(wait, WAIT_SPIN_NS >> spin->shorter)) {
		spin->shorter++;
		return false;
	}
	spin->shorter -= spin->shorter > 0;
	return true;
}

static struct timespec wait_time(uint64_t ns)
{
	return (struct timespec){
		.tv_sec = (time_t)(ns / GM_NS_PER_S), .tv_nsec = (long)(ns % GM_NS_PER_S)};
}

/* Sleeps until it is woken. Returns false if the kernel has no futex in this memory. */
static bool wait_sleep(const struct gm_ring_wait *wait, uint64_t ns)
{
	struct timespec most = wait_time(ns);
	bool can = true;

	/* In this order: the other end publishes first, and then looks for a sleeper. */
	__atomic_store_n(wait->sleeps, 1, __ATOMIC_SEQ_CST);
	if (!wait_is_over(wait) && syscall(SYS_futex, wait_low_half(wait->word), FUTEX_WAIT,
					   (uint32_t)wait->seen, &most, NULL, 0) < 0)
		can = errno == EAGAIN || errno == EINTR || errno == ETIMEDOUT;
	__atomic_store_n(wait->sleeps, 0, __ATOMIC_RELAXED);
	return can;
}

void gm_ring_wake(const uint64_t *word)
{
	(void)syscall(SYS_futex, wait_low_half(word), FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

uint64_t gm_ring_wait_end(uint32_t wait_ms)
{
	if (wait_ms == GPUMEM_NO_WAIT)
		wait_ms = 0;
	return wait_ms == GPUMEM_WAIT_FOREVER ? UINT64_MAX : gm_clock_ns() + wait_ms * GM_NS_PER_MS;
}

gpumem_status gm_ring_wait(const struct gm_ring_wait *wait, uint64_t until_ns)
{
	uint64_t now = gm_clock_ns(), look_ns = now + WAIT_SLICE_NS, nap_ns = WAIT_LEAST_NS;
	bool futex = true;

	if (wait_spin(wait))
		return GPUMEM_OK;

	for (;;) {
		uint64_t other = __atomic_load_n(wait->other, __ATOMIC_ACQUIRE);
		unsigned state = gm_ring_owner_state(other);
		bool gone = state >= wait->gone_from;

		now = gm_clock_ns();
		if (now >= look_ns || now >= until_ns) {
			gone = gone || gm_ring_owner_gone(other);
			look_ns = now + WAIT_SLICE_NS;
		}

		/* In this order: what the other end wrote before it went is there now. */
		if (wait_is_over(wait))
			return GPUMEM_OK;
		if (gone)
			return GPUMEM_E_CANCELLED;
		if (now >= until_ns)
			return GPUMEM_E_TIMEOUT;

		uint64_t left_ns = gm_u64_min(until_ns - now, look_ns - now);
		if (futex && state != GPUMEM_RING_KERNEL) {
			futex = wait_sleep(wait, left_ns);
		} else {
			struct timespec nap = wait_time(gm_u64_min(left_ns, nap_ns));
			nanosleep(&nap, NULL);
			nap_ns = gm_u64_min(2 * nap_ns, WAIT_MOST_NS);
		}
	}
}
