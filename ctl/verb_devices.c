/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

/*
 * gpumemctl devices: one block per device, in the order of the arithmetic: what is there, what of
 * it may be used, what is used, what is left.
 */

#include "common/units.h"
#include "ctl/device.h"
#include "ctl/verb.h"

struct answer {
	struct gm_writer *writer;
	struct gm_table *devices;
	size_t n;
};

static void tell(struct answer *answer, const Gm__Wire__Device *device)
{
	struct gm_writer *writer = answer->writer;
	char a[GM_UNITS_TEXT], b[GM_UNITS_TEXT], uuid[GM_DEVICE_UUID_TEXT];

	if (answer->n++)
		gm_writer_line(writer, "", "%s", "");
	gm_writer_line(writer, "device", "%u, %s", device->number, device->name);
	if (*gm_device_uuid(&device->uuid, uuid))
		gm_writer_line(writer, "uuid", "%s", uuid);
	if (*device->pci)
		gm_writer_line(writer, "pci", "%s", device->pci);
	gm_writer_line(writer, "backend", "%s, transport%s", device->backend,
		device->transport_fd && device->transport_ipc ? "s fd and ipc"
		: device->transport_fd                        ? " fd"
		: device->transport_ipc                       ? " ipc"
							      : ": none");
	gm_writer_line(writer, "total", "%s", gm_format_size(device->total, a));
	gm_writer_line(writer, "capacity", "%s (fraction %.4g, min_free %s)",
		gm_format_size(device->capacity, a), device->fraction,
		gm_format_size(device->min_free, b));
	gm_writer_line(writer, "foreign", "%s, which leaves a ceiling of %s",
		gm_format_size(device->foreign, a), gm_format_size(device->ceiling, b));
	gm_writer_line(writer, "leased", "%s", gm_format_size(device->leased, a));
	gm_writer_line(writer, "quarantined", "%s", gm_format_size(device->quarantined, a));
	gm_writer_line(writer, "admitted", "%s", gm_format_size(device->admitted, a));
	gm_writer_line(writer, "charged", "%s, at most %s so far",
		gm_format_size(device->leased + device->quarantined + device->admitted, a),
		gm_format_size(device->peak_charged, b));
	gm_writer_line(writer, "pooled", "%s", gm_format_size(device->pooled, a));
	gm_writer_line(writer, "chunks", "%llu", (unsigned long long)device->chunks);
	gm_writer_line(writer, "available", "%s", gm_format_size(device->available, a));
	gm_writer_line(writer, "pressure", "%.2f, %s", device->pressure_ppm / 1e6,
		gm_device_level(device->level));
}

static void take(void *user, const Gm__Wire__Packet *packet)
{
	struct answer *answer = user;

	for (size_t i = 0; i < packet->devices->n_devices; i++) {
		gm_device_table_add(answer->devices, packet->devices->devices[i]);
		tell(answer, packet->devices->devices[i]);
	}
}

gpumem_status gm_verb_devices(struct gm_ctl *ctl)
{
	Gm__Wire__GetDevices body = GM__WIRE__GET_DEVICES__INIT;
	Gm__Wire__Packet request = GM__WIRE__PACKET__INIT;
	struct answer answer = {.writer = ctl->writer, .devices = gm_device_table_new()};

	request.body_case = GM__WIRE__PACKET__BODY_GET_DEVICES;
	request.get_devices = &body;
	gpumem_status status =
		gm_verb_ask(ctl, &request, GM__WIRE__PACKET__BODY_DEVICES, take, &answer);
	if (status != GPUMEM_OK) {
		gm_table_free(answer.devices);
		return status;
	}
	if (answer.n == 0)
		gm_writer_line(ctl->writer, "", "%s", "There is no device.");
	gm_writer_data(ctl->writer, "devices", answer.devices);
	return GPUMEM_OK;
}
