/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * The table of verbs, and what they have in common: one connection, one question. The texts here
 * are those of --help; gpumemctl(1) says the same at more length.
 */

#include <stdio.h>
#include <string.h>

#include "ctl/verb/verb.h"

const struct gm_verb gm_verbs[] = {
	{.name = "status",
		.arguments = "",
		.summary = "the daemon, its devices, anything unusual",
		.help = "TOTAL is the device's memory, CAPACITY what the broker may hand out at most,\n"
			"LEASED what clients hold, POOLED free chunks kept for reuse, FOREIGN what others\n"
			"use, AVAIL what could be leased now. PRESSURE is the share of the capacity that\n"
			"is not available.\n",
		.run = gm_verb_status},
	{.name = "devices",
		.arguments = "",
		.summary = "each device and the arithmetic of its memory",
		.help = "Shows where each device's figures come from: what is there, who has it, what may\n"
			"be used. Below stand the processes that use a device besides the broker's\n"
			"memory; what a client uses by itself (its CUDA context) counts as foreign, too.\n",
		.run = gm_verb_devices},
	{.name = "pools",
		.arguments = "",
		.summary = "free chunks kept for reuse",
		.help = "What is free and kept, by chunk size and trust domain.\n"
			"HITS are chunks that came from the pool, MISSES those that had to be made.\n"
			"A used chunk goes to its own trust domain again, or back to the device; \"fresh\"\n"
			"ones were never leased and can go to anybody.\n",
		.run = gm_verb_pools},
	{.name = "clients",
		.arguments = "",
		.summary = "who holds memory",
		.help = "HELD is what the daemon charges, IN USE and CACHED what the client says of it.\n"
			"Other users' clients are shown with their totals only, unless you administer the\n"
			"daemon. A quarantined client is off the socket while its process lives: its\n"
			"memory stays charged until it comes back or ends.\n",
		.run = gm_verb_clients},
	{.name = "buffers",
		.arguments = "[--older-than TIME]",
		.summary = "tracked buffers, oldest first",
		.help = "  --older-than TIME  only buffers of at least this age: 60s, 5min, 2h\n\n"
			"What has been around for longest is what may be leaked. Which buffers a client\n"
			"tracks is set by 'track' in gpumemd.conf(5).\n",
		.takes = GM_OPTION_OLDER_THAN,
		.run = gm_verb_buffers},
	{.name = "trim",
		.arguments = "[--device N]",
		.summary = "give pooled memory back to the devices",
		.help = "  --device N  only this device, by number, UUID or PCI address; else all\n\n"
			"Also asks clients to return what they cache. Takes nothing that is in use. For\n"
			"administrators: root, the daemon's user, and the admin group.\n",
		.takes = GM_OPTION_DEVICE,
		.run = gm_verb_trim},
	{.name = "limit",
		.arguments = "show | set | reset",
		.summary = "what owners may hold: show, change",
		.help = "  show                show all limits, and who is over one\n"
			"  set OWNER VALUE...  change some of max=SIZE (or none), guarantee=SIZE,\n"
			"                      priority=N, until it is reset\n"
			"  reset [OWNER]       what was set ends, what is configured holds again\n"
			"  --device N          only on this device; else on each of them\n\n"
			"OWNER is uid:USER, gid:GROUP, unit:NAME, container:NAME, client:NAME (what it\n"
			"calls itself) or session:N (one client). A max below what is held takes nothing\n"
			"away. Setting is for administrators.\n",
		.takes = GM_OPTION_DEVICE,
		.max_args = 5,
		.run = gm_verb_limit},
	{.name = "pressure",
		.arguments = "[--at-least LEVEL]",
		.summary = "how short memory is",
		.help = "  --at-least LEVEL  exit status 0 if a device is at this level (low, medium,\n"
			"                    high, critical) or above it, else 1\n"
			"  --device N        only this device\n",
		.takes = GM_OPTION_AT_LEAST | GM_OPTION_DEVICE,
		.run = gm_verb_pressure},
	{.name = "queue",
		.arguments = "",
		.summary = "requests that wait for memory",
		.help = "In the order in which they are looked at: by priority, then as they came. LEFT\n"
			"is the time until it ends by itself, OVERTAKEN how many behind it were granted.\n"
			"It waits for the device (not enough is available), a limit, a guarantee (kept\n"
			"for others), pressure (critical, and its priority is low) or its turn.\n",
		.run = gm_verb_queue},
	{.name = "cleanup",
		.arguments = "[--need SIZE]",
		.summary = "get unused memory back",
		.help = "  --need SIZE  so much is to be free on the device; else all there is to be had\n"
			"  --dry-run    show the plan, do nothing\n"
			"  --device N   only this device; else each of them\n\n"
			"Pooled chunks go first, then clients are asked for what they cache, those of low\n"
			"priority first. Takes nothing that is in use. For administrators.\n",
		.takes = GM_OPTION_NEED | GM_OPTION_DRY_RUN | GM_OPTION_DEVICE,
		.run = gm_verb_cleanup},
	{.name = "watch",
		.arguments = "[--device N]",
		.summary = "what happens, a line per event",
		.help = "  --device N  only this device\n\n"
			"Pressure, limits that are met or changed, requests that wait, reclaims. Ends\n"
			"with the daemon. With --json each line is an object.\n",
		.takes = GM_OPTION_DEVICE,
		.run = gm_verb_watch},
	{.name = "config",
		.arguments = "check [FILE] | show",
		.summary = "check a configuration, or show the one in force",
		.help = "  check [FILE]  read FILE, else the default one, as gpumemd would\n"
			"  show          what the running daemon goes by, and where each value comes from\n",
		.max_args = 2,
		.run = gm_verb_config},
	{.name = "doctor",
		.arguments = "[--measure]",
		.summary = "what this host can do, and what is amiss",
		.help = "  --measure  make a CUDA context on each device for a moment: what does it cost?\n\n"
			"Works whether the daemon runs or not. A remedy stands behind an arrow. The state\n"
			"is ok, note, warn (it serves, but not as well as it could) or fail (it cannot\n"
			"serve what is configured: the exit status is 1).\n",
		.takes = GM_OPTION_MEASURE,
		.run = gm_verb_doctor},
	{.name = "version",
		.arguments = "",
		.summary = "the versions of gpumemctl and of the daemon",
		.help = "",
		.run = gm_verb_version},
	{.name = "help",
		.arguments = "[VERB]",
		.summary = "this, or more about a verb",
		.help = "",
		.max_args = 1,
		.run = gm_verb_help},
	{0},
};

