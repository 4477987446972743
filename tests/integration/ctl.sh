#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# gpumemctl against a private daemon with real workers: every verb as a table and as JSON, its exit status, and what root, an
# administrator and an ordinary user may see and do.
# shellcheck disable=SC2016 # conditions of all() are expanded there
set -u
umask 022 # other users must be able to read what this makes
build=${top_builddir:-.} source=${top_srcdir:-.}
size=67108864
. "$source/tests/integration/functions.sh"
. "$source/tests/integration/ctl-functions.sh"

cat >"$dir/gpumemd.conf" <<EOF
[gpumemd]
min_free = 64M
host_limit = 0
reserve = 0
track = all
admin_group = games
[device 0]
size = 1G
EOF

# ---- no daemon

run 3 status
check "without a daemon the exit status is 3" [ $status = 3 ]
check "and the message names the socket and a remedy" all 'complains "$GPUMEM_SOCKET"' "complains gpumemd" "silent stdout"
run 3 --json clients
check "for programs too, with nothing on stdout" all "[ $status = 3 ]" "silent stdout"
check "version answers without a daemon" run 0 version
run 0 config check "$dir/gpumemd.conf"
check "config check needs none" all "[ $status = 0 ]" 'says "$dir/gpumemd.conf"'
printf '[gpumemd]\nfraction = 0.9\nfractoin = 2\nmin_free = much\n' >"$dir/bad.conf"
run 1 config check "$dir/bad.conf"
check "config check names file, line and key of every mistake" \
	all "[ $status = 1 ]" 'complains "$dir/bad.conf:3:"' 'complains "$dir/bad.conf:4:"' "complains fractoin" "silent stdout"
run 1 config check "$dir/bad.conf" --json
check "and tells programs" all "[ $status = 1 ]" "is ok false" "is errors.# 2" "silent stderr" \
	"value errors.0.text | grep -q bad.conf:3:" "is files.0.text $dir/bad.conf"
run 1 config check "$dir/bad.conf" --csv
check "whose tables have two headings" all "says file" "says error" '[ "$(head -n 1 "$dir/stdout")" = file ]' \
	'[ "$(sed -n 4p "$dir/stdout")" = error ]'
cat >"$dir/strict.conf" <<EOF
[gpumemd]
backend = host
min_free = 0
fraction = 7
socket = $dir/nowhere/socket
socket_group = no-such-group
admin_group = nor-this-one
pressure_medium = 0.9
pressure_high = 0.8
[device 0]
size = 1G
[limit uid:no-such-user]
max = 1G
[limit uid:0]
guarantee = 2T
[device 3 limit uid:0]
max = 1G
EOF
mkdir "$dir/strict.conf.d"
printf '[gpumemd]\ntrust = nobody\n' >"$dir/strict.conf.d/10-a.conf"
printf '[gpumemd]\ntrack = all\n' >"$dir/strict.conf.d/20-b.conf"
run 1 config check "$dir/strict.conf"
missed=
for mistake in ":4: fraction: " ":5: socket: there is no folder $dir/nowhere;" ":6: socket_group: there is no group " \
	":7: admin_group: there is no group " ":9: pressure_high: the levels are out of order" \
	":12: [limit uid:no-such-user]: there is no user " ".d/10-a.conf:2: trust: "; do
	complains "$dir/strict.conf$mistake" || missed="$missed $mistake"
done
check "all mistakes in all files are reported in one go" [ "$status$missed" = 1 ]
check "and the files are named with their number of mistakes" all "complains 'strict.conf.d/20-b.conf: ' && complains 'strict.conf.d/10-a.conf: 1 mistake'"
grep -Ev ': ([0-9]+ mistakes?|no mistakes)$' "$dir/stderr" >"$dir/mistakes"
"$gpumemd" --config "$dir/strict.conf" 2>"$dir/stderr"
status=$?
check "the daemon refuses to start with the same words" all "[ $status = 78 ]" 'cmp -s "$dir/mistakes" "$dir/stderr"'
sed -i '/^fraction/d; /_group/d; /^socket/d; /^pressure/d; /^\[limit uid:no/,+1d' "$dir/strict.conf"
rm "$dir/strict.conf.d/10-a.conf"
run 1 config check "$dir/strict.conf"
check "limits are held against the devices of host memory" all "[ $status = 1 ]" \
	'complains "strict.conf:7: guarantee: with 2.0T for uid:0"' 'complains "strict.conf:8: [device 3 limit uid:0]: there is no device 3"'
printf '[gpumemd]\nbackend = host\nhost_limit = 0\n[limit uid:0]\nguarantee = 60T\n' >"$dir/machine.conf"
run 1 config check "$dir/machine.conf"
check "config check holds guarantees against the memory of this machine" all "[ $status = 1 ]" \
	'complains "machine.conf:5: guarantee: with 60.0T for uid:0, guarantees on device 0 (host memory 0) go beyond its capacity of "'
grep -Ev ': ([0-9]+ mistakes?|no mistakes)$' "$dir/stderr" >"$dir/mistakes"
"$gpumemd" --check-config --config "$dir/machine.conf" 2>"$dir/stderr"
status=$?
check "gpumemd --check-config does the same, with the same words" all "[ $status = 1 ]" 'cmp -s "$dir/mistakes" "$dir/stderr"'
printf '[gpumemd]\nbackend = host\nhost_limit = 0\n[device 0]\nsize = 60T\n' >"$dir/machine.conf"
run 0 config check "$dir/machine.conf"
check "config check warns of a size that this machine does not have" all "[ $status = 0 ]" \
	'says "machine.conf:5: size: 60.0T are more than the "' 'says "machine.conf: no mistakes"'
