/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * gpumemctl place: which device has room for so many bytes, and why. A script reads the number of the
 * device, or the exit status.
 */

#include <stdio.h>
#include <stdlib.h>

#include "common/text/device_name.h"
#include "common/text/units.h"
#include "common/text/message.h"
#include "ctl/show/placement_list.h"

/* Says for each device why it has no room. */
static void place_explain(
	const struct gm_placement_list *list, struct gm_writer *writer, uint64_t bytes)
{
	char text[512], before[GM_DEVICE_NAME_BEFORE], size[GM_UNITS_TEXT];

	if (!gm_placement_list_never(list, writer, bytes, text))
		snprintf(text, sizeof(text),
			list->n ? "no device has room for %s"
				: "no device has room for %s: the daemon serves none",
			gm_writer_bytes(writer, bytes, size));
	gm_message("gpumemctl", text);
	for (size_t i = 0; i < list->n; i++) {
		const struct gm_placement_item *item = &list->items[i];

		snprintf(text, sizeof(text), "  %s%s%s",
			gm_device_name_before(item->device, item->why, before), item->why,
			item->fit == GM__WIRE__FIT__FIT_WAIT
				? "; a request could wait, see --may-wait"
				: "");
		gm_message(NULL, text);
	}
}

static void place_say(
	struct gm_writer *writer, const struct gm_placement_item *best, uint64_t bytes)
{
	static const char *const formats[] = {
		"Device %u: %s at once, and up to %s.",
		"Device %u: %s once clients return cached memory; %s at once.",
		"Device %u: %s once clients free memory that they use; %s at once.",
	};
	char asked[GM_UNITS_TEXT], room[GM_UNITS_TEXT];

	gm_writer_line(writer, "", formats[best->fit], best->device,
		gm_writer_bytes(writer, bytes, asked), gm_writer_bytes(writer, best->room, room));
}

static gpumem_status place_run(struct gm_ctl *ctl)
{
	const struct gm_options *options = ctl->options;
	const bool quiet = options->given & GM_OPTION_QUIET;
	const uint32_t at_worst = options->given & GM_OPTION_MAY_WAIT ? GM__WIRE__FIT__FIT_WAIT
								      : GM__WIRE__FIT__FIT_RECLAIM;
	struct gm_placement_list list;
	char why[GM_UNITS_WHY];
	uint64_t bytes;

	if (options->n_args == 0)
		return gm_verb_wrong_use(
			ctl, "place needs a size, such as 20G; see 'gpumemctl place --help'");
	if (gm_parse_bare(options->args[0], why))
		return gm_verb_wrong_use(ctl, "'%s' %s", options->args[0], why);
	if (gm_parse_size(options->args[0], &bytes) < 0 || !bytes)
		return gm_verb_wrong_use(
			ctl, "'%s' is not a size; use 512M or 20G", options->args[0]);
	if (quiet && (options->json || options->csv))
		return gm_verb_wrong_use(ctl, "--quiet is for people; JSON and CSV have it all");

	gpumem_status status = gm_placement_list_ask(ctl, bytes, &list);
	if (status != GPUMEM_OK)
		return status;

	const struct gm_placement_item *best =
		list.n && list.items[0].fit <= at_worst ? &list.items[0] : NULL;
	gm_writer_size(ctl->writer, "bytes", bytes);
	gm_writer_count(ctl->writer, "device", best ? best->device : UINT64_MAX);
	gm_writer_text(ctl->writer, "fit",
		gm_placement_list_fit(list.n ? list.items[0].fit : GM__WIRE__FIT__FIT_NONE));
	gm_writer_data(ctl->writer, "placements", gm_placement_list_table(&list));

	if (best && quiet)
		gm_writer_line(ctl->writer, "", "%u", best->device);
	else if (best)
		place_say(ctl->writer, best, bytes);
	else if (!quiet && !options->json && !options->csv)
		place_explain(&list, ctl->writer, bytes);
	/* "None" is an answer, too, which the exit status tells. */
	if (!best)
		ctl->exit_status = EXIT_FAILURE;
	return GPUMEM_OK;
}

const struct gm_verb gm_verb_place = {
	.name = "place",
	.arguments = "SIZE",
	.summary = "which device has room for so much memory",
	.help = "  --may-wait  also accept a device where a request would have to wait until\n"
		"              others free memory that they use\n"
		"  --quiet     write only the number of the device\n\n"
		"Chooses a device where a request of yours would be granted at once, or else one\n"
		"where clients could return memory that they have cached. Among equals, it is\n"
		"the one with the most room. Your limits count, and so does what is guaranteed\n"
		"to others. If no device has room, the exit status is 1, and stderr has the\n"
		"reason for each. If no device is large enough, it names the largest one.\n"
		"This is advice: nothing is reserved.\n",
	.takes = GM_OPTION_MAY_WAIT | GM_OPTION_QUIET,
	.max_args = 1,
	.run = place_run,
};
