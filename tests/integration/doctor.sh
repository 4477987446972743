#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# gpumemctl doctor on machines of every kind. A root folder of the test stands for /proc, /dev, /run and /etc, and the fake
# driver for the GPUs. Each case names a check and tests its state and, where the state is not ok, its remedy.
set -u
build=$(realpath "${top_builddir:-.}") source=$(realpath "${top_srcdir:-.}")
: "${GPUMEM_FAKE_DIR:?is unset: run make check TESTS=tests/integration/doctor-fake.variant}"
json=$build/tests/integration/json-get gpumemd=$build/daemon/gpumemd
. "$source/tests/integration/functions.sh"
libraries=$LD_LIBRARY_PATH

scratch doctor
export GPUMEM_SOCKET=$dir/socket COLUMNS=80 LC_ALL=C.UTF-8 GPUMEM_TEST_ROOT=$dir/root
unset NOTIFY_SOCKET LISTEN_FDS LISTEN_PID NO_COLOR CUDA_VISIBLE_DEVICES CUDA_MPS_PIPE_DIRECTORY

# What systemd says about the unit.
mkdir "$dir/bin"
printf '#!/bin/sh\nfor unit; do :; done\ncase $unit in *keeper*) unit=keeper-unit ;; *.socket) unit=socket-unit ;; *) unit=unit ;; esac\ncd "%s" && if [ -e "$unit" ]; then cat "$unit"; else cat unit; fi\n' "$dir" >"$dir/bin/systemctl" && chmod +x "$dir/bin/systemctl"
PATH=$dir/bin:$build/ctl:$build/daemon:$PATH

# Makes a machine where all is well.
fresh() {
	printf 'ActiveState=inactive\nResult=success\nExecMainStatus=0\nStatusText=\n' | tee "$dir/unit" >"$dir/keeper-unit"
	rm -rf "$dir/root" "$dir/socket-unit"
	mkdir -p "$dir"/root/{dev,etc/gpumemd,proc/self,run/systemd/system,usr/lib/systemd/system,sys/kernel/mm/transparent_hugepage}
	echo 'always within_size advise [never] deny force' >"$dir/root/sys/kernel/mm/transparent_hugepage/shmem_enabled"
	echo 'Linux version 6.1.0-30-amd64 (debian-kernel@lists.debian.org) (gcc-12)' >"$dir/root/proc/version"
	echo '0::/user.slice' >"$dir/root/proc/self/cgroup"
	touch "$dir"/root/dev/{nvidiactl,nvidia-uvm,nvidia0}
	printf '[gpumemd]\nmin_free = 0\n%s' "${config:-}" >"$dir/root/etc/gpumemd/gpumemd.conf"
	printf '[Service]\nLimitNOFILE=524288\n' >"$dir/root/usr/lib/systemd/system/gpumemd.service"
	rm -f "$GPUMEM_FAKE_DIR"/gpu*.{lost,mig,nopm,fabric}
	unset GPUMEM_FAKE_WITHOUT GPUMEM_FAKE_FAIL GPUMEM_FAKE_VERSION
	LD_LIBRARY_PATH=$libraries
}
doctor() {
	"$build/ctl/gpumemctl" doctor --json "$@" >"$dir/json" 2>"$dir/stderr"
	status=$?
}
value() { "$json" "$1" <"$dir/json" 2>/dev/null; }
# row CHECK [DEVICE]: prints the number of its row.
row() {
	local i count
	count=$(value 'checks.#')
	for ((i = 0; i < ${count:-0}; i++)); do
		[ "$(value "checks.$i.check")" = "$1" ] && [ "$(value "checks.$i.device")" = "${2:-null}" ] && { echo "$i"; return 0; }
	done
	return 1
}
# found NAME STATUS CHECK DEVICE STATE WORDS REMEDY: one test. WORDS and REMEDY are parts of the texts; a remedy of "-" means none.
found() {
	local name=$1 wanted=$2 i state what remedy
	i=$(row "$3" "$4") || { not_ok "$name" "no row $3 $4" "$(cat "$dir/json" "$dir/stderr")"; return; }
	state=$(value "checks.$i.state") what=$(value "checks.$i.what") remedy=$(value "checks.$i.remedy")
	if [ "$status" = "$wanted" ] && [ "$state" = "$5" ] && [[ $what == *"$6"* ]] &&
		{ if [ "$7" = - ]; then [ "$remedy" = null ]; else [[ $remedy == *"$7"* ]]; fi; }; then
		ok "$name"
	else
		not_ok "$name" "status $status, $state, '$what', '$remedy'" "$(cat "$dir/stderr")"
	fi
}

