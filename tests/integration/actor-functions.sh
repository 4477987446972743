# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Functions for tests whose clients do what the test says, line by line (actor.c). To be sourced after functions.sh, by a
# test that has set build.
declare -A in=() out=() pid=()

is() { # NAME EXPECTED GOT
	if [ "$2" = "$3" ]; then
		ok "$1"
	else
		not_ok "$1" "expected:" "$2" "got:" "$3" "log:" "$(tail -n 20 "$dir/log" 2>/dev/null)"
	fi
}
# Makes $dir/actor. libtool takes a blank for the end of a path, so it gets a name without one.
install_actor() {
	local here
	exec {here}<"$dir"
	"$build/libtool" --silent --mode=install install -m 0755 "$build/tests/integration/actor" "/proc/$$/fd/$here/actor" >/dev/null ||
		bail "no actor"
	exec {here}<&-
}
# start_actor NAME COMMAND...: starts a client with this command. Then say, hear and ask talk to it.
start_actor() {
	local fd
	rm -f "$dir/$1.in" "$dir/$1.out"
	mkfifo "$dir/$1.in" "$dir/$1.out"
	(
		# A client ends when its stdin closes, so no other client may keep that open.
		for fd in "${in[@]}" "${out[@]}"; do exec {fd}>&-; done
		exec "${@:2}" <"$dir/$1.in" >"$dir/$1.out"
	) &
	pid[$1]=$!
	exec {fd}>"$dir/$1.in"
	in[$1]=$fd
	exec {fd}<"$dir/$1.out"
	out[$1]=$fd
	hear "$1" >/dev/null || bail "$1 does not start"
}
say() { echo "${*:2}" >&"${in[$1]}"; }
hear() {
	local line
	read -r -t 60 -u "${out[$1]}" line && echo "$line"
}
ask() {
	say "$@"
	hear "$1"
}
end_actor() { # NAME
	local fd=${in[$1]}
	exec {fd}>&-
	fd=${out[$1]}
	exec {fd}<&-
	wait "${pid[$1]}" 2>/dev/null
	unset "in[$1]" "out[$1]" "pid[$1]"
	rm -f "$dir/$1.in" "$dir/$1.out"
}
# Ends all clients, also those that wait for memory.
end_actors() {
	local name
	for name in "${!in[@]}"; do
		kill "${pid[$name]}" 2>/dev/null
		end_actor "$name"
	done
}
