#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# gpumemctl drain: a device becomes empty while its clients finish, whatever happens to the daemon meanwhile.
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

printf '[gpumemd]\nmin_free = 0\nhost_limit = 0\nreserve = 8M\n[device 0]\nsize = 1G\n' >"$dir/gpumemd.conf"
me=$(id -un)
start_daemon

# tell NAME COMMAND...: sends a command to a worker and does not wait for its answer.
tell() { echo "${*:2}" >&"${in[$1]}"; }
# hears NAME: reads the next answer into $line.
hears() { read -r -t 60 -u "${out[$1]}" line; }
# drain_behind OPTION...: drains device 0 in the background; its stderr goes to a pipe that progress reads.
drain_behind() {
	rm -f "$dir/progress"
	mkfifo "$dir/progress"
	exec {progress}<>"$dir/progress"
	with_us "$gpumemctl" drain 0 "$@" >"$dir/drained" 2>"$dir/progress" &
	pid[drain]=$!
}
# progress TEXT: reads lines until one contains the text.
progress() {
	local line
	while read -r -t 60 -u "$progress" line; do
		case $line in *"$1"*) return 0 ;; esac
	done
	return 1
}
# drained STATUS: waits for the end of the drain in the background.
drained() {
	wait "${pid[drain]}"
	status=$?
	unset 'pid[drain]'
	cp "$dir/drained" "$dir/stdout"
	[ $status = "$1" ]
}
restart_daemon() {
	kill -KILL "${pid[daemon]}"
	wait "${pid[daemon]}" 2>/dev/null
	start_daemon
}

# ---- nobody holds anything

check "the reserve is there before" await_value pools pools.0.pooled 8388608
exec {eye}< <("$gpumemctl" watch 2>&1)
read -r -t 60 -u "$eye" line # the level
run 0 drain 0 --json
check "a device that nobody uses is empty at once" all "[ $status = 0 ]" "is device 0" "is drained true" "is changed true" \
	"is empty true" "is held 0" "is going 0" "is holders.# 0"
run 0 status --json
check "status says who drains it, for programs" all "is devices.0.drained true" "is devices.0.drained_by $(id -u)" \
	"is devices.0.available 0" "is devices.0.pooled 0" "is warnings.0.kind drained"
run 0 status
check "and for people" all "says 'device 0: drained by user $me for '" 'says "gpumemctl drain 0 --undo"' fits
for verb in devices pressure "who 0"; do
	# shellcheck disable=SC2086 # two words
	run 0 $verb
	check "$verb says so, too" all "says '! device 0: drained by user $me for '" fits
done
"$gpumemctl" doctor >"$dir/stdout" 2>"$dir/stderr"
check "and so does doctor" all "says 'drained by user $me'" "says \"'gpumemctl drain 0 --undo'\""
run 0 drain 0 --undo
read -r -t 60 -u "$eye" line
check "watch tells who drains" [ "${line#* drain *user "$me" (pid }" != "$line" ]
read -r -t 60 -u "$eye" line
check "and who ended that" [ "${line%ended the drain of device 0}" != "$line" ]
exec {eye}<&-
check "it is undone" all "[ $status = 0 ]" "says 'Device 0 is not drained any more.'"
run 0 status --json
check "and status shows nothing of it" all "is devices.0.drained false" "is devices.0.drained_by null" "is warnings.# 0"
await_value pools pools.0.pooled 8388608
check "the reserve comes back" is pools.0.pooled 8388608

# ---- with clients: one uses memory, one only caches it, one waits for more

start_worker user
start_worker cacher
start_worker waiter
ask user make $((512 << 20)) weights
ask cacher cache $((64 << 20))
ask waiter make $((256 << 20)) half
tell waiter hold $((512 << 20)) more 60000
await_value queue queue.# 1
run 1 drain 0 --wait 0s --json
check "without waiting it says who holds what" all "[ $status = 1 ]" "is drained true" "is empty false"
hears waiter
check "a request that waited is refused, and told who drains" \
	all '[[ $line == *"device 0 is being drained by "* ]]' '[[ $line == error* ]]'
