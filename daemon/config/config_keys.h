/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_CONFIG_KEYS_H
#define GM_DAEMON_CONFIG_KEYS_H

#include <stddef.h>
#include <stdint.h>

#include "common/bounds.h"

/*
 * Every key of gpumemd.conf, once: its name, how its value is parsed, where it may stand, its
 * default, its value in each preset (NULL: the default), and its bounds. The parser, `gpumemctl
 * config show` and the test that gpumemd.conf(5) explains every key all use this table.
 *
 *   X(id, name, kind, place, default, inference, constrained, least, most, choices)
 *
 * The bounds are bytes for a size, nanoseconds for a duration, parts per million for a fraction,
 * and permission bits for a mode. The value of a choice is the position of the word in `choices`,
 * whose order is that of the enum it becomes.
 */
#define GM_CONFIG_SIZE_MAX GM_LEASE_BYTES_MAX
#define GM_CONFIG_SECOND   UINT64_C(1000000000)
#define GM_CONFIG_HOUR     (3600 * GM_CONFIG_SECOND)

/* clang-format off */
#define GM_CONFIG_KEYS(X) \
	X(PRESET, "preset", CHOICE, GENERAL, "default", NULL, NULL, 0, 0, "default inference constrained") \
	X(BACKEND, "backend", CHOICE, GENERAL, "auto", NULL, NULL, 0, 0, "auto cuda host") \
	X(SOCKET, "socket", SOCKET, GENERAL, "auto", NULL, NULL, 0, GM_BOUND_SOCKET_PATH_BYTES, NULL) \
	X(SOCKET_MODE, "socket_mode", MODE, GENERAL, "0666", NULL, NULL, 0600, 0777, NULL) \
	X(SOCKET_GROUP, "socket_group", GROUP, GENERAL, "", NULL, NULL, 0, GM_BOUND_NAME_BYTES, NULL) \
	X(ADMIN_GROUP, "admin_group", GROUP, GENERAL, "gpumem", NULL, NULL, 1, GM_BOUND_NAME_BYTES, NULL) \
	X(OBSERVER_GROUP, "observer_group", GROUP, GENERAL, "gpumem-observer", NULL, NULL, 1, GM_BOUND_NAME_BYTES, NULL) \
	X(TRUST, "trust", CHOICE, GENERAL, "container", NULL, NULL, 0, 0, "uid container client") \
	X(TRANSPORT, "transport", CHOICE, GENERAL, "auto", NULL, NULL, 0, 0, "auto fd ipc") \
	X(TRACK, "track", CHOICE, GENERAL, "large", NULL, NULL, 0, 0, "off large all stacks") \
	X(SIZE, "size", DEVICE_SIZE, DEVICE, "auto", NULL, NULL, GM_CHUNK_MIN, GM_CONFIG_SIZE_MAX, NULL) \
	X(FRACTION, "fraction", FRACTION, BOTH, "0.9", "0.95", "0.6", 1, 1000000, NULL) \
	X(MIN_FREE, "min_free", SIZE, BOTH, "512M", "256M", "1G", 0, GM_CONFIG_SIZE_MAX, NULL) \
	X(MAX_POOL, "max_pool", POOL, BOTH, "25%", "50%", "5%", 0, GM_CONFIG_SIZE_MAX, NULL) \
	X(MAX_POOLED_PER_BUCKET, "max_pooled_per_bucket", COUNT, BOTH, "0", NULL, "8", 0, INT32_MAX, NULL) \
	X(POOL_DECAY, "pool_decay", TIME_OR_OFF, BOTH, "60s", "10min", "5s", 1000000, 24 * GM_CONFIG_HOUR, NULL) \
	X(RESERVE, "reserve", SIZE, BOTH, "64M", "256M", "16M", 0, GM_CONFIG_SIZE_MAX, NULL) \
	X(HOST_LIMIT, "host_limit", HOST_LIMIT, GENERAL, "auto", NULL, NULL, GM_CHUNK_MIN, GM_CONFIG_SIZE_MAX, NULL) \
	X(HOST_MEMORY, "host_memory", CHOICE, GENERAL, "auto", NULL, NULL, 0, 0, "auto memfd") \
	X(CPU_FALLBACK, "cpu_fallback", CHOICE, GENERAL, "yes", NULL, NULL, 0, 0, "no yes") \
	X(DECAY, "decay", DURATION, GENERAL, "10s", "60s", "1s", 0, 24 * GM_CONFIG_HOUR, NULL) \
	X(PRESSURE_MEDIUM, "pressure_medium", FRACTION, GENERAL, "0.60", NULL, NULL, 1, 1000000, NULL) \
	X(PRESSURE_HIGH, "pressure_high", FRACTION, GENERAL, "0.80", NULL, NULL, 1, 1000000, NULL) \
	X(PRESSURE_CRITICAL, "pressure_critical", FRACTION, GENERAL, "0.95", NULL, NULL, 1, 1000000, NULL) \
	X(PRESSURE_HYSTERESIS, "pressure_hysteresis", FRACTION, GENERAL, "0.05", NULL, NULL, 0, 500000, NULL) \
	X(PRESSURE_DWELL, "pressure_dwell", DURATION, GENERAL, "1s", NULL, NULL, 0, GM_CONFIG_HOUR, NULL) \
	X(HELLO_DEADLINE, "hello_deadline", DURATION, GENERAL, "5s", NULL, NULL, 1000000, GM_CONFIG_HOUR, NULL) \
	X(CONNECTIONS_PER_UID, "connections_per_uid", COUNT, GENERAL, "1024", NULL, NULL, 1, GM_BOUND_CONNECTIONS, NULL) \
	X(OOM, "oom", CHOICE, BOTH, "refuse", NULL, NULL, 0, 0, "refuse wait terminate") \
	X(OOM_WAIT, "oom_wait", DURATION, BOTH, "30s", NULL, NULL, 1000000, 24 * GM_CONFIG_HOUR, NULL) \
	X(RECLAIM_DEADLINE, "reclaim_deadline", DURATION, GENERAL, "100ms", NULL, NULL, 1000000, GM_CONFIG_HOUR, NULL) \
	X(DEADLOCK_AFTER, "deadlock_after", DURATION, GENERAL, "10s", NULL, NULL, 1000000, 24 * GM_CONFIG_HOUR, NULL) \
	X(AFTER_ACTION, "after_action", DURATION, GENERAL, "1s", NULL, NULL, 1000000, GM_CONFIG_HOUR, NULL) \
	X(TERMINATE_GRACE, "terminate_grace", DURATION, GENERAL, "5s", NULL, NULL, 0, GM_CONFIG_HOUR, NULL) \
	X(MAX, "max", MAX, LIMIT, "none", NULL, NULL, 0, GM_CONFIG_SIZE_MAX, NULL) \
	X(GUARANTEE, "guarantee", SIZE, LIMIT, "0", NULL, NULL, 0, GM_CONFIG_SIZE_MAX, NULL) \
	X(PRIORITY, "priority", PRIORITY, LIMIT, "0", NULL, NULL, GM_PRIORITY_MAX, GM_PRIORITY_MAX, NULL)
