#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# gpumemd as a service of a real systemd: our units as they are installed, with the programs just built.
set -u
# shellcheck source=tests/integration/systemd-functions.sh
. "$(dirname "$0")/systemd-functions.sh"

tests=(
	units_are_free_of_complaints
	the_service_is_confined
	the_keeper_is_confined
	without_their_user_the_units_fail_once
	sysusers_and_tmpfiles_make_user_group_and_folder
	the_socket_is_there_before_the_daemon
	a_connection_starts_the_daemon
	ready_comes_with_a_status_text
	the_daemon_runs_confined_as_its_own_user
	memory_is_given_out_and_shared_under_confinement
	members_of_the_group_administer_and_others_do_not
	a_reload_takes_up_a_good_configuration
	a_reload_fails_and_keeps_the_old_configuration_when_the_new_one_is_bad
	a_reload_that_only_the_daemon_can_refuse_fails_too
	who_may_connect_is_not_for_the_configuration_to_say
	a_saved_limit_outlives_daemon_and_keeper
	the_watchdog_restarts_a_daemon_that_hangs
	a_killed_daemon_is_started_again
	however_often_it_dies_it_is_started_again
	the_keeper_goes_on_when_the_daemon_dies_or_stops
	a_killed_keeper_is_started_again_and_gets_everything
	what_clients_hold_is_known_after_each_of_these
	what_somebody_stored_does_not_keep_it_from_starting
	a_socket_file_that_is_gone_is_found_by_doctor_and_mended
	while_the_keeper_is_away_everything_says_not_to_stop
	a_keeper_that_hangs_is_found_and_named_by_a_start
	without_its_folder_the_keeper_takes_its_time_and_says_why
	a_stop_is_clean_and_leaves_the_socket
	a_watch_does_not_start_a_daemon_that_was_stopped
	a_connection_after_a_stop_starts_the_daemon_again
	a_bad_configuration_keeps_it_from_starting_and_says_why
	what_the_daemon_refuses_every_check_refuses_and_doctor_quotes
	a_start_that_fails_while_clients_hold_memory_leaves_its_message
	a_client_that_waits_does_not_start_it_again_and_again
	without_a_gpu_it_takes_its_time_between_tries
	without_the_right_to_end_clients_it_says_so_at_start
	without_the_right_it_refuses_and_ends_nobody
	with_the_drop_in_it_ends_a_client_of_another_user
	stopping_the_socket_leaves_the_folder
)

enter_sandbox "$@"

units_are_free_of_complaints() {
	local said
	said=$(systemd-analyze verify --man=no gpumemd.service gpumemd-keeper.service gpumemd.socket 2>&1 | grep -i gpumemd)
	expect "systemd-analyze verify" "$said" ""
}

# The scale goes from 0 to 10; --threshold counts tenths.
the_service_is_confined() {
	systemd-analyze security --offline=true --threshold=12 "$(property FragmentPath)" >/dev/null
}

the_keeper_is_confined() {
	systemd-analyze security --offline=true --threshold=12 "$(property FragmentPath gpumemd-keeper.service)" >/dev/null
}

# fails_once UNIT STATE: a unit that systemd is about to start again would be "activating".
fails_once() {
	! systemctl start "$1" 2>/dev/null &&
		expect "$1" "$(property ActiveState "$1") $(property ExecMainStatus "$1") $(property NRestarts "$1")" "$2"
}

# /etc is a copy.
without_their_user_the_units_fail_once() {
	local status=0
	sed -i '/^gpumemd:/d' /etc/passwd /etc/group || return 1
	fails_once gpumemd-keeper.service "failed 217 0" && fails_once gpumemd.service "inactive 0 0" &&
		expect "the socket" "$(property ActiveState gpumemd.socket)" failed || status=1
	# With the group alone, the socket starts.
	echo 'gpumemd:x:64990:' >>/etc/group
	fails_once gpumemd.service "failed 217 0" || status=1
	sed -i '/^gpumemd:/d' /etc/group
	# With the user alone, whose group has no name.
	systemctl stop gpumemd.service gpumemd-keeper.service gpumemd.socket 2>/dev/null
	systemctl reset-failed
	echo 'gpumemd:x:64990:64990::/:/usr/sbin/nologin' >>/etc/passwd
	fails_once gpumemd-keeper.service "failed 216 0" || status=1
	sed -i '/^gpumemd:/d' /etc/passwd
	systemctl stop gpumemd.service gpumemd-keeper.service gpumemd.socket 2>/dev/null
	systemctl reset-failed
	return "$status"
}

