#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks that the library exports the names that its version script lists and the public headers declare, that the headers
# compile alone as C and as C++, and that the library needs no other libraries than it says.
set -u
lib=${top_builddir:?}/client/.libs/libgpumem-client.so
map=${top_srcdir:?}/client/libgpumem-client.map
headers=$top_srcdir/include/gpumem
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

nm -D --defined-only "$lib" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort >"$work/exported"
sed -n '/global:/,/local:/ s/^[[:space:]]*\([a-z_0-9]*\);.*/\1/p' "$map" | sort >"$work/listed"
# A declaration may span lines. Its name stands before the first parenthesis after GPUMEM_API.
declared() { # HEADER...
	cat "$@" | tr '\n' ' ' | grep -o 'GPUMEM_API[^;(]*(' | grep -v '__attribute__' | sed 's/.*[ *]\([a-z_0-9]*\)($/\1/' | sort
}
shopt -s extglob
declared "$headers"/!(gpumem_weights).h >"$work/declared"

[ -s "$work/exported" ] && diff "$work/listed" "$work/exported" >"$work/why" 2>&1
result "the library exports what its version script lists"
[ -s "$work/declared" ] && diff "$work/declared" "$work/exported" >"$work/why" 2>&1
result "the library exports what the public headers declare"
! nm -D --defined-only "$lib" | awk '$2 != "A"' | grep -v '@@GPUMEM_0$' >"$work/why" 2>&1
result "every symbol has a version"
# sanitizers add libraries of their own
! readelf -d "$lib" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
	grep -Ev '^(libc|libpthread|libdl|libprotobuf-c|ld-linux.*|lib(a|t|ub)san.*|libgcc_s|libm|librt|libresolv|libstdc\+\+)\.so' >"$work/why" 2>&1
result "the library needs libc and protobuf-c only"
readelf -d "$lib" | grep -q NODELETE 2>"$work/why"
result "the library stays loaded"

# libgpumem-weights stands on the client library, and alone needs jansson.
weights=$top_builddir/weights/.libs/libgpumem-weights.so
nm -D --defined-only "$weights" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort >"$work/exported"
sed -n '/global:/,/local:/ s/^[[:space:]]*\([a-z_0-9]*\);.*/\1/p' "$top_srcdir/weights/libgpumem-weights.map" | sort >"$work/listed"
declared "$headers/gpumem_weights.h" >"$work/declared"
[ -s "$work/exported" ] && diff "$work/listed" "$work/exported" >"$work/why" 2>&1
result "libgpumem-weights exports what its version script lists"
[ -s "$work/declared" ] && diff "$work/declared" "$work/exported" >"$work/why" 2>&1
result "libgpumem-weights exports what its header declares"
! nm -D --defined-only "$weights" | awk '$2 != "A"' | grep -v '@@GPUMEM_WEIGHTS_0$' >"$work/why" 2>&1
result "every symbol of libgpumem-weights has a version"
! readelf -d "$weights" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
	grep -Ev '^(libc|libpthread|libgpumem-client|libjansson|ld-linux.*|lib(a|t|ub)san.*|libgcc_s|libm|librt|libdl|libresolv|libstdc\+\+)\.so' >"$work/why" 2>&1
result "libgpumem-weights needs libc, jansson and the client library only"

# The preloaded library: its names are those of the calls that it stands in for, without a version, dlsym(), and one of its own.
preload=$top_builddir/preload/.libs/libgpumem-preload.so
nm -D --defined-only "$preload" | awk '{ print $3 }' | sort >"$work/exported"
sed -n '/global:/,/local:/ s/^[[:space:]]*\([a-zA-Z_0-9]*\);.*/\1/p' "$top_srcdir/preload/libgpumem-preload.map" | sort >"$work/listed"
printf '#include "preload/driver/preload_calls.h"\n#define ROW(symbol, ...) row: symbol\nGM_PRELOAD_CALLS(ROW) GM_PRELOAD_NVML_CALLS(ROW)\n' |
	${CC:-cc} -I"$top_srcdir" -E -P - | grep -o 'row: [a-zA-Z_0-9]*' | sed 's/row: //' | { cat; echo dlsym; echo gpumem_preload_wanted; } | sort >"$work/declared"
