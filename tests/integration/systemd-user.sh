#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# gpumemd as the service of an ordinary user: the units for systemctl --user in the folders of ~/.local, with the programs just
# built. The user's systemd is a service of a real systemd, as on any machine.
set -u
umask 022 # the user must be able to read what this makes
home=/run/sandbox/home user=64998

tests=(
	units_are_free_of_complaints
	they_can_be_enabled
	the_socket_is_there_before_the_daemon
	a_connection_starts_the_daemon_and_its_keeper
	nothing_of_the_units_was_ignored
	the_daemon_is_confined_as_far_as_a_user_can_confine_it
	memory_is_given_out_and_shared
	it_has_the_configuration_of_the_user
	a_reload_takes_up_a_new_configuration
	what_clients_hold_is_known_after_a_kill_and_a_restart
	a_stop_leaves_the_socket_and_a_connection_starts_it_again
	stopping_everything_leaves_no_process
)

# ---- outside: make the sandbox's folder, and run this script again in it

if [ "${1-}" != inside ]; then
	: "${top_srcdir:?}" "${top_builddir:?}"
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	units=$work/root/home/.local/share/systemd/user
	mkdir -p "$work/units" "$work/root/home/.local/bin" "$units" "$work/root/home/.config/gpumemd"
	exec {bin}<"$work/root/home/.local/bin"
	for program in daemon/gpumemd keeper/gpumem-keeper ctl/gpumemctl tests/integration/systemd_worker; do
		"$top_builddir/libtool" --silent --mode=install install -m 0755 "$top_builddir/$program" "/proc/$$/fd/$bin/" >/dev/null ||
			{ echo "Bail out! $program cannot be installed into the sandbox"; exit 1; }
	done
	exec {bin}<&-
	for unit in gpumemd.service gpumemd-keeper.service gpumemd.socket; do
		file=$top_srcdir/systemd/$unit
		[ -e "$file.in" ] && file=$file.in
		sed "s|@bindir@|$home/.local/bin|" "$file" | awk -f "$top_srcdir/systemd/user.awk" >"$units/$unit"
	done
	printf '[gpumemd]\nbackend = host\nmin_free = 0\n[device 0]\nsize = 1G\n' >"$work/root/home/.config/gpumemd/gpumemd.conf"
	for unit in gpumemd gpumemd-keeper; do
		mkdir "$units/$unit.service.d"
		# There is no journal inside. The search for leaks needs ptrace, which the units rightly deny.
		printf '[Service]\nStandardError=append:%s/log\nEnvironment=ASAN_OPTIONS=detect_leaks=0\n' "$home" >"$units/$unit.service.d/test.conf"
		# The thread sanitizer arranges its address space with personality().
		! grep -q __tsan_init "$work/root/home/.local/bin/gpumemd" || echo LockPersonality=no >>"$units/$unit.service.d/test.conf"
	done
	systemd=/lib/systemd/systemd
	[ -x "$systemd" ] || systemd=/usr/lib/systemd/systemd
	# As user@.service, without PAM and with a log of its own.
	cat >"$work/units/manager.service" <<-UNIT
		[Service]
		User=$user
		Type=notify
		ExecStart=$systemd --user --log-target=console
		Environment=XDG_RUNTIME_DIR=/run/user/$user HOME=$home
		StandardError=append:/run/sandbox/manager.log
		Delegate=pids memory
		KillMode=mixed
		TasksMax=infinity
	UNIT
	cp "$top_srcdir/tests/integration/systemd-user.sh" "$work/root/"
	"$top_srcdir/tests/integration/systemd-sandbox" "$work" bash /run/sandbox/systemd-user.sh inside 2>"$work/stderr"
	status=$?
	sed 's/^/# /' "$work/stderr" >&2
	if [ "$status" = 77 ]; then
		echo "1..0 # SKIP $(tail -n 1 "$work/stderr")"
		exit 0
	fi
	exit "$status"
fi

# ---- inside, as root: the user and its systemd

if [ "$(id -u)" = 0 ]; then
	{ sed "/^[^:]*:[^:]*:$user:/d" /etc/passwd; echo "tester:x:$user:$user::$home:/bin/bash"; } >/run/sandbox/passwd
	cat /run/sandbox/passwd >/etc/passwd
	chown -R "$user:$user" "$home"
	mkdir -p /run/user && install -d -m 0700 -o "$user" -g "$user" "/run/user/$user"
	if ! systemctl start manager.service; then
		echo "Bail out! the systemd of a user does not start"
		sed 's/^/# manager: /' /run/sandbox/manager.log
		exit 1
	fi
	setpriv --reuid "$user" --regid "$user" --clear-groups env -i HOME="$home" USER=tester XDG_RUNTIME_DIR="/run/user/$user" \
		PATH="$home/.local/bin:/usr/bin:/bin" bash "$0" inside
	status=$?
	[ "$status" = 0 ] || sed 's/^/# manager: /' /run/sandbox/manager.log
	exit "$status"
