#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks that the modules of the product form no circle. A module is X.c, X.h and X_private.h together. It depends on every
# module whose header it includes, and on every module that defines a function or variable which it uses (read from the
# objects). Prints each circle with the edges that close it.
#
# One object may be spread over several files that share one private header: the list below declares those, and each counts
# as one module. Run by make check; by hand: top_srcdir=. top_builddir=. tests/check-circles.sh
set -euo pipefail
src=${top_srcdir:-.} build=${top_builddir:-.}

# OBJECT: the modules it is spread over.
objects='
client/heap/arena: client/heap/arena_grow client/heap/arena_growth client/heap/arena_segment client/heap/arena_shrink
client/heap/arena: client/heap/arena_small client/heap/arena_range client/heap/arena_tcache
client/grant/session_lease: client/grant/lease_call
daemon/broker: daemon/broker_config daemon/broker_core daemon/broker_store
daemon/lease/session: daemon/lease/orphan daemon/lease/orphan_map daemon/lease/commit
daemon/lease/lease: daemon/lease/ref daemon/lease/orphan_work
daemon/device/limit: daemon/device/limit_check
daemon/queue/queue: daemon/queue/queue_request daemon/queue/queue_say
daemon/store/store: daemon/store/store_item daemon/store/store_link daemon/store/store_refs
keeper/keeper: keeper/keeper_refs keeper/keeper_service
daemon/net/peer: daemon/net/hub
'

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Lines "MODULE MODULE reason" for includes.
(cd "$src" && find common daemon client weights ctl exporter keeper preload run -name '*.[ch]' ! -name '*.pb-c.*' -print0 | xargs -0 grep -HoE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"(common|daemon|client|weights|ctl|exporter|keeper|preload|run)/[^"]*') |
	sed -E 's/^([^:]*)\.[ch]:.*"(.*)\.h$/\1 \2 include/; s/_private( |$)/\1/g' >"$work/edges"

# Lines "T SYMBOL MODULE" for what a module defines, "U SYMBOL MODULE" for what it uses. Libtool puts the name of the
# library before that of the object. An object whose source has moved elsewhere is left from an earlier make.
(cd "$build" && find common daemon client weights ctl exporter keeper preload run -name '*.o' -print0 | xargs -0 nm -A -g 2>/dev/null) |
	sed -nE 's#\.libs/##; s#^(.*/)([^/:]*[a-z]-)?([^/:-]*)\.o: *[0-9a-f]* ([A-Z]) ([^@]*).*#\4 \5 \1\3#p' | sort -u >"$work/all"
(cd "$src" && find common daemon client weights ctl exporter keeper preload run -name '*.c' | sed 's/\.c$//') >"$work/sources"
awk 'NR == FNR { there[$1]; next } $3 in there' "$work/sources" "$work/all" >"$work/symbols"
[ -s "$work/symbols" ] || { echo "1..1"; echo "not ok 1 - no objects: run make first"; exit 1; }
awk '$1 == "U" { uses[$3] = uses[$3] " " $2; next }
	$2 != "main" { home[$2] = $3 }
	END { for (m in uses) { n = split(uses[m], s, " ")
		for (i = 1; i <= n; i++) if (s[i] in home && home[s[i]] != m) print m, home[s[i]], s[i] } }' "$work/symbols" >>"$work/edges"

# Strongly connected components (Tarjan), one per line, then the edges inside each.
circles=$(OBJECTS=$objects awk '
	BEGIN {
		n = split(ENVIRON["OBJECTS"], row, "\n")
		for (i = 1; i <= n; i++)
			if (split(row[i], part, ":") == 2) { m = split(part[2], of, " "); for (j = 1; j <= m; j++) whole[of[j]] = part[1] }
	}
	function object(m) { return m in whole ? whole[m] : m }
	{
		a = object($1); b = object($2)
		if (a == b) next
		if (!((a, b) in reasons)) { next_of[a] = next_of[a] " " b; reasons[a, b] = $3; count[a, b] = 1 }
		else if (count[a, b]++ < 4) reasons[a, b] = reasons[a, b] ", " $3
		nodes[a]; nodes[b]
	}
	function visit(v,   i, n, of, w, members, size) {
		at[v] = low[v] = ++clock; stack[++top] = v; open[v] = 1
		n = split(next_of[v], of, " ")
		for (i = 1; i <= n; i++) {
			w = of[i]
			if (!(w in at)) { visit(w); if (low[w] < low[v]) low[v] = low[w] }
			else if (open[w] && at[w] < low[v]) low[v] = at[w]
		}
		if (low[v] != at[v]) return
		do { w = stack[top--]; open[w] = 0; circle[w] = v; members = members " " w; size++ } while (w != v)
		if (size > 1) { print "circle:" members; wanted[v] = 1 }
	}
	END {
		for (v in nodes) if (!(v in at)) visit(v)
		for (e in reasons) { split(e, ab, SUBSEP); if (circle[ab[1]] == circle[ab[2]] && circle[ab[1]] in wanted) print "  " ab[1] " -> " ab[2] " (" reasons[e] ")" | "sort" }
	}' "$work/edges")
if [ -z "$circles" ]; then
	echo "ok 1 - no module depends on itself"
else
	echo "not ok 1 - no module depends on itself"
	sed 's/^/#   /' <<<"$circles"
fi

# What is declared as one object must exist and share a private header.
problems=$(while IFS=: read -r object parts; do
	[ -n "$object" ] || continue
	[ -e "$src/${object}_private.h" ] || echo "$object has no ${object}_private.h"
	for part in $parts; do
		[ -e "$src/$part.c" ] || echo "$part.c does not exist"
		grep -q "\"${object}_private.h\"" "$src/$part.c" "$src/$part.h" 2>/dev/null || echo "$part does not include ${object}_private.h"
	done
done <<<"$objects")
if [ -z "$problems" ]; then
	echo "ok 2 - an object of several files shares one private header"
else
	echo "not ok 2 - an object of several files shares one private header"
	sed 's/^/#   /' <<<"$problems"
fi
echo "1..2"
