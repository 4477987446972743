#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The exit status of every verb of gpumemctl in every state that the daemon can be in, as gpumemctl(1) promises it.
# shellcheck disable=SC2016 # conditions of all() are expanded there
set -u
umask 022 # other users must be able to read what this makes
build=${top_builddir:-.} source=${top_srcdir:-.}
. "$source/tests/integration/functions.sh"
. "$source/tests/integration/ctl-functions.sh"

printf '[gpumemd]\nmin_free = 0\nhost_limit = 0\nreserve = 0\n[device 0]\nsize = 1G\n' >"$dir/gpumemd.conf"

# Verb with arguments | not running | hung | forbidden | running. watch has no end while the daemon runs, and stop ends it.
table='
status                          | 3 3 4 0
devices                         | 3 3 4 0
pools                           | 3 3 4 0
who                             | 3 3 4 0
who 9                           | 3 3 4 1
clients                         | 3 3 4 0
buffers                         | 3 3 4 0
shares                          | 3 3 4 0
shares remove nobody            | 3 3 4 1
weights                         | 3 3 4 0
weights list                    | 3 3 4 0
weights load CONF --name x      | 3 3 4 1
weights remove nobody           | 3 3 4 1
trim                            | 3 3 4 0
limit                           | 3 3 4 0
limit set client:nobody max=1G  | 3 3 4 0
limit reset                     | 3 3 4 0
pressure                        | 3 3 4 0
pressure --quiet                | 3 3 4 0
queue                           | 3 3 4 0
cleanup                         | 3 3 4 0
cleanup --dry-run               | 3 3 4 0
cleanup --need 2G               | 3 3 4 6
place 1M                        | 3 3 4 0
place 2T                        | 3 3 4 1
estimate --hidden 64 --intermediate 64 --layers 1 --vocab 64 --heads 1 --context 64 | 0 0 0 0
evict 999999                    | 3 3 4 1
restore 999999/1                | 3 3 4 1
drain 0                         | 3 3 4 0
drain 0 --undo                  | 3 3 4 0
kill nobody                     | 3 3 4 1
watch                           | 3 3 4 -
metrics                         | 3 3 4 0
stop                            | 3 3 4 -
config show                     | 3 3 4 0
config check CONF               | 0 0 0 0
doctor                          | 0 1 1 0
version                         | 0 0 0 0
help                            | 0 0 0 0
'
listed=$(awk 'NF { print $1 }' <<<"$table" | sort -u)
run 0 help --csv --no-header
check "every verb is in the table of this test" [ "$(cut -d, -f1 "$dir/stdout" | sort -u)" = "$listed" ]

# all_verbs COLUMN STATE: one test for each verb, as a table and as JSON.
all_verbs() {
	local words statuses expected format
	while IFS='|' read -r words statuses; do
		expected=$(cut -d' ' -f$(($1 + 1)) <<<"$statuses")
		[ -n "$expected" ] && [ "$expected" != - ] || continue
		words=${words//CONF/$dir/gpumemd.conf}
		for format in "" --json; do
			# shellcheck disable=SC2086 # the words are meant to be split
			run "$expected" $words $format --timeout "$timeout"
			case $words$format$expected in
			metrics*--json*) check "$2: metrics has no JSON: 2" all "[ $status = 2 ]" "silent stdout" ;;
			metrics*3 | metrics*4) check "$2: metrics: $expected, and gpumem_up is 0" all "[ $status = $expected ]" 'grep -qx "gpumem_up 0" "$dir/stdout"' "complains gpumemctl:" ;;
			*3 | *4) check "$2: $(echo $words $format): $expected" all "[ $status = $expected ]" "silent stdout" "complains gpumemctl:" ;;
			*) check "$2: $(echo $words $format): $expected" [ "$status" = "$expected" ] ;;
			esac
		done
	done <<<"$table"
}

timeout=60s
"$build/run/gpumem-run" --socket "$dir/nowhere" true 2>"$dir/stderr"
check "gpumem-run names the socket as what it was given" all "complains '$dir/nowhere (the socket that was given)'" "! complains gpumem_connect"
all_verbs 1 "not running"

start_daemon
all_verbs 4 "running"

