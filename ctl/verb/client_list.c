/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

#include "ctl/verb/client_list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/arith.h"
#include "common/text/text.h"
#include "common/text/units.h"
#include "ctl/io/user_name.h"
#include "ctl/verb/name_list.h"

/* How many clients a text names, and maximum length of their names in it. */
#define CLIENT_LIST_NAMED      4
#define CLIENT_LIST_NAMED_TEXT 361

static void client_list_take(void *user, const Gm__Wire__Packet *packet)
{
	struct gm_client_list *list = user;

	for (size_t i = 0; i < packet->clients->n_clients; i++) {
		const Gm__Wire__Client *client = packet->clients->clients[i];
		uint64_t held = 0;

		for (size_t j = 0; j < client->n_use; j++)
			if (list->all_devices || client->use[j]->device == list->device)
				held += client->use[j]->held;
		if (!held)
			continue;
		list->n_left += client->left != 0;
		if (client->left && list->connected)
			continue;

		struct gm_client_list_item *grown =
			reallocarray(list->items, list->n + 1, sizeof(*grown));
		char *name = strdup(client->name);
		if (grown)
			list->items = grown;
		if (!grown || !name) {
			free(name);
			list->no_memory = true;
			return;
		}
		list->held += held;
		list->items[list->n++] = (struct gm_client_list_item){
			.session = client->session,
			.held = held,
			.pid = client->pid,
			.uid = client->uid,
			.left = client->left,
			.quarantined = client->quarantined,
			.name = name,
		};
	}
}

static int client_list_compare(const void *a, const void *b)
{
	const struct gm_client_list_item *x = a, *y = b;

	return x->held < y->held ? 1 : x->held > y->held ? -1 : 0;
}

/* Asks for the names of what clients left behind. */
static gpumem_status client_list_ask_names(
	struct gm_client_list *list, struct gm_ctl *ctl, struct gm_ctl_conn *conn)
{
	struct gm_name_list names = {0};

	gpumem_status status = gm_name_list_ask(&names, ctl, conn);
	for (size_t i = 0; status == GPUMEM_OK && i < list->n; i++) {
		struct gm_client_list_item *item = &list->items[i];
		char *name = item->left ? gm_name_list_of(&names, item->session) : NULL;

		if (!name)
			continue;
		free(item->name);
		item->name = name;
	}
	gm_name_list_deinit(&names);
	return status;
}

gpumem_status gm_client_list_ask(
	struct gm_client_list *list, struct gm_ctl *ctl, struct gm_ctl_conn *conn)
{
	gpumem_status status = gm_ctl_conn_get(
		conn, GM__WIRE__PACKET__BODY_GET_CLIENTS, client_list_take, list, &ctl->trouble);
	if (status == GPUMEM_OK && list->n_left && !list->connected)
		status = client_list_ask_names(list, ctl, conn);
	if (status == GPUMEM_OK && list->no_memory)
		status = gm_trouble_set(&ctl->trouble, GPUMEM_E_HOST_MEMORY, "out of memory");
	if (status == GPUMEM_OK && list->n)
		qsort(list->items, list->n, sizeof(*list->items), client_list_compare);
	return status;
}

void gm_client_list_deinit(struct gm_client_list *list)
{
	for (size_t i = 0; i < list->n; i++)
		free(list->items[i].name);
	free(list->items);
	*list = (struct gm_client_list){0};
}

const char *gm_client_list_text(const struct gm_client_list *list, char text[GM_CLIENT_LIST_TEXT])
{
	char user[GM_USER_NAME_TEXT], size[GM_UNITS_TEXT], who[192];
	size_t used = 0;

	*text = '\0';
	for (size_t i = 0;
		i < gm_u64_min(list->n, (size_t)CLIENT_LIST_NAMED) && used < CLIENT_LIST_NAMED_TEXT;
		i++) {
		const struct gm_client_list_item *item = &list->items[i];
		bool named = *item->name;

		gm_user_name(item->uid, user);
		if (item->left)
			snprintf(who, sizeof(who), "%.80s%sleft behind by user %s%s", item->name,
				named ? " (" : "", user, named ? ")" : "");
		else
			snprintf(who, sizeof(who), "%s%spid %lld, user %s%s", item->name,
				named ? " (" : "", (long long)item->pid, user, named ? ")" : "");
		used += (size_t)snprintf(text + used, CLIENT_LIST_NAMED_TEXT - used, "%s%s %s",
			used ? ", " : "", gm_format_size(item->held, size), who);
	}

	gm_text_mend(text);
	used = strlen(text);
	if (list->n > CLIENT_LIST_NAMED)
		snprintf(text + used, GM_CLIENT_LIST_TEXT - used, ", and %zu more",
			list->n - CLIENT_LIST_NAMED);
	return text;
}
