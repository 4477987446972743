#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Restarts of gpumemd and gpumem-keeper under a real systemd, in every order and with any pause. A worker holds buffers and a
# published name with metadata, and checks every byte after each restart. GPUMEM_TEST_ROUNDS: how often each order is tried.
# GPUMEM_TEST_OLD: a folder with an earlier version (bin/gpumemd, bin/gpumem-keeper, the units *.service.in), from which a last
# test upgrades. tests/unit/store/check_keeper_service has a keeper of an earlier version, too.
set -u
# shellcheck source=tests/integration/systemd-functions.sh
. "$(dirname "$0")/systemd-functions.sh"

tests=(
	the_services_start
	the_daemon_then_the_keeper
	the_keeper_then_the_daemon
	both_in_one_command
	the_keeper_and_then_the_daemon_is_killed
	a_keeper_that_is_killed_and_then_the_daemon_stops
	a_keeper_that_is_killed_and_then_the_daemon_restarts
	a_keeper_that_is_killed_and_then_a_daemon_that_refuses_its_configuration
	a_daemon_that_refuses_its_configuration_while_no_keeper_starts
	thousands_of_descriptors_outlive_the_keeper
	nothing_is_left_in_the_store
	stopping_the_keeper_gives_up_everything
	stopping_both_without_a_keeper_gives_up_everything
)
enter_sandbox "$@"
[ ! -d old ] || tests+=(an_earlier_version_is_replaced_in_one_command)
rounds=${GPUMEM_TEST_ROUNDS:-6}
pauses=(0 0.01 0.02 0.04 0.08 0)

# ---- the worker

guard_from=1
start_guard() {
	rm -f guard.in guard.out && mkfifo guard.in && touch guard.out && guard_from=1
	(exec setpriv --reuid 64998 --regid 64998 --clear-groups env GPUMEM_SOCKET="$socket" systemd_worker guard 16 \
		<guard.in >guard.out 2>&1) &
	guard=$!
	exec 7>guard.in
	all_is_right
}
# Waits for the worker's next line.
all_is_right() {
	local said
	said=$(await guard.out "$guard_from" .) && guard_from=$((guard_from + 1)) && expect "the worker" "$said" right
}
check_guard() { echo >&7 && all_is_right; }
end_guard() {
	exec 7>&-
	wait "$guard"
	gpumemctl --socket "$socket" shares remove uid:64998/guarded >/dev/null 2>&1 || true
}

# Waits until there are so many leases: the worker's last return may still be on its way.
settles_at() {
	local end=$((SECONDS + 60))
	until [ "$(figure leases)" = "$1" ]; do [ "$SECONDS" -le "$end" ] || { expect leases "$(figure leases)" "$1"; return 1; }; done
}

# rounds_of STEP...: each step is a command, with a pause before all but the first.
rounds_of() {
	local i step leases
	leases=16 # of the worker
	for ((i = 0; i < rounds; i++)); do
		for step; do
			[ "$step" = "$1" ] || [ "${pauses[i % ${#pauses[@]}]}" = 0 ] || sleep "${pauses[i % ${#pauses[@]}]}"
			$step || { echo "round $i: $step" >&2; return 1; }
		done
		check_guard && settles_at "$leases" || { echo "round $i" >&2; return 1; }
	done
}

the_services_start() {
	systemd-sysusers /run/sandbox/sysusers.conf && systemd-tmpfiles --create /run/sandbox/tmpfiles.conf &&
		systemctl start gpumemd.socket gpumemd.service && status_works && start_guard
}

the_daemon_then_the_keeper() { rounds_of "systemctl restart gpumemd" "systemctl restart gpumemd-keeper"; }
the_keeper_then_the_daemon() { rounds_of "systemctl restart gpumemd-keeper" "systemctl restart gpumemd"; }
both_in_one_command() { rounds_of "systemctl restart gpumemd gpumemd-keeper" "systemctl restart gpumemd-keeper gpumemd"; }

kill_daemon() {
	local from pid
	from=$(next_line events) pid=$(property MainPID)
	[ "$pid" != 0 ] && kill -KILL "$pid" && came_back "$from" "$pid"
}
the_keeper_and_then_the_daemon_is_killed() { rounds_of "systemctl restart gpumemd-keeper" kill_daemon; }

# The new keeper has nothing, so the daemon fills it before it ends. The next connection starts the daemon again.
kill_keeper() { kill -KILL "$(keeper_pid)"; }
end_daemon() {
	local from
	from=$(next_line events)
	systemctl kill --signal TERM gpumemd && await events "$from" '^ended success exited 0' >/dev/null && status_works
}
a_keeper_that_is_killed_and_then_the_daemon_restarts() { rounds_of kill_keeper "systemctl restart gpumemd"; }
a_keeper_that_is_killed_and_then_the_daemon_stops() { rounds_of kill_keeper end_daemon; }

