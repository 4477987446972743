/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_GPU_PINNED_H
#define GM_TESTS_GPU_PINNED_H

/*
 * A private daemon with pinned host memory, and workers that use it. One source for the host
 * backend (GPUMEM_TEST_BACKEND=host), the fake driver with and without HOST_NUMA memory, and a real
 * GPU (GPUMEM_TEST_PINNED=memfd: configured not to use it). The test itself never touches CUDA, so
 * that it may fork workers at any time.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/worker.h"
#include "tests/integration/raw.h"

#define LIMIT (64 * MIB)

static struct gm_daemon daemon_;
static uint32_t pinned; /* its number on the wire */

#define CONFIG(general) \
	"[gpumemd]\nfraction = 0.9\nmin_free = 16M\nreserve = 0\nmax_pool = 100%\n" general

static inline const char *backend_name(void)
{
	const char *name = getenv("GPUMEM_TEST_BACKEND");
	return name && *name ? name : "cuda";
}

static inline bool on_host(void)
{
	return strcmp(backend_name(), "host") == 0;
}

static inline bool without(const char *what)
{
	const char *list = getenv("GPUMEM_FAKE_WITHOUT");
	return list && strstr(list, what);
}

static inline bool wants_memfd(void)
{
	const char *wanted = getenv("GPUMEM_TEST_PINNED");
	return wanted && strcmp(wanted, "memfd") == 0;
}

/* Whether chunks are memfds that clients register. */
static inline bool registers(void)
{
	return !on_host() && (without("hostnuma") || wants_memfd());
}

static inline bool on_fake(void)
{
	return getenv("GPUMEM_FAKE_DIR") != NULL;
}

static inline struct gm_figures now(void)
{
	struct gm_figures figures;
	gm_figures_of(&daemon_, pinned, &figures);
	return figures;
}

static inline void start_with(const char *config)
{
	static const char *args[] = {"--backend", NULL, NULL}; /* the daemon may start again */
	struct gm_raw raw;
	Gm__Wire__GetDevices get = GM__WIRE__GET_DEVICES__INIT;
	static const char general[] = "[gpumemd]\n";
	char text[512];
	args[1] = backend_name();
	GM_REQUIRE(strncmp(config, general, strlen(general)) == 0);
	snprintf(text, sizeof(text), "%shost_memory = %s\n%s", general,
		wants_memfd() ? "memfd" : "auto", config + strlen(general));
	gm_daemon_start(&daemon_, &(struct gm_daemon_options){.config = text, .args = args});
	gm_raw_observe(&raw, &daemon_);
	GM_REQUIRE_EQ(gm_raw_call(&raw, GM_RAW_PACKET(GET_DEVICES, get_devices, &get)), GPUMEM_OK);
	const Gm__Wire__DevicesReply *reply = raw.packet->devices;
	pinned = (uint32_t)reply->n_devices - 1;
	for (size_t i = 0; i < reply->n_devices; i++)
		GM_REQUIRE(!reply->devices[i]->pinned || i == pinned);
	gm_raw_close(&raw);
}

static inline void set_up(void)
{
	start_with(CONFIG("host_limit = 64M\n"));
}

static inline void tear_down(void)
{
	GM_UNTIL(now().clients == 0);
	struct gm_figures f = now();
	GM_REQUIRE_EQ(f.leased + f.quarantined + f.admitted, 0);
	gm_daemon_stop(&daemon_);
}

/* ---- in a worker */

static uint32_t counted;

static inline void join(const char *name)
{
	join_at(daemon_.socket, name);
	OK(gpumem_device_count(session, &counted));
}

static inline void use_gpu_of(int ordinal)
{
	char why[GM_CUDA_WHY_BYTES];
	if (!on_host() && !try_gpu(ordinal, why))
		GM_FAIL("%s", why);
}

/* How many registrations the driver has of this process; 0 where it is no fake. */
static inline int registered(void)
{
	int (*count)(void) = (int (*)(void))driver_symbol("fake_registered");
	return count ? count() : 0;
}

#endif
