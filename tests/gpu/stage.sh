#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Collects an x86-64 folder that runs on a GPU host where nothing can be installed: programs, tests, benchmarks and every library
# they need beyond the C library's own. STAGE/run.sh then runs the suite there.
#
#   stage.sh SOURCE BUILD STAGE "TESTS…" "BENCHMARKS…"
#
# On x86-64 it makes them in BUILD. On other machines it cross-builds what is committed in SOURCE, in a folder of its own, with
# Debian's compiler and amd64 packages; as root it installs these. GPUMEM_STAGE_MACHINE=aarch64 cross-builds on x86-64, too.
set -euo pipefail
source_dir=$(realpath "$1") build=$(realpath "$2") stage=$3
machine=${GPUMEM_STAGE_MACHINE:-$(uname -m)}
read -ra suite <<<"$4 $5"
programs=(daemon/gpumemd keeper/gpumem-keeper ctl/gpumemctl run/gpumem-run examples/copy examples/cuda_worker examples/ipc_open bench/fairness "${suite[@]}")

strip="strip"
if [ "$machine" != x86_64 ]; then
	strip=x86_64-linux-gnu-strip displaced=()
	cross=$(mktemp -d)
	finish() {
		rm -rf "$cross"
		[ ${#displaced[@]} = 0 ] || "${install[@]}" "${displaced[@]}"
	}
	trap finish EXIT
	if [ "$(id -u)" = 0 ]; then
		dpkg --add-architecture amd64
		apt-get update -q
		install=(env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends)
		needed=(gcc-x86-64-linux-gnu g++-x86-64-linux-gnu libc6-dev:amd64 libuv1-dev:amd64 libprotobuf-c-dev:amd64 libsystemd-dev:amd64
			libjansson-dev:amd64 libdw-dev:amd64 check:amd64 uthash-dev)
		# Some packages are for one machine at a time. This machine's come back at the end.
		mapfile -t displaced < <("${install[@]}" -s "${needed[@]}" | sed -n 's/^Remv \([^ :]*\).*/\1/p')
		"${install[@]}" "${needed[@]}"
	fi
	unset MAKEFLAGS MAKELEVEL # they carry the variables of the make that runs this script, which are another build's
	git clone -q "$source_dir" "$cross/gpumemd"
	cd "$cross/gpumemd"
	autoreconf --install >/dev/null
	./configure --host=x86_64-linux-gnu PKG_CONFIG_LIBDIR=/usr/lib/x86_64-linux-gnu/pkgconfig:/usr/share/pkgconfig >/dev/null
	make -s -j"$(nproc)"
	make -s bench/fairness "${suite[@]}"
	build=$PWD
	cd "$OLDPWD"
else
	make -s -C "$build" all # first, because it makes the generated sources that the rest needs
	make -s -C "$build" bench/fairness "${suite[@]}"
fi

rm -rf "$stage"
mkdir -p "$stage/lib"
# Prints where the program is. Where it links our shared library, libtool puts a script in its place.
real() {
	local beside
	beside=$(dirname "$1")/.libs/$(basename "$1")
	if [ -x "$beside" ]; then echo "$beside"; else echo "$1"; fi
}
# Copies the libraries that a file needs, from where the linker would take them, except those of the C library and of the driver. The
# last folder has those of the cross compiler itself.
needs() {
	local name
	for name in $(readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]$/\1/p'); do
		case $name in libcuda.so.*|libc.so.*|ld-linux*|libm.so.*|libpthread.so.*|libdl.so.*|librt.so.*) continue ;; esac
		local found=
		for folder in "$build/client/.libs" "$build/weights/.libs" /lib/x86_64-linux-gnu /usr/lib/x86_64-linux-gnu /usr/x86_64-linux-gnu/lib; do
			if [ -e "$folder/$name" ]; then found=$folder/$name; break; fi
		done
		[ -n "$found" ] || { echo "stage: $1 needs $name, which was not found" >&2; exit 1; }
		[ -e "$stage/lib/$name" ] && continue
		cp -L "$found" "$stage/lib/$name"
		needs "$found"
	done
}
for program in "${programs[@]}"; do
	mkdir -p "$stage/$(dirname "$program")"
	cp "$(real "$build/$program")" "$stage/$program"
	# What a debugger needs is most of a program. This one looks up its own lines.
	[ "${program##*/}" = check_leaks_gpu ] || "$strip" --strip-debug "$stage/$program"
	needs "$stage/$program"
done
# What programs load at run time, and the helpers of check_preload, which are programs and libraries of their own.
mkdir -p "$stage/preload"
make -s -C "$build" tests/gpu/libbeside.la tests/gpu/liblocal.la
cp "$build/preload/.libs/libgpumem-preload.so" "$stage/preload/"
cp "$build/tests/gpu/.libs/libbeside.so" "$build/tests/gpu/.libs/liblocal.so" "$stage/tests/gpu/"
if [ -e "$build/python/.libs/libgpumem-torch.so" ]; then
	mkdir -p "$stage/python"
	"$strip" --strip-debug -o "$stage/python/libgpumem-torch.so" "$build/python/.libs/libgpumem-torch.so"
fi
if command -v nvcc >/dev/null && [ "$machine" = x86_64 ]; then
	nvcc -cudart static -o "$stage/tests/gpu/cudart_actor" "$source_dir/tests/gpu/cudart_actor.cu" || rm -f "$stage/tests/gpu/cudart_actor"
fi
# Every file must be for the machine that it goes to, whatever this machine is.
find "$stage" -type f | while read -r file; do
	case $(readelf -h "$file" 2>/dev/null | sed -n 's/^ *Machine: *//p') in
	*X86-64) ;;
	*) echo "stage: $file is not for x86-64" >&2; exit 1 ;;
	esac
done
cp "$source_dir/tests/gpu/run.sh" "$stage/run.sh"
cp "$source_dir/tests/gpu/frameworks.sh" "$source_dir/tests/gpu/python.sh" "$source_dir/tests/gpu/"*.py "$stage/tests/gpu/"
mkdir -p "$stage/python" "$stage/tests/python" "$stage/examples/python"
cp "$source_dir"/examples/python/*.py "$stage/examples/python/"
cp "$source_dir"/tests/python/{conftest,test_arrays,test_memory}.py "$stage/tests/python/"
cp -r "$source_dir/python/gpumem" "$stage/python/"
rm -rf "$stage/python/gpumem/__pycache__"
chmod +x "$stage/run.sh"
git -C "$source_dir" rev-parse --short HEAD >"$stage/commit" 2>/dev/null || rm -f "$stage/commit"
size=$(du -sm "$stage" | cut -f1)
echo "$stage: $size MiB"
[ "$size" -lt 40 ] || { echo "stage: more than 40 MiB" >&2; exit 1; }
