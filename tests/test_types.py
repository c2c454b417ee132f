"""Type checkers find the mistakes of a user's program, on every stack, and complete what is right.

Lines that end with `# mistake` are planted; a checker must object to these and to no others.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
#: Apart from the cache of `make lint`, whose options are others.
CACHE = ROOT / ".mypy_cache" / "programs"
PATIENCE = 300

HEAD = """\
import asyncio

import numpy as np

import nnburst
import nnburst.fmq

x = np.zeros((1, 4), np.float32)
"""

#: How a program comes to a burst, and to what else executes: by the name of the stack.
STACKS = {
    "a_driver": """\
nnburst.launch(executer="reference")  # mistake
device = nnburst.launch("reference")
device.prepare(nnburst.load("network.tflite"), preferences=1)  # mistake
model = device.prepare(nnburst.load("network.tflite"))
model.open_burst(max_inflight=2)  # mistake
burst = model.open_burst(max_in_flight=2)
buffer = device.allocate_buffer([(model, 0)])
burst.execute([buffer], [buffer])
burst.bind([buffer])  # mistake
""",
    "a_recovering_driver": """\
nnburst.launch("reference", recover=1.5)  # mistake
nnburst.launch("reference", recover="rise")  # mistake
device = nnburst.launch("reference", recover="raise")
imported = nnburst.load("network.tflite")
model = device.prepare(imported)
model.open_burst(state=imported.states)  # mistake
model.open_burst(recover="soon")  # mistake
burst = model.open_burst(states=imported.states, recover="wait")
""",
    "a_served_model": """\
nnburst.connect("vision", recover=True).modell("mobilenet")  # mistake
model = nnburst.connect("vision", recover=True).model("mobilenet")
model.open_burst(spin=0.1)  # mistake
burst = model.open_burst(spin_window=0.1)
""",
    "a_compiled_model": """\
nnburst.compile("network.tflite", device=["litert"])  # mistake
nnburst.compile("network.tflite", recover="rise")  # mistake
model = nnburst.compile("network.tflite", devices=["litert"], recover="raise")
model.open_burst(channel_length=4)  # mistake
burst = model.open_burst(max_in_flight=2, states=nnburst.load("network.tflite").states)
""",
}

BODY = """\
model.execute(x)  # mistake
model.execute([x], mesure=True)  # mistake
model.execute([x], timeout="4 ms")  # mistake
model.execute([x], [x], measure=True, timeout=0.004)
model.execute_async(x)  # mistake
burst.execute(x)  # mistake
burst.execute([x], mesure=True)  # mistake
burst.execute([x], timeout=0.004, copy=False)
burst.bind(x)  # mistake
burst.bind([x], measured=True)  # mistake
bound = burst.bind([x], measure=True)
bound.run("4 ms")  # mistake
bound.run(time_out=0.004)  # mistake
result = bound.run(timeout=0.004)
result.output  # mistake
result.outputs.mean()  # mistake
mean = float(result.outputs[0].mean())
result.outputs[0].men()  # mistake
burst.function([x])([x])  # mistake
burst.function(x)  # mistake
(y,) = burst.function([x])(x)
y.men()  # mistake
bound.submit().outputs  # mistake
bound.submit(timeout=0.1).result().outputs[0].mean()
burst.run(bound)  # mistake
nnburst.Bursts  # mistake
nnburst.fmq.MessageQueues  # mistake


async def main() -> None:
    bound.run_async()  # mistake
    bound.run_async().outputs  # mistake
    await bound.run_async(time_out=0.004)  # mistake
    (await bound.run_async(timeout=0.004)).outputs[0].mean()
    bound.submit().result_async()  # mistake
    model.execute_async([x]).outputs  # mistake
    await model.execute_async([x], mesure=True)  # mistake
    (await model.execute_async([x], timeout=0.1)).outputs[0].mean()


