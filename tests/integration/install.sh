#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What make install leaves is complete: the programs are where an ordinary user finds them, the pages and the units name files
# that exist, the configuration is accepted and is not overwritten, the examples build with pkg-config and run, and uninstalling
# leaves nothing. It ends with what to do next. A build that is configured for other folders begins anew. ./bootstrap explains itself
# before any package is there.
set -u
build=$(realpath "${top_builddir:-.}") source=$(realpath "${top_srcdir:-.}")
. "$source/tests/integration/functions.sh"
scratch install
root=$dir/root
unset MAKEFLAGS MFLAGS MAKELEVEL DESTDIR NOTIFY_SOCKET LISTEN_FDS LISTEN_PID
check() { # NAME COMMAND...
	local said
	said=$("${@:2}" 2>&1) && ok "$1" || not_ok "$1" "$said"
}
install() { make -s -C "$build" install DESTDIR="$root" V=0; }
install >"$dir/log" 2>&1 || bail "make install: $(tail -n 20 "$dir/log")"

# The folders, as configure was told.
folder() { printf 'include Makefile\nprint:\n\t@echo $(%s)\n' "$1" | make -s --no-print-directory -C "$build" -f - print; }
bindir=$(folder bindir) mandir=$(folder mandir) docdir=$(folder docdir) sysconfdir=$(folder sysconfdir) libdir=$(folder libdir)
unitdir=$(folder systemdsystemunitdir) userunitdir=$(folder systemduserunitdir) prefix=$(folder prefix)
conf=$root$sysconfdir/gpumemd/gpumemd.conf kept=$conf
# Below a prefix that is not the system's there is only an example for the user: the daemon reads /etc.
[ "$sysconfdir" = "$(folder system_sysconfdir)" ] || conf=$root$docdir/examples/gpumemd.conf kept=

staged() { tail -n 4 "$dir/log" | grep -qF "gpumemd is staged in $root, for the prefix $prefix." && ! grep -E 'systemctl|systemd-(sysusers|tmpfiles)|ldconfig|gpumemd &' "$dir/log"; }
check "make install with DESTDIR says that the files are staged, and asks nobody to start services" staged
next_steps() { prefix=/usr bindir=/usr/bin libdir=/usr/lib pythondir='' sysconfdir=/opt/conf units=/usr/share/systemd/user sh "$source/systemd/next-steps.sh" >"$dir/steps"; }
next_steps_end() { next_steps && grep -qxF "  systemctl --user enable --now gpumemd.socket gpumemd.service" "$dir/steps" && tail -n 1 "$dir/steps" | grep -q "gpumemctl status"; }
check "without, it ends with what to do next" next_steps_end
next_steps_conf() { grep -qF "its settings in /opt/conf/gpumemd/gpumemd.conf:" "$dir/steps" && ! grep -F ' /etc/' "$dir/steps"; }
check "and names the folder of the configuration that configure was told" next_steps_conf
# Root would leave a folder of the socket in which the user gpumemd cannot listen.
next_steps_without() {
	local said line
	said=$(prefix=/usr/local bindir=/usr/local/bin libdir=/usr/local/lib pythondir='' sysconfdir=/etc units=/usr/local/share/systemd/user sh "$source/systemd/next-steps.sh") || return
	while read -r line; do
		grep -qxF "  $line" <<<"$said" && grep -qxF "$line" "$source/README.md" || { echo "$line"; return 1; }
	done <<'LINES'
sudo systemd-sysusers && sudo install -d -o gpumemd -g gpumemd /run/gpumemd
sudo setpriv --reuid gpumemd --regid gpumemd --init-groups gpumemd &
LINES
}
check "and starts the system's daemon without systemd as its own user, as README does" next_steps_without
next_steps_home() {
	local said
	said=$(prefix=/home/me/.local bindir=/b libdir=/l pythondir='' sysconfdir=/home/me/.local/etc units=/u exampledir=/home/me/doc sh "$source/systemd/next-steps.sh") &&
		[[ $said == *"/home/me/doc/gpumemd.conf, to be copied to ~/.config/gpumemd"* ]] && [[ $said != *"/.local/etc"* ]] || { echo "$said"; return 1; }
}
check "and below a home folder names the configuration that one's own daemon reads" next_steps_home
reads_conf() { grep -qaF "$(folder system_sysconfdir)/gpumemd/gpumemd.conf" "$root$bindir/gpumemd"; }
check "which is the one that the system's daemon reads" reads_conf