run 0 config check "$dir/machine.conf" --json
check "for programs too" all "[ $status = 0 ]" "is ok true" "is errors.# 0" "is warnings.# 1" "is warnings.0.kind config"
"$gpumemd" --check-config --config "$dir/machine.conf" >"$dir/stdout" 2>"$dir/stderr"
status=$?
check "and so does --check-config" all "[ $status = 0 ]" 'says "machine.conf: no mistakes"' 'complains "machine.conf:5: size: 60.0T are more than the "'
printf '[gpumemd]\nbackend = host\nhost_limit = 0\nmin_free = 50T\ntrust = nobody\n[limit uid:0]\nmax = 60T\n' >"$dir/machine.conf"
run 1 config check "$dir/machine.conf"
check "warnings about the devices stand beside mistakes" all "[ $status = 1 ]" 'complains "machine.conf:5: trust: "' \
	'complains "machine.conf:4: min_free: 50T leaves nothing to give"' 'says "machine.conf:7: max: 60.0T for uid:0 is more than any"'
"$gpumemd" --check-config --config "$dir/machine.conf" 2>"$dir/stderr"
status=$?
check "and with --check-config, too" all "[ $status = 1 ]" 'complains "machine.conf:5: trust: "' 'complains "machine.conf:4: min_free: "' \
	'complains "machine.conf:7: max: "'
printf '[gpumemd]\nbackend = host\nhost_limit = 0\nmin_free = 50T\n' >"$dir/machine.conf"
run 1 config check "$dir/machine.conf"
grep -Ev ': ([0-9]+ mistakes?|no mistakes)$' "$dir/stderr" >"$dir/mistakes"
timeout 60 "$gpumemd" --config "$dir/machine.conf" --socket "$dir/small" 2>"$dir/stderr"
check "a start refuses a min_free that leaves nothing as config check does, in the same words" all "[ $? = 78 ]" \
	'complains "machine.conf:4: min_free: 50T leaves nothing to give out on device 0 (host memory 0), which has "' \
	'complains "$(sed "s/^.*error: //" "$dir/mistakes")"'
printf '[gpumemd]\nbackend = cuda\n[limit uid:0]\nguarantee = 1G\n' >"$dir/machine.conf"
LD_LIBRARY_PATH='' run 1 config check "$dir/machine.conf" --json
check "a backend without a device is a mistake: the daemon does not start with it" all "[ $status = 1 ]" "is ok false" \
	"value errors.0.text | grep -q 'machine.conf:2: backend: cuda has no device here: no NVIDIA driver'" "is warnings.# 0"
printf '[gpumemd]\nbackend = host\nhost_limit = 0\nmin_free = 0\nreserve = 0\nfraction = 0.0001\n[device 0]\nsize = 4G\n' >"$dir/machine.conf"
mkdir "$dir/machine.conf.d" && touch "$dir/machine.conf.d/10-a.cnf" "$dir/machine.conf.d/.20-b.conf" "$dir/machine.conf.d/README"
echo 'fractoin = 1' >"$dir/machine.conf.d/"$'30\r\n.conf'
run 1 config check "$dir/machine.conf"
tr -s '\n ' ' ' <"$dir/stdout" >"$dir/unfolded" && mv "$dir/unfolded" "$dir/stdout"
check "config check refuses a fraction that leaves nothing" \
	complains "machine.conf:6: fraction: 0.0001 leaves nothing to give out on device 0 (host memory 0), which has 4.0G"
check "and of files that are not read" all "says 'machine.conf.d/10-a.cnf: not read: its name does not end in .conf'" \
	"says 'machine.conf.d/.20-b.conf: not read: its name begins with a dot'" "! says README" "! complains README"
check "and shows no control characters of the name of a file" complains 'machine.conf.d/30??.conf:1: fractoin: '
"$gpumemd" --check-config --config "$dir/machine.conf" 2>"$dir/stderr"
check "nor does --check-config" all "complains 'machine.conf.d/30??.conf:1: fractoin: '" "complains '10-a.cnf: not read: '"
"$gpumemd" --config "$dir/machine.conf" 2>"$dir/stderr"
check "nor the daemon" complains 'machine.conf.d/30??.conf:1: fractoin: '
rm -r "$dir/machine.conf.d"
mkdir -p "$dir/subuids/etc" && echo 'ann:x:1000:1000::/:/bin/sh' >"$dir/subuids/etc/passwd" && echo 'ann:100000:65536' >"$dir/subuids/etc/subuid"
printf '[gpumemd]\nbackend = host\n[limit uid:100007]\nmax = 1G\n' >"$dir/machine.conf"
GPUMEM_TEST_ROOT=$dir/subuids run 0 config check "$dir/machine.conf"
tr -s '\n ' ' ' <"$dir/stdout" >"$dir/unfolded" && mv "$dir/unfolded" "$dir/stdout"
check "config check warns of a limit of a subordinate uid" \
	says "machine.conf:4: the limit of uid:100007 has no effect: it is a subordinate uid of user ann, whose limits hold for it; limit uid:1000"
printf '[gpumemd]\n' >"$dir/strict.conf"
run 0 config check "$dir/strict.conf"
check "all files without mistakes are named" \
	all 'says "$dir/strict.conf: no mistakes"' 'says "$dir/strict.conf.d/20-b.conf: no mistakes"'
