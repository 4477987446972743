#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows that the simulator finds bugs: applies each patch of tests/sim/faults to a copy of core, one at a time, and expects that
# tests/sim/sim ends with a violation within a minute. GPUMEM_TEST_FAULTS names some of them; by default a few are tried, and
# "all" stands for all of them.
set -u
top_srcdir=$(cd "${top_srcdir:-.}" && pwd) top_builddir=$(cd "${top_builddir:-.}" && pwd)
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
read -ra compiler <<<"${GPUMEM_TEST_CC:-cc -std=gnu11 -g -O1}"

few='adopt-half-a-lease no-limit'
chosen=${GPUMEM_TEST_FAULTS:-$few}
[ "$chosen" != all ] || chosen=$(cd "$top_srcdir/tests/sim/faults" && ls -- *.patch | sed 's/\.patch$//')

compile() { # ARGUMENTS...
	(cd "$top_builddir" && "${compiler[@]}" -w -D_GNU_SOURCE -include autoconf.h -I. -I"$top_srcdir" -I"$top_srcdir/include" "$@")
}

# Builds a simulator in which one file of core is the patched one, and the rest comes from the library.
build() { # FAULT
	local patch=$top_srcdir/tests/sim/faults/$1.patch file
	file=$(sed -n 's,^+++ b/,,p' "$patch") || return
	mkdir -p "$work/$1/$(dirname "$file")" && cp "$top_srcdir/$file" "$work/$1/$file" &&
		patch -s -p1 -d "$work/$1" <"$patch" &&
		compile -o "$work/$1/sim" "$work/$1/$file" "$work"/objects/*.o \
			daemon/core/.libs/libgpumemd-core.a daemon/store/.libs/libgpumemd-store.a \
			common/.libs/libgpumem-wire.a common/.libs/libgpumem-common.a -luv -lpthread
}

mkdir "$work/objects"
for file in "$top_srcdir"/tests/sim/*.c; do
	compile -c -o "$work/objects/$(basename "$file" .c).o" "$file" || exit 1
done

n=0 status=0
for fault in $chosen; do
	n=$((n + 1))
	if ! build "$fault" >"$work/log" 2>&1; then
		echo "not ok $n - $fault: cannot be built"
		sed 's/^/# /' "$work/log"
		status=1
		continue
	fi
	timeout 120 "$work/$fault/sim" --seconds 60 >"$work/log" 2>&1
	if [ $? = 1 ]; then
		echo "ok $n - $fault"
		sed -n '1,2s/^/# /p' "$work/log"
	else
		echo "not ok $n - $fault: is not found"
		tail -n 3 "$work/log" | sed 's/^/# /'
		status=1
	fi
done
echo "1..$n"
exit $status
