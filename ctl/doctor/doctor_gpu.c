/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * The checks of GPUs: the driver, the devices that it finds, and what these can do. No check makes
 * a context, which would take hundreds of MiB of a device that others may need, unless the user
 * asked for that with --measure.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/text/units.h"
#include "ctl/doctor/doctor.h"

/* How bad it is that GPUs cannot be used. With backend = auto, the daemon serves host memory. */
static enum gm_doctor_state doctor_without_gpu(const struct gm_doctor *doctor)
{
	return gm_doctor_wants(doctor, "cuda") ? GM_DOCTOR_FAIL : GM_DOCTOR_NOTE;
}

static const char *doctor_device_remedy(const struct gm_doctor *doctor)
{
	if (getenv("CUDA_VISIBLE_DEVICES"))
		return "unset CUDA_VISIBLE_DEVICES, or name GPUs that 'nvidia-smi -L' lists";
	if (doctor->container)
		return "start the container with the GPU, for example with 'docker run --gpus all'";
	return "compare the GPUs that the driver knows ('nvidia-smi -L') with those that the "
	       "host has ('lspci')";
}

static const char *doctor_driver_remedy(const struct gm_doctor *doctor)
{
	if (gm_cuda_lack() == GM_CUDA_NO_DEVICE)
		return doctor_device_remedy(doctor);
	if (doctor->wsl)
		return "install NVIDIA's driver in Windows, not in Linux, and make sure that the "
		       "loader finds /usr/lib/wsl/lib";
	if (doctor->container && gm_cuda_lack() == GM_CUDA_NO_DRIVER)
		return "start the container with the GPU and its driver, for example with 'docker "
		       "run --gpus all'";
	if (!gm_doctor_exists(doctor, "/proc/driver/nvidia/version"))
		return "install NVIDIA's driver, 470 or newer, and load it: 'modprobe nvidia'";
	return "CUDA 11.4 (driver 470) or newer is needed; 'nvidia-smi' and the kernel's log may "
	       "say more";
}

void gm_doctor_driver(struct gm_doctor *doctor)
{
	char why[GM_CUDA_WHY_BYTES], version[80] = "";
	int count = 0;

	if (gm_doctor_wants(doctor, "host")) {
		gm_doctor_say(doctor, GM_DOCTOR_OK, "driver", GM_DOCTOR_NO_DEVICE, NULL,
			"not used: backend = host");
		return;
	}

	if (gm_cuda_load(&doctor->cuda, why) < 0) {
		doctor->cuda = NULL;
		gm_doctor_say(doctor, doctor_without_gpu(doctor), "driver", GM_DOCTOR_NO_DEVICE,
			doctor_driver_remedy(doctor), "%s%s", why,
			gm_doctor_wants(doctor, "cuda") ? "" : "; host memory is served instead");
		return;
	}

	if (gm_nvml_load(&doctor->nvml, why) < 0)
		doctor->nvml = NULL;
	else if (doctor->nvml->nvmlSystemGetDriverVersion(version, sizeof(version)))
		*version = '\0';
	gm_doctor_say(doctor, GM_DOCTOR_OK, "driver", GM_DOCTOR_NO_DEVICE, NULL, "CUDA %d.%d%s%s",
		doctor->cuda->driver_version / 1000, doctor->cuda->driver_version % 1000 / 10,
		*version ? ", driver " : "", version);

	if (doctor->cuda->cuDeviceGetCount(&count))
		count = 0;
	doctor->n_devices = count > GM_BOUND_DEVICES ? GM_BOUND_DEVICES : (uint32_t)count;
}

/*
 * Without /dev/nvidia-uvm, cuInit fails. The driver's library would let a setuid helper create the
 * node, but a daemon that may not gain privileges cannot run that helper.
 */
