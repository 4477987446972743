#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compares doc/compat.md, the table of what becomes of each call of the driver under gpumem-run, with the calls that
# libgpumem-preload.so stands in for. Where the CUDA Toolkit is installed, compares both with its headers.
set -euo pipefail
src=${top_srcdir:-.} cuda=${CUDA_HOME:-/usr/local/cuda}/include
. "$src/tests/report.sh"

# "CALL WORD" for each call in the page.
page=$(sed -nE 's/^\| (`cu[^|]*) \| ([a-z]+) \| .*/\2 \1/p' "$src/doc/compat.md" |
	awk '{ word = $1; $1 = ""; gsub(/[`,]/, ""); n = split($0, call, " "); for (i = 1; i <= n; i++) print call[i], word }' | sort)
listed=$(cut -d' ' -f1 <<<"$page")
# "SYMBOL NAME VERSION FLAGS PARAMETERS" for each row of the library's table. Types do not matter here, only commas.
rows=$(printf '#include "preload/driver/preload_calls.h"\n#define ROW(symbol, name, version, flags, parameters) @row symbol name version flags parameters\nGM_PRELOAD_CALLS(ROW)\n' |
	${CC:-cc} -I"$src" -E -P - | tr '\n' ' ' | sed 's/@row/\n@row/g' | sed -nE 's/^@row ([A-Za-z0-9_]+) "([A-Za-z0-9]+)" ([0-9]+) ([0-9]+) (\(.*\)).*/\1 \2 \3 \4 \5/p')
taken=$(awk '{ print $2 }' <<<"$rows" | sort -u)

report "$(uniq -d <<<"$listed")" "each call is in doc/compat.md once"
report "$(comm -23 <(echo "$taken") <(echo "$listed"))" "doc/compat.md has each call that the library stands in for"
report "$(awk '$2 != "passed" { print $1 }' <<<"$page" | comm -3 - <(echo "$taken"))" \
	"what doc/compat.md says is not passed, the library stands in for, and nothing else"
report "$(awk '$2 !~ /^(brokered|charged|answered|watched|counted|passed)$/' <<<"$page")" "doc/compat.md uses the words that it explains"

if [ -f "$cuda/cuda.h" ] && [ -f "$cuda/cudaTypedefs.h" ]; then
	# Some have the name of another one in the header.
	all=$({ grep -ohE '\bcu[A-Z][A-Za-z0-9]*\(' "$cuda/cuda.h" | tr -d '('; sed -nE 's/^#define cu[A-Za-z0-9]+ +(cu[A-Z][A-Za-z0-9]*)$/\1/p' "$cuda/cuda.h"; } | sort -u)
	memory=$(grep -E '^cu(Mem|Array|MipmappedArray|Ipc|Pointer|ImportExternalMemory|ExternalMemory|DestroyExternalMemory|GraphAddMem|GraphMem|DeviceGraphMem|Multicast|GetProc|GetExport|CtxCreate|CtxDestroy|ModuleGetGlobal|LibraryGet(Global|Managed)|StreamBeginCapture|StreamEndCapture)|^cuDevice.*Mem|^cuDevicePrimaryCtx(Retain|Release|Reset)|PeerAccess$' <<<"$all" |
		grep -vE '^cu(Memcpy|Memset|MemBatchDecompress|Graph(Add)?Mem(cpy|set))|CanAccessPeer')
	report "$(comm -23 <(echo "$memory") <(echo "$listed"))" "doc/compat.md has each call of cuda.h that is about memory"
	report "$(comm -13 <(echo "$all") <(echo "$listed"))" "each call of doc/compat.md is in cuda.h"
	# The header's types have the name and the version, and _ptsz for the thread's own default stream.
	report "$(while read -r symbol name version flags parameters; do
		type=PFN_${name}_v$version
		[ "$flags" = 0 ] || type=${type}_ptsz
		theirs=$(grep -hE "\*$type\)" "$cuda/cudaTypedefs.h" | head -n 1 | sed 's/.*)(//' | tr -cd , | wc -c)
		ours=$(tr -cd , <<<"$parameters" | wc -c)
		grep -qE "\*$type\)" "$cuda/cudaTypedefs.h" || echo "$symbol: there is no $type"
		[ "$theirs" = "$ours" ] || echo "$symbol: $((ours + 1)) parameters, and $type has $((theirs + 1))"
	done <<<"$rows")" "each row of preload_calls.h is a type of cudaTypedefs.h, with as many parameters"
fi
report "$([ "$(wc -l <<<"$rows")" -gt 30 ] && [ "$(wc -l <<<"$page")" -gt 80 ] || echo "only $(wc -l <<<"$rows") rows and $(wc -l <<<"$page") calls were found")" \
	"this script still finds the rows and the calls"
echo "1..$tests"
