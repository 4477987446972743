/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * See metrics.h. The lists of figures (common/figures.h) name the metrics, and say in which unit they are. All samples of a
 * metric follow one another, as the format demands, so the answers are kept first.
 */
#include "ctl/show/metrics.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/arith.h"
#include "common/figures.h"
#include "common/text/text.h"
#include "ctl/io/device_table.h"
#include "ctl/io/user_name.h"

/* Number of clients with metrics of their own: those that hold most. The others are one. */
#define METRICS_CLIENTS 50

#define METRICS_MEMBER(name, ...) uint64_t name;

struct metrics_device {
	uint32_t number, level, pressure_ppm;
	bool measured, drained;
	double fraction;
	uint64_t min_free;
	char *name, *pci, *backend, uuid[GM_DEVICE_UUID_TEXT];
	GM_DEVICE_FIGURES(METRICS_MEMBER, GM_FIGURE_SKIP)
};

struct metrics_pool {
	uint32_t device;
	GM_POOL_FIGURES(METRICS_MEMBER, GM_FIGURE_SKIP)
};

/* A client on one device. */
struct metrics_use {
	uint32_t device;
	size_t client;
	GM_CLIENT_FIGURES(METRICS_MEMBER, GM_FIGURE_SKIP, METRICS_MEMBER)
};

struct metrics_client {
	uint64_t session, all; /* all: held on all devices */
	int64_t pid;
	uint32_t uid;
	uint64_t refused, waiting;
	bool shown; /* the metrics name it */
	bool left;  /* without a process */
	char *name; /* NULL: hidden */
};

/* The memory that one user holds of a device. */
struct metrics_user {
	uint32_t uid, device;
	uint64_t held, left;
};

#define METRICS_LIST(name, type) \
	struct { \
		type *items; \
		size_t n, room; \
	} name

struct metrics {
	FILE *out;
	bool no_memory, begun;
	char *version, *backend, *preset;
	uint64_t uptime_ms, clients, quarantined_clients, leases, requests, refusals;
	bool keeper; /* there is to be one */
	Gm__Wire__Keeper kept;
	METRICS_LIST(device, struct metrics_device);
	METRICS_LIST(pool, struct metrics_pool);
	METRICS_LIST(client, struct metrics_client);
	METRICS_LIST(use, struct metrics_use);
	METRICS_LIST(user, struct metrics_user);
};

/* Appends a zeroed item. Evaluates to it, or to NULL without memory. */
#define METRICS_ADD(metrics, list) \
	((typeof((metrics)->list.items))metrics_add((metrics), (void **)&(metrics)->list.items, \
		&(metrics)->list.n, &(metrics)->list.room, sizeof(*(metrics)->list.items)))

static void *metrics_add(
	struct metrics *metrics, void **items, size_t *n, size_t *room, size_t bytes)
{
	if (*n == *room) {
		size_t more = *room ? 2 * *room : 16;
		void *grown = reallocarray(*items, more, bytes);
		if (!grown) {
			metrics->no_memory = true;
			return NULL;
		}
		*items = grown;
		*room = more;
	}
	return memset((char *)*items + bytes * (*n)++, 0, bytes);
}

static char *metrics_copy(struct metrics *metrics, const char *text)
{
	char *copy = strdup(text);

	metrics->no_memory |= !copy;
	return copy;
}

static void metrics_deinit(struct metrics *metrics)
{
	for (size_t i = 0; i < metrics->device.n; i++) {
		free(metrics->device.items[i].name);
		free(metrics->device.items[i].pci);
		free(metrics->device.items[i].backend);
	}
	for (size_t i = 0; i < metrics->client.n; i++)
		free(metrics->client.items[i].name);
	free(metrics->device.items);
	free(metrics->pool.items);
	free(metrics->client.items);
	free(metrics->use.items);
	free(metrics->user.items);
	free(metrics->version);
	free(metrics->backend);
	free(metrics->preset);
}

/* ---- answers */

static void metrics_take_device(struct metrics *metrics, const Gm__Wire__Device *from)
{
	struct metrics_device *device = METRICS_ADD(metrics, device);

	if (!device)
		return;
#define METRICS_TAKE(figure, ...) .figure = from->figure,
	*device = (struct metrics_device){.number = from->number,
		.level = from->level,
		.pressure_ppm = from->pressure_ppm,
		.measured = from->measured,
		.drained = from->drainer,
		.fraction = from->fraction,
		.min_free = from->min_free,
		.name = metrics_copy(metrics, from->name),
		.pci = metrics_copy(metrics, from->pci),
		.backend = metrics_copy(metrics, from->backend),
		GM_DEVICE_FIGURES(METRICS_TAKE, GM_FIGURE_SKIP)};
	(void)gm_device_uuid(from, device->uuid);
}

