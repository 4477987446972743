#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The examples that launch no kernel run to their end and print what they should, on host memory and on a fake GPU.
# tests/gpu/check_ipc runs those of CUDA.
set -u
build=$(realpath "${top_builddir:-.}") source=$(realpath "${top_srcdir:-.}")
. "$source/tests/integration/functions.sh"
# What the runs below print when an example did as it should; one name on each line, sorted.
names="a batch gives many tensors
a buffer grows where it is
a buffer is seen in another process
a buffer outlives its maker
a file is loaded into a buffer
a file that is not there is named
a model finds its device
a program maps chunks itself
a ring carries questions and answers
a table works in host memory
a worker gets memory
a worker in C++ gets memory
also between processes that wait
an event loop gets its buffers
and a producer that ended is noticed
and its name is removed
and reported with its place
and so is a pipe
and so is what is written later
data goes to the device and back
evicted buffers come back
frames arrive in order
its metadata is read without it
managed memory is charged
one process says that there is no daemon
the programs in the manual run
two programs take turns
weights are loaded once and attached by others
what is not freed is found
wrong words are answered with the right ones"
if [ "${1:-}" != inside ]; then
	export top_builddir=$build top_srcdir=$source
	for kind in host cuda; do
		run=("$0" inside "$kind")
		[ "$kind" = host ] || run=("$source/tests/fake/with-fake-gpu" "${run[@]}")
		output=$("${run[@]}" 2>&1)
		status=$?
		while IFS= read -r name; do
			if [ "$status" = 77 ]; then
				ok "$kind: $name # SKIP $(no_namespaces)"
			elif grep -qxF "$name" <<<"$output"; then
				ok "$kind: $name"
			else
				not_ok "$kind: $name" "$output"
			fi
		done <<<"$names"
	done
	echo "1..$n"
	exit
fi

kind=$2
scratch examples
unset NOTIFY_SOCKET LISTEN_FDS LISTEN_PID CUDA_VISIBLE_DEVICES
export GPUMEM_SOCKET=$dir/socket
printf '[gpumemd]\nmin_free = 0\n' >"$dir/conf"
[ "$kind" = cuda ] || printf '[device 0]\nsize = 512M\n' >>"$dir/conf"
"$build/daemon/gpumemd" --backend "$kind" --config "$dir/conf" --socket "$GPUMEM_SOCKET" 2>"$dir/log" &
daemon=$!
until "$build/ctl/gpumemctl" version --json 2>/dev/null | grep -q '"gpumemd": "'; do
	kill -0 "$daemon" 2>/dev/null || { cat "$dir/log"; exit 1; }
done
"$build/examples/worker" >"$dir/worker" 2>&1 && grep -q '^64 MiB at 0x' "$dir/worker" && echo "a worker gets memory"
"$build/examples/batch" >"$dir/batch" 2>&1 && grep -q '^49 tensors, 176 MiB, the first at 0x' "$dir/batch" && echo "a batch gives many tensors"
"$build/examples/evict" >"$dir/evict" 2>&1 &&
	grep -q '^8 layers were used, and 4 of them came back from host memory$' "$dir/evict" && echo "evicted buffers come back"
"$build/examples/fallback" >"$dir/fallback" 2>&1 && grep -q '^the table is on the device; .*: 0$' "$dir/fallback" &&
	"$build/examples/fallback" 600 >>"$dir/fallback" 2>&1 && grep -q '^the table is in host memory; .*: 1$' "$dir/fallback" &&
	echo "a table works in host memory"
"$build/examples/resize" >"$dir/resize" 2>&1 && grep -q '^grew [0-9]* times, to .* MiB, where it was$' "$dir/resize" &&
	grep -q '^and shrank to 8 MiB$' "$dir/resize" && echo "a buffer grows where it is"
# Without a compiler for C++17 there is nothing to run.
cxx=$(sed -n 's/^CXX = //p' "$build/Makefile")
if grep -q "^CXX17_TRUE = #" "$build/Makefile"; then
	cxx=
	echo "a worker in C++ gets memory"
else
	"$build/examples/cxx_worker" >"$dir/cxx" 2>&1 && grep -q '^1048576 floats at 0x' "$dir/cxx" &&
		grep -q '^1 TiB is refused' "$dir/cxx" && echo "a worker in C++ gets memory"
