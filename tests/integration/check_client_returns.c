/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Memory of a heap that goes back while something else happens to it: the answer to the return is lost, the same chunks
 * are granted again, or another thread shares them. The heap and the daemon always agree about what is leased. The
 * test stands between the library and the kernel, so that a packet is lost when it shall be.
 */

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/wire/wire.h"
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

static void free_meanwhile(void);

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

/* This test reads the next answer to a ShareChunks, loses it, or lets it come late. Then it reads all others. */
enum { REPLY_READ, REPLY_LOST, REPLY_LATE };
static atomic_int share_reply;
static atomic_bool turned_away; /* no connection comes about */

/* Whether it is one that shall not be read now. */
static bool wire_caught(const struct msghdr *message, size_t n)
{
	Gm__Wire__Packet *packet = gm__wire__packet__unpack(NULL, n, message->msg_iov->iov_base);
	bool caught = packet && packet->body_case == GM__WIRE__PACKET__BODY_SHARE_CHUNKS_REPLY;

	if (packet)
		gm__wire__packet__free_unpacked(packet, NULL);
	return caught;
}

IN_PLACE ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
	ssize_t n = syscall(SYS_recvmsg, fd, message, flags);

	if (n <= 0 || flags & MSG_PEEK || share_reply == REPLY_READ ||
		!wire_caught(message, (size_t)n))
		return n;
	if (share_reply == REPLY_LATE) {
		share_reply = REPLY_READ;
		unsigned returned = wire_count(GM__WIRE__PACKET__BODY_RETURN_CHUNKS);
		free_meanwhile();
		wire_wait(GM__WIRE__PACKET__BODY_RETURN_CHUNKS, returned + 1);
		return n;
	}
	share_reply = REPLY_READ;
	shutdown(fd, SHUT_RDWR);
	return 0;
}

