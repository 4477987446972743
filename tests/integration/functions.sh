# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Functions for tests that are shell scripts: results in TAP, and a scratch folder. To be sourced:
#
#   . "${top_srcdir:-.}/tests/integration/functions.sh"
n=0 dir='' daemon=''
. "$(dirname "${BASH_SOURCE[0]}")/../namespaces.sh"

ok() { n=$((n + 1)); echo "ok $n - $1"; }
not_ok() { # NAME LINE...
	local line
	n=$((n + 1))
	echo "not ok $n - $1"
	shift
	for line; do printf '%s\n' "$line" | sed 's/^/# /'; done
}
# bail REASON...: ends a test that cannot go on. The daemon's log is $dir/log.
bail() {
	echo "Bail out! $*"
	[ -s "$dir/log" ] && sed 's/^/# gpumemd: /' "$dir/log"
	exit 1
}
# end_keeper FOLDER: ends the keeper of a daemon that had its socket there. A daemon leaves it behind if somebody held
# something or a limit was set, and the next daemon would go on with that.
end_keeper() {
	local whole="gpumem-keeper --background --socket $1/keeper"
	pkill -f -x -- "$whole" || return 0
	while pgrep -f -x -- "$whole" >/dev/null; do sleep 0.02; done
}
# Ends the daemon before the folder is removed. A test that starts more processes defines its own clean.
clean() {
	[ -z "$daemon" ] || { kill "$daemon" 2>/dev/null && wait "$daemon"; }
	end_keeper "$dir"
}
# scratch PURPOSE: makes $dir, a folder for this test alone. It is removed when the test ends, whatever ends it.
scratch() {
	dir=$(mktemp -d "${TMPDIR:-/tmp}/gpumem-$1.XXXXXX") || bail "no temporary folder"
	trap 'trap - EXIT; clean; rm -rf "$dir"' EXIT
	trap 'exit 1' INT TERM HUP
}
# Whether this process can become other users: it is root, and of more than a user namespace with root alone in it (which
# is how an ordinary user runs a test on fake GPUs).
has_users() { [ "$(id -u)" = 0 ] && awk '{ n += $3 } END { exit !(n > 65535) }' /proc/self/uid_map; }
