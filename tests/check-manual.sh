#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks that the manual pages explain each public function, structure, constant and status of the library and each option of
# the daemon, that every function can be looked up by its name, and that the pages render without warnings.
set -u
: "${top_srcdir:?}" "${top_builddir:?}"
man=$top_srcdir/man daemon=$top_srcdir/man/gpumemd.8.scd
headers=$top_srcdir/include/gpumem
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0 n=0

report() { # NAME COMPLAINT
	n=$((n + 1))
	if [ -z "$2" ]; then
		echo "ok $n - $1"
	else
		failed=1
		echo "not ok $n - $1"
		echo "$2" | sed 's/^/# /'
	fi
}

# ---- the library: what the headers declare, without the comments

cat "$headers"/*.h | sed -z 's,/\*[^*]*\*\+\([^/*][^*]*\*\+\)*/,,g' >"$work/code"
# A name that ends in an underscore is a header's own.
functions=$(grep -o '\bgpumem_[a-z_]*(' "$work/code" | tr -d '(' | grep -v '_$' | sort -u)
constants=$(grep -ohE '^(#define )?\s*GPUMEM_[A-Z_]+\b' "$work/code" | grep -o 'GPUMEM_.*' |
	grep -vE '^GPUMEM_(([A-Z_]+_)?H|API|STATUS_MAP|STATUS_ENUM)$|_$' | sort -u)
# STRUCT MEMBER, one line each.
awk '/^typedef struct [a-z_]+ \{/ { name = $3 }
	/^}/ { name = "" }
	name && /;/ { sub(/(\[.*\])?;.*/, ""); sub(/.*[ *\t]/, ""); print name, $0 }' "$work/code" | sort >"$work/members"
# The members that a page explains: the terms of the section of their structure.
awk '/^#/ { name = "" }
	/^## struct / { name = $3 }
	name && /^_[a-z_]+_$/ { print name, substr($0, 2, length - 2) }' "$man"/*.3.scd | sort >"$work/explained"

complaint=$(for f in $functions; do
	pages=$(grep -lE "^[a-z][a-z_0-9 ]*[ *]$f\(" "$man"/*.3.scd)
	case $(wc -l <<<"$pages"):$pages in
	1:?*) sed -n '/^# NAME/,/^# SYNOPSIS/p' "$pages" | grep -qE "\b$f\b|^libgpumem-client - " || echo "$f is not in the NAME of $pages" ;;
	*) echo "$f has its prototype in one page, but not in: $pages" ;;
	esac
done)
[ -n "$functions" ] || complaint="no function was found in the headers"
report every_public_function_has_its_prototype_in_one_page "$complaint"

# A declaration that differs from the header's is an error. The macros are those of the header.
{
	for header in "$headers"/*.h; do echo "#include <gpumem/${header##*/}>"; done
	for page in "$man"/*.3.scd; do
		sed -n '/^# SYNOPSIS/,/^# DESCRIPTION/p' "$page" | sed -n '/^```/,/^```/p' | grep -vE '^(```|#define|GPUMEM_AUTO_)'
	done
} >"$work/prototypes.c"
complaint=$(${CC:-cc} -std=gnu11 -Wall -Wno-unused-function -Werror -fsyntax-only -I"$top_srcdir/include" "$work/prototypes.c" 2>&1)
report the_prototypes_are_those_of_the_header "$complaint"

complaint=$(diff "$work/members" "$work/explained" | sed -n -e 's/^< \(.*\) \(.*\)/\1: \2 is not explained/p' \
	-e 's/^> \(.*\) \(.*\)/\1: \2 is explained but not there/p')
[ -s "$work/members" ] || complaint="no structure was found in the headers"
report every_member_of_every_public_structure_is_explained "$complaint"

complaint=$(awk -v FS='[ \t]' '/^\.SS struct / { name = $3 } /^\.S[HS] / && !/^\.SS struct / { name = "" }
	name && /^\\fI[a-z_]+\\fR(\\&)?$/ { print FILENAME ": " name ": no type: " $0 }' "$top_builddir"/man/*.3)
grep -q '^uint32_t \*\\fIcancel\\fR' "$top_builddir/man/gpumem_copy_in.3" || complaint="$complaint
gpumem_copy_in(3): the type of cancel is missing"
report every_member_is_shown_with_its_type "$complaint"

complaint=$(for c in $constants; do grep -qE "\b$c\b" "$man"/*.3.scd || echo "$c is not explained"; done)
[ -n "$constants" ] || complaint="no constant was found in the headers"
report every_public_constant_is_explained "$complaint"

statuses=$(sed -n 's/^\tX(\(GPUMEM_[A-Z_]*\), \([0-9]*\),.*/\1 \2/p' "$headers/status.h")
complaint=$(echo "$statuses" | while read -r name value; do
	grep -q "^\*$name\* ($value)\$" "$man/libgpumem-client.3.scd" || echo "$name ($value) is not listed"
done)
[ -n "$statuses" ] || complaint="no status was found in status.h"
report every_status_is_listed_with_its_value "$complaint"

# ---- the daemon

options=$("$top_builddir/daemon/gpumemd" --help | grep -o -- '--[a-z-]*' | sort -u)
complaint=$(for o in $options; do grep -qE -- "^(\*-.\*, )?\*$o\*" "$daemon" || echo "$o is not explained"; done
	for o in $(grep -E -- '^(\*-.\*, )?\*--' "$daemon" | grep -o -- '--[a-z-]*'); do
		echo "$options" | grep -qx -- "$o" || echo "$o is explained but not there"
	done)
[ -n "$options" ] || complaint="gpumemd --help shows no option"
report every_option_of_the_daemon_is_explained "$complaint"

# ---- the pages as they are installed

mkdir "$work/man3" && cp "$top_builddir"/man/*.3 "$work/man3"
complaint=$(for f in $functions; do
	[ -s "$work/man3/$f.3" ] || { echo "there is no page $f(3)"; continue; }
	page=$(sed -n 's,^\.so ,,p' "$work/man3/$f.3")
	grep -q "$f" "$work/${page:-man3/$f.3}" || echo "$f(3) leads to ${page:-itself}, which does not name it"
done)
report every_function_has_a_page_of_its_name "$complaint"

complaint=$(sed -nE 's/^\s*X\(.[a-zA-Z].,\s*"([a-z-]+)".*/\1/p' "$top_srcdir/run/run_options.c" | while read -r option; do
	grep -qE "^\*--$option\*|, \*--$option\*$" "$man/gpumem-run.1.scd" || echo "--$option"
	grep -qE "local options=.*--$option\b" "$top_srcdir/ctl/completion/gpumem-run" || echo "--$option is not completed"
done)
[ "$(grep -cE '^\s*X\(' "$top_srcdir/run/run_options.c")" -ge 10 ] || complaint="the options were not found"
report every_option_of_gpumem_run_is_explained_and_completed "$complaint"

