#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# For tests under a real systemd. A script that sources this calls enter_sandbox "$@" first: outside, that runs the script again in a
# sandbox and ends; inside, it returns. The tests wait for lines in two logs: one of events, which steps of the unit write, and
# the daemon's. GPUMEM_TEST_BACKEND=cuda runs them on a fake GPU, whose driver and memory lie where the confined service reaches
# them.
umask 022 # services of other users must be able to read what this makes
: "${top_srcdir:?}" "${top_builddir:?}"
backend=${GPUMEM_TEST_BACKEND:-host} lib=/run/sandbox/lib gpus=/run/sandbox/gpus
socket=/run/gpumemd/socket

# ---- outside

# Makes the sandbox's folder, and runs this script in it.
run_in_sandbox() {
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	mkdir -p "$work/units/gpumemd.service.d" "$work/units/gpumemd-keeper.service.d" "$work/root/bin"
	# libtool takes a blank for the end of a path, so it gets a name without one.
	exec {bin}<"$work/root/bin"
	for program in daemon/gpumemd keeper/gpumem-keeper ctl/gpumemctl tests/integration/systemd_worker; do
		"$top_builddir/libtool" --silent --mode=install install -m 0755 "$top_builddir/$program" "/proc/$$/fd/$bin/" >/dev/null ||
			{ echo "Bail out! $program cannot be installed into the sandbox"; exit 1; }
	done
	exec {bin}<&-
	for unit in gpumemd gpumemd-keeper; do
		sed 's|@bindir@|/run/sandbox/bin|g' "$top_srcdir/systemd/$unit.service.in" >"$work/units/$unit.service"
	done
	# The pause of a unit that cannot start, written down.
	mkdir "$work/root/stub"
	printf '#!/bin/sh\necho "a pause of $1 seconds"\nexec /bin/sleep "$1"\n' >"$work/root/stub/sleep"
	chmod 0755 "$work/root/stub/sleep"
	printf '[Service]\nEnvironment=PATH=/run/sandbox/stub:/usr/bin:/bin\nEnvironment=ASAN_OPTIONS=detect_leaks=0\nStandard%s=append:/run/sandbox/log\nStandard%s=append:/run/sandbox/log\n' Output Error \
		>"$work/units/gpumemd-keeper.service.d/test.conf"
	cp "$top_srcdir/systemd/gpumemd.socket" "$work/units/"
	cp "$top_srcdir/systemd/sysusers.d/gpumemd.conf" "$work/root/sysusers.conf"
	cp "$top_srcdir/systemd/tmpfiles.d/gpumemd.conf" "$work/root/tmpfiles.conf"
	cp "$top_srcdir/systemd/gpumemd.service.d/terminate.conf" "$work/root/"
	cp "$0" "$top_srcdir/tests/integration/systemd-functions.sh" "$work/root/"
	if [ -n "${GPUMEM_TEST_OLD-}" ]; then cp -r "$GPUMEM_TEST_OLD" "$work/root/old"; fi
	# There is no journal inside. The unit itself writes down its starts and ends, outside of its confinement.
	cat >"$work/units/gpumemd.service.d/test.conf" <<-'UNIT'
		[Service]
		WatchdogSec=2s
		StandardOutput=append:/run/sandbox/log
		StandardError=append:/run/sandbox/log
		ExecStartPost=+/bin/sh -c 'echo "started $MAINPID" >>/run/sandbox/events'
		ExecStopPost=+/bin/sh -c 'echo "ended $SERVICE_RESULT $EXIT_CODE $EXIT_STATUS" >>/run/sandbox/events'
		Environment=PATH=/run/sandbox/stub:/usr/bin:/bin
		# For builds with sanitizers: the search for leaks needs ptrace, which the unit rightly denies.
		Environment=ASAN_OPTIONS=detect_leaks=0
	UNIT
	if [ "$backend" = cuda ]; then
		mkdir "$work/root/lib" && cp -L "$top_builddir"/tests/fake/lib/lib*.so.1 "$work/root/lib/" ||
			{ echo "Bail out! there is no fake driver"; exit 1; }
		cat >>"$work/units/gpumemd.service.d/test.conf" <<-UNIT
			Environment=LD_LIBRARY_PATH=$lib GPUMEM_FAKE_DIR=$gpus
			Environment=GPUMEM_FAKE_INIT_BYTES=0 GPUMEM_FAKE_CONTEXT_BYTES=0
			ReadWritePaths=$gpus
		UNIT
	fi
	# The thread sanitizer arranges its address space with personality().
	if grep -q __tsan_init "$work/root/bin/gpumemd"; then
		for unit in gpumemd gpumemd-keeper; do echo LockPersonality=no >>"$work/units/$unit.service.d/test.conf"; done
	fi
	"$top_srcdir/tests/integration/systemd-sandbox" "$work" bash "/run/sandbox/$(basename "$0")" inside \
		2>"$work/stderr"
	status=$?
	sed 's/^/# /' "$work/stderr" >&2
	if [ "$status" = 77 ]; then
		echo "1..0 # SKIP $(tail -n 1 "$work/stderr")"
		exit 0
	fi
	exit "$status"
}

