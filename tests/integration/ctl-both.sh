#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A user's own daemon and the system's at the same time: gpumemctl says which one answered, and that there is another. The test
# has a /run of its own, where it can be the system. Root does not use a folder of another user there.
set -u
umask 022
build=${top_builddir:-.} source=${top_srcdir:-.}
if [ -z "${GPUMEM_TEST_OWN_RUN:-}" ]; then
	. "$source/tests/namespaces.sh"
	if why=$(no_namespaces); then
		echo "1..0 # SKIP $why"
		exit 0
	fi
	GPUMEM_TEST_OWN_RUN=1 exec unshare "${own_mounts[@]}" "$0" "$@"
fi
mount -t tmpfs -o mode=755 tmpfs /run || exit 1
. "$source/tests/integration/functions.sh"
. "$source/tests/integration/ctl-functions.sh"

printf '[gpumemd]\nmin_free = 0\nhost_limit = 64M\nreserve = 0\nadmin_group = games\n[device 0]\nsize = 1G\n' >"$dir/gpumemd.conf"
mkdir -m 0755 /run/gpumemd
mkdir -m 0700 "$dir/xdg" "$dir/xdg/gpumemd"
export XDG_RUNTIME_DIR=$dir/xdg
users=$dir/xdg/gpumemd/socket systems=/run/gpumemd/socket me=$(id -un)

GPUMEM_SOCKET=$systems start_daemon
pid[system]=${pid[daemon]}
unset 'pid[daemon]' GPUMEM_SOCKET
run 0 status
check "alone, the system's daemon says what it is" all "says '$systems, the system'" "! says 'also here'"
run 0 status --json
check "and tells programs" all "is which system" "is others.# 0" "is user $me"

GPUMEM_SOCKET=$users start_daemon
pid[user]=${pid[daemon]}
unset 'pid[daemon]' GPUMEM_SOCKET
run 0 status
check "the user's daemon comes first, and the other one is named" all "says '$users, your own daemon'" \
	"says \"also here: the system's daemon, pid ${pid[system]}, user $me\"" "says 'reach it: --socket $systems, or GPUMEM_SOCKET'"
run 0 status --json
check "for programs, too" all "is pid ${pid[user]}" "is which user" "is others.# 1" "is others.0.which system" \
	"is others.0.socket $systems" "is others.0.pid ${pid[system]}" "is others.0.state running"
# A login session has this folder. su, cron and ssh give a process another XDG_RUNTIME_DIR, or none.
session=/run/user/$(id -u)
mkdir -p "$session" && mount --bind "$XDG_RUNTIME_DIR" "$session" || bail "no folder of a session"
XDG_RUNTIME_DIR='' run 0 status --json
check "without a runtime directory, the user's daemon is found in that of the session" all "is pid ${pid[user]}" "is which user"
XDG_RUNTIME_DIR=$dir/nowhere run 0 status --json
check "with another one, too" all "is pid ${pid[user]}" "is which user"
umount "$session"
XDG_RUNTIME_DIR=$dir/nowhere run 0 status --json
check "a daemon that is in none of these folders is not" is pid "${pid[system]}"
run 0 status --json --socket "$systems"
check "the system's daemon names the user's" all "is pid ${pid[system]}" "is which system" "is others.0.which user" \
	"is others.0.socket $users"
GPUMEM_SOCKET=$systems run 0 status --json
check "and is reached as it says" is pid "${pid[system]}"
run 0 doctor
check "doctor says which daemon answered, and that there is another" all "says 'your own daemon: gpumemd'" \
	"says \"the system's daemon is here, too\"" "says GPUMEM_SOCKET=$systems"

# ---- what outlives a reboot