# ---- the programs

programs() { [ -x "$root$bindir/gpumemd" ] && [ -x "$root$bindir/gpumemctl" ] && [ -x "$root$bindir/gpumem-keeper" ]; }
check "gpumemd, gpumemctl and gpumem-keeper are in one folder, $bindir" programs
exporter_unit() { [ ! -x "$build/exporter/gpumem-exporter" ] || { [ -x "$root$bindir/gpumem-exporter" ] && grep -qx "ExecStart=$bindir/gpumem-exporter" "$root$unitdir/gpumem-exporter.service" && [ -e "$root$unitdir/gpumem-exporter.socket" ]; }; }
check "gpumem-exporter is there with its units" exporter_unit
run_library() { [ -x "$root$bindir/gpumem-run" ] && [ -e "$root$libdir/gpumemd/libgpumem-preload.so" ] && grep -qaF "$libdir/gpumemd/libgpumem-preload.so" "$root$bindir/gpumem-run"; }
check "gpumem-run knows where its library is" run_library
# It finds the client library beside it, wherever both were installed.
run_client() { readelf -d "$root$libdir/gpumemd/libgpumem-preload.so" | grep -qF '$ORIGIN/..' && [ -e "$root$libdir/libgpumem-client.so.0" ]; }
check "that library knows where the client library is" run_client
weights_library() { [ -e "$root$libdir/libgpumem-weights.so.0" ] && [ -e "$root$libdir/pkgconfig/libgpumem-weights.pc" ]; }
check "libgpumem-weights is there, and pkg-config knows it" weights_library
# The search path of a user of Debian who is not root has no sbin.
check "no program is where only root looks" [ -z "$(find "$root" -path '*/sbin/*')" ]
check "it says its version" "$root$bindir/gpumemd" --version

# ---- the units and the pages

