#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the worked examples of the manual pages: the same commands, with the clients that the example speaks of, on a device of
# 80G of host memory that nothing touches. The output must be what the page says, except for process ids and times.
# The users of the examples exist in a mount namespace. Where there can be none, the test skips.
set -u
build=$(realpath "${top_builddir:-.}") source=$(realpath "${top_srcdir:-.}")
ctl=$build/ctl/gpumemctl
. "$source/tests/integration/functions.sh"
. "$source/tests/integration/actor-functions.sh"
dir=${GPUMEM_MANUAL_DIR:-}

# ---- outside: alice, bob and jo, and the group of an example

if [ -z "$dir" ]; then
	scratch manual
	chmod 755 "$dir"
	{
		grep -v -e '^alice:' -e '^bob:' -e '^jo:' -e '^[^:]*:[^:]*:100[235]:' /etc/passwd
		echo 'alice:x:1002:1002::/:/bin/sh'
		echo 'bob:x:1003:1003::/:/bin/sh'
		echo 'jo:x:1005:1005::/:/bin/sh'
	} >"$dir/passwd"
	{
		grep -v -e '^inference:' /etc/group
		echo 'inference:x:1004:'
	} >"$dir/group"
	chmod 644 "$dir/passwd" "$dir/group"
	why=
	if ! has_users; then why="needs root, for users that the examples name"; else why=$(no_namespaces); fi
	[ -z "$why" ] || { echo "1..0 # SKIP $why"; exit 0; }
	# shellcheck disable=SC2016 # the inner shell expands it
	GPUMEM_MANUAL_DIR=$dir unshare --mount bash -c \
		'mount --bind "$GPUMEM_MANUAL_DIR/passwd" /etc/passwd && mount --bind "$GPUMEM_MANUAL_DIR/group" /etc/group && exec bash "$0"' "$0"
	exit
fi

# ---- inside

stop() {
	end_actors
	[ -z "$daemon" ] || { kill "$daemon" && wait "$daemon"; }
	end_keeper "$dir"
	daemon=
}
trap stop EXIT
trap 'exit 1' INT TERM HUP
export GPUMEM_SOCKET=$dir/socket COLUMNS=80 LC_ALL=C.UTF-8
unset NOTIFY_SOCKET LISTEN_FDS LISTEN_PID NO_COLOR
install_actor

# Prints the block of a page that has this line, without the commands after its prompts.
block() { # PAGE LINE
	awk -v line="$2" '/^```$/ { if (open && found) exit; open = !open; text = ""; found = 0; next }
		open { text = text $0 "\n"; if ($0 == line) found = 1; if (found) last = text }
		END { printf "%s", last }' "$source/man/$1"
}
# Removes the padding of columns, whose width differs with the length of process ids.
plain() { sed -e 's/^ *//' -e 's/  */ /g' -e 's/ $//'; }
start() {
	"$build/daemon/gpumemd" --config "$dir/conf" --socket "$GPUMEM_SOCKET" 2>"$dir/log" &
	daemon=$!
	until "$ctl" status >/dev/null 2>&1; do
		kill -0 "$daemon" 2>/dev/null || bail "no daemon"
	done
}
# client NAME USER CLIENT-NAME starts a client.
client() { start_actor "$1" setpriv --reuid "$2" --regid "$2" --clear-groups "$dir/actor" "$3"; }
must() {
	local answer
	answer=$(ask "$@")
	[ "$answer" = ok ] || bail "$*: $answer"
}
# Waits until a command prints a line. Clients tell the daemon what they hold a little later.
until_says() { # PATTERN COMMAND...
	local i
	for i in $(seq 600); do
		"${@:2}" 2>&1 | plain | grep -q "$1" && return
		sleep 0.1
	done
	bail "${*:2} never said $1"
}

# ---- gpumemd(8): a second service is apart from the first

mkdir "$dir/units" "$dir/copy"
cp "$source"/systemd/gpumemd*.socket "$dir/units"
for unit in gpumemd gpumemd-keeper; do sed "s,@bindir@,$build,g" "$source/systemd/$unit.service.in" >"$dir/units/$unit.service"; done
# The page has two backslashes for one. Its first command names the folders, and its last two are for systemd.
block gpumemd.8.scd '# cd /etc/systemd/system && units=@systemdsystemunitdir@' | sed -e 's/^# //' -e 's/\\\\/\\/g' -e '1d' -e '/^systemctl /d' >"$dir/commands"
is "the commands for a second service are in gpumemd(8)" 5 "$(grep -c -e '^sed' -e '^mkdir' "$dir/commands")"
(cd "$dir/copy" && units=$dir/units bash -eu "$dir/commands")
is "they make four units and a drop-in" "gpumemd-mig1-admin.socket gpumemd-mig1-keeper.service gpumemd-mig1.service gpumemd-mig1.service.d gpumemd-mig1.socket" \
	"$(cd "$dir/copy" && echo *)"
is "whose names and sockets are their own, also for a reload" "" \
	"$(grep -r -v '^#' "$dir/copy"/*.* | grep -o -E -e '/run/gpumemd/(socket|admin|keeper)' -e 'gpumemd(-admin|-keeper)?\.(socket|service)' | sort -u)"

# ---- gpumemd.conf(5): the daemon accepts every example