# saves STATUS WORDS...: sets limits of the system's daemon in an /etc of our own, one command for each of the words.
saves() {
	local want=$1
	gpumemctl=$gpumemctl systems=$systems as_root=${as_root-} conf=${conf-} mask=${mask-022} unshare --mount bash -c '
		mount -t tmpfs -o mode=755 none /etc || exit 77
		if [ -n "${conf-}" ]; then mkdir /etc/gpumemd && printf "$conf" >/etc/gpumemd/gpumemd.conf; fi
		umask "${mask-022}"
		for words; do ${as_root-} "$gpumemctl" --socket "$systems" limit set $words || exit; done
		cd /etc/gpumemd/gpumemd.conf.d && stat -c "mode %a" .. . * && head -v -n -0 * && ls -A | wc -l && "$gpumemctl" config check' bash "${@:2}" >"$dir/stdout" 2>"$dir/stderr"
	status=$?
	[ "$status" = "$want" ]
}
check "a limit is saved in a drop-in" all "saves 0 'uid:7 max=1G priority=-2 --save'" "says '==> 80-limit-uid-7.conf <=='" \
	"says '[limit uid:7]'" "says 'max = 1G'" "says 'priority = -2'" \
	"complains 'also persists across a reboot. The daemon reads the file at its next start or reload: /etc/gpumemd/gpumemd.conf.d/80-limit-uid-7.conf'" "says '80-limit-uid-7.conf: no mistakes'"
check "whatever the umask, the service can read the file and its folders" all "mask=077 saves 0 'uid:7 max=1G --save'" \
	"[ \"\$(grep -x 'mode .*' '$dir/stdout' | tr '\n' ' ')\" = 'mode 755 mode 755 mode 644 ' ]"
check "a mistake elsewhere is named, because the daemon will not start with it" all \
	"conf='[gpumemd]\ntrust = nobody\n' saves 1 'uid:7 max=1G --save'" "complains 'will not start with its configuration: /etc/gpumemd/gpumemd.conf:2: trust: '" \
	"! complains 'after a reboot'" "complains 'saved in /etc/gpumemd/gpumemd.conf.d/80-limit-uid-7.conf'"
check "a user's HOME does not matter to root" all "HOME=$dir/home XDG_CONFIG_HOME=$dir/home/conf saves 0 'uid:7 max=1G --save'" \
	"says '==> 80-limit-uid-7.conf <=='" "[ ! -e '$dir/home' ]"
if has_users; then
	as_root="setpriv --ruid 54321 --euid 0"
	check "nor a real user other than root" all "HOME=$dir/home as_root='$as_root' saves 0 'uid:7 max=1G --save'" \
		"says '==> 80-limit-uid-7.conf <=='" "[ ! -e '$dir/home' ]"
else
	ok "nor a real user other than root # SKIP needs root to become another user"
fi
check "saved again, it keeps what is not replaced, and nothing is left behind" all \
	"saves 0 'uid:7 max=1G priority=-2 --save' 'uid:7 max=2G --save'" "says 'max = 2G'" "! says 'max = 1G'" "says 'priority = -2'" \
	"grep -qx 1 '$dir/stdout'"
check "a limit on a device has a file of its own" all "saves 0 'uid:7 max=1G --save' 'unit:a_b.service max=3G --save --device 0'" \
	"says '==> 80-limit-unit-a_5fb.service@device-0.conf <=='" "says '[device 0 limit unit:a_b.service]'" "grep -qx 2 '$dir/stdout'"
check "one on pinned host memory is saved by its name, which does not depend on the GPUs" all \
	"saves 0 'uid:7 max=32M --save --device 1' 'uid:7 priority=3 --save --device pinned'" "says '==> 80-limit-uid-7@device-pinned.conf <=='" \
	"says '[device pinned limit uid:7]'" "says 'max = 32M'" "says 'priority = 3'" "grep -qx 1 '$dir/stdout'"
check "without --save, a message says that a reboot ends it" all "! saves 0 'uid:7 max=1G'" "complains 'holds until the next reboot'" \
	"complains -- '--save keeps it'"
