/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CTL_DOCTOR_DOCTOR_H
#define GM_CTL_DOCTOR_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/cuda/cuda.h"
#include "common/cuda/cuda_device.h"
#include "ctl/io/ctl_conn.h"
#include "ctl/io/other_daemon.h"
#include "ctl/io/table.h"
#include "daemon/config/config.h"

/*
 * The folder ctl/doctor finds out what this host can do and what gpumemd will do on it, and changes
 * nothing. It must never know the command line, nor how its findings reach people and programs.
 *
 * Each check looks at one thing and adds a row to a table, or one row for each device. No check
 * keeps the others from running.
 */

enum gm_doctor_state {
	GM_DOCTOR_OK,
	GM_DOCTOR_NOTE, /* good to know; nothing is wrong */
	GM_DOCTOR_WARN, /* the daemon can serve, but not as well as it could */
	GM_DOCTOR_FAIL, /* the daemon cannot serve what is configured */
};

/* What the running daemon says about itself. */
struct gm_doctor_daemon {
	bool up;
	char version[64], backend[16], backend_note[256];
	uint64_t pid, pid_namespace, fd_limit;
	uid_t uid;
	/* What /proc says about its process. */
	bool seen;           /* it can be looked at */
	bool of_service;     /* it runs in gpumemd.service */
	uint64_t memory_max; /* of its cgroup and those above it; UINT64_MAX: none */
	enum gm_daemon_kind kind;
	uint32_t n_devices;
	uint64_t orphaned; /* bytes, on all devices */
	struct {
		bool drained;
		uint32_t by; /* uid */
		uint64_t ms;
	} devices[GM_BOUND_DEVICES]; /* that it serves, by number */
	/* Which transport a client gets that asks for none. Both, if that depends on the device. */
	bool by_fd, by_ipc;
	bool keeper, keeper_ready; /* there is to be one; it has everything */
	uint64_t keeper_pid, keeper_items, keeper_capacity, keeper_lost;
	char keeper_socket[256];
};

struct gm_doctor {
	const char *socket; /* NULL: look for it where clients do */
	uint64_t timeout_ms;
	bool measure;             /* may make contexts, to measure them */
	const char *root;         /* a prefix of every path; "" except in tests */
	struct gm_config *config; /* NULL: cannot be read */
	char *config_files;       /* that were read for it, one per line; NULL: none */
	bool wsl;
	bool container;
	const struct gm_cuda *cuda; /* NULL: none */
	const struct gm_nvml *nvml; /* NULL: none */
	uint32_t n_devices;         /* that the driver knows */
	struct gm_cuda_device devices[GM_BOUND_DEVICES];
	gm_nvml_device handles[GM_BOUND_DEVICES]; /* NULL: NVML does not know the device */
	bool mig[GM_BOUND_DEVICES];               /* the device and its handle are a MIG instance */
	struct gm_doctor_daemon daemon;
	struct gm_table *table;
	bool failed;
};

#define GM_DOCTOR_NO_DEVICE (-1)

/*
 * Adds a row. device is a number or GM_DOCTOR_NO_DEVICE. remedy says what to do; NULL if there is
 * nothing to do. The format says what was found.
 */
void gm_doctor_say(struct gm_doctor *doctor, enum gm_doctor_state state, const char *check,
	int device, const char *remedy, const char *format, ...)
	__attribute__((format(printf, 6, 7)));
struct gm_table *gm_doctor_table_new(void);

/* Whether the configuration asks for this backend by name ("cuda", "host"). */
bool gm_doctor_wants(const struct gm_doctor *doctor, const char *backend);
/* Puts root and path together. The root must be far shorter than PATH_MAX. Returns ret. */
const char *gm_doctor_path(const struct gm_doctor *doctor, const char *path, char *ret, size_t n);
bool gm_doctor_exists(const struct gm_doctor *doctor, const char *path);
/* Reads the beginning of a regular file as text. Returns false if it cannot be read. */
bool gm_doctor_read(const struct gm_doctor *doctor, const char *path, char *text, size_t n);

/* ---- the checks */

/* doctor_process.c */
void gm_doctor_process(struct gm_doctor *doctor); /* fills in what the daemon's process may use */
/* doctor_host.c */
void gm_doctor_platform(struct gm_doctor *doctor);
void gm_doctor_container(struct gm_doctor *doctor);
void gm_doctor_configuration(struct gm_doctor *doctor);
void gm_doctor_daemon(struct gm_doctor *doctor); /* the socket, and the daemon behind it */
void gm_doctor_drained(struct gm_doctor *doctor);
void gm_doctor_files(struct gm_doctor *doctor);
void gm_doctor_memory(struct gm_doctor *doctor);
/* doctor_keeper.c */
void gm_doctor_keeper(struct gm_doctor *doctor);
/* doctor_service.c */
void gm_doctor_service(struct gm_doctor *doctor);
/* doctor_gpu.c */
void gm_doctor_driver(struct gm_doctor *doctor);
void gm_doctor_nodes(struct gm_doctor *doctor);
void gm_doctor_nvml(struct gm_doctor *doctor);
void gm_doctor_devices(struct gm_doctor *doctor);
void gm_doctor_transports(struct gm_doctor *doctor);
void gm_doctor_pinned(struct gm_doctor *doctor);
void gm_doctor_persistence(struct gm_doctor *doctor);
void gm_doctor_mig(struct gm_doctor *doctor);
void gm_doctor_fabric(struct gm_doctor *doctor);
void gm_doctor_mps(struct gm_doctor *doctor);
void gm_doctor_context(struct gm_doctor *doctor);

/* Names the processes that have memory which is orphaned, if any does. */
void gm_doctor_orphaned(struct gm_doctor *doctor, struct gm_ctl_conn *conn);

#endif
