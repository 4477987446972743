#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# gpumemctl config check and doctor, as root: whether the system's service, by its unit, runs as a user that can see and read its files.
set -u
umask 022 # other users must be able to read what this makes
build=${top_builddir:-.} source=${top_srcdir:-.}
. "$source/tests/integration/functions.sh"
. "$source/tests/integration/ctl-functions.sh"

# Root can read files that the service, which is another user, cannot. This is shown with an /etc of our own.
etc_script='
	mount -t tmpfs -o mode=755 none /etc && mkdir -p /etc/gpumemd/gpumemd.conf.d && cp "$dir/passwd" /etc/passwd || exit 77
	printf "root:x:0:\nstaff:x:64995:\n" >/etc/group
	printf "[gpumemd]\n${setting-trust = nobody}\n" >/etc/gpumemd/gpumemd.conf
	echo "[gpumemd]" >/etc/gpumemd/gpumemd.conf.d/10-a.conf
	mkdir -p /etc/systemd/system
	chgrp "${owned-root}" /etc/gpumemd/gpumemd.conf.d/10-a.conf
	chmod "$1" /etc/gpumemd/gpumemd.conf && chmod "$2" /etc/gpumemd/gpumemd.conf.d/10-a.conf && chmod "$3" /etc/gpumemd/gpumemd.conf.d
	if [ -n "${user-}" ]; then printf "[Service]\nUser=%s\n" "$user" >/etc/systemd/system/gpumemd.service; fi
	if [ -n "${moved-}" ]; then # a home of somebody, a /tmp of the daemon
		mount -t tmpfs none /root && chmod "${closed-755}" /root && mkdir /root/below && chmod 755 /root/below
		mv /etc/gpumemd/gpumemd.conf.d/10-a.conf "$moved" && ln -s "$moved" /etc/gpumemd/gpumemd.conf.d/10-a.conf
	fi
	if [ -n "${hides-}" ]; then printf "[Service]\nUser=gpumemd\n%b\n" "$hides" >/etc/systemd/system/gpumemd.service; fi
	${command-"$gpumemctl" config check} "${@:4}"
	status=$?
	[ -z "${moved-}" ] || rm -f "$moved"
	exit "$status"'
