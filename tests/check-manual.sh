#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks that the manual pages name each public function and status of the library and each option of the daemon, and that
# their example compiles.
set -u
: "${top_srcdir:?}" "${top_builddir:?}"
library=$top_srcdir/man/libgpumem-client.3.scd daemon=$top_srcdir/man/gpumemd.8.scd
headers=$top_srcdir/include/gpumem
failed=0 n=0

report() {
	n=$((n + 1))
	if [ -z "$2" ]; then
		echo "ok $n - $1"
	else
		failed=1
		echo "not ok $n - $1"
		echo "$2" | sed 's/^/# /'
	fi
}

functions=$(grep -ho '\bgpumem_[a-z_]*(' "$headers"/*.h | tr -d '(' | sort -u)
missing=$(for f in $functions; do grep -q "\b$f\b" "$library" || echo "$f is not explained"; done)
[ -n "$functions" ] || missing="no function was found in the headers"
report every_public_function_is_explained "$missing"

statuses=$(sed -n 's/^\tX(\(GPUMEM_[A-Z_]*\), \([0-9]*\),.*/\1 \2/p' "$headers/status.h")
missing=$(echo "$statuses" | while read -r name value; do
	grep -q "^\*$name\* ($value)\$" "$library" || echo "$name ($value) is not listed"
done)
[ -n "$statuses" ] || missing="no status was found in status.h"
report every_status_is_listed_with_its_value "$missing"

example=$(mktemp --suffix=.c)
trap 'rm -f "$example"' EXIT
sed -n '/^# EXAMPLE/,/^# SEE/p' "$library" | sed -n '/^```/,/^```/p' | grep -v '^```' | sed 's/\\\\/\\/g' >"$example"
complaint=$(${CC:-cc} -Wall -Werror -fsyntax-only -I"$top_srcdir/include" "$example" 2>&1)
[ -s "$example" ] || complaint="no example was found"
report the_example_compiles "$complaint"

options=$("$top_builddir/daemon/gpumemd" --help | grep -o -- '--[a-z-]*' | sort -u)
missing=$(for o in $options; do grep -qE -- "^(\*-.\*, )?\*$o\*" "$daemon" || echo "$o is not explained"; done
	for o in $(grep -E -- '^(\*-.\*, )?\*--' "$daemon" | grep -o -- '--[a-z-]*'); do
		echo "$options" | grep -qx -- "$o" || echo "$o is explained but not there"
	done)
[ -n "$options" ] || missing="gpumemd --help shows no option"
report every_option_of_the_daemon_is_explained "$missing"

echo "1..$n"
exit "$failed"