kill -STOP "${pid[daemon]}"
timeout=20ms
all_verbs 2 "hung"
run 3 clients --timeout 20ms
check "hung: the message says so" all "complains 'did not answer within 20ms'" "complains 'overloaded or stopped'"
run 3 stop --timeout 20ms
check "hung: stop ends in time, names the daemon, and says what ends it and loses nothing" all "[ $status = 3 ]" \
	"complains 'the daemon (pid ${pid[daemon]}) at '" "complains 'did not answer within 20ms, and was not ended'" "complains \"'kill -KILL ${pid[daemon]}' ends it\""
run 1 doctor --json --timeout 1s
check "hung: doctor names the daemon that the keeper serves, and does not advise to end the keeper" all "says 'serves a daemon that runs (pid ${pid[daemon]})'" \
	"says \"end that daemon, not the keeper: 'kill ${pid[daemon]}'\"" "! says 'to give up what it keeps, end the keeper'"
kill -CONT "${pid[daemon]}"
timeout=60s

# A daemon whose socket somebody has removed: every message names it, and its remedy works.
rm "$GPUMEM_SOCKET"
gone=${pid[daemon]}
run 3 status
check "a removed socket: status names the daemon" all "complains '(pid $gone), but somebody has removed the socket'" "complains \"run 'kill $gone'\""
run 3 stop
check "a removed socket: so does stop" all "complains \"run 'kill $gone'\"" "! complains 'nothing to stop'"
run 1 doctor --json
check "a removed socket: and doctor, at the socket and at the keeper" all "says \"run 'kill $gone'\"" \
	"says \"end that daemon, not the keeper: 'kill $gone'\"" "! says 'runs without a daemon'"
"$gpumemd" --backend "$backend" --config "$dir/gpumemd.conf" --socket "$GPUMEM_SOCKET" 2>"$dir/stderr"
check "a removed socket: and the next daemon" complains "run 'kill $gone', then start gpumemd again"
kill "$gone"
wait "$gone"
unset 'pid[daemon]'
start_daemon
run 0 status
check "and after that the next daemon serves" [ "$status" = 0 ]

# A daemon that is killed leaves its keeper.
run 0 doctor || [ $status = 1 ]
check "doctor: nothing is said of a keeper that waits while there is a daemon" all "! says 'runs without a daemon'" "says keeper"
kill -KILL "${pid[daemon]}"
wait "${pid[daemon]}" 2>/dev/null
unset 'pid[daemon]'
run 0 doctor || [ $status = 1 ]
check "doctor: the keeper of a dead daemon is named" says "runs without a daemon"
keeper=$(pgrep -f -x -- "gpumem-keeper --background --socket $dir/keeper")
kill -STOP "$keeper"
run 1 doctor --json --timeout 100ms
kill -CONT "$keeper"
check "doctor: a keeper that hangs is not one that waits" all "says 'pid $keeper does not answer'" "! says 'runs without a daemon'" "says 'kill -CONT $keeper'"
end_keeper "$dir"
if [ "$backend" = host ]; then # the memory of a GPU is the driver's
	start_daemon
	start_worker holder
	ask holder make 8388608 weights
	run 0 status --json
	check "what clients hold is charged" all "is uncharged 0" "is uncharged_clients 0"
	kill -KILL "${pid[daemon]}"
	wait "${pid[daemon]}" 2>/dev/null
	end_keeper "$dir"
	start_daemon
	check "what a daemon held that died with its keeper is shown by status" await_value status uncharged 8388608
	run 0 status
	check "with who has it" all "says 'nobody is charged for 8.0M: 1 client came back with memory that'"
	kill "${pid[holder]}" && wait "${pid[holder]}" 2>/dev/null
	unset 'pid[holder]'
	check "until the client ends" await_value status uncharged_clients 0
	kill "${pid[daemon]}" && wait "${pid[daemon]}"
	unset 'pid[daemon]'
	end_keeper "$dir"
fi
run 0 doctor || [ $status = 1 ]
check "and not when it has ended, too" all "! says 'runs without a daemon'"

# Root may enter every folder.
mkdir -m 0700 "$dir/closed"
if [ "$(id -u)" != 0 ]; then
	chmod 0 "$dir/closed"
elif has_users; then
	as=(setpriv --reuid 65534 --regid 65534 --clear-groups --)
fi
export GPUMEM_SOCKET=$dir/closed/socket
if [ "$(id -u)" != 0 ] || has_users; then
	all_verbs 3 "forbidden"
	run 4 clients
	check "forbidden: the message says what to look at" all 'complains "$GPUMEM_SOCKET"' "complains 'enter its folder'"
else
	ok "forbidden # SKIP needs root to become another user"
fi
chmod 0700 "$dir/closed"

echo "1..$n"