[ -s "$work/exported" ] && diff "$work/listed" "$work/exported" >"$work/why" 2>&1
result "the preloaded library exports what its version script lists"
diff "$work/declared" "$work/exported" >"$work/why" 2>&1
result "the preloaded library exports the calls of preload_calls.h, dlsym, and its own"
! readelf -d "$preload" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -Ev '^(libc|libpthread|libdl|ld-linux.*)\.so' >"$work/why" 2>&1
result "the preloaded library needs the C library only"

for header in "$headers"/*.h; do
	name=$(basename "$header")
	printf '#include <gpumem/%s>\nint main(void) { return 0; }\n' "$name" >"$work/alone.c"
	${CC:-cc} -std=c99 -pedantic -Wall -Wextra -Wstrict-prototypes -Werror -I"$top_srcdir/include" \
		-fsyntax-only "$work/alone.c" >"$work/why" 2>&1
	result "$name compiles by itself as C"
	cp "$work/alone.c" "$work/alone.cc"
	${CXX:-c++} -std=c++11 -pedantic -Wall -Wextra -Werror -I"$top_srcdir/include" \
		-fsyntax-only "$work/alone.cc" >"$work/why" 2>&1
	result "$name compiles by itself as C++"
done

printf '#include <gpumem/gpumem.hpp>\nint main() { return 0; }\n' >"$work/alone.cc"
for std in c++17 c++20; do
	for flags in '' '-fno-exceptions -fno-rtti'; do
		# shellcheck disable=SC2086 # several flags
		${CXX:-c++} -std=$std $flags -pedantic -Wall -Wextra -Werror -I"$top_srcdir/include" \
			-fsyntax-only "$work/alone.cc" >"$work/why" 2>&1
		result "gpumem.hpp compiles by itself as $std $flags"
	done
done

cat >"$work/use.cc" <<'END'
#include <gpumem/gpumem_weights.h>
int main()
{
	gpumem_connect_options connect = GPUMEM_CONNECT_OPTIONS_INIT;
	gpumem_alloc_options alloc = GPUMEM_ALLOC_OPTIONS_INIT;
	gpumem_buffer_options buffer = GPUMEM_BUFFER_OPTIONS_INIT;
	gpumem_batch_options batch = GPUMEM_BATCH_OPTIONS_INIT;
	gpumem_buffer_policy policy = GPUMEM_BUFFER_POLICY_INIT;
	gpumem_share_options share = GPUMEM_SHARE_OPTIONS_INIT;
	gpumem_publish_options publish = GPUMEM_PUBLISH_OPTIONS_INIT;
	gpumem_name name = GPUMEM_NAME_INIT;
	gpumem_weights_options weights = GPUMEM_WEIGHTS_OPTIONS_INIT;
	gpumem_device_info_t info = GPUMEM_DEVICE_INFO_INIT;
	gpumem_stats_t stats = GPUMEM_STATS_INIT;
	void *ptr = GPUMEM_STREAM_ANY;
	return connect.size && alloc.size && buffer.size && batch.size && policy.size && share.size && publish.size && name.size && weights.size && info.size && stats.size &&
	       ptr ? 0 : 1;
}
END
cp "$work/use.cc" "$work/use.c"
sed -i 's/main()/main(void)/' "$work/use.c"
${CC:-cc} -std=c99 -Wall -Wextra -Werror -I"$top_srcdir/include" -fsyntax-only "$work/use.c" >"$work/why" 2>&1
result "every struct with a size can be initialised in C"
${CXX:-c++} -std=c++11 -Wall -Wextra -Werror -I"$top_srcdir/include" -fsyntax-only "$work/use.cc" >"$work/why" 2>&1
result "every struct with a size can be initialised in C++"
echo "1..$n"