IN_PLACE int connect(int fd, const struct sockaddr *address, socklen_t size)
{
	if (turned_away) {
		errno = ECONNREFUSED;
		return -1;
	}
	return (int)syscall(SYS_connect, fd, address, size);
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

	options.timeout_ms = 5000;
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

/* ---- memory that is shared */

static void all_back(gpumem_session *s)
{
	OK(gpumem_trim(s, NULL));
	GM_UNTIL(gm_figures_now(&daemon_).leased + gm_figures_now(&daemon_).quarantined == 0);
}

/* The daemon has made leases of the chunks, and the connection ends before the library reads that. Either the library asks again, or
 * it has no time to. */
START_TEST(chunks_go_back_although_nobody_heard_that_they_were_shared)
{
	bool gives_up = _i;
	gpumem_session *s = join_away("sharer", gives_up ? 1 : 30000);
	gpumem_piece piece;
	void *block;

	OK(gpumem_alloc(s, 0, 40 * MIB, GPUMEM_STREAM_ANY, NULL, &block));
	share_reply = REPLY_LOST;
	turned_away = gives_up;
	GM_REQUIRE_EQ(
		gpumem_share_ptr(s, block, &piece), gives_up ? GPUMEM_E_DISCONNECTED : GPUMEM_OK);
	GM_REQUIRE_EQ(share_reply, REPLY_READ);
	turned_away = false;

	OK(gpumem_free(s, block, GPUMEM_STREAM_DONE));
	all_back(s);
	gpumem_disconnect(s);
}
END_TEST

/* The same, and the memory is shared again before it goes back. */
START_TEST(memory_can_be_shared_again_after_an_answer_was_lost)
{
	gpumem_session *s = join_away("sharer", 1), *other = join("opener");
	gpumem_piece piece;
	gpumem_buffer *buffer;
	void *block;

	OK(gpumem_alloc(s, 0, 40 * MIB, GPUMEM_STREAM_ANY, NULL, &block));
	share_reply = REPLY_LOST;
	turned_away = true;
	GM_REQUIRE_EQ(gpumem_share_ptr(s, block, &piece), GPUMEM_E_DISCONNECTED);
	turned_away = false;
	GM_UNTIL(gpumem_share_ptr(s, block, &piece) == GPUMEM_OK);
	OK(gpumem_open_piece(other, &piece, &buffer));
	gpumem_buffer_destroy(buffer);
	gpumem_disconnect(other);

	OK(gpumem_free(s, block, GPUMEM_STREAM_DONE));
	all_back(s);
	gpumem_disconnect(s);
}
END_TEST

static void *freed_block;
static pthread_t freer;

static void *free_and_trim(void *argument)
{
	(void)argument;
	OK(gpumem_free(session, freed_block, GPUMEM_STREAM_DONE));
	OK(gpumem_trim(session, NULL));
	return NULL;
}

static void free_meanwhile(void)
{
	GM_REQUIRE(pthread_create(&freer, NULL, free_and_trim, NULL) == 0);
}

/* A program must not do that. If it does, it loses its own memory and nothing else. */
START_TEST(memory_that_is_freed_while_it_is_shared_goes_back)
{
	gpumem_session *other = join("opener");
	gpumem_piece piece;
	gpumem_buffer *buffer;

	OK(gpumem_alloc(session, 0, 40 * MIB, GPUMEM_STREAM_ANY, NULL, &freed_block));
	share_reply = REPLY_LATE;
	OK(gpumem_share_ptr(session, freed_block, &piece));
	GM_REQUIRE(pthread_join(freer, NULL) == 0);
	GM_UNTIL(gm_figures_now(&daemon_).leased == 0);
	GM_REQUIRE_EQ(gpumem_open_piece(other, &piece, &buffer), GPUMEM_E_NOT_FOUND);
	gpumem_disconnect(other);
}
END_TEST

/* Threads that share and threads that give back, in the same chunks. */
#define THREADS 2
#define ROUNDS  150

static void *share_often(void *argument)
{
	static const uint64_t sizes[] = {4096, 300 * 1000, 3 * MIB, 20 * MIB};
	size_t mine = (size_t)(uintptr_t)argument;
	gpumem_piece piece;

	for (size_t i = 0; i < ROUNDS; i++) {
		void *blocks[4];
		for (size_t k = 0; k < 4; k++)
			OK(gpumem_alloc(session, 0, sizes[(k + mine) % 4], GPUMEM_STREAM_ANY, NULL,
				&blocks[k]));
		OK(gpumem_share_ptr(session, blocks[i % 4], &piece));
		for (size_t k = 0; k < 4; k++)
			OK(gpumem_free(session, blocks[k], GPUMEM_STREAM_DONE));
	}
	return NULL;
}

static void *trim_often(void *argument)
{
	(void)argument;
	for (size_t i = 0; i < 2 * ROUNDS; i++)
		OK(gpumem_trim(session, NULL));
	return NULL;
}

START_TEST(some_threads_share_what_others_give_back)
{
	pthread_t threads[THREADS + 1];

	for (size_t i = 0; i < THREADS; i++)
		GM_REQUIRE(
			pthread_create(&threads[i], NULL, share_often, (void *)(uintptr_t)i) == 0);
	GM_REQUIRE(pthread_create(&threads[THREADS], NULL, trim_often, NULL) == 0);
	for (size_t i = 0; i <= THREADS; i++)
		GM_REQUIRE(pthread_join(threads[i], NULL) == 0);
	all_back(session);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client returns");
	TCase *tc = tcase_create("returns");
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, a_return_that_is_sent_again_takes_nothing_that_was_granted_since);
	tcase_add_loop_test(tc, chunks_go_back_although_nobody_heard_that_they_were_shared, 0, 2);
	tcase_add_test(tc, memory_can_be_shared_again_after_an_answer_was_lost);
	tcase_add_test(tc, memory_that_is_freed_while_it_is_shared_goes_back);
	tcase_add_test(tc, some_threads_share_what_others_give_back);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
