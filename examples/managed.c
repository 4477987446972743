/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Managed memory: the CPU fills it, the device gets it, and the daemon charges it like any other
 * memory. Runs on the host backend, too, where nothing has to move.
 *
 *   managed          16 MiB
 *   managed BYTES
 */
#include <gpumem/gpumem_managed.h>
#include <stdio.h>
#include <stdlib.h>

static gpumem_status show(gpumem_session *session, const char *when)
{
	uint64_t declared;
	gpumem_status status = gpumem_declared(session, 0, &declared);

	if (!status)
		printf("%s: %.1f MiB are declared\n", when, (double)declared / (1 << 20));
	return status;
}

int main(int argc, char **argv)
{
	GPUMEM_AUTO_SESSION gpumem_session *session = NULL;
	gpumem_managed *managed = NULL;
	size_t bytes = argc > 1 ? strtoull(argv[1], NULL, 10) : 16u << 20;

	/* The daemon is asked first: if a limit is in the way, no memory is made. */
	if (gpumem_connect(NULL, &session) ||
		gpumem_managed_create(session, 0, bytes, NULL, &managed) ||
		show(session, "with managed memory"))
		goto failed;

	unsigned char *p = gpumem_managed_ptr(managed);
	for (size_t i = 0; i < bytes; i++)
		p[i] = (unsigned char)i;

	/* A kernel would now read it on the device without a fault for each page. Some platforms
	 * cannot be told. */
	gpumem_status status = gpumem_managed_advise(
		managed, 0, bytes, GPUMEM_MANAGED_READ_MOSTLY, GPUMEM_MANAGED_ON_DEVICE);
	if (!status)
		status = gpumem_managed_prefetch(managed, 0, bytes, GPUMEM_MANAGED_ON_DEVICE, NULL);
	if (status && status != GPUMEM_E_UNSUPPORTED)
		goto failed;

	unsigned long long sum = 0;
	for (size_t i = 0; i < bytes; i++)
		sum += p[i];
	printf("the sum of its bytes is %llu\n", sum);
	gpumem_managed_destroy(managed);

	/* Memory that the program has the driver make in another way is declared by hand. */
	if (gpumem_declare(session, 0, 4u << 20, 0))
		goto failed;
	puts("4 MiB more may be made now");
	if (gpumem_undeclare(session, 0, 4u << 20))
		goto failed;
	return 0;

failed:
	fprintf(stderr, "managed: %s\n", gpumem_error_detail());
	return 1;
}
