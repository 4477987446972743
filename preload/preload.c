/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the environment says.
 */
#include "preload/preload.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#include "common/lock.h"
#include "gpumem/gpumem.h"

#ifdef GM_LOCK_RANKS
__attribute__((visibility("default"))) struct gm_lock_owned *gm_lock_shared(void)
{
	return gm_lock_owned();
}
#endif

static struct gm_preload_settings preload_read;
/* The program may change its environment. */
static char preload_name[64], preload_devices[4096];

static bool preload_yes(const char *name)
{
	const char *text = getenv(name);
	return text && text[0] == '1' && !text[1];
}

/* Reads decimal digits at the beginning of a text. Returns what follows them, or NULL if there are none. */
static const char *preload_digits(const char *text, uint64_t *ret_value)
{
	char *end;

	if (!text || *text < '0' || *text > '9')
		return NULL;
	*ret_value = strtoull(text, &end, 10);
	return end;
}

/* A number in decimal digits, or what it is otherwise. */
static uint64_t preload_number(const char *name, uint64_t otherwise)
{
	uint64_t value;
	const char *end = preload_digits(getenv(name), &value);

	return end && !*end ? value : otherwise;
}

/* Reads which file gpumem-run's stderr is. */
static bool preload_stderr(const char *name, uint64_t *ret_device, uint64_t *ret_inode)
{
	const char *end = preload_digits(getenv(name), ret_device);

	if (!end || *end != ':')
		return false;
	end = preload_digits(end + 1, ret_inode);
	return end && !*end;
}

/* "signal", or the name or number of a signal; 0: none, or one that does not exist. */
static int preload_signal(const char *name)
{
	const char *text = getenv(name);

	if (!text)
		return 0;
	if (strcmp(text, "signal") == 0)
		return SIGUSR1;
	if (strncmp(text, "SIG", 3) == 0)
		text += 3;
	for (int i = 1; i < SIGRTMIN; i++) {
		const char *known = sigabbrev_np(i);
		if (known && strcmp(known, text) == 0)
			return i;
	}
	uint64_t number = preload_number(name, 0);
	return number < NSIG ? (int)number : 0;
}

static void preload_settings_read(void)
{
	struct gm_preload_settings *settings = &preload_read;

	*settings = (struct gm_preload_settings){.limit = UINT64_MAX};
	settings->off = getauxval(AT_SECURE) != 0;
	if (settings->off)
		return;

	/* For the library, 0 is the daemon's default. */
	uint64_t wait_ms = preload_number("GPUMEM_RUN_WAIT", UINT64_MAX);
	wait_ms = wait_ms == UINT64_MAX ? 0 : wait_ms ? wait_ms : GPUMEM_NO_WAIT;
	const char *name = getenv("GPUMEM_RUN_NAME");
	if (name && *name && strlen(name) < sizeof preload_name)
		settings->name = strcpy(preload_name, name);
	/* The daemon enforces a limit only for a run, and 0 is none. */
	uint64_t limit = getenv("GPUMEM_RUN") ? preload_number("GPUMEM_RUN_LIMIT", 0) : 0;
	settings->limit = limit ? limit : UINT64_MAX;
	settings->wait_ms = wait_ms > UINT32_MAX ? UINT32_MAX : (uint32_t)wait_ms;
	settings->signal = preload_signal("GPUMEM_ON_PRESSURE");
	settings->spill = preload_yes("GPUMEM_RUN_SPILL");
	settings->optional = preload_yes("GPUMEM_RUN_OPTIONAL");
	const char *devices = getenv("GPUMEM_RUN_DEVICES");
	if (devices && *devices && strlen(devices) < sizeof preload_devices)
		settings->devices = strcpy(preload_devices, devices);
	settings->see_all = preload_yes("GPUMEM_RUN_SEE_ALL");
	settings->reporter = preload_number("GPUMEM_RUN_REPORT", 0);
	settings->report = settings->reporter != 0;
	settings->tells = preload_stderr(
		"GPUMEM_RUN_STDERR", &settings->stderr_device, &settings->stderr_inode);
}

const struct gm_preload_settings *gm_preload_settings(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, preload_settings_read);
	return &preload_read;
}
