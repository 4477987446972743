#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Says after make uninstall what still runs, what stays, and what ends or removes it. In the environment: sysconfdir, the
# folder of the configuration; tool, a gpumemctl that was not uninstalled. A test sets sockets, the kernel's list of sockets,
# links, the folder of the enabled units, system, the folder of the system's sockets, and processes, that of all processes.
set -eu
sockets=${sockets:-/proc/net/unix} links=${links:-/etc/systemd/system} system=${system:-/run/gpumemd} processes=${processes:-/proc}
units="gpumemd.socket gpumemd-admin.socket gpumemd.service gpumemd-keeper.service"

enabled=$(find "$links" -path '*.wants/*' -name 'gpumemd*' 2>/dev/null | sort | tr '\n' ' ')
# The kernel lists the sockets of the network namespace, which a container may share with others whose files it does not see.
running=$(sed -n 's/.* \(\/.*\/gpumemd\(-[0-9]*\)\{0,1\}\/socket\)$/\1/p' "$sockets" 2>/dev/null | sort -u | while read -r socket; do
	[ ! -S "$socket" ] || echo "$socket"
done)

if [ -n "$enabled" ]; then
	cat <<TEXT

The units of gpumemd are still enabled, and a service that runs goes on. To end that:

  sudo systemctl stop $units
  sudo rm -f ${enabled% }
  sudo systemctl daemon-reload
TEXT
fi
for socket in $running; do
	case $enabled:$socket in ?*:"$system/socket") continue ;; esac
	printf '\nA daemon still listens on %s. To end it, and all memory that it handed out:\n\n' "$socket"
	if [ -O "$socket" ]; then as=; else as='sudo '; fi
	printf '  %s%s stop --forget --socket %s\n' "$as" "$tool" "$socket"
done
# A keeper that systemd does not run. If it has a daemon, the daemon ends it.
for process in "$processes"/[0-9]*; do
	words=$(tr '\0' ' ' <"$process/cmdline") 2>/dev/null || continue
	case $words in "gpumem-keeper --background --socket "*/gpumemd/keeper\  | "gpumem-keeper --background --socket "*/gpumemd-[0-9]*/keeper\ ) ;; *) continue ;; esac
	socket=${words#gpumem-keeper --background --socket } pid=${process##*/}
	socket=${socket% }
	printf '%s\n' "$running" | grep -qxF "${socket%keeper}socket" && continue
	[ "$process/root$socket" -ef "$socket" ] || continue # in a container
	printf '\nA keeper without a daemon still runs, pid %s, with its socket %s. To end it, and all memory that it keeps:\n\n' "$pid" "$socket"
	if [ -O "$socket" ]; then as=; else as='sudo '; fi
	printf '  %skill %s\n' "$as" "$pid"
done

stays=
for file in "$sysconfdir"/gpumemd/gpumemd.conf "$sysconfdir"/gpumemd/gpumemd.conf.d/*; do
	[ ! -e "$file" ] || stays="$stays  $file
"
done
accounts=
for name in passwd:gpumemd group:gpumemd group:gpumem group:gpumem-observer; do
	getent "${name%%:*}" "${name#*:}" >/dev/null 2>&1 || continue
	case $name in passwd:*) word=user ;; *) word=group ;; esac
	accounts="$accounts  the $word ${name#*:}
"
done
[ -z "$stays$accounts" ] || printf '\nThese stay:\n\n%s%s' "$stays" "$accounts"