# ---- all is well

fresh
doctor
found "a driver is shown with its version" 0 driver null ok "CUDA 13.0, driver 580.00" -
found "each device is shown" 0 device 1 ok "Fake GPU 1, 512.0M, 0000:A1:00.0" -
found "transports are shown, and which one clients get" 0 transport 0 ok "fd and ipc; clients get fd" -
found "pinned host memory is the driver's own" 0 pinned null ok "the driver's own host memory" -
found "NVML is there" 0 nvml null ok "which processes use the rest" -
found "device nodes are there" 0 nodes null ok "/dev/nvidia-uvm" -
found "persistence mode is on" 0 persistence 0 ok on -
found "MIG is off" 0 mig 0 ok off -
found "a fabric is not needed" 0 fabric 0 ok none -
found "MPS does not run" 0 mps null ok "not running" -
found "the cost of a context is not claimed but measured on request" 0 context null note "not measured" --measure
found "no container" 0 container null ok "not in one" -
found "a daemon that does not run is no failure, and the command is for the socket in use" 0 socket null note "no daemon listens there" \
	"run 'gpumemd --socket $GPUMEM_SOCKET'"
found "the unit's limit of descriptors counts while the daemon is down" 0 descriptors null ok "of its unit is 524288" -
found "the unit is there, and has no fd store" 0 service null ok "fd store: none, so a restart while the keeper is missing gives up what clients hold" -
found "the configuration is read" 0 config null ok "$dir/root/etc/gpumemd/gpumemd.conf: backend auto, transport auto" -
[ "$(value ok)" = true ] && ok "and all of it is ok" || not_ok "and all of it is ok"
doctor --measure
found "a context is measured on request" 0 context 1 ok 17.0M -

undocumented=
while read -r key; do
	grep -q "_${key}_" "$source/man/gpumemctl.1.scd" || undocumented="$undocumented $key"
done < <("$json" keys <"$dir/json" | sort -u)
[ -z "$undocumented" ] && ok "every key is in gpumemctl(1)" || not_ok "every key is in gpumemctl(1)" "$undocumented"
for kind in driver device transport pinned nvml nodes persistence mig fabric mps context container socket descriptors memory service config \
	platform daemon orphaned; do
	grep -q "\*$kind\*" "$source/man/gpumemctl.1.scd" || undocumented="$undocumented $kind"
done
[ -z "$undocumented" ] && ok "every check is in gpumemctl(1)" || not_ok "every check is in gpumemctl(1)" "$undocumented"
"$build/ctl/gpumemctl" doctor >"$dir/text" 2>&1
if awk 'length > 80 { bad = 1 } END { exit bad }' "$dir/text" && grep -q -- '-> ' "$dir/text"; then
	ok "for people it fits 80 columns, remedies behind an arrow"
else
	not_ok "for people it fits 80 columns, remedies behind an arrow" "$(cat "$dir/text")"
fi

# ---- the driver

fresh
LD_LIBRARY_PATH=
doctor
found "no driver: host memory is served, and what to do" 0 driver null note "host memory is served instead" "modprobe nvidia"
config=$'backend = cuda\n'
fresh
LD_LIBRARY_PATH=
doctor
found "no driver, though backend = cuda: a failure" 1 driver null fail "libcuda.so.1 cannot be loaded" "install NVIDIA's driver"
fresh
export GPUMEM_FAKE_VERSION=11020
doctor
found "a driver that is too old" 1 driver null fail "CUDA 11.2; 11.4" "470 or newer"
fresh
export GPUMEM_FAKE_FAIL=cuInit:0:999
rm "$dir/root/dev/nvidia-uvm"
doctor
found "a driver that does not start" 1 driver null fail "CUDA_ERROR_UNKNOWN" "driver"
found "because /dev/nvidia-uvm is missing" 1 nodes null fail "/dev/nvidia-uvm is missing" "nvidia-modprobe -u -c=0"
config=
fresh
CUDA_VISIBLE_DEVICES=nonsense doctor
found "no GPU is visible: the variable that hides them" 0 driver null note 'CUDA_VISIBLE_DEVICES is "nonsense"' "nvidia-smi -L"
touch "$dir/root/.dockerenv"
GPUMEM_FAKE_DIR='' doctor
found "no GPU at all, in a container" 0 driver null note "finds no GPU" "docker run --gpus all"
config=$'backend = host\n'
fresh
doctor
found "backend = host asks for no driver" 0 driver null ok "not used" -
config=

# ---- what the daemon would refuse, and what it refused

