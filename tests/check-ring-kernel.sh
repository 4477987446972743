#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks that gpumem_ring_device.h compiles for the host and, where there is a compiler for it, for a GPU; that it does not
# compile if the control block's layout is another; and that the kernel of examples/ring.c is the one of its source.
set -u
src=${top_srcdir:?}
header=$src/include/gpumem/gpumem_ring_device.h
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
n=0

# result NAME: reports the status of the command before it. $work/why holds what that command printed.
result() {
	local status=$?
	n=$((n + 1))
	if [ $status = 0 ]; then
		echo "ok $n - $1"
	else
		echo "not ok $n - $1"
		sed 's/^/# /' "$work/why"
	fi
}

compile() { # HEADER-FOLDER COMPILER...
	local folder=$1
	shift
	# shellcheck disable=SC2068
	$@ -Wall -Wextra -pedantic -Werror -fsyntax-only -I"$folder" "$work/$name" >"$work/why" 2>&1
}

cat >"$work/use.c" <<'END'
#include <gpumem_ring_device.h>
int answer(const gpumem_ring_view *view, void *message);
int answer(const gpumem_ring_view *view, void *message)
{
	gpumem_ring_receiver in;
	gpumem_ring_sender out;
	gpumem_ring_receiver_begin(&in, view);
	gpumem_ring_sender_begin(&out, view);
	return gpumem_ring_receiver_receive(&in, message) && gpumem_ring_sender_send(&out, message);
}
END
cp "$work/use.c" "$work/use.cc"
for std in c99 c11 gnu11; do
	name=use.c
	compile "${header%/*}" "${CC:-cc}" -std=$std
	result "it compiles as $std"
done
for std in c++11 c++17 c++20; do
	name=use.cc
	compile "${header%/*}" "${CXX:-c++}" -std=$std
	result "it compiles as $std"
done

# Each member moved, one after the other: the compiler notices every one.
members=$(sed -n '/^typedef struct gpumem_ring_control {/,/^}/ s/^\tuint[0-9]*_t \([^;]*\);.*/\1/p' "$header")
missed=
for member in $members; do
	mkdir -p "$work/moved"
	sed "/^typedef struct gpumem_ring_control {/,/^}/ s/^\tuint[0-9]*_t ${member//[/\\[};/\tuint32_t moved_;\n&/" "$header" \
		>"$work/moved/gpumem_ring_device.h"
	cmp -s "$header" "$work/moved/gpumem_ring_device.h" && missed="$missed $member (not changed)"
	for name in use.c use.cc; do
		compiler="${CC:-cc} -std=gnu11"
		[ $name = use.c ] || compiler="${CXX:-c++} -std=c++17"
		# shellcheck disable=SC2086
		compile "$work/moved" $compiler && missed="$missed $member"
	done
done
echo "not noticed:$missed" >"$work/why"
[ -n "$members" ] && [ -z "$missed" ]
result "a control block with another layout does not compile"

# Where these compilers are not installed, there is one test less.
kernel=$src/examples/ring_kernel
if clang --print-targets 2>/dev/null | grep -q nvptx64; then
	sh "$kernel.sh" "$kernel.cu" "$src/include" >"$work/kernel" 2>"$work/why" &&
		grep -q 'ld\.acquire\.sys' "$work/kernel" && grep -q 'st\.release\.sys' "$work/kernel"
	result "clang compiles the kernel for a GPU, with order across the system"
	# Another version may write the same kernel differently.
	if clang --version | grep -q 'version 14\.'; then
		diff "$kernel.ptx.h" "$work/kernel" >"$work/why" 2>&1
		result "the kernel of the example is the one of its source: make ring-kernel"
	fi
fi
nvcc=$(command -v nvcc || echo "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc")
if [ -x "$nvcc" ]; then
	"$nvcc" -I"$src/include" -c -o "$work/kernel.o" "$kernel.cu" >"$work/why" 2>&1
	result "nvcc compiles the kernel"
fi
echo "1..$n"