fi

# ---- inside, as the user

cd "$home" || exit 99
socket=$XDG_RUNTIME_DIR/gpumemd/socket
touch log
property() { systemctl --user show -P "$1" "${2:-gpumemd.service}"; }
expect() { [ "$2" = "$3" ] || { echo "$1: expected \"$3\", got \"$2\"" >&2; return 1; }; }
json() { tr -d ' \n' | grep -o "\"$1\":[^,}]*" | head -n 1 | cut -d: -f2-; }

units_are_free_of_complaints() {
	local said
	said=$(systemd-analyze --user verify --man=no gpumemd.service gpumemd-keeper.service gpumemd.socket 2>&1 | grep -i gpumemd)
	expect "systemd-analyze verify" "$said" ""
}

they_can_be_enabled() {
	systemctl --user enable gpumemd.socket gpumemd.service &&
		expect "the units" "$(systemctl --user is-enabled gpumemd.socket gpumemd.service gpumemd-keeper.service | sort -u)" enabled
}

the_socket_is_there_before_the_daemon() {
	systemctl --user start gpumemd.socket && expect "the folder" "$(stat -c '%F %a' "${socket%/*}")" "directory 700" &&
		expect "the service" "$(property ActiveState)" inactive && [ -S "$socket" ]
}

# gpumemctl finds the user's daemon without being told where it is.
activates() {
	expect "the service before" "$(property MainPID)" 0 && gpumemctl status >/dev/null && systemctl --user start gpumemd.service &&
		expect "the services" "$(property ActiveState) $(property ActiveState gpumemd-keeper.service)" "active active"
}

a_connection_starts_the_daemon_and_its_keeper() {
	activates && expect "whose daemon" "$(gpumemctl status --json | json which)" '"user"' &&
		expect "the keeper" "$(gpumemctl status --json | json keeper_pid)" "$(property MainPID gpumemd-keeper.service)"
}

nothing_of_the_units_was_ignored() {
	! grep -iE 'gpumemd.*(ignor|fail|not permitted|not supported|denied)' /run/sandbox/manager.log
}

the_daemon_is_confined_as_far_as_a_user_can_confine_it() {
	local unit pid
	for unit in gpumemd.service gpumemd-keeper.service; do
		pid=$(property MainPID "$unit")
		expect "$unit" "$(awk '/^(NoNewPrivs|Seccomp):/ { printf "%s ", $2 }' "/proc/$pid/status")" "1 2 " || return 1
	done
}

memory_is_given_out_and_shared() { systemd_worker; }

effective() { gpumemctl config show --json | tr -d ' \n' | grep -o "\"key\":\"$1\",[^}]*" | head -n 1; }

it_has_the_configuration_of_the_user() { effective backend | grep -F "$home/.config/gpumemd/gpumemd.conf"; }

a_reload_takes_up_a_new_configuration() {
	local pid
	pid=$(property MainPID)
	sed -i 's/^min_free = .*/&\nfraction = 0.71/' .config/gpumemd/gpumemd.conf
	systemctl --user reload gpumemd.service && effective fraction | grep 0.71 && expect "the process" "$(property MainPID)" "$pid"
}

leases() { gpumemctl status --json | json leases; }

what_clients_hold_is_known_after_a_kill_and_a_restart() {
	local pid held before status=0
	mkfifo held
	systemd_worker hold 64 >held &
	pid=$!
	read -r held <held
	expect "the worker" "$held" held && before=$(leases) && [ "$before" -gt 0 ] &&
		kill -KILL "$(property MainPID)" && expect "leases after a kill" "$(leases)" "$before" &&
		systemctl --user restart gpumemd.service && expect "leases after a restart" "$(leases)" "$before" || status=1
	kill "$pid" && wait "$pid"
	return "$status"
}

a_stop_leaves_the_socket_and_a_connection_starts_it_again() {
	systemctl --user stop gpumemd.service && [ -S "$socket" ] && activates
}

stopping_everything_leaves_no_process() {
	systemctl --user disable --now gpumemd.socket gpumemd.service &&
		systemctl --user disable --now gpumemd-keeper.service && [ ! -e "$socket" ] &&
		expect "processes" "$(pgrep -x 'gpumemd|gpumem-keeper')" ""
}

echo "1..${#tests[@]}"
n=0 failed=0
for test in "${tests[@]}"; do
	n=$((n + 1))
	if "$test" >output 2>&1; then
		echo "ok $n - $test"
	else
		failed=$((failed + 1))
		echo "not ok $n - $test"
		sed 's/^/# /' output
	fi
done
[ "$failed" = 0 ] || tail -n 100 log | sed 's/^/# log: /'
exit $((failed != 0))