config=$'[limit uid:0]\nguarantee = 800G\n'
fresh
doctor
found "a guarantee that no GPU has" 1 config null fail "guarantees on device 0 (Fake GPU 0) go beyond its capacity of 460.8M" "config check"
config=$'[device 1 limit uid:0]\nguarantee = 100M\n'
fresh
doctor
found "a limit on a device that is there" 0 config null ok "backend auto" -
mkdir "$dir/root/etc/systemd" "$dir/root/etc/systemd/system" "$dir/root/etc/systemd/system/gpumemd.service.d"
printf '[Service]\nEnvironment="A=b c" "CUDA_VISIBLE_DEVICES=1"\n' >"$dir/root/etc/systemd/system/gpumemd.service.d/gpus.conf"
printf '[gpumemd]\nmin_free = 0\nhost_limit = 0\n[device 1 limit uid:0]\nguarantee = 100M\n' >"$dir/root/etc/gpumemd/gpumemd.conf"
doctor
found "but not one that the service does not see" 1 config null fail "there is no device 1; there is 1, numbered from 0" "config check"
found "whose variable is shown" 1 devices null note "CUDA_VISIBLE_DEVICES is set: 1" -
printf '[Service]\nEnvironment=\nEnvironmentFile=-/etc/default/gpumemd\n' >"$dir/root/etc/systemd/system/gpumemd.service.d/more.conf"
doctor
found "unless a later drop-in takes it back" 0 config null ok "backend auto" -
mkdir "$dir/root/etc/default"
echo 'CUDA_VISIBLE_DEVICES="0"' >"$dir/root/etc/default/gpumemd"
doctor
found "a file of variables counts, too" 1 config null fail "there is no device 1" "config check"
config=$'host_memory = memfd\nhost_limit = 1G\n[limit uid:0]\nguarantee = 300M\n'
fresh
doctor
found "pinned memory of memfds that the service may have" 0 config null ok "backend auto" -
echo 'MemoryMax=1G' >>"$dir/root/usr/lib/systemd/system/gpumemd.service"
doctor
found "and may not have, because of its unit" 1 config null fail "guarantees on device 2 (pinned memory) go beyond its capacity of 256.0M" "config check"
config=$'[device 0]\nsize = 1G\n'
fresh
doctor
i=$(row config) && i=$((i + 1))
if [ "$status $(value "checks.$i.check") $(value "checks.$i.state")" = "0 config warn" ] &&
	[[ $(value "checks.$i.what") == *"size of [device 0] has no effect"* ]]; then
	ok "what has no effect is warned about"
else
	not_ok "what has no effect is warned about" "$(cat "$dir/json")"
fi
config=$'[device 1 limit uid:0]\nguarantee = 100M\n'
fresh
GPUMEM_FAKE_FAIL=cuInit:0:999 doctor
i=$(row config) && i=$((i + 1))
if [ "$(value "checks.$i.check") $(value "checks.$i.state")" = "config note" ] && [[ $(value "checks.$i.what") == "not checked: "*CUDA_ERROR_UNKNOWN* ]]; then
	ok "what could not be checked is said"
else
	not_ok "what could not be checked is said" "$(cat "$dir/json")"
fi
config=$'socket = /nowhere/at/all\n'
fresh
doctor
found "a socket that the daemon cannot make" 1 config null fail "socket: there is no folder /nowhere/at" "config check"
printf '[Socket]\nListenSequentialPacket=/run/gpumemd/socket\n' >"$dir/root/usr/lib/systemd/system/gpumemd.socket"
doctor
i=$(row config) && i=$((i + 1))
if [ "$status $(value "checks.$i.check") $(value "checks.$i.state")" = "0 config warn" ] &&
	[[ $(value "checks.$i.what") == *"socket: has no effect, because gpumemd.socket makes the socket"* ]]; then
	ok "with the service, that key has no effect, and is no failure"
else
	not_ok "with the service, that key has no effect, and is no failure" "$(cat "$dir/json")"
fi
config=
fresh
printf 'ActiveState=failed\nResult=exit-code\nExecMainStatus=78\nStatusText=gpumemd.conf:7: guarantee: too much\n' >"$dir/unit"
doctor
found "a service that failed, with its last error" 1 service null fail "(exit-code 78): gpumemd.conf:7: guarantee: too much" "journalctl -u gpumemd"
printf 'ActiveState=active\nResult=success\nExecMainStatus=0\nStatusText=Serving 2 devices\n' >"$dir/unit"
doctor
found "a service that runs" 0 service null ok "unit installed, active;" -
printf '[Socket]\nListenSequentialPacket=/run/gpumemd/socket\n' >"$dir/root/usr/lib/systemd/system/gpumemd.socket"
doctor
found "a service that runs, whose folder of sockets is gone" 1 service null fail \
	"the service runs, but its socket file is gone (/run/gpumemd/socket)" "systemd-tmpfiles --create gpumemd.conf"
