# SPDX-License-Identifier: Apache-2.0
"""The examples run, and print what they should."""
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(os.environ.get("top_srcdir", Path(__file__).resolve().parents[2]))


def run(name, *words):
    done = subprocess.run([sys.executable, str(SOURCE / "examples" / "python" / (name + ".py"))] + list(words), stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, universal_newlines=True)
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.parametrize("words, line", [
    (["worker"], "in use now: 0 bytes"),
    (["idle_notebook", "16"], "cell 2: the table says forty-two"),
    (["turns", "16"], "2 programs took 3 turns each, with 16 MiB"),
    (["turns"], "2 programs took 3 turns each"),
    (["limits"], "3 programs had their share"),
], ids=lambda words: "-".join(words) if isinstance(words, list) else "")
def test_an_example(words, line):
    assert line in run(*words)


def test_programs_in_turns_fit_in_host_memory_together():
    spec = importlib.util.spec_from_file_location("turns", SOURCE / "examples" / "python" / "turns.py")
    turns = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(turns)
    for on_host in range(200 << 20, 210 << 20, 2 << 20):
        assert turns.size_for(1 << 30, on_host) % 2 == 0 and 2 * turns.size_for(1 << 30, on_host) << 20 <= on_host
    assert turns.size_for(90 << 20, 1 << 30) == 60


def test_ten_workers_have_one_copy(on_host, numpy):
    said = run("ten_workers", "8")
    assert said.count("mean 2.50") == 10 and "10 workers, one copy" in said


def test_ten_workers_say_what_they_need(tmp_path):
    """CuPy or PyTorch on a GPU, NumPy on the host, and a daemon."""
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules.update(cupy=None, torch=None, numpy=None)\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])

    def said(**environment):
        done = subprocess.run([sys.executable, str(SOURCE / "examples" / "python" / "ten_workers.py"), "8"], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, universal_newlines=True, env=dict(os.environ, PYTHONPATH=path, **environment))
        assert done.returncode == 1 and done.stdout.startswith("ten_workers: ") and done.stdout.count("\n") == 1, done.stdout
        return done.stdout

    assert ("pip install torch" if os.environ.get("GPUMEM_TEST_BACKEND") == "cuda" else "pip install numpy") in said()
    assert "no daemon listens there" in said(GPUMEM_SOCKET=str(tmp_path / "none"))


@pytest.mark.parametrize("framework, module", [("CuPy", "cupy"), ("Numba", "numba"), ("RMM", "rmm"), ("jax", "jax")])
def test_an_example_without_the_framework(framework, module, tmp_path):
    """tests/gpu/python_examples.py runs them with it."""
    (tmp_path / (module + ".py")).write_text("raise ImportError('No module named %s')" % module)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run([sys.executable, str(SOURCE / "examples" / "python" / ("with_%s.py" % module))], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, universal_newlines=True, env=dict(os.environ, PYTHONPATH=path))
    assert done.returncode == 1 and framework in done.stdout and "No module named " + module in done.stdout


def test_the_readme_has_the_worker():
    readme = (SOURCE / "README.md").read_text()
    program = readme.split("```python\n")[1].split("```")[0]
    assert program == (SOURCE / "examples/python/worker.py").read_text()


def guide():
    """The programs in doc/python.md, with the line that each begins in."""
    text = (SOURCE / "doc" / "python.md").read_text()
    return [(text[:found.start(1)].count("\n") + 1, found.group(1)) for found in re.finditer(r"^```python\n(.*?)^```", text, re.M | re.S)]


def test_the_guide_has_python():
    for line, program in guide():
        compile(program, "doc/python.md:%d" % line, "exec")


def test_the_guide_runs_from_top_to_bottom(on_host, numpy, tmp_path):
    """What names a framework needs a GPU: tests/gpu/python_examples.py."""
    programs = [(line, program) for line, program in guide() if not re.search(r"\b(torch|cupy|numba|rmm|jax)\b", program)]
    assert len(programs) > 8
    for line, program in programs:
        done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True,
                              cwd=str(tmp_path), timeout=120)
        assert done.returncode == 0 and "Error" not in done.stdout, "doc/python.md:%d: %s" % (line, done.stdout)
        if ".events(" in program:  # it prints events, also right after a program that filled the device
            assert re.search(r"^pressure 0 \w+$", done.stdout, re.M), "doc/python.md:%d: %s" % (line, done.stdout)