void gm_doctor_nodes(struct gm_doctor *doctor)
{
	static const char *const names[] = {"/dev/nvidiactl", "/dev/nvidia-uvm"};
	char path[4096];

	if (gm_doctor_wants(doctor, "host"))
		return;
	if (doctor->wsl) {
		if (gm_doctor_exists(doctor, "/dev/dxg"))
			gm_doctor_say(doctor, GM_DOCTOR_OK, "nodes", GM_DOCTOR_NO_DEVICE, NULL,
				"/dev/dxg, as usual on WSL2");
		else
			gm_doctor_say(doctor, doctor_without_gpu(doctor), "nodes",
				GM_DOCTOR_NO_DEVICE,
				"run 'wsl --update' in Windows; a container must be given /dev/dxg",
				"/dev/dxg is missing");
		return;
	}

	/* If there is nothing of NVIDIA at all, the check of the driver has said so. */
	if (!doctor->cuda && !gm_doctor_exists(doctor, names[0]) &&
		!gm_doctor_exists(doctor, "/proc/driver/nvidia/version"))
		return;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		enum gm_doctor_state state =
			doctor->cuda ? GM_DOCTOR_WARN : doctor_without_gpu(doctor);

		gm_doctor_path(doctor, names[i], path, sizeof(path));
		if (access(path, F_OK)) {
			/* The kernel's driver needs the nodes. One that finds GPUs without them is another one. */
			if (doctor->n_devices)
				return;
			gm_doctor_say(doctor, state, "nodes", GM_DOCTOR_NO_DEVICE,
				doctor->container ? "start the container with this device node"
				: i == 0 ? "run 'nvidia-modprobe -c=255 -c=0' as root at each boot"
					 : "run 'nvidia-modprobe -u -c=0' as root at each boot; "
					   "the daemon itself may not",
				"%s is missing", names[i]);
			return;
		}
		if (access(path, R_OK | W_OK)) {
			gm_doctor_say(doctor, state, "nodes", GM_DOCTOR_NO_DEVICE,
				"put the daemon's user into the group that may open it "
				"(NVreg_DeviceFileGID, NVreg_DeviceFileMode)",
				"%s cannot be opened by this user", names[i]);
			return;
		}
	}
	gm_doctor_say(doctor, GM_DOCTOR_OK, "nodes", GM_DOCTOR_NO_DEVICE, NULL, "%s, %s", names[0],
		names[1]);
}

void gm_doctor_nvml(struct gm_doctor *doctor)
{
	const struct gm_nvml *nvml;
	char why[GM_CUDA_WHY_BYTES];

	if (!doctor->cuda)
		return;
	if (gm_nvml_load(&nvml, why) < 0) {
		gm_doctor_say(doctor, GM_DOCTOR_WARN, "nvml", GM_DOCTOR_NO_DEVICE,
			doctor->container ? "start the container with the driver capability "
					    "'utility' (NVIDIA_DRIVER_CAPABILITIES)"
					  : "install the package with libnvidia-ml.so.1, in the "
					    "same version as the driver",
			"%s: foreign memory is not known, and min_free is not kept", why);
		return;
	}
	if (!nvml->nvmlDeviceGetComputeRunningProcesses)
		gm_doctor_say(doctor, GM_DOCTOR_NOTE, "nvml", GM_DOCTOR_NO_DEVICE,
			"driver 510 or newer can name them",
			"tells what is free, but not which processes use the rest");
	else
		gm_doctor_say(doctor, GM_DOCTOR_OK, "nvml", GM_DOCTOR_NO_DEVICE, NULL,
			"tells what is free, and which processes use the rest");
}

void gm_doctor_devices(struct gm_doctor *doctor)
{
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	char why[GM_CUDA_WHY_BYTES], size[GM_UNITS_TEXT], nvml_text[GM_NVML_ERROR_TEXT];
	uint32_t good = 0;

	for (uint32_t i = 0; i < doctor->n_devices; i++) {
		struct gm_cuda_device *device = &doctor->devices[i];
		gm_nvml_memory memory;
		gm_nvml_return result = GM_NVML_SUCCESS;

		if (gm_cuda_device_read(doctor->cuda, (int)i, doctor->wsl, device, why) < 0) {
			gm_doctor_say(doctor, GM_DOCTOR_FAIL, "device", (int)i,
				"'nvidia-smi' may say more", "%s", why);
			continue;
		}
		good++;

		if (doctor->nvml && gm_cuda_device_in_nvml(doctor->nvml, device->uuid,
					    &doctor->handles[i], &doctor->mig[i]) < 0)
			doctor->handles[i] = NULL;

		if (doctor->handles[i])
			result = doctor->nvml->nvmlDeviceGetMemoryInfo(doctor->handles[i], &memory);
		if (result == GM_NVML_ERROR_GPU_IS_LOST)
			gm_doctor_say(doctor, GM_DOCTOR_FAIL, "device", (int)i,
				"see its Xid in the kernel's log; 'nvidia-smi -r' or a reboot may "
				"bring it back",
				"%s is lost: it has fallen off the bus", device->name);
		else if (result)
			gm_doctor_say(doctor, GM_DOCTOR_WARN, "device", (int)i,
				"'nvidia-smi -q' may say more", "%s: %s", device->name,
				gm_nvml_error(result, nvml_text));
		else
			gm_doctor_say(doctor, GM_DOCTOR_OK, "device", (int)i, NULL, "%s, %s, %s",
				device->name, gm_format_size(device->total, size), device->pci);
	}

	if (doctor->cuda && visible)
		gm_doctor_say(doctor, GM_DOCTOR_NOTE, "devices", GM_DOCTOR_NO_DEVICE, NULL,
			"CUDA_VISIBLE_DEVICES is set: %.200s", visible);
	if (doctor->cuda && !good)
		gm_doctor_say(doctor, doctor_without_gpu(doctor), "devices", GM_DOCTOR_NO_DEVICE,
			"see the lines above", "no device can be used");
}