mkdir "$dir/root/run/gpumemd"
doctor
found "a service that runs, whose socket is gone" 1 service null fail \
	"the service runs, but its socket file is gone (/run/gpumemd/socket)" "run 'systemctl restart gpumemd.socket'"
touch "$dir/root/run/gpumemd/socket"
doctor
found "and whose socket is there again" 0 service null ok "unit installed, active;" -
rm -r "$dir/root/run/gpumemd"
printf 'ActiveState=inactive\nResult=success\nExecMainStatus=0\nStatusText=\n' >"$dir/unit"
doctor
found "neither the service nor its socket is active" 0 service null ok "unit installed, inactive;" -

# ---- steps of the installation that were left out

# more NAME STATUS STATE WORDS REMEDY: the second row of the service.
more() {
	local i
	i=$(row service) && i=$((i + 1))
	if [ "$status $(value "checks.$i.check") $(value "checks.$i.state")" = "$2 service $3" ] &&
		[[ $(value "checks.$i.what") == *"$4"* ]] && [[ $(value "checks.$i.remedy") == *"$5"* ]]; then
		ok "$1"
	else
		not_ok "$1" "$(cat "$dir/json")"
	fi
}
units=$dir/root/usr/lib/systemd/system
fresh
echo "User=no-such-user" >>"$units/gpumemd.service"
doctor
more "the user of the service is missing" 1 fail "there is no user no-such-user" "name a user that exists in User="
fresh
printf '[Service]\nUser=gpumemd\n' >"$units/gpumemd-keeper.service"
printf 'ActiveState=activating\nResult=exit-code\nExecMainStatus=203\nStatusText=\n' >"$dir/keeper-unit"
doctor
more "the keeper's program is missing" 1 fail "gpumemd-keeper running (exit-code 203): its program is missing" "journalctl -u gpumemd-keeper"
for load in masked bad-setting; do
	fresh
	printf 'LoadState=%s\nActiveState=inactive\nResult=success\n' "$load" >"$dir/unit"
	doctor
	found "a unit that systemd does not start: $load" 1 service null fail "$load" "then "
	cp "$dir/unit" "$dir/keeper-unit"
	fresh
	printf '[Service]\nUser=gpumemd\n' >"$units/gpumemd-keeper.service"
	printf 'LoadState=%s\nActiveState=inactive\nResult=success\n' "$load" >"$dir/keeper-unit"
	doctor
	more "nor its keeper: $load" 1 fail "gpumemd-keeper" "'systemctl restart gpumemd-keeper'"
done
fresh
printf '[Service]\nUser=gpumemd\n' >"$units/gpumemd-keeper.service"
printf 'ActiveState=activating\nResult=success\nStatusText=no keeper listens on /run/gpumemd/keeper\n' >"$dir/unit"
doctor
found "a service that waits says for what" 1 service null warn "does not serve yet: no keeper listens" journalctl
more "and doctor, that its keeper does not run" 1 fail "gpumemd-keeper.service does not run" "run 'systemctl start gpumemd-keeper'"
printf 'ActiveState=active\nResult=success\n' >"$dir/keeper-unit"
doctor
more "or that its keeper listens elsewhere" 1 fail "runs, but not on /run/gpumemd/keeper" "systemctl cat gpumemd-keeper.service"
fresh
printf '[Socket]\nSocketGroup=%s\n' "$(id -gn)" >"$units/gpumemd.socket"
printf 'ActiveState=failed\nResult=resources\n' >"$dir/socket-unit"
doctor
more "the socket's unit failed" 1 fail "could not keep gpumemd.socket running (resources)" "journalctl -u gpumemd.socket"
printf '[Socket]\nSocketGroup=no-such-group\n' >"$units/gpumemd.socket"
doctor
more "the group of the socket is missing" 1 fail "there is no group no-such-group, so gpumemd.socket fails" "systemctl edit gpumemd.socket"
fresh
printf '[Socket]\nSocketGroup=no-such-group\n' >"$units/gpumemd-admin.socket"
doctor
more "the group of administrators is missing" 0 warn "there is no group no-such-group, so gpumemd-admin.socket fails" systemd-sysusers
for mode in 777 555 700; do
	fresh
	mkdir "$dir/root/run/gpumemd" && chmod "$mode" "$dir/root/run/gpumemd"
	doctor
	more "the folder of the socket has mode $mode" 1 fail "/run/gpumemd has mode 0$mode" "systemd-tmpfiles --create"
	chmod 755 "$dir/root/run/gpumemd"