tell cacher make 2097152 new
hears cacher
check "nobody gets new memory" all '[[ $line == *"device 0 is being drained by "* ]]'
drain_behind
check "the drain shows who is in the way" progress "still held: "
await_value clients clients.1.use.0.held 0
check "what a client only cached comes back" is clients.1.use.0.held 0

# ---- the daemon is killed meanwhile

restart_daemon
run 0 status --json
check "the next daemon goes on draining" all "is devices.0.drained true" "is devices.0.drained_by $(id -u)"
ask user fill 5
ask user check 5
tell waiter hold 2097152 more
hears waiter
check "and refuses as before" all '[[ $line == *"device 0 is being drained by "* ]]'
kill -0 "${pid[drain]}"
check "the drain still waits" [ $? = 0 ]
exec {in[user]}>&-
kill "${pid[user]}"
wait "${pid[user]}" 2>/dev/null
unset 'pid[user]'
check "and shows what is left" progress "device 0: 256.0M still held: 256.0M waiter (pid ${pid[waiter]}, user $me)"
kill "${pid[waiter]}"
wait "${pid[waiter]}" 2>/dev/null
unset 'pid[waiter]'
check "it ends when the last one has let go" all "drained 0" "says 'Device 0 is empty. It stays drained'"
run 0 status --json
check "the device stays drained" all "is devices.0.drained true" "is devices.0.leased 0" "is devices.0.quarantined 0"

# ---- the end of a wait

run 0 drain 0 --undo
ask cacher make 2097152 new
check "after the end everybody gets memory again" [ $? = 0 ]
drain_behind
progress "still held" || bail "no progress"
kill -INT "${pid[drain]}"
drained 130
check "Ctrl-C ends the wait" [ $status = 130 ]
run 0 status --json
check "and leaves the device drained" is devices.0.drained true
drain_behind
progress "still held" || bail "no progress"
run 0 drain 0 --undo
check "a drain that somebody else ends ends the wait" all "drained 1" "progress 'somebody ended the drain of device 0'"

# ---- who may

if has_users; then
	as=(setpriv --reuid 65534 --regid 65534 --clear-groups --)
	run 4 drain 0
	check "an ordinary user may not drain" all "[ $status = 4 ]" "silent stdout" "complains 'draining a device needs root'"
	if getent group gpumem >/dev/null; then
		check "and is told which group may" complains "needs root or the group gpumem; root adds a user with 'usermod -a -G gpumem USER', which takes effect at the user's next login"
	else
		check "and is told how to make a group that may" all "! complains 'or the group'" \
			"complains \"needs root; for a group of administrators, root runs 'groupadd --system gpumem', 'usermod -a -G gpumem USER' and 'gpumemctl config reload'; USER must log in again\""
	fi
	as=()
	run 0 drain 0 --wait 0s || [ $status = 1 ]
	as=(setpriv --reuid 65534 --regid 65534 --clear-groups --)
	run 4 drain --undo 0
	check "nor end a drain" all "[ $status = 4 ]" "silent stdout"
	run 0 status
	check "but sees it" says "device 0: drained by user root"
	as=()
else
	for name in "an ordinary user may not drain" "and is told who may" "nor end a drain" "but sees it"; do
		ok "$name # SKIP needs root to become another user"
	done
fi

# ---- what forgets it

run 1 drain 0 --wait 0s
run 0 limit set client:nobody max=1G
run 0 stop --forget
wait "${pid[daemon]}"
check "the log says who stopped the daemon" all "grep -q 'stopping because gpumemctl stop asks for it' '$dir/log'" "! grep -q 'stopping on SIGTERM' '$dir/log'"
start_daemon
run 0 status --json
check "stop --forget forgets the drain, too" all "is devices.0.drained false" "is devices.0.quarantined 0"
run 0 limit --json
check "and limits that were set at run time" is limits.# 0

echo "1..$n"