/* Whether the device could be read. */
static bool doctor_is_usable(const struct gm_cuda_device *device)
{
	return device->total > 0;
}

/* Which transport a client gets that asks for none. The daemon decides by the same rules. */
void gm_doctor_transports(struct gm_doctor *doctor)
{
	enum gm_transport wanted = doctor->config ? doctor->config->transport : GM_TRANSPORT_AUTO;

	for (uint32_t i = 0; i < doctor->n_devices; i++) {
		const struct gm_cuda_device *device = &doctor->devices[i];
		if (!doctor_is_usable(device))
			continue;

		if (!device->fd && !device->ipc)
			gm_doctor_say(doctor, GM_DOCTOR_FAIL, "transport", (int)i,
				"a newer driver may support one",
				"none: no fd (%s), and no ipc (%s)", device->fd_why,
				device->ipc_why);
		else if (wanted == GM_TRANSPORT_FD && !device->fd)
			gm_doctor_say(doctor, GM_DOCTOR_FAIL, "transport", (int)i,
				"set transport = auto or ipc in gpumemd.conf",
				"fd is configured, but not available: %s", device->fd_why);
		else if (wanted == GM_TRANSPORT_IPC && !device->ipc)
			gm_doctor_say(doctor, GM_DOCTOR_FAIL, "transport", (int)i,
				"set transport = auto or fd in gpumemd.conf",
				"ipc is configured, but not available: %s", device->ipc_why);
		else if (!device->fd)
			gm_doctor_say(doctor, GM_DOCTOR_WARN, "transport", (int)i,
				"a newer driver may support fd",
				"only ipc, for which the daemon needs a context%s; no fd: %s",
				doctor->wsl ? ", and which is known to fail on WSL2" : "",
				device->fd_why);
		else
			gm_doctor_say(doctor, GM_DOCTOR_OK, "transport", (int)i, NULL,
				"%s; clients get %s%s", device->ipc ? "fd and ipc" : "fd",
				wanted == GM_TRANSPORT_IPC ? "ipc" : "fd",
				doctor->wsl ? " (tried: this is WSL2)" : "");
	}
}

/* Whether the kernel can back memfds with huge pages. */
static bool doctor_makes_huge_pages(const struct gm_doctor *doctor)
{
	unsigned int major = 0, minor = 0;
	char text[128];

	if (!gm_doctor_read(doctor, "/proc/version", text, sizeof(text)) ||
		sscanf(text, "Linux version %u.%u", &major, &minor) != 2 || major < 6 ||
		(major == 6 && minor < 1))
		return false;

	return gm_doctor_read(doctor, "/sys/kernel/mm/transparent_hugepage/shmem_enabled", text,
		       sizeof(text)) &&
	       !strstr(text, "[deny]");
}