done
doctor
[ "$status" = 0 ] && ok "mode 755 is fine" || not_ok "mode 755 is fine" "$(cat "$dir/json")"
# Everybody has a user nobody, and the test does not run as that user.
echo "User=nobody" >>"$units/gpumemd.service"
doctor
more "the folder belongs to another user than the service's" 1 fail "the service, which runs as nobody, cannot make files in it" "systemd-tmpfiles --create"
if has_users; then
	chown nobody "$dir/root/run/gpumemd"
	sed -i s/User=nobody/User=root/ "$units/gpumemd.service"
	doctor
	more "or the service was given another user" 1 fail "so does what its keeper has; the service runs as root" "User=nobody"
else
	ok "or the service was given another user # SKIP needs root to give a folder to another user"
fi
fresh
mkdir "$dir/root/run/gpumemd" && chmod 1777 "$dir/root/run/gpumemd"
printf '[Socket]\nListenSequentialPacket=/run/gpumemd/other\n' >"$units/gpumemd.socket"
doctor
more "a folder that others can write to is no failure where systemd makes the socket" 0 warn "other users can put sockets of their own" "systemd-tmpfiles --create"
fresh
touch "$dir/socket"
doctor
found "a file in the place of the socket" 1 socket null fail "this is a file, not a socket" "remove it"
rm "$dir/socket"

# ---- what devices can do

fresh
export GPUMEM_FAKE_WITHOUT=fd
doctor
found "no fd: ipc alone, with a warning" 0 transport 0 warn "only ipc" "newer driver"
config=$'transport = fd\n'
fresh
export GPUMEM_FAKE_WITHOUT=vmm
doctor
found "fd is configured and cannot be had: a failure" 1 transport 1 fail "not available" "transport = auto"
config=
fresh
export GPUMEM_FAKE_WITHOUT=ipc
doctor
found "no ipc: fd alone, which is enough" 0 transport 0 ok "fd; clients get fd" -
config=$'transport = ipc\n'
fresh
export GPUMEM_FAKE_WITHOUT=ipc
doctor
found "ipc is configured and cannot be had: a failure" 1 transport 0 fail "not available" "transport = auto"
config=
fresh
export GPUMEM_FAKE_WITHOUT=hostnuma
doctor
found "a driver that shares no pinned memory: memfds" 0 pinned null ok "in huge pages (device 0 cannot share the driver's own)" -
echo 'always within_size advise never [deny] force' >"$dir/root/sys/kernel/mm/transparent_hugepage/shmem_enabled"
doctor
found "huge pages that are denied, and what to do" 0 pinned null warn "page by page" "shmem_enabled"
fresh
export GPUMEM_FAKE_WITHOUT=hostnuma
rm "$dir/root/sys/kernel/mm/transparent_hugepage/shmem_enabled"
doctor
found "a kernel without huge pages" 0 pinned null warn "page by page" "Linux 6.1"
fresh
export GPUMEM_FAKE_WITHOUT=hostnuma
echo 'Linux version 5.15.0-91-generic (buildd@lcy02)' >"$dir/root/proc/version"
doctor
found "a kernel that makes none of memfds" 0 pinned null warn "page by page" "Linux 6.1"
config=$'host_memory = memfd\n'
fresh
doctor
found "memfds that are configured" 0 pinned null ok "in huge pages (host_memory = memfd)" -
config=$'host_limit = 0\n'
fresh
doctor
found "no pinned memory at all" 0 pinned null ok "host_limit = 0" -
config=
fresh
export GPUMEM_FAKE_WITHOUT=nvml
doctor
found "no NVML: a warning" 0 nvml null warn "foreign memory is not known" libnvidia-ml
found "with NVML's own name for the reason" 0 nvml null warn "NVML_ERROR_DRIVER_NOT_LOADED" libnvidia-ml
doctor --measure
found "and a context's cost cannot be told" 0 context 0 note "cannot be measured" -
fresh
touch "$GPUMEM_FAKE_DIR"/gpu1.lost "$GPUMEM_FAKE_DIR"/gpu0.{mig,nopm}
doctor
found "a lost device is a failure" 1 device 1 fail "fallen off the bus" Xid
found "beside one that is well" 1 device 0 ok "Fake GPU 0" -
found "MIG: one instance, and how to serve the others" 1 mig 0 note "MIG-f46b6500-6770-756d-656d-640000000100" CUDA_VISIBLE_DEVICES
fresh
touch "$GPUMEM_FAKE_DIR"/gpu0.nopm
doctor
found "persistence mode is off" 0 persistence 0 note off persistenced
fresh
touch "$GPUMEM_FAKE_DIR"/gpu1.fabric
doctor
found "a fabric without a channel" 0 fabric 1 ok "present, without an IMEX channel" -
found "beside a device without one" 0 fabric 0 ok none -
mkdir "$dir/root/dev/nvidia-caps-imex-channels"
doctor
found "a fabric with a channel" 0 fabric 1 ok "present, with an IMEX channel" -
fresh
export GPUMEM_FAKE_FAIL=cuDevicePrimaryCtxRetain:0:2
doctor --measure
found "a context that cannot be made" 0 context 0 warn CUDA_ERROR_OUT_OF_MEMORY memory

