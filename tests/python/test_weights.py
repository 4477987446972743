# SPDX-License-Identifier: Apache-2.0
"""gpumem.weights: what one process loads, another one attaches to."""
import gc
import json
import os
import pwd
import struct
import subprocess
import sys
import threading
import types

import pytest
from conftest import write_safetensors

import gpumem
import gpumem.weights


@pytest.fixture
def name(session):
    yield "pytest"
    for entry in gpumem.weights.entries(session):
        gpumem.weights.remove(entry.name, session)


def test_attach_waits_until_the_weights_are_loaded(session, model):
    found = []

    def wait():
        with gpumem.Session() as other, gpumem.weights.attach("pytest-wait", kind="view", wait=gpumem.FOREVER, session=other) as tensors:
            found.append(sorted(tensors))

    with pytest.raises(gpumem.WaitTimeoutError, match='no such name as "pytest-wait"'):
        gpumem.weights.attach("pytest-wait", wait=0.01, session=session)
    thread = threading.Thread(target=wait)
    thread.start()
    gpumem.weights.load(model, "pytest-wait", session=session)
    thread.join()
    gpumem.weights.remove("pytest-wait", session=session)
    assert found == [["a", "b", "half", "none", "odd"]] and session.stats().in_use == 0


def test_weights_are_attached_by_another_process(session, model, name):
    heard = []
    assert gpumem.weights.load(model, name, session=session, progress=lambda done, total: heard.append((done, total))) == 1
    assert heard and heard[-1][0] == heard[-1][1]
    model.unlink()
    code = ("import gpumem.weights, sys\n"
            "with gpumem.weights.attach(sys.argv[1], kind='view') as weights:\n"
            "    print(weights.version, sorted(weights), weights['a'].shape, weights['a'].dtype)\n")
    out = subprocess.run([sys.executable, "-c", code, name], stdout=subprocess.PIPE, check=True).stdout.decode()
    assert out == "1 ['a', 'b', 'half', 'none', 'odd'] (2, 3) float32\n"
    (entry,) = gpumem.weights.entries(session)
    assert (entry.name, entry.version, entry.tensors, entry.bytes) == (name, 1, 5, 39)


def test_a_tensor_has_its_type_shape_and_bytes(session, model, name):
    gpumem.weights.load(model, name, session=session, progress=False)
    with gpumem.weights.attach(name, kind="view", session=session) as weights:
        assert weights.dtypes["half"] == "BF16" and weights["half"].dtype == "bfloat16"
        assert weights["none"].shape == (0, 4) and weights["odd"].shape == (3,) and weights["b"].shape == ()
        assert len(weights) == 5 and "x" not in weights
        assert all((weights[n].ptr - weights["a"].ptr) % 256 == 0 for n in weights)
        with pytest.raises(KeyError):
            weights["x"]


def test_numpy_arrays_outlive_the_weights(on_host, session, model, name, numpy):
    gpumem.weights.load(model, name, session=session, progress=False)
    weights = gpumem.weights.attach(name, session=session)
    a, half = weights["a"], weights["half"]
    assert a.tolist() == [[0, 1, 2], [3, 4, 5]] and weights["b"].tolist() == -7
    assert half.dtype == numpy.uint16 and half.tolist() == [0x3F80, 0x4000]
    assert not a.flags.writeable and weights["none"].shape == (0, 4) and weights["odd"].tobytes() == b"abc"
    weights.close()
    del weights
    gc.collect()
    gpumem.weights.remove(name, session)
    assert a.sum() == 15


def test_without_numpy_there_are_views(on_host, session, model, name, monkeypatch):
    gpumem.weights.load(model, name, session=session, progress=False)
    monkeypatch.setitem(sys.modules, "numpy", None)
    with gpumem.weights.attach(name, session=session) as weights:
        assert weights["a"].memoryview().tolist() == [[0, 1, 2], [3, 4, 5]]


class Tensor:
    """A tensor of PyTorch's, as far as it is made of an array."""

    def __init__(self, source):
        self.source, self.dtype, self.shape = gpumem.from_dlpack(source), "uint8", source.shape

    def view(self, dtype):
        self.dtype = dtype
        return self

    def reshape(self, shape):
        self.shape = shape
        return self


def frameworks():
    """What stands in for PyTorch and CuPy."""
    torch, cupy = types.ModuleType("torch"), types.ModuleType("cupy")
    torch.from_dlpack, torch.float32, torch.bfloat16, torch.uint8 = Tensor, "f4", "bf16", "u1"
    torch.empty = lambda shape, dtype, device: (shape, dtype, device)
    cupy.asarray = lambda source: source.__cuda_array_interface__
    return {"torch": torch, "cupy": cupy}


def test_tensors_of_pytorch(session, model, name, monkeypatch, on_gpu):
    gpumem.weights.load(model, name, session=session, progress=False)
    monkeypatch.setitem(sys.modules, "torch", frameworks()["torch"])
    with gpumem.weights.attach(name, kind="torch", session=session) as weights:
        a, half = weights["a"], weights["half"]
        assert (a.dtype, a.shape, half.dtype, half.shape) == ("f4", (2, 3), "bf16", (2,))
        assert a.source.ptr == weights.view("a").ptr and a.source.nbytes == 24
        assert weights["none"] == ((0, 4), "u1", "cuda:0") and weights["odd"].dtype == "u1"
    assert not a.source.closed  # the tensor keeps the memory


def test_arrays_of_cupy(session, model, name, monkeypatch, on_gpu):
    gpumem.weights.load(model, name, session=session, progress=False)
    monkeypatch.setitem(sys.modules, "cupy", frameworks()["cupy"])
    with gpumem.weights.attach(name, kind="cupy", session=session) as weights:
        assert weights["a"]["shape"] == (2, 3) and weights["a"]["data"][0] == weights.view("a").ptr
        assert weights["half"]["typestr"] == "<u2"  # CuPy has no such type: the bits


