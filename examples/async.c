/* SPDX-License-Identifier: Apache-2.0 */
/* A worker that does not wait for memory: it asks for many buffers at once, and its event loop uses
 * each one when it comes. A timer in the same loop stands for the worker's other work. */
#include <gpumem/gpumem.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define JOBS  64
#define BYTES (4 << 20)

static gpumem_session *session;
static int host; /* the CPU can use the memory */
static int done, failures;

static int failed(void)
{
	fprintf(stderr, "async: %s\n", gpumem_error_detail());
	return 1;
}

/* Runs in gpumem_dispatch(), on the thread of the loop. */
static void on_buffer(void *user, gpumem_request *request)
{
	gpumem_buffer *buffer;

	done++;
	/* Taking it ends the request, also if it failed. */
	if (gpumem_buffer_take(request, &buffer)) {
		failures += failed();
		return;
	}
	if (host)
		memset(gpumem_buffer_ptr(buffer), (int)(intptr_t)user, BYTES);
	gpumem_buffer_destroy(buffer);
}

static int begin(int job)
{
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	gpumem_request *request;

	options.tag = "async";
	options.wait_ms = 10000; /* if the device is full */
	if (gpumem_buffer_create_begin(session, 0, BYTES, &options, &request))
		return failed();
	gpumem_request_on_done(request, on_buffer, (void *)(intptr_t)job);
	return 0;
}

static int add(int loop, int fd)
{
	struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
	return epoll_ctl(loop, EPOLL_CTL_ADD, fd, &event);
}

int main(void)
{
	gpumem_device_info_t info = GPUMEM_DEVICE_INFO_INIT;
	struct itimerspec often = {.it_interval.tv_nsec = 1000000, .it_value.tv_nsec = 1000000};
	int fd, timer, loop;

	if (gpumem_connect(NULL, &session) || gpumem_device_info(session, 0, &info))
		return failed();
	host = !strcmp(info.backend, "host");
	if (gpumem_session_fd(session, &fd))
		return failed();

	loop = epoll_create1(EPOLL_CLOEXEC);
	timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (loop < 0 || timer < 0 || timerfd_settime(timer, 0, &often, NULL) || add(loop, fd) ||
		add(loop, timer)) {
		perror("async");
		return 1;
	}

	for (int i = 0; i < JOBS; i++)
		if (begin(i))
			return 1;
	while (done < JOBS) {
		struct epoll_event event;
		uint64_t ticks;

		if (epoll_wait(loop, &event, 1, -1) != 1)
			continue;
		if (event.data.fd == fd)
			gpumem_dispatch(session, NULL);
		else if (read(timer, &ticks, sizeof(ticks)) < 0)
			perror("async"); /* the other work */
	}

	printf("%d buffers of %d bytes on %s, %d failed\n", done, BYTES, info.name, failures);
	gpumem_disconnect(session);
	close(timer);
	close(loop);
	return failures != 0;
}
