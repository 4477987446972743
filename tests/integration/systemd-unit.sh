#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Settings that an operator adds to gpumemd.service, under a real systemd, while a client holds memory: whatever keeps the
# daemon from taking over is refused with its cause, and the client keeps its memory.
set -u
# shellcheck source=tests/integration/systemd-functions.sh
. "$(dirname "$0")/systemd-functions.sh"

tests=(
	the_services_start
	a_daemon_from_which_clients_are_hidden_does_not_start
	a_daemon_that_hides_clients_from_the_start_warns_and_keeps_them
	a_daemon_in_a_user_namespace_without_its_clients_does_not_start
	a_daemon_that_runs_as_another_user_is_told_to_run_as_the_keepers
	a_start_beside_another_daemon_names_its_process
	a_daemon_with_few_descriptors_names_its_own_limit
)
# A sanitizer needs more address space than that.
grep -q '^GM_CFLAGS = .*-fsanitize=' "$top_builddir/Makefile" || tests+=(a_daemon_with_little_memory_says_why_it_reads_no_store)
[ "${GPUMEM_TEST_BACKEND-}" != cuda ] || tests+=(
	a_daemon_without_the_gpus_of_its_clients_says_why
	a_reload_warns_of_a_backend_that_gives_up_what_clients_hold
)
enter_sandbox "$@"

the_services_start() {
	systemd-sysusers /run/sandbox/sysusers.conf && systemd-tmpfiles --create /run/sandbox/tmpfiles.conf &&
		systemctl start gpumemd.socket gpumemd.service && status_works
}

conf=$SYSTEMD_UNIT_PATH/gpumemd.service.d/operator.conf
drop_in() { printf '[Service]\n%s\n' "$1" >"$conf" && systemctl daemon-reload; }
no_drop_in() { rm -f "$conf" && systemctl daemon-reload; }

# Waits until the status says these words: systemd clears it when it tries again.
status_says() {
	local end=$((SECONDS + 60)) text
	until text=$(property StatusText) && [[ $text =~ $1 ]]; do
		[ "$SECONDS" -le "$end" ] || { echo "the status: $text" >&2; return 1; }
	done
}

# refuses_and_keeps DROP_IN WORDS: with the setting, the start fails, and the log and the status say these words. Without it, the client has
# its memory again.
refuses_and_keeps() {
	local before from status=0
	hold 64998 64 || { cat held.64998 >&2; return 1; }
	before=$(figure leases) from=$(next_line log)
	drop_in "$1"
	systemctl restart gpumemd.service 2>/dev/null && { echo "it started" >&2; status=1; }
	await log "$from" "error: .*$2" >/dev/null || status=1
	status_says "$2" || status=1
	no_drop_in
	systemctl restart gpumemd.service && is_back "$from" "$before" || status=1
	let_go
	return "$status"
}

# Waits until no client is quarantined: all that have memory are back.
is_back() {
	local end=$((SECONDS + 60))
	until [ "$(figure quarantined)" = 0 ]; do [ "$SECONDS" -le "$end" ] || { echo "no client came back" >&2; return 1; }; done
	expect leases "$(figure leases)" "$2" && lives 64998 && ! tail -n "+$1" log | grep -E 'memory is released|ended meanwhile: [1-9]' >&2
}

a_daemon_from_which_clients_are_hidden_does_not_start() {
	refuses_and_keeps ProtectProc=invisible \
		'client .*lives, and /proc hides its process .*the keeper has what clients hold; remove ProtectProc=' &&
		refuses_and_keeps ProtectProc=noaccess 'client .*lives, and /proc hides its process'
}

a_daemon_that_hides_clients_from_the_start_warns_and_keeps_them() {
	local before from status=0
	from=$(next_line log)
	drop_in ProtectProc=invisible
	systemctl restart gpumemd.service && await log "$from" 'warning: /proc hides the processes .*remove ProtectProc=' >/dev/null &&
		hold 64998 64 && before=$(figure leases) && systemctl restart gpumemd.service && is_back "$from" "$before" || status=1
	no_drop_in
	systemctl restart gpumemd.service && is_back "$from" "$before" || status=1
	let_go
	return "$status"
}

a_daemon_in_a_user_namespace_without_its_clients_does_not_start() {
	refuses_and_keeps PrivateUsers=yes \
		'client .*lives, and the user namespace of this daemon does not have its user.*remove PrivateUsers='
}

a_daemon_that_runs_as_another_user_is_told_to_run_as_the_keepers() {
	refuses_and_keeps $'User=root\nGroup=root' \
		"the keeper.s socket belongs to the user gpumemd .uid [0-9]+., and this daemon runs as the user root; run the daemon as that user .*User=.*gives up what clients hold"
}

a_start_beside_another_daemon_names_its_process() {
	local from other status=0
	from=$(next_line log)
	systemctl stop gpumemd.service gpumemd.socket 2>/dev/null
	(exec env GPUMEM_KEEPER=service setpriv --reuid gpumemd --regid gpumemd --init-groups gpumemd --socket /run/gpumemd/socket \
		2>byhand) &
	other=$!
	await byhand 1 'Serving 1 device' >/dev/null || status=1
	systemctl start gpumemd.socket gpumemd.service 2>/dev/null && { echo "it started" >&2; status=1; }
	await log "$from" "error: .*the keeper .* serves another gpumemd .pid $other.*stop that one first: 'kill $other'" >/dev/null || status=1
	kill "$other" && wait "$other"
	systemctl restart gpumemd.service && status_works || status=1
	return "$status"
}

a_daemon_with_few_descriptors_names_its_own_limit() {
	refuses_and_keeps LimitNOFILE=20 'holds more descriptors than this daemon may open.*raise LimitNOFILE= of gpumemd.service'
}

a_daemon_with_little_memory_says_why_it_reads_no_store() {
	refuses_and_keeps LimitAS=64M 'the store cannot be read: Cannot allocate memory; raise LimitAS='
}

a_daemon_without_the_gpus_of_its_clients_says_why() {
	refuses_and_keeps Environment=CUDA_VISIBLE_DEVICES= 'clients hold memory of GPUs, .*CUDA_VISIBLE_DEVICES is ""'
}

a_reload_warns_of_a_backend_that_gives_up_what_clients_hold() {
	local from status=0
	hold 64998 64 || { cat held.64998 >&2; return 1; }
	from=$(next_line log)
	configure '[gpumemd]\nbackend = host\n'
	systemctl reload gpumemd.service &&
		await log "$from" 'warning: backend = host: clients hold [0-9.]+M on GPUs, which the next start gives up' >/dev/null || status=1
	configure ''
	systemctl reload gpumemd.service || status=1
	let_go
	return "$status"
}

run_tests "${tests[@]}"