asyncio.run(main())
"""

QUEUES = """\
nnburst.fmq.MessageQueue.create(np.uint8, 1000, flavour=1)  # mistake
queue = nnburst.fmq.MessageQueue.create(np.uint8, 1000)
queue.write(x, time_out=1.0)  # mistake
queue.write(x, timeout=1.0)
queue.write([1, 2])  # mistake
queue.write(b"ab")
queue.read_into(bytearray(2))
queue.read_into(2)  # mistake
queue.sender(b"ab")()
received = queue.receiver(bytearray(2))()
if received is not None:
    received.append(3)
    received.mean()  # mistake
messages = nnburst.fmq.MessageQueue.create(bytes, 1000)
messages.send(bytearray(2))
messages.send(memoryview(b"ab"))
messages.send(x)
messages.send("ab")  # mistake


async def exchange() -> None:
    queue.read_async(4)  # mistake
    queue.read_async(4).nbytes  # mistake
    (await queue.read_async(4)).nbytes  # mistake
    elements = await queue.read_async(4, timeout=0.1)
    if isinstance(elements, np.ndarray):
        elements.mean()
"""

PROGRAMS = {name: HEAD + opening + BODY for name, opening in STACKS.items()} | {
    "a_queue": HEAD + QUEUES
}
MISTAKES = {
    (name, number)
    for name, program in PROGRAMS.items()
    for number, line in enumerate(program.splitlines(), 1)
    if line.endswith("# mistake")
}

COMPLETED = (
    HEAD
    + """\
with nnburst.launch() as device, device.prepare(nnburst.load("a.tflite")) as prepared:
    with prepared.open_burst() as burst:
        reveal_type(burst)
        reveal_type(burst.execute([x]).outputs[0])
        reveal_type(burst.bind().run().outputs[0])
    reveal_type(prepared.execute([x]).outputs[0])
with nnburst.compile("a.tflite") as compiled, compiled.open_burst() as burst:
    reveal_type(burst)
    reveal_type(compiled.execute([x]).outputs[0])
"""
)


def written(folder: Path) -> Path:
    """A folder with the programs, and with the code of pages, in which there is no mistake."""
    for name, program in {**PROGRAMS, "completed": COMPLETED}.items():
        (folder / f"{name}.py").write_text(program, encoding="utf-8")
    for name in ("deadlines", "loops", "roads", "state", "two_networks"):
        page = (ROOT / "docs" / "how_to" / f"{name}.md").read_text(encoding="utf-8")
        code = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
        (folder / f"{name}.py").write_text("\n".join(code), encoding="utf-8")
    return folder


def checked(words: list[str], folder: Path) -> str:
    """The output of a checker on the programs in a folder."""
    done = subprocess.run(
        words, cwd=folder, capture_output=True, text=True, check=False, timeout=PATIENCE,
        env={**os.environ, "MYPYPATH": ""},
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


def test_mypy_finds_each_mistake_of_a_program_and_no_other(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    words = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--cache-dir",
        str(CACHE),
        "--no-error-summary",
        ".",
    ]
    printed = checked(words, written(tmp_path))
    objections = re.findall(r"^(\w+)\.py:(\d+): error", printed, re.MULTILINE)
    assert {(name, int(number)) for name, number in objections} == MISTAKES, printed
    revealed = re.findall(r'^completed.*Revealed type is "(.*)"', printed, re.MULTILINE)
    kinds = [re.split(r"[\[.]", kind.partition("[")[0])[-1] for kind in revealed]
    assert kinds == ["Burst", "ndarray", "ndarray", "ndarray", "Burst", "ndarray"]


def test_pyright_finds_each_mistake_of_a_program_and_no_other(tmp_path: Path) -> None:
    if find_spec("pyright") is None:
        pytest.skip("needs pyright: pip install 'pyright[nodejs]'")
    words = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "."]
    found = json.loads(checked(words, written(tmp_path)))["generalDiagnostics"]
    objections = {
        (Path(each["file"]).stem, each["range"]["start"]["line"] + 1)
        for each in found
        if each["severity"] in ("error", "warning")
    }
    assert objections == MISTAKES
    revealed = [each["message"] for each in found if each["severity"] == "information"]
    assert [re.sub(r'.* is "(\w+).*', r"\1", message, flags=re.DOTALL) for message in revealed] == [
        "Burst", "ndarray", "ndarray", "ndarray", "Burst", "ndarray",
    ]  # fmt: skip
