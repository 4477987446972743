#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# gpumemctl weights against a private daemon: what it loads outlives it, what it shows, and what it refuses.
# shellcheck disable=SC2016 # conditions of all() are expanded there
set -u
umask 022 # other users must be able to read what this makes
build=${top_builddir:-.} source=${top_srcdir:-.}
. "$source/tests/integration/functions.sh"
. "$source/tests/integration/ctl-functions.sh"

printf '[gpumemd]\nmin_free = 0\nhost_limit = 0\nreserve = 0\n[device 0]\nsize = 1G\n' >"$dir/gpumemd.conf"
start_daemon

# length N: 8 bytes, little-endian.
length() { printf '%016x' "$1" | sed 's/\(..\)/\1 /g' | awk '{ for (i = 8; i > 0; i--) printf "\\x%s", $i }' | { read -r text; printf '%b' "$text"; }; }
# model FILE HEADER BYTES: a safetensors file with so much data.
model() { { length ${#2}; printf '%s' "$2"; head -c "$3" /dev/urandom; } >"$1"; }
tensor() { printf '"%s":{"dtype":"U8","shape":[%d],"data_offsets":[%d,%d]}' "$1" "$3" "$2" $(($2 + $3)); }
model "$dir/one.safetensors" "{$(tensor a 0 1000),$(tensor b 1000 2000000)}" 2001000
mkdir "$dir/folder"
model "$dir/folder/1" "{$(tensor a 0 1000)}" 1000
model "$dir/folder/2" "{$(tensor b 0 1000),$(tensor c 1000 1)}" 1001
echo '{"weight_map":{"a":"1","b":"2","c":"2"}}' >"$dir/folder/model.safetensors.index.json"

run 0 weights
check "at first there are none" all "[ $status = 0 ]" "says 'There are no weights'" "silent stderr"
run 0 weights load "$dir/one.safetensors" --name llama
check "a file is loaded" all "[ $status = 0 ]" "says 'Loaded llama, version 1: 2 tensors, 1.9M on device 0.'" "silent stderr" fits
run 0 weights load "$dir/folder" --name shards --device 0 --json
check "and a folder with shards" all "[ $status = 0 ]" "is loaded shards" "is version 1" "is tensors 3" "is bytes 2001" "is device 0" "silent stderr"
run 0 weights list --json
check "they outlive the program that loaded them" all "[ $status = 0 ]" "is weights.# 2" "is weights.0.name llama" "is weights.0.bytes 2001000" \
	"is weights.0.tensors 2" "is weights.0.readers 0" "is weights.1.name shards" 'is weights.0.uid "$(id -u)"'
run 0 weights list --name 'sh*' --csv --no-header --columns name,tensors
check "and are chosen by their name" all "[ $status = 0 ]" '[ "$(cat "$dir/stdout")" = shards,3 ]'
run 0 weights
check "the table fits" all "[ $status = 0 ]" "says TENSORS" "says llama" fits
run 0 shares --csv --no-header --columns name,tag
check "among all shares, a tag tells that they are weights" all "says 'llama,\"weights: 2 tensors, 2001000 bytes\"'" \
	"says 'shards,\"weights: 3 tensors, 2001 bytes\"'"

run 1 weights load "$dir/one.safetensors" --name llama
check "a name that is taken is not replaced" all "[ $status = 1 ]" "complains 'already, version 1'" "complains -- --replace" "silent stdout"
run 0 weights load "$dir/one.safetensors" --name llama --replace
check "unless that is wanted" all "[ $status = 0 ]" "says 'Loaded llama, version 2'"

# ---- what is wrong

model "$dir/bad" "{$(tensor a 0 1000),$(tensor b 999 1001)}" 2000
run 1 weights load "$dir/bad" --name bad
check "a damaged file is refused with the place in it" all "[ $status = 1 ]" \
	"complains '$dir/bad, byte 67: tensor \"b\" overlaps with tensor \"a\"'" "silent stdout"
{ length 1; printf 'x'; } >"$dir/bad"
run 1 weights load "$dir/bad" --name bad
check "and so is one that is no model" all "[ $status = 1 ]" "complains 'this is probably not a safetensors file'"
mkfifo "$dir/pipe"
run 1 weights load "$dir/pipe" --name bad
check "a pipe is refused without waiting" all "[ $status = 1 ]" "complains 'is a pipe, a socket or a device'"
run 1 weights load "$dir/nowhere" --name bad
check "a file that is not there is named" all "[ $status = 1 ]" 'complains "$dir/nowhere"'
run 1 weights load "$dir/one.safetensors" --name bad --device 7
check "and so is a device that is not there" all "[ $status = 1 ]" "complains 7"
run 0 weights --json
check "nothing of this is published" is weights.# 2
run 2 weights load --name x
check "load needs a path" all "[ $status = 2 ]" "complains 'needs a safetensors file'"
run 2 weights load "$dir/one.safetensors"
check "load needs a name" all "[ $status = 2 ]" "complains -- '--name NAME'"
run 2 weights load "$dir/one.safetensors" --name a/b
check "the name must be one" all "[ $status = 2 ]" "complains -- \"--name 'a/b' must not have a\"" "silent stdout"
run 2 weights load a b --name x
check "load takes one path" all "[ $status = 2 ]" "complains 'too many'"
run 2 weights load "$dir/one.safetensors" --name x --user root
check "load takes no options of the list" all "[ $status = 2 ]" "complains -- '--replace only'" "silent stdout"
run 2 weights list --replace
check "list takes no options of load" all "[ $status = 2 ]" "complains -- --replace"
run 2 weights lod
check "a misspelt word is corrected" all "[ $status = 2 ]" "complains load"
run 2 weights remove
check "remove needs a name" all "[ $status = 2 ]" "complains 'needs a name'"
run 1 weights remove nobody
check "remove says what is not there" all "[ $status = 1 ]" "complains 'there are no weights with the name nobody'"

# ---- the bar

script -qec "'$gpumemctl' weights load '$dir/one.safetensors' --name bar" "$dir/typescript" </dev/null >/dev/null 2>&1
check "a terminal shows a bar" all "grep -q '\[#*\] 100%  1.9M of 1.9M' '$dir/typescript'" "grep -q 'Loaded bar, version 1' '$dir/typescript'" \
	"! tr '\r' '\n' <'$dir/typescript' | awk '/%/ && length > 90 { bad = 1 } END { exit !bad }'"
run 0 weights remove bar

model "$dir/small.safetensors" "{$(tensor a 0 1000)}" 1000
run 0 weights load "$dir/small.safetensors" --name small
check "one tensor is one tensor" all "[ $status = 0 ]" "says 'version 1: 1 tensor, '"
run 2 weights remove uid:no-such-user/small
check "a user that is not there is named" all "[ $status = 2 ]" "complains \"there is no user 'no-such-user'\""
run 1 weights remove "uid:$(id -un)/none"
check "and keeps its name in what is refused" all "[ $status = 1 ]" "complains 'there are no weights with the name uid:$(id -un)/none;'"
run 0 weights remove "uid:$(id -un)/small"
check "the owner of a name can be given by the name of the user" all "[ $status = 0 ]" "says 'Removed uid:$(id -un)/small'"

for name in llama shards; do
	run 0 weights remove "$name"
	check "$name is removed" all "[ $status = 0 ]" "says 'Removed $name'"
done
# ---- for others

run 0 weights load "$dir/small.safetensors" --name lent --uid 54322 --expires 1h --json
check "weights can be for another user, for a time" all "[ $status = 0 ]" "is audience uid:54322" "is left_ms 3600000"
run 0 shares --csv --no-header --columns name,audience,mode
check "and shares shows for whom" says "lent,uid:54322,read"
run 0 weights load "$dir/small.safetensors" --name lent --replace --gid "$(id -gn)" --expires 90s
check "or for a group, by its name" all "[ $status = 0 ]" "says 'It is for gid:$(id -gn).'" "says 'The name ends in 1min 30s.'"
run 0 shares --json
check "and the new version has a time of its own" all 'is shares.0.audience "gid:$(id -g)"' '[ "$(value shares.0.left_ms)" -le 90000 ]'
run 2 weights load "$dir/small.safetensors" --name x --uid 1 --gid 1
check "but not for both" all "[ $status = 2 ]" "complains -- '--uid and --gid exclude each other'"
run 2 weights load "$dir/small.safetensors" --name x --uid no-such-user
check "a user that is not there is refused" all "[ $status = 2 ]" "complains \"there is no such user\""
run 2 weights load "$dir/small.safetensors" --name x --gid no-such-group
check "and so is a group" all "[ $status = 2 ]" "complains \"there is no such group\""
run 2 weights load "$dir/small.safetensors" --name x --expires 0
check "and a time that is none" all "[ $status = 2 ]" "complains \"--expires '0' is too short a time\""
run 2 weights list --uid 1
check "list takes none of these" all "[ $status = 2 ]" "complains \"are for 'weights load'\""
run 0 weights remove lent
if has_users; then
	chmod 755 "$dir"
	run 0 weights load "$dir/small.safetensors" --name lent --uid 54322
	setpriv --reuid 54322 --regid 54322 --clear-groups "$gpumemctl" weights --csv --no-header --columns name >"$dir/stranger" 2>&1
	check "that user sees them" grep -qx lent "$dir/stranger"
	setpriv --reuid 54321 --regid 54321 --clear-groups "$gpumemctl" weights --csv --no-header --columns name >"$dir/stranger" 2>&1
	check "and others do not" [ ! -s "$dir/stranger" ]
	run 0 weights remove lent
	setpriv --reuid 54321 --regid 54321 --clear-groups "$gpumemctl" weights load "$dir/one.safetensors" --name theirs >"$dir/theirs" 2>&1
	setpriv --reuid 54322 --regid 54322 --clear-groups "$gpumemctl" weights remove uid:54321/theirs >"$dir/stranger" 2>&1
	check "nobody else removes a user's weights" grep -q 'there are no weights' "$dir/stranger"
	run 1 weights remove theirs
	check "remove names the user whose weights may be meant" all "[ $status = 1 ]" \
		"complains 'you have no weights with the name theirs; for that of user 54321, write uid:54321/theirs'"
	run 0 weights remove uid:54321/theirs
	check "an administrator does" all "[ $status = 0 ]" "says 'Removed uid:54321/theirs'"
fi
run 0 weights --json
check "nothing is left" is weights.# 0
echo "1..$n"
