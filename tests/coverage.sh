#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs tests in a build that was configured with --enable-coverage, and prints how much of the code they ran: a row per folder of the
# programs and libraries (make coverage). With FILES, a row per file, and the functions that no test ran; it fails if there is
# one (make coverage-cuda).
#
# A process writes its counters when it exits. What it ran is lost if a signal kills it.
#
#   coverage.sh SOURCE BUILD "TESTS…" ["FILES…"]
set -euo pipefail
source_dir=$(realpath "$1") build=$(realpath "$2") tests=$3 files=${4-}
folders='daemon|client|keeper|ctl|exporter|run|preload|common|weights'

if ! command -v gcovr >/dev/null; then
	echo "coverage: gcovr is not installed: install the package gcovr, or run ./bootstrap --enable-coverage" >&2
	exit 1
fi
cd "$build"
if ! grep -q -e '^GM_CFLAGS = .* -DGM_COVERAGE' Makefile; then
	echo "coverage: this build counts nothing: run ./bootstrap --enable-coverage in a separate clone, then make coverage there" >&2
	exit 1
fi
${MAKE-make} -s check TESTS= >/dev/null
find . -name '*.gcda' -delete
${MAKE-make} -s -k check TESTS="$tests" || echo "coverage: some tests failed; see above" >&2

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# gcovr takes a pattern for the files, and a file's path in it begins with the source's folder.
escaped=$(sed 's/[][\.*+?^${}()|]/\\&/g' <<<"$source_dir")
pattern="$escaped/($folders)/"
[ -z "$files" ] || pattern="$escaped/($(tr -s ' \t\n' '|' <<<"$files" | sed -e 's/^|//' -e 's/|$//' -e 's/\./\\./g'))\$"
gcovr -j "$(nproc)" -r "$source_dir" -f "$pattern" --csv "$work/csv" --json "$work/json" --json-pretty "$build"

# The columns of the CSV: file, lines, lines run, %, branches, branches taken, …
echo
LC_ALL=C awk -F, -v by_file="$files" '
	function add(row) { lines[row] += $2; run[row] += $3; branches[row] += $5; taken[row] += $6 }
	function percent(part, all) { return all ? sprintf("%.1f %%", 100 * part / all) : "-" }
	function text(row) {
		return sprintf("| %-*s | %6d | %7s | %8d | %7s |", width, row, lines[row], percent(run[row], lines[row]),
			branches[row], percent(taken[row], branches[row]))
	}
	NR > 1 {
		row = $1
		if (!by_file) sub("/[^/]*$", "", row)
		if (!(row in lines)) order[++n] = row
		if (length(row) > width) width = length(row)
		add(row)
		add("all")
	}
	END {
		printf "| %-*s | %6s | %7s | %8s | %7s |\n|---|---|---|---|---|\n", width, by_file ? "file" : "folder", "lines", "run", "branches", "taken"
		fflush()
		for (i = 1; i <= n; i++) print text(order[i]) | "sort"
		close("sort")
		print text("all")
	}' "$work/csv"
[ -n "$files" ] || exit 0

never=$(awk -F'"' '
	$2 == "file" { file = $4 }
	$2 == "execution_count" { never = $3 ~ /^: 0,/ }
	$2 == "name" && never { print file ": " $4 }' "$work/json")
echo
if [ -n "$never" ]; then
	printf 'never run:\n%s\n' "$never"
	exit 1
fi
echo "every function of these files was run"
