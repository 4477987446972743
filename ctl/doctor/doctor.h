/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CTL_DOCTOR_H
#define GM_CTL_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/cuda.h"
#include "common/cuda_device.h"
#include "ctl/io/table.h"
#include "daemon/config/config.h"

/*
 * What gpumemctl doctor goes by and finds. Each check looks at one thing and adds a row, or a row
 * per device; none of them stops the others.
 */

enum gm_doctor_state {
	GM_DOCTOR_OK,
	GM_DOCTOR_NOTE, /* good to know; nothing is wrong */
	GM_DOCTOR_WARN, /* the daemon serves, but not as well as it could */
	GM_DOCTOR_FAIL, /* it cannot serve what is configured */
};

/* What the running daemon says of itself. */
struct gm_doctor_daemon {
	bool up;
	char version[64], backend[16], backend_note[256];
	uint64_t pid, fd_limit;
	uint32_t n_devices;
	bool by_fd, by_ipc; /* what a client gets that asks for none, on any of them */
};

struct gm_doctor {
	const char *socket; /* as --socket says; NULL: where clients look by themselves */
	uint64_t timeout_ms;
	bool measure;             /* --measure: contexts may be made */
	const char *root;         /* before every path; "" but in tests */
	struct gm_config *config; /* NULL: it cannot be read */
	bool wsl;
	bool container;
	const struct gm_cuda *cuda; /* NULL: none */
	const struct gm_nvml *nvml; /* NULL: none */
	uint32_t n_devices;         /* of the driver */
	struct gm_cuda_device devices[GM_LIMIT_DEVICES];
	gm_nvml_device handles[GM_LIMIT_DEVICES]; /* NULL: NVML does not know it */
	bool mig[GM_LIMIT_DEVICES];               /* it is a MIG instance, and so is its handle */
	struct gm_doctor_daemon daemon;
	struct gm_table *table;
	bool failed;
};

#define GM_DOCTOR_NO_DEVICE (-1)

/* A row. device: its number, or GM_DOCTOR_NO_DEVICE. remedy: what to do; NULL: nothing. */
void gm_doctor_say(struct gm_doctor *doctor, enum gm_doctor_state state, const char *check,
	int device, const char *remedy, const char *format, ...)
	__attribute__((format(printf, 6, 7)));
struct gm_table *gm_doctor_table_new(void);

/* Whether the configuration asks for this backend by name ("cuda", "host"). */
bool gm_doctor_wants(const struct gm_doctor *doctor, const char *backend);
/* path below the root, which must be far shorter than PATH_MAX. */
const char *gm_doctor_path(const struct gm_doctor *doctor, const char *path, char *ret, size_t n);
bool gm_doctor_exists(const struct gm_doctor *doctor, const char *path);
/* A file's beginning, as text; false: it cannot be read. */
bool gm_doctor_read(const struct gm_doctor *doctor, const char *path, char *text, size_t n);

/* ---- the checks, in the order in which they are shown */

/* doctor_host.c */
void gm_doctor_platform(struct gm_doctor *doctor);
void gm_doctor_container(struct gm_doctor *doctor);
void gm_doctor_configuration(struct gm_doctor *doctor);
void gm_doctor_daemon(struct gm_doctor *doctor); /* the socket, and what it says of itself */
void gm_doctor_files(struct gm_doctor *doctor);
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

#endif