unit_programs() {
	local path paths
	paths=$(sed -n 's/^ExecStart=\([^ ]*\).*/\1/p' "$root$unitdir"/*.service "$root$userunitdir"/*.service)
	[ "$(wc -w <<<"$paths")" -ge 4 ] || return
	for path in $paths; do [ -x "$root$path" ] || { echo "$path"; return 1; }; done
}
check "the services start programs that are installed" unit_programs
user_units() { ! grep -HE '^(User|Group|SocketGroup|OOMScoreAdjust|Protect[A-Z][A-Za-z]*|Private[A-Z][A-Za-z]*)=|multi-user|/run/|admin\.socket' "$root$userunitdir"/*; }
check "the units of a user have nothing that only the system can have" user_units

# Every path below a folder of ours that a page, a unit, the configuration or the README names exists.
named_paths() {
	local path missing=0 paths
	paths=$({
		find "$root$mandir" "$root$unitdir" "$root$userunitdir" "$conf" -type f -exec sed -e 's/\\-/-/g' -e 's/\\[&f][BIR]*//g' {} +
		sed "s,/usr/local,$prefix,g" "$source/README.md"
	} | grep -ohE "($prefix|$sysconfdir/gpumemd)/[A-Za-z0-9_./-]+" | sed 's/[.]*$//' | sort -u)
	[ "$(wc -l <<<"$paths")" -ge 4 ] || { echo "only these were found: $paths"; return 1; }
	for path in $paths; do
		case $path in */gpumemd.conf.d/*) continue ;; esac # the administrator writes them
		[ -e "$root$path" ] || { echo "$path"; missing=1; }
	done
	return "$missing"
}
check "the manual, the README, the units and the configuration name paths that exist" named_paths

manual_of() { # NAME WORDS
	LC_ALL=C MANPATH=$root$mandir MANPAGER=cat man -P cat "$1" | grep -qF "$2"
}
index_manual() { make -s -C "$build" index-manual mandir="$root$mandir"; }
if command -v man >/dev/null; then
	check "man finds a function" manual_of gpumem_free 'gpumem_status gpumem_free('
	check "man finds the daemon" manual_of gpumemd 'GPU memory broker'
	check "man finds gpumem-run" manual_of gpumem-run 'under gpumemd'
	apropos_finds() {
		local pages
		index_manual && pages=$(MANPATH=$root$mandir apropos gpumem) || return
		for page in gpumemd gpumemctl gpumem-run gpumem_alloc; do grep -q "^$page " <<<"$pages" || { echo "$page"; return 1; }; done
	}
	check "apropos finds the pages, once they are indexed" apropos_finds
	# As in Debian, where /usr/local/man is a link to share/man. Each name has an index of its own below /var/cache/man.
	mkdir "$dir/home" "$dir/cache" && ln -s "$root$mandir" "$dir/man"
	printf 'MANDB_MAP %s %s\n' "$dir/man" "$dir/cache/link" "$root$mandir" "$dir/cache/folder" >"$dir/home/.manpath"
	apropos_by_link() { # MATCHES
		HOME=$dir/home MANPATH=$dir/man:$root$mandir index_manual || return
		[ "$(HOME=$dir/home MANPATH=$dir/man:$root$mandir apropos gpumem 2>/dev/null | grep -c '^gpumemctl ')" = "$1" ]
	}
	check "and finds them by another name of their folder" apropos_by_link 1
else
	ok "man finds a function # SKIP man is not installed"
fi

# ---- the configuration

check "the configuration is installed for everybody to read" [ "$(stat -c %a "$conf")" = 644 ]
unread_conf() {
	make -s -C "$build" install-data-local DESTDIR="$dir/elsewhere" sysconfdir=/home/me/.local/etc && [ ! -e "$dir/elsewhere" ]
}
check "and not where no daemon reads it" unread_conf
check "it is accepted" "$root$bindir/gpumemctl" config check "$conf"
# The group that the sysusers file makes is not here.
sed -e 's/^#\([a-z[]\)/\1/' -e "s/^\\(admin\\|observer\\)_group = .*/\\1_group = $(id -gn)/" "$conf" >"$dir/all.conf"
check "without its comments it is accepted, too" "$root$bindir/gpumemctl" config check "$dir/all.conf"
check "and has keys then" [ "$(grep -c '^[a-z_]* =' "$dir/all.conf")" -ge 30 ]
check "it names the folder of one's own daemon" grep -qF '~/.config/gpumemd/gpumemd.conf' "$conf"
if [ "$kept" ]; then
	check "its drop-ins have a folder" [ -d "$conf.d" ]
	echo '# mine' >>"$conf"
	keeps() { install && grep -qx '# mine' "$conf"; }
	check "installing again keeps what the administrator wrote" keeps
fi

# ---- the library and the examples

export PKG_CONFIG_PATH=$root$libdir/pkgconfig PKG_CONFIG_SYSROOT_DIR=$root GPUMEM_SOCKET=$dir/socket
export LD_LIBRARY_PATH=$root$libdir:${LD_LIBRARY_PATH-}
cp -r "$root$docdir/examples" "$dir/examples" && chmod -R u+w "$dir/examples"
# The library may be built with sanitizers, so make says how to compile.
check "the examples build with pkg-config" make -s -C "$dir/examples" CC="${GPUMEM_TEST_CC:-cc}" CXX="${GPUMEM_TEST_CXX:-c++}"
# demo-gpu.c is a part of others.
each_is_built() {
	local program
	for program in "$dir"/examples/*.c; do
		program=${program%.c}
		[ "${program##*/}" = demo-gpu ] || [ -x "$program" ] || { echo "${program##*/} is not built" >&2; return 1; }
	done
}
check "the makefile builds each example" each_is_built
printf '[gpumemd]\nmin_free = 0\n[device 0]\nsize = 512M\n' >"$dir/conf"
"$root$bindir/gpumemd" --backend host --config "$dir/conf" --socket "$GPUMEM_SOCKET" 2>"$dir/log" &
daemon=$!
until "$root$bindir/gpumemctl" status >/dev/null 2>&1; do
	kill -0 "$daemon" 2>/dev/null || bail "no daemon"
