#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Holds the direction of includes: downwards only, as the architecture has it.
#
#   include/gpumem < common < daemon/core < daemon (backends, device, peers, dispatch, main: the order below)
#                           < client (in it the heap, which knows neither session nor wire)
#                           < ctl (and of the daemon its reader of the configuration)
#
# One TAP line per file; then what the core library needs from outside, read from its objects; then whether the public
# headers stand alone, as C and as C++. Run by make check; by hand: top_srcdir=. top_builddir=. tests/check-layers.sh
set -euo pipefail
src=${top_srcdir:-.} build=${top_builddir:-.}
tests=0

report() { # number of problems is the number of lines of $1; $2: what was checked
	tests=$((tests + 1))
	if [ -z "$1" ]; then
		echo "ok $tests - $2"
	else
		echo "not ok $tests - $2"
		sed 's/^/#   /' <<<"$1"
	fi
}

# The files of daemon/ in their order, by the first part of their names: a file includes what is in its own row or a
# row above. A new file that fits none gets a row here: where it stands is a decision.
daemon_rows=(
	'backend ipc config identity cgroup ids domain pages service endpoint'
	'journal terminate'
	'usage'
	'worker'
	'peer hub'
	'events'
	'client'
	'dispatch serve admin watch'
	'listener'
	'broker'
	'main'
)

row_of() { # the row of daemon/$1; nothing if it has none
	local stem=${1%.[ch]} i word
	stem=${stem%%_*}
	for i in "${!daemon_rows[@]}"; do
		for word in ${daemon_rows[$i]}; do
			[ "$stem" != "$word" ] || { echo "$i"; return; }
		done
	done
}

# The heap's own files, as its makefile fragment lists them.
heap_files=$(grep -oE 'client/[a-z_]+\.[ch]' "$src/client/heap.inc" | LC_ALL=C sort -u || true)
in_heap() { grep -qx "$1" <<<"$heap_files"; }

# What stands between $1's quotes and angle brackets: "x.h" as "x.h, <x.h> as <x.h.
includes() { sed -n 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*\(["<][^">]*\)[">].*/\1/p' "$src/$1"; }

# Says why $1 may not include $2; nothing if it may.
objection() {
	local file=$1 what=$2
	if in_heap "$file"; then
		case $what in
		'"client/backend.h' | '"client/source.h') return ;;
		'"client/'*) in_heap "${what#\"}" || echo "the heap knows its backend and its source, no session" ;;
		'"common/wire.h' | '"common/seqpacket.h' | '"common/fdlist.h' | '"proto/'*) echo "the heap sends no messages" ;;
		esac
	fi
	case $what in
	'<uv.h')
		case $file in daemon/core/*) ;; daemon/*) return ;; esac
		echo "libuv is the daemon's, above the core" ;;
	'<systemd/'*)
		case $file in daemon/core/*) ;; daemon/service*) return ;; esac
		echo "libsystemd is used in daemon/service* alone" ;;
	'<protobuf-c'*) echo "protobuf-c is reached through common/wire.h" ;;
	'<cuda'* | '<nvml'*) echo "the driver is declared by ourselves and loaded at run time" ;;
	'<ini_config'* | '<libini'* | '<collection'* | '<ref_array'*)
		case $file in daemon/config*) ;; *) echo "libini_config is used in daemon/config* alone" ;; esac ;;
	'<jansson'*)
		case $file in ctl/*) ;; *) echo "jansson is gpumemctl's" ;; esac ;;
	'<sys/socket.h' | '<sys/un.h')
		case $file in daemon/core/*) echo "the core knows no sockets" ;; esac ;;
	'<'*)
		case $file:$what in
		include/*:'<stddef.h' | include/*:'<stdint.h') ;;
		include/*) echo "a public header needs no more than stddef.h and stdint.h" ;;
		esac ;;
	'"config.h')
		case $file in
		include/*) echo "configure's findings are private" ;;
		*.h) echo "config.h is for .c files, before everything else" ;;
		esac ;;
	'"gpumem/'*) case $file in include/*) echo "public headers include one another by their bare names" ;; esac ;;
	'"status.h') case $file in include/gpumem/*) ;; *) echo "includes are written from the top" ;; esac ;;
	'"proto/gpumem.pb-c.h')
		case $file in
		common/wire.h | client/* | ctl/*) ;;
		daemon/core/* | common/* | include/*) echo "the schema is known above this only" ;;
		esac ;;
	'"common/wire.h')
		case $file in
		common/wire.c) ;;
		common/* | include/*) echo "only the codec knows the schema here" ;;
		daemon/core/*) echo "the core knows no wire" ;;
		esac ;;
	'"common/seqpacket.h' | '"common/fdlist.h')
		case $file in
		include/*) echo "public headers include nothing private" ;;
		daemon/core/*) echo "the core knows no sockets" ;;
		esac ;;
	'"common/'*) case $file in include/*) echo "public headers include nothing private" ;; esac ;;
	'"daemon/core/'*)
		case $file in
		daemon/*) ;;
		*) echo "that is upwards, or into another program" ;;
		esac ;;
	'"daemon/config.h') case $file in
		daemon/core/*) echo "that is upwards" ;;
		daemon/* | ctl/*) ;;
		*) echo "that is upwards, or into another program" ;;
		esac ;;
	'"daemon/'*)
		case $file in
		daemon/core/*) echo "that is upwards" ;;
		daemon/*)
			local mine theirs
			mine=$(row_of "${file#daemon/}") theirs=$(row_of "${what#\"daemon/}")
			if [ -z "$theirs" ]; then
				echo "what is included has no place in the order: give it one in tests/check-layers.sh"
			elif [ -n "$mine" ] && [ "$theirs" -gt "$mine" ]; then
				echo "that is upwards"
			fi ;;
		*) echo "that is upwards, or into another program" ;;
		esac ;;
	'"client/'*) case $file in client/*) ;; *) echo "that is upwards, or into another program" ;; esac ;;
	'"ctl/'*) case $file in ctl/*) ;; *) echo "that is upwards, or into another program" ;; esac ;;
	*) echo "includes are written from the top" ;;
	esac
}

check_file() {
	local file=$1 what why problems=
	case $file in
	daemon/core/*) ;;
	daemon/*)
		[ -n "$(row_of "${file#daemon/}")" ] ||
			problems+="$file has no place in the order: give it one in tests/check-layers.sh"$'\n' ;;
	esac
	while IFS= read -r what; do
		why=$(objection "$file" "$what")
		[ -z "$why" ] || problems+="includes ${what#[\"<]}: $why"$'\n'
	done < <(includes "$file")
	report "${problems%$'\n'}" "$file includes downwards only"
}

files=$(cd "$src" && find common daemon client ctl include -name '*.[ch]' ! -name '*.pb-c.*' | LC_ALL=C sort)
for file in $files; do check_file "$file"; done

# ---- what the core needs from outside

symbols() { nm "$@" 2>/dev/null | sed -n "s/^[0-9a-f]* *$kind \([^@]*\).*/\1/p" | LC_ALL=C sort -u; }
compiler=$(sed -n 's/^CC = //p' "$build/Makefile")
core=$(find "$build/daemon" -path '*/.libs/libgpumemd-core.a')
common=$build/common/.libs/libgpumem-common.a
if [ -z "$core" ] || [ ! -e "$common" ]; then
	report "not built: $common, daemon/…/libgpumemd-core.a" "the core library needs the C library and common alone"
