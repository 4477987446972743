# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Namespaces for tests. To be sourced.

# What unshare needs for mounts of one's own: an ordinary user is root in a user namespace for that.
own_mounts=(--mount)
[ "$(id -u)" = 0 ] || own_mounts=(--user --map-root-user --mount)

# no_namespaces [OPTION...]: succeeds if "unshare OPTION... true" fails, and prints the reason on one line. The default is own_mounts.
no_namespaces() {
	local said why setting
	[ $# -gt 0 ] || set -- "${own_mounts[@]}"
	said=$(LC_ALL=C unshare "$@" true 2>&1) && return 1
	why=${said##*$'\n'} why=${why#unshare: }

	# In a chroot, the kernel makes no user namespace, and unshare cannot make the mounts private.
	if ! awk '$5 == "/" { found = 1 } END { exit !found }' /proc/self/mountinfo 2>/dev/null; then
		why="this is a chroot whose folder is not a mount point"
		[ "$(id -u)" != 0 ] || why="$why; run 'mount --bind FOLDER FOLDER' before 'chroot FOLDER'"
	elif [ "$(id -u)" != 0 ]; then
		for setting in user/max_user_namespaces=0 kernel/unprivileged_userns_clone=0 kernel/apparmor_restrict_unprivileged_userns=1; do
			[ "$(cat "/proc/sys/${setting%=*}" 2>/dev/null)" != "${setting#*=}" ] || why="${setting/\//.}: $why"
		done
	fi
	if [ "$(id -u)" = 0 ]; then
		echo "needs namespaces: $why"
	else
		echo "needs root or user namespaces: $why"
	fi
}