/* What pinned host memory will be made of. The daemon decides by the same rules. */
void gm_doctor_pinned(struct gm_doctor *doctor)
{
	bool wanted = doctor->config && doctor->config->host_memory == GM_BACKEND_HOST_MEMORY_MEMFD;
	char why[80] = "host_memory = memfd";
	uint32_t good = 0;

	for (uint32_t i = 0; i < doctor->n_devices; i++) {
		const struct gm_cuda_device *device = &doctor->devices[i];
		if (!doctor_is_usable(device))
			continue;
		good++;
		if (wanted || (device->fd && device->host_numa))
			continue;
		snprintf(why, sizeof(why), "device %u cannot share the driver's own", i);
		wanted = true;
	}
	if (!good)
		return;

	if (doctor->config && doctor->config->host_limit == 0)
		gm_doctor_say(doctor, GM_DOCTOR_OK, "pinned", GM_DOCTOR_NO_DEVICE, NULL,
			"none: host_limit = 0");
	else if (!wanted)
		gm_doctor_say(doctor, GM_DOCTOR_OK, "pinned", GM_DOCTOR_NO_DEVICE, NULL,
			"the driver's own host memory");
	else if (doctor_makes_huge_pages(doctor))
		gm_doctor_say(doctor, GM_DOCTOR_OK, "pinned", GM_DOCTOR_NO_DEVICE, NULL,
			"memfds that clients register, in huge pages (%s)", why);
	else
		gm_doctor_say(doctor, GM_DOCTOR_WARN, "pinned", GM_DOCTOR_NO_DEVICE,
			"huge pages need Linux 6.1 or newer, and no \"deny\" in "
			"/sys/kernel/mm/transparent_hugepage/shmem_enabled",
			"memfds that clients register, page by page, which takes several times as "
			"long as in huge pages (%s)",
			why);
}

void gm_doctor_persistence(struct gm_doctor *doctor)
{
	int mode;

	for (uint32_t i = 0; i < doctor->n_devices; i++) {
		if (!doctor->handles[i] || !doctor->nvml->nvmlDeviceGetPersistenceMode ||
			doctor->nvml->nvmlDeviceGetPersistenceMode(doctor->handles[i], &mode))
			continue;
		if (mode)
			gm_doctor_say(doctor, GM_DOCTOR_OK, "persistence", (int)i, NULL, "on");
		else
			gm_doctor_say(doctor, GM_DOCTOR_NOTE, "persistence", (int)i,
				"enable nvidia-persistenced, or 'nvidia-smi -pm 1'",
				"off: the driver shuts the GPU down when its last user ends, and "
				"the daemon's next start takes seconds");
	}
}

void gm_doctor_mig(struct gm_doctor *doctor)
{
	for (uint32_t i = 0; i < doctor->n_devices; i++) {
		unsigned int now = 0, pending = 0;
		char uuid[GM_CUDA_UUID_TEXT];

		if (doctor->mig[i]) {
			gm_cuda_uuid_text(doctor->devices[i].uuid, true, uuid);
			gm_doctor_say(doctor, GM_DOCTOR_NOTE, "mig", (int)i,
				"for each other instance ('nvidia-smi -L'), run a daemon with "
				"a socket of its own and CUDA_VISIBLE_DEVICES set to the instance",
				"on: a process sees one instance only, so the daemon serves only "
				"this one: %s",
				uuid);
			continue;
		}
		if (!doctor->handles[i] || !doctor->nvml->nvmlDeviceGetMigMode ||
			doctor->nvml->nvmlDeviceGetMigMode(doctor->handles[i], &now, &pending))
			continue;

		gm_doctor_say(doctor, GM_DOCTOR_OK, "mig", (int)i, NULL, now ? "on" : "off");
		if (now != pending)
			gm_doctor_say(doctor, GM_DOCTOR_NOTE, "mig", (int)i, NULL,
				"will be %s after the next reset of the GPU",
				pending ? "on" : "off");
	}
}

void gm_doctor_fabric(struct gm_doctor *doctor)
{
	bool channel = gm_doctor_exists(doctor, "/dev/nvidia-caps-imex-channels");

	for (uint32_t i = 0; i < doctor->n_devices; i++) {
		if (!doctor_is_usable(&doctor->devices[i]))
			continue;
		gm_doctor_say(doctor, GM_DOCTOR_OK, "fabric", (int)i, NULL,
			!doctor->devices[i].fabric ? "none"
			: channel                  ? "present, with an IMEX channel"
						   : "present, without an IMEX channel");
	}
}

/*
 * A process that starts CUDA joins a running MPS. The MPS server serves one user at a time, so a
 * daemon of another user would keep everybody else waiting.
 */
