/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/broker/preload_pressure.h"

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <unistd.h>

#include "preload/preload.h"

#define PRESSURE_DEVICES 64

/* Which devices are under pressure. Only the thread that reports events uses it. */
static bool pressure_high[PRESSURE_DEVICES];
static bool pressure_told;

static bool pressure_any(void)
{
	for (size_t i = 0; i < PRESSURE_DEVICES; i++)
		if (pressure_high[i])
			return true;
	return false;
}

static bool pressure_handled(int number)
{
	struct sigaction action;

	return sigaction(number, NULL, &action) == 0 &&
	       (action.sa_flags & SA_SIGINFO ||
		       (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN));
}

void gm_pressure_event(void *user, const gpumem_event *event)
{
	int number = gm_preload_settings()->signal;

	if (event->kind != GPUMEM_EVENT_PRESSURE || event->device >= PRESSURE_DEVICES)
		return;
	pressure_high[event->device] = event->level >= GPUMEM_LEVEL_HIGH;
	if (!pressure_any())
		pressure_told = false;
	else if (!pressure_told && pressure_handled(number))
		pressure_told = kill(getpid(), number) == 0;
}