fi
"$build/examples/copy" >"$dir/copy" 2>&1 && grep -q '^"hello" at 0x' "$dir/copy" && echo "data goes to the device and back"
head -c 20000003 /dev/zero | tr '\0' a >"$dir/weights"
"$build/examples/load_file" "$dir/weights" >"$dir/load" 2>&1 && grep -q '^100%$' "$dir/load" && grep -q '^20000003 bytes, staged, with' "$dir/load" &&
	grep -q '^it begins with 61 61 61 61 61 61 61 61$' "$dir/load" && echo "a file is loaded into a buffer"
head -c 3000001 "$dir/weights" | "$build/examples/load_file" /dev/stdin >"$dir/load.pipe" 2>&1 && grep -q '^3000001 bytes, ' "$dir/load.pipe" &&
	grep -q '^it begins with 61 61 61 61 61 61 61 61$' "$dir/load.pipe" && echo "and so is a pipe"
! "$build/examples/load_file" "$dir/nowhere" >"$dir/load.none" 2>&1 &&
	[ "$(cat "$dir/load.none")" = "load_file: $dir/nowhere: No such file or directory" ] && echo "a file that is not there is named"
"$build/examples/async" >"$dir/async" 2>&1 && grep -q '^64 buffers of 4194304 bytes on .*, 0 failed$' "$dir/async" && echo "an event loop gets its buffers"
"$build/examples/leaks" >"$dir/leaks" 2>"$dir/leaks.err" && grep -q '^not freed: 16 MiB, layer 1, weights, bf16$' "$dir/leaks" &&
	grep -q '^4 in all' "$dir/leaks" && echo "what is not freed is found"
# Three places, if the compiler has unrolled the loop.
grep -Eq '^gpumem:   (6.0M in 3 allocations|2.0M in 1 allocation) on device 0, tag scratch$' "$dir/leaks.err" &&
	grep -q '^gpumem:     /.*leaks+0x' "$dir/leaks.err" && echo "and reported with its place"
"$build/examples/place" >"$dir/place" 2>&1
"$build/examples/place" 4096 14336 32 32000 32 8 4096 2 >>"$dir/place" 2>&1 || echo "place: status $?" >>"$dir/place"
grep -q '^55976448 parameters: weights 107 MiB, KV cache 4 MiB, activations 4 MiB$' "$dir/place" && grep -q '^got 115 MiB on device 0$' "$dir/place" &&
	grep -q '^7241732096 parameters: weights 13813 MiB' "$dir/place" &&
	grep -q '^place: device 0 has .*, asked for 14.3G, which it can never give' "$dir/place" && echo "a model finds its device"
"$build/examples/chunk" >"$dir/chunk" 2>&1 || echo "chunk: status $?" >>"$dir/chunk"
grep -q '^chunks of 2 and 6 MiB$' "$dir/chunk" && grep -Eq '^(mapped side by side and filled|a CUDA program would import them now)$' "$dir/chunk" && echo "a program maps chunks itself"
"$build/examples/managed" >"$dir/managed" 2>&1 || echo "managed: status $?" >>"$dir/managed"
grep -q '^with managed memory: 16.0 MiB are declared$' "$dir/managed" && grep -q '^the sum of its bytes is 2139095040$' "$dir/managed" &&
	grep -q '^4 MiB more may be made now$' "$dir/managed" && echo "managed memory is charged"
# Every program of the manual compiles as printed, and runs to its end.
found=0 ran=0
for page in "$source"/man/*.3.scd; do
	program=$dir/program.c compile=${GPUMEM_TEST_CC:-cc}
	if [ "${page##*/}" = gpumem.hpp.3.scd ]; then
		[ -n "$cxx" ] || continue
		program=$dir/program.cpp compile=${GPUMEM_TEST_CXX:-c++ -std=c++17}
	fi
	sed -n '/^# EXAMPLE/,$p' "$page" | awk '/^```$/ { if (open) exit; open = 1; next } open' | sed 's/\\\\/\\/g' >"$program"
	grep -q 'int main' "$program" || continue
	found=$((found + 1))
	# The library may be built with sanitizers, so make says how to compile. Word splitting is meant.
	# shellcheck disable=SC2086
	$compile -Wall -Werror -o "$dir/program" "$program" -I"$source/include" -L"$build/client/.libs" \
		-lgpumem-client >>"$dir/cc" 2>&1 &&
		LD_LIBRARY_PATH=$build/client/.libs:${LD_LIBRARY_PATH-} "$dir/program" </dev/null >>"$dir/cc" 2>&1 && ran=$((ran + 1))