sysusers_and_tmpfiles_make_user_group_and_folder() {
	systemd-sysusers /run/sandbox/sysusers.conf && systemd-tmpfiles --create /run/sandbox/tmpfiles.conf &&
		getent passwd gpumemd >/dev/null && getent group gpumem >/dev/null &&
		# Without systemd, the daemon gives the administrators' socket to this group itself.
		setpriv --reuid gpumemd --regid gpumemd --init-groups touch /run/gpumemd/admin &&
		setpriv --reuid gpumemd --regid gpumemd --init-groups chgrp gpumem /run/gpumemd/admin && rm /run/gpumemd/admin &&
		expect "the folder" "$(stat -c '%U:%G %a' /run/gpumemd)" "gpumemd:gpumemd 755"
}

the_socket_is_there_before_the_daemon() {
	systemctl start gpumemd.socket && expect "the socket" "$(stat -c '%F %a' "$socket")" "socket 666" &&
		expect "the service" "$(property ActiveState)" inactive
}

# Connects to the service while it is not running. systemctl start then only waits for the start that is under way.
activates() {
	expect "the service before" "$(property MainPID)" 0 && status_works && [ "$(property MainPID)" != 0 ] &&
		systemctl start gpumemd.service && expect "the service" "$(property ActiveState)" active
}

a_connection_starts_the_daemon() { activates; }

ready_comes_with_a_status_text() {
	expect "the service" "$(property SubState)" running && [ -n "$(property StatusText)" ]
}

the_daemon_runs_confined_as_its_own_user() {
	local pid uid
	pid=$(property MainPID) uid=$(id -u gpumemd)
	expect "uids" "$(awk '/^Uid:/ { print $2, $3, $4, $5 }' "/proc/$pid/status")" "$uid $uid $uid $uid" &&
		expect "capabilities" "$(awk '/^CapBnd:/ { print $2 }' "/proc/$pid/status")" 0000000000000000 &&
		expect "no new privileges" "$(awk '/^NoNewPrivs:/ { print $2 }' "/proc/$pid/status")" 1 &&
		expect "system call filter" "$(awk '/^Seccomp:/ { print $2 }' "/proc/$pid/status")" 2 &&
		expect "open files" "$(awk '/^Max open files/ { print $4 }' "/proc/$pid/limits")" "$(most_files)"
}

memory_is_given_out_and_shared_under_confinement() {
	GPUMEM_SOCKET=$socket as_user systemd_worker &&
		expect "the backend" "$(gpumemctl --socket "$socket" status --json | tr -d ' \n' | grep -o '"backend":"[a-z]*"' |
			head -n 1)" "\"backend\":\"$backend\""
}

members_of_the_group_administer_and_others_do_not() {
	local status=0
	as_user gpumemctl --socket "$socket" trim || status=$?
	expect "trim by anyone" "$status" 4 &&
		setpriv --reuid 64998 --regid 64998 --groups "$(getent group gpumem | cut -d: -f3)" \
			gpumemctl --socket "$socket" trim
}

effective() { gpumemctl --socket "$socket" config show --json | tr -d ' \n' | grep -o "\"key\":\"$1\",[^}]*" | head -n 1; }

a_reload_takes_up_a_good_configuration() {
	local pid
	pid=$(property MainPID)
	configure '[gpumemd]\nfraction = 0.71\n'
	systemctl reload gpumemd.service && effective fraction | grep -q 0.71 &&
		expect "the process" "$(property MainPID)" "$pid"
}

a_reload_fails_and_keeps_the_old_configuration_when_the_new_one_is_bad() {
	local from pid
	from=$(next_line log) pid=$(property MainPID)
	configure '[gpumemd]\nfraction = 0.33\nfractoin = 1\n'
	! systemctl reload gpumemd.service 2>/dev/null &&
		await log "$from" '/etc/gpumemd/gpumemd\.conf:3: fractoin: unknown key' >/dev/null &&
		effective fraction | grep -q 0.71 && expect "the process" "$(property MainPID)" "$pid" &&
		expect "the service" "$(property ActiveState)" active
	local status=$?
	configure ''
	return "$status"
}

