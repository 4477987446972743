# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154,SC2034 # the caller sets build and source, and uses what is set here
# For tests of gpumemctl: a private daemon, workers, and checks of what gpumemctl says. The caller sources functions.sh first.

gpumemd=$build/daemon/gpumemd examples=$build/examples json=$build/tests/integration/json-get
backend=${GPUMEM_TEST_BACKEND:-host}
declare -A pid=() in=() out=()

clean() {
	[ -n "${pid[daemon]:-}" ] && kill -CONT "${pid[daemon]}" 2>/dev/null
	[ ${#pid[@]} -gt 0 ] && kill "${pid[@]}" 2>/dev/null
	wait
}
scratch ctl
mkfifo "$dir/ready"
exec {ready}<>"$dir/ready"
# Other users must reach the socket and the program.
chmod 755 "$dir"
install -m 0755 "$build/ctl/gpumemctl" "$dir/gpumemctl" || bail "no gpumemctl"
gpumemctl=$dir/gpumemctl
# Remedies then name the programs as they are.
PATH=$dir:$(cd "$build/daemon" && pwd):$PATH
export GPUMEM_SOCKET=$dir/socket COLUMNS=80 LC_ALL=C.UTF-8
unset NOTIFY_SOCKET LISTEN_FDS LISTEN_PID NO_COLOR

# run EXPECTED-STATUS ARGUMENT...: succeeds if gpumemctl ends with that status. Leaves its stdout and stderr in files.
as=()
run() {
	local expected=$1
	shift
	"${as[@]}" "$gpumemctl" "$@" >"$dir/stdout" 2>"$dir/stderr"
	status=$?
	[ $status = "$expected" ]
}
# check NAME CONDITION...: one test.
check() {
	if "${@:2}"; then
		ok "$1"
	else
		not_ok "$1" "not so: ${*:2}" "status ${status:-}" "$(cat "$dir/stdout")" "$(cat "$dir/stderr")"
	fi
}
says() { grep -qF -- "$1" "$dir/stdout"; }
complains() { grep -qF -- "$1" "$dir/stderr"; }
silent() { [ ! -s "$dir/$1" ]; }
fits() { ! sed 's/…/./g' "$dir/stdout" | awk 'length > 80 { bad = 1 } END { exit !bad }'; }
value() { "$json" "$1" <"$dir/stdout" 2>/dev/null; }
parses() { "$json" keys <"$dir/stdout" >/dev/null; }
is() { [ "$(value "$1")" = "$2" ]; }
# all CONDITION...: each condition is a command as typed in a shell, so paths in it are quoted.
all() {
	local condition
	for condition; do eval "$condition" || return 1; done
}

with_us() {
	local fd
	for fd in "${in[@]}" "${out[@]}" ${ready:-}; do exec {fd}>&-; done
	# Where make was started in the background, SIGINT is ignored, and only env can undo that.
	exec env --default-signal=INT setpriv --pdeathsig TERM -- "$@"
}
await() { read -r -t 60 -u "$ready" line && [ "$line" = "$1" ]; }
start_daemon() {
	with_us "$examples/demo-ready" "$dir/notify" >"$dir/ready" &
	pid[ready]=$!
	await listening || bail "cannot wait for the daemon"
	NOTIFY_SOCKET=$dir/notify with_us "$gpumemd" --backend "$backend" --config "$dir/gpumemd.conf" --socket "$GPUMEM_SOCKET" \
		2>>"$dir/log" &
	pid[daemon]=$!
	await ready || bail "the daemon did not start"
	wait "${pid[ready]}"
	unset 'pid[ready]'
}
# start_worker NAME [PROGRAM]
start_worker() {
	mkfifo "$dir/$1.in" "$dir/$1.out" || bail "no pipe"
	local to from
	exec {to}<>"$dir/$1.in" {from}<>"$dir/$1.out"
	in[$1]=$to out[$1]=$from
	with_us "${2:-$examples/demo-worker}" "$1" <"$dir/$1.in" >"$dir/$1.out" &
	pid[$1]=$!
	answer "$1"
}
answer() {
	local line
	read -r -t 60 -u "${out[$1]}" line || bail "$1 does not answer"
	case $line in ok*) ;; *) bail "$1: $line" ;; esac
}
ask() {
	echo "${*:2}" >&"${in[$1]}"
	answer "$1"
}
# await_value VERB PATH VALUE: asks until the value is there, and fails after a while.
await_value() {
	local end=$((SECONDS + 60))
	until run 0 "$1" --json && is "$2" "$3"; do
		[ $SECONDS -lt $end ] || return 1
	done
}
