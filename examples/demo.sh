#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# make demo: a private daemon, and three workers that share its memory: a trainer, a server and a notebook. They share a
# buffer, meet a limit, wait for each other, give cached memory back, and one of them is killed; then so is the daemon, and comes
# back. Every claim printed here is checked first; the exit status is 0 only if all of them held. Leaves nothing behind, however it ends.
set -u
build=${top_builddir:-.}
gpumemd=$build/daemon/gpumemd gpumemctl=$build/ctl/gpumemctl examples=$build/examples
size=67108864 # 64 MiB
declare -A pid=() in=() out=()
dir=''

fail() {
	echo "demo: $*" >&2
	[ -s "$dir/log" ] && sed 's/^/gpumemd: /' "$dir/log" >&2
	exit 1
}
clean() {
	trap - EXIT
	trap '' INT TERM HUP PIPE
	# Workers end when nobody can write to them any more. Everything else is ended here.
	[ ${#pid[@]} -gt 0 ] && kill "${pid[@]}" 2>/dev/null
	wait
	# A daemon that is stopped leaves what its clients hold to its keeper.
	local keeper="gpumem-keeper --background --socket $dir/keeper"
	pkill -f -x -- "$keeper"
	while pgrep -f -x -- "$keeper" >/dev/null; do sleep 0.02; done
	[ -n "$dir" ] && rm -rf "$dir"
}
trap clean EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP
trap 'exit 141' PIPE

# In the background: a program that ends with this script, even if that is killed, and that has none of our pipes but
# those it is given (it would keep them open for the others).
with_us() {
	local fd
	for fd in "${in[@]}" "${out[@]}" ${ready:-}; do exec {fd}>&-; done
	exec setpriv --pdeathsig TERM -- "$@"
}
say() { printf '\n\033[1m%s\033[0m\n' "$*" | if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then cat; else sed 's/\x1b\[[0-9]*m//g'; fi; }
show() { printf '$ gpumemctl %s\n' "$*"; "$gpumemctl" "$@" || fail "gpumemctl $* failed"; }
# number KEY VERB: the first value of that key in the verb's JSON.
number() { "$gpumemctl" "$2" --json | sed -n "s/^ *\"$1\": \([0-9]*\),*$/\1/p" | head -n 1; }
human() { echo "$(($1 / 1048576)) MiB"; }

# start NAME: a worker, which says hello on the pipe that we read its answers from.
start() {
	mkfifo "$dir/$1.in" "$dir/$1.out" || fail "no pipe"
	local to from
	exec {to}<>"$dir/$1.in" {from}<>"$dir/$1.out"
	in[$1]=$to out[$1]=$from
	with_us "$examples/demo-worker" "$1" <"$dir/$1.in" >"$dir/$1.out" &
	pid[$1]=$!
	answer "$1" "connect"
}
answer() {
	local line
	read -r -t 30 -u "${out[$1]}" line || fail "$1 does not answer to '$2'"
	case $line in
	ok*) reply=${line#ok}; reply=${reply# } ;;
	*) fail "$1: $line" ;;
	esac
}
# tell NAME COMMAND...: the answer is to be read later.
tell() { echo "${*:2}" >&"${in[$1]}"; }
# ask NAME COMMAND...: its answer is in $reply.
ask() {
	tell "$@"
	answer "$1" "${*:2}"
}
# refused NAME COMMAND...: the reason is in $reply.
refused() {
	tell "$@"
	read -r -t 30 -u "${out[$1]}" reply || fail "$1 does not answer to '${*:2}'"
	case $reply in error*) reply=${reply#error *: } ;; *) fail "$1 was not refused" ;; esac
}
# until_true COMMAND...: asks again until it holds; a demo that hangs is a demo that failed.
until_true() {
	local end=$((SECONDS + 30))
	until "$@"; do
		[ $SECONDS -lt $end ] || fail "waited in vain for: $*"
		kill -0 "${pid[daemon]}" 2>/dev/null || fail "the daemon ended"
	done
}

dir=$(mktemp -d "${TMPDIR:-/tmp}/gpumem-demo.XXXXXX") || fail "no temporary folder"
export GPUMEM_SOCKET=$dir/socket
unset NOTIFY_SOCKET LISTEN_FDS LISTEN_PID
# Where there is no GPU, 1 GiB of host memory stands in for one. On a GPU the demo uses no more than that: see below.
configure() {
	cat >"$dir/gpumemd.conf" <<EOF
[gpumemd]
fraction = $1
min_free = 0
reserve = 16M
decay = 10min
pressure_dwell = 0s
[device 0]
size = 1G
[limit client:notebook]
max = 128M
EOF
}

say "1. The broker starts."
configure 1.0
mkfifo "$dir/ready"
exec {ready}<>"$dir/ready"
await() { read -r -t 30 -u "$ready" line && [ "$line" = "$1" ]; }
start_daemon() {
	with_us "$examples/demo-ready" "$dir/notify" >"$dir/ready" &
	pid[ready]=$!
	await listening || fail "cannot wait for the daemon"
	NOTIFY_SOCKET=$dir/notify with_us "$gpumemd" --config "$dir/gpumemd.conf" --socket "$GPUMEM_SOCKET" \
		2>>"$dir/log" &
	pid[daemon]=$!
	await ready || fail "the daemon did not start"
	wait "${pid[ready]}"
	unset 'pid[ready]'
}
start_daemon
gpu=1
"$gpumemctl" devices --json | grep -q '"backend": "host"' && gpu=''
if [ -n "$gpu" ]; then
	# Rounded down, to 1 GiB at most.
	configure "$(awk "BEGIN { printf \"%.9f\", 1073741824 / $(number total devices) - 5e-10 }")"
	kill -HUP "${pid[daemon]}"
	reloaded() { [ "$(number capacity devices)" -le 1073741824 ]; }
	until_true reloaded
fi
show status
[ -n "$gpu" ] || echo "   (There is no GPU here: 1 GiB of host memory stands in for one.)"

say "2. A trainer, a server and a notebook connect. The trainer takes 64 MiB."
for name in trainer server notebook; do start $name; done
ask trainer make $size weights
ask trainer fill 1000
echo "   trainer  (process ${pid[trainer]}) wrote $reply numbers: 1000, 1001, ..."

say "3. They share the buffer. A token travels, the 64 MiB stay where they are."
ask trainer share
token=$reply
ask server open "$token"
ask server check 1000
ask server add 1
echo "   server   (process ${pid[server]}) found them, and adds 1 to each"
ask notebook open "$token"
ask notebook check 1001
echo "   notebook (process ${pid[notebook]}) reads 1001, 1002, ..."
ask trainer check 1001
echo "   trainer  sees it too: it is one piece of memory, mapped three times"
if [ -z "$gpu" ]; then
	ask trainer where
	memory=$reply
	for name in server notebook; do
		ask $name where
		[ "$reply" = "$memory" ] || fail "$name has a copy (inode $reply, not $memory)"
	done
	echo "   (the kernel says so too: inode $memory in all three processes)"
fi
[ "$(number leased status)" = $size ] || fail "the broker charges for more than one buffer"
echo "   the broker charges 64 MiB, once"

say "4. The notebook asks for more than its limit, and is told why it gets nothing."
echo "   The configuration says: [limit client:notebook] max = 128M"
refused notebook hold $((4 * size)) experiment
echo "   notebook asks for 256 MiB. The library's answer:"
fold -s -w 72 <<<"$reply" | sed 's/^/     /'
case $reply in *limit*) ;; *) fail "the refusal does not name the limit" ;; esac

