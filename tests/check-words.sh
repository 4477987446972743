#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks the words of doc/words.md: the first words after gm_ in the headers of daemon, client and preload are those of its first
# table, at most 100; and the words of its second table stand only where their pattern allows it.
set -euo pipefail
cd "${top_srcdir:-.}"
. tests/report.sh

most=100
headers() { find "$@" -name '*.h' ! -name '*.pb-c.*' -print0 | xargs -0 cat; }
rows() { sed -n "/^| word | $1 |$/,/^$/s/^| \([a-z0-9]*\) | .*/\1/p" doc/words.md | grep -vx word; }

used=$(headers daemon client preload | grep -ohE '\bgm_[a-z0-9]+' | grep -vE '^gm_cu' |
	sed -E 's/^gm_//; s/ies$/y/; s/([^s])s$/\1/' | LC_ALL=C sort -u)
listed=$(rows meaning)
n=$(wc -w <<<"$used")
echo "# $n first words:" $used

report "$(LC_ALL=C comm -23 <(echo "$used") <(LC_ALL=C sort <<<"$listed"))" "each first word is in doc/words.md"
report "$(LC_ALL=C comm -13 <(echo "$used") <(LC_ALL=C sort <<<"$listed"))" "each word of doc/words.md is in a header"
report "$(diff <(echo "$listed") <(LC_ALL=C sort -u <<<"$listed"))" "the words are in order, each once"
report "$([ "$n" -le $most ] || echo "there are $n: merge $((n - most))")" "there are at most $most first words"

identifiers=$(headers common daemon client preload keeper | grep -ohE '\b(gm|GM)_[A-Za-z0-9_]+' | tr '[:upper:]' '[:lower:]' | LC_ALL=C sort -u)
double=0
while IFS='|' read -r _ word _ pattern; do
	word=${word// /} pattern=$(sed -E 's/^[^`]*`(.*)`.*$/\1/; s/\\\|/|/g' <<<"$pattern")
	double=$((double + 1))
	report "$(grep -E "_${word}s?(_|$)" <<<"$identifiers" | grep -vxE -e "$pattern" || true)" "$word has one meaning"
done < <(sed -n '/^| word | meaning | pattern |$/,/^$/p' doc/words.md | tail -n +3 | grep '^|')
report "$([ $double -eq 10 ] || echo "doc/words.md has $double of them")" "ten words are watched"
echo "1..$tests"
