#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The figures that people see must add up and agree: what a client holds, what a cleanup can get back, how often a request is
# counted, and how pressure falls when many clients are killed at once. Real clients, on a device of 2G.
set -u
build=$(realpath "${top_builddir:-.}") source=$(realpath "${top_srcdir:-.}")
backend=${GPUMEM_TEST_BACKEND:-host}
ctl=$build/ctl/gpumemctl json=$build/tests/integration/json-get
. "$source/tests/integration/functions.sh"
. "$source/tests/integration/actor-functions.sh"

clean() {
	end_actors
	[ -z "$watch" ] || { kill "$watch" && wait "$watch"; } 2>/dev/null
	[ -z "$daemon" ] || { kill "$daemon" && wait "$daemon"; }
}
watch=
scratch figures
export GPUMEM_SOCKET=$dir/socket COLUMNS=100 LC_ALL=C.UTF-8
unset NOTIFY_SOCKET LISTEN_FDS LISTEN_PID NO_COLOR
install_actor

# ---- helpers

# Ends the daemon of the last scene and starts another. Its clients are gone.
start() { # CONFIGURATION
	[ -z "$daemon" ] || { kill "$daemon" && wait "$daemon"; }
	end_keeper "$dir"
	printf '[gpumemd]\nreserve = 0\nmin_free = 0\nhost_limit = 0\nfraction = 1\n%s\n[device 0]\nsize = 2G\n' "$1" >"$dir/conf"
	: >"$dir/log"
	"$build/daemon/gpumemd" --backend "$backend" --config "$dir/conf" --socket "$GPUMEM_SOCKET" 2>"$dir/log" &
	daemon=$!
	until "$ctl" status >/dev/null 2>&1; do
		kill -0 "$daemon" 2>/dev/null || bail "no daemon"
	done
}
client() { start_actor "$1" "$dir/actor" "$1"; }
leave() { # NAME [SIGNAL]
	[ $# = 1 ] || kill -"$2" "${pid[$1]}"
	end_actor "$1"
}
value() { "$ctl" "$1" --json | "$json" "$2"; }
until_value() { # VERB PATH VALUE
	local end=$((SECONDS + 60))
	until [ "$(value "$1" "$2" 2>/dev/null)" = "$3" ]; do [ $SECONDS -lt $end ] || return 1; done
}
# The line about the present level, with which a watch begins.
first_line() {
	: >"$dir/first"
	"$ctl" watch >"$dir/first" &
	until grep -q . "$dir/first"; do kill -0 $! || bail "watch ended"; done
	kill $!
	wait $! 2>/dev/null
	head -n 1 "$dir/first"
}
# Writes events to $dir/events until the scene ends. The first line is the present level.
observe() {
	: >"$dir/events"
	"$ctl" watch --json >"$dir/events" &
	watch=$!
	until [ -s "$dir/events" ]; do kill -0 "$watch" || bail "watch ended"; done
}
observed() {
	kill "$watch"
	wait "$watch" 2>/dev/null
	watch=
}
# The newest event is told to watchers in order, so a marker says that everything before it was told.
marked() {
	"$ctl" limit set client:marker max=1G >/dev/null
	until grep -q client:marker "$dir/events"; do kill -0 "$watch" || bail "watch ended"; done
	"$ctl" limit reset client:marker >/dev/null
}
sum_of() { echo $(($(value clients "clients.$1.use.0.in_use") + $(value clients "clients.$1.use.0.cached") + \
	$(value clients "clients.$1.use.0.slack"))); }
count() { grep -c "$1" "$dir/events"; }
MiB=1048576

# ---- what a client holds

# Long enough for a client on a busy machine; one that is stopped costs it.
start 'reclaim_deadline = 3s'
client round
is "a block of 300M is had" ok "$(ask round alloc 300M)"
is "its chunks are larger" $((304 * MiB)) "$(value clients clients.0.use.0.held)"
until_value clients clients.0.use.0.in_use $((300 * MiB)) || bail "no figures"
is "the difference is slack" $((4 * MiB)) "$(value clients clients.0.use.0.slack)"
is "and not cached, since it cannot be returned" 0 "$(value clients clients.0.use.0.cached)"
is "both have a column" 1 "$("$ctl" clients | grep -c 'IN USE *CACHED *SLACK')"
"$ctl" cleanup >"$dir/stdout" 2>&1
is "a cleanup that finds only slack succeeds" 0 $?
is "and says that there is nothing to do" "Device 0: there is nothing to do." "$(cat "$dir/stdout")"
is "nobody is blamed" 0 "$(grep -c 'in time' "$dir/log")"

ask round alloc 20M >/dev/null
ask round alloc 100 >/dev/null
ask round alloc 3000000 >/dev/null
ask round free >/dev/null
until_value clients clients.0.use.0.in_use $((320 * MiB + 100)) || bail "no figures"
is "what is in use, cached and slack is what is held" "$(value clients clients.0.use.0.held)" "$(sum_of 0)"
cached=$(value clients clients.0.use.0.cached)
"$ctl" cleanup --json >"$dir/stdout" 2>&1
is "a cleanup gets back what is cached" "0 $cached" "$? $("$json" devices.0.freed <"$dir/stdout")"
until_value clients clients.0.use.0.cached 0 || bail "no figures"
is "and the rest still adds up" "$(value clients clients.0.use.0.held)" "$(sum_of 0)"
leave round

# A client that is stopped while it caches could have returned it.
client idle
ask idle alloc 304M >/dev/null
ask idle alloc 64M >/dev/null
ask idle free >/dev/null
until_value clients clients.0.use.0.cached $((64 * MiB)) || bail "no figures"
kill -STOP "${pid[idle]}"
"$ctl" cleanup >"$dir/stdout" 2>&1
is "a cleanup that does not get what is cached fails" 6 $?
is "and the client is blamed for that much" 1 "$(grep -c 'was asked for 64.0M and returned none of it in time' "$dir/log")"
kill -CONT "${pid[idle]}"
leave idle

# ---- how often a request counts

# counted TEXT: requests and refusals since the last call, and lines about the limit since the watch began.
counted() {
	local requests refusals
	marked
	requests=$(value status requests) refusals=$(value status refusals)
	is "$1" "${*:2}" "$((requests - before_requests)) $((refusals - before_refusals)) $(count '"event":"limit"')"
	before_requests=$requests before_refusals=$refusals
	observed
	observe
}
start 'reclaim_deadline = 50ms'
before_requests=0 before_refusals=0
"$ctl" limit set client:small max=256M >/dev/null
client small
observe
is "a block above the limit is refused" "over a limit" "$(ask small alloc 300M | cut -d: -f1)"
counted "which is one request, one refusal and one line" 1 1 1
is "a block within the limit is had" ok "$(ask small alloc 64M)"
counted "which is one request" 1 0 0
is "a block that does not fit beside it is refused" "over a limit" "$(ask small alloc 224M | cut -d: -f1)"
counted "once, although the library looked for more ways to get it" 1 1 1
ask small alloc 192M >/dev/null
counted "a block that just fits" 1 0 0
is "a small block does not" "over a limit" "$(ask small alloc 100 | cut -d: -f1)"
counted "which also counts once" 1 1 1
is "a block that may wait does not come" 0 "$(ask small alloc 4M 50ms | grep -c '^ok')"
counted "which also counts once" 1 1 1
client other
"$ctl" limit set "uid:$(id -u)" max=512M >/dev/null
is "memory that other clients share the limit of is had" ok "$(ask other alloc 200M)"
counted "with one request" 1 0 0
is "more than is left of it is refused" "over a limit" "$(ask other alloc 64M | cut -d: -f1)"
counted "once" 1 1 1
observed
leave other
leave small

# ---- pressure

start 'pressure_dwell = 1h'
observe
names=(one two three four five six seven eight)
for name in "${names[@]}"; do
	client "$name"
	ask "$name" alloc 252M >/dev/null
done
marked
until_value pressure pressure.0.level critical || bail "no pressure"
is "watch and pressure show the same number" "$("$ctl" pressure | awk 'NR == 2 { print $2 }')" \
	"$(first_line | sed 's/.*(\(.*\))/\1/')"
{
	for name in "${names[@]}"; do kill -KILL "${pid[$name]}"; done
	for name in "${names[@]}"; do leave "$name"; done
} 2>/dev/null
until_value pressure pressure.0.available $((2048 * MiB)) || bail "pressure did not fall"
is "no pressure is low as soon as clients are killed" low "$(value pressure pressure.0.level)"
is "whoever begins to watch then is told the same" "device 0: pressure is low (0%)" \
	"$(first_line | sed 's/.*  device/device/')"
is "and no event said otherwise" 0 "$(awk -F'"pressure":' '/"level":"critical"/ && $2 + 0 < 0.9' "$dir/events" | wc -l)"
observed

echo "1..$n"
