#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# gpumem-exporter: what a scraper gets, with and without a daemon, and what strangers can do to it.
# shellcheck disable=SC2016,SC2034 # conditions of all() are expanded there, and use these
set -u
umask 022 # other users must be able to read what this makes
build=${top_builddir:-.} source=${top_srcdir:-.}
. "$source/tests/integration/functions.sh"
. "$source/tests/integration/ctl-functions.sh"
clean() {
	[ ${#pid[@]} -gt 0 ] && kill "${pid[@]}" 2>/dev/null
	wait
	end_keeper "$dir"
}
exporter=$build/exporter/gpumem-exporter
[ -x "$exporter" ] || skip "gpumem-exporter was not built: install libmicrohttpd-dev"
command -v python3 >/dev/null || skip "there is no python3"

# start_exporter OPTION...: starts one, and waits until it serves. Its address is in $at.
start_exporter() {
	mkfifo "$dir/said.$n"
	exec {said}<>"$dir/said.$n"
	with_us "$exporter" "$@" 2>&"$said" &
	pid[exporter]=$!
	local line
	read -r -t 60 -u "$said" line || bail "gpumem-exporter does not start"
	case $line in "gpumem-exporter: serving "*) at=${line#*serving } ;; *) bail "$line" ;; esac
}
end_exporter() {
	kill "${pid[exporter]}"
	wait "${pid[exporter]}"
	status=$?
	unset 'pid[exporter]'
	exec {said}>&-
}
# get METHOD PATH: leaves the status in $status, the type in $type, and the body in the file stdout.
get() {
	read -r status type < <(python3 - "$at" "$1" "$2" "$dir/stdout" <<-'EOF'
		import http.client, socket, sys, urllib.parse
		at, method, path, out = sys.argv[1:]
		if at.startswith("/"):
		    connection = http.client.HTTPConnection("localhost", timeout=60)
		    connection.sock = socket.socket(socket.AF_UNIX)
		    connection.sock.connect(at)
		else:
		    connection = http.client.HTTPConnection(urllib.parse.urlsplit(at).netloc, timeout=60)
		connection.request(method, path)
		answer = connection.getresponse()
		open(out, "wb").write(answer.read())
		print(answer.status, answer.getheader("Content-Type").replace(" ", ""))
	EOF
	)
}
# up NUMBER: what the answer says of the daemon.
up() { grep -qx "gpumem_up $1" "$dir/stdout"; }
reads() { python3 "$source/tests/integration/ctl-metrics.py" "$@" 2>"$dir/stderr"; }

printf '[gpumemd]\nmin_free = 0\nhost_limit = 0\nreserve = 0\n[device 0]\nsize = 1G\n' >"$dir/gpumemd.conf"

start_exporter --listen 127.0.0.1:0
get GET /metrics
check "without a daemon, gpumem_up is 0 with status 200" all "[ $status = 200 ]" 'reads "$dir/stdout"'
read -r -t 60 -u "$said" line
check "and the cause is reported once" all '[ "${line#*cannot reach gpumemd}" != "$line" ]' 'get GET /metrics' '! read -r -t 0 -u "$said"'
start_daemon
start_worker trainer
ask trainer make 67108864 weights
until get GET /metrics && up 1; do :; done
check "with a daemon, it has its metrics" all "[ $status = 200 ]" "[ '$type' = 'text/plain;version=0.0.4;charset=utf-8' ]" \
	"says 'name=\"trainer\"'"
# However fast the scrapes are: at most one new answer a second.
often() {
	python3 - "$at" 2>"$dir/stderr" <<-'EOF'
		import http.client, sys, time, urllib.parse
		began, bodies = time.monotonic(), set()
		for _ in range(200):
		    connection = http.client.HTTPConnection(urllib.parse.urlsplit(sys.argv[1]).netloc, timeout=60)
		    connection.request("GET", "/metrics")
		    bodies.add(connection.getresponse().read())
		assert len(bodies) <= 2 + time.monotonic() - began, len(bodies)
	EOF
}
check "200 scrapes ask the daemon once a second" often
# What gpumemctl says, but for the time.
until run 0 metrics && cp "$dir/stdout" "$dir/ctl" && get GET /metrics && diff <(grep -v ^gpumem_uptime "$dir/ctl") <(grep -v ^gpumem_uptime "$dir/stdout") >/dev/null; do
	[ $SECONDS -lt 300 ] || break
done
check "they are those of gpumemctl" all 'diff <(grep -v ^gpumem_uptime "$dir/ctl") <(grep -v ^gpumem_uptime "$dir/stdout") >/dev/null'

get GET /
check "/ leads there" all "[ $status = 200 ]" "says /metrics"
get GET /../../etc/passwd
check "there is nothing else" all "[ $status = 404 ]" "says 'there is only /metrics'"
get POST /metrics
check "nothing can be sent" all "[ $status = 405 ]" "says 'only GET and HEAD'"
get HEAD /metrics
check "HEAD has no body" all "[ $status = 200 ]" "silent stdout"

# The daemon dies, and comes back.
kill -KILL "${pid[daemon]}"
wait "${pid[daemon]}" 2>/dev/null
until get GET /metrics && up 0; do :; done
start_daemon
until get GET /metrics && up 1; do :; done
check "a daemon that was killed comes back" says 'name="trainer"'

# Somebody who sends nothing, 63 times, and somebody who never reads.
exec {slow}< <(exec python3 - "$at" <<-'EOF'
	import socket, sys, time, urllib.parse
	where = urllib.parse.urlsplit(sys.argv[1])
	idle = [socket.create_connection((where.hostname, where.port)) for _ in range(62)]
	deaf = socket.create_connection((where.hostname, where.port))
	deaf.send(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 1000)
	print("there", flush=True)
	time.sleep(600)
	EOF
)
slow_pid=$!
read -r -t 60 -u "$slow" line
get GET /metrics
check "idle connections are in nobody's way" all "[ $status = 200 ]" "up 1"
kill $slow_pid

port=${at##*:} port=${port%/metrics}
"$exporter" --listen "127.0.0.1:$port" >"$dir/stdout" 2>"$dir/stderr"
status=$?
check "a port in use is said with a remedy" all "[ $status = 1 ]" "complains 'cannot listen on 127.0.0.1:$port: Address already in use; choose another place with --listen'"
end_exporter
check "it ends on SIGTERM" [ $status = 0 ]
for wrong in nonsense 1.2.3.4 :80 "::1:80" 127.0.0.1:http; do
	"$exporter" --listen "$wrong" >"$dir/stdout" 2>"$dir/stderr"
	status=$?
	check "--listen $wrong is refused" all "[ $status = 1 ]" "complains 'cannot listen on $wrong: '"
done

start_exporter --listen "$dir/http" --socket "$GPUMEM_SOCKET"
at=$dir/http
get GET /metrics
check "a Unix socket serves, too" all "[ $status = 200 ]" "up 1"
kill -KILL "${pid[exporter]}"
wait "${pid[exporter]}" 2>/dev/null
unset 'pid[exporter]'
start_exporter --listen "$dir/http"
at=$dir/http
get GET /metrics
check "also if the last one was killed" all "[ $status = 200 ]" "up 1"
end_exporter
check "and the socket goes with it" [ ! -e "$dir/http" ]

# As systemd does it: the socket is another's, and outlives the program.
passed() {
	python3 - "$exporter" "$GPUMEM_SOCKET" 2>"$dir/stderr" <<-'EOF'
		import http.client, os, signal, socket, sys
		listening = socket.create_server(("127.0.0.1", 0))
		for _ in range(2):
		    pid = os.fork()
		    if pid == 0:
		        os.dup2(listening.fileno(), 3)
		        os.set_inheritable(3, True)
		        os.environ |= {"LISTEN_FDS": "1", "LISTEN_PID": str(os.getpid())}
		        os.execv(sys.argv[1], [sys.argv[1], "--socket", sys.argv[2]])
		    try:
		        connection = http.client.HTTPConnection("127.0.0.1", listening.getsockname()[1], timeout=60)
		        connection.request("GET", "/metrics")
		        assert b"\ngpumem_up 1\n" in connection.getresponse().read()
		    finally:
		        os.kill(pid, signal.SIGTERM)
		    assert os.waitpid(pid, 0)[1] == 0
		assert socket.create_connection(listening.getsockname(), 60) and listening.accept()
	EOF
}
check "a socket that was passed serves the next one, too" passed
echo "1..$n"