docdir=$(printf 'include Makefile\nprint:\n\t@echo $(docdir)\n' | make -s --no-print-directory -C "$top_builddir" -f - print)
complaint=$(grep -l '@[a-z]*dir@' "$top_builddir"/man/*.[1-8] | sed 's/$/: a folder has no name/'
	for page in $(cd "$man" && grep -l '@docdir@' *.scd); do
		sed 's/\\&//g' "$top_builddir/man/${page%.scd}" | grep -qF "$docdir/" || echo "${page%.scd}: does not name $docdir"
	done
	grep -ohE '\*[a-z_.-]+\*\([1358]\)' "$man"/*.scd | sort -u | tr -d '*' | grep gpumem | while IFS='()' read -r name section; do
		[ -e "$top_builddir/man/$name.$section" ] || echo "$name($section) is named and does not exist"
	done)
report pages_refer_to_pages_that_exist "$complaint"

complaint=$(grep -nE '(^|[^\\])\\$' "$man"/*.scd | sed 's/$/   (the page does not show this backslash: write two)/')
report commands_of_several_lines_can_be_copied "$complaint"

if command -v groff >/dev/null; then
	pages=$(realpath "$top_builddir")/man
	# The pages name folders. A folder that does not fit a line is not the page's fault, and a line with one may be too long.
	prefix=$(sed -n 's,^prefix = ,,p' "$top_builddir/Makefile")
	# A screen has no pages, which a table must fit.
	echo '.pl 20000' >"$work/screen"
	complaint=$(cd "$work" && for page in "$pages"/*.[1-8]; do
		LC_ALL=C groff -man -t -Tascii -ww -rLL=78n screen "$page" 2>&1 >"$work/text" | while IFS= read -r warning; do
			read -r file line < <(sed -n 's/^troff: \(.*\):\([0-9]*\): warning.*break line$/\1 \2/p' <<<"$warning")
			[ -n "$line" ] && sed -n "${line}s/\\\\&//gp" "$file" | grep -qF "$prefix/" || echo "$warning"
		done
		[ "$(wc -l <"$work/text")" -ge 20 ] || echo "$page: renders to nearly nothing"
		# Names are not hyphenated, nor broken at hyphens of their own. Prototypes and examples are not broken, so they must fit.
		# A blank line follows a table.
		sed -e 's/\x1b\[[0-9;]*m//g' -e 's/.\x08//g' "$work/text" | awk -v page="$page" -v prefix="$prefix/" '
			/[(]/ && !header { header = 1; if (!/^[^ ]+[)] .* [^ ]+[)]$/) print page ": the header has no room: " $0 }
			/[a-z]_[a-z_]*-$/ { print page ": a name is hyphenated: " $0 }
			/[ (](--[a-z-]+|gpumem)-$/ { print page ": a name is broken: " $0 }
			border && /^ *[^ |+]/ { print page ": a table touches the text below it: " $0 }
			{ border = /^ *[+][-+]+$/ }
			length > 80 && !index($0, prefix) { print page ": too wide: " $0 }'
	done)
	report every_page_renders_in_the_C_locale_without_warnings "$complaint"
else
	n=$((n + 1))
	echo "ok $n - every_page_renders_in_the_C_locale_without_warnings # SKIP groff is not installed"
fi

echo "1..$n"
exit "$failed"
