# SPDX-License-Identifier: Apache-2.0
"""The type hints are right, and programs have the use of them: mypy finds nothing in the package, and nothing of an unknown type in a
program that uses all of it."""
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import public
import pytest

SOURCE = Path(os.environ.get("top_srcdir", Path(__file__).resolve().parents[2])).resolve()
PROGRAM = SOURCE / "tests" / "python" / "every_call.py"


@pytest.mark.parametrize("version, numpy", [("3.9", False), ("3.13", True)])
def test_mypy_finds_nothing(version, numpy, on_host, tmp_path):
    mypy = shutil.which("mypy")
    if mypy is None:
        pytest.skip("there is no mypy: install it")
    cache = str(Path(os.environ.get("top_builddir", str(tmp_path))).resolve() / "tests" / "python" / ".mypy_cache")
    # The frameworks are optional, so their types may be missing.
    options = ["--strict", "--ignore-missing-imports", "--config-file=", "--cache-dir", cache, "--python-version", version]
    if not numpy:
        options.append("--no-site-packages")
    done = subprocess.run([mypy] + options + [str(SOURCE / "python" / "gpumem"), str(PROGRAM)], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, universal_newlines=True, cwd=str(tmp_path),
                          env=dict(os.environ, MYPYPATH=str(SOURCE / "python")))
    assert done.returncode == 0, done.stdout


def test_the_program_uses_everything(on_host):
    used = set(re.findall(r"\w+", PROGRAM.read_text()))
    assert ", ".join(sorted({name for _, name, _ in public.things()} - used)) == ""


def test_the_program_runs(on_host, numpy, model):
    done = subprocess.run([sys.executable, str(PROGRAM), str(model)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          universal_newlines=True)
    assert done.returncode == 0 and done.stdout.startswith("all of gpumem"), done.stdout
