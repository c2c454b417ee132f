"""A setuid program that uses NNAPI runs no code and writes no file that its caller chose.

The caller here is user `nobody`; the program is root's. It is made in a folder of its own, since only root
may enter pytest's.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from capi.conftest import Compile
from capi.programs import ADD, HEAD
from nnburst.capi import installed
from programs import as_user

CALLER = 65534
pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can make a program of root's setuid"
)

#: Prints its effective user and 1 + 2.
PROGRAM = (
    HEAD
    + ADD
    + r"""
int main(void) {
    for (int i = 0; i < ELEMENTS; i++) {
        a[i] = 1.0f;
        b[i] = 2.0f;
    }
    ANeuralNetworksCompilation *compilation = compiled(add_model());
    CHECK(ANeuralNetworksExecution_compute(ready(compilation, false)));
    ANeuralNetworksCompilation_free(compilation);
    printf("%d %g\n", (int)geteuid(), (double)sum[0]);
    return 0;
}
"""
)

#: Leaves a file once it is loaded; its name is made from a variable that the caller sets.
PAYLOAD = r"""
#include <stdio.h>
#include <stdlib.h>
__attribute__((constructor)) static void run(void) {
    FILE *file = fopen(getenv("MARK"), "w");
    if (file != NULL) {
        (void)fclose(file);
    }
}
"""


@dataclass
class Setuid:
    """A setuid program of root's, and a folder in which its caller may do as it likes."""

    program: Path
    callers: Path

    @property
    def mark(self) -> Path:
        """A file that code of the caller's leaves when it runs."""
        return self.callers / "ran"

    def run(self, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run it as its caller does, with nothing but `environment`."""
        return subprocess.run(
            as_user(CALLER, [str(self.program)], {"MARK": str(self.mark), **environment}),
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )


@pytest.fixture
def setuid(compile_program: Compile) -> Iterator[Setuid]:
    with tempfile.TemporaryDirectory(prefix="nnburst-setuid-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        library = folder / "libneuralnetworks.so"
        shutil.copy(installed.LIBRARY, library)
        (folder / "libneuralnetworks.python").write_text(sys.executable + "\n")
        built = compile_program(PROGRAM, f"-L{folder}", f"-Wl,-rpath,{folder}")
        program = folder / "program"
        shutil.copy(built, program)
        program.chmod(0o4755)
        callers = folder / "callers"
        callers.mkdir()
        os.chown(callers, CALLER, CALLER)
        probe = folder / "probe"
        shutil.copy("/usr/bin/id", probe)
        probe.chmod(0o4755)
        done = subprocess.run(
            as_user(CALLER, [str(probe), "-u"], {}), capture_output=True, text=True, check=True
        )
        if done.stdout != "0\n":
            pytest.skip("this machine gives setuid programs no rights (nosuid or no_new_privs)")
        yield Setuid(program, callers)


def python_of_the_callers(setuid: Setuid, compile_program: Compile) -> Path:
    """An environment whose Python library is the caller's; its interpreter."""
    home = setuid.callers / "environment"
    (home / "bin").mkdir(parents=True)
    (home / "lib").mkdir()
    program = home / "bin" / "python3"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    (home / "pyvenv.cfg").write_text(f"home = {home}/bin\nversion = 3.11.7\n")
    library = compile_program(PAYLOAD, "-shared", "-fPIC", name="payload")
    shutil.copy(library, home / "lib" / "libpython3.11.so.1.0")
    (home / "lib" / "libpython3.11.so.1.0").chmod(0o755)
    return program


def test_the_python_that_the_caller_names_is_not_loaded(
    setuid: Setuid, compile_program: Compile
) -> None:
    program = python_of_the_callers(setuid, compile_program)
    beside = setuid.program.with_name("libneuralnetworks.python")
    named = setuid.run(NNBURST_PYTHON=str(program))
    assert named.stdout == "0 3\n", named.stderr
    beside.unlink()
    active = setuid.run(VIRTUAL_ENV=str(program.parent.parent))
    assert "no Python environment with nnburst" in active.stderr
    assert not setuid.mark.exists()


def test_drivers_run_nothing_that_the_caller_put_on_their_path(setuid: Setuid) -> None:
    folder = setuid.callers / "modules"
    folder.mkdir()
    touch = "import os; open(os.environ.get('MARK') or {mark!r}, 'w').close()\n"
    for name in ("sitecustomize", "usercustomize", "numpy", "chosen"):
        (folder / f"{name}.py").write_text(touch.format(mark=str(setuid.mark)))
    done = setuid.run(
        PYTHONPATH=str(folder),
        PYTHONSTARTUP=str(folder / "chosen.py"),
        PYTHONUSERBASE=str(folder),
        PATH=f"{folder}:/usr/bin:/bin",
        NNBURST_DEVICES="mine=chosen:Executor",
    )
    assert done.stdout == "0 3\n", done.stderr
    assert not setuid.mark.exists()


def test_no_file_is_written_to_folders_of_the_caller(setuid: Setuid) -> None:
    written = setuid.callers / "written"
    written.mkdir()
    os.chown(written, CALLER, CALLER)
    done = setuid.run(
        **dict.fromkeys(("HOME", "TMPDIR", "TMP", "TEMP"), str(written)),
        **dict.fromkeys(("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"), str(written)),
        NNBURST_EXECUTION_COUNTS=str(written),
        NNBURST_GRAPH_DIR=str(written),
        NNBURST_TRACE=str(written / "trace"),
        NNBURST_TRACE_MARKER=str(written / "marker"),
        NNBURST_LOG="DEBUG",
    )
    assert done.stdout == "0 3\n", done.stderr
    assert done.stderr == ""
    assert [str(path) for path in written.rglob("*")] == []


def test_children_start_isolated_with_an_environment_of_their_own(setuid: Setuid) -> None:
    """Seen from Python in a setuid program: the only privileged Python that a test can look into."""
    launcher = setuid.program.with_name("launcher.c")
    question = (
        "import json; from nnburst.hal.utils import"
        " inherited_environment, is_privileged, python_command;"
        " from nnburst.hal.environment import GRAPH_DIR; from nnburst.control.address import"
        " cache_directory; print(json.dumps([is_privileged(), python_command(), inherited_environment(),"
        " GRAPH_DIR.is_set, str(cache_directory())]))"
    )
    launcher.write_text(
        f"#include <unistd.h>\n#define PYTHON {json.dumps(sys.executable)}\n"
        f'int main(void) {{ return execl(PYTHON, PYTHON, "-I", "-c",'
        f" {json.dumps(question)}, (char *)0); }}\n"
    )
    program = launcher.with_suffix("")
    subprocess.run(["gcc", launcher, "-o", program], check=True, timeout=60)
    program.chmod(0o4755)
    done = subprocess.run(
        [program],
        user=CALLER,
        env={"HOME": str(setuid.callers), "NNBURST_GRAPH_DIR": "/tmp", "PYTHONPATH": "/nowhere"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    privileged, command, environment, is_set, cache = json.loads(done.stdout)
    assert privileged
    assert command[1:] == ["-I"]
    assert set(environment) == {"PATH", "LANG"}
    assert not is_set
    assert not cache.startswith(str(setuid.callers))