# What was set at run time stands in no file.
a_reload_that_only_the_daemon_can_refuse_fails_too() {
	local from status=0
	from=$(next_line log)
	gpumemctl --socket "$socket" limit set uid:64998 guarantee=200M --device 0 >/dev/null || return 1
	configure '[gpumemd]\nfraction = 0.01\n'
	gpumemd --check-config || { echo "the file alone has a mistake" >&2; status=1; }
	! systemctl reload gpumemd.service 2>/dev/null || { echo "the reload did not fail" >&2; status=1; }
	await log "$from" 'the configuration stays as it was' >/dev/null && effective fraction | grep -q 0.71 || status=1
	gpumemctl --socket "$socket" limit reset >/dev/null && systemctl reload gpumemd.service &&
		effective fraction | grep -q 0.01 || status=1
	configure ''
	return "$status"
}

# systemd makes the socket. A daemon that said nothing would leave the socket open to all, and its administrator unaware.
who_may_connect_is_not_for_the_configuration_to_say() {
	local from
	from=$(next_line log)
	configure '[gpumemd]\nsocket_mode = 0600\nfraction = 0.72\n'
	systemctl reload gpumemd.service && await log "$from" 'socket_mode: no effect, because the service manager' >/dev/null &&
		await log "$from" 'configuration reloaded' >/dev/null && effective fraction | grep -q 0.72 &&
		effective socket_mode | grep -q '"source":"noeffect:/etc/gpumemd/gpumemd\.conf:2' && status_works &&
		! tail -n "+$from" log | grep 'need a restart' >&2
	local status=$?
	configure ''
	return "$status"
}

# As after a reboot, nothing is left but the files.
a_saved_limit_outlives_daemon_and_keeper() {
	local limits status=0
	gpumemctl --socket "$socket" limit set uid:64998 max=200M --save >/dev/null 2>&1 &&
		gpumemctl --socket "$socket" limit set uid:64997 max=100M >/dev/null 2>&1 || status=1
	systemctl stop gpumemd.service gpumemd-keeper.service 2>/dev/null && systemctl start gpumemd.service || status=1
	limits=$(gpumemctl --socket "$socket" limit --csv)
	grep -q '^uid:64998,.*,209715200,.*,configured$' <<<"$limits" && ! grep -q '^uid:64997' <<<"$limits" ||
		{ echo "$limits" >&2; status=1; }
	rm /etc/gpumemd/gpumemd.conf.d/80-limit-uid-64998.conf && systemctl reload gpumemd.service || status=1
	return "$status"
}

the_watchdog_restarts_a_daemon_that_hangs() {
	local from pid
	from=$(next_line events) pid=$(property MainPID)
	[ "$pid" != 0 ] && kill -STOP "$pid" && await events "$from" '^ended watchdog' >/dev/null && came_back "$from" "$pid"
}

a_killed_daemon_is_started_again() {
	local from pid
	from=$(next_line events) pid=$(property MainPID)
	[ "$pid" != 0 ] && kill -KILL "$pid" && await events "$from" '^ended signal killed KILL' >/dev/null && came_back "$from" "$pid"
}

# Without a pause: clients wait for it.
however_often_it_dies_it_is_started_again() {
	local i from
	from=$(next_line log)
	for i in 1 2 3 4 5 6 7 8; do
		a_killed_daemon_is_started_again || { echo "death number $i" >&2; return 1; }
	done
	expect "the socket" "$(property ActiveState gpumemd.socket)" active && ! tail -n "+$from" log | grep 'a pause of' >&2
}

the_keeper_goes_on_when_the_daemon_dies_or_stops() {
	local from pid keeper
	keeper=$(keeper_pid) from=$(next_line events) pid=$(property MainPID)
	[ "$keeper" != 0 ] && [ "$pid" != 0 ] && kill -KILL "$pid" && came_back "$from" "$pid" && expect "the keeper" "$(keeper_pid)" "$keeper" &&
		systemctl restart gpumemd.service && expect "the keeper" "$(keeper_pid)" "$keeper" &&
		systemctl stop gpumemd.service 2>/dev/null && expect "the keeper" "$(keeper_pid)" "$keeper" &&
		systemctl start gpumemd.service && status_works
}

