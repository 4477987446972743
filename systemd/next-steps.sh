#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Says what to do after make install. The folders are in the environment: prefix, bindir, libdir, pythondir,
# sysconfdir, units, exampledir; and DESTDIR, if the installation is staged: nothing runs from there.
set -eu

if [ -n "${DESTDIR-}" ]; then
	cat <<STAGED

gpumemd is staged in $DESTDIR, for the prefix $prefix. Nothing can be started from there: make a package of these
files, or copy them to / on the machine that is to run gpumemd. Then: man gpumemd
STAGED
	exit
fi

printf '\ngpumemd is installed below %s. What to do next:\n' "$prefix"
case $prefix in
/usr | /usr/local)
	cat <<STEPS

  sudo ldconfig

A service for everybody on this machine, with its settings in $sysconfdir/gpumemd/gpumemd.conf:

  sudo systemd-sysusers && sudo systemd-tmpfiles --create gpumemd.conf
  sudo systemctl daemon-reload
  sudo systemctl enable --now gpumemd.socket gpumemd.service

Or without systemd:

  sudo systemd-sysusers && sudo install -d -o gpumemd -g gpumemd /run/gpumemd
  sudo setpriv --reuid gpumemd --regid gpumemd --init-groups gpumemd &
STEPS
	;;
*)
	cat <<STEPS

  export PATH=$bindir:\$PATH LD_LIBRARY_PATH=$libdir PKG_CONFIG_PATH=$libdir/pkgconfig
STEPS
	[ -z "$pythondir" ] || echo "  export PYTHONPATH=$pythondir"
	printf '\nEvery setting is a comment in %s, to be copied to ~/.config/gpumemd.\n' "$exampledir/gpumemd.conf"
	;;
esac

printf '\nA service of your own, with its settings in ~/.config/gpumemd/gpumemd.conf:\n\n'
# systemd looks for units below /usr, /usr/local and ~/.local only.
case $prefix in
/usr | /usr/local | "${HOME-}"/.local) ;;
*) printf '  systemctl --user link %s\n' "$units/gpumemd.socket $units/gpumemd.service $units/gpumemd-keeper.service" ;;
esac
cat <<STEPS
  systemctl --user daemon-reload
  systemctl --user enable --now gpumemd.socket gpumemd.service

Or without systemd, as yourself and not as root: gpumemd &
It is ready when it writes "Serving".

Then: gpumemctl status, gpumemctl doctor, man gpumemd
STEPS