done
programs="worker batch resize copy share"
[ ! -x "$build/examples/cxx_worker" ] || programs+=" cxx_worker"
for program in $programs; do check "$program runs" "$dir/examples/$program"; done

# ---- the Python package

python=$(folder PYTHON) pythondir=$(folder pythondir)
# Python has no sanitizers, so it cannot load a library that has.
package_program='import gpumem; gpumem.library_version()'
grep -q '^GM_CFLAGS = .*-fsanitize=' "$build/Makefile" && package_program='import gpumem'
package() { (unset LD_LIBRARY_PATH; PYTHONPATH=$root$pythondir "$python" -c "$package_program"); }
if [ "$python" != : ]; then
	check "Python finds the package, and the package the library" package
	check "type checkers find its types" [ -e "$root$pythondir/gpumem/py.typed" ]
else
	check "without Python there is no package" [ -z "$(find "$root" -name '*.py' -path '*/gpumem/*')" ]
fi

# ---- uninstalling

uninstall() { make -s -C "$build" uninstall DESTDIR="$root" V=0; }
left() { uninstall && index_manual && [ "$(find "$root" ! -type d)" = "$kept" ] || { find "$root" ! -type d; false; }; }
check "uninstalling leaves nothing but the configuration that was changed" left
[ ! -e "$dir/cache" ] || check "nor pages in an index" apropos_by_link 0
[ -z "$kept" ] || cp "$source/systemd/gpumemd.conf" "$conf"
gone() { uninstall && [ ! -e "$conf" ]; }
check "and not even that, if it was not" gone
# The prefix may have such a name, too: that of a release.
folders() { local left; left=$(find "$root" -type d -name 'gpumem*' ! -name 'gpumemd-[0-9]*'); [ -z "$left" ] || { echo "$left"; false; }; }
check "nor a folder of ours" folders

# ---- what uninstalling leaves

mkdir -p "$dir/wants/multi-user.target.wants" "$dir/etc/gpumemd/gpumemd.conf.d"
left_behind() { sockets=$dir/sockets links=$dir/wants sysconfdir=$dir/etc system=$dir/run/gpumemd processes=$dir/proc tool=$build/ctl/gpumemctl sh "$source/systemd/left-behind.sh" >"$dir/left" 2>&1; }
tells() { grep -qxF -e "  $1" "$dir/left" || { cat "$dir/left"; return 1; }; }
touch "$dir/etc/gpumemd/gpumemd.conf.d/80-limit-uid-7.conf" "$dir/etc/gpumemd/gpumemd.conf"
mkdir -p "$dir/run/gpumemd" "$dir/tmp/gpumemd-99" "$dir/run/other"
daemons=()
for socket in "$dir/run/gpumemd/socket" "$dir/tmp/gpumemd-99/socket" "$dir/run/other/socket"; do
	"$build/daemon/gpumemd" --backend host --config "$dir/conf" --socket "$socket" 2>"$dir/log" &
	daemons+=($!)
	until "$build/ctl/gpumemctl" status --socket "$socket" >/dev/null 2>&1; do
		kill -0 $! 2>/dev/null || bail "no daemon"
	done