a_killed_keeper_is_started_again_and_gets_everything() {
	local from pid i
	pid=$(property MainPID)
	for i in 1 2 3 4 5 6 7 8; do
		from=$(next_line log)
		[ "$(keeper_pid)" != 0 ] && kill -KILL "$(keeper_pid)" && await log "$from" 'the keeper is back .* has everything again' >/dev/null || return 1
	done
	expect "the daemon" "$(property MainPID)" "$pid" && expect "keeper_ready" "$(figure keeper_ready)" true &&
		expect "keeper_pid" "$(figure keeper_pid)" "$(keeper_pid)"
}

what_clients_hold_is_known_after_each_of_these() {
	local before from pid status=0
	hold 64998 64 || return 1
	before=$(figure leases)
	from=$(next_line events) pid=$(property MainPID)
	[ "$pid" != 0 ] && kill -KILL "$pid" && came_back "$from" "$pid" && expect "leases after a kill" "$(figure leases)" "$before" &&
		systemctl restart gpumemd.service && expect "leases after a restart" "$(figure leases)" "$before" &&
		systemctl stop gpumemd.service 2>/dev/null && systemctl start gpumemd.service &&
		expect "leases after a stop and a start" "$(figure leases)" "$before" || status=1
	from=$(next_line events) pid=$(property MainPID)
	[ "$pid" != 0 ] && kill -STOP "$pid" && await events "$from" '^ended watchdog' >/dev/null && came_back "$from" "$pid" &&
		expect "leases after the watchdog" "$(figure leases)" "$before" || status=1
	let_go
	return "$status"
}

# Puts descriptors into the service's store, as another version could have left them. The next start gets them.
what_somebody_stored_does_not_keep_it_from_starting() {
	local from log_from pid conf=$SYSTEMD_UNIT_PATH/gpumemd.service.d/store.conf status=0
	expect "our unit's own store" "$(property FileDescriptorStoreMax)" 256 || return 1
	cat >"$conf" <<-'UNIT'
		[Service]
		FileDescriptorStoreMax=4
		NotifyAccess=all
		ExecStartPost=/run/sandbox/bin/systemd_worker store chunk
		ExecStartPost=/run/sandbox/bin/systemd_worker store ledger
	UNIT
	systemctl daemon-reload && systemctl restart gpumemd.service &&
		expect "what is stored" "$(property NFileDescriptorStore)" 2 || status=1
	if [ "$status" = 0 ]; then
		from=$(next_line events) log_from=$(next_line log) pid=$(property MainPID)
		[ "$pid" != 0 ] && kill -KILL "$pid" && came_back "$from" "$pid" &&
			await log "$log_from" '2 descriptors passed by the service manager and not known here' >/dev/null || status=1
	fi
	rm "$conf" && systemctl daemon-reload && systemctl restart gpumemd.service && status_works || status=1
	return "$status"
}

# found_by_doctor CHECK STATE WORDS REMEDY: extended regular expressions.
found_by_doctor() {
	gpumemctl doctor --json | tr -d '\n' | grep -Eo "\"state\": \"[a-z]*\", *\"check\": \"$1\"[^}]*" >found
	grep -Eq "\"state\": \"$2\".*$3.*$4" found || { cat found >&2; return 1; }
}

# doctor looks for units where they are installed.
install_units() {
	local unit
	mkdir -p /etc/systemd/system /run/systemd/system
	for unit in gpumemd.service gpumemd.socket gpumemd-keeper.service; do
		ln -sf "$(property FragmentPath "$unit")" "/etc/systemd/system/$unit" || return 1
	done
}
remove_units() { rm -f /etc/systemd/system/gpumemd*; }

a_socket_file_that_is_gone_is_found_by_doctor_and_mended() {
	local status=0 before
	install_units && hold 64998 64 || return 1
	before=$(figure leases)
	rm "$socket"
	gpumemctl status 2>&1 | grep -q 'systemctl restart gpumemd.socket' || { echo "gpumemctl names no remedy" >&2; status=1; }
	found_by_doctor service fail 'the service runs, but its socket file is gone' "systemctl restart gpumemd.socket" || status=1
	systemctl restart gpumemd.socket && status_works && expect "leases" "$(figure leases)" "$before" || status=1
	rm -r /run/gpumemd
	found_by_doctor service fail 'the service runs, but its socket file is gone' \
		"systemd-tmpfiles --create gpumemd.conf.*restart gpumemd-keeper.*systemctl restart gpumemd.socket" || status=1
	systemd-tmpfiles --create /run/sandbox/tmpfiles.conf && systemctl restart gpumemd-keeper.service && systemctl restart gpumemd.socket &&
		status_works && expect "leases" "$(figure leases)" "$before" || status=1
	chmod 700 /run/gpumemd
	found_by_doctor service fail 'has mode 0700: other users cannot reach the socket' systemd-tmpfiles || status=1
	chmod 755 /run/gpumemd
	remove_units
	let_go
	return "$status"
}