const struct gm_verb *gm_verb_find(const char *name)
{
	for (const struct gm_verb *verb = gm_verbs; verb->name; verb++)
		if (!strcmp(verb->name, name))
			return verb;
	return NULL;
}

gpumem_status gm_verb_ask(struct gm_ctl *ctl, Gm__Wire__Packet *request,
	Gm__Wire__Packet__BodyCase expected, gm_ctl_conn_answer_fn fn, void *user)
{
	struct gm_ctl_conn *conn;

	gpumem_status status = gm_ctl_conn_open(
		ctl->options->socket, ctl->options->timeout_ms, &ctl->trouble, &conn);
	if (status != GPUMEM_OK)
		return status;
	status = gm_ctl_conn_ask(conn, request, expected, fn, user, &ctl->trouble);
	gm_ctl_conn_free(conn);
	return status;
}

struct wanted {
	const struct gm_device_name *name;
	uint32_t number;
	bool found;
};

static void verbs_look_for(void *user, const Gm__Wire__Packet *packet)
{
	struct wanted *wanted = user;

	for (size_t i = 0; i < packet->devices->n_devices; i++) {
		const Gm__Wire__Device *device = packet->devices->devices[i];
		if (!gm_device_name_means(wanted->name, device->number,
			    device->uuid.len == GM_UUID_BYTES ? device->uuid.data : NULL,
			    device->pci))
			continue;
		wanted->number = device->number;
		wanted->found = true;
	}
}