# On a machine with the GPUs that they are for. Pinned host memory would be as small as this machine.
mkdir "$dir/example.conf.d"
printf '[gpumemd]\nhost_limit = 0\n' >"$dir/example.conf.d/here.conf"
check_example() {
	top_builddir=$build "$source/tests/fake/with-fake-gpu" -n 2 -s 80g "$build/daemon/gpumemd" --check-config --config "$dir/example.conf" 2>&1
}
i=0
while IFS= read -r -d '' text; do
	i=$((i + 1))
	printf '%s' "$text" | sed 's/GPU-8932f937-[-0-9a-f]*/GPU-f46b6500-6770-756d-656d-640000000000/' >"$dir/example.conf"
	is "example $i of gpumemd.conf(5) is accepted" "" "$(check_example | grep -v '^/.*: no mistakes$')"
done < <(awk '/^```$/ { if (open && text ~ /^\[|\n\[/) printf "%s%c", text, 0; open = !open; text = ""; next } open { text = text $0 "\n" }' \
	"$source/man/gpumemd.conf.5.scd")
is "they were found" yes "$([ "$i" -ge 6 ] && echo yes)"
printf '[gpumemd]\n\nfractoin = 0.5\n\n\n\ndecay = soon\n\nmin_free = much\n' >"$dir/my.conf"
is "a slip looks as gpumemd.conf(5) says" "$(block gpumemd.conf.5.scd '$ gpumemd --check-config --config my.conf' | tail -n +2)" \
	"$(cd "$dir" && "$build/daemon/gpumemd" --check-config --config my.conf 2>&1)"

# ---- gpumemctl(1): limits

printf '[gpumemd]\nbackend = host\nreserve = 0\ndecay = 1h\nhost_limit = 4G\n[device 0]\nsize = 80G\n' >"$dir/conf"
page=$(block gpumemctl.1.scd '# gpumemctl limit set uid:bob guarantee=16G --device 0')
start
for i in 1 2 3; do
	client "alice$i" 1002 job
	must "alice$i" alloc 16G
done
client bob 1003 service
must bob alloc 4G
got=$(for words in 'uid:alice max=48G priority=-10' 'uid:bob guarantee=16G'; do
	echo "# gpumemctl limit set $words --device 0"
	# shellcheck disable=SC2086
	"$ctl" limit set $words --device 0
done)
is "limits are set as gpumemctl(1) says" "$page" "$got"
is "the next request is refused as it says" "over a limit: user alice may hold 48.0G, holds 48.0G, asked for 2.0G; see gpumemctl limit" \
	"$(ask alice1 alloc 2G)"
is "a lower limit shows her as over" "uid:alice 0 32.0G -10 48.0G 3 over run-time" \
	"$("$ctl" limit set uid:alice max=32G --device 0 | tail -n 1 | plain)"
is "without --device the guarantee is refused, as it says" 1 "$("$ctl" limit set uid:bob guarantee=17G >/dev/null 2>&1; echo $?)"
stop

# ---- reclaim

start
client carol 1004 gone
client alice 1002 trainer
client bob 1003 server
must carol alloc 12G
end_actor carol
must alice alloc 31G
must alice alloc 5G
must bob alloc 14G
must bob alloc 4G
must alice free
must bob free
"$ctl" limit set uid:alice priority=-10 >/dev/null
until_says ' 0 36.0G 31.0G 5.0G' "$ctl" clients
until_says ' 0 18.0G 14.0G 4.0G' "$ctl" clients
page=$(block gpumemctl.1.scd '# gpumemctl cleanup --need 32G --dry-run' | tail -n +2 | sed -e "s/ 4711 / ${pid[alice]} /" -e "s/ 812 / ${pid[bob]} /")
is "a cleanup is planned as gpumemctl(1) says" "$(plain <<<"$page")" "$("$ctl" cleanup --need 32G --dry-run 2>&1 | plain)"
is "and done so" "Device 0: 18.0G of 18.0G came back." "$("$ctl" cleanup --need 32G 2>&1 | grep "^Device")"
stop

# ---- the queue

sed -i 's/decay = 1h/decay = 0/' "$dir/conf"
start
"$ctl" limit set uid:jo max=48G priority=-10 >/dev/null
"$ctl" limit set uid:bob priority=10 >/dev/null
client jo1 1005 tuner
client jo2 1005 other
client bob 1003 server
client carol 1004 neighbour
must jo1 alloc 30G
must jo2 alloc 16G
say jo1 alloc 40G forever
until_says ' 40.0G ' "$ctl" queue
# It fits below the limit, so it is served although the other one waits. That is no overtaking: only a request that waits for the
# device counts.
must jo2 alloc 2G
must bob alloc 12G
must carol alloc 12G
say bob alloc 2G 30s
until_says ' 2.0G ' "$ctl" queue
times() { plain | sed -E 's/ (jo|bob) ([^ ]+) ([^ ]+) ([^ ]+) [^ ]+ (-|[^ ]+) / \1 \2 \3 \4 TIME \5 /; /bob/s/ TIME [^ ]+ / TIME LEFT /; s/^0 [0-9]+ /0 PID /'; }
is "who waits is shown as gpumemctl(1) says" "$(block gpumemctl.1.scd '$ gpumemctl queue' | tail -n +2 | times)" \
	"$("$ctl" queue | times)"
must carol free
is "the next 2G go to the server" ok "$(hear bob)"
stop
echo "1..$n"