while_the_keeper_is_away_everything_says_not_to_stop() {
	local words='do not stop gpumemd' from status=0
	install_units || return 1
	from=$(next_line log)
	systemctl stop gpumemd-keeper.service && await log "$from" "the keeper is gone; new memory waits.*$words" >/dev/null || status=1
	gpumemctl status | tr -s '\n ' ' ' | grep -q "$words" || { echo "status does not say so" >&2; status=1; }
	found_by_doctor keeper fail "away .*$words" "systemctl start gpumemd-keeper" || status=1
	from=$(next_line log)
	systemctl start gpumemd-keeper.service && await log "$from" 'the keeper is back' >/dev/null || status=1
	found_by_doctor keeper ok 'holds [0-9]+ descriptors?' '' || status=1
	remove_units
	return "$status"
}

a_keeper_that_hangs_is_found_and_named_by_a_start() {
	local from status=0 keeper
	keeper=$(keeper_pid) from=$(next_line log)
	install_units && kill -STOP "$keeper" || return 1
	found_by_doctor keeper fail "pid $keeper does not answer" "systemctl restart gpumemd-keeper" || status=1
	systemctl stop gpumemd.service 2>/dev/null
	systemctl start gpumemd.service 2>/dev/null && { echo "it started" >&2; status=1; }
	await log "$from" "the keeper .pid $keeper. does not answer.*; run 'systemctl restart gpumemd-keeper'" >/dev/null || status=1
	systemctl restart gpumemd-keeper.service && status_works && systemctl start gpumemd.service || status=1
	remove_units
	return "$status"
}

without_its_folder_the_keeper_takes_its_time_and_says_why() {
	local from status=0
	install_units || return 1
	systemctl stop gpumemd.service gpumemd.socket gpumemd-keeper.service 2>/dev/null
	rm -r /run/gpumemd
	from=$(next_line log)
	systemctl start --no-block gpumemd-keeper.service
	await log "$from" 'a pause of 5 seconds' >/dev/null || status=1
	found_by_doctor service fail 'gpumemd-keeper running .exit-code 1.: cannot listen on /run/gpumemd/keeper' 'systemctl restart gpumemd-keeper' || status=1
	found_by_doctor service fail 'there is no folder /run/gpumemd' \
		'systemd-tmpfiles --create gpumemd.conf' || status=1
	systemd-tmpfiles --create /run/sandbox/tmpfiles.conf && systemctl stop gpumemd-keeper.service
	systemctl start gpumemd-keeper.service gpumemd.service && status_works || status=1
	remove_units
	return "$status"
}

a_stop_is_clean_and_leaves_the_socket() {
	local from
	from=$(next_line events)
	systemctl stop gpumemd.service 2>/dev/null && await events "$from" '^ended' >/dev/null &&
		expect "the end" "$(tail -n 1 events)" "ended success exited 0" &&
		expect "the service" "$(property ActiveState)" inactive &&
		expect "the folder" "$(stat -c '%U:%G %a' /run/gpumemd)" "gpumemd:gpumemd 755" &&
		expect "the socket" "$(property ActiveState gpumemd.socket)" active && [ -S "$socket" ]
}

# The socket would start it. The service is stopped before and afterwards.
a_watch_does_not_start_a_daemon_that_was_stopped() {
	local watch status=0
	systemctl start gpumemd.service || return 1
	rm -f watched
	(exec setpriv --reuid 64998 --regid 64998 --clear-groups gpumemctl --socket "$socket" watch >watched 2>&1) &
	watch=$!
	until grep -q pressure watched; do kill -0 "$watch" || return 1; done
	systemctl stop gpumemd.service 2>/dev/null
	until grep -q ' disconnected ' watched; do kill -0 "$watch" || return 1; done
	systemctl restart gpumemd-keeper.service || status=1
	expect "the service" "$(property ActiveState)" inactive || status=1
	systemctl start gpumemd.service || status=1
	until grep -q ' reconnected ' watched; do kill -0 "$watch" || return 1; done
	kill "$watch" && wait "$watch" 2>/dev/null
	systemctl stop gpumemd.service 2>/dev/null
	return "$status"
}

