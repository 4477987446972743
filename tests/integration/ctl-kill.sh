#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# gpumemctl kill: which process gets the signal, who may send it, and what is said if it cannot be sent.
# shellcheck disable=SC2016 # conditions of all() are expanded there
set -u
umask 022 # other users must be able to read what this makes
build=${top_builddir:-.} source=${top_srcdir:-.}
. "$source/tests/integration/functions.sh"
. "$source/tests/integration/ctl-functions.sh"

printf '[gpumemd]\nmin_free = 0\nhost_limit = 0\nreserve = 0\n[device 0]\nsize = 1G\n' >"$dir/gpumemd.conf"
start_daemon

# ended NAME SIGNAL: waits for the worker, which must have ended by this signal.
ended() {
	wait "${pid[$1]}" 2>/dev/null
	local got=$?
	unset "pid[$1]"
	[ $got = $((128 + $2)) ]
}
# again NAME: starts a worker whose name was used before.
again() {
	rm -f "$dir/$1.in" "$dir/$1.out"
	start_worker "$1"
}

start_worker ann
ask ann make 67108864 weights
start_worker ben
run 0 kill ann
check "a client is ended by its name" all "[ $status = 0 ]" "says 'Sent TERM to pid ${pid[ann]} (ann, user $(id -un)), which holds 64.0M.'" "ended ann 15"
await_value status clients 1 || bail "ann did not go"
run 1 kill ann
check "a client that is gone is not found" all "[ $status = 1 ]" "complains \"no client 'ann'\"" "silent stdout"
run 0 kill "${pid[ben]}" --signal KILL --json
check "a client is ended by its pid, with another signal" all "[ $status = 0 ]" "is pid ${pid[ben]}" "is signal KILL" "is clients.# 1" "ended ben 9"

again ann
run 0 clients --json
id=$(value clients.0.session)
run 0 kill "$id" --signal 9
check "a client is ended by the number of its session" all "[ $status = 0 ]" "ended ann 9"

# Two processes with one name.
start_worker twin
mv "$dir/twin.in" "$dir/first.in"
mv "$dir/twin.out" "$dir/first.out"
pid[first]=${pid[twin]} in[first]=${in[twin]} out[first]=${out[twin]}
start_worker twin
run 2 kill twin
check "a name of several processes is refused, with their pids" \
	all "[ $status = 2 ]" "silent stdout" "complains 'pid ${pid[first]}'" "complains 'pid ${pid[twin]}'" "complains ', user $(id -un))'"
check "and nobody got a signal" kill -0 "${pid[first]}" "${pid[twin]}"
run 0 kill "${pid[first]}"
check "one of them is ended by its pid" all "[ $status = 0 ]" "ended first 15"
check "and the other one lives" kill -0 "${pid[twin]}"

# Clients that call themselves what another client's numbers are.
again ann
await_value status clients 2 || bail "ann did not come"
start_worker "${pid[ann]}"
decoy=${pid[ann]}
run 0 kill "${pid[ann]}"
check "a number is a pid before it is a name" all "[ $status = 0 ]" "ended ann 15"
check "and the client of that name lives" kill -0 "${pid[$decoy]}"
run 0 kill "$decoy"
check "when no process has the number, it is a name" all "[ $status = 0 ]" "ended $decoy 15"
await_value status clients 1 || bail "they did not go"
again ann
run 0 clients --csv --no-legend --columns session,name
id=$(sed -n 's/,ann$//p' "$dir/stdout")
start_worker "$id"
run 0 kill "$id"
check "a number is a session before it is a name" all "[ $status = 0 ]" "[ -n '$id' ]" "ended ann 15"
check "and the client of that name lives, too" kill -0 "${pid[$id]}"
run 0 kill "${pid[$id]}"
check "it is ended by its pid" all "[ $status = 0 ]" "ended $id 15"

# Several sessions of one process.
start_worker actor "$build/tests/integration/actor"
ask actor join second
run 0 kill second
check "all sessions of the process are named" all "[ $status = 0 ]" "says '2 clients'" "says actor" "says second" "ended actor 15"

# Other users, other pid namespaces.
if has_users; then
	as=(setpriv --reuid 65534 --regid 65534 --clear-groups --)
	run 4 kill "${pid[twin]}"
	check "the kernel decides who may" all "[ $status = 4 ]" "silent stdout" "complains 'run gpumemctl as that user or as root'"
	run 1 kill twin
	check "a name that one may not see is not found" all "[ $status = 1 ]" "complains 'whose name you may see'"
	as=()
else
	ok "the kernel decides who may # SKIP needs root to become another user"
	ok "a name that one may not see is not found # SKIP needs root to become another user"
fi
own_pids=(--user --map-root-user --pid --fork --mount-proc)
if ! why=$(no_namespaces "${own_pids[@]}"); then
	as=(unshare "${own_pids[@]}")
	run 1 kill twin
	check "in another pid namespace it refuses" all "[ $status = 1 ]" "silent stdout" "complains 'different pid namespaces'"
	as=()
else
	ok "in another pid namespace it refuses # SKIP $why"
fi
check "and nobody got a signal in any of these" kill -0 "${pid[twin]}"

# Names that bash would expand, split, or run as a command, one that looks like an option, and one like a pid. The completion has only "twin".
# shellcheck source=ctl/completion/gpumemctl
. "$source/ctl/completion/gpumemctl"
i=0
for name in '$(>ran)' '`>ran`' 'two words' 'twin;>ran' '--signal=KILL' '~' '*' "it's" 'a,b' 4711; do
	i=$((i + 1))
	printf '#!/bin/bash\nexec "%s" %q\n' "$examples/demo-worker" "$name" >"$dir/odd$i"
	chmod +x "$dir/odd$i"
	start_worker "odd$i" "$dir/odd$i"
done
# completes_to EXPECTED WORD...: whether these words, the last of them the one to complete, are completed to that, and to that alone.
completes_to() {
	COMP_WORDS=(gpumemctl "${@:2}") COMP_CWORD=$(($# - 1)) COMPREPLY=()
	(
		cd "$dir" || exit
		PATH=$dir:$PATH
		_gpumemctl
		[ "${COMPREPLY[*]}" = "$1" ] && [ ! -e ran ]
	)
}
run 0 clients --csv --no-header --columns name
check "the list has names that are dangerous in a shell" all "says '\$(>ran)'" "says '--signal=KILL'"
check "completion of kill runs nothing, and offers plain names alone" completes_to twin kill ''
check "so does completion of --name" completes_to twin clients --name t
check "completion knows the columns of a verb, also after others" completes_to "pid,-held" clients --sort pid,-he
runs_no_verb() {
	gpumemctl() { : >"$dir/ran"; }
	completes_to "" stop --sort ''
	local status=$?
	unset -f gpumemctl
	return "$status"
}
check "and looks them up only for verbs that show something" runs_no_verb

echo "1..$n"
