/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_COMMON_STACK_H
#define GM_COMMON_STACK_H

#include <pthread.h>

/*
 * A thread of the library calls the driver, and functions of the program. It needs a stack for them also in a program
 * whose own threads get a small one by default (pthread_setattr_default_np(3), ulimit -s).
 */
#define GM_STACK_LEAST ((size_t)1 << 20)

/* As pthread_attr_init(), and the stack has at least that size. */
static inline int gm_stack_attr_init(pthread_attr_t *ret_attr)
{
	size_t bytes;
	int r = pthread_attr_init(ret_attr);

	if (r == 0 && pthread_attr_getstacksize(ret_attr, &bytes) == 0 && bytes < GM_STACK_LEAST)
		(void)pthread_attr_setstacksize(ret_attr, GM_STACK_LEAST);
	return r;
}

#endif
