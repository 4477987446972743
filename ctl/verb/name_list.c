/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

#include "ctl/verb/name_list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void name_list_take(void *user, const Gm__Wire__Packet *packet)
{
	struct gm_name_list *list = user;
	const Gm__Wire__NamesReply *reply = packet->names;

	if (!reply->n_names)
		return;
	struct gm_name_list_item *items =
		reallocarray(list->items, list->n + reply->n_names, sizeof(*items));
	if (!items) {
		list->no_memory = true;
		return;
	}
	list->items = items;
	for (size_t i = 0; i < reply->n_names; i++) {
		const Gm__Wire__Name *name = reply->names[i];
		struct gm_name_list_item *item = &items[list->n++];

		item->payer = name->payer;
		item->device = name->device;
		item->bytes = name->bytes;
		item->age_ms = name->age_ms;
		snprintf(item->name, sizeof(item->name), "%s", name->name);
	}
}

gpumem_status gm_name_list_ask(
	struct gm_name_list *list, struct gm_ctl *ctl, struct gm_ctl_conn *conn)
{
	gpumem_status status = gm_ctl_conn_get(
		conn, GM__WIRE__PACKET__BODY_GET_NAMES, name_list_take, list, &ctl->trouble);
	if (status == GPUMEM_OK && list->no_memory)
		return gm_trouble_set(&ctl->trouble, GPUMEM_E_HOST_MEMORY,
			"no memory for the names of published buffers");
	return status;
}

void gm_name_list_deinit(struct gm_name_list *list)
{
	free(list->items);
	*list = (struct gm_name_list){0};
}

char *gm_name_list_of(const struct gm_name_list *list, uint64_t payer)
{
	char *text = NULL;
	size_t n = 0;
	FILE *stream = NULL;

	for (size_t i = 0; i < list->n; i++) {
		if (!payer || list->items[i].payer != payer)
			continue;
		if (!stream && !(stream = open_memstream(&text, &n)))
			return NULL;
		fprintf(stream, "%s%s", ftell(stream) ? ", " : "", list->items[i].name);
	}
	if (stream && fclose(stream)) {
		free(text);
		return NULL;
	}
	return text;
}
