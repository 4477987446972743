# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Results in TAP, for checks of the sources (tests/check-*.sh). To be sourced. The check ends with: echo "1..$tests"
tests=0

report() { # $1: the problems, one per line; $2: what was checked
	tests=$((tests + 1))
	if [ -z "$1" ]; then
		echo "ok $tests - $2"
	else
		echo "not ok $tests - $2"
		sed 's/^/#   /' <<<"$1"
	fi
}
