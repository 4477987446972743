/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

#include "ctl/verb/verb.h"

#include <stdio.h>
#include <string.h>

#include "common/closest.h"

const struct gm_verb *gm_verb_find(const struct gm_verb *const *verbs, const char *name)
{
	for (; *verbs; verbs++)
		if (!strcmp((*verbs)->name, name))
			return *verbs;
	return NULL;
}

const char *gm_verb_closest(const struct gm_verb *const *verbs, const char *name)
{
	const char *names[32] = {0};

	for (size_t i = 0; verbs[i] && i < sizeof(names) / sizeof(*names) - 1; i++)
		names[i] = verbs[i]->name;
	return gm_closest(name, names);
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

struct verb_wanted {
	const struct gm_device_name *name;
	uint32_t number;
	bool found;
};

static void verb_match_device(void *user, const Gm__Wire__Packet *packet)
{
	struct verb_wanted *wanted = user;

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
	struct verb_wanted wanted = {.name = &options->device_name};

	if (!(options->given & GM_OPTION_DEVICE) || options->device_name.kind == GM_DEVICE_NUMBER)
		return GPUMEM_OK;
	request.body_case = GM__WIRE__PACKET__BODY_GET_DEVICES;
	request.get_devices = &body;
	gpumem_status status = gm_verb_ask(
		ctl, &request, GM__WIRE__PACKET__BODY_DEVICES, verb_match_device, &wanted);
	if (status != GPUMEM_OK)
		return status;
	if (!wanted.found)
		return gm_trouble_set(&ctl->trouble, GPUMEM_E_NOT_FOUND,
			"the daemon serves no device %s; 'gpumemctl devices' shows them",
			options->device_text);
	options->device = wanted.number;
	return GPUMEM_OK;
}

static void verb_print_options(void)
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

struct verb_numbered {
	uint32_t device;
	bool found;
};

static void verb_match_number(void *user, const Gm__Wire__Packet *packet)
{
	struct verb_numbered *numbered = user;

	for (size_t i = 0; i < packet->devices->n_devices; i++)
		numbered->found =
			numbered->found || packet->devices->devices[i]->number == numbered->device;
}

gpumem_status gm_verb_require_device(struct gm_ctl *ctl, struct gm_ctl_conn *conn)
{
	Gm__Wire__GetDevices body = GM__WIRE__GET_DEVICES__INIT;
	Gm__Wire__Packet request = GM__WIRE__PACKET__INIT;
	struct verb_numbered numbered = {.device = ctl->options->device};

	if (!(ctl->options->given & GM_OPTION_DEVICE))
		return GPUMEM_OK;
	request.body_case = GM__WIRE__PACKET__BODY_GET_DEVICES;
	request.get_devices = &body;
	gpumem_status status = gm_ctl_conn_ask(conn, &request, GM__WIRE__PACKET__BODY_DEVICES,
		verb_match_number, &numbered, &ctl->trouble);
	if (status == GPUMEM_OK && !numbered.found)
		status = gm_trouble_set(&ctl->trouble, GPUMEM_E_NOT_FOUND,
			"there is no device %u; 'gpumemctl devices' shows them", numbered.device);
	return status;
}

void gm_verb_print_help(const struct gm_verb *const *verbs, const struct gm_verb *verb)
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
		verb_print_options();
		return;
	}
	fputs("gpumemctl [OPTION...] [VERB]\n\nShows and steers gpumemd, the GPU memory broker. Without a verb: status.\n\nVerbs:\n",
		stdout);
	for (; *verbs; verbs++) {
		int n = printf("  %s %s", (*verbs)->name, (*verbs)->arguments);
		printf("%*s%s\n", n < 31 ? 31 - n : 1, "", (*verbs)->summary);
	}
	fputs("\nOptions:\n", stdout);
	verb_print_options();
	fputs("\nExit status: 0 ok, 1 failed, 2 wrong use, 3 daemon not reached, 4 denied,\n"
	      "5 over a limit, 6 not enough memory. See gpumemctl(1).\n",
		stdout);
}