run 0 config check "$dir/strict.conf" --json
check "for programs too" all "is file $dir/strict.conf" "is files.# 2" "is files.1.text $dir/strict.conf.d/20-b.conf" "is errors.# 0"
default=$dir/xdg/gpumemd/gpumemd.conf
if [ "$(id -u)" -lt 1000 ]; then
	default=/etc/gpumemd/gpumemd.conf
else
	mkdir -p "$dir/xdg/gpumemd"
	printf '[gpumemd]\n' >"$default"
fi
XDG_CONFIG_HOME=$dir/xdg "$gpumemctl" config check >"$dir/stdout" 2>&1
check "without a file's name it reads and names what this user's daemon would read" says "$default: "

run 1 config check "$dir/missing.conf"
check "a file that is named must exist" all "[ $status = 1 ]" "complains missing.conf"
check "and nothing else is said about it" silent stdout
run 1 config check "$dir"
check "a folder is no file" all "[ $status = 1 ]" "complains 'cannot be read: Is a directory'" "silent stdout"
for words in stauts "status now" --jsn "trim --device x" "buffers --older-than soon" "config frob" config "help nonsense" "help shares nonsense" "help status status" "help nonsense nonsense" \
	"limit frob" "limit set uid:0" "limit set uid:0 max" "limit set uid:0 max=much" "limit set uid:no-such-user max=1G" \
	"limit set uid:0 priority=1001" "limit show uid:0" "limit reset a b" "pressure --at-least much" "cleanup --need x" \
	"clients --sort mood" "clients --columns held,held" "clients --user no-such-user" "clients --json --csv" "watch --csv" \
	"queue --sort pid" "shares frob" "shares remove" "shares remove a/b" "shares remove uid:no-such-user/x" "shares remove x --device 0" "shares remove x y" "shares expire" "shares expire x" "shares expire x soon" "shares expire x 0s" "shares expire a/b 1h" "shares expire x 1h --device 0" kill "kill a b" "kill a --signal NONE" "kill a --signal 0" "stop now" "trim --forget" place "place much" "place 0" "place 20" "cleanup --need 20" "limit set uid:0 max=20" "limit set uid:0 guarantee=8192" "place 1G 2G" "place 1G --quiet --json" "trim --may-wait" "trim --hidden 7" estimate "estimate --hidden 0" "estimate --hidden x" "estimate --dtype float7" "estimate --dtype nan" "estimate --kv-bytes 17" "place -1G" "shares expire x -5s" "estimate a b" evict "evict x/1" "evict 1 2" restore "restore 1/0" drain "drain x" "drain 0 1" "drain 0 --wait soon" "drain 0 --undo --wait 1s" "trim --undo" "status --color=blue" "queue --need 1G" "status --dry-run" "watch --at-least low"; do
	# shellcheck disable=SC2086 # the words are meant to be split
	run 2 $words
	check "wrong use ends with 2: $words" all "[ $status = 2 ]" "silent stdout" "complains gpumemctl:"
done
run 0 help --json
verbs=$(for ((i = 0; i < $(value 'verbs.#'); i++)); do value verbs.$i.name; done)
for verb in $verbs; do
	run 0 "$verb" --help
	check "$verb --help helps without a daemon" all "[ $status = 0 ]" "says gpumemctl" fits
done

