/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/* Collects the processes that use devices by themselves, for the verbs that name them. */

#include "ctl/show/usage_list.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/arith.h"

static void usage_add(struct gm_usage_list *list, uint32_t device, const Gm__Wire__Process *process)
{
	if (list->n == list->room) {
		size_t room = list->room ? 2 * list->room : 64;
		void *more = reallocarray(list->items, room, sizeof(*list->items));
		list->no_memory |= !more;
		if (!more)
			return;
		list->items = more;
		list->room = room;
	}

	struct gm_usage_item *item = &list->items[list->n++];
	*item = (struct gm_usage_item){
		.device = device,
		.pid = process->pid,
		.kind = process->kind,
		.uid = process->uid,
		.uid_known = process->uid_known,
		.bytes = process->bytes,
		.foreign = gm_u64_minus(process->bytes, process->declared_seen),
		.bytes_known = process->bytes_known,
	};
	snprintf(item->command, sizeof(item->command), "%s", process->command);
}

static void usage_take(void *user, const Gm__Wire__Packet *packet)
{
	struct gm_usage_list *list = user;

	for (size_t i = 0; i < packet->processes->n_devices; i++) {
		const Gm__Wire__DeviceProcesses *device = packet->processes->devices[i];
		bool complete = device->known && device->unlisted == 0;
		uint64_t sum = 0;

		for (size_t j = 0; j < device->n_processes; j++) {
			const Gm__Wire__Process *process = device->processes[j];

			usage_add(list, device->device, process);
			sum += process->bytes;
			/* The daemon's figure includes ipc chunks; how much they take is not known. */
			complete = complete && process->bytes_known &&
				   process->kind != GM__WIRE__PROCESS_KIND__PROCESS_DAEMON;
		}

		list->unlisted += device->unlisted;
		if (device->device < GM_BOUND_DEVICES) {
			list->sums[device->device].bytes = sum;
			list->sums[device->device].complete = complete;
		}
	}
}

gpumem_status gm_usage_list_ask(
	struct gm_ctl_conn *conn, struct gm_usage_list *ret_list, struct gm_trouble *trouble)
{
	*ret_list = (struct gm_usage_list){0};
	return gm_ctl_conn_get(
		conn, GM__WIRE__PACKET__BODY_GET_PROCESSES, usage_take, ret_list, trouble);
}

void gm_usage_list_deinit(struct gm_usage_list *list)
{
	free(list->items);
	*list = (struct gm_usage_list){0};
}

void gm_usage_list_note(const struct gm_usage_list *list, struct gm_writer *writer)
{
	bool one = list->unlisted == 1;

	gm_writer_notes(writer);
	if (list->unlisted)
		gm_writer_note(writer, "unlisted", GM_MARK_NONE,
			"%llu more process%s less memory and %s not shown",
			(unsigned long long)list->unlisted, one ? " uses" : "es use",
			one ? "is" : "are");
}

uint64_t gm_usage_list_rest(const struct gm_usage_list *list, const Gm__Wire__Device *device)
{
	uint64_t others = device->foreign + device->orphaned + device->declared_seen;

	if (device->number >= GM_BOUND_DEVICES || device->pinned || !device->measured ||
		!list->sums[device->number].complete || others <= list->sums[device->number].bytes)
		return 0;
	return others - list->sums[device->number].bytes;
}

const struct gm_usage_item *gm_usage_list_largest(const struct gm_usage_list *list, uint32_t device)
{
	const struct gm_usage_item *largest = NULL;

	for (size_t i = 0; i < list->n; i++) {
		const struct gm_usage_item *item = &list->items[i];

		/* The daemon's figure includes ipc chunks. */
		if (item->device == device && item->bytes_known && item->foreign > 0 &&
			item->kind != GM__WIRE__PROCESS_KIND__PROCESS_DAEMON &&
			(!largest || item->foreign > largest->foreign))
			largest = item;
	}
	return largest;
}
