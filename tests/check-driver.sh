#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What make check prints: a line for each program, what failed, and at the end how many tests did not run, and why.
set -u
source=$(realpath "${top_srcdir:-.}")
. "$source/tests/integration/functions.sh"
scratch driver
cd "$dir" || exit

# Runs a test that prints TAP, and keeps in $said what make check would print, without the time that it took.
says() { # NAME TAP [STATUS]
	printf '%s\n' "$2" >"$1.tap"
	said=$(top_srcdir=$source bash "$source/tests/driver.sh" --test-name "$1" --log-file "$1.log" --trs-file "$1.trs" \
		--color-tests no --enable-hard-errors yes --expect-failure no -- sh -c "cat '$1.tap'; exit ${3-0}")
	timed=$(grep -oE ' \([0-9]+\.[0-9] s, CPU [0-9]+\.[0-9] s\)' <<<"$said") || timed=''
	said=${said/"$timed"/}
}
expect() { # NAME TEXT
	[ "$said" = "$2" ] && ok "$1" || not_ok "$1" "$said"
}

says passes $'ok 1 - a\nok 2 - b\n1..2'
expect "a program whose tests pass is one line" "PASS: passes: 2 tests"
[ -n "$timed" ] && ok "with its time and its processor time" || not_ok "with its time and its processor time"
says partly $'ok 1 - a\nok 2 - b # SKIP needs root, for b\n1..2'
expect "so is one that skips a test" "PASS: partly: 2 tests, of which 1 did not run"
says skips '1..0 # SKIP needs root, for all; really'
expect "one that skips as a whole says why" "SKIP: skips: needs root, for all; really"
says fails $'ok 1 - a\nnot ok 2 - b\n# a reason\nnot ok 3 - c\n1..3' 1
expect "one that fails names each test that failed, and its log" \
	$'FAIL: fails: 2 of 3 tests failed; see fails.log\n    FAIL: fails 2 - b\n    FAIL: fails 3 - c\n    ERROR: fails - exited with status 1'
says dies $'ok 1 - a\n1..1' 7
expect "one that ends badly is no success" $'ERROR: dies: 1 test, and then an error; see dies.log\n    ERROR: dies - exited with status 7'
says silent ''
expect "nor is one that prints nothing" $'ERROR: silent: 0 tests, and then an error; see silent.log\n    ERROR: silent - missing test plan'

results=$(grep -h '^:test-result:' ./*.trs | wc -l)
[ "$results" = 12 ] && ok "each test is counted in the summary" || not_ok "each test is counted in the summary" "$results are"

says skips2 $'ok 1 - a # SKIP needs root, for b\n1..1'
said=$(bash "$source/tests/driver.sh" --skipped ./*.trs | sed -e 's/^ *//' -e 1d)
expect "the summary counts the tests that did not run, by reason" $'3 did not run:\n2 needs root, for b\n1 needs root, for all; really'
said=$(bash "$source/tests/driver.sh" --skipped passes.trs)
expect "and says nothing if all did" ""
echo "1..$n"
