#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks that every bound of common/bounds.h has a test that goes one past it. Such a test says GM_BOUND_TEST(NAME); and in a
# shell script a comment says # GM_BOUND_TEST(NAME).
#
# Prints one TAP line per bound and one per mark of a bound that does not exist. Then checks that doc/protocol.md lists the same
# values in the same order.
set -euo pipefail
cd "${top_srcdir:-.}"
tests=0

# The rows of the table are X(NAME, value, "text").
limits=$(sed -n '/^#define GM_BOUNDS(X)/,/[^\\]$/p' common/bounds.h | grep -oE 'X\([A-Z][A-Z0-9_]*,' | sed 's/X(\(.*\),/\1/')
[ -n "$limits" ] || { echo "Bail out! no row of GM_BOUNDS found in common/bounds.h"; exit 1; }
marks=$(
	{
		grep -rE --include='*.c' '^[[:space:]]*GM_BOUND_TEST\([A-Z0-9_]+\);' tests || true
		grep -rE --include='*.sh' '^[[:space:]]*# GM_BOUND_TEST\([A-Z0-9_]+\)' tests || true
	} | sed 's/^\([^:]*\):.*\(GM_BOUND_TEST([A-Z0-9_]*)\).*/\1:\2/' | grep -v '^tests/check-bounds.sh:' | LC_ALL=C sort -u
)

for limit in $limits; do
	tests=$((tests + 1))
	where=$(sed -n "s/^\(.*\):GM_BOUND_TEST($limit)\$/\1/p" <<<"$marks" | tr '\n' ' ')
	if [ -n "$where" ]; then
		echo "ok $tests - $limit: ${where% }"
	else
		echo "not ok $tests - $limit has no test at limit + 1: mark one with GM_BOUND_TEST($limit)"
	fi
done
while IFS=: read -r file mark; do
	[ -n "$mark" ] || continue
	name=${mark#GM_BOUND_TEST(}
	name=${name%)}
	grep -qx "$name" <<<"$limits" && continue
	tests=$((tests + 1))
	echo "not ok $tests - $file marks a test of $name, which is no bound"
done <<<"$marks"

in_code=$(sed -n '/^#define GM_BOUNDS(X)/,/[^\\]$/p' common/bounds.h | grep -oE 'X\([A-Z][A-Z0-9_]*, [0-9]+' | sed 's/.*, //')
in_words=$(sed -n '/^## Limits/,$p' doc/protocol.md | sed -n 's/^|[^|]*| *\([0-9][0-9,]*\) *\([KM]iB\)\{0,1\}[^|]*|.*/\1 \2/p' |
	while read -r number unit; do
		number=${number//,/}
		case $unit in KiB) number=$((number * 1024)) ;; MiB) number=$((number * 1048576)) ;; esac
		echo "$number"
	done)
tests=$((tests + 1))
if [ "$in_code" = "$in_words" ]; then
	echo "ok $tests - doc/protocol.md has the same values"
else
	echo "not ok $tests - doc/protocol.md has other values than common/bounds.h (<)"
	diff <(echo "$in_code") <(echo "$in_words") | sed 's/^/#   /' || true
fi
echo "1..$tests"