# ---- the host

fresh
echo 'Linux version 6.6.87.2-microsoft-standard-WSL2 (root@439a258ad544) (gcc)' >"$dir/root/proc/version"
doctor
found "WSL2 by the kernel's version" 0 platform null note WSL2 -
found "WSL2: the transport that was tried" 0 transport 0 ok "fd; clients get fd (tried" -
config=$'transport = ipc\n'
fresh
echo 'Linux version 6.6.87.2-microsoft-standard-WSL2 (root@439a258ad544) (gcc)' >"$dir/root/proc/version"
doctor
found "WSL2: ipc is configured, where its handles do not open" 1 transport 0 fail "on WSL2 the handles do not open" "auto or fd"
config=
fresh
echo 'Linux version 6.6.87.2-microsoft-standard-WSL2 (root@439a258ad544) (gcc)' >"$dir/root/proc/version"
doctor
found "WSL2: /dev/dxg is wanted" 0 nodes null note "/dev/dxg is missing" "wsl --update"
export GPUMEM_FAKE_FAIL=cuMemExportToShareableHandle:0:1
doctor
found "WSL2: ipc when the trial fails" 0 transport 0 warn "CUDA_ERROR_INVALID_VALUE" "newer driver"
touch "$dir/root/dev/dxg"
unset GPUMEM_FAKE_FAIL
doctor
found "WSL2: /dev/dxg is there" 0 nodes null ok /dev/dxg -

