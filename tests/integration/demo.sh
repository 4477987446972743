#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# make demo shows what it claims, and leaves nothing behind, whether it ends by itself or is stopped halfway.
set -u
source=${top_srcdir:-.}
. "$source/tests/integration/functions.sh"
scratch demo-test
mkdir "$dir/tmp"
export TMPDIR=$dir/tmp top_builddir=${top_builddir:-.}
report() { # NAME COMMAND...
	if "${@:2}"; then ok "$1"; else not_ok "$1" "$(cat "$dir/output")"; fi
}
# The demo keeps all its files in one folder, and its daemon's command line names it.
nothing_left() { [ -z "$(ls -A "$TMPDIR")" ] && ! pgrep -f -- "--socket $TMPDIR" >"$dir/left"; }
says() { grep -qF -- "$1" "$dir/output"; }

bash "$source/examples/demo.sh" >"$dir/output" 2>&1
report "the demo shows what it claims" [ $? = 0 ]
report "it says so" says "the server's 512 MiB are back"
report "a killed daemon comes back, and no call fails" says "64 MiB. No call failed."
report "it leaves nothing behind" nothing_left
awk 'length > 80' "$dir/output" >"$dir/wide"
report "it fits 80 columns" [ ! -s "$dir/wide" ]

"$source/tests/fake/with-fake-gpu" -s 4g bash "$source/examples/demo.sh" >"$dir/output" 2>&1
status=$?
if [ $status = 77 ]; then
	for name in "the demo runs on a (fake) GPU" "and says so"; do
		ok "$name # SKIP $(no_namespaces)"
	done
else
	report "the demo runs on a (fake) GPU" [ $status = 0 ]
	report "and says so" says "backend: cuda"
fi

# Stops the demo while its workers work. For PIPE, the reader goes away instead.
for signal in INT TERM HUP PIPE; do
	rm -f "$dir/pipe"
	mkfifo "$dir/pipe"
	exec {pipe}<>"$dir/pipe"
	# bash ignores SIGINT in a background command, and only env can undo that.
	env --default-signal=INT bash "$source/examples/demo.sh" >"$dir/pipe" 2>&1 {pipe}>&- &
	demo=$!
	: >"$dir/output"
	while read -r -t 60 -u "$pipe" line; do
		echo "$line" >>"$dir/output"
		case $line in *"adds 1 to each"*) break ;; esac
	done
	[ $signal = PIPE ] || kill -$signal $demo
	exec {pipe}>&-
	wait $demo
	report "stopped with SIG$signal it does not claim success" [ $? != 0 ]
	report "and leaves nothing behind" nothing_left
done
echo "1..$n"
