#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# examples/monitoring with Debian's Prometheus and a live daemon: each alert fires once, and each expression of the rules and of the
# dashboard finds figures. For make check-all: it needs the package prometheus.
# shellcheck disable=SC2016 # conditions of all() are expanded there
set -u
umask 022
build=${top_builddir:-.} source=${top_srcdir:-.}
. "$source/tests/integration/functions.sh"
. "$source/tests/integration/ctl-functions.sh"
clean() {
	[ ${#pid[@]} -gt 0 ] && kill "${pid[@]}" 2>/dev/null
	wait
	end_keeper "$dir"
}
exporter=$build/exporter/gpumem-exporter here=$source/examples/monitoring
[ -x "$exporter" ] || skip "gpumem-exporter was not built: install libmicrohttpd-dev"
command -v prometheus promtool >/dev/null || skip "there is no prometheus: install it"

cp "$here/gpumem-rules.yml" "$source/tests/integration/monitoring-rules.yml" "$dir"
cd "$dir" || bail "no folder"
check "each alert fires once" all 'promtool test rules monitoring-rules.yml >stdout 2>stderr'
alerts=$(grep -c 'alert:' gpumem-rules.yml)
check "and each has its test" [ "$(grep 'alertname:' monitoring-rules.yml | sort -u | wc -l)" = "$alerts" ]
cd "$OLDPWD" || bail "no folder"

printf '[gpumemd]\nmin_free = 0\nhost_limit = 0\nreserve = 0\n[device 0]\nsize = 1G\n' >"$dir/gpumemd.conf"
start_daemon
start_worker trainer
ask trainer make 67108864 weights
mkfifo "$dir/said.exporter"
exec {said}<>"$dir/said.exporter"
with_us "$exporter" --listen 127.0.0.1:0 2>&"$said" &
pid[exporter]=$!
read -r -t 60 -u "$said" line || bail "gpumem-exporter does not start"
target=${line#*serving http://} target=${target%/metrics}

# As printed in the example, but for the address, and quicker. "for" is shortened, so that an alert fires while somebody waits.
sed "s/127.0.0.1:9846/$target/; s/15s/1s/" "$here/prometheus.yml" >"$dir/prometheus.yml"
sed 's/for: .*/for: 1s/' "$here/gpumem-rules.yml" >"$dir/gpumem-rules.yml"
with_us prometheus --config.file="$dir/prometheus.yml" --storage.tsdb.path="$dir/data" --web.listen-address=127.0.0.1:0 \
	--log.format=json 2>"$dir/prometheus.log" &
pid[prometheus]=$!
listening() { grep -q '"Listening on"' "$dir/prometheus.log" || ! kill -0 "${pid[prometheus]}" 2>/dev/null; }
until listening; do sleep 0.1; done
at=$(sed -n 's/.*"address":"\([^"]*\)".*"Listening on".*/\1/p' "$dir/prometheus.log")
[ -n "$at" ] || bail "Prometheus does not start"

cat >"$dir/expressions.py" <<'EOF'
import json, re, sys, time, urllib.parse, urllib.request
at, rules, dashboard = sys.argv[1:]

def ask(query):
    url = "http://%s/api/v1/query?%s" % (at, urllib.parse.urlencode({"query": query}))
    return json.load(urllib.request.urlopen(url, timeout=60))["data"]["result"]

expressions = re.findall(r"^ +expr: (.*)$", open(rules).read(), re.M)
panels = json.load(open(dashboard))["panels"]
expressions += [target["expr"] for panel in panels for target in panel["targets"]]
assert len(expressions) > 30, len(expressions)
names = sorted(set(re.findall(r"\bgpumem_[a-z_]+", " ".join(expressions))))
end = time.monotonic() + 120
while missing := [name for name in names if not ask(name)]:
    assert time.monotonic() < end, missing
for expression in expressions:
    ask(expression.replace("$instance", ".*").replace("$device", ".*"))
print(len(expressions), "expressions of", len(names), "metrics")
EOF
check "each expression of rules and dashboard is evaluated, and each metric in it is there" all \
	'python3 "$dir/expressions.py" "$at" "$here/gpumem-rules.yml" "$here/gpumem-dashboard.json" >"$dir/stdout" 2>"$dir/stderr"'
sed 's/^/# /' "$dir/stdout"
check "the dashboard has a variable for its data source" \
	python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); assert all(p["datasource"]["uid"] == "${datasource}" for p in d["panels"])' \
	"$here/gpumem-dashboard.json"

firing() { # ALERT
	python3 - "$at" "$1" 2>"$dir/stderr" <<-'EOF'
		import json, sys, time, urllib.request
		end = time.monotonic() + 120
		while True:
		    alerts = json.load(urllib.request.urlopen("http://%s/api/v1/alerts" % sys.argv[1], timeout=60))["data"]["alerts"]
		    if any(a["labels"]["alertname"] == sys.argv[2] and a["state"] == "firing" for a in alerts):
		        break
		    assert time.monotonic() < end, alerts
	EOF
}
kill -KILL "${pid[daemon]}"
wait "${pid[daemon]}" 2>/dev/null
unset 'pid[daemon]'
check "a daemon that is gone is noticed" firing GpumemDown
kill "${pid[exporter]}"
wait "${pid[exporter]}"
unset 'pid[exporter]'
check "an exporter that is gone is noticed" firing GpumemExporterDown
echo "1..$n"
