#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The README is true: its worker is examples/worker.c (which ctl.sh runs), its commands are right and its links exist.
set -u
source=${top_srcdir:-.} n=0
report() { # NAME COMMAND...
	n=$((n + 1))
	if "${@:2}"; then echo "ok $n - $1"; else echo "not ok $n - $1"; fi
}
# shellcheck disable=SC2016 # nothing is to be expanded
same() { diff <(sed -n '/^```c$/,/^```$/p' "$source/README.md" | sed '1d;$d') "$source/examples/worker.c" >&2; }
report "the worker in the README is examples/worker.c" same
# The comment with the licence is left out there.
same_in_manual() {
	diff <(sed -n '/^# EXAMPLE/,$p' "$source/man/libgpumem-client.3.scd" | awk '/^```$/ { if (open) exit; open = 1; next } open' | sed 's/\\\\/\\/g') \
		<(tail -n +2 "$source/examples/worker.c") >&2
}
report "and so is the one in libgpumem-client(3)" same_in_manual
report "README is README.md" cmp -s "$source/README" "$source/README.md"
for command in './bootstrap && make demo' './bootstrap && make check'; do
	report "it names $command" grep -qxF "$command" "$source/README.md"
done
# The daemon serves some time after its shell has started it, so the commands after that are a block of their own.
goes_on() {
	awk 'FNR == 1 { open = daemon = 0 } /^```/ { open = !open; daemon = 0; next }
		open && daemon { print FILENAME ": " $0; found = 1 } open && /gpumemd[^&|]*&$/ { daemon = 1 } END { exit found }' \
		"$source/README.md" "$source"/doc/*.md "$source"/examples/*.md "$source"/man/*.scd >&2
}
report "no command follows in the block that starts a daemon, which must be ready first" goes_on
# A tarball does not hold everything that the README links to.
[ ! -e "$source/.git" ] || while read -r link; do
	report "$link exists" [ -e "$source/$link" ]
done < <(grep -o '](\([^)]*\))' "$source/README.md" | sed 's/](\(.*\))/\1/' | sort -u)
echo "1..$n"