/* clang-format on */

enum gm_config_key_id {
#define GM_CONFIG_KEY_ENUM( \
	id, name, kind, place, def, inference, constrained, least, most, choices) \
	GM_CONFIG_KEY_##id,
	GM_CONFIG_KEYS(GM_CONFIG_KEY_ENUM)
#undef GM_CONFIG_KEY_ENUM
		GM_CONFIG_N_KEYS,
};

enum gm_config_kind {
	GM_CONFIG_CHOICE,      /* one of a few words */
	GM_CONFIG_SOCKET,      /* an absolute path, or "auto" */
	GM_CONFIG_MODE,        /* octal permission bits */
	GM_CONFIG_GROUP,       /* a group's name */
	GM_CONFIG_FRACTION,    /* 0.9 or 90% */
	GM_CONFIG_SIZE,        /* 512M */
	GM_CONFIG_DEVICE_SIZE, /* 512M, or "auto" */
	GM_CONFIG_HOST_LIMIT,  /* 512M, 0 for none, or "auto" */
	GM_CONFIG_POOL,        /* 512M, or 25% of the capacity */
	GM_CONFIG_COUNT,       /* 1024 */
	GM_CONFIG_DURATION,    /* 10s */
	GM_CONFIG_TIME_OR_OFF, /* 10s, or "off" */
	GM_CONFIG_MAX,         /* 512M, or "none" */
	GM_CONFIG_PRIORITY,    /* -10 */
};

/* Where a key may stand, as a set. */
enum gm_config_place {
	GM_CONFIG_GENERAL = 1,
	GM_CONFIG_DEVICE = 2,
	GM_CONFIG_BOTH = GM_CONFIG_GENERAL | GM_CONFIG_DEVICE,
	GM_CONFIG_LIMIT = 4,
};

enum gm_config_preset {
	GM_CONFIG_PRESET_DEFAULT,
	GM_CONFIG_PRESET_INFERENCE,
	GM_CONFIG_PRESET_CONSTRAINED,
	GM_CONFIG_N_PRESETS,
};

struct gm_config_key {
	const char *name;
	enum gm_config_kind kind;
	enum gm_config_place place;
	const char *presets[GM_CONFIG_N_PRESETS]; /* [0] is the default */
	uint64_t least, most;
	const char *choices;
};

/* id < GM_CONFIG_N_KEYS */
const struct gm_config_key *gm_config_key(size_t id);

/* The name of the general section. A device's is "device N", a limit's "limit OWNER" or "device N
 * limit OWNER". */
#define GM_CONFIG_SECTION "gpumemd"

#endif