gpumem_status gm_verb_resolve_device(struct gm_ctl *ctl, struct gm_options *options)
{
	Gm__Wire__GetDevices body = GM__WIRE__GET_DEVICES__INIT;
	Gm__Wire__Packet request = GM__WIRE__PACKET__INIT;
	struct wanted wanted = {.name = &options->device_name};

	if (!(options->given & GM_OPTION_DEVICE) || options->device_name.kind == GM_DEVICE_NUMBER)
		return GPUMEM_OK;
	request.body_case = GM__WIRE__PACKET__BODY_GET_DEVICES;
	request.get_devices = &body;
	gpumem_status status =
		gm_verb_ask(ctl, &request, GM__WIRE__PACKET__BODY_DEVICES, verbs_look_for, &wanted);
	if (status != GPUMEM_OK)
		return status;
	if (!wanted.found)
		return gm_trouble_set(&ctl->trouble, GPUMEM_E_NOT_FOUND,
			"the daemon serves no device %s; 'gpumemctl devices' shows them",
			options->device_text);
	options->device = wanted.number;
	return GPUMEM_OK;
}

static void verbs_print_options(void)
{
	fputs("  --json          for programs: one JSON object, sizes in bytes, times in ms\n"
	      "  --no-legend     no headings\n"
	      "  --socket PATH   where gpumemd listens (else $GPUMEM_SOCKET, your own daemon's\n"
	      "                  socket, or the system's)\n"
	      "  --timeout TIME  wait this long for each answer (10s)\n"
	      "  --debug         say on stderr what is sent and received\n"
	      "  --version       gpumemctl's own version\n"
	      "  -h, --help      help; with a verb, help on that\n",
		stdout);
}

struct verbs_numbered {
	uint32_t device;
	bool found;
};

static void verbs_look_up(void *user, const Gm__Wire__Packet *packet)
{
	struct verbs_numbered *numbered = user;

	for (size_t i = 0; i < packet->devices->n_devices; i++)
		numbered->found =
			numbered->found || packet->devices->devices[i]->number == numbered->device;
}

gpumem_status gm_verb_require_device(struct gm_ctl *ctl, struct gm_ctl_conn *conn)
{
	Gm__Wire__GetDevices body = GM__WIRE__GET_DEVICES__INIT;
	Gm__Wire__Packet request = GM__WIRE__PACKET__INIT;
	struct verbs_numbered numbered = {.device = ctl->options->device};

	if (!(ctl->options->given & GM_OPTION_DEVICE))
		return GPUMEM_OK;
	request.body_case = GM__WIRE__PACKET__BODY_GET_DEVICES;
	request.get_devices = &body;
	gpumem_status status = gm_ctl_conn_ask(conn, &request, GM__WIRE__PACKET__BODY_DEVICES,
		verbs_look_up, &numbered, &ctl->trouble);
	if (status == GPUMEM_OK && !numbered.found)
		status = gm_trouble_set(&ctl->trouble, GPUMEM_E_NOT_FOUND,
			"there is no device %u; 'gpumemctl devices' shows them", numbered.device);
	return status;
}

void gm_verb_print_help(const struct gm_verb *verb)
{
	if (verb) {
		printf("gpumemctl %s%s%s [OPTION...]\n\n%c%s.\n", verb->name,
			*verb->arguments ? " " : "", verb->arguments,
			verb->summary[0] -
				('a' <= verb->summary[0] && verb->summary[0] <= 'z' ? 32 : 0),
			verb->summary + 1);
		if (*verb->help)
			printf("\n%s", verb->help);
		fputs("\nOptions of all verbs:\n", stdout);
		verbs_print_options();
		return;
	}
	fputs("gpumemctl [OPTION...] [VERB]\n\nShows and steers gpumemd, the GPU memory broker. Without a verb: status.\n\nVerbs:\n",
		stdout);
	for (verb = gm_verbs; verb->name; verb++) {
		int n = printf("  %s %s", verb->name, verb->arguments);
		printf("%*s%s\n", n < 31 ? 31 - n : 1, "", verb->summary);
	}
	fputs("\nOptions:\n", stdout);
	verbs_print_options();
	fputs("\nExit status: 0 ok, 1 failed, 2 wrong use, 3 daemon not reached, 4 denied,\n"
	      "5 over a limit, 6 not enough memory. See gpumemctl(1).\n",
		stdout);
}