static void metrics_take_status(void *user, const Gm__Wire__Packet *packet)
{
	struct metrics *metrics = user;
	const Gm__Wire__StatusReply *status = packet->status;

	for (size_t i = 0; i < status->n_devices; i++)
		metrics_take_device(metrics, status->devices[i]);
	if (metrics->begun)
		return;
	metrics->begun = true;
	metrics->version = metrics_copy(metrics, status->version);
	metrics->backend = metrics_copy(metrics, status->backend);
	metrics->preset = metrics_copy(metrics, status->preset);
	metrics->uptime_ms = status->uptime_ms;
	metrics->clients = status->clients;
	metrics->quarantined_clients = status->quarantined_clients;
	metrics->leases = status->leases;
	metrics->requests = status->requests;
	metrics->refusals = status->refusals;
	metrics->keeper = status->keeper;
	if (status->keeper) {
		metrics->kept = *status->keeper;
		metrics->kept.socket = NULL; /* belongs to the packet */
	}
}

static void metrics_take_pools(void *user, const Gm__Wire__Packet *packet)
{
	struct metrics *metrics = user;

	for (size_t i = 0; i < packet->pools->n_totals; i++) {
		const Gm__Wire__PoolTotals *from = packet->pools->totals[i];
		struct metrics_pool *pool = METRICS_ADD(metrics, pool);
		if (!pool)
			return;
		*pool = (struct metrics_pool){
			.device = from->device, GM_POOL_FIGURES(METRICS_TAKE, GM_FIGURE_SKIP)};
	}
}

/* Adds up what the user holds of the device. */
static void metrics_add_to_user(
	struct metrics *metrics, const Gm__Wire__Client *client, const Gm__Wire__ClientUse *use)
{
	struct metrics_user *user = NULL;

	for (size_t i = 0; i < metrics->user.n && !user; i++)
		if (metrics->user.items[i].uid == client->uid &&
			metrics->user.items[i].device == use->device)
			user = &metrics->user.items[i];
	if (!user && (user = METRICS_ADD(metrics, user))) {
		user->uid = client->uid;
		user->device = use->device;
	}
	if (!user)
		return;
	user->held += use->held;
	user->left += client->left ? use->held : 0;
}

static void metrics_take_client(struct metrics *metrics, const Gm__Wire__Client *from)
{
	struct metrics_client *client = METRICS_ADD(metrics, client);

	if (!client)
		return;
	*client = (struct metrics_client){
		.session = from->session,
		.pid = from->pid,
		.uid = from->uid,
		.refused = from->refused,
		.waiting = from->waiting,
		.left = from->left,
		.name = from->details ? metrics_copy(metrics, from->name) : NULL,
	};
	for (size_t i = 0; i < from->n_use; i++) {
		const Gm__Wire__ClientUse *of = from->use[i];
		struct metrics_use *use = METRICS_ADD(metrics, use);
		if (!use)
			return;
#define METRICS_TAKE_USE(figure, ...) .figure = of->figure,
		*use = (struct metrics_use){.device = of->device,
			.client = metrics->client.n - 1,
			GM_CLIENT_FIGURES(METRICS_TAKE_USE, GM_FIGURE_SKIP, METRICS_TAKE_USE)};
		client->all += of->held;
		metrics_add_to_user(metrics, from, of);
	}
}

static void metrics_take_clients(void *user, const Gm__Wire__Packet *packet)
{
	for (size_t i = 0; i < packet->clients->n_clients; i++)
		metrics_take_client(user, packet->clients->clients[i]);
}

/* Chooses the clients that hold most, of those whose names the caller may see. */
static void metrics_choose(struct metrics *metrics)
{
	for (size_t n = 0; n < METRICS_CLIENTS; n++) {
		struct metrics_client *most = NULL;

		for (size_t i = 0; i < metrics->client.n; i++) {
			struct metrics_client *client = &metrics->client.items[i];
			if (client->name && !client->left && !client->shown &&
				(!most || client->all > most->all))
				most = client;
		}
		if (!most)
			return;
		most->shown = true;
	}
}