a_connection_after_a_stop_starts_the_daemon_again() { activates; }

a_bad_configuration_keeps_it_from_starting_and_says_why() {
	local from
	systemctl stop gpumemd.socket gpumemd.service
	from=$(next_line log)
	configure '[gpumemd]\ntrust = everybody\n'
	if systemctl start gpumemd.service 2>/dev/null; then
		echo "it started" >&2
		return 1
	fi
	await log "$from" '/etc/gpumemd/gpumemd\.conf:2: trust: "everybody" is not one of' >/dev/null &&
		expect "the service" "$(property ActiveState) $(property ExecMainStatus)" "failed 78" || return 1
	systemctl stop gpumemd.service gpumemd.socket
	systemctl reset-failed gpumemd.service gpumemd.socket
	configure ''
	systemctl start gpumemd.service && status_works
}

what_the_daemon_refuses_every_check_refuses_and_doctor_quotes() {
	local words='gpumemd\.conf:2: guarantee: with 60\.0T for uid:0, guarantees on device 0 ' row status=0
	systemctl stop gpumemd.socket gpumemd.service
	configure '[limit uid:0]\nguarantee = 60T\n'
	# doctor looks for units where they are installed.
	mkdir -p /etc/systemd/system /run/systemd/system && ln -sf "$(property FragmentPath)" /etc/systemd/system/gpumemd.service || return 1
	gpumemctl config check 2>&1 | grep -q "$words" || { echo "config check accepts it" >&2; status=1; }
	gpumemd --check-config 2>&1 | grep -q "$words" || { echo "--check-config accepts it" >&2; status=1; }
	if systemctl start gpumemd.service 2>/dev/null; then
		echo "it started" >&2
		status=1
	fi
	row=$(gpumemctl doctor --json | tr -d '\n' | grep -o '"state": "[a-z]*", *"check": "service"[^}]*')
	grep -q '"state": "fail".*(exit-code 78): .*60.0T for uid:0' <<<"$row" || { echo "doctor: $row" >&2; status=1; }
	rm /etc/systemd/system/gpumemd.service
	systemctl stop gpumemd.service gpumemd.socket
	systemctl reset-failed gpumemd.service gpumemd.socket
	configure ''
	systemctl start gpumemd.service && status_works && return "$status"
}

a_start_that_fails_while_clients_hold_memory_leaves_its_message() {
	local text before from status=0
	hold 64998 64 || return 1
	before=$(figure leases)
	systemctl stop gpumemd.socket gpumemd.service 2>/dev/null
	for text in '[limit uid:0]\nguarantee = 60T\n' '[device 7 limit uid:0]\nguarantee = 1G\n'; do
		from=$(next_line log)
		configure "$text"
		systemctl start --no-block gpumemd.service
		await log "$from" 'a pause of 5 seconds' >/dev/null || status=1
		grep -Eq "60.0T for uid:0|there is no device 7" <<<"$(property StatusText)" ||
			{ echo "with $text: $(property StatusText)" >&2; status=1; }
	done
	configure ''
	systemctl stop gpumemd.service gpumemd.socket
	systemctl reset-failed gpumemd.service gpumemd.socket
	systemctl start gpumemd.service && expect "leases" "$(figure leases)" "$before" || status=1
	let_go
	return "$status"
}

# The client waits at the socket, and is served when the configuration is mended, without a start by hand.
a_client_that_waits_does_not_start_it_again_and_again() {
	local from client status=0
	systemctl stop gpumemd.service 2>/dev/null
	from=$(next_line log)
	configure '[gpumemd]\ntrust = everybody\n'
	as_user gpumemctl --socket "$socket" --timeout 60s status >/dev/null &
	client=$!
	await log "$from" 'a pause of 5 seconds' >/dev/null || status=1
	as_user gpumemctl --socket "$socket" --timeout 1ms status 2>&1 | grep -q "its service cannot start: see 'systemctl status gpumemd'" ||
		{ echo "gpumemctl does not say where to look" >&2; status=1; }
	configure ''
	wait "$client" || { echo "the client was not served" >&2; status=1; }
	expect "starts that failed" "$(tail -n "+$from" log | grep -c 'trust: "everybody" is not one of')" 1 || status=1
	return "$status"
}