else
	# shellcheck disable=SC2086 # the compiler may be two words
	provided=$(
		kind='[A-TV-Zi]' symbols "$core" "$common"
		for library in libc.so.6 libm.so.6 ld-linux-x86-64.so.2 ld-linux-aarch64.so.1 libgcc_s.so.1; do
			path=$($compiler -print-file-name="$library")
			[ "$path" = "$library" ] || kind='[A-TV-Zi]' symbols -D "$path"
		done
	)
	missing=$(LC_ALL=C comm -23 <(kind=U symbols "$core") <(LC_ALL=C sort -u <<<"$provided") |
		grep -vE '^(__(asan|ubsan|tsan|sanitizer|gcov|llvm|cyg_profile|start___sancov|stop___sancov)|_GLOBAL_OFFSET_TABLE_$)' |
		sed 's/^/needs /' || true)
	report "$missing" "the core library needs the C library and common alone"
	# common itself may not bring in by the back door what the core may not have.
	missing=$(LC_ALL=C comm -23 <(kind=U symbols "$common") <(LC_ALL=C sort -u <<<"$provided") |
		grep -vE '^(__(asan|ubsan|tsan|sanitizer|gcov|llvm)|_GLOBAL_OFFSET_TABLE_$)' | sed 's/^/needs /' || true)
	report "$missing" "common needs the C library alone"
	# Sockets are in libc, so they are looked for by name.
	sockets=$(kind=U symbols "$core" |
		grep -xE 'socket|socketpair|accept4?|bind|listen|connect|sendmsg|recvmsg|send|recv|gm_seqpacket_.*|gm_fdlist_.*|dlopen|dlsym' |
		sed 's/^/needs /' || true)
	report "$sockets" "the core library calls no socket and loads nothing"
fi

# ---- public headers stand alone

compiles() { # compiler, language, standard, header
	# shellcheck disable=SC2086
	printf '#include <%s>\n#include <%s>\n' "$4" "$4" |
		$1 -x "$2" -std="$3" -Wall -Wextra -pedantic -Werror -fsyntax-only -I"$src/include" - 2>&1 || true
}
cxx=
for candidate in "${CXX:-}" c++ g++ clang++; do
	if [ -n "$candidate" ] && command -v "${candidate%% *}" >/dev/null; then cxx=$candidate; break; fi
done
for header in "$src"/include/gpumem/*.h; do
	name=gpumem/${header##*/}
	report "$(compiles "$compiler" c c99 "$name")" "<$name> compiles alone as C99"
	report "$(compiles "$compiler" c gnu11 "$name")" "<$name> compiles alone as gnu11"
	if [ -n "$cxx" ]; then
		report "$(compiles "$cxx" c++ c++11 "$name")" "<$name> compiles alone as C++11"
		report "$(compiles "$cxx" c++ c++20 "$name")" "<$name> compiles alone as C++20"
	else
		report "no C++ compiler: run ./bootstrap, or install g++" "<$name> compiles alone as C++"
	fi
done
echo "1..$tests"
