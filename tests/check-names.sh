#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks the names in the product, so that a name found in a profile, a backtrace or a search leads to one place:
#   - no two files have the same name (but main.c);
#   - no struct, union or enum is defined twice in the tree, nor an extern function;
#   - no two functions of one program have the same name, static ones included;
#   - a static function begins with the name of its file, or with the first or the last words of it:
#     arena_small.c may say arena_small_x, arena_x or small_x;
#   - no message names a constant of the C headers: users of the shell and of Python read it, too. (A GPUMEM_…_INIT may be
#     named: only a C program forgets it. GPUMEM_SOCKET and GPUMEM_TRACK are variables of the environment.)
# Run by make check; by hand: top_srcdir=. tests/check-names.sh
set -euo pipefail
cd "${top_srcdir:-.}"
. tests/report.sh

files=$(find common daemon client weights ctl exporter keeper preload run include -name '*.[ch]' ! -name '*.pb-c.*' | LC_ALL=C sort)
# shellcheck disable=SC2086 # file names here have no blanks
types=$(grep -HE '^(struct|union|enum) [a-z_0-9]+ \{' $files | sed -E 's/^([^:]*):(struct|union|enum) ([a-z_0-9]+) .*/\3 \1/')

# Lines "static|extern NAME FILE": definitions start in the first column and have a body.
# shellcheck disable=SC2086
functions=$(awk '
	function finish(   text, name) {
		text = head
		gsub(/\/\*[^*]*\*\//, "", text)
		gsub(/__attribute__ *\(\([^;{]*\)\)\)?/, "", text)
		if (match(text, /[a-zA-Z_0-9]+ *\(/)) {
			name = substr(text, RSTART, RLENGTH)
			sub(/ *\($/, "", name)
			print (text ~ /^static/ ? "static" : "extern"), name, FILENAME
		}
		head = ""
	}
	FNR == 1 { head = "" }
	/^\{/ && head != "" { finish(); next }
	/^[a-z_]/ && !/^(struct|union|enum|typedef)[^(]*(\{|;)/ && !/;[ \t]*(\/\*.*)?$/ && !/=/ { head = $0; next }
	/^[ \t]/ && head != "" && !/[;=]/ { head = head " " $0; next }
	{ head = "" }' $files)

# shellcheck disable=SC2086
report "$(for f in $files; do echo "${f##*/}"; done | grep -vx main.c | sort | uniq -d | sed 's/$/ stands in two folders/')" \
	"no two files have the same name"
report "$(awk '{ n[$1]++; where[$1] = where[$1] " " $2 } END { for (t in n) if (n[t] > 1) print t ":" where[t] }' <<<"$types")" \
	"no struct, union or enum is defined twice"
report "$(awk '$1 == "extern" && $2 != "main" { n[$2]++; where[$2] = where[$2] " " $3 } END { for (f in n) if (n[f] > 1) print f ":" where[f] }' <<<"$functions")" \
	"no extern function is defined twice"
report "$(awk '$2 != "main" { split($3, part, "/"); key = part[1] " " $2; n[key]++; where[key] = where[key] " " $3 }
	END { for (k in n) if (n[k] > 1) print k ":" where[k] }' <<<"$functions")" \
	"no two functions of one program have the same name"
report "$(awk '$1 == "static" && $2 !~ /^gm_/ && $3 !~ /\/main\.c$/ {
		stem = $3; sub(/.*\//, "", stem); sub(/\.[ch]$/, "", stem)
		n = split(stem, word, "_"); good = 0; front = back = ""
		for (i = 1; i <= n; i++) {
			front = front word[i] "_"; back = word[n + 1 - i] "_" back
			if (index($2, front) == 1 || index($2, back) == 1) good = 1
		}
		if (!good) print $3 ": " $2
	}' <<<"$functions")" \
	"a static function carries the name of its file"
constants=$(grep -hoE '\bGPUMEM_[A-Z0-9_]+' include/gpumem/*.h | grep -vE '_(H|INIT)$|^GPUMEM_(VERSION.*|SOCKET|TRACK)$|_$' | LC_ALL=C sort -u)
# shellcheck disable=SC2086
report "$(grep -HnE '"[^"]*GPUMEM_[^"]*"' $files | grep -vE '^include/|#include|getenv\(' | grep -wF "$constants")" \
	"no message names a constant of C"
report "$([ "$(wc -l <<<"$functions")" -gt 1000 ] && [ "$(wc -l <<<"$types")" -gt 100 ] || echo "only $(wc -l <<<"$functions") functions and $(wc -l <<<"$types") types were found")" \
	"this script still finds the functions and types"
echo "1..$tests"
