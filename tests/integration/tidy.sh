#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A test that fails leaves nothing under /tmp, however it fails. With GPUMEM_TEST_KEEP it leaves its folder.
set -u
program=${top_builddir:-.}/tests/integration/untidy
unset GPUMEM_TEST_KEEP CK_FORK
n=0
# check NAME STATUS LEFT HOW: a test that ends HOW has this STATUS, and LEFT (yes or no) says whether its folder stays.
check() {
	local out folder status left=no
	out=$("$program" "$4" 2>&1)
	status=$?
	folder=$(sed -n 's/^folder //p' <<<"$out")
	n=$((n + 1))
	[ -n "$folder" ] && [ -e "$folder" ] && left=yes
	if [ -n "$folder" ] && [ "$status" = "$2" ] && [ "$left" = "$3" ]; then
		echo "ok $n - $1"
	else
		echo "not ok $n - $1"
		printf '# status %s, folder %s left: %s\n' "$status" "$folder" "$left"
		sed 's/^/# /' <<<"$out"
	fi
	case $folder in /tmp/gpumem-test-*) rm -rf "$folder" ;; esac
}
check "a test that passes leaves nothing" 0 no pass
check "nor does one that finds something not so" 1 no require
check "nor one whose assertion fails" 1 no assert
check "nor one that is killed" 1 no kill
export GPUMEM_TEST_KEEP=1
check "what a failed one leaves can be kept" 1 yes require
unset GPUMEM_TEST_KEEP
export CK_FORK=no
check "in one process it is the same" 1 no require
echo "1..$n"
