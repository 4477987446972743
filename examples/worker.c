/* SPDX-License-Identifier: Apache-2.0 */
/* A worker: takes device memory from gpumemd, uses it, gives it back. */
#include <gpumem/gpumem.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
	gpumem_session *session;
	void *memory;

	if (gpumem_connect(NULL, &session) ||
		gpumem_alloc(session, 0, 64 << 20, GPUMEM_STREAM_ANY, NULL, &memory)) {
		fprintf(stderr, "worker: %s\n", gpumem_error_detail());
		return 1;
	}
	gpumem_device_info_t info = {.size = sizeof(info)};
	gpumem_device_info(session, 0, &info);
	if (!strcmp(info.backend, "host")) /* on a GPU a kernel would do this */
		memset(memory, 0x5a, 64 << 20);
	printf("64 MiB at %p on %s\n", memory, info.name);
	gpumem_free(session, memory, GPUMEM_STREAM_DONE);
	gpumem_disconnect(session);
	return 0;
}
