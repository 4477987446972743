/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Memory of a heap that goes back while something else happens to it: the answer to the return is lost, the same chunks
 * are granted again, or another thread shares them. The heap and the daemon always agree about what is leased. The
 * test stands between the library and the kernel, so that a packet is lost when it shall be.
 */

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/wire.h"
#include "gpumem/gpumem_piece.h"
#include "tests/integration/client_fixture.h"
#include "tests/tap.h"

/* ---- what the library sends and gets */

static pthread_mutex_t wire_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wire_changed = PTHREAD_COND_INITIALIZER;
static unsigned wire_sent[128]; /* packets of each body */

static void wire_note(const struct iovec *data)
{
	Gm__Wire__Packet *packet = gm__wire__packet__unpack(NULL, data->iov_len, data->iov_base);

	pthread_mutex_lock(&wire_lock);
	if (packet && packet->body_case < sizeof wire_sent / sizeof *wire_sent)
		wire_sent[packet->body_case]++;
	pthread_cond_broadcast(&wire_changed);
	pthread_mutex_unlock(&wire_lock);
	if (packet)
		gm__wire__packet__free_unpacked(packet, NULL);
}

static unsigned wire_count(Gm__Wire__Packet__BodyCase body)
{
	pthread_mutex_lock(&wire_lock);
	unsigned n = wire_sent[body];
	pthread_mutex_unlock(&wire_lock);
	return n;
}

static void wire_wait(Gm__Wire__Packet__BodyCase body, unsigned n)
{
	pthread_mutex_lock(&wire_lock);
	while (wire_sent[body] < n)
		pthread_cond_wait(&wire_changed, &wire_lock);
	pthread_mutex_unlock(&wire_lock);
}

/* In place of the C library's, as those below. */
#define IN_PLACE __attribute__((visibility("default")))

IN_PLACE ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	ssize_t n = syscall(SYS_sendmsg, fd, message, flags);

	if (n > 0)
		wire_note(message->msg_iov);
	return n;
}

/* Called when a wait of this thread was for nothing. */
static __thread void (*poll_expired)(void);

IN_PLACE int poll(struct pollfd *fds, nfds_t n, int timeout)
{
	struct timespec most = {.tv_sec = timeout / 1000, .tv_nsec = timeout % 1000 * 1000000L};
	int r = ppoll(fds, n, timeout < 0 ? NULL : &most, NULL);

	if (r == 0 && timeout > 0 && poll_expired)
		poll_expired();
	return r;
}

/* ---- memory that is granted again */

static gpumem_session *hasty;
static unsigned grown;
static pthread_t asker;
static void *again;

static void *allocate(void *argument)
{
	(void)argument;
	OK(gpumem_alloc(hasty, 0, 32 * MIB, GPUMEM_STREAM_ANY, NULL, &again));
	return NULL;
}

/* The thread that waits for the answer is about to give up. Before it does, another one asks for as much memory. */
static void ask_meanwhile(void)
{
	poll_expired = NULL;
	GM_REQUIRE(pthread_create(&asker, NULL, allocate, NULL) == 0);
	wire_wait(GM__WIRE__PACKET__BODY_GROW, grown + 1);
}

static void *trim(void *argument)
{
	(void)argument;
	poll_expired = ask_meanwhile;
	OK(gpumem_trim(hasty, NULL));
	return NULL;
}

/*
 * The daemon stands still for longer than the library waits for an answer, so the return is sent again. Meanwhile
 * the same chunks were granted again.
 */
START_TEST(a_return_that_is_sent_again_takes_nothing_that_was_granted_since)
{
	gpumem_connect_options options = GPUMEM_CONNECT_OPTIONS_INIT;
	void *kept, *block;
	pthread_t thread;

	options.timeout_ms = 2000;
	hasty = join_as(options, "hasty");
	OK(gpumem_alloc(hasty, 0, 2 * MIB, GPUMEM_STREAM_ANY, NULL, &kept));
	OK(gpumem_alloc(hasty, 0, 32 * MIB, GPUMEM_STREAM_ANY, NULL, &block));
	uint64_t leased = gm_figures_now(&daemon_).leased;
	OK(gpumem_free(hasty, block, GPUMEM_STREAM_DONE));
	grown = wire_count(GM__WIRE__PACKET__BODY_GROW);
	unsigned returned = wire_count(GM__WIRE__PACKET__BODY_RETURN_CHUNKS);

	GM_REQUIRE(kill(daemon_.pid, SIGSTOP) == 0);
	GM_REQUIRE(pthread_create(&thread, NULL, trim, NULL) == 0);
	wire_wait(GM__WIRE__PACKET__BODY_RETURN_CHUNKS, returned + 2);
	GM_REQUIRE(kill(daemon_.pid, SIGCONT) == 0);
	GM_REQUIRE(pthread_join(thread, NULL) == 0);
	GM_REQUIRE(pthread_join(asker, NULL) == 0);

	/* The daemon has dealt with the second return when it has answered what comes after it. */
	OK(gpumem_free(hasty, kept, GPUMEM_STREAM_DONE));
	OK(gpumem_trim(hasty, NULL));
	leased -= 2 * MIB;
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).leased, leased);
	gpumem_disconnect(hasty);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client returns");
	TCase *tc = tcase_create("returns");
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, a_return_that_is_sent_again_takes_nothing_that_was_granted_since);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
