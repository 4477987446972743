# SPDX-License-Identifier: Apache-2.0
# Writes a manual page with the C types of the members of structures: awk -f types.awk HEADER... PAGE. In a section
# "## struct NAME", the term "_member_" becomes "type _member_", as the header declares it.

# ---- the headers

FILENAME ~ /\.h$/ {
	# Without comments, which may go over several lines.
	line = ""
	for (rest = $0; rest != "";) {
		at = index(rest, comment ? "*/" : "/*")
		if (!comment)
			line = line (at ? substr(rest, 1, at - 1) : rest)
		rest = at ? substr(rest, at + 2) : ""
		if (at)
			comment = !comment
	}
	if (line ~ /^typedef struct [a-z_]+ \{/) {
		split(line, words, " ")
		name = words[3]
		declaration = ""
	} else if (line ~ /^}/) {
		name = ""
	} else if (name != "") {
		# It may go over several lines, too.
		gsub(/[ \t]+/, " ", line)
		sub(/^ /, "", line)
		declaration = declaration (declaration == "" || line == "" ? "" : " ") line
		if (declaration !~ /;/)
			next
		line = declaration
		declaration = ""
		sub(/;.*/, "", line)
		array = ""
		if (match(line, /\[.*\]$/)) {
			array = substr(line, RSTART)
			line = substr(line, 1, RSTART - 1)
		}
		match(line, /[a-z_0-9]+$/)
		member = substr(line, RSTART)
		before[name, member] = substr(line, 1, RSTART - 1)
		after[name, member] = array
	}
	next
}

# ---- the page

/^#/ { section = "" }
/^## struct / { section = $3 }
/^_[a-z_]+_$/ && section != "" {
	member = substr($0, 2, length($0) - 2)
	type = before[section, member]
	gsub(/\*/, "\\*", type)
	print type $0 after[section, member]
	next
}
{ print }
