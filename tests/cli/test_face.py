"""All commands keep rules for options in messages, 80 columns, Ctrl-C, progress and open dimensions."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nnburst
from importer.onnx.graphs import model, node, value
from nnburst.cli import main, output
from nnburst.cli.output import plain_table, progress
from nnburst.cli.run import summary
from nnburst.hal.environment import variables
from nnburst.hal.model import Operand
from nnburst.testing.models.network_file import from_picture, takes_picture
from shared_drivers import connect_to

PATIENCE = 60

#: What only Python's functions are given, as messages spell it.
OF_PYTHON = re.compile(
    r"(?<!-)\b(shapes|constants|states|as_graph|exact)\b\s*(=|\[|:|,)|nnburst\.load"
)


def written(folder: Path, name: str, operation: str, dims: tuple[object, ...]) -> Path:
    """An ONNX file of one operation on `images`."""
    made = model(
        [node(operation, "images", "y")],
        [value("images", "f4", dims)],
        [value("y", "f4", tuple(None for _ in dims))],
    )
    path = folder / name
    path.write_bytes(made.SerializeToString())
    return path


OPEN = ("n", 3, "height", "width")
ARGUMENTS = [
    (OPEN, ["--no-as-graph"], "give --shape images=…,3,…,…"),
    (OPEN, ["--shape", "images=1,4,2,2"], "--shape images: [1, 4, 2, 2], the file declares"),
    (OPEN, ["--shape", "pictures=1,3,2,2"], "--shape pictures: not an input of the network"),
    (OPEN, ["--constant", "rate=1", "--shape", "images=1,3,2,2"], "--constant rate: not an input"),
    ((2,), ["--state", "a=b"], "--state: 'a' from 'b', the inputs are ['images']"),
    (
        (2,),
        ["--as-graph", "--state", "images=y"],
        "or with `nnburst serve`, not with another command",
    ),
    ((2,), ["--as-graph", "--exact"], "--exact: given, but a whole graph"),
]


@pytest.mark.parametrize("command", ["run", "inspect"])
@pytest.mark.parametrize(("dims", "words", "said"), ARGUMENTS)
def test_a_message_of_a_command_names_the_commands_option(
    dims: tuple[object, ...],
    words: list[str],
    said: str,
    command: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = written(tmp_path, "n.onnx", "Relu", dims)
    assert main([command, str(path), *words]) == 1
    shown = capsys.readouterr().err
    assert said in shown
    assert OF_PYTHON.search(shown.replace(str(path), "")) is None, shown


def test_a_message_of_pythons_names_the_argument(tmp_path: Path) -> None:
    path = written(tmp_path, "n.onnx", "Relu", OPEN)
    with pytest.raises(nnburst.InvalidArgument, match=r"give shapes=\{'images': \(…, 3, …, …\)\}"):
        nnburst.load(path, as_graph=False)


@contextmanager
def serving(name: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    """`nnburst serve`, once it says where; or ended."""
    command = [sys.executable, "-m", "nnburst", "serve", name, "--executor", "reference", *words]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_open_dimensions_of_a_served_network_are_given_behind_its_name(tmp_path: Path) -> None:
    first, second = (written(tmp_path, f"{at}.onnx", "Relu", OPEN) for at in "ab")
    words = ["--model", f"a={first}", "--shape", "images=1,3,4,5"]
    words += ["--model", f"b={second}", "--shape", "images=2,3,8,8"]
    with serving(str(tmp_path / "driver"), *words) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with nnburst.connect(tmp_path / "driver") as device:
            for name, shape in (("a", (1, 3, 4, 5)), ("b", (2, 3, 8, 8))):
                with device.model(name) as network:
                    assert network.inputs[0].dimensions == shape
                    x = np.full(shape, -1, np.float32)
                    assert not network.execute([x]).outputs[0].any()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--shape", "x=1"], "--shape: 'x=1', expected behind the --model that it is for"),
        (["--model", "a=FILE", "--shape", "images=0"], "--shape: '0', expected extents above 0"),
        (["--model", "a=FILE", "--shape", "x=1"], "--shape x: not an input of the network"),
    ],
)
def test_a_wrong_shape_of_a_served_network_is_named(
    words: list[str], said: str, tmp_path: Path
) -> None:
    path = written(tmp_path, "a.onnx", "Relu", OPEN)
    with serving(
        str(tmp_path / "driver"), *(word.replace("FILE", str(path)) for word in words)
    ) as process:
        _, shown = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert said in shown


# -- Pictures and classes


def float_input(*extents: int) -> Operand:
    builder = nnburst.ModelBuilder()
    x = builder.input(nnburst.OperandType.TENSOR_FLOAT32, extents)
    y = builder.output(nnburst.OperandType.TENSOR_FLOAT32, extents)
    builder.operation(nnburst.OperationType.RELU, [x], [y])
    main_graph = builder.build().main
    return main_graph.operands[main_graph.input_indexes[0]]


@pytest.mark.parametrize("extents", [(1, 3, 4, 6), (3, 4, 6)])
def test_a_picture_goes_into_an_input_whose_channels_come_first(extents: tuple[int, ...]) -> None:
    pytest.importorskip("PIL", reason="needs Pillow")
    rng = np.random.default_rng(0)
    picture = rng.integers(0, 256, (4, 6, 3), np.uint8)
    assert takes_picture(float_input(*extents))
    found = from_picture(picture, float_input(*extents)).reshape(3, 4, 6)
    np.testing.assert_allclose(np.moveaxis(found, 0, 2) * 255, picture, atol=1e-3)


def test_channels_come_last_if_both_can_be() -> None:
    pytest.importorskip("PIL", reason="needs Pillow")
    picture = np.arange(9, dtype=np.uint8).reshape(3, 1, 3)
    found = from_picture(picture, float_input(1, 3, 1, 3)).reshape(3, 1, 3)
    np.testing.assert_allclose(found * 255, picture, atol=1e-3)


@pytest.mark.parametrize(
    ("values", "labels", "top", "listed"),
    [
        ([0.7, 0.2, 0.1], [], None, True),
        ([0.7, 0.2, 3.1], [], None, False),
        ([-1.0, 1.0, 1.0], [], None, False),
        ([0.7, 0.2, 3.1], [["a", "b", "c"]], None, True),
        ([0.7, 0.2, 3.1], [["a", "b"]], None, False),
        ([0.7, 0.2, 3.1], [], 2, True),
    ],
)
def test_most_likely_classes_are_listed_only_of_classifiers(
    values: list[float], labels: list[list[str]], top: int | None, listed: bool
) -> None:
    given = np.float32([values])
    assert ("top" in summary("y", given, float_input(1, 3), labels, top)) is listed


# -- What is printed

WORDS = st.text("ab c/0123456789.-", max_size=60)


@given(st.data(), st.integers(1, 14))
def test_every_table_fits_80_columns_and_loses_nothing(data: st.DataObject, columns: int) -> None:
    heads = data.draw(
        st.lists(st.text("abc ", min_size=1, max_size=20), min_size=columns, max_size=columns)
    )
    rows = data.draw(st.lists(st.lists(WORDS, min_size=columns, max_size=columns), max_size=4))
    text = plain_table("T", heads, rows)
    assert max(map(len, text.splitlines())) <= 80
    marks = "".join(sorted("".join(text.split())))
    for row in rows:
        for cell in row:
            for mark in set(cell) - {" ", "-"}:
                assert marks.count(mark) >= cell.count(mark)


def test_numbers_of_a_wide_table_stay_whole_and_words_go_on_below() -> None:
    row = ["a long reason for which something is " + "so " * 10, "123456789012345", "0.5"]
    lines = plain_table("T", ["why", "bytes", "share"], [row]).splitlines()
    assert "123456789012345" in lines[3]
    assert len(lines) > 4


def test_head_of_a_column_of_short_numbers_stays_whole_beside_a_long_name() -> None:
    columns = ["name", "maker", "state", "flavour", "element", "capacity"]
    row = ["/" + "n" * 60, "4955", "stale", "synchronized", "4", "1048576"]
    assert plain_table("", columns, [row]).splitlines()[0].split() == columns


def test_a_long_step_prints_a_line_every_ten_seconds_into_a_pipe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [100.0]
    monkeypatch.setattr(output.time, "monotonic", lambda: now[0])
    with progress("working", 40) as advance:
        for _ in range(40):
            now[0] += 1
            advance(1)
    assert capsys.readouterr().out.splitlines() == [
        "working ...",
        *(f"working ... {done} of 40" for done in (10, 20, 30, 40)),
    ]


def test_env_lists_what_users_may_set_and_with_all_the_rest(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in variables():
        monkeypatch.delenv(variable.name, raising=False)
    assert main(["env"]) == 0
    shown = capsys.readouterr().out
    assert "NNBURST_DEVICES" in shown
    assert "NNBURST_KILLS" not in shown
    assert main(["env", "--all"]) == 0
    assert "NNBURST_KILLS" in capsys.readouterr().out
    monkeypatch.setenv("NNBURST_KILLS", "4")
    assert main(["env"]) == 0
    assert "NNBURST_KILLS" in capsys.readouterr().out


# -- Ctrl-C

LONG = {
    "run": ["run", "FILE", "--input", "X", "--repeat", "100000000", "--executor", "reference"],
    "serve": ["serve", "DRIVER", "--executor", "null"],
    "stress": ["stress", "--seconds", "600"],
    "conformance": ["conformance", "--executor", "reference", "--profile", "generated"],
    "fuzz packets": ["fuzz", "packets", "--packets", "100000000"],
    "fuzz queue": ["fuzz", "queue", "--queues", "100000000"],
    "bench burst": ["bench", "burst", "--rounds", "100000"],
    "bench queue": ["bench", "queue", "--only", "periods", "--seconds", "600"],
}


@pytest.mark.every_day("serve")
@pytest.mark.parametrize("name", LONG)
def test_ctrl_c_ends_a_command_in_one_line_with_130(name: str, tmp_path: Path) -> None:
    path = written(tmp_path, "n.onnx", "Relu", (2,))
    np.save(tmp_path / "x.npy", np.zeros(2, np.float32))
    places = {"FILE": path, "X": tmp_path / "x.npy", "DRIVER": tmp_path / "driver"}
    words = [str(places.get(word, word)) for word in LONG[name]]
    assert interrupted(words, tmp_path, is_at_work) == (130, "nnburst: interrupted\n")


def test_ctrl_c_ends_top_in_one_line_with_130(tmp_path: Path) -> None:
    pytest.importorskip("prometheus_client", reason="needs the extra metrics")
    pytest.importorskip("rich", reason="needs the extra cli")
    asked = threading.Event()

    class Metrics(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"# TYPE nnburst_clients gauge\nnnburst_clients 0\n")
            asked.set()

        def log_message(self, *_words: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Metrics) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            words = ["top", f"127.0.0.1:{server.server_port}"]
            found = interrupted(words, tmp_path, lambda *_: asked.is_set())
        finally:
            server.shutdown()
            thread.join()
    assert found == (130, "nnburst: interrupted\n")


def test_interrupted_command_ends_with_130_in_code_made_of_text_too(
    make_module: Callable[[str, str], None],
) -> None:
    """As dataclasses make it while they are imported; Python notes that Ctrl-C ended such code."""
    program = """
        import sys
        from nnburst import cli
        cli._load = lambda _name: exec("raise KeyboardInterrupt")
        sys.argv = ["nnburst", "env"]
        sys.exit(cli.main())
    """
    make_module("interrupted_program", textwrap.dedent(program))
    command = [sys.executable, "-m", "interrupted_program"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert (done.returncode, done.stderr) == (130, "nnburst: interrupted\n")


def interrupted(
    words: list[str], folder: Path, at_work: Callable[[int, Path], bool]
) -> tuple[int, str]:
    """A command's status and stderr if Ctrl-C is pressed once it is at work."""
    said, printed = folder / "stderr", folder / "stdout"
    with said.open("w") as errors, printed.open("w") as out:
        command = [sys.executable, "-m", "nnburst", *words]
        process = subprocess.Popen(
            command, cwd=folder, stdout=out, stderr=errors, start_new_session=True
        )
        try:
            deadline = time.monotonic() + PATIENCE
            while not at_work(process.pid, printed):
                assert time.monotonic() < deadline, "it has done nothing"
                assert process.poll() is None, said.read_text()
                time.sleep(0.05)
            status = None
            while status is None and time.monotonic() < deadline + PATIENCE:
                os.killpg(
                    process.pid, signal.SIGINT
                )  # as a terminal does; users press it again, too
                with contextlib.suppress(subprocess.TimeoutExpired):
                    status = process.wait(PATIENCE / 4)
            assert status is not None, "it goes on"
        finally:
            process.kill()
            process.wait()
    return status, said.read_text()