enter_sandbox() {
	[ "${1-}" = inside ] || run_in_sandbox
	cd /run/sandbox || exit 99
	PATH=/run/sandbox/bin:$PATH
	touch events log
	unset GPUMEM_SOCKET XDG_RUNTIME_DIR
	if [ "$backend" = cuda ]; then
		mkdir "$gpus" && mount -t tmpfs -o mode=1777 tmpfs "$gpus" && mkdir "$gpus/gpu0" &&
			mount -t tmpfs -o mode=1777,size=1g tmpfs "$gpus/gpu0" || exit 99
		export LD_LIBRARY_PATH=$lib GPUMEM_FAKE_DIR=$gpus GPUMEM_FAKE_INIT_BYTES=0 GPUMEM_FAKE_CONTEXT_BYTES=0
	fi
}

# ---- inside

# Waits for a matching line of a file, from the given line on, and prints it. It wakes up when the file grows, and gives up even if that
# never ends.
await() {
	local file=$1 from=$2 pattern=$3 line status=1 fd tail end=$((SECONDS + 60))
	exec {fd}< <(exec tail -n "+$from" -F "$file" 2>/dev/null)
	tail=$!
	while [ "$SECONDS" -le "$end" ] && read -r -t 60 -u "$fd" line; do
		if [[ $line =~ $pattern ]]; then
			echo "$line"
			status=0
			break
		fi
	done
	kill "$tail" 2>/dev/null
	exec {fd}<&-
	[ "$status" = 0 ] || echo "no line like \"$pattern\" in $file from line $from on" >&2
	return "$status"
}
next_line() { echo $(($(wc -l <"$1") + 1)); }
property() { systemctl show -P "$1" "${2:-gpumemd.service}"; }
# An ordinary user, who is not in our group.
as_user() { setpriv --reuid 64998 --regid 64998 --clear-groups "$@"; }
expect() { [ "$2" = "$3" ] || { echo "$1: expected \"$3\", got \"$2\"" >&2; return 1; }; }
status_works() { as_user gpumemctl --socket "$socket" status >/dev/null; }

# The highest value that LimitNOFILE= can have: without the capability, systemd goes no higher than its own limit.
most_files() {
	local most=524288 own
	own=$(awk '/^Max open files/ { print $5 }' /proc/1/limits)
	if ! ((0x$(awk '/^CapEff:/ { print $2 }' /proc/1/status) >> 24 & 1)) && [ "$own" -lt "$most" ]; then
		most=$own
	fi
	echo "$most"
}

keeper_pid() { property MainPID gpumemd-keeper.service; }

# figure KEY: a number of gpumemctl status.
figure() { gpumemctl --socket "$socket" status --json | tr -d ' \n' | grep -o "\"$1\":[^,}]*" | head -n 1 | cut -d: -f2; }

configure() { mkdir -p /etc/gpumemd && printf "$1" >/etc/gpumemd/gpumemd.conf; }

# Checks that the daemon came back: the log of events has another process from that line on, and the daemon works.
came_back() {
	local from=$1 pid=$2 line
	line=$(await events "$from" '^started') && [ "$line" != "started $pid" ] && status_works
}

# Starts a client of that uid that takes so many MiB and keeps them.
declare -A holder=()
take() {
	rm -f "held.$1"
	(exec setpriv --reuid "$1" --regid "$1" --clear-groups env GPUMEM_SOCKET="$socket" \
		systemd_worker hold "$2" >"held.$1" 2>&1) &
	holder[$1]=$!
}
# The same, and waits until it has them. Fails if it does not get them: held.UID says why.
hold() {
	take "$1" "$2"
	[ "$(await "held.$1" 1 .)" = held ]
}
let_go() {
	local uid
	for uid in "${!holder[@]}"; do
		kill -KILL "${holder[$uid]}" 2>/dev/null
		wait "${holder[$uid]}" 2>/dev/null
	done
	holder=()
}
lives() { kill -0 "${holder[$1]}" 2>/dev/null; }

run_tests() {
	local n=0 failed=0 test
	echo "1..$#"
	for test; do
		n=$((n + 1))
		if "$test" >output 2>&1; then
			echo "ok $n - $test"
		else
			failed=$((failed + 1))
			echo "not ok $n - $test"
			sed 's/^/# /' output
		fi
	done
	if [ "$failed" != 0 ]; then
		sed 's/^/# events: /' events
		tail -n 100 log | sed 's/^/# log: /'
	fi
	exit $((failed != 0))
}
