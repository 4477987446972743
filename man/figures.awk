# SPDX-License-Identifier: Apache-2.0
# Writes a manual page with the keys of figures: awk -f figures.awk common/figures.h PAGE. In the page, "@figures LIST@" becomes
# the names of the figures in a list, with their notes. "@figures LIST KIND@" takes rows of that kind alone, and
# "@figures LIST KIND by column@" puts them in the order of their columns.

# ---- the lists

FILENAME ~ /\.h$/ && /^#define GM_[A-Z]*_FIGURES\(/ {
	list = $2
	sub(/\(.*/, "", list)
}
FILENAME ~ /\.h$/ && list != "" && match($0, /^\t[A-Z]+\(/) {
	row = substr($0, RSTART + RLENGTH)
	kind = substr($0, 2, RLENGTH - 2)
	note = ""
	if (match(row, /"[^"]*"\)/))
		note = substr(row, RSTART + 1, RLENGTH - 3)
	n_words = split(row, words, ", ")
	for (w = 2; w <= n_words && words[w] !~ /^("|NULL)/; w++)
		if (words[w] ~ /^[0-9]+$/)
			place = words[w] + 0
	n = ++n_rows[list]
	kinds[list, n] = kind
	places[list, n] = place
	texts[list, n] = "_" words[1] "_" (note == "" ? "" : " (" note ")")
}
FILENAME ~ /\.h$/ {
	if ($0 !~ /\\$/)
		list = ""
	next
}

# ---- the page

# Returns the figures of a list, of one kind or ("") of all but those that are not shown.
function figures(name, only, sorted,	text, i, at, last) {
	for (i = 1; i <= n_rows[name]; i++) {
		if (kinds[name, i] == "INNER" || (only != "" && kinds[name, i] != only))
			continue
		if (!sorted)
			text = text ", " texts[name, i]
		else
			ordered[places[name, i]] = texts[name, i]
		last = places[name, i] > last ? places[name, i] : last
	}
	for (at = 0; sorted && at <= last; at++)
		if (at in ordered)
			text = text ", " ordered[at]
	split("", ordered)
	return substr(text, 3)
}

{
	while (match($0, /@figures [A-Za-z_ ]*@/)) {
		split(substr($0, RSTART + 1, RLENGTH - 2), words, " ")
		text = figures(words[2], words[3], words[4] != "")
		$0 = substr($0, 1, RSTART - 1) text substr($0, RSTART + RLENGTH)
		if (text == "") {
			print FILENAME ": no figures in " words[2] > "/dev/stderr"
			exit 1
		}
	}
	print
}
