/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_INTEGRATION_REQUESTS_FIXTURE_H
#define GM_TESTS_INTEGRATION_REQUESTS_FIXTURE_H

/* For tests of requests that nobody waits for in a call: they are begun and taken, for pointers and buffers. */

#include "tests/integration/client_fixture.h"

#define FOREVER GPUMEM_WAIT_FOREVER

static inline gpumem_request *begin_waiting(gpumem_session *s, size_t size, uint32_t wait_ms)
{
	gpumem_alloc_options options = GPUMEM_ALLOC_OPTIONS_INIT;
	gpumem_request *request = NULL;
	options.wait_ms = wait_ms;
	OK(gpumem_alloc_begin(s, 0, size, NULL, &options, &request));
	return request;
}

static inline gpumem_request *begin(size_t size)
{
	return begin_waiting(session, size, 0);
}

static inline gpumem_request *begin_buffer(size_t size, uint32_t wait_ms)
{
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	gpumem_request *request = NULL;
	options.wait_ms = wait_ms;
	options.tag = "begun";
	OK(gpumem_buffer_create_begin(session, 0, size, &options, &request));
	return request;
}

static inline void *take(gpumem_request *request)
{
	void *ptr = NULL;
	OK(gpumem_request_wait(request, FOREVER));
	OK(gpumem_alloc_take(request, &ptr));
	return ptr;
}

static inline gpumem_buffer *take_buffer(gpumem_request *request)
{
	gpumem_buffer *buffer = NULL;
	OK(gpumem_request_wait(request, FOREVER));
	OK(gpumem_buffer_take(request, &buffer));
	return buffer;
}

static inline void *hold(size_t size)
{
	void *ptr;
	OK(gpumem_alloc(session, 0, size, NULL, NULL, &ptr));
	return ptr;
}

static inline void let_go(void *ptr)
{
	OK(gpumem_free(session, ptr, GPUMEM_STREAM_DONE));
}

#endif
