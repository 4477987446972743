# SPDX-License-Identifier: Apache-2.0
"""Reads what gpumemctl metrics writes, more strictly than a scraper does, and compares it with the JSON of other verbs:

    ctl-metrics.py METRICS [STATUS POOLS CLIENTS [NAME]]

METRICS must be well formed: each metric has one help and one type, all its samples follow, no sample comes twice. Each number
of a device, a pool and a client in the JSON has a sample with that value. NAME: one client is called that."""
import json
import re
import sys

SAMPLE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? ([0-9.e+-]+)')
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)')


def read(path):
    samples, helped, typed, name = {}, set(), {}, None
    text = open(path, encoding="utf-8", newline="\n").read()
    assert text.endswith("\n"), "the last line is not complete"
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            name = line.split(" ")[2]
            assert name not in helped, f"two helps of {name}"
            assert len(line.split(" ", 3)) == 4, f"{name} has no help"
            helped.add(name)
        elif line.startswith("# TYPE "):
            _, _, of, kind = line.split(" ")
            assert of == name and of not in typed and kind in ("gauge", "counter"), line
            assert (kind == "counter") == name.endswith("_total"), line
            typed[of] = kind
        else:
            match = SAMPLE.fullmatch(line)
            assert match and match[1] == name and name in typed, line
            labels, rest = {}, match[2] or ""
            while rest:
                label = LABEL.match(rest)
                assert label and label[1] not in labels, line
                labels[label[1]] = re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], label[2])
                rest = rest[label.end():]
            key = (name, frozenset(labels.items()))
            assert key not in samples, f"twice: {line}"
            samples[key] = float(match[3])
    return samples


def compare(samples, prefix, row, labels, skip=()):
    """Each number of the row has a sample with these labels. Returns how many were compared."""
    compared = 0
    for key, value in row.items():
        if key in skip or isinstance(value, bool) or not isinstance(value, (int, float)):
            continue
        of = key.removeprefix(prefix.split("_")[1] + "_")
        names = {f"{prefix}_{of}_bytes": 1, f"{prefix}_{of}_total": 1, f"{prefix}_{of}": 1, f"{prefix}_{of}_ratio": 1,
                 f"{prefix}_{of.removesuffix('_ms')}_seconds": 1e-3}
        found = [(v, names[n]) for (n, ls), v in samples.items() if n in names and labels.items() <= dict(ls).items()]
        assert len(found) == 1, f"{key} of {labels}: {found}"
        assert abs(found[0][0] - value * found[0][1]) <= 1e-6 * abs(value), f"{key} of {labels}: {found[0]} is not {value}"
        compared += 1
    return compared


def main():
    samples = read(sys.argv[1])
    if len(sys.argv) == 2:
        assert samples == {("gpumem_up", frozenset()): 0}, samples
        return
    status, pools, clients = (json.load(open(path, encoding="utf-8")) for path in sys.argv[2:5])
    assert samples[("gpumem_up", frozenset())] == 1
    n = 0
    for device in status["devices"]:
        n += compare(samples, "gpumem_device", device, {"device": str(device["device"])}, skip=("device", "drained_by", "drained_ms"))
    for pool in pools["pools"]:
        n += compare(samples, "gpumem_pool", pool, {"device": str(pool["device"])}, skip=("device", "hit_rate"))
    shown = {dict(ls).get("session") for _, ls in samples}
    for client in clients["clients"]:
        for use in client["use"] if str(client["session"]) in shown else []:
            n += compare(samples, "gpumem_client", use, {"device": str(use["device"]), "session": str(client["session"])}, skip=("device",))
    assert len(shown - {None, ""}) == min(50, len(clients["clients"]))
    assert n >= 40, f"only {n} numbers were compared"
    for device in status["devices"]:
        of = {"device": str(device["device"])}

        def total(name):
            return sum(v for (m, ls), v in samples.items() if m == name and of.items() <= dict(ls).items())

        held = sum(use["held"] for client in clients["clients"] for use in client["use"] if use["device"] == device["device"])
        assert total("gpumem_client_held_bytes") == held == total("gpumem_user_held_bytes"), (of, held)
    if len(sys.argv) == 6:
        names = {dict(ls).get("name") for _, ls in samples}
        assert sys.argv[5] in names, names


main()
