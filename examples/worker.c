/* SPDX-License-Identifier: Apache-2.0 */
/* A worker: takes memory of a device, uses it, and gives it back. */
#include <gpumem/gpumem.h>
#include <stdio.h>
#include <string.h>

#define BYTES (64 << 20)

static int failed(void)
{
	fprintf(stderr, "worker: %s\n", gpumem_error_detail());
	return 1;
}

int main(void)
{
	gpumem_device_info_t info = GPUMEM_DEVICE_INFO_INIT;
	gpumem_session *session;
	void *memory;

	if (gpumem_connect(NULL, &session))
		return failed();
	if (gpumem_device_info(session, 0, &info))
		return failed();
	if (gpumem_alloc(session, 0, BYTES, NULL, NULL, &memory))
		return failed();

	/* The CPU cannot write to a GPU: there a kernel does it,
	 * or a copy by the driver, as in examples/copy.c. */
	if (!strcmp(info.backend, "host"))
		memset(memory, 0x5a, BYTES);
	printf("64 MiB at %p on %s\n", memory, info.name);

	gpumem_free(session, memory, GPUMEM_STREAM_DONE);
	gpumem_disconnect(session);
	return 0;
}