void gm_doctor_mps(struct gm_doctor *doctor)
{
	const char *given = getenv("CUDA_MPS_PIPE_DIRECTORY");
	char path[4096], text[32], proc[48];

	if (!doctor->cuda)
		return;
	snprintf(path, sizeof(path), "%s/nvidia-cuda-mps-control.pid",
		given && *given ? given : "/tmp/nvidia-mps");
	if (!gm_doctor_read(doctor, path, text, sizeof(text))) {
		gm_doctor_say(
			doctor, GM_DOCTOR_OK, "mps", GM_DOCTOR_NO_DEVICE, NULL, "not running");
		return;
	}

	snprintf(proc, sizeof(proc), "/proc/%d", atoi(text));
	if (!gm_doctor_exists(doctor, proc)) {
		gm_doctor_say(doctor, GM_DOCTOR_OK, "mps", GM_DOCTOR_NO_DEVICE, NULL,
			"no longer running");
		return;
	}

	gm_doctor_say(doctor, GM_DOCTOR_NOTE, "mps", GM_DOCTOR_NO_DEVICE,
		"keep the daemon out of MPS: its unit does (PrivateTmp=); otherwise start it with "
		"CUDA_MPS_PIPE_DIRECTORY=/nowhere",
		"running (pid %d); clients may use it", atoi(text));
}

/* How much memory this process uses, according to NVML. Returns false if NVML does not say. */
static bool doctor_own_use(const struct gm_doctor *doctor, uint32_t device, uint64_t *ret)
{
	gm_nvml_process list[512];
	unsigned int n = sizeof(list) / sizeof(*list);

	if (!doctor->handles[device] || !doctor->nvml->nvmlDeviceGetComputeRunningProcesses ||
		doctor->nvml->nvmlDeviceGetComputeRunningProcesses(
			doctor->handles[device], &n, list))
		return false;

	for (unsigned int i = 0; i < n; i++)
		if (list[i].pid == (unsigned int)getpid() && list[i].used != GM_NVML_USED_UNKNOWN) {
			*ret = list[i].used;
			return true;
		}
	return false;
}

static void doctor_measure(struct gm_doctor *doctor, uint32_t i)
{
	gm_nvml_memory before = {0}, after = {0};
	char size[GM_UNITS_TEXT];
	gm_cu_ctx context;
	uint64_t bytes = 0;
	bool known = doctor->handles[i] &&
		     !doctor->nvml->nvmlDeviceGetMemoryInfo(doctor->handles[i], &before);
	gm_cu_result result =
		doctor->cuda->cuDevicePrimaryCtxRetain(&context, doctor->devices[i].number);

	if (result) {
		gm_doctor_say(doctor, GM_DOCTOR_WARN, "context", (int)i,
			"free some of the device's memory, or see the lines above",
			"could not be made: %s", gm_cuda_error(doctor->cuda, result));
		return;
	}

	if (!doctor_own_use(doctor, i, &bytes)) {
		known = known && !doctor->nvml->nvmlDeviceGetMemoryInfo(doctor->handles[i], &after);
		bytes = known && before.free > after.free ? before.free - after.free : 0;
	}
	doctor->cuda->cuDevicePrimaryCtxRelease(doctor->devices[i].number);

	if (bytes)
		gm_doctor_say(doctor, GM_DOCTOR_OK, "context", (int)i, NULL,
			"%s for each process that computes there; on fd, the daemon needs none",
			gm_format_size(bytes, size));
	else
		gm_doctor_say(doctor, GM_DOCTOR_NOTE, "context", (int)i, NULL,
			"made, but its cost cannot be measured without NVML");
}

void gm_doctor_context(struct gm_doctor *doctor)
{
	bool any = false;

	for (uint32_t i = 0; i < doctor->n_devices; i++) {
		if (!doctor_is_usable(&doctor->devices[i]))
			continue;
		any = true;
		if (doctor->measure)
			doctor_measure(doctor, i);
	}
	if (any && !doctor->measure)
		gm_doctor_say(doctor, GM_DOCTOR_NOTE, "context", GM_DOCTOR_NO_DEVICE,
			"'gpumemctl doctor --measure' makes one on each device to measure it",
			"takes memory for each process that computes; not measured");
}