# The daemon that refuses its configuration is the only one that gets what the daemon before has left.
restart_refused() {
	local from
	from=$(next_line events)
	configure '[gpumemd]\ntrust = everybody\n'
	systemctl restart gpumemd 2>/dev/null && { echo "it started" >&2; return 1; }
	await events "$from" '^ended exit-code exited 78' >/dev/null
}
# The worker's connection may have begun another start, with the configuration of before, whose failure the first command reports.
start_mended() {
	configure '' && systemctl reset-failed gpumemd && { systemctl start gpumemd 2>/dev/null || systemctl start gpumemd; }
}
# A round takes 15 seconds, mostly of waiting.
a_keeper_that_is_killed_and_then_a_daemon_that_refuses_its_configuration() {
	local rounds=$(((rounds + 5) / 6))
	rounds_of kill_keeper restart_refused start_mended
}

# The daemon is started again and again until a keeper has everything. The keeper then closes what no process needs.
a_daemon_that_refuses_its_configuration_while_no_keeper_starts() {
	local from log_from status=0
	hold 64997 4 || { cat held.64997 >&2; return 1; }
	from=$(next_line events) log_from=$(next_line log)
	mv bin/gpumem-keeper . && kill_keeper && configure '[gpumemd]\ntrust = everybody\n' || return 1
	systemctl restart gpumemd 2>/dev/null && { echo "it started" >&2; status=1; }
	await log "$log_from" 'the keeper does not have what clients hold .* systemd keeps it' >/dev/null &&
		await events "$from" '^ended exit-code exited 1$' >/dev/null || status=1
	mv gpumem-keeper bin/
	await events "$from" '^ended exit-code exited 78' >/dev/null || status=1
	log_from=$(next_line log)
	let_go
	await log "$log_from" 'closed .* that no process needs any more; there is no daemon' >/dev/null || status=1
	start_mended && check_guard && settles_at 16 || status=1
	return "$status"
}

as_daemon() { prlimit --nofile="$(most_files)" setpriv --reuid gpumemd --regid gpumemd --clear-groups systemd_worker "$@"; }
thousands_of_descriptors_outlive_the_keeper() {
	local n=20000 most status=0
	most=$(most_files)
	[ "$n" -le $((most - 1000)) ] || n=$((most - 1000))
	end_guard
	systemctl stop gpumemd.socket gpumemd.service
	as_daemon fill "$n" || status=1
	for _ in 1 2 3; do systemctl restart gpumemd-keeper || status=1; done
	as_daemon drain "$n" || status=1
	systemctl start gpumemd.socket gpumemd.service && start_guard || status=1
	return "$status"
}

nothing_is_left_in_the_store() {
	expect "stored descriptors" "$(property NFileDescriptorStore gpumemd-keeper.service)" 0 &&
		expect "stored descriptors of the daemon" "$(property NFileDescriptorStore)" 0
}

stopping_the_keeper_gives_up_everything() {
	local from status=0
	from=$(next_line log)
	systemctl stop gpumemd.socket gpumemd.service && systemctl stop gpumemd-keeper &&
		await log "$from" 'systemd has what clients hold .* if this is a restart' >/dev/null &&
		expect "stored descriptors" "$(property NFileDescriptorStore gpumemd-keeper.service)" 0 || status=1
	systemctl start gpumemd.socket gpumemd.service && expect "leases" "$(figure leases)" 0 || status=1
	end_guard
	return "$status"
}

# The daemon leaves everything in the store of its unit, which a stop empties.
stopping_both_without_a_keeper_gives_up_everything() {
	local from status=0
	start_guard || return 1
	from=$(next_line log)
	kill_keeper && systemctl stop gpumemd.socket gpumemd.service gpumemd-keeper &&
		await log "$from" 'systemd has it, and gives it to the next gpumemd if this is a restart' >/dev/null &&
		nothing_is_left_in_the_store || status=1
	systemctl start gpumemd.socket gpumemd.service && expect "leases" "$(figure leases)" 0 || status=1
	end_guard
	return "$status"
}

# As gpumem-keeper(8) prints it.
upgrade() {
	systemctl daemon-reload
	systemctl restart gpumemd gpumemd-keeper
}
an_earlier_version_is_replaced_in_one_command() {
	local unit status=0
	systemctl stop gpumemd.socket gpumemd.service gpumemd-keeper.service
	mkdir new && cp -a bin new/ && cp "$SYSTEMD_UNIT_PATH"/gpumemd*.service new/ && cp old/bin/* bin/ || return 1
	for unit in gpumemd gpumemd-keeper; do
		sed 's|@bindir@|/run/sandbox/bin|g' "old/$unit.service.in" >"$SYSTEMD_UNIT_PATH/$unit.service"
	done
	systemctl daemon-reload && systemctl start gpumemd.socket gpumemd.service && start_guard || return 1
	cp --remove-destination new/bin/* bin/ && cp new/*.service "$SYSTEMD_UNIT_PATH/" && upgrade && check_guard || status=1
	upgrade && check_guard && rounds_of upgrade || status=1
	end_guard
	return "$status"
}

run_tests "${tests[@]}"