done
[ "$found" -ge 2 ] && [ "$ran" = "$found" ] && echo "the programs in the manual run"
"$build/examples/share" >"$dir/share" 2>&1 || echo "share: status $?" >>"$dir/share"
grep -q '33554432 bytes "greeting" at 0x.*: hello from the parent$' "$dir/share" && echo "a buffer is seen in another process"
grep -q 'the same place now says: hello again$' "$dir/share" && echo "and so is what is written later"
"$build/examples/publish" >"$dir/publish" 2>&1 || echo "publish: status $?" >>"$dir/publish"
maker=$(sed -n 's/^process \([0-9]*\) published publish-example, version 1, and ends$/\1/p' "$dir/publish")
grep -q "^process [0-9]* attached to publish-example, version 1, 33554432 bytes: hello from process ${maker:-none}\$" "$dir/publish" &&
	echo "a buffer outlives its maker"
grep -q '^process [0-9]* read about publish-example, version 1: {"type": "text", "bytes": [0-9]*}$' "$dir/publish" &&
	echo "its metadata is read without it"
grep -q '^publish-example is removed$' "$dir/publish" && "$build/ctl/gpumemctl" shares --json | grep -q '"shares": \[\]' &&
	echo "and its name is removed"
"$build/examples/weights" >"$dir/weights.out" 2>&1 || echo "weights: status $?" >>"$dir/weights.out"
grep -q '^process [0-9]* loaded weights-example, version 1, and ends$' "$dir/weights.out" &&
	grep -q '^process [0-9]* attached to weights-example, version 1: 144 bytes on device 0$' "$dir/weights.out" &&
	grep -q '^embedding F32 \[8, 4\] at 0x' "$dir/weights.out" && grep -q '^weights-example, version 1: 2 tensors$' "$dir/weights.out" &&
	grep -q '^weights-example is removed$' "$dir/weights.out" && echo "weights are loaded once and attached by others"
"$build/examples/turns" >"$dir/turns" 2>&1 || echo "turns: status $?" >>"$dir/turns"
[ "$(grep -cE '^(train|serve): 3 turns, and the weights were always there$' "$dir/turns")" = 2 ] && echo "two programs take turns"
! "$build/examples/place" --help >"$dir/place.help" 2>&1 && grep -q '^usage: place \[HIDDEN ' "$dir/place.help" &&
	! "$build/examples/place" 4096 x 32 32000 32 8 4096 2 >"$dir/place.help" 2>&1 && grep -q '^usage: place ' "$dir/place.help" &&
	echo "wrong words are answered with the right ones"
! GPUMEM_SOCKET=$dir/nowhere "$build/examples/pipeline" >"$dir/pipeline.none" 2>&1 && [ "$(wc -l <"$dir/pipeline.none")" = 1 ] &&
	grep -q '^pipeline: connect: cannot reach gpumemd' "$dir/pipeline.none" && echo "one process says that there is no daemon"
"$build/examples/pipeline" >"$dir/pipeline" 2>&1 || echo "pipeline: status $?" >>"$dir/pipeline"
[ "$(grep -c '^got frame [1-5]$' "$dir/pipeline")" = 5 ] && echo "frames arrive in order"
grep -q '^lost: .*its last signal was 5, and 6 will not come$' "$dir/pipeline" && echo "and a producer that ended is noticed"
"$build/examples/ring" >"$dir/ring" 2>&1 || echo "ring: status $?" >>"$dir/ring"
grep -qE '^10000 questions, 10000 answers from a process, at most [0-9]+ under way$' "$dir/ring" && echo "a ring carries questions and answers"
"$build/examples/ring_processes" >"$dir/ring.processes" 2>&1 || echo "ring_processes: status $?" >>"$dir/ring.processes"
[ "$(cat "$dir/ring.processes")" = "north: north, to be sure (1)
east: east, to be sure (2)
south: south, to be sure (3)" ] && echo "also between processes that wait"
cat "$dir/worker" "$dir/batch" "$dir/resize" "$dir/evict" "$dir/fallback" "$dir"/cxx* "$dir/copy" "$dir"/load* "$dir/async" "$dir"/leaks* "$dir/place" "$dir/managed" "$dir/cc" "$dir/share" "$dir/publish" "$dir/weights.out" "$dir/turns" "$dir"/pipeline* "$dir"/place.* "$dir"/ring* "$dir/log"