@pytest.mark.parametrize("imported, kind", [([], gpumem.View), (["cupy"], dict), (["torch"], Tensor), (["cupy", "torch"], Tensor)])
def test_the_framework_that_the_program_has_imported(session, model, name, monkeypatch, on_gpu, imported, kind):
    gpumem.weights.load(model, name, session=session, progress=False)
    for module, stand_in in frameworks().items():
        monkeypatch.delitem(sys.modules, module, raising=False)
        if module in imported:
            monkeypatch.setitem(sys.modules, module, stand_in)
    with gpumem.weights.attach(name, session=session) as weights:
        assert type(weights["a"]) is kind


def test_a_folder_of_shards(session, name, tmp_path):
    write_safetensors(tmp_path / "one.safetensors", [("a", "U8", [3], b"abc")])
    write_safetensors(tmp_path / "two.safetensors", [("b", "U8", [2], b"de"), ("c", "U8", [1], b"f")])
    index = {"metadata": {"total_size": 6}, "weight_map": {"a": "one.safetensors", "b": "two.safetensors", "c": "two.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert gpumem.weights.load(tmp_path, name, session=session, progress=False) == 1
    with gpumem.weights.attach(name, kind="view", session=session) as weights:
        assert sorted(weights) == ["a", "b", "c"]
        assert bytes(weights["b"].base.read(2, weights["b"].ptr - weights["b"].base.ptr)) == b"de"
    index["weight_map"]["c"] = "../two.safetensors"
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(gpumem.InvalidError, match="model.safetensors.index.json"):
        gpumem.weights.load(tmp_path, name, session=session, progress=False, replace=True)
    assert [entry.version for entry in gpumem.weights.entries(session)] == [1]


def test_the_owner_by_number_and_by_name(session, model, name):
    gpumem.weights.load(model, name, session=session, progress=False)
    names = [user.pw_name for user in pwd.getpwall() if user.pw_uid == os.getuid()]  # a user may have none
    for owner in [os.getuid()] + names[:1]:
        with gpumem.weights.attach("uid:%s/%s" % (owner, name), session=session) as weights:
            assert len(weights) > 0
        assert session.metadata("uid:%s/%s" % (owner, name)).version == 1
    for call in (gpumem.weights.attach, gpumem.weights.remove, session.attach):
        with pytest.raises(gpumem.InvalidError, match="no user 'no-such-user'"):
            call("uid:no-such-user/%s" % name)


def test_versions(session, model, name):
    gpumem.weights.load(model, name, session=session, progress=False)
    with pytest.raises(gpumem.BusyError, match="already, version 1"):
        gpumem.weights.load(model, name, session=session, progress=False)
    assert gpumem.weights.load(model, name, session=session, progress=False, replace=True) == 2
    with pytest.raises(gpumem.NotFoundError, match="has version 2 now"):
        gpumem.weights.attach(name, version=1, session=session)


def test_what_is_wrong_is_an_exception_and_publishes_nothing(session, model, name, tmp_path):
    class Stop(Exception):
        pass

    def stop(done, total):
        raise Stop

    with pytest.raises(Stop):
        gpumem.weights.load(model, name, session=session, progress=stop)
    bad = tmp_path / "bad"
    bad.write_bytes(struct.pack("<Q", 1 << 63) + b"{}")
    with pytest.raises(gpumem.InvalidError, match="bad, byte 0: the header has 9223372036854775808 bytes"):
        gpumem.weights.load(bad, name, session=session)
    with pytest.raises(gpumem.NotFoundError):
        gpumem.weights.load(tmp_path / "nowhere", name, session=session)
    with pytest.raises(gpumem.NotFoundError):
        gpumem.weights.attach(name, session=session)
    with pytest.raises(gpumem.NotFoundError):
        gpumem.weights.remove(name, session)
    with pytest.raises(gpumem.InvalidError):
        gpumem.weights.attach(name, kind="tensorflow", session=session)
    assert gpumem.weights.entries(session) == []


@pytest.mark.parametrize("tensors, said", [
    ({"a": [0, 8], "b": [4, 12]}, "overlap"),
    ({"a": [0, 8], "b": [8, 1 << 40]}, "byte"),
    ({"a": [8, 0]}, "byte"),
    ({"a": [0, 7]}, "byte"),
], ids=["overlapping", "beyond the end", "backwards", "another size than its shape"])
def test_a_damaged_file_is_refused_with_its_place(session, name, tmp_path, tensors, said):
    path = tmp_path / "damaged.safetensors"
    text = json.dumps({key: {"dtype": "F32", "shape": [2], "data_offsets": place} for key, place in tensors.items()}).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(12))
    with pytest.raises(gpumem.InvalidError, match=said) as raised:
        gpumem.weights.load(path, name, session=session, progress=False)
    assert str(path) in str(raised.value) and gpumem.weights.entries(session) == []


def test_the_bar(monkeypatch):
    """One line, which is gone at the end."""
    import io

    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    gpumem.weights._bar(1 << 30, 4 << 30)
    assert "[#######                       ]  25%  1.0 of 4.0 GiB" in stream.getvalue() and "\n" not in stream.getvalue()
    gpumem.weights._bar(4 << 30, 4 << 30)
    assert stream.getvalue().endswith("\r\033[K")


def test_the_module_needs_no_import_of_its_own():
    code = "import gpumem; print(gpumem.weights.load.__name__); gpumem.nothing"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
    assert done.stdout == "load\n"
    assert "AttributeError: module 'gpumem' has no attribute 'nothing'" in done.stderr