# shellcheck source=ctl/completion/gpumemctl
. "$source/ctl/completion/gpumemctl"
# complete_is WORD...: prints what completion offers after these words.
complete_is() {
	COMP_WORDS=(gpumemctl "$@")
	COMP_CWORD=$#
	COMPREPLY=()
	_gpumemctl
	[ "${COMPREPLY[*]}" = "$offered" ]
}
offered=${verbs//$'\n'/ }
check "completion knows every verb" complete_is ""
check "help on a word after a verb is the help of the verb" all "run 0 help shares expire" "says 'expire NAME TIME'" "run 0 help config show" "says 'gpumemctl config'"
"$gpumemctl" help >"$dir/stdout"
in_columns() {
	sed '/^Verbs:/,/^$/!d; /^  /!d' "$dir/stdout" | awk '
		substr($0, 30, 2) ~ /[^ ] $|  $/ && substr($0, 32, 1) != " " { good++ } END { exit good != NR || !NR }'
}
check "help has verbs and what they are for in columns" in_columns
offered=$(sed -n '/^Options/,$s/^ .*\(--[a-z-]*\).*  .*/\1/p' "$dir/stdout" | tr '\n' ' ')
offered=${offered% }
check "completion knows every option" complete_is status --
offered='--older-than'
check "and those of one verb" complete_is --socket x buffers --o
offered='show'
check "and what follows config" complete_is config s
offered='container: client:'
check "and kinds of owners" complete_is limit set c
# The completion asks it for the values.
gpumemctl() { "$gpumemctl" "$@"; }
offered='max='
check "and values of limits" complete_is limit set uid : root m
offered='max= guarantee= priority='
check "which are those of its help" complete_is limit set uid : root ""
unset -f gpumemctl

# ---- a daemon, nobody there yet

start_daemon
run 0 clients
check "no client is said in words" says "No client"
run 0 clients --json
check "and is an empty list for programs" is "clients.#" 0

# ---- with workers

"$examples/worker" >"$dir/stdout" 2>"$dir/stderr"
status=$?
check "the README's worker runs" all "[ $status = 0 ]" "says MiB"
await_value status clients 0 || bail "the worker did not go"
run 0 trim
GPUMEM_RUN=0123456789abcdef GPUMEM_RUN_NAME=nightly start_worker ann
ask ann make $size weights
ask ann share
start_worker ben
ask ben make $((size / 2)) scratch

"$examples/publish" make weights >"$dir/stdout" 2>"$dir/stderr"
status=$?
check "the example publishes a buffer" all "[ $status = 0 ]" "says 'published weights, version 1'"
await_value status clients 2 || bail "the example did not go"
run 0 limit set "uid:$(id -u)" priority=-3
check "a limit is set" all "[ $status = 0 ]" "says uid:$(id -un)"
cat >"$dir/small.json" <<EOF
{
  "hidden_size": 512,
  "intermediate_size": 1376,
  "max_position_embeddings": 512,
  "num_attention_heads": 8,
  "num_hidden_layers": 8,
  "num_key_value_heads": 4,
  "tie_word_embeddings": false,
  "torch_dtype": "bfloat16",
  "vocab_size": 32000
}
EOF
every=("status" "devices" "pools" "who" "who 0" "clients" "buffers" "buffers --stacks" "shares" "weights" "weights list" "limit" "pressure" "queue" "cleanup --dry-run" "place 1M" "estimate $dir/small.json" "drain 0 --undo" "config show" "version"
	"help")
awk -f "$source/man/figures.awk" "$source/common/figures.h" "$source/man/gpumemctl.1.scd" >"$dir/page"
for words in "${every[@]}"; do
	# shellcheck disable=SC2086
	run 0 $words
	check "$words: text, within 80 columns" all "[ $status = 0 ]" "silent stderr" fits '[ -s "$dir/stdout" ]'
	if grep -q $'\033' "$dir/stdout"; then not_ok "$words: no colour into a pipe"; else ok "$words: no colour into a pipe"; fi
	# shellcheck disable=SC2086
	run 0 $words --json
	check "$words: JSON" all "[ $status = 0 ]" "silent stderr" parses
	undocumented=
	while read -r key; do
		grep -q "_${key}_" "$dir/page" || undocumented="$undocumented $key"
	done < <("$json" keys <"$dir/stdout" 2>/dev/null | sort -u)
	check "$words: every key is in gpumemctl(1)" [ -z "$undocumented" ]
	# shellcheck disable=SC2086
	run 0 $words --csv
	check "$words: CSV, with a name for each column" all "[ $status = 0 ]" "silent stderr" 'head -n 1 "$dir/stdout" | grep -Eqx "[a-z_]+(,[a-z_]+)*"'
	cp "$dir/stdout" "$dir/csv"
	# shellcheck disable=SC2086
	run 0 $words --csv --no-header
	check "$words: CSV without its header" all "[ $status = 0 ]" '! head -n 1 "$dir/stdout" | grep -qxF "$(head -n 1 "$dir/csv")"'
	# shellcheck disable=SC2086
	run 0 $words --bytes
	check "$words: no unit with --bytes" all "[ $status = 0 ]" '[ "$words" = "config show" ] || ! grep -Eq "[0-9](\.[0-9])?[KMGT]( |$)" "$dir/stdout"'
	check "$words: --bytes fits, and names its unit once if at all" all fits '[ "$(grep -c "^Sizes are in bytes.$" "$dir/stdout")" -le 1 ]'
done

run 0 status --bytes
check "status --bytes: names the unit" all "says CAPACITY" "says 'Sizes are in bytes.'"
run 0 place 128M --bytes
check "place --bytes: names the unit" all "says 'Device 0: 134217728 at once, and up to '" "says 'Sizes are in bytes.'"
run 0 status --bytes --no-header
check "status --bytes: not without headings" all "[ $status = 0 ]" "! says 'Sizes are in bytes.'"
run 0 place 128M
check "place: the device and why" all "[ $status = 0 ]" "says 'Device 0: 128.0M at once, and up to '"
run 0 cleanup --dry-run --need 1M
check "cleanup: names what stays free" all "says 'there is nothing to do.'" "says '  64.0M of what is free are never leased: min_free.'"
run 6 cleanup --need 2G
check "cleanup: also where it is refused" all "[ $status = 6 ]" "complains ' can never be free: the whole device has '"
run 6 cleanup --need 1G
check "cleanup: and what of it stays free" all "[ $status = 6 ]" "complains ' are free (min_free keeps 64.0M of it), the pool has '"
run 0 place 128M --quiet
check "place --quiet: only the number" all '[ "$(cat "$dir/stdout")" = 0 ]' "silent stderr"
run 0 place 128M --json
check "place: for programs" all "is device 0" "is bytes 134217728" "is fit now" "is placements.# 1" "is placements.0.fit now" "is placements.0.why null"
run 1 place 2G
check "place: none, and why" all "[ $status = 1 ]" "silent stdout" "complains 'no device can ever give you 2.0G: the most is 920.0M, on device 0'" \
	"complains '  device 0 has '" "complains 'which it can never give; ask for less'" "! complains 'another device'"
run 1 place 2G --quiet
check "place --quiet: none" all "[ $status = 1 ]" "silent stdout" "silent stderr"
run 1 place 2G --json
check "place: none, for programs" all "[ $status = 1 ]" "is device null" "is fit none" "is placements.0.fit none" "silent stderr"
run 1 place 900M
check "place: what others use is not room" all "[ $status = 1 ]" "complains 'no device has room for 900.0M'" "complains 'a request could wait'"
run 0 place 900M --may-wait
check "unless one may wait" all "[ $status = 0 ]" "says 'Device 0: 900.0M once clients free memory that they use; '"
run 1 place 900M --json
check "programs see that, too" all "[ $status = 1 ]" "is device null" "is fit wait" "is placements.0.fit wait"
run 1 place 65T
check "place: more than any request has" all "[ $status = 1 ]" "complains 'a request is for 1 byte to 64.0T'"
run 0 estimate "$dir/small.json" --json
check "estimate: figures and devices" all "is parameters 55976448" "is weights 111952896" "is kv_cache 4194304" "is placements.0.fit now" \
	"is model.context 512" "is model.head_dim 64" "is warnings.# 0"
run 0 estimate "$dir/small.json" --dtype float32 --context 1K --tied --json
check "estimate: an option overrides the file" all "is parameters 39592448" "is weights 158369792" "is model.context 1024" "is model.tied true"
run 0 estimate --hidden 4096 --intermediate 14336 --layers 32 --vocab 32000 --heads 32 --kv-heads 8 --context 4096
check "estimate: Mistral 7B, which does not fit" all "says 7,241,732,096" "says '13.5G (2 bytes each)'" "says none"
sed 's/"num_attention_heads": 8/"num_attention_heads": 7/' "$dir/small.json" >"$dir/wrong.json"
run 1 estimate "$dir/wrong.json"
check "estimate: what is wrong, with line and key" all "[ $status = 1 ]" "silent stdout" 'complains "$dir/wrong.json:5: num_attention_heads: heads is 7"'
sed 's/"vocab_size": 32000/"vocab_size": 32000,/' "$dir/small.json" >"$dir/wrong.json"
run 1 estimate "$dir/wrong.json"
check "estimate: a damaged file" all "[ $status = 1 ]" "silent stdout" 'complains "$dir/wrong.json:11: "'
run 1 estimate /dev/zero
check "estimate: a file without end" all "[ $status = 1 ]" "complains 'is longer than 1 MiB'"
run 1 estimate "$dir"
check "estimate: a folder" all "[ $status = 1 ]" "complains 'cannot be read: Is a directory'"

run 0 shares --json
check "shares: what is published, and whose it is" all "is shares.# 1" "is shares.0.name weights" "is shares.0.uid $(id -u)" \
	"is shares.0.user $(id -un)" "is shares.0.version 1" "is shares.0.device 0" "is shares.0.bytes 33554432" \
	"is shares.0.audience domain" "is shares.0.mode read" "is shares.0.readers 0" "is shares.0.maker false" \
	"is shares.0.left_ms null" '[ "$(value shares.0.metadata_bytes)" -gt 10 ]'
run 0 clients --name weights --json
check "clients: what outlived its client has its name" all "is clients.# 1" "is clients.0.state left" "is clients.0.name weights" \
	"is clients.0.use.0.held 33554432"
run 0 buffers --name weights --json
check "buffers: so it has there" all "is buffers.# 1" "is buffers.0.kind published" "is buffers.0.tag weights" "is buffers.0.bytes 33554432"
run 0 shares
check "shares: for people" all "says weights" "says $(id -un)" "says 32.0M"
if [ "${GPUMEM_TEST_BACKEND:-host}" = cuda ]; then
	check "shares: a GPU does not keep readers from writing" all "says ' advisory '" "run 0 shares --json" "is shares.0.enforced false"
else
	check "shares: host memory keeps readers from writing" all "says ' read '" "run 0 shares --json" "is shares.0.enforced true"
fi
run 0 shares --name 'x*'
check "shares: nothing matches" says "No name matches."
offered='remove'
check "completion knows what follows shares" complete_is shares r
offered='expire'
check "completion knows that names expire" complete_is shares e
run 0 shares expire weights 150min
check "shares expire: for people" all "[ $status = 0 ]" "says 'weights ends in 2h 30min.'"
run 0 shares
check "shares: what is left" says " 2h "
run 0 shares expire weights never --json
check "shares expire: for programs" all "[ $status = 0 ]" "is expires weights" "is left_ms null"
run 1 shares expire mistral 2h
check "shares expire: no such name" all "[ $status = 1 ]" "complains 'you have no buffer with the name '"
run 0 shares remove weights
check "shares remove: a name ends" all "[ $status = 0 ]" "says 'Removed weights.'"
run 0 shares
check "shares: there are none" says "No buffers are published"
run 1 shares remove weights
check "shares remove: once" all "[ $status = 1 ]" "complains 'you have no buffer with the name '"
"$examples/publish" make weights >"$dir/stdout" 2>"$dir/stderr"
run 0 shares remove "uid:$(id -un)/weights" --json
check "shares remove: with the owner, for programs" all "[ $status = 0 ]" "is removed uid:$(id -un)/weights"
await_value status clients 2 || bail "the example did not go"
run 0 trim

run 0
check "without a verb it is the status" says "gpumemd"
run 0 status --json
check "status: the device's figures" all "is devices.# 1" "is devices.0.total 1073741824" \
	"is devices.0.leased $((size * 3 / 2))" "is devices.0.backend $backend" "is clients 2" "is leases 2" 'is socket "$GPUMEM_SOCKET"'
check "status: the daemon" all "is pid ${pid[daemon]}" "is uid $(id -u)"
run 0 clients --json
check "clients: who holds what" all "is clients.# 2" "is clients.0.pid ${pid[ann]}" "is clients.0.name ann" \
	"is clients.0.use.0.held $size" "is clients.0.details true" "is clients.0.state connected"
run 0 clients
check "clients: for people" all "says ann" "says ben" "says 64.0M"
check "clients: a run by its name, beside the name of the client" all "says 'RUN NAME'" "says ' nightly '" \
	"run 0 clients --name nightly --json" "is clients.# 1" "is clients.0.name ann" "is clients.0.run_name nightly"
run 0 who
check "who: a run by its name" all "says ann" "says ' nightly'"
run 0 clients --no-legend
check "--no-legend leaves the headings out" all "says ann" "[ $(wc -l <"$dir/stdout") = 2 ]"
run 0 clients --no-header --sort -held --columns name,held --bytes
check "clients: sorted, with the columns that were asked for" [ "$(cat "$dir/stdout")" = "ann 67108864"$'\n'"ben 33554432" ]
run 0 clients --csv --sort name --columns name,user,device,held
check "clients: the same as CSV" [ "$(cat "$dir/stdout")" = "name,user,device,held
ann,$(id -un),0,$size
ben,$(id -un),0,$((size / 2))" ]
run 0 clients --name 'b?n' --user "$(id -u)" --device 0 --json
check "clients: picked by name, user and device" all "is clients.# 1" "is clients.0.name ben" "is clients.0.user $(id -un)"
run 0 clients --user 4294967294
check "clients: nobody matches" says "No client matches."
run 1 clients --device 7
check "clients: a device that is not there is not an empty list" all "[ $status = 1 ]" "complains 7" "silent stdout"
run 0 buffers --name ann --columns tag,bytes --csv
check "buffers: picked by name" [ "$(cat "$dir/stdout")" = "tag,bytes
weights,$size" ]
run 1 buffers --device 7
check "buffers: a device that is not there is not an empty list" all "[ $status = 1 ]" "complains 7" "silent stdout"
run 0 buffers --json
check "buffers: tag, size and owner" all "is buffers.# 2" "is buffers.0.bytes $size" "is buffers.0.tag weights" \
	"is buffers.0.pid ${pid[ann]}" "is buffers.1.client ben" "is untracked 0"
run 0 buffers --older-than 1h --json
check "buffers: none is that old" all "[ $status = 0 ]" "is buffers.# 0"
run 0 config show --json
line=$(grep -n min_free "$dir/gpumemd.conf" | cut -d: -f1)
index=0
while [ "$(value config.$index.key)" != min_free ] && value config.$index.key >/dev/null; do index=$((index + 1)); done
check "config show: the source of a value" is config.$index.source "$dir/gpumemd.conf:$line"
run 0 config show --csv
check "config show: what the command line of the daemon has instead of a file" all "says 'backend,$backend,command line (-b)'" \
	"says 'socket,$dir/socket,command line (-s)'"
# reload OLD NEW: changes a line of the file and waits until the daemon has read it.
reload() {
	local before
	before=$(grep -c 'configuration reloaded' "$dir/log")
	sed -i "s/^$1\$/$2/" "$dir/gpumemd.conf"
	kill -HUP "${pid[daemon]}"
	until [ "$(grep -c 'configuration reloaded' "$dir/log")" -gt "$before" ]; do
		kill -0 "${pid[daemon]}" || bail "the daemon ended"
	done
}
reload "size = 1G" "size = 2G"
run 0 config show
check "config show: what is not in force before a restart says so" says "after a restart: "
reload "reserve = 0" "reserve = 1M"
run 0 config show --csv
check "also after another reload" all "says 'device 0,device 0,size,2G,after a restart: $dir/gpumemd.conf:8'" \
	"says ',reserve,1M,$dir/gpumemd.conf:4'"
reload "size = 2G" "size = 1G"
reload "reserve = 1M" "reserve = 0"
run 0 config show
check "and not once it is as it was" all "! says 'after a restart'"
sed -i 's/^reserve = 0$/reserve = 2M/' "$dir/gpumemd.conf"
run 0 config reload --json
check "config reload: is for programs, too" all "[ $status = 0 ]" "is reloaded true"
run 0 config show --csv
check "config reload: returns when the daemon has read the file" says ",reserve,2M,$dir/gpumemd.conf:4"
sed -i 's/^reserve = 2M$/reserve = much\nresreve = 0/' "$dir/gpumemd.conf"
run 1 config reload
check "config reload: fails with the first mistake, and how many more there are" all "[ $status = 1 ]" \
	"complains '$dir/gpumemd.conf:4: reserve: '" "complains 'and 1 more: see the daemon'" "silent stdout"
run 0 config show --csv
check "config reload: then nothing changes" says ",reserve,2M,$dir/gpumemd.conf:4"
sed -i '/^resreve = 0$/d; s/^reserve = much$/reserve = 0/' "$dir/gpumemd.conf"
run 0 config reload
check "config reload: takes up what was mended" all "[ $status = 0 ]" "says 'read its configuration again'" "! says restart"
sed -i 's/^size = 1G$/size = 2G/; s/^reserve = 0$/&\nsocket_mode = 0600/' "$dir/gpumemd.conf"
run 0 config reload
check "config reload: names the keys that need a restart" all "[ $status = 0 ]" \
	"says 'not in force before the daemon is restarted: socket_mode, size of'" "says '[device 0]'"
run 0 config reload --json
check "config reload: tells programs, too" all "is reloaded true" "is warnings.0.kind restart" \
	"is warnings.0.text 'not in force before the daemon is restarted: socket_mode, size of [device 0]'"
sed -i '/^socket_mode = 0600$/d; s/^size = 2G$/size = 1G/' "$dir/gpumemd.conf"
run 0 config reload --json
# On a GPU, the size of a device has no effect, and each reload says so.
always=0
[ "$backend" = host ] || always=1
check "config reload: and none once it is as it was" all "is warnings.# $always" "! says restart"
printf '[limit uid:4711]\nmax = 1T\n' >>"$dir/gpumemd.conf"
run 0 config reload --json
check "config reload: shows what has no effect" all "is reloaded true" "is warnings.$always.kind config" "is warnings.# $((always + 1))"
run 0 config reload
check "config reload: tells people, too" says "so it limits nothing"
sed -i '/^\[limit uid:4711\]$/d; /^max = 1T$/d' "$dir/gpumemd.conf"
run 0 config reload
cp "$dir/gpumemd.conf" "$dir/gpumemd.conf.good"
sed -i 's/^min_free = 64M$/min_free = 3G/; s/^size = 1G$/size = 4G/' "$dir/gpumemd.conf"
run 1 config reload
remedy='; the devices change only at a restart, which this file fits: restart the daemon'
[ "$backend" = host ] || remedy=
check "config reload: nothing of it is in force if it leaves nothing of a device before a restart" \
	all 'complains "gpumemd.conf:2: min_free: 3G leaves nothing to give out on device 0 ("' \
	'complains "), which has 1.0G; write a smaller min_free$remedy"'
run 0 config show --csv
check "config reload: and then min_free stays as it was" says ",min_free,64M,"
cp "$dir/gpumemd.conf.good" "$dir/gpumemd.conf"
rm "$dir/gpumemd.conf.good"
run 0 config reload
check "config reload: and takes up what was undone" says "read its configuration again"
run 2 config reload twice
check "config reload: takes no argument" all "[ $status = 2 ]" "complains twice"
"$gpumemctl" status >/dev/full 2>"$dir/stderr"
status=$?
check "a full disk is no success" all "[ $status = 1 ]" "complains write"

# ---- limits, pressure, cleanup, watching

run 0 limit set "uid:$(id -un)" max=32M
check "a limit below what is held is accepted and shown as over" all "[ $status = 0 ]" "says over"
run 0 limit --json
check "and for programs" all "is limits.0.owner uid:$(id -u)" "is limits.0.max 33554432" "is limits.0.state over" \
	"is limits.0.priority -3" "is limits.0.source run-time"
run 0 limit set unit:a-service-with-quite-a-long-name.service max=32M
run 0 config show
check "the long name of a section does not cut what other settings are" all \
	"grep -Eq '^connections_per_uid +1024 +default$' '$dir/stdout'" \
	"says 'device 0 limit unit:a-service-with-q'" "grep -Eq ' max +32M +set at run time, in no file$' '$dir/stdout'"
COLUMNS=120 run 0 config show
check "a wider terminal has room for all of it" all "says 'device 0 limit unit:a-service-with-quite-a-long-name.service '" \
	"grep -Eq ' max +32M +set at run time, in no file$' '$dir/stdout'"
run 0 limit reset unit:a-service-with-quite-a-long-name.service
run 0 config show --json
check "config show has what was set at run time, and says so" \
	all 'grep -A 4 "\"device 0 limit uid:$(id -u)\"" "$dir/stdout" | tr -d " \n" | grep -q "\"key\":\"max\",\"value\":\"32M\",\"source\":\"setatruntime"'
run 0 config show
check "with the user's name for people" says "device 0 limit uid:$(id -un) "
run 1 limit set "uid:$(id -u)" guarantee=64M
check "a guarantee above the max is refused with the reason" all "[ $status = 1 ]" "complains below" "silent stdout"
run 1 limit set session:4711 max=1G
check "a session that there is not: where they are listed" complains "'gpumemctl clients --columns session,pid,name'"
run 0 clients --columns session,pid,name
check "and there they are" all "says SESSION" "says ann"
run 0 limit reset
check "a limit is reset" all "[ $status = 0 ]" "says limits"
run 0 limit set uid:7 guarantee=600M --device 0
run 1 limit set uid:8 guarantee=700M --device 0
check "guarantees that do not fit are named with those of other owners" \
	complains "with a guarantee of 700.0M, and 600.0M for other owners, guarantees on device 0 go beyond its capacity of 921.6M"
run 0 limit reset
run 1 pressure --at-least critical
check "pressure tells by its exit status that it is lower" all "[ $status = 1 ]" "says low" "silent stderr"
run 0 pressure --at-least low --json
check "and that it is reached" all "[ $status = 0 ]" "is reached true"
run 0 pressure --quiet
check "pressure --quiet says nothing: 0 is low" all "[ $status = 0 ]" "silent stdout" "silent stderr"
run 1 pressure --quiet --at-least medium
check "and with --at-least 1 is no" all "[ $status = 1 ]" "silent stdout" "silent stderr"
run 1 pressure --device 7
check "a device that is not there has none" all "[ $status = 1 ]" "complains 7"
run 6 cleanup --need 2G
check "more than there is cannot be cleaned up" all "[ $status = 6 ]" "complains 2.0G" "silent stdout"
run 0 cleanup
check "a cleanup says what came back" all "[ $status = 0 ]" "says Device"
run 0 pools --json
check "and leaves nothing pooled" is pools.0.pooled 0
exec {eye}< <("$gpumemctl" watch --json 2>&1)
read -r -t 60 -u "$eye" line
run 0 limit set client:nobody max=1G
read -r -t 60 -u "$eye" line
check "watch tells a line per event" grep -q '"event":"limits".*client:nobody' <<<"$line"
check "with the new limit" grep -q '"max":1073741824[,}]' <<<"$line"
exec {eye}<&-
for format in "" --json; do
	# watch prints the pressure of each device first.
	timeout -k 5 60 "$gpumemctl" watch $format >/dev/full 2>"$dir/stderr"
	status=$?
	check "watch${format:+ $format} ends with a full disk, which is no success" all "[ $status = 1 ]" "complains write"
done
run 0 limit reset

# ---- who may do what

# Ben ends. The memory that he gave back stays pooled for his trust domain until somebody trims the pool.
to=${in[ben]}
exec {to}>&-
unset 'in[ben]'
wait "${pid[ben]}"
unset 'pid[ben]'
await_value status clients 1 || bail "ben did not go"
run 0 pools --json
check "what a client gives back is pooled" all "is pools.0.pooled $((size / 2))" "is buckets.0.chunk_bytes $((size / 2))"

if has_users; then
	games=$(getent group games | cut -d: -f3)
	as=(setpriv --reuid 65534 --regid 65534 --clear-groups --)
	run 0 status --json
	check "an ordinary user sees the totals" all "[ $status = 0 ]" "is devices.0.leased $size" "is clients 1"
	run 0 clients --json
	check "but not who others are" all "[ $status = 0 ]" "is clients.# 1" "is clients.0.details false" \
		"is clients.0.name null" "is clients.0.use.0.held $size"
	run 0 buffers --json
	check "nor what they keep there" all "[ $status = 0 ]" "is buffers.# 0" "is hidden_clients 1"
	run 0 buffers
	check "and is told that there is something to hide" all "says 'No client of yours holds memory.'" \
		"says '1 more client holds memory; only its user and administrators'"
	as=()
	# More than the daemon looks through for one packet.
	for i in {1..20}; do run 0 limit set "client:ann$i" max=1G; done
	run 0 limit set client:ann max=1G
	run 0 limit set uid:4711 max=1G
	as=(setpriv --reuid 65534 --regid 65534 --clear-groups --)
	run 0 limit --json
	check "nor limits that name them" all "is limits.0.owner uid:4711" "! says client:ann" "is hidden_owners 21"
	run 0 limit
	check "and is told that there are such limits" says '21 more owners have limits'
	run 0 config show --json
	check "nor settings that do" all "says uid:4711" "! says client:ann" "says '21 more owners have limits'"
	as=()
	run 0 limit --json
	check "which an administrator sees" says client:ann
	run 0 limit reset
	as=(setpriv --reuid 65534 --regid 65534 --clear-groups --)
	run 4 trim
	check "trim is denied to an ordinary user, with 4" all "[ $status = 4 ]" "silent stdout" "complains games"
	run 4 config reload
	check "and so is a reload" all "[ $status = 4 ]" "silent stdout" "complains games"
	as=()
	run 0 pools --json
	check "and nothing was trimmed" is pools.0.pooled $((size / 2))
	as=(setpriv --reuid 65534 --regid 65534 --groups "$games" --)
	run 0 trim --json
	check "the admin group may trim" all "[ $status = 0 ]" "is released $((size / 2))"
	run 0 clients --json
	check "and sees everybody" is clients.0.name ann
	as=()
else
	for name in "an ordinary user sees the totals" "but not who others are" "nor what they keep there" \
		"and is told that there is something to hide" \
		"nor limits that name them" "and is told that there are such limits" "nor settings that do" "which an administrator sees" \
		"trim is denied to an ordinary user, with 4" "and so is a reload" "and nothing was trimmed" "the admin group may trim" \
		"and sees everybody"; do
		ok "$name # SKIP needs root to become another user"
	done
	run 0 trim
fi
run 0 pools --json
check "trim empties the pool" is pools.0.pooled 0
run 0 trim --device 0
check "trim of one device, with nothing left to give" all "[ $status = 0 ]" "says 0B"
run 1 trim --device 7
check "a device that is not there is a failure" all "[ $status = 1 ]" "silent stdout" "complains 'there is no device 7; there is 1, numbered from 0'"

# ---- a daemon in trouble

kill -STOP "${pid[daemon]}"
run 3 status --timeout 50ms
check "a stopped daemon is not waited for for ever" all "[ $status = 3 ]" "complains answer" "silent stdout"
kill -CONT "${pid[daemon]}"
check "and serves again when it goes on" run 0 status
{ kill -KILL "${pid[daemon]}" && wait "${pid[daemon]}"; } 2>/dev/null # so that the shell does not report it
unset 'pid[daemon]'
run 3 status
check "a dead daemon's socket: 3, and what to do" all "[ $status = 3 ]" "complains again,"

tree=$(cd "$build" && pwd) gpumemctl=$tree/ctl/gpumemctl
PATH=/usr/bin:/bin run 3 --socket "$dir/other" status
check "a program that is not on PATH is named by its path" complains "run '$tree/daemon/gpumemd --socket"

echo "1..$n"
