#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks that includes point downwards only. A folder is a layer; the list below says which folders each may include.
#
# Prints one TAP line per file. Then checks what the core library needs from outside, read from its objects, and that the
# public headers compile alone, as C and as C++. Run by make check; by hand: top_srcdir=. top_builddir=. tests/check-layers.sh
set -euo pipefail
src=${top_srcdir:-.} build=${top_builddir:-.}
. "$src/tests/report.sh"

# FOLDER: the folders that its files may include. Every folder may include itself and include/gpumem.
layers='
include/gpumem:
common:
common/text:    common
common/system:  common
common/cuda:    common
common/wire:    common common/system
daemon/user:    common
daemon/books:   common common/text daemon/user
daemon/device:  common common/text daemon/user daemon/books
daemon/reclaim: common common/text daemon/user daemon/books daemon/device
daemon/queue:   common common/text daemon/user daemon/books daemon/device daemon/reclaim
daemon/lease:   common common/text common/system daemon/user daemon/books daemon/device daemon/reclaim daemon/queue
daemon/core:    common common/text daemon/user daemon/books daemon/device daemon/reclaim daemon/queue daemon/lease
daemon/config:  common common/text common/system common/cuda daemon/books daemon/backend
daemon/backend: common common/text common/system common/cuda daemon/user daemon/books
daemon/store:    common common/text common/system common/wire
daemon/net:     common common/text common/system common/wire daemon/user
daemon/tenant:  common common/text common/system common/wire daemon/user daemon/books daemon/lease daemon/core daemon/config daemon/net
daemon/serve:   common common/text common/system daemon/books daemon/device daemon/reclaim daemon/queue daemon/lease daemon/core daemon/config daemon/net daemon/store daemon/tenant daemon/backend
daemon:         common common/text common/system daemon/config daemon/net daemon/store daemon/tenant daemon/backend daemon/serve
keeper:         common common/system common/wire
preload:        common
preload/driver: common common/cuda preload
preload/table:  common common/cuda preload/driver
preload/broker: common common/text preload preload/driver preload/table
preload/hook:   common preload preload/driver preload/table preload/broker
run:            common common/text common/system common/cuda
client/map:     common common/cuda
client/heap:    common client/map
client/session: common common/text common/system common/wire
client/grant:   common common/text client/session
client/device:  common client/map client/heap client/session client/grant
client/buffer:  common common/text client/map client/session client/grant client/device
client/share:   common common/text client/map client/session client/grant client/device client/buffer
client/region:  common common/text common/wire client/map client/heap client/session client/grant client/device client/buffer
client/memory:  common common/text client/map client/heap client/session client/grant client/device client/buffer client/region
client/request: common common/text client/heap client/session client/grant client/device client/buffer client/memory
client/copy:    common common/system client/map client/session client/device client/buffer client/memory
client/ring:    common client/session client/buffer
client:         common common/text common/system common/wire client/session client/grant client/device client/buffer client/share client/region client/memory client/request client/copy
weights:        common common/text
ctl/io:         common common/text common/system common/wire
ctl/doctor:     common common/text common/system common/cuda common/wire daemon/config ctl/io
ctl/verb:       common common/text common/system daemon/config ctl/io ctl/doctor
ctl/show:       common common/text common/system common/wire ctl/io ctl/verb
ctl/change:     common common/text common/system daemon/config ctl/io ctl/verb
ctl:            common common/text common/system ctl/io ctl/verb
exporter:       common common/text ctl ctl/show
'

# Headers that only some files may include: a pattern of the header, a pattern of the files that may, and why the others
# may not. A header written with < is a system header; "autoconf.h" is what configure found.
rules='
^<uv\.h              ^daemon/(config|backend|store|net|tenant|serve)/|^daemon/[^/]*$  libuv belongs to the daemon, above its core
^<systemd/           ^(daemon/service|keeper/keeper_service|common/wire/keeper_store|exporter/)  only daemon/service, keeper/keeper_service, common/wire/keeper_store and exporter/ use libsystemd
^<microhttpd         ^exporter/           only gpumem-exporter has a network
^<protobuf-c         ^$                   protobuf-c is reached through common/wire/wire.h
^<(cuda|nvml)        ^$                   the driver is declared in common/cuda/cuda_abi.h and loaded at run time
^<elfutils           ^ctl/io/symbols       only ctl/io/symbols uses libdw
^<jansson            ^(ctl|weights)/      only gpumemctl and libgpumem-weights use jansson
^<sys/(socket|un)\.h ^(common/wire|daemon/(config|backend|store|net|tenant|serve)|client|ctl|exporter|keeper|preload/broker)/|^daemon/[^/]*$  the core knows no sockets
^<                   ^(common|daemon|client|weights|ctl|exporter|keeper|preload|run)/|^include/.*<std(def|int)\.h$  a public header needs stddef.h and stdint.h only
^"autoconf\.h        ^(common|daemon|client|weights|ctl|exporter|keeper|preload|run)/.*\.c  autoconf.h is for .c files
^"gpumem/            ^(common|daemon|client|weights|ctl|preload|run)/       public headers include one another by their bare names
^"(status|gpumem|gpumem_copy|gpumem_graph|gpumem_share)\.h ^include/            includes are written from the top folder
^"proto/gpumem       ^(common/wire/wire\.h|client/|ctl/|daemon/(backend|net|tenant|serve)/|daemon/[^/]*$)  only the codec and what lies above it know the schema
^"common/wire/wire\.h ^(common/wire/wire\.c|client/(session|grant)/|ctl/|daemon/(backend|net|tenant|serve)/|daemon/[^/]*$)  the core, the heap and the mappings know no messages
'

