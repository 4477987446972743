# SPDX-License-Identifier: Apache-2.0
"""gpumem.weights: what one process loads, another one attaches to."""
import gc
import json
import struct
import subprocess
import sys

import pytest

import gpumem
import gpumem.weights


@pytest.fixture
def name(session):
    yield "pytest"
    for entry in gpumem.weights.entries(session):
        gpumem.weights.remove(entry.name, session)


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
