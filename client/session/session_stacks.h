/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_SESSION_SESSION_STACKS_H
#define GM_CLIENT_SESSION_SESSION_STACKS_H

#include <stddef.h>
#include <stdint.h>

#include "common/wire/page.h"

/*
 * Call stacks, for sessions that track where memory was allocated. They are written into the client's
 * page as offsets into programs and libraries, so that gpumemctl can find the names of the functions.
 * Equal stacks share one place. A place is free again when nothing refers to it any more.
 *
 * Safe to use from several threads. Every function accepts NULL for the stacks, and 0 for a stack.
 */
struct gm_session_stacks;

/* The page must keep its address. Returns NULL if there is no memory. */
struct gm_session_stacks *gm_session_stacks_new(struct gm_page_client *page);
void gm_session_stacks_free(struct gm_session_stacks *stacks);

/* Takes the calling thread's stack, without the functions of this library. Returns a reference to it,
 * or 0 if there is no room for another stack. */
uint32_t gm_session_stacks_take(struct gm_session_stacks *stacks);
void gm_session_stacks_ref(struct gm_session_stacks *stacks, uint32_t stack);
void gm_session_stacks_drop(struct gm_session_stacks *stacks, uint32_t stack);

/* Between these two, nothing is written into the page. */
void gm_session_stacks_hold(struct gm_session_stacks *stacks);
void gm_session_stacks_release(struct gm_session_stacks *stacks);

/*
 * Writes a stack as text: a line for each frame, "PATH+0xOFFSET" and, if the symbol is exported, its
 * name in brackets. Without a stack, or if nothing refers to it any more, the text is "".
 */
#define GM_STACK_TEXT (GM_PAGE_FRAMES * (GM_PAGE_MODULE_PATH + 128))
void gm_session_stacks_text(
	struct gm_session_stacks *stacks, uint32_t stack, char text[GM_STACK_TEXT]);

#endif
