/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Questions and answers through a ring. On a GPU, a kernel answers while it runs: nothing is launched and
 * nothing is copied for a question. Where there is no GPU, another process answers, with the same code
 * (ring_kernel.h).
 */
#include <gpumem/gpumem_ring.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda_driver.h"
#include "ring_kernel.h"
#include "ring_kernel.ptx.h"

#define QUESTIONS 10000
#define AT_ONCE   64

static int failed(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, gpumem_error_detail());
	return 1;
}

/* ---- the program */

/* Asks, with several questions under way at once, and hangs up when all are answered. */
static int ask(gpumem_ring *ring, const char *who)
{
	gpumem_ring_stats_t stats = GPUMEM_RING_STATS_INIT;
	struct ring_message question = {0, 0}, answer;

	for (uint64_t answers = 0; answers < QUESTIONS; answers++) {
		while (question.id < QUESTIONS && question.id < answers + AT_ONCE) {
			question.number = (double)question.id;
			if (gpumem_ring_send(ring, &question))
				return failed("send");
			question.id++;
		}
		if (gpumem_ring_receive(ring, &answer, 10000))
			return failed("receive");
		if (answer.id != answers || answer.number != (double)answers * (double)answers) {
			fprintf(stderr, "a wrong answer\n");
			return 1;
		}
	}
	if (gpumem_ring_hang_up(ring) || gpumem_ring_stats(ring, &stats))
		return failed("end");
	printf("%llu questions, %llu answers from %s, at most %llu under way\n",
		(unsigned long long)stats.out.sent, (unsigned long long)stats.in.sent, who,
		(unsigned long long)stats.out.high_water);
	return 0;
}

/* ---- a kernel answers */

static int find_gpu(const gpumem_device_info_t *info)
{
	CUcontext context;
	CUdevice device;
	CUuuid uuid;
	int count;

	CUDA(cuInit(0));
	CUDA(cuDeviceGetCount(&count));
	for (int i = 0; i < count; i++) {
		CUDA(cuDeviceGet(&device, i));
		CUDA(cuDeviceGetUuid(&uuid, device));
		if (memcmp(uuid.bytes, info->uuid, sizeof(uuid.bytes)))
			continue;
		CUDA(cuDevicePrimaryCtxRetain(&context, device));
		CUDA(cuCtxSetCurrent(context));
		return 0;
	}
	fprintf(stderr, "the driver does not show %s to this process\n", info->name);
	return 1;
}

static int ask_kernel(gpumem_ring *ring)
{
	gpumem_ring_view view;
	CUfunction function;
	CUmodule module;
	CUstream stream;
	void *arguments[] = {&view};

	if (gpumem_ring_far_end(ring, NULL, &view))
		return failed("far end");
	CUDA(cuModuleLoadData(&module, ring_kernel_text));
	CUDA(cuModuleGetFunction(&function, module, "ring_kernel"));
	CUDA(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CUDA(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
	int result = ask(ring, "a kernel");
	if (result)
		return result;
	CUDA(cuStreamSynchronize(stream));
	return 0;
}

/* ---- a process answers */

static int answer(int channel)
{
	gpumem_session *session;
	gpumem_buffer *buffer;
	gpumem_ring_view view;
	gpumem_ring *ring;
	gpumem_token token;

	if (read(channel, &token, sizeof(token)) != sizeof(token))
		return 0; /* a kernel answers */
	if (gpumem_connect(NULL, &session))
		return failed("connect");
	if (gpumem_open(session, &token, &buffer) || gpumem_ring_open(buffer, NULL, &ring))
		return failed("open");
	/* A process would use gpumem_ring_receive() and gpumem_ring_send(), which wait. This one does
	 * what a kernel does. */
	if (gpumem_ring_far_end(ring, NULL, &view))
		return failed("far end");
	ring_answer(&view);
	gpumem_ring_close(ring);
	gpumem_disconnect(session);
	return 0;
}

static int ask_process(gpumem_ring *ring, int channel)
{
	gpumem_token token;

	if (gpumem_share(gpumem_ring_buffer(ring), NULL, &token))
		return failed("share");
	if (write(channel, &token, sizeof(token)) != sizeof(token)) {
		fprintf(stderr, "the other process is gone\n");
		return 1;
	}
	return ask(ring, "a process");
}

static int run(int channel)
{
	gpumem_device_info_t info = GPUMEM_DEVICE_INFO_INIT;
	gpumem_ring_options options = GPUMEM_RING_OPTIONS_INIT;
	gpumem_session *session;
	gpumem_ring *ring;
	int result;

	if (gpumem_connect(NULL, &session))
		return failed("connect");
	options.full = GPUMEM_RING_WAIT;
	options.wait_ms = 10000;
	options.tag = "questions";
	if (gpumem_device_info(session, 0, &info) ||
		gpumem_ring_create(session, sizeof(struct ring_message), AT_ONCE, &options, &ring))
		return failed("ring");

	if (!strcmp(info.backend, "cuda") && (cuda_load() || find_gpu(&info)))
		return 1;
	if (cuLaunchKernel) /* a driver, and one that runs kernels */
		result = ask_kernel(ring);
	else
		result = ask_process(ring, channel);
	gpumem_ring_close(ring);
	gpumem_disconnect(session);
	return result;
}

int main(void)
{
	int pair[2], status = 0;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) < 0) {
		perror("socketpair");
		return 1;
	}
	/* Before there is a session: a child must not use its parent's. */
	pid_t pid = fork();
	if (pid < 0) {
		perror("fork");
		return 1;
	}
	if (pid == 0) {
		close(pair[0]);
		exit(answer(pair[1]));
	}
	close(pair[1]);
	int result = run(pair[0]);
	close(pair[0]);
	if (waitpid(pid, &status, 0) != pid || status)
		return 1;
	return result;
}
