/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_INTEGRATION_DEVICE_H
#define GM_TESTS_INTEGRATION_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Memory that the client library gave out, set and looked at by whoever can: the CPU on the host
 * backend, the driver on a GPU (device 0). Where the driver was never used in this process, it is
 * from then on: do not fork workers after that.
 */
void gm_device_set(void *ptr, size_t n, uint8_t byte);
/* Every byte of it is this one. */
bool gm_device_is(const void *ptr, size_t n, uint8_t byte);
/* Copies bytes of the program to that memory, and back. */
void gm_device_write(void *ptr, const void *from, size_t n);
void gm_device_read(void *to, const void *ptr, size_t n);

#endif