fresh
touch "$dir/root/.dockerenv"
rm "$dir/root/dev/nvidiactl"
doctor
found "a container" 0 container null note Docker "mount the folder of the socket"
row nodes >/dev/null && not_ok "GPUs that answer need no further nodes" "$(cat "$dir/json")" || ok "GPUs that answer need no further nodes"
mkdir -p "$dir/root/proc/driver/nvidia" && touch "$dir/root/proc/driver/nvidia/version"
GPUMEM_FAKE_FAIL=cuInit:0:999 doctor
found "a container without a device node" 0 nodes null note nvidiactl "start the container"
fresh
echo '0::/kubepods.slice/x' >"$dir/root/proc/self/cgroup"
doctor
found "a container by its cgroup" 0 container null note cgroup mount
fresh
mkdir -p "$dir/root/tmp/nvidia-mps" "$dir/root/proc/4711"
echo 4711 >"$dir/root/tmp/nvidia-mps/nvidia-cuda-mps-control.pid"
doctor
found "MPS runs" 0 mps null note "pid 4711" CUDA_MPS_PIPE_DIRECTORY
rmdir "$dir/root/proc/4711"
doctor
found "MPS ran once" 0 mps null ok "no longer running" -
# Anybody can make the folder in /tmp, and in it a pipe, which keeps a reader waiting, or a link to a device.
mkdir "$dir/root/proc/4711"
rm "$dir/root/tmp/nvidia-mps/nvidia-cuda-mps-control.pid"
mkfifo "$dir/root/tmp/nvidia-mps/nvidia-cuda-mps-control.pid"
echo 4711 >"$dir/root/tmp/nvidia-mps/nvidia-cuda-mps-control.pid" &
writer=$!
doctor
kill "$writer" 2>/dev/null
wait "$writer" 2>/dev/null
found "a pipe says nothing about MPS" 0 mps null ok "not running" -
mkdir -p "$dir/root/else" "$dir/root/proc/4712"
echo 4712 >"$dir/root/else/nvidia-cuda-mps-control.pid"
CUDA_MPS_PIPE_DIRECTORY=/else doctor
found "MPS elsewhere" 0 mps null note "pid 4712" PrivateTmp
fresh
# The user of the service need not exist here.
sed /^User=/d "$build/systemd/gpumemd.service" >"$dir/root/usr/lib/systemd/system/gpumemd.service"
for i in 2 3 4 5 6 7; do mkdir "$GPUMEM_FAKE_DIR/gpu$i" && mount -t tmpfs -o size=16m,mode=1777 tmpfs "$GPUMEM_FAKE_DIR/gpu$i"; done
doctor
found "our own unit has an fd store" 0 service null ok "fd store: for 256" -
found "and its descriptors are enough for eight GPUs" 0 descriptors null ok "of its unit is 524288; 8192 clients and 8192 chunks per device need 114752" -
found "and its memory is enough" 0 memory null ok "18.0G" -
found "there are eight of them" 0 device 7 ok "Fake GPU 7" -
for i in 2 3 4 5 6 7; do umount "$GPUMEM_FAKE_DIR/gpu$i" && rmdir "$GPUMEM_FAKE_DIR/gpu$i"; done
fresh
rm "$dir/root/usr/lib/systemd/system/gpumemd.service"
doctor
found "no unit" 0 service null note "without a unit" "make install"
fresh
mkdir -p "$dir/root/etc/systemd/system/gpumemd.service.d"
printf '[Service]\nFileDescriptorStoreMax=8448\nLimitNOFILE=1024\n' >"$dir/root/etc/systemd/system/gpumemd.service.d/small.conf"
doctor
found "a drop-in sets the fd store" 0 service null ok "fd store: for 8448" -
found "a drop-in leaves too few descriptors for two devices and pinned memory" 0 descriptors null warn "need 65600" LimitNOFILE
printf '[gpumemd]\nmin_free = 0\nhost_limit = 0\n' >"$dir/root/etc/gpumemd/gpumemd.conf"
doctor
found "without pinned memory fewer are needed" 0 descriptors null warn "need 57408" LimitNOFILE
found "and too few descriptors" 0 descriptors null warn "of its unit is 1024" "root must raise the hard limit"
printf '[Service]\nMemoryMax=512M\n' >"$dir/root/etc/systemd/system/gpumemd.service.d/memory.conf"
printf '[gpumemd]\nmin_free = 0\nhost_memory = memfd\nhost_limit = 32G\n' >"$dir/root/etc/gpumemd/gpumemd.conf"
doctor
found "a drop-in leaves too little memory for memfds" 0 memory null warn "32.0G of memfds" "MemoryMax="
rm -r "$dir/root/run/systemd"
doctor
found "no systemd" 0 service null note "no systemd" "as the user gpumemd: see FIRST STEPS in gpumemd(8)"
[[ $(value "checks.$(row descriptors).what") == "the limit here is"* ]] && ok "where a unit sets no limit" ||
	not_ok "where a unit sets no limit" "$(cat "$dir/json")"
touch "$dir/root/.dockerenv"
doctor
found "no systemd in a container, which has a supervisor" 0 service null note "no systemd" "the supervisor of the container"
config=$'colour = blue\n'
fresh
doctor
found "a configuration that cannot be read is a failure" 1 config null fail colour "config check"
config=

# ---- with a daemon

start_daemon() {
	NOTIFY_SOCKET='' "$gpumemd" --config "$dir/root/etc/gpumemd/gpumemd.conf" --socket "$GPUMEM_SOCKET" "$@" 2>"$dir/log" &
	daemon=$!
	until "$build/ctl/gpumemctl" version --json >"$dir/json" 2>/dev/null && [ "$(value gpumemd)" != null ]; do
		kill -0 "$daemon" 2>/dev/null || bail "no daemon"
	done
}
stop_daemon() {
	kill "$daemon" && wait "$daemon"
	daemon=
}
fresh
start_daemon
doctor
found "the daemon says what it serves, and how" 0 daemon null ok "serves 2 devices (cuda); clients get fd" -
found "its socket, and its mode" 0 socket null ok "mode 0666" -
grep -q "is not the configuration of" "$dir/json" && not_ok "and that its configuration is this one" "$(cat "$dir/json")" || ok "and that its configuration is this one"
found "its keeper holds something" 0 keeper null ok "descriptors for the next daemon" -
found "its own limit of descriptors" 0 descriptors null "$(value "checks.$(row descriptors).state")" "of the daemon is $(ulimit -Hn)" \
	"$([ "$(ulimit -Hn)" -ge 57408 ] && echo - || echo LimitNOFILE)"