done
clean() {
	kill "$daemon" "${daemons[@]}" 2>/dev/null
	wait
	for socket in "$dir" "$dir/run/gpumemd" "$dir/tmp/gpumemd-99" "$dir/run/other"; do end_keeper "$socket"; done
}
cat /proc/net/unix >"$dir/sockets"
echo "0000000000000000: 00000002 00000000 00010000 0005 01 1234 $dir/gone/gpumemd/socket" >>"$dir/sockets"
said_left() {
	left_behind && tells "$build/ctl/gpumemctl stop --forget --socket $dir/run/gpumemd/socket" && tells "$build/ctl/gpumemctl stop --forget --socket $dir/tmp/gpumemd-99/socket" &&
		! grep -q "$dir/run/other" "$dir/left" && ! grep -q systemctl "$dir/left"
}
check "uninstalling names the daemons that still run, and a gpumemctl that ends them" said_left
not_elsewhere() { ! grep -F "$dir/gone" "$dir/left"; }
check "but none of a container that shares the network: its socket is elsewhere" not_elsewhere
mkdir "$dir/proc"
for pid in $(pgrep -f -- "^gpumem-keeper --background --socket $dir/"); do ln -s "/proc/$pid" "$dir/proc"; done
no_keeper() { [ "$(find "$dir/proc" -type l | wc -l)" = 4 ] && left_behind && ! grep -i keeper "$dir/left"; }
check "nor a keeper beside a daemon, which ends it" no_keeper
# A limit is among what a keeper keeps for the next daemon.
"$build/ctl/gpumemctl" limit set "uid:$(id -u)" max=1G --socket "$dir/tmp/gpumemd-99/socket" >/dev/null 2>&1
"$build/ctl/gpumemctl" stop --socket "$dir/tmp/gpumemd-99/socket" >/dev/null
cat /proc/net/unix >"$dir/sockets"
said_keeper() {
	local pid
	pid=$(pgrep -f -x -- "gpumem-keeper --background --socket $dir/tmp/gpumemd-99/keeper") || return
	left_behind && tells "kill $pid" && grep -qF "pid $pid, with its socket $dir/tmp/gpumemd-99/keeper" "$dir/left" && ! grep -F "$dir/tmp/gpumemd-99/socket" "$dir/left"
}
check "but one that a daemon has left behind" said_keeper
ln -s /gone "$dir/wants/multi-user.target.wants/gpumemd.service"
said_units() { left_behind && tells "sudo rm -f $dir/wants/multi-user.target.wants/gpumemd.service" && ! grep -q "socket $dir/run/gpumemd/" "$dir/left"; }
check "and the units that are still enabled" said_units
said_files() { tells "$dir/etc/gpumemd/gpumemd.conf" && tells "$dir/etc/gpumemd/gpumemd.conf.d/80-limit-uid-7.conf"; }
check "and the files that stay" said_files
rm -r "$dir/wants" "$dir/etc" "$dir/proc" && : >"$dir/sockets"
said_nothing() { left_behind && ! grep -q -e ' still ' -e /etc/ "$dir/left"; }
check "and none of these if there are none" said_nothing

# Root may write everywhere, unless it gives that up.
mkdir -m 555 "$dir/closed"
without=()
[ "$(id -u)" != 0 ] || without=(setpriv --bounding-set=-dac_override,-dac_read_search)
may_not_install() {
	! "${without[@]}" make -s -C "$build" install-rights prefix="$dir/closed/deep" bindir="$dir/closed/deep/bin" 2>"$dir/rights" &&
		grep -qF "needs root for $dir/closed/deep: 'sudo make install', or './bootstrap --prefix=\$HOME/.local'" "$dir/rights" &&
		make -s -C "$build" install-rights prefix="$dir/open" bindir="$dir/open/bin" && make -s -n -C "$build" install | grep -q 'needs root for'
}
check "make install says at its beginning that it needs root" may_not_install

# ---- another prefix for the same build

mkdir "$dir/again" && printf 'clean:\n\ttouch cleaned\n' >"$dir/again/Makefile"
configured() { (cd "$dir/again" && "$build/config.status" folders) && [ -e "$dir/again/cleaned" ] && rm "$dir/again/cleaned"; }
echo "/another ..." >"$dir/again/config.folders"
check "what was built for other folders is built again" configured
same() { ! configured; }
check "what was built for the same folders is not" same

# ---- before any package is there

mkdir "$dir/bare"
for program in sh sed cat dirname; do ln -s "$(command -v "$program")" "$dir/bare/$program"; done
help() {
	local text option
	text=$(env -i PATH="$dir/bare" sh "$source/bootstrap" --help) || return
	for option in --prefix= $(grep -o 'AS_HELP_STRING(\[--[a-z-]*' "$source/configure.ac" | cut -d'[' -f2); do
		grep -qF -e "  $option" <<<"$text" || { echo "$option"; return 1; }
	done
}
check "./bootstrap --help names each option without any package" help
unread() { ! env -i PATH="$dir/bare" sh "$source/bootstrap" --help 2>&1 >/dev/full | grep -F 'install by other means'; }
check "./bootstrap --help installs nothing, also if its text cannot be written" unread
echo "1..$n"