# shows_saved VERB...: what the system's daemon says of a limit that was saved in an /etc of our own.
shows_saved() {
	gpumemctl=$gpumemctl systems=$systems reload=${reload-} device=${device-} unshare --mount bash -c '
		mount -t tmpfs -o mode=755 none /etc || exit 77
		"$gpumemctl" --socket "$systems" limit reset >/dev/null && "$gpumemctl" --socket "$systems" limit set uid:7 max=1G --save ${device:+--device "$device"} >/dev/null 2>&1 || exit
		[ -z "${reload-}" ] || "$gpumemctl" --socket "$systems" config reload >/dev/null || exit
		"$gpumemctl" --socket "$systems" "$@"' bash "$@" >"$dir/stdout" 2>"$dir/stderr"
	status=$?
	[ "$status" = 0 ]
}
saved=/etc/gpumemd/gpumemd.conf.d/80-limit-uid-7.conf
check "config show names the file of a limit that was saved" all "shows_saved config show" "says 'saved in '" "says 'gpumemd.conf.d/80-limit-uid-7.conf'" "! says 'in no file'"
check "limit says that it is saved" all "shows_saved limit" "says ' saved'" "! says run-time"
check "so does limit set itself" all "saves 0 'uid:7 max=1G --save'" "says ' saved'" "! says run-time"
check "and programs are told" all "shows_saved limit --json" "is limits.0.source saved"
check "also after the next reload" all "reload=1 shows_saved limit --json" "is limits.0.source saved"
run 0 devices --socket "$systems" --json
uuid=$(value devices.0.uuid)
for device in pinned 0 "$uuid" "${uuid^^}"; do
	check "a limit that was saved for device $device is shown as saved" all "[ -n '$uuid' ]" "device=$device shows_saved limit" "says ' saved'" "! says run-time"
	check "also by config show" all "COLUMNS=200 device=$device shows_saved config show" "says 'saved in '" "! says 'in no file'"
done
unset device
check "limit reset says that the file still sets it, and how to end that" all "shows_saved limit reset uid:7" "says '$saved still sets a limit'" \
	"says 'to end it, remove this'"
check "so does a reset of all limits" all "shows_saved limit reset" "says '$saved still sets a limit'"
run 0 limit reset --socket "$systems"
run 4 limit set uid:7 max=1G --save
check "where the configuration is not known, the text is for an administrator" all "[ $status = 4 ]" "says '[limit uid:7]'" "says 'max = 1G'" \
	"complains 'not saved: '" "complains 'holds until the next reboot'" fits
run 4 limit set uid:7 max=1G --save --json
check "and for programs" all "[ $status = 4 ]" "is saved false" "is limits.0.max 1073741824" "value drop_in | grep -q 'max = 1G'"
run 0 limit set uid:7 max=1G --json
check "they are told, too, that it is not saved" all "[ $status = 0 ]" "is saved false" "silent stderr"
if has_users; then
	chmod 755 "$dir"
	HOME=$dir setpriv --reuid 54321 --regid 54321 --clear-groups "$gpumemctl" --socket "$systems" limit set uid:54321 max=1G --save \
		>"$dir/stdout" 2>"$dir/stderr"
	status=$?
	check "who may not set limits gets the text, too" all "[ $status = 4 ]" "says '[limit uid:54321]'" "complains 'neither set nor saved: '" \
		"complains 'these lines for /etc/gpumemd/gpumemd.conf.d/80-limit-uid-54321.conf'"
else
	ok "who may not set limits gets the text, too # SKIP needs root to become another user"
fi
run 2 limit set session:7 max=1G --save
check "a session's limit cannot be saved" all "[ $status = 2 ]" "complains 'cannot be saved'"
run 2 limit reset --save
check "and only 'set' saves" all "[ $status = 2 ]" "complains \"--save is for 'limit set'\""
run 0 limit reset

# ---- the end of the daemon, and the next one

"$gpumemctl" watch --socket "$systems" --no-reconnect >"$dir/last" 2>&1 &
pid[last]=$!
"$gpumemctl" watch --socket "$systems" >"$dir/watched" 2>"$dir/complaints" &
pid[watch]=$!
until grep -q pressure "$dir/watched" && grep -q pressure "$dir/last"; do kill -0 "${pid[watch]}" "${pid[last]}" || bail "watch ended"; done
kill "${pid[system]}" && wait "${pid[system]}"
wait "${pid[last]}"
status=$?
unset 'pid[last]'
check "watch --no-reconnect ends with the daemon, with a status of its own" all "[ $status = 7 ]" "grep -q ' goodbye ' '$dir/last'"
until grep -q ' disconnected ' "$dir/watched"; do kill -0 "${pid[watch]}" || bail "watch ended"; done
GPUMEM_SOCKET=$systems start_daemon
pid[system]=${pid[daemon]}
unset 'pid[daemon]' GPUMEM_SOCKET
until grep -q ' reconnected ' "$dir/watched"; do kill -0 "${pid[watch]}" || bail "watch ended"; done
run 0 limit set client:nobody max=1G --socket "$systems"
until grep -q 'client:nobody' "$dir/watched"; do kill -0 "${pid[watch]}" || bail "watch ended"; done
check "watch says that the daemon ended, and goes on with the next one" all "grep -q 'the daemon has ended; waiting for the next one' '$dir/watched'" \
	"grep -q 'connected again, to gpumemd' '$dir/watched'" "silent complaints"