files=$(cd "$src" && find common daemon client weights ctl exporter keeper preload run include -name '*.[ch]' ! -name '*.pb-c.*' | LC_ALL=C sort)
# shellcheck disable=SC2086 # file names here have no blanks
verdicts=$(cd "$src" && LAYERS=$layers RULES=$rules awk '
	BEGIN {
		n = split(ENVIRON["LAYERS"], row, "\n")
		for (i = 1; i <= n; i++)
			if (split(row[i], part, ":") == 2) {
				known[part[1]] = 1
				m = split(part[2], may, " ")
				for (j = 1; j <= m; j++) allowed[part[1], may[j]] = 1
			}
		n = split(ENVIRON["RULES"], row, "\n")
		for (i = 1; i <= n; i++)
			if (match(row[i], /^[^ ]+/)) {
				rules++
				header[rules] = substr(row[i], 1, RLENGTH)
				rest = substr(row[i], RLENGTH + 1)
				sub(/^ +/, "", rest)
				match(rest, /^[^ ]+/)
				who[rules] = substr(rest, 1, RLENGTH)
				why[rules] = substr(rest, RLENGTH + 1)
				sub(/^ +/, "", why[rules])
			}
	}
	function folder(path) { sub(/\/[^\/]*$/, "", path); return path }
	function objection(file, what,   r, mine, theirs) {
		for (r = 1; r <= rules; r++)
			if (what ~ header[r] && file !~ who[r] && (file what) !~ who[r]) return why[r]
		if (what !~ /^"(common|daemon|client|weights|ctl|exporter|keeper|preload|run)\//)
			return what ~ /^<|^"(autoconf\.h|(status|gpumem|gpumem_copy|gpumem_graph|gpumem_share)\.h|gpumem\/|proto\/)/ ? "" : "includes are written from the top folder"
		mine = folder(file); theirs = folder(substr(what, 2))
		if (mine == theirs || (mine, theirs) in allowed) return ""
		return theirs in known ? "that is upwards, or into another program" : "that folder is not in the list of tests/check-layers.sh"
	}
	FNR == 1 {
		print "file", FILENAME
		if (!(folder(FILENAME) in known)) print "its folder is not in the list of tests/check-layers.sh"
	}
	match($0, /^[ \t]*#[ \t]*include[ \t]*["<][^">]*/) {
		what = substr($0, RSTART, RLENGTH)
		sub(/^[^"<]*/, "", what)
		reason = objection(FILENAME, what)
		if (reason != "") print "includes " substr(what, 2) ": " reason
	}' $files)
file= problems=
while IFS= read -r line; do
	case $line in
	'file '*)
		[ -z "$file" ] || report "${problems%$'\n'}" "$file includes downwards only"
		file=${line#file } problems= ;;
	*) problems+=$line$'\n' ;;
	esac
done <<<"$verdicts"
report "${problems%$'\n'}" "$file includes downwards only"

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
		# The compiler's own helpers, which are linked into each program: on aarch64, atomic operations are among them.
		path=$($compiler -print-file-name=libgcc.a)
		[ "$path" = libgcc.a ] || kind='[A-TV-Zi]' symbols "$path"
	)
	missing=$(LC_ALL=C comm -23 <(kind=U symbols "$core") <(LC_ALL=C sort -u <<<"$provided") |
		grep -vE '^(__(asan|ubsan|tsan|sanitizer|gcov|llvm|cyg_profile|start___sancov|stop___sancov)|_GLOBAL_OFFSET_TABLE_$)' |
		sed 's/^/needs /' || true)
	report "$missing" "the core library needs the C library and common alone"
	# The core links common, so common may need no more than the core may.
	missing=$(LC_ALL=C comm -23 <(kind=U symbols "$common") <(LC_ALL=C sort -u <<<"$provided") |
		grep -vE '^(__(asan|ubsan|tsan|sanitizer|gcov|llvm)|_GLOBAL_OFFSET_TABLE_$)' | sed 's/^/needs /' || true)
	report "$missing" "common needs the C library alone"
	# Socket calls are in the C library, so this looks for them by name.
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
