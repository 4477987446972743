#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a test program on fake GPUs: run-fake.sh [-n DEVICES] [-s SIZE] PROGRAM… . Where they cannot be had, it skips.
"${top_srcdir:?}/tests/fake/with-fake-gpu" "$@"
status=$?
if [ "$status" = 77 ]; then
	echo "1..0 # SKIP neither root nor user namespaces: the fake driver cannot mount its devices"
	exit 0
fi
exit "$status"
