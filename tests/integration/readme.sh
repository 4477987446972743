#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The README is true: its worker is examples/worker.c (which ctl.sh runs) and its commands are right. The links of every document
# lead to a file and a heading that exist, and so do the files that the code and doc/architecture.md name.
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
# Prints the links of a document, one "FILE HEADING" a line. The heading may be missing.
links_of() { # DOCUMENT
	grep -o '](\([^)]*\))' "$1" | sed 's/](\(.*\))/\1/' | grep -v '^[a-z]*:' | sed "s/^#/${1##*/}#/; s/#/ /" | sort -u
}
# Prints the headings of a document as links name them.
headings_of() { # DOCUMENT
	sed -nE 's/^#+ +//p' "$1" | tr 'A-Z ' 'a-z-' | sed 's/[^a-z0-9_-]//g'
}
lead_somewhere() {
	local page=$1 file heading target bad=0
	while read -r file heading; do
		target=$(dirname "$page")/$file
		[ -e "$target" ] || { echo "$page: $file does not exist"; bad=1; continue; }
		[ -z "$heading" ] || headings_of "$target" | grep -qxF -- "$heading" || { echo "$page: $file has no heading $heading"; bad=1; }
	done < <(links_of "$page")
	return "$bad"
} >&2
named_in_code() {
	local page bad=0
	while read -r page; do
		[ -e "$source/$page" ] || { echo "$page is named and does not exist"; bad=1; }
	done < <(grep -rhoE --include='*.[ch]' --include='*.scd' --include='*.proto' --include='*.py' '\bdoc/[a-z0-9_]+\.md' "$source" | sort -u)
	return "$bad"
} >&2
# A name without a folder may be that of any file.
# shellcheck disable=SC2016 # nothing is to be expanded
named_in_architecture() {
	local path bad=0 files
	files=$(find "$source" -name .git -prune -o -type f -print)
	while read -r path; do
		[ -e "$source/$path" ] || grep -qE "/${path//./\\.}\$" <<<"$files" || { echo "doc/architecture.md: there is no $path"; bad=1; }
	done < <(grep -oE '`[^` ]+`' "$source/doc/architecture.md" | tr -d '`' | grep -E '\.(c|h|hpp|sh|py|proto|dot|svg)$|/' | sort -u)
	return "$bad"
} >&2
# A tarball does not hold everything that the documents name.
if [ -e "$source/.git" ]; then
	while read -r page; do
		report "the links of ${page#"$source"/} exist" lead_somewhere "$page"
	done < <(find "$source" -name .git -prune -o -name '*.md' -print | sort)
	report "the documents that the code names exist" named_in_code
	report "the files that doc/architecture.md names exist" named_in_architecture
fi
echo "1..$n"
