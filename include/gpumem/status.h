/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUMEM_STATUS_H
#define GPUMEM_STATUS_H

/*
 * Every outcome a call can have. This table is the only place where they are listed: the enum, the
 * texts, the values on the wire and gpumemctl's exit status all come from it. Values are part of
 * the ABI and of the protocol: rows are added at the end and never renumbered.
 *
 *   X(name, value, exit status of gpumemctl, text)
 */
#define GPUMEM_STATUS_MAP(X) \
	X(GPUMEM_OK, 0, 0, "ok") \
	X(GPUMEM_E_INVALID, 1, 1, "invalid argument") \
	X(GPUMEM_E_DISCONNECTED, 2, 3, "the daemon cannot be reached") \
	X(GPUMEM_E_DENIED, 3, 4, "permission denied") \
	X(GPUMEM_E_LIMIT, 4, 5, "over a limit") \
	X(GPUMEM_E_NO_MEMORY, 5, 6, "not enough device memory") \
	X(GPUMEM_E_NOT_FOUND, 6, 1, "no such object") \
	X(GPUMEM_E_PROTOCOL, 7, 1, "protocol violation") \
	X(GPUMEM_E_VERSION, 8, 1, "protocol version not supported") \
	X(GPUMEM_E_UNSUPPORTED, 9, 1, "not supported here") \
	X(GPUMEM_E_TIMEOUT, 10, 3, "timed out") \
	X(GPUMEM_E_BUSY, 11, 1, "in use") \
	X(GPUMEM_E_SYSTEM, 12, 1, "system error") \
	X(GPUMEM_E_HOST_MEMORY, 13, 1, "out of host memory") \
	X(GPUMEM_E_FORKED, 14, 1, "the session belongs to the parent process") \
	X(GPUMEM_E_DEADLOCK, 15, 6, "everybody who holds memory waits for more") \
	X(GPUMEM_E_CANCELLED, 16, 1, "cancelled")

typedef enum gpumem_status {
#define GPUMEM_STATUS_ENUM(name, value, exit_status, text) name = (value),
	GPUMEM_STATUS_MAP(GPUMEM_STATUS_ENUM)
#undef GPUMEM_STATUS_ENUM
} gpumem_status;

#endif