kill -KILL "${pid[system]}" && wait "${pid[system]}" 2>/dev/null
until [ "$(grep -c ' disconnected ' "$dir/watched")" = 2 ]; do kill -0 "${pid[watch]}" || bail "watch ended"; done
GPUMEM_SOCKET=$systems start_daemon
pid[system]=${pid[daemon]}
unset 'pid[daemon]' GPUMEM_SOCKET
until [ "$(grep -c ' reconnected ' "$dir/watched")" = 2 ]; do kill -0 "${pid[watch]}" || bail "watch ended"; done
check "also if it was killed" [ "$(grep -c ' goodbye ' "$dir/watched")" = 1 ]
kill "${pid[watch]}" && wait "${pid[watch]}" 2>/dev/null
unset 'pid[watch]'

kill -STOP "${pid[system]}"
run 0 status --json --timeout 50ms
check "a daemon that hangs is named, too, and holds nobody up" all "is pid ${pid[user]}" "is others.0.state silent" "is others.0.pid null"
kill -CONT "${pid[system]}"
# A keeper of root would stay a while.
run 0 stop --forget --socket "$systems"
wait "${pid[system]}"
unset 'pid[system]'
run 0 status --json
check "a daemon that is gone is not" is others.# 0

# refused NAME WORDS: root's daemon must not start, and say WORDS.
refused() {
	(unset XDG_RUNTIME_DIR && exec "$build/daemon/gpumemd" --backend host --config "$dir/gpumemd.conf") 2>"$dir/refused" </dev/null
	[ $? = 1 ] && grep -qF "$2" "$dir/refused" && ok "$1" || not_ok "$1" "$(cat "$dir/refused")"
}
"$build/keeper/gpumem-keeper" --socket "$dir/none/keeper" 2>"$dir/refused"
check "a keeper that is started by hand without its folder says that gpumemd starts it" all "[ $? = 1 ]" \
	"grep -q 'none/keeper: .*; nobody needs to start it: gpumemd starts its keeper' '$dir/refused'"
