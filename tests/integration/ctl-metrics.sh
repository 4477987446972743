#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# gpumemctl metrics: well formed, equal to what other verbs show, and safe against names that clients choose.
# shellcheck disable=SC2016 # conditions of all() are expanded there
set -u
umask 022 # other users must be able to read what this makes
build=${top_builddir:-.} source=${top_srcdir:-.}
. "$source/tests/integration/functions.sh"
. "$source/tests/integration/ctl-functions.sh"
clean() {
	[ ${#pid[@]} -gt 0 ] && kill "${pid[@]}" 2>/dev/null
	wait
	end_keeper "$dir"
}
command -v python3 >/dev/null || skip "there is no python3"

reads() { python3 "$source/tests/integration/ctl-metrics.py" "$@" 2>"$dir/stderr"; }
# same [NAME]: asks for everything while nothing changes, and compares.
same() {
	local verb
	for verb in devices pools clients; do run 0 $verb --json && cp "$dir/stdout" "$dir/$verb.json" || return 1; done
	run 0 metrics && silent stderr && mv "$dir/stdout" "$dir/metrics" && : >"$dir/stdout" &&
		reads "$dir/metrics" "$dir/devices.json" "$dir/pools.json" "$dir/clients.json" "$@"
}

printf '[gpumemd]\nmin_free = 0\nhost_limit = 64M\nreserve = 8M\nobserver_group = games\n[device 0]\nsize = 1G\n[device 1]\nsize = 512M\n' >"$dir/gpumemd.conf"
run 3 metrics
check "without a daemon, gpumem_up is 0" all "[ $status = 3 ]" 'cp "$dir/stdout" "$dir/down"' "complains socket" 'reads "$dir/down"'

start_daemon
check "the reserve is there" await_value pools pools.0.pooled 8388608
check "of a daemon without clients" same
run 2 metrics --json
check "there is no JSON of it" all "[ $status = 2 ]" "complains 'format of its own'"
run 2 metrics --csv
check "and no CSV" all "[ $status = 2 ]" "complains 'format of its own'"

hostile='a"} 1 \ {b="c",'
start_worker trainer
ask trainer make 67108864 weights
check "of a client that holds memory" all "await_value clients clients.0.use.0.in_use 67108864" "same trainer"
start_worker "$hostile"
ask "$hostile" make 2097152 x
check "a hostile name stays within its label" all "await_value clients clients.1.use.0.in_use 2097152" 'same "$hostile"'
# Where it is installed: the package prometheus is large, and ctl-metrics.py is stricter.
! command -v promtool >/dev/null || check "promtool has nothing to say" all 'promtool check metrics <"$dir/metrics" >"$dir/stdout" 2>&1' "silent stdout"

# ---- who sees what

if has_users; then
	as=(setpriv --reuid 65534 --regid 65534 --clear-groups --)
	run 0 metrics
	check "an ordinary user sees the others as one" all "[ $status = 0 ]" "! says trainer" 'says "gpumem_client_held_bytes{device=\"0\",user=\"\",name=\"other\",pid=\"\",session=\"\"} 69206016"'
	as=(setpriv --reuid 65534 --regid 65534 --groups games --)
	check "an observer sees everybody" same trainer
	for words in trim "cleanup --need 1M" "drain 0" "config reload" stop "limit set uid:4711 max=1G" "limit reset"; do
		# shellcheck disable=SC2086
		run 4 $words
		check "and may not $words" all "[ $status = 4 ]" "silent stdout"
	done
	as=()
else
	for name in "an ordinary user sees the others as one" "an observer sees everybody" "and may not trim" "and may not cleanup --need 1M" \
		"and may not drain 0" "and may not config reload" "and may not stop" "and may not limit set uid:4711 max=1G" "and may not limit reset"; do
		ok "$name # SKIP needs root to become another user"
	done
fi

kill -STOP "${pid[daemon]}"
run 3 metrics --timeout 1
check "of a daemon that does not answer, gpumem_up is 0" all "[ $status = 3 ]" 'cp "$dir/stdout" "$dir/down"' 'reads "$dir/down"'
kill -CONT "${pid[daemon]}"

# 51 clients, of which 50 have metrics of their own.
for i in $(seq 49); do start_worker "w$i" && ask "w$i" make $((2097152 * (1 + i % 2))) x; done
check "the sum of all clients is what they hold" same
check "50 clients have metrics of their own, and the others are one" all \
	'[ "$(grep -c "^gpumem_client_held_bytes{device=\"0\",.*session=\"[0-9]" "$dir/metrics")" = 50 ]' \
	'grep -q "^gpumem_client_held_bytes{device=\"0\",.*name=\"other\".* 2097152$" "$dir/metrics"'
echo "1..$n"
