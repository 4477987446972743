# SPDX-License-Identifier: Apache-2.0
"""What gpumem._capi says about the C library is what the headers say."""
import ctypes
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from gpumem import _capi, weights
from gpumem.errors import Status

SOURCE = Path(os.environ.get("top_srcdir", Path(__file__).resolve().parents[2]))
HEADERS = sorted(path for path in (SOURCE / "include" / "gpumem").glob("gpumem*.h") if not path.name.startswith("gpumem_ring"))


def program():
    lines = ["#include <stdio.h>", "#include <stddef.h>"] + ["#include <gpumem/%s>" % path.name for path in HEADERS]
    lines += ["int main(void)", "{"]
    for struct in _capi.STRUCTS:
        name = struct.c_name
        lines.append('printf("%s 0 %%zu\\n", sizeof(%s));' % (name, name))
        for field, _ in struct._fields_:
            lines.append('printf("%s.%s %%zu %%zu\\n", offsetof(%s, %s), sizeof(((%s *)0)->%s));' %
                         (name, field, name, field, name, field))
    for name in _capi.CONSTANTS:
        lines.append('printf("%s %%llu 0\\n", (unsigned long long)%s);' % (name.replace(" ", ""), name))
    for status in Status:
        c_name = "GPUMEM_OK" if status == 0 else "GPUMEM_E_" + status.name
        lines.append('printf("%s %%d 0\\n", (int)%s);' % (c_name, c_name))
    lines += ["return 0;", "}"]
    return "\n".join(lines)


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    compiler = shlex.split(os.environ.get("GPUMEM_TEST_CC", "cc"))
    if shutil.which(compiler[0]) is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("capi")
    (folder / "said.c").write_text(program())
    subprocess.run(compiler + ["-I", str(SOURCE / "include"), "-o", str(folder / "said"), str(folder / "said.c")], check=True)
    output = subprocess.run([str(folder / "said")], check=True, stdout=subprocess.PIPE, universal_newlines=True).stdout
    return {line.split()[0]: tuple(int(word) for word in line.split()[1:]) for line in output.splitlines()}


def test_everything_that_is_called_has_types():
    """Without them, ctypes would cut addresses to 32 bits."""
    called = set()
    for path in (SOURCE / "python" / "gpumem").glob("*.py"):
        called |= set(re.findall(r"\.(gpumem_(?!torch_|preload_)\w+)", path.read_text()))
    assert len(called) > 50 and called - set(_capi.FUNCTIONS) - set(weights.FUNCTIONS) == set()


@pytest.mark.parametrize("struct", _capi.STRUCTS, ids=lambda struct: struct.c_name)
def test_a_struct_lies_as_in_c(said, struct):
    # The library may know more members, at the end: the first one, size, tells it how many this side knows.
    size = said[struct.c_name][1]
    assert ctypes.sizeof(struct) <= size
    if not issubclass(struct, _capi.Sized):
        assert ctypes.sizeof(struct) == size
    for name, kind in struct._fields_:
        assert said["%s.%s" % (struct.c_name, name)] == (getattr(struct, name).offset, ctypes.sizeof(kind)), name


def test_constants_are_those_of_c(said):
    for name, value in _capi.CONSTANTS.items():
        assert said[name.replace(" ", "")][0] == value, name


def test_statuses_are_those_of_c(said):
    for status in Status:
        assert said["GPUMEM_OK" if status == 0 else "GPUMEM_E_" + status.name][0] == status
    rows = re.findall(r"X\(GPUMEM_(?:E_)?([A-Z_]+), (\d+)", (SOURCE / "include/gpumem/status.h").read_text())
    assert {name: int(value) for name, value in rows} == {status.name: int(status) for status in Status}


def kind_in_c(words):
    """What ctypes must have for a declaration in C."""
    words = words.strip()
    if re.search(r"_fn\b", words):
        return "function"
    if "*" in words or "[" in words or words.startswith("gpumem_stream"):
        return "pointer"
    for name, kind in (("size_t", ctypes.c_size_t), ("uint32_t", ctypes.c_uint32), ("uint64_t", ctypes.c_uint64),
                       ("double", ctypes.c_double)):
        if re.search(r"\b%s\b" % name, words):
            return kind
    return None if words in ("void", "") else ctypes.c_int  # int, and enums


def kind_in_python(kind):
    if kind is None:
        return None
    if isinstance(kind, type) and issubclass(kind, ctypes._CFuncPtr):
        return "function"
    return "pointer" if kind in (ctypes.c_void_p, ctypes.c_char_p) or hasattr(kind, "contents") else kind


def declarations():
    found = {}
    for path in HEADERS:
        text = re.sub(r"/\*.*?\*/", " ", path.read_text(), flags=re.S)
        for returns, name, takes in re.findall(r"GPUMEM_API\s+([^;()]*?)(gpumem_\w+)\s*\(([^;]*?)\)\s*;", text):
            found[name] = (returns, [word for word in takes.split(",") if word.strip() != "void"])
    return found


def test_functions_are_declared_as_in_c():
    declared = declarations()
    for name, (returns, takes) in _capi.FUNCTIONS.items():
        assert name in declared, "%s() is in no header" % name
        assert kind_in_python(returns) == kind_in_c(declared[name][0]), name
        assert [kind_in_python(kind) for kind in takes] == [kind_in_c(words) for words in declared[name][1]], name


def test_the_library_has_every_function():
    for name in _capi.FUNCTIONS:
        assert _capi.call(name) is not None