if has_users; then
	chown nobody:nogroup /run/gpumemd
	refused "in a folder of another user root does not listen, and says how to" \
		"run gpumemd as that user: 'setpriv --reuid nobody --regid nogroup --init-groups gpumemd'"
	(unset XDG_RUNTIME_DIR && "$gpumemctl" status --socket "$systems") >"$dir/stdout" 2>"$dir/stderr"
	check "nor is root told to run it as root" all "complains \"as nobody, to whom its folder belongs: 'setpriv --reuid \"" \
		"! complains \"run 'gpumemd'\""
	chown root:root /run/gpumemd
	# As a daemon leaves it that root has started.
	as_games() { setpriv --reuid games --regid games --clear-groups "$dir/bin/gpumemd" --backend host --config "$dir/gpumemd.conf" 2>"$dir/refused" </dev/null; }
	mkdir "$dir/bin" && install -m 0755 "$build/daemon/gpumemd" "$build/keeper/gpumem-keeper" "$build/ctl/gpumemctl" "$dir/bin"
	chmod 0755 "$dir"
	give="run as root 'install -d -o games -g games /run/gpumemd'"
	as_games
	check "in a folder of root another user of the system does not listen, and says how root gives it the folder" all "[ $? = 1 ]" \
		"grep -qF \"the folder /run/gpumemd belongs to root, and the user games may not write in it; $give\" '$dir/refused'"
	mv /run/gpumemd /run/other
	as_games
	check "likewise if the folder is missing" all "[ $? = 1 ]" "grep -qF \"does not exist, and the user games may not make it; $give\" '$dir/refused'"
	mv /run/other /run/gpumemd

	# The keeper of a daemon that root had started holds memory, and then the folder was given to another user.
	GPUMEM_SOCKET=$systems start_daemon
	GPUMEM_SOCKET=$systems start_worker holder
	ask holder make 8388608 weights
	kill "${pid[daemon]}" && wait "${pid[daemon]}" 2>/dev/null
	chown games:games /run/gpumemd
	chown_back="'chown root: /run/gpumemd'"
	as_games
	cp "$dir/refused" "$dir/stderr"
	check "a daemon beside the keeper of root, in its own folder, says what keeps the memory" all \
		"grep -qF \"run the daemon as that user (User= of its unit), after $chown_back\" '$dir/refused'"
	refused "so does one that root starts" "to take over what clients hold, run $chown_back"
	remedy=$(grep -o "'chown [^']*'" "$dir/refused" | tr -d "'")
	eval "$remedy" && GPUMEM_SOCKET=$systems start_daemon
	check "and whoever follows that has it again" all "GPUMEM_SOCKET=$systems await_value status devices.0.leased 8388608" "kill -0 ${pid[holder]}"
	kill "${pid[holder]}" "${pid[daemon]}" && wait "${pid[holder]}" "${pid[daemon]}" 2>/dev/null
	unset 'pid[holder]' 'pid[daemon]'

	# Somebody was first in /tmp. The user does what the message says.
	uid=64123
	while [ -e /tmp/gpumemd-$uid ]; do uid=$((uid + 1)); done
	foreign=/tmp/gpumemd-$uid
	mkdir "$foreign" && chown 1:1 "$foreign" && chmod 0777 "$foreign"
	mkdir -m 0700 "$dir/home" && chown $uid:$uid "$dir/home"
	as_user() {
		env -u XDG_RUNTIME_DIR -u GPUMEM_SOCKET HOME="$dir/home" PATH="$dir/bin:$PATH" setpriv --reuid $uid --regid $uid --clear-groups -- "$@"
	}
	GPUMEM_SOCKET=$systems start_daemon
	as_admin() { env -u XDG_RUNTIME_DIR -u GPUMEM_SOCKET setpriv --reuid $uid --regid games --clear-groups -- "$dir/bin/gpumemctl" "$@"; }
	as_admin stop --forget >"$dir/stdout" 2>"$dir/stderr"
	check "an administrator without a daemon of its own ends the system's only by name" all "[ $? = 1 ]" \
		"complains 'an administrator can run: gpumemctl stop --forget --socket $systems'" \
		"kill -0 ${pid[daemon]}" "as_admin stop --forget --socket $systems >'$dir/stdout'" "says \"The system's daemon has ended\""
	wait "${pid[daemon]}"
	unset 'pid[daemon]' GPUMEM_SOCKET
	as_user env XDG_RUNTIME_DIR=/run/user/$uid gpumemd --backend host --config "$dir/gpumemd.conf" 2>"$dir/refused" </dev/null
	check "a runtime directory that does not exist is named" all "[ $? = 1 ]" \
		"grep -qF 'XDG_RUNTIME_DIR names /run/user/$uid, which does not exist: unset it, or use --socket' '$dir/refused'"
	as_user gpumemd --backend host --config "$dir/gpumemd.conf" 2>"$dir/refused" </dev/null
	check "a user does not listen in a folder of another user" all "[ $? = 1 ]" "grep -q '$foreign belongs to uid 1' '$dir/refused'"
	mapfile -t remedy < <(grep -o "'[^']*'" "$dir/refused" | tr -d "'")
	as_user bash -c "${remedy[0]} --backend host --config '$dir/gpumemd.conf'" 2>"$dir/log" &
	pid[follows]=$!
	until as_user bash -c "${remedy[1]} && gpumemctl status" >"$dir/followed" 2>&1; do
		kill -0 "${pid[follows]}" 2>/dev/null || break
	done
	check "and can do what the message says" grep -q '.gpumemd/socket' "$dir/followed"
	as_user bash -c "${remedy[1]} && gpumemctl stop" >/dev/null && wait "${pid[follows]}"
	unset 'pid[follows]'
	rmdir "$foreign"
fi
chmod 0777 /run/gpumemd
refused "nor in a folder that anybody can write to" "run 'chmod go-w /run/gpumemd'"

echo "1..$n"