say "5. The server wants what the trainer has. It waits, and gets it."
ask trainer hold $((11 * size)) activations
tell server hold $((8 * size)) kv-cache 30000
waiting() { "$gpumemctl" queue --no-legend | grep -q server; }
until_true waiting
show queue
echo "   trainer frees its 704 MiB ..."
ask trainer drop
answer server "hold"
echo "   ... and server has its 512 MiB."
show clients

say "6. The trainer frees a block, and keeps it for later. Pressure rises."
ask trainer cache $((3 * size))
cached() { [ "$(number cached clients)" = $((3 * size)) ]; }
until_true cached
echo "   trainer holds 192 MiB that it does not use:"
show clients
ask notebook hold $((2 * size)) data
echo "   notebook takes 128 MiB. The broker asks for what is cached, and logs:"
given_back() { [ "$(number cached clients)" = 0 ] && grep -q 'reclaim for pressure ended:.*; enough' "$dir/log"; }
until_true given_back
grep 'reclaim for pressure' "$dir/log" | sed 's/.*device 0: //' | tail -n 2 | fold -s -w 72 | sed 's/^/     /'
echo "   The trainer's cache is gone, the notebook has its memory:"
show clients

say "7. The server is killed with SIGKILL, and can give nothing back. The broker can."
before=$(number leased status)
server=${pid[server]}
unset 'pid[server]'
disown "$server" # the shell need not report it
kill -KILL "$server"
server_gone() { [ "$(number leased status)" = $((before - 8 * size)) ] && [ "$(number clients status)" = 2 ]; }
until_true server_gone
show status
echo
echo "   leased: $(human "$before") before, $(human "$(number leased status)") after: the server's 512 MiB are back"
ask notebook check 1001
echo "   what it shared with the others is as it was"

say "8. The broker is killed, too, and started again. Nobody notices."
before=$(number leased status)
daemon=${pid[daemon]}
disown "$daemon"
kill -KILL "$daemon"
ask trainer check 1001
echo "   The broker is gone. The trainer reads 1001, 1002, ..., and asks for 64 MiB."
tell trainer hold $size gradients
start_daemon
answer trainer "hold"
ask notebook check 1001
# A client counts with the leased memory once it has resumed its session.
all_back() { [ "$(number leased status)" = $((before + size)) ]; }
until_true all_back
echo "   The next one knows what its predecessor handed out: $(human "$before"), and grants the"
echo "   64 MiB. No call failed."
show clients

say "9. All clients end, and the broker is stopped."
for name in trainer notebook; do
	to=${in[$name]}
	exec {to}>&-
	wait "${pid[$name]}" || fail "$name ended with status $?"
	unset "pid[$name]"
done
nobody() { [ "$(number leased status)" = 0 ] && [ "$(number clients status)" = 0 ]; }
until_true nobody
kill -TERM "${pid[daemon]}"
wait "${pid[daemon]}" || fail "the daemon ended with status $?"
unset 'pid[daemon]'
[ ! -e "$GPUMEM_SOCKET" ] || fail "the daemon left its socket"
echo "   No client, no lease, no daemon, no file is left."
