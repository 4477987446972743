/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CTL_SHOW_STACK_LIST_H
#define GM_CTL_SHOW_STACK_LIST_H

#include <stdint.h>

#include "ctl/verb/verb.h"

/* Call stacks of clients, with the names of their functions. */
struct gm_stack_list;

/* Returns NULL if out of memory. */
struct gm_stack_list *gm_stack_list_new(void);
void gm_stack_list_free(struct gm_stack_list *list);

/* Notes that the stacks of this session are wanted. uid is the client's. */
void gm_stack_list_want(struct gm_stack_list *list, uint64_t session, uint32_t uid);
/* Asks the daemon for the stacks of all those sessions, and resolves them. A session that has ended
 * meanwhile has none. */
gpumem_status gm_stack_list_ask(
	struct gm_stack_list *list, struct gm_ctl *ctl, struct gm_ctl_conn *conn);

/* Counts a buffer with this stack. Returns the number by which people know the stack, from 1 on, or 0 if
 * it is not there. */
uint32_t gm_stack_list_count(
	struct gm_stack_list *list, uint64_t session, uint32_t stack, uint64_t bytes);
/* The frames of a stack with that number, for programs. They belong to the list, which makes them once.
 * NULL if out of memory. */
const struct gm_table *gm_stack_list_frames(struct gm_stack_list *list, uint32_t number);
/* All frames of the stacks that were counted, with the numbers of the stacks, for CSV. NULL if out of
 * memory. */
struct gm_table *gm_stack_list_table(const struct gm_stack_list *list);
/* Shows the stacks that were counted to people. */
void gm_stack_list_write(const struct gm_stack_list *list, struct gm_writer *writer);

#endif
