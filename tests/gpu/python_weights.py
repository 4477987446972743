# SPDX-License-Identifier: Apache-2.0
"""gpumem.weights on a GPU with PyTorch and CuPy, for tests/gpu/python.sh. One process loads a model, others attach to it and compare every
byte with the file. Then the times: GPUMEM_WEIGHTS_GIB (default 4) GiB from a file in the page cache beside a staged copy."""
import hashlib
import json
import os
import struct
import subprocess
import sys
import tempfile
import time

SIZES = {"F32": 4, "BF16": 2, "F16": 2, "I64": 8, "U8": 1, "BOOL": 1, "F8_E4M3": 1}


def report(right, name):
    print("%s %s" % ("ok" if right else "not ok", name), flush=True)


def write(path, tensors):
    """A safetensors file of random bytes. tensors: name, type, shape. Returns the digest of each."""
    header, at, digests = {}, 0, {}
    for name, dtype, shape in tensors:
        size = SIZES[dtype]
        for extent in shape:
            size *= extent
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, dtype, _ in tensors:
            start, end = header[name]["data_offsets"]
            data = os.urandom(end - start)
            if dtype == "BOOL":
                data = bytes(byte & 1 for byte in data)
            file.write(data)
            digests[name] = hashlib.sha256(data).hexdigest()
    return digests


def model(folder, name="model.safetensors", prefix=""):
    tensors = [("%slayer.%d.weight" % (prefix, i), "BF16", [512, 1024 + i]) for i in range(20)]
    tensors += [("%snorm" % prefix, "F32", [1000]), ("%sids" % prefix, "I64", [7, 11]), ("%sscalar" % prefix, "F16", []),
                ("%sempty" % prefix, "U8", [0, 3]), ("%smask" % prefix, "BOOL", [333]), ("%seight" % prefix, "F8_E4M3", [257])]
    return write(os.path.join(folder, name), tensors)


def sharded(folder):
    digests, index = {}, {}
    for i in range(3):
        name = "model-%05d-of-00003.safetensors" % (i + 1)
        mine = model(folder, name, "shard%d." % i)
        digests.update(mine)
        index.update({tensor: name for tensor in mine})
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as file:
        json.dump({"weight_map": index}, file)
    return digests


# ---- other processes


def attach_torch(name):
    import torch
    import gpumem.weights

    weights = gpumem.weights.attach(name)
    for tensor_name, tensor in weights.items():
        assert isinstance(tensor, torch.Tensor) and tensor.is_cuda, tensor_name
        raw = tensor.contiguous().reshape(-1).view(torch.uint8).cpu().numpy().tobytes()
        print("tensor %s %s %s %s" % (tensor_name, hashlib.sha256(raw).hexdigest(), tensor.dtype, list(tensor.shape)))
    kept = next(iter(weights.values()))
    before = kept.view(torch.uint8).sum().item()
    weights.close()
    torch.cuda.synchronize()
    print("kept", kept.view(torch.uint8).sum().item() == before)


def attach_cupy(name):
    import cupy
    import gpumem.weights

    weights = gpumem.weights.attach(name)
    for tensor_name, tensor in weights.items():
        assert isinstance(tensor, cupy.ndarray), tensor_name
        print("tensor %s %s %s %s" % (tensor_name, hashlib.sha256(cupy.asnumpy(tensor).tobytes()).hexdigest(), tensor.dtype,
                                      list(tensor.shape)))
    kept = next(iter(weights.values()))
    before = int(kept.view("uint8").sum(dtype="int64"))
    weights.close()
    print("kept", int(kept.view("uint8").sum(dtype="int64")) == before)


def attach_timed(name):
    """Milliseconds from the call to the mapping, in a process that has used the GPU before; without tensors of a framework and with."""
    import gpumem.weights

    session = gpumem.default_session()
    session.malloc(1 << 20).close()  # makes the context
    gpumem.weights.library()
    begin = time.perf_counter()
    weights = gpumem.weights.attach(name, kind="view")
    print("figure attach_ms %.3f" % ((time.perf_counter() - begin) * 1e3))
    print("figure tensors %d" % len(weights))
    begin = time.perf_counter()
    views = dict(weights)
    print("figure views_ms %.3f" % ((time.perf_counter() - begin) * 1e3))
    assert len(views) == len(weights)


def other(function, name):
    done = subprocess.run([sys.executable, __file__, function, name], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          universal_newlines=True, timeout=120)
    if done.returncode:
        print("\n".join("# " + line for line in done.stderr.splitlines()[-15:]))
    return done.returncode, done.stdout.splitlines()


def compare(framework, name, digests, types):
    status, lines = other("attach_" + framework, name)
    seen = {words[1]: words[2:] for words in (line.split(" ", 4) for line in lines) if words[0] == "tensor"}
    report(status == 0 and {tensor: words[0] for tensor, words in seen.items()} == digests,
           "weights: %s attaches to %s in another process, and every byte is right" % (framework, name))
    wrong = [tensor for tensor, dtype in types.items() if seen.get(tensor, ["", ""])[1] != dtype]
    report(not wrong, "weights: %s has the types of the file%s" % (framework, " but for " + ", ".join(wrong) if wrong else ""))
    report("kept True" in lines, "weights: %s keeps a tensor of weights that were closed" % framework)