# The driver sees no GPU. A client that waits is served at the next try after it sees one again; here, after the daemon may do without.
without_a_gpu_it_takes_its_time_between_tries() {
	local from client conf=$SYSTEMD_UNIT_PATH/gpumemd.service.d/blind.conf status=0
	systemctl stop gpumemd.service 2>/dev/null
	from=$(next_line log)
	configure '[gpumemd]\nbackend = cuda\n'
	printf '[Service]\nEnvironment=CUDA_VISIBLE_DEVICES=-1\n' >"$conf" && systemctl daemon-reload || return 1
	as_user gpumemctl --socket "$socket" --timeout 60s status >/dev/null &
	client=$!
	await log "$from" 'error: backend cuda: ' >/dev/null && await log "$from" 'a pause of 5 seconds' >/dev/null || status=1
	configure ''
	rm "$conf" && systemctl daemon-reload || status=1
	wait "$client" || { echo "the client was not served" >&2; status=1; }
	expect "tries that failed" "$(tail -n "+$from" log | grep -c 'error: backend cuda: ')" 1 || status=1
	systemctl start gpumemd.service || status=1
	return "$status"
}

# 1 GiB, of which 256 MiB are guaranteed to 64997 and 64 MiB to 64998.
shortage="[gpumemd]\nbackend = $backend\n"
shortage+='min_free = 0\nfraction = 1\nreserve = 0\nhost_limit = 0\noom = terminate\n'
shortage+='oom_wait = 100ms\nafter_action = 10ms\nreclaim_deadline = 10ms\n'
[ "$backend" = cuda ] || shortage+='[device 0]\nsize = 1G\n'
shortage+='[limit uid:64997]\nguarantee = 256M\n[limit uid:64998]\nguarantee = 64M\n'
capabilities() { awk -v set="Cap$1:" '$1 == set { print $2 }' "/proc/$(property MainPID)/status"; }

without_the_right_to_end_clients_it_says_so_at_start() {
	local from
	from=$(next_line log)
	configure "$shortage"
	systemctl restart gpumemd.service && status_works &&
		await log "$from" 'oom = terminate: this daemon cannot end clients of other users.*CAP_KILL' >/dev/null &&
		expect "capabilities" "$(capabilities Eff)" 0000000000000000
}

without_the_right_it_refuses_and_ends_nobody() {
	local from status=0
	from=$(next_line log)
	hold 64997 256 && hold 64998 740 &&
		await log "$from" 'systemd_worker .*user 64998.* should be terminated, but the daemon has no right to' >/dev/null &&
		! hold 64996 100 && lives 64997 && lives 64998 && status_works || status=1
	cat held.64996 >&2
	grep -q '^allocating: .*asked for 100.0M' held.64996 || status=1
	let_go
	return "$status"
}

with_the_drop_in_it_ends_a_client_of_another_user() {
	local from status=0
	from=$(next_line log)
	mkdir -p "$SYSTEMD_UNIT_PATH/gpumemd.service.d" &&
		cp terminate.conf "$SYSTEMD_UNIT_PATH/gpumemd.service.d/" && systemctl daemon-reload &&
		systemctl restart gpumemd.service && status_works &&
		expect "capabilities" "$(capabilities Eff) $(capabilities Bnd)" "0000000000000020 0000000000000020" || return 1
	# It does not end 64997, which came first but is within its guarantee. The other may end before it prints anything.
	hold 64997 256 && take 64998 740 &&
		await log "$from" 'systemd_worker .*user 64998.* is terminated' >/dev/null || status=1
	if [ "$status" = 0 ]; then
		wait "${holder[64998]}" 2>/dev/null
		expect "how it ended" "$?" 143 && lives 64997 && hold 64996 100 && ! tail -n "+$from" log | grep 'cannot end clients' ||
			status=1
	fi
	let_go
	rm "$SYSTEMD_UNIT_PATH/gpumemd.service.d/terminate.conf" && systemctl daemon-reload
	configure ''
	return "$status"
}

stopping_the_socket_leaves_the_folder() {
	systemctl stop gpumemd.socket gpumemd.service && [ ! -e "$socket" ] &&
		expect "the folder" "$(stat -c '%U:%G %a' /run/gpumemd)" "gpumemd:gpumemd 755"
}

run_tests "${tests[@]}"