/* ---- samples */

/* Writes the help and the type of a metric. */
static void metrics_begin(
	struct metrics *metrics, const char *name, const char *type, const char *help)
{
	fprintf(metrics->out, "# HELP %s ", name);
	for (const char *at = help; *at; at++)
		if (*at != '*')
			fputc(*at, metrics->out);
	fprintf(metrics->out, "\n# TYPE %s %s\n", name, type);
}

/* Writes a label. before: "{" or ",". The value may come from anybody: it cannot end the label. */
static void metrics_label(
	struct metrics *metrics, const char *before, const char *label, const char *value)
{
	char *clean = gm_text_clean(value ? value : "", false);

	metrics->no_memory |= !clean;
	fprintf(metrics->out, "%s%s=\"", before, label);
	for (const char *at = clean; at && *at; at++) {
		if (*at == '"' || *at == '\\')
			fputc('\\', metrics->out);
		fputc(*at, metrics->out);
	}
	fputc('"', metrics->out);
	free(clean);
}

static void metrics_label_number(
	struct metrics *metrics, const char *before, const char *label, uint64_t value)
{
	fprintf(metrics->out, "%s%s=\"%" PRIu64 "\"", before, label, value);
}

static void metrics_value(struct metrics *metrics, uint64_t value)
{
	fprintf(metrics->out, " %" PRIu64 "\n", value);
}

/* Writes a metric with one sample without labels. */
static void metrics_one(struct metrics *metrics, const char *name, const char *type,
	const char *help, uint64_t value)
{
	metrics_begin(metrics, name, type, help);
	fputs(name, metrics->out);
	metrics_value(metrics, value);
}

/* How a unit of figures.h is written. */
struct metrics_unit {
	const char *suffix, *type;
	double scale; /* of the value; 0: it stays a whole number */
};

static const struct metrics_unit metrics_size = {"_bytes", "gauge", 0};
static const struct metrics_unit metrics_count = {"", "gauge", 0};
static const struct metrics_unit metrics_total = {"_total", "counter", 0};
static const struct metrics_unit metrics_time = {"_seconds", "gauge", 1e-3};

#define METRICS_NAME_BYTES 80

/* Begins the metric of a figure, and writes its name to name[]. "pool_decay_ms" of a pool is gpumem_pool_decay_seconds. */
static void metrics_begin_figure(struct metrics *metrics, const char *of, const char *figure,
	const struct metrics_unit *unit, const char *note, char name[METRICS_NAME_BYTES])
{
	size_t prefix = strlen(of);

	if (!strncmp(figure, of, prefix) && figure[prefix] == '_')
		figure += prefix + 1;
	int n = (int)strlen(figure) - (unit == &metrics_time ? (int)strlen("_ms") : 0);

	snprintf(name, METRICS_NAME_BYTES, "gpumem_%s_%.*s%s", of, n, figure, unit->suffix);
	metrics_begin(metrics, name, unit->type, note);
}

static void metrics_figure_value(
	struct metrics *metrics, const struct metrics_unit *unit, uint64_t value)
{
	if (unit->scale > 0)
		fprintf(metrics->out, " %.9g\n", (double)value * unit->scale);
	else
		metrics_value(metrics, value);
}

/* ---- the daemon */

static void metrics_write_keeper(struct metrics *metrics)
{
	const Gm__Wire__Keeper *keeper = &metrics->kept;

	metrics_one(metrics, "gpumem_keeper_ready", "gauge",
		"1 if the keeper has everything that outlives the daemon", keeper->ready);
	metrics_one(metrics, "gpumem_keeper_descriptors", "gauge",
		"Descriptors that the keeper is to hold", keeper->items);
	metrics_one(metrics, "gpumem_keeper_descriptors_waiting", "gauge",
		"Part of them: the keeper does not have them yet", keeper->waiting);
	metrics_one(metrics, "gpumem_keeper_descriptors_max", "gauge",
		"Descriptors that the keeper can hold", keeper->capacity);
	metrics_one(metrics, "gpumem_keeper_descriptors_lost_total", "counter",
		"Descriptors that the keeper could not take", keeper->lost);
	metrics_one(metrics, "gpumem_keeper_restarts_total", "counter",
		"How often the keeper was lost since the daemon began", keeper->restarts);
	metrics_one(metrics, "gpumem_keeper_damaged_records", "gauge",
		"Records that could not be read when the daemon began", keeper->damaged);
}