def installed(module):
    return subprocess.run([sys.executable, "-c", "import " + module], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def correct(folder):
    import gpumem
    import gpumem.weights

    one, many = os.path.join(folder, "one"), os.path.join(folder, "many")
    os.mkdir(one)
    os.mkdir(many)
    digests = {"gpu-one": model(one), "gpu-many": sharded(many)}
    heard = []
    version = gpumem.weights.load(os.path.join(one, "model.safetensors"), "gpu-one", progress=lambda done, total: heard.append((done, total)))
    report(version == 1 and heard[-1][0] == heard[-1][1], "weights: a file is loaded, with its progress")
    report(gpumem.weights.load(many, "gpu-many", progress=False) == 1, "weights: a folder with shards is loaded")
    report({entry.name for entry in gpumem.weights.entries()} == {"gpu-one", "gpu-many"}, "weights: both are listed")
    for name, expected in digests.items():
        prefix = "" if name == "gpu-one" else "shard1."
        if installed("torch"):
            compare("torch", name, expected, {prefix + "norm": "torch.float32", prefix + "ids": "torch.int64",
                                              prefix + "layer.3.weight": "torch.bfloat16", prefix + "mask": "torch.bool",
                                              prefix + "eight": "torch.float8_e4m3fn"})
        else:
            print("skip PyTorch is not installed")
        if installed("cupy"):
            compare("cupy", name, expected, {prefix + "norm": "float32", prefix + "layer.3.weight": "uint16", prefix + "mask": "bool"})
        else:
            print("skip CuPy is not installed")
    try:
        gpumem.weights.load(many, "gpu-one", progress=False)
        report(False, "weights: a name that is taken is refused")
    except gpumem.BusyError as error:
        report("gpu-one" in str(error), "weights: a name that is taken is refused")
    old = gpumem.weights.attach("gpu-one", kind="view")
    report(gpumem.weights.load(many, "gpu-one", replace=True, progress=False) == 2, "weights: a name is replaced by a new version")
    data = bytes(old["norm"].base.read(4000, old["norm"].ptr - old["norm"].base.ptr))
    report(hashlib.sha256(data).hexdigest() == digests["gpu-one"]["norm"], "weights: who attached before keeps the old version")
    old.close()
    path = os.path.join(folder, "damaged.safetensors")
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", 1 << 63) + b"{}")
    try:
        gpumem.weights.load(path, "gpu-damaged", progress=False)
        report(False, "weights: a damaged file is refused")
    except gpumem.InvalidError as error:
        report("gpu-damaged" not in {entry.name for entry in gpumem.weights.entries()}, "weights: a damaged file is refused: %s" % error)
    for name in digests:
        gpumem.weights.remove(name)
    report(gpumem.weights.entries() == [], "weights: removed weights are gone")


def quick(folder):
    """Loading beside the staged copy of as many bytes from memory, by turns, and attaching."""
    import gpumem
    import gpumem.weights

    gib = float(os.environ.get("GPUMEM_WEIGHTS_GIB", "4"))
    path, size, tensors = os.path.join(folder, "large.safetensors"), int(gib * (1 << 30)), 300
    each = size // tensors // 256 * 256
    header = json.dumps({"t%d" % i: {"dtype": "U8", "shape": [each], "data_offsets": [i * each, (i + 1) * each]}
                         for i in range(tensors)}).encode()
    block = os.urandom(1 << 20) * 64
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        left = each * tensors
        while left:
            left -= file.write(block[:min(left, len(block))])
    total, source, loads, copies = each * tensors, bytearray(block) * (each * tensors // len(block) + 1), [], []
    with gpumem.Session() as session, session.alloc(total) as buffer:
        for i in range(4):  # the first of each is not counted: it warms the page cache and the staging area
            begin = time.perf_counter()
            buffer.write(memoryview(source)[:total])
            copies.append(time.perf_counter() - begin)
            begin = time.perf_counter()
            gpumem.weights.load(path, "gpu-large", replace=True, progress=False)
            loads.append(time.perf_counter() - begin)
    load, copy = total / min(loads[1:]) / 2**30, total / min(copies[1:]) / 2**30
    print("loading %.1f GiB: %.1f GiB/s, the staged copy %.1f GiB/s, ratio %.3f" % (total / 2**30, load, copy, load / copy))
    for _ in range(3):
        status, lines = other("attach_timed", "gpu-large")
        figures = {line.split()[1]: float(line.split()[2]) for line in lines if line.startswith("figure ")}
        if status == 0:
            allowed = 8 * gib / 16 + 0.02 * figures["tensors"]
            print("attaching to %.1f GiB in %d tensors: %.2f ms (views %.2f ms); 8 ms per 16 GiB and 20 us for each tensor: %.2f ms" %
                  (total / 2**30, figures["tensors"], figures["attach_ms"], figures["views_ms"], allowed))
        report(status == 0, "weights: another process attaches to the large model")
    gpumem.weights.remove("gpu-large")


def main():
    with tempfile.TemporaryDirectory() as folder:
        correct(folder)
        quick(folder)
    return 0


if __name__ == "__main__":
    if len(sys.argv) > 2:
        globals()[sys.argv[1]](sys.argv[2])
    else:
        sys.exit(main())