# What counts is what its process may do, not what the unit would allow it.
mkdir -p "$dir/root/proc/$daemon" "$dir/root/sys/fs/cgroup/user.slice/session-1.scope"
echo '0::/user.slice/session-1.scope' >"$dir/root/proc/$daemon/cgroup"
printf '[Service]\nMemoryMax=900G\nLimitNOFILE=524288\n' >"$dir/root/usr/lib/systemd/system/gpumemd.service"
doctor
found "a daemon that is not the service's, though the unit is there" 0 service null note "(pid $daemon) is not the service's" "systemctl start gpumemd"
found "and its memory, which nothing limits" 0 memory null ok "the daemon (pid $daemon) has no limit" -
# A cgroup of version 1 says a number where it has no limit.
mkdir -p "$dir/root/sys/fs/cgroup/memory/user.slice"
echo 9223372036854771712 >"$dir/root/sys/fs/cgroup/memory/user.slice/memory.limit_in_bytes"
echo '7:memory:/user.slice' >"$dir/root/proc/$daemon/cgroup"
doctor
found "nor a cgroup of version 1 without a limit" 0 memory null ok "the daemon (pid $daemon) has no limit" -
echo '0::/user.slice/session-1.scope' >"$dir/root/proc/$daemon/cgroup"
echo max >"$dir/root/sys/fs/cgroup/user.slice/session-1.scope/memory.max"
echo 1073741824 >"$dir/root/sys/fs/cgroup/user.slice/memory.max"
doctor
found "or a cgroup above its own" 0 memory null warn "the daemon (pid $daemon) may use 1.0G" "it does not run as the service"
echo '0::/system.slice/gpumemd.service' >"$dir/root/proc/$daemon/cgroup"
mkdir -p "$dir/root/sys/fs/cgroup/system.slice/gpumemd.service"
echo 1073741824 >"$dir/root/sys/fs/cgroup/system.slice/gpumemd.service/memory.max"
doctor
found "the service's own daemon, which has less than its unit says now" 0 memory null warn "the daemon (pid $daemon) may use 1.0G" "MemoryMax="
found "and it is the service's" 0 service null ok "unit installed" -
stop_daemon
fresh
printf '#!/bin/bash\nulimit -n 4096\nexec "%s" "$@"\n' "$gpumemd" >"$dir/limited" && chmod +x "$dir/limited"
gpumemd=$dir/limited start_daemon
doctor
found "a limit that the unit would raise" 0 descriptors null warn "of the daemon is 4096" "this container or machine does not"
stop_daemon
rm "$dir/root/usr/lib/systemd/system/gpumemd.service"
gpumemd=$dir/limited start_daemon
doctor
found "a limit without a unit" 0 descriptors null warn "of the daemon is 4096" "root must raise the hard limit"
stop_daemon
fresh
printf '[gpumemd]\nmin_free = 0\ntransport = ipc\n' >"$dir/other"
start_daemon --config "$dir/other"
doctor
found "whatever it was configured by" 0 daemon null ok "serves 2 devices (cuda); clients get ipc" -
says_other="$dir/root/etc/gpumemd/gpumemd.conf is not the configuration of the running daemon, which reads $dir/other"
grep -qF "$says_other" "$dir/json" && ok "and that it has another configuration" || not_ok "and that it has another configuration" "$(cat "$dir/json")"
stop_daemon
GPUMEM_FAKE_FAIL=cuMemExportToShareableHandle:0:999 start_daemon
until doctor && row daemon 0 >/dev/null; do kill -0 "$daemon" 2>/dev/null || break; done
found "what the driver refused the daemon" 0 daemon 0 warn "cuMemExportToShareableHandle: CUDA_ERROR_UNKNOWN" journalctl
stop_daemon
LD_LIBRARY_PATH='' start_daemon
doctor
found "a daemon that missed the GPU" 0 daemon null warn "cuda: no NVIDIA driver" restart
if has_users; then
	# This user may look into every folder, wherever the build is and whatever the umask, but may not open the socket.
	chmod 0600 "$GPUMEM_SOCKET"
	install -m 0755 "$build/ctl/gpumemctl" "$dir/gpumemctl"
	setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps +dac_read_search --ambient-caps +dac_read_search -- \
		env LD_LIBRARY_PATH="$libraries" "$dir/gpumemctl" doctor --json >"$dir/json" 2>"$dir/stderr"
	status=$?
	found "a socket that may not be opened is a failure" 1 socket null fail "may not open the socket" "group"
else
	ok "a socket that may not be opened is a failure # SKIP needs root to become another user"
fi
stop_daemon

echo "1..$n"