static void metrics_write_daemon(struct metrics *metrics)
{
	metrics_one(metrics, "gpumem_up", "gauge", "1 if the daemon answers", 1);
	metrics_begin(metrics, "gpumem_build_info", "gauge", "The daemon's version and settings");
	fputs("gpumem_build_info", metrics->out);
	metrics_label(metrics, "{", "version", metrics->version);
	metrics_label(metrics, ",", "backend", metrics->backend);
	metrics_label(metrics, ",", "preset", metrics->preset);
	fputs("} 1\n", metrics->out);
	metrics_begin(metrics, "gpumem_uptime_seconds", "gauge", "Time since the daemon began");
	fprintf(metrics->out, "gpumem_uptime_seconds %.3f\n", (double)metrics->uptime_ms / 1e3);
	metrics_one(metrics, "gpumem_clients", "gauge",
		"Clients that are connected or in quarantine", metrics->clients);
	metrics_one(metrics, "gpumem_clients_quarantined", "gauge", "Part of them: in quarantine",
		metrics->quarantined_clients);
	metrics_one(metrics, "gpumem_leases", "gauge", "Leases", metrics->leases);
	metrics_one(metrics, "gpumem_requests_total", "counter",
		"Requests for memory since the daemon began", metrics->requests);
	metrics_one(metrics, "gpumem_refusals_total", "counter",
		"Requests for memory that were refused", metrics->refusals);
	if (metrics->keeper)
		metrics_write_keeper(metrics);
}

/* ---- devices and pools */

/* Writes a PCI address as NVML and dcgm-exporter do: 00000000:3B:00.0. */
static void metrics_label_pci(struct metrics *metrics, const char *pci)
{
	unsigned domain, bus, device, function;
	char text[32];

	if (!pci || sscanf(pci, "%x:%x:%x.%x", &domain, &bus, &device, &function) != 4) {
		metrics_label(metrics, ",", "pci_bus_id", pci);
		return;
	}
	snprintf(text, sizeof(text), "%08X:%02X:%02X.%X", domain, bus, device, function);
	metrics_label(metrics, ",", "pci_bus_id", text);
}

static void metrics_sample_device(
	struct metrics *metrics, const char *name, const struct metrics_device *device)
{
	fputs(name, metrics->out);
	metrics_label_number(metrics, "{", "device", device->number);
	metrics_label(metrics, ",", "UUID", device->uuid);
	fputc('}', metrics->out);
}

static void metrics_write_device_info(struct metrics *metrics)
{
	metrics_begin(metrics, "gpumem_device_info", "gauge",
		"What a device is; UUID and pci_bus_id are as in dcgm-exporter");
	for (size_t i = 0; i < metrics->device.n; i++) {
		const struct metrics_device *device = &metrics->device.items[i];
		fputs("gpumem_device_info", metrics->out);
		metrics_label_number(metrics, "{", "device", device->number);
		metrics_label(metrics, ",", "UUID", device->uuid);
		metrics_label_pci(metrics, device->pci);
		metrics_label(metrics, ",", "model", device->name);
		metrics_label(metrics, ",", "backend", device->backend);
		fputs("} 1\n", metrics->out);
	}
}

/* Writes a metric of devices that is no figure of figures.h. format: of the value, a double. */
#define METRICS_DEVICE_OTHER(name, help, value) \
	metrics_begin(metrics, name, "gauge", help); \
	for (size_t i = 0; i < metrics->device.n; i++) { \
		const struct metrics_device *device = &metrics->device.items[i]; \
		metrics_sample_device(metrics, name, device); \
		fprintf(metrics->out, " %.15g\n", (double)(value)); \
	}

