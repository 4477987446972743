/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/* Where memory would find room, as the daemon says: for the verbs that show it. */

#include "ctl/show/placement_list.h"

#include <stdio.h>

#include "common/text/device_name.h"

static void placement_take(void *user, const Gm__Wire__Packet *packet)
{
	struct gm_placement_list *list = user;

	for (size_t i = 0; i < packet->place_reply->n_placements; i++) {
		const Gm__Wire__Placement *from = packet->place_reply->placements[i];
		struct gm_placement_item *to = &list->items[list->n];

		if (list->n == GM_BOUND_DEVICES)
			break;
		to->device = from->device;
		to->fit = (uint32_t)from->fit;
		if (to->fit > GM__WIRE__FIT__FIT_NONE)
			to->fit = GM__WIRE__FIT__FIT_NONE;
		to->room = from->room;
		to->most = from->most;
		snprintf(to->why, sizeof(to->why), "%s", from->detail);
		list->n++;
	}
}

gpumem_status gm_placement_list_ask(
	struct gm_ctl *ctl, uint64_t bytes, struct gm_placement_list *ret_list)
{
	Gm__Wire__Place body = GM__WIRE__PLACE__INIT;
	Gm__Wire__Packet request = GM_WIRE_PACKET(PLACE, place, &body);

	ret_list->n = 0;
	body.bytes = bytes;
	return gm_verb_ask(
		ctl, &request, GM__WIRE__PACKET__BODY_PLACE_REPLY, placement_take, ret_list);
}

const char *gm_placement_list_fit(uint32_t fit)
{
	static const char *const words[] = {"now", "reclaim", "wait", "none"};
	return words[fit <= GM__WIRE__FIT__FIT_NONE ? fit : GM__WIRE__FIT__FIT_NONE];
}

struct gm_table *gm_placement_list_table(const struct gm_placement_list *list)
{
	static const struct gm_column columns[] = {
		{"device", "DEV", GM_COLUMN_RIGHT},
		{"fit", "FIT", 0},
		{"room", "ROOM", GM_COLUMN_RIGHT},
		{"why", NULL, 0}, /* too long for a column: gm_placement_list_explain() */
		{"most", "MOST", GM_COLUMN_RIGHT},
	};
	static const enum gm_mark marks[] = {GM_MARK_GOOD, GM_MARK_GOOD, GM_MARK_WARN, GM_MARK_BAD};
	struct gm_table *table = GM_TABLE_NEW(columns);

	for (size_t i = 0; i < list->n; i++) {
		const struct gm_placement_item *item = &list->items[i];

		gm_table_row(table);
		gm_table_count(table, item->device);
		gm_table_text(table, gm_placement_list_fit(item->fit));
		gm_table_mark(table, marks[item->fit]);
		gm_table_size(table, item->room);
		gm_table_text(table, item->why);
		gm_table_size(table, item->most);
		gm_table_known(table, item->most || item->fit == GM__WIRE__FIT__FIT_NONE);
	}
	return table;
}

const char *gm_placement_list_never(const struct gm_placement_list *list, struct gm_writer *writer,
	uint64_t bytes, char text[GM_PLACEMENT_NEVER])
{
	const struct gm_placement_item *largest = NULL;
	char asked[GM_UNITS_TEXT], most[GM_UNITS_TEXT];

	for (size_t i = 0; i < list->n; i++)
		if (list->items[i].fit != GM__WIRE__FIT__FIT_NONE || list->items[i].most >= bytes)
			return NULL;
		else if (!largest || list->items[i].most > largest->most)
			largest = &list->items[i];
	if (!largest || !largest->most)
		return NULL;
	snprintf(text, GM_PLACEMENT_NEVER,
		"no device can ever give you %s: the most is %s, on device %u",
		gm_writer_bytes(writer, bytes, asked), gm_writer_bytes(writer, largest->most, most),
		largest->device);
	return text;
}

void gm_placement_list_explain(const struct gm_placement_list *list, struct gm_writer *writer)
{
	char before[GM_DEVICE_NAME_BEFORE];

	for (size_t i = 0; i < list->n; i++) {
		const struct gm_placement_item *item = &list->items[i];

		if (*item->why)
			gm_writer_line(writer, "", "  %s%s",
				gm_device_name_before(item->device, item->why, before), item->why);
	}
}