check_etc() { # STATUS MODES...
	local want=$1
	gpumemctl=$gpumemctl dir=$dir user=${user-} unshare --mount bash -c "$etc_script" bash "${@:2}" >"$dir/stdout" 2>"$dir/stderr"
	status=$?
	[ "$status" = "$want" ]
}
printf 'root:x:0:0::/:/bin/sh\ngpumemd:x:897:897::/:/bin/sh\n' >"$dir/passwd"
why="needs root to become another user"
if has_users && ! why=$(no_namespaces); then
	check "config check as root names the files that the service cannot read" all "check_etc 1 600 600 755" \
		"complains '/etc/gpumemd/gpumemd.conf: cannot be read by the user gpumemd'" \
		"complains '/etc/gpumemd/gpumemd.conf.d/10-a.conf: cannot be read by the user gpumemd'" \
		"complains 'gpumemd.conf:2: trust: '" "! complains 'conf.d: cannot be read'"
	export setting=
	hidden='10-a.conf: the service cannot see it: it is a link, and '
	check "a file in somebody's home, which the unit hides" all "moved=/root/below/gpumemd-a hides=ProtectHome=yes check_etc 1 644 644 755" \
		"complains '$hidden/root/below/gpumemd-a is hidden from the service (ProtectHome= of its unit); copy the file into /etc/gpumemd'"
	check "and one in /tmp" all "moved=$(mktemp -u) hides=PrivateTmp=true check_etc 1 644 644 755" \
		"complains '$hidden/tmp/'" "complains '(PrivateTmp= of its unit)'"
	check "but not if the unit hides neither" all "moved=$(mktemp -u) hides=ProtectHome=read-only check_etc 0 644 644 755"
	check "a folder above the file that the user may not enter" all "moved=/root/below/gpumemd-a closed=700 check_etc 1 644 644 755" \
		"complains '10-a.conf: cannot be read by the user gpumemd'" "complains 'because this user may not enter the folder /root; change'"
	home=/root/below/gpumemd-a tmpfs=ProtectHome=tmpfs
	check "a place that the unit shows again is not hidden" all "moved=$home hides=$tmpfs'\nBindReadOnlyPaths=/root/below' check_etc 0 644 644 755"
	check "but not what is inaccessible as a whole" all "moved=$home hides='ProtectHome=yes\nBindReadOnlyPaths=/root/below' check_etc 1 644 644 755" \
		"complains '(ProtectHome= of its unit)'"
	check "nor below another place that it shows" all "moved=$home hides=$tmpfs'\nBindReadOnlyPaths=/root/other' check_etc 1 644 644 755" \
		"complains '(ProtectHome= of its unit)'"
	check "an empty line takes the list back" all "moved=$home hides=$tmpfs'\nBindPaths=-/root/below\nBindPaths=' check_etc 1 644 644 755"
	check "what the unit makes inaccessible" all "hides='InaccessiblePaths=-/nowhere /etc/gpumemd' check_etc 1 644 644 755" \
		"complains 'gpumemd.conf: the service cannot see it: it is hidden from the service (InaccessiblePaths= of its unit); take the path out of this key'"
	check "or covers" all "hides=TemporaryFileSystem=/etc/gpumemd/gpumemd.conf.d:ro check_etc 1 644 644 755" \
		"complains 'gpumemd.conf.d: the service cannot see it'" "complains '(TemporaryFileSystem= of its unit)'"
	for key in BindPaths=/opt:/etc/gpumemd:rbind RootDirectory=/srv/gpumemd; do
		check "of a place that only the service sees it says that nobody can tell: $key" all "hides=$key check_etc 0 600 600 755" \
			"says 'not checked: whether the service can read it'" "says '(${key%%=*}= of its unit)'"
	done
	for key in SupplementaryGroups=staff "SupplementaryGroups=root 64995" Group=staff AmbientCapabilities=CAP_DAC_READ_SEARCH; do
		check "the unit lets the service read it: $key" all "owned=staff hides='$key' check_etc 0 644 640 755"
	done
	check "but not with another group" all "owned=staff hides=Group=root check_etc 1 644 640 755" "complains '10-a.conf: cannot be read by the user gpumemd'"
	for key in ProtectProc=invisible PrivateUsers=yes; do
		check "a unit that hides clients from the daemon: $key" all "hides=$key check_etc 0 644 644 755" \
			"says 'gpumemd.service: $key hides clients from the daemon'" "says 'remove ${key%%=*}= from the unit'"
	done
	hides=PrivateUsers=self command="$gpumemctl doctor --json" check_etc 1 644 644 755
	check "doctor says it as well" all "grep -q 'PrivateUsers=self hides clients .* while such a client holds memory; remove PrivateUsers= from' '$dir/stdout'"
	check "but not a unit that shows them" all "hides='ProtectProc=default\nPrivateUsers=no' check_etc 0 644 644 755" "! says 'hides clients'"
	check "a user of the unit that does not exist" all "user=nobodyhere check_etc 1 644 644 755" \
		"complains 'there is no user nobodyhere, as which the service is to run (User= of its unit)'"
	printf 'tester:x:1234:896::/:/bin/sh\n' >>"$dir/passwd"
	check "or that has a configuration of its own" all "user=tester check_etc 1 644 644 755" \
		"complains 'the service runs as tester (User= of its unit), an ordinary user (uid 1234), and reads the configuration of this user'"
	sed -i /tester/d "$dir/passwd"
	check "a number is a user" all "user=897 check_etc 1 644 600 755" "complains 'cannot be read by the user gpumemd'"
	unset setting
	check "and the folder of its drop-ins" all "check_etc 1 644 644 700" "complains 'gpumemd.conf.d: cannot be read by the user'" \
		"! complains 'gpumemd.conf: cannot be read'"
	export setting= command="$gpumemctl doctor"
	check "so does doctor, where nothing else is wrong" all "check_etc 1 644 600 755" "says 'fail  config'" "says '10-a.conf: cannot be read by'"
	check "also of the folder" all "check_etc 1 644 644 700" "says 'fail  config'" "says 'gpumemd.conf.d: cannot be read by'"
	check "and says ok if the service can read all" all "check_etc 0 644 644 755" "says 'ok    config'"
	command="$gpumemd --check-config"
	check "so does gpumemd --check-config" all "check_etc 1 600 644 755" "complains 'gpumemd.conf: cannot be read by the user gpumemd'"
	check "which finds nothing if the service can read all" all "check_etc 0 644 644 755" "! complains 'cannot be read'"
	for command in "$gpumemd --check-config" "$gpumemctl config check"; do
		check "a folder of the socket that the daemon's user may not write to: $command" all \
			"setting='socket = /etc/gpumemd/socket' check_etc 1 644 644 755" \
			"complains \"gpumemd.conf:2: socket: the daemon's user gpumemd cannot write to the folder /etc/gpumemd; name a folder that belongs to this user, or write socket = auto\""
		check "a group that it is not in: $command" all "setting='socket_group = staff' check_etc 1 644 644 755" \
			"complains \"gpumemd.conf:2: socket_group: the daemon's user gpumemd is not in the group\"" "complains 'usermod -a -G staff gpumemd'"
		check "and a folder for all is fine: $command" all "setting='socket = /tmp/socket' check_etc 0 644 644 755" "! complains 'socket'"
	done
	command="$gpumemd --check-config"
	printf 'other:x:896:896::/:/bin/sh\n' >>"$dir/passwd"
	check "the user is that of the unit" all "user=other check_etc 1 600 644 755" "complains 'cannot be read by the user other'"
	unset setting command
	check "but complains of nothing that it can read" all "check_etc 1 644 644 755" "! complains 'cannot be read'"
	check "nor of a file that is not the service's" all "check_etc 1 600 600 755 /etc/gpumemd/gpumemd.conf" \
		"! complains 'cannot be read'"
	sed -i -e /gpumemd/d -e /other/d "$dir/passwd"
	check "nor where there is no such user" all "check_etc 1 600 600 755" "! complains 'cannot be read'"
else
	for name in "config check as root names the files that the service cannot read" "and the folder of its drop-ins" \
		"a file in somebody's home, which the unit hides" "and one in /tmp" "but not if the unit hides neither" \
		"a folder above the file that the user may not enter" "so does doctor, where nothing else is wrong" "also of the folder" "and says ok if the service can read all" "so does gpumemd --check-config" \
		"which finds nothing if the service can read all" "the user is that of the unit" \
		"a folder of the socket that the daemon's user may not write to" "a group that it is not in" \
		"but complains of nothing that it can read" "nor of a file that is not the service's" "nor where there is no such user"; do
		ok "$name # SKIP $why"
	done
fi

echo "1..$n"
