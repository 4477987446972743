#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Devices by UUID and PCI address, in the configuration and for gpumemctl, on two fake GPUs of different sizes. What is set for
# a GPU holds whatever its number is, and a name that no GPU has is reported.
set -u
build=$(realpath "${top_builddir:-.}") source=$(realpath "${top_srcdir:-.}")
: "${GPUMEM_FAKE_DIR:?is unset: run make check TESTS=tests/integration/names-fake.variant}"
ctl=$build/ctl/gpumemctl json=$build/tests/integration/json-get
. "$source/tests/integration/functions.sh"
uuid=f46b6500-6770-756d-656d-6400000000

scratch names
export GPUMEM_SOCKET=$dir/socket LC_ALL=C.UTF-8
unset NOTIFY_SOCKET LISTEN_FDS LISTEN_PID CUDA_VISIBLE_DEVICES

is() { # NAME EXPECTED GOT
	if [ "$2" = "$3" ]; then
		ok "$1"
	else
		not_ok "$1" "expected: $2" "got:      $3" "$(cat "$dir/log" "$dir/stderr" 2>/dev/null)"
	fi
}
says() { # NAME PART TEXT
	if [[ $3 == *"$2"* ]]; then is "$1" yes yes; else is "$1" "$2" "$3"; fi
}
configure() { printf '[gpumemd]\nbackend = cuda\nmin_free = 0\nreserve = 0\nfraction = 0.875\nhost_limit = 4M\n%b' "$1" >"$dir/conf"; }
start() {
	"$build/daemon/gpumemd" --config "$dir/conf" --socket "$GPUMEM_SOCKET" 2>"$dir/log" &
	daemon=$!
	until [ "$("$ctl" version --json 2>/dev/null | "$json" gpumemd 2>/dev/null)" != null ]; do
		kill -0 "$daemon" 2>/dev/null || bail "no daemon"
	done
}
stop() {
	kill "$daemon" && wait "$daemon"
	daemon=
}
fractions() { # prints those of the devices, in order
	"$ctl" devices --json >"$dir/json" 2>"$dir/stderr"
	echo "$("$json" devices.0.fraction <"$dir/json") $("$json" devices.1.fraction <"$dir/json")"
}
pressures() { "$ctl" pressure --json "$@" 2>"$dir/stderr" | "$json" pressure.0.device; }

configure "[device GPU-${uuid}01]\nfraction = 0.5\n[device a0:00.0]\nfraction = 0.25\n[device A1:00.0 limit uid:7]\nmax = 64M\n"
start
is "what is set by UUID and by PCI address holds for those devices" "0.25 0.5" "$(fractions)"
is "capacities follow from each one's own size" "134217728 134217728" \
	"$("$json" devices.0.capacity <"$dir/json") $("$json" devices.1.capacity <"$dir/json")"
is "a UUID is shown as nvidia-smi shows it" "GPU-${uuid}01" "$("$json" devices.1.uuid <"$dir/json")"
is "a limit by PCI address is one of that device" "1 67108864" \
	"$("$ctl" limit --json | "$json" limits.0.device) $("$ctl" limit --json | "$json" limits.0.max)"
is "gpumemctl finds a device by UUID" 1 "$(pressures --device "GPU-${uuid}01")"
is "by UUID without a prefix, in capitals" 1 "$(pressures --device "${uuid^^}01")"
is "by PCI address" 0 "$(pressures --device 0000:A0:00.0)"
is "by the address of nvidia-smi" 1 "$(pressures --device 00000000:a1:00.0)"
is "by number" 1 "$(pressures --device 1)"
pressures --device "GPU-${uuid}09" >/dev/null
says "a device that is not served is said so" "serves no device GPU-${uuid}09" "$(cat "$dir/stderr")"
"$ctl" trim --device "GPU-${uuid}09" >/dev/null 2>&1
is "and nothing is done" 1 $?
"$ctl" trim --device GPU-f46b >/dev/null 2>"$dir/stderr"
is "half a UUID is wrong use" 2 $?
says "which is told" "a UUID, a PCI address or pinned" "$(cat "$dir/stderr")"
"$ctl" limit set uid:7 max=32M --device "GPU-${uuid}00" >/dev/null 2>"$dir/stderr"
is "a limit is set on a device by its UUID" "0 33554432" \
	"$("$ctl" limit --json | "$json" limits.0.device) $("$ctl" limit --json | "$json" limits.0.max)"

configure "[device GPU-${uuid}01]\nfraction = 0.75\n[device GPU-${uuid}09]\nfraction = 0.1\n[device ff:00.0 limit uid:7]\nmax = 1M\n"
kill -HUP "$daemon"
until grep -q 'configuration reloaded' "$dir/log"; do kill -0 "$daemon" || break; done
is "a reload goes by names, too" "0.875 0.75" "$(fractions)"
says "a name that is nobody's is told" "[device GPU-${uuid}09] has no effect" "$(cat "$dir/log")"
says "and so is a limit's" "[device ff:00.0] has no effect" "$(cat "$dir/log")"
configure "[device 1]\nfraction = 0.5\n[device GPU-${uuid}01]\nfraction = 0.6\n"
kill -HUP "$daemon"
until grep -q 'stays as it was' "$dir/log"; do kill -0 "$daemon" || break; done
says "one device under two names cannot have two values" "fraction: is already set" "$(cat "$dir/log")"
is "and the configuration stays" "0.875 0.75" "$(fractions)"
stop

configure "[device GPU-${uuid}01]\nfraction = 0.5\n"
export CUDA_VISIBLE_DEVICES=GPU-${uuid}01,0
start
is "in another order a name means the same GPU" "0.5 0.875" "$(fractions)"
is "which is device 0 now" 0 "$(pressures --device A1:00.0)"
stop

echo "1..$n"