def is_at_work(pid: int, printed: Path) -> bool:
    """Whether it has printed, or has used two seconds of a core: its imports are done."""
    ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return printed.stat().st_size > 0 or sum(map(int, ticks)) > 2 * os.sysconf("SC_CLK_TCK")


# -- Objects


def test_models_print_in_a_line_of_at_most_200_characters() -> None:
    builder = nnburst.ModelBuilder()
    x = builder.input(nnburst.OperandType.TENSOR_FLOAT32, (1000,))
    for _ in range(200):
        y = builder.temporary(nnburst.OperandType.TENSOR_FLOAT32, (1000,))
        builder.operation(nnburst.OperationType.RELU, [x], [y])
        x = y
    out = builder.output(nnburst.OperandType.TENSOR_FLOAT32, (1000,))
    builder.operation(nnburst.OperationType.RELU, [x], [out])
    made = builder.build()
    shown = [repr(made), repr(nnburst.ImportedModel(made, description="x" * 1000))]
    with connect_to("reference") as device, device.prepare(made) as prepared:
        shown += [repr(device), repr(prepared)]
        with prepared.open_burst() as burst:
            shown += [repr(burst), repr(burst.bind()), repr(burst.function())]
    with nnburst.compile(made) as compiled:
        shown += [repr(compiled)]
    assert [text for text in shown if len(text) > 200 or "\n" in text] == []
    assert "201 operations" in shown[0]


def test_bursts_of_a_compiled_model_go_on_when_it_is_closed() -> None:
    builder = nnburst.ModelBuilder()
    x = builder.input(nnburst.OperandType.TENSOR_FLOAT32, (2,))
    y = builder.output(nnburst.OperandType.TENSOR_FLOAT32, (2,))
    builder.operation(nnburst.OperationType.RELU, [x], [y])
    compiled = nnburst.compile(builder.build())
    given = np.float32([-1, 2])
    with compiled.open_burst() as burst:
        bound = burst.bind([given])
        compiled.close()
        assert bound.run().outputs[0].tolist() == [0, 2]
        assert burst.execute([given]).outputs[0].tolist() == [0, 2]
        with pytest.raises(nnburst.Closed):
            compiled.open_burst()
        with pytest.raises(nnburst.Closed):
            compiled.execute([given])


@pytest.mark.campaign
def test_conformance_tries_the_basic_profile_unless_another_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    report = tmp_path / "report.json"
    words = ["conformance", "--device", "reference", "--operation", "RELU", "--json", str(report)]
    assert main(words) == 0
    assert json.loads(report.read_text())["about"]["profile"] == "basic"