static void metrics_write_devices(struct metrics *metrics)
{
	char name[METRICS_NAME_BYTES];

	metrics_write_device_info(metrics);
#define METRICS_DEVICE(figure, unit, column, title, how, note) \
	metrics_begin_figure(metrics, "device", #figure, &metrics_##unit, note, name); \
	for (size_t i = 0; i < metrics->device.n; i++) { \
		if (!metrics->device.items[i].measured && !strcmp(#figure, "foreign")) \
			continue; /* not known */ \
		metrics_sample_device(metrics, name, &metrics->device.items[i]); \
		metrics_figure_value(metrics, &metrics_##unit, metrics->device.items[i].figure); \
	}
	GM_DEVICE_FIGURES(METRICS_DEVICE, GM_FIGURE_SKIP)
	METRICS_DEVICE_OTHER("gpumem_device_fraction",
		"Share of the device that the daemon may hand out", device->fraction)
	METRICS_DEVICE_OTHER(
		"gpumem_device_min_free_bytes", "Memory that is never handed out", device->min_free)
	METRICS_DEVICE_OTHER(
		"gpumem_device_measured", "1 if foreign memory can be measured", device->measured)
	METRICS_DEVICE_OTHER("gpumem_device_pressure_ratio",
		"Share of the capacity that is not available", device->pressure_ppm / 1e6)
	METRICS_DEVICE_OTHER("gpumem_device_pressure_level",
		"Level of pressure: 0 low, 1 medium, 2 high, 3 critical", device->level)
	METRICS_DEVICE_OTHER("gpumem_device_drained",
		"1 while an administrator keeps new memory from everybody", device->drained)
}

static void metrics_write_pools(struct metrics *metrics)
{
	char name[METRICS_NAME_BYTES];

#define METRICS_POOL(figure, unit, column, title, note) \
	metrics_begin_figure(metrics, "pool", #figure, &metrics_##unit, note, name); \
	for (size_t i = 0; i < metrics->pool.n; i++) { \
		const struct metrics_pool *pool = &metrics->pool.items[i]; \
		if (&metrics_##unit == &metrics_time && !pool->figure) \
			continue; /* for ever */ \
		fputs(name, metrics->out); \
		metrics_label_number(metrics, "{", "device", pool->device); \
		fputc('}', metrics->out); \
		metrics_figure_value(metrics, &metrics_##unit, pool->figure); \
	}
	GM_POOL_FIGURES(METRICS_POOL, GM_FIGURE_SKIP)
}

/* ---- users and clients */

static void metrics_sample_user(
	struct metrics *metrics, const char *name, const struct metrics_user *user)
{
	char text[GM_USER_NAME_TEXT];

	fputs(name, metrics->out);
	metrics_label_number(metrics, "{", "device", user->device);
	metrics_label(metrics, ",", "user", gm_user_name(user->uid, text));
	metrics_label_number(metrics, ",", "uid", user->uid);
	fputc('}', metrics->out);
}

static void metrics_write_users(struct metrics *metrics)
{
	metrics_begin(
		metrics, "gpumem_user_held_bytes", "gauge", "Memory that a user is charged for");
	for (size_t i = 0; i < metrics->user.n; i++) {
		metrics_sample_user(metrics, "gpumem_user_held_bytes", &metrics->user.items[i]);
		metrics_value(metrics, metrics->user.items[i].held);
	}
	metrics_begin(metrics, "gpumem_user_left_bytes", "gauge",
		"Part of it: published, shared or still mapped memory whose client is gone");
	for (size_t i = 0; i < metrics->user.n; i++) {
		metrics_sample_user(metrics, "gpumem_user_left_bytes", &metrics->user.items[i]);
		metrics_value(metrics, metrics->user.items[i].left);
	}
}

/* Writes the labels of a client without the closing brace. */
static void metrics_label_client(
	struct metrics *metrics, const char *before, const struct metrics_client *client)
{
	char text[GM_USER_NAME_TEXT];

	metrics_label(metrics, before, "user", gm_user_name(client->uid, text));
	metrics_label(metrics, ",", "name", client->name);
	metrics_label_number(metrics, ",", "pid", client->pid > 0 ? (uint64_t)client->pid : 0);
	metrics_label_number(metrics, ",", "session", client->session);
}

/* Writes a figure of the clients that have metrics of their own and, if it may be added up, the sum of the others. */
static void metrics_write_client_figure(struct metrics *metrics, const char *figure, size_t offset,
	const struct metrics_unit *unit, const char *note)
{
	char name[METRICS_NAME_BYTES];
	const bool adds = unit == &metrics_size && strcmp(figure, "peak");

	metrics_begin_figure(metrics, "client", figure, unit, note, name);
	for (size_t i = 0; i < metrics->use.n; i++) {
		const struct metrics_use *use = &metrics->use.items[i];
		if (!metrics->client.items[use->client].shown)
			continue;
		fprintf(metrics->out, "%s{device=\"%u\"", name, use->device);
		metrics_label_client(metrics, ",", &metrics->client.items[use->client]);
		fputc('}', metrics->out);
		metrics_figure_value(
			metrics, unit, *(const uint64_t *)((const char *)use + offset));
	}

	for (size_t d = 0; adds && d < metrics->device.n; d++) {
		uint64_t sum = 0;
		for (size_t i = 0; i < metrics->use.n; i++) {
			const struct metrics_use *use = &metrics->use.items[i];
			if (!metrics->client.items[use->client].shown &&
				use->device == metrics->device.items[d].number)
				sum += *(const uint64_t *)((const char *)use + offset);
		}
		fprintf(metrics->out,
			"%s{device=\"%u\",user=\"\",name=\"other\",pid=\"\",session=\"\"}", name,
			metrics->device.items[d].number);
		metrics_figure_value(metrics, unit, sum);
	}
}

/* Writes a number of requests of each client that has metrics of its own. */
static void metrics_write_client_requests(struct metrics *metrics, const char *name,
	const char *type, const char *help, size_t offset)
{
	metrics_begin(metrics, name, type, help);
	for (size_t i = 0; i < metrics->client.n; i++) {
		const struct metrics_client *client = &metrics->client.items[i];
		if (!client->shown)
			continue;
		fputs(name, metrics->out);
		metrics_label_client(metrics, "{", client);
		fputc('}', metrics->out);
		metrics_value(metrics, *(const uint64_t *)((const char *)client + offset));
	}
}

static void metrics_write_clients(struct metrics *metrics)
{
#define METRICS_CLIENT_DAEMON(figure, unit, since, column, title, how, note) \
	metrics_write_client_figure( \
		metrics, #figure, offsetof(struct metrics_use, figure), &metrics_##unit, note);
	GM_CLIENT_FIGURES(METRICS_CLIENT_DAEMON, GM_FIGURE_SKIP, METRICS_CLIENT_DAEMON)
	metrics_write_client_requests(metrics, "gpumem_client_requests_waiting", "gauge",
		"Requests for memory that wait now", offsetof(struct metrics_client, waiting));
	metrics_write_client_requests(metrics, "gpumem_client_refusals_total", "counter",
		"Requests for memory that were refused", offsetof(struct metrics_client, refused));
}

/* ---- */

static gpumem_status metrics_ask(struct gm_ctl *ctl, struct metrics *metrics)
{
	struct gm_ctl_conn *conn;

	gpumem_status status = gm_verb_connect(ctl, &conn);
	if (status != GPUMEM_OK)
		return status;
	status = gm_ctl_conn_get(conn, GM__WIRE__PACKET__BODY_GET_STATUS, metrics_take_status,
		metrics, &ctl->trouble);
	if (status == GPUMEM_OK)
		status = gm_ctl_conn_get(conn, GM__WIRE__PACKET__BODY_GET_POOLS, metrics_take_pools,
			metrics, &ctl->trouble);
	if (status == GPUMEM_OK)
		status = gm_ctl_conn_get(conn, GM__WIRE__PACKET__BODY_GET_CLIENTS,
			metrics_take_clients, metrics, &ctl->trouble);
	gm_ctl_conn_free(conn);
	return status;
}

gpumem_status gm_metrics_write(struct gm_ctl *ctl, char **ret_text, size_t *ret_n)
{
	struct metrics metrics = {0};

	*ret_text = NULL;
	metrics.out = open_memstream(ret_text, ret_n);
	if (!metrics.out)
		return gm_trouble_set(&ctl->trouble, GPUMEM_E_HOST_MEMORY, "out of memory");

	gpumem_status status = metrics_ask(ctl, &metrics);
	if (status == GPUMEM_OK) {
		metrics_choose(&metrics);
		metrics_write_daemon(&metrics);
		metrics_write_devices(&metrics);
		metrics_write_pools(&metrics);
		metrics_write_users(&metrics);
		metrics_write_clients(&metrics);
	} else {
		metrics_one(&metrics, "gpumem_up", "gauge", "1 if the daemon answers", 0);
	}
	metrics.no_memory |= fclose(metrics.out) != 0;
	if (metrics.no_memory) {
		status = gm_trouble_set(&ctl->trouble, GPUMEM_E_HOST_MEMORY, "out of memory");
		free(*ret_text);
		*ret_text = NULL;
	}
	metrics_deinit(&metrics);
	return status;
}
