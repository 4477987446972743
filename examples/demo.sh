#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# make demo: a private daemon, three workers that pass one buffer around, and one of them killed. Every claim printed
# here is checked first; the exit status is 0 only if all of them held. Leaves nothing behind, however it ends.
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
	# Workers end when nobody can write to them any more; whoever does not is ended by name of its process id.
	[ ${#pid[@]} -gt 0 ] && kill "${pid[@]}" 2>/dev/null
	wait
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
# ask NAME COMMAND...: its answer is in $reply.
ask() {
	echo "${*:2}" >&"${in[$1]}"
	answer "$1" "${*:2}"
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
cat >"$dir/gpumemd.conf" <<EOF
[gpumemd]
min_free = 64M
reserve = 16M
# Only where there is no GPU.
[device 0]
size = 1G
EOF

say "1. A broker of our own starts."
mkfifo "$dir/ready"
exec {ready}<>"$dir/ready"
await() { read -r -t 30 -u "$ready" line && [ "$line" = "$1" ]; }
with_us "$examples/demo-ready" "$dir/notify" >"$dir/ready" &
pid[ready]=$!
await listening || fail "cannot wait for the daemon"
NOTIFY_SOCKET=$dir/notify with_us "$gpumemd" --config "$dir/gpumemd.conf" --socket "$GPUMEM_SOCKET" \
	2>"$dir/log" &
pid[daemon]=$!
await ready || fail "the daemon did not start"
wait "${pid[ready]}"
unset 'pid[ready]'
show status
gpu=1
"$gpumemctl" devices --json | grep -q '"backend": "host"' && gpu=''
[ -n "$gpu" ] || echo "   (There is no GPU here: 1 GiB of host memory stands in for one.)"

say "2. Three worker processes connect. Ann asks for 64 MiB, and fills them."
for name in ann ben cleo; do start $name; done
ask ann make $size weights
ask ann fill 1000
echo "   ann  (process ${pid[ann]}) wrote $reply numbers: 1000, 1001, 1002, ..."

say "3. The buffer goes from process to process. A token travels, the 64 MiB stay."
ask ann share
token=$reply
ask ben open "$token"
ask ben check 1000
ask ben add 1
echo "   ben  (process ${pid[ben]}) found them, and adds 1 to each"
ask cleo open "$token"
ask cleo check 1001
echo "   cleo (process ${pid[cleo]}) reads 1001, 1002, 1003, ..."
ask ann check 1001
echo "   ann  sees it too: it is one piece of memory, mapped three times"
if [ -z "$gpu" ]; then
	ask ann where
	memory=$reply
	for name in ben cleo; do
		ask $name where
		[ "$reply" = "$memory" ] || fail "$name has a copy (inode $reply, not $memory)"
	done
	echo "   (the kernel says so too: inode $memory in all three processes)"
fi
[ "$(number leased status)" = $size ] || fail "the broker charges for more than one buffer"
echo "   the broker charges 64 MiB, once"

say "4. Ben takes 128 MiB more. Who holds what, and what is kept ready for reuse?"
ask ben hold $((2 * size)) scratch
show clients
echo
show pools
before=$(number leased status)
[ "$before" = $((3 * size)) ] || fail "$before bytes are leased, not $((3 * size))"

say "5. Ben is killed with SIGKILL, and can give nothing back. The broker can."
ben=${pid[ben]}
unset 'pid[ben]'
disown "$ben" # the shell need not report it
kill -KILL "$ben"
ben_gone() { [ "$(number leased status)" = $size ] && [ "$(number clients status)" = 2 ]; }
until_true ben_gone
show status
echo
echo "   leased: $(human "$before") before, $(human "$(number leased status)") after: Ben's 128 MiB are back"
ask cleo check 1001
echo "   what he shared with Ann and Cleo is as it was"

say "6. Everybody goes home."
for name in ann cleo; do
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
