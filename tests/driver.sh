#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What make check prints:
#
#   driver.sh OPTION... -- TEST...   runs a test with automake's TAP driver, which OPTION is for, and prints one line for the whole
#                                    program, with the time and the processor time that it took, and one for each case that
#                                    failed. The cases are in its .log and .trs files
#   driver.sh --skipped TRS...       says how many tests did not run, and why, on lines of its own below the title of the summary
set -u

# Prints the reason of each test that a log reports as skipped, one per line.
reasons() { sed -nE 's/^(ok|not ok|1\.\.0)( .*)?# *[Ss][Kk][Ii][Pp][^ ]* *//p' "$1"; }

if [ "${1-}" = --skipped ]; then
	shift
	skipped=$(for trs; do reasons "${trs%.trs}.log"; done 2>/dev/null | LC_ALL=C sort | uniq -c | LC_ALL=C sort -k1,1nr -k2)
	[ -z "$skipped" ] || awk '{ n += $1; lines = lines "\n" $0 } END { printf "\n%d did not run:%s\n", n, lines }' <<<"$skipped"
	exit
fi

name='' log='' trs='' color=no options=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
	case $1 in
	--test-name) name=$2 ;;
	--log-file) log=$2 ;;
	--trs-file) trs=$2 ;;
	--color-tests) color=$2 ;;
	esac
	# The lines of the other driver are searched, so they get no colours.
	[ "$1" != --color-tests ] || set -- "$1" no "${@:3}"
	options+=("$1" "$2")
	shift 2
done

began=${EPOCHREALTIME/[.,]/}
said=$("${SHELL:-/bin/sh}" "${top_srcdir:-.}/build-aux/tap-driver.sh" "${options[@]}" "$@")
status=$?
# Both in tenths of a second. The processor time is that of all descendants whose parents waited for them.
took=$(((${EPOCHREALTIME/[.,]/} - began) / 100000))
read -ra stat </proc/$$/stat
computed=$(((stat[15] + stat[16]) * 10 / $(getconf CLK_TCK)))

count() { grep -cE "^:test-result: ($1)( |\$)" "$trs" || true; }
bad=$(count 'FAIL|XPASS') errors=$(count ERROR) skip=$(count SKIP) all=$(count 'PASS|FAIL|XPASS|XFAIL|SKIP')
result=PASS paint=32
text="$all tests"
[ "$all" != 1 ] || text="1 test"
if [ "$bad" -gt 0 ]; then
	result=FAIL paint=31 text="$bad of $text failed; see $log"
elif [ "$errors" -gt 0 ] || [ "$all" = 0 ]; then
	result=ERROR paint=35 text="$text, and then an error; see $log"
elif [ "$skip" = "$all" ]; then
	result=SKIP paint='1;34' text=$(reasons "$log" | LC_ALL=C sort -u | awk '{ printf "%s%s", between, $0; between = "; " }')
elif [ "$skip" -gt 0 ]; then
	text="$text, of which $skip did not run"
fi
[ "$result" = SKIP ] || text+=" ($((took / 10)).$((took % 10)) s, CPU $((computed / 10)).$((computed % 10)) s)"
[ "$color" = yes ] && printf '\033[%sm%s\033[m: %s: %s\n' "$paint" "$result" "$name" "$text" || echo "$result: $name: $text"
grep -E '^(FAIL|XPASS|ERROR): ' <<<"$said" | sed 's/^/    /'
exit "$status"
