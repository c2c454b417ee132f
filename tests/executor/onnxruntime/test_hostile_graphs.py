from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from importer.onnx.graphs import helper, model, node, onnx, value

pytest.importorskip("onnxruntime", reason="the executor's engine")

import nnburst
from nnburst.executor.base import Argument
from nnburst.executor.built_in import onnxruntime
from nnburst.executor.onnxruntime.executor import check_content
from nnburst.hal.enums import OperandType
from nnburst.hal.errors import DeviceUnavailable, InvalidArgument
from nnburst.hal.whole_graph import GraphParams
from nnburst.importer.imported_model import ImportedModel

SECRET = np.float32([3, 1, 4]).tobytes()


def plain() -> Any:
    return model(
        [node("Add", "x c", "y")], [value("x", "f4", (3,))], [value("y", "f4", (3,))],
        {"c": np.ones(3, np.float32)},
    )  # fmt: skip


def outside(tensor: Any, location: str) -> None:
    """Let a tensor's values lie in another file."""
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)


def with_content(content: bytes, files: tuple[str, ...] = ()) -> ImportedModel:
    """A well-formed model around a client's bytes."""
    good = nnburst.load(plain().SerializeToString(), as_graph=True)
    operands = list(good.model.main.operands)
    params = GraphParams(("x",), ("y",), files)
    pool = np.frombuffer(content, np.uint8)
    location = replace(operands[0].location, length=pool.nbytes)
    operands[0] = replace(
        operands[0], dimensions=(pool.nbytes,), location=location, extra_params=params.pack()
    )
    return ImportedModel(
        replace(good.model, main=replace(good.model.main, operands=tuple(operands))), (pool,)
    )


def prepare(content: bytes, files: tuple[str, ...] = ()) -> None:
    imported = with_content(content, files)
    onnxruntime().prepare(imported.model, list(imported.pools)).close()


def in_initializer(made: Any, location: str) -> None:
    outside(made.graph.initializer[0], location)


def in_attribute(made: Any, location: str) -> None:
    constant = helper.make_node("Constant", [], ["k"], value=made.graph.initializer[0])
    outside(constant.attribute[0].t, location)
    made.graph.node.append(constant)


def in_subgraph(made: Any, location: str) -> None:
    inner = helper.make_graph([node("Identity", "c", "z")], "b", [], [value("z", "f4", (3,))])
    inner.initializer.append(made.graph.initializer[0])
    outside(inner.initializer[0], location)
    made.graph.node.append(node("If", "t", "w", then_branch=inner, else_branch=inner))


def in_function(made: Any, location: str) -> None:
    constant = helper.make_node("Constant", [], ["k"], value=made.graph.initializer[0])
    outside(constant.attribute[0].t, location)
    made.functions.append(
        helper.make_function("local", "F", [], ["k"], [constant], [helper.make_opsetid("", 21)])
    )


def in_sparse_initializer(made: Any, location: str) -> None:
    sparse = made.graph.sparse_initializer.add(dims=[3])
    sparse.values.CopyFrom(made.graph.initializer[0])
    sparse.indices.CopyFrom(onnx.numpy_helper.from_array(np.arange(3), "i"))
    outside(sparse.values, location)


WAYS: list[Callable[[Any, str], None]] = [
    in_initializer, in_attribute, in_subgraph, in_function, in_sparse_initializer,
]  # fmt: skip


@pytest.fixture
def secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that the process may read, beside its directory."""
    inner = tmp_path / "here"
    inner.mkdir()
    (inner / "weights").write_bytes(SECRET)
    (tmp_path / "weights").write_bytes(SECRET)
    monkeypatch.chdir(inner)
    return tmp_path / "weights"


@pytest.mark.parametrize("way", WAYS)
def test_a_graph_names_no_file(way: Callable[[Any, str], None], secret: Path) -> None:
    for location in (str(secret), "weights", "../weights", "*/_ORT_MEM_ADDR_/*"):
        made = plain()
        way(made, location)
        with pytest.raises(InvalidArgument, match=r"names the file|is of type"):
            prepare(made.SerializeToString())


def test_an_address_of_memory_is_not_the_name_of_a_file() -> None:
    made = plain()
    in_initializer(made, "*/_ORT_MEM_ADDR_/*")
    with pytest.raises(InvalidArgument, match="is not the name of a file"):
        prepare(made.SerializeToString(), ("*/_ORT_MEM_ADDR_/*",))


def test_a_compiled_part_names_no_file(secret: Path) -> None:
    made = plain()
    context = helper.make_node("EPContext", ["x"], ["y"], domain="com.microsoft", embed_mode=0)
    del made.graph.node[:]
    made.graph.node.append(context)
    with pytest.raises(InvalidArgument, match="is a EPContext, which may open files"):
        prepare(made.SerializeToString())


def varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(found) + bytes([number])


def test_a_graph_in_two_pieces_hides_nothing() -> None:
    """Protobuf takes both together; a reader that takes the last would not see the first."""
    hidden, shown = plain(), plain()
    in_initializer(hidden, "weights")
    del shown.graph.initializer[:]
    first = hidden.graph.SerializeToString()
    content = b"\x3a" + varint(len(first)) + first + shown.SerializeToString()
    with pytest.raises(InvalidArgument, match="the graph comes twice"):
        check_content(content, ())


def test_an_initializer_that_is_there_twice_hides_nothing() -> None:
    made = plain()
    made.graph.initializer.append(made.graph.initializer[0])
    in_initializer(made, "weights")
    with pytest.raises(InvalidArgument, match="initializer 'c' comes twice"):
        check_content(made.SerializeToString(), ())


def test_a_location_of_64_bits_hides_nothing() -> None:
    """An enumeration's number is cut to 32 bits: 2**32 + 1 means EXTERNAL, too."""
    made = plain()
    in_initializer(made, "weights")
    content = made.SerializeToString().replace(b"\x70\x01", b"\x70" + varint((1 << 32) + 1), 1)
    with pytest.raises(InvalidArgument):
        check_content(content, ())


def test_the_engines_own_format_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="own format"):
        check_content(b"\x08\x0a\x12\x00ORTM" + bytes(64), ())


def test_options_in_a_graphs_metadata_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import os; from nnburst.executor.onnxruntime.native import library; library();"
        "assert 'ORT_LOAD_CONFIG_FROM_MODEL' not in os.environ"
    )
    env = {**os.environ, "ORT_LOAD_CONFIG_FROM_MODEL": "1"}
    subprocess.run([sys.executable, "-c", code], env=env, check=True, timeout=60)


def test_weights_that_came_along_are_used() -> None:
    made = plain()
    in_initializer(made, "weights")
    imported = with_content(made.SerializeToString(), ("weights",))
    main = imported.model.main
    extra = replace(
        main.operands[0],
        dimensions=(12,),
        location=replace(main.operands[0].location, pool_index=1, length=12),
        extra_params=None,
    )
    operands = (*main.operands, extra)
    inputs = (main.operations[0].inputs[0], len(operands) - 1, *main.operations[0].inputs[1:])
    operation = replace(main.operations[0], inputs=inputs)
    pools = (*imported.model.pools, type(imported.model.pools[0])(12, 1))
    changed = replace(
        imported.model, main=replace(main, operands=operands, operations=(operation,)), pools=pools
    )
    secret = np.frombuffer(SECRET, np.uint8)
    prepared = onnxruntime().prepare(changed, [*imported.pools, secret])
    x, y = np.zeros(3, np.float32), np.zeros(3, np.float32)
    bound = prepared.bind([Argument(x.view(np.uint8), (3,))], [Argument(y.view(np.uint8), (3,))])
    bound.run()
    assert y.tolist() == [3, 1, 4]


def test_a_border_that_is_not_the_graphs_is_refused() -> None:
    imported = nnburst.load(plain().SerializeToString(), as_graph=True)
    operands = list(imported.model.main.operands)
    executor = onnxruntime()
    for change, match in (
        ({"dimensions": (4,)}, r"input 'x' is \[3\], the model declares \[4\]"),
        ({"type": OperandType.TENSOR_INT32}, "input 'x' is float"),
    ):
        wrong = list(operands)
        wrong[1] = replace(operands[1], **change)
        changed = replace(imported.model, main=replace(imported.model.main, operands=tuple(wrong)))
        with pytest.raises(InvalidArgument, match=match):
            executor.prepare(changed, list(imported.pools))


def test_names_that_are_not_the_graphs_are_refused() -> None:
    imported = nnburst.load(plain().SerializeToString(), as_graph=True)
    operands = list(imported.model.main.operands)
    operands[0] = replace(operands[0], extra_params=GraphParams(("z",), ("y",)).pack())
    changed = replace(imported.model, main=replace(imported.model.main, operands=tuple(operands)))
    with pytest.raises(InvalidArgument, match=r"the graph has the inputs \['x'\]"):
        onnxruntime().prepare(changed, list(imported.pools))


def test_strings_are_refused_by_name() -> None:
    made = model([node("Identity", "x", "y")], [], [value("y", "f4", (1,))])
    kind = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.STRING, [1])
    made.graph.input.append(kind)
    with pytest.raises(InvalidArgument, match="input 'x' is string"):
        nnburst.load(made.SerializeToString(), as_graph=True)


def test_a_provider_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNBURST_ONNXRUNTIME_PROVIDER", "Abacus")
    with pytest.raises(DeviceUnavailable, match=r"no provider 'Abacus', it has .*CPU"):
        onnxruntime()


def serving(address: Path, *options: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "nnburst", "serve", str(address), "--provider", "Abacus"]
    pipe = subprocess.PIPE
    return subprocess.Popen([*words, *options], stdout=pipe, stderr=pipe, text=True)


def test_a_service_ends_with_the_name_of_the_provider_that_it_cannot_have(tmp_path: Path) -> None:
    with serving(tmp_path / "socket", "--executor", "onnxruntime") as service:
        stdout, stderr = service.communicate(timeout=120)
    assert service.returncode == 1
    assert "listens" not in stdout
    assert re.search(r"no provider 'Abacus', it has .*CPU", stderr)


def test_a_provider_is_for_the_executor_that_has_some(tmp_path: Path) -> None:
    with serving(tmp_path / "socket", "--executor", "reference") as service:
        _, stderr = service.communicate(timeout=120)
    assert service.returncode != 0
    assert "--provider: Abacus, but the executor is reference" in stderr


def test_a_client_brings_no_operators_of_its_own() -> None:
    made = plain()
    made.graph.node[0].domain = "of.a.library"
    made.opset_import.append(helper.make_opsetid("of.a.library", 1))
    with pytest.raises(InvalidArgument, match=r"onnxruntime .*refuses the graph"):
        prepare(made.SerializeToString())


BOMB = """
import resource, sys
import numpy as np
sys.path[:0] = {path!r}
from executor.onnxruntime.test_hostile_graphs import bomb
import nnburst
from nnburst.executor.built_in import onnxruntime
from nnburst.executor.base import Argument
from nnburst.hal.errors import NnburstError
executor = onnxruntime()
imported = nnburst.load(bomb(), as_graph=True)
resource.setrlimit(resource.RLIMIT_DATA, ({limit}, {limit}))
x, y = np.zeros(1, np.float32), np.zeros(1, np.float32)
try:
    prepared = executor.prepare(imported.model, list(imported.pools))
    bound = prepared.bind([Argument(x.view(np.uint8), (1,))], [Argument(y.view(np.uint8), (1,))])
    print("refused:", bound.run().status.name)
except NnburstError as error:
    print("refused:", error.status.name)
"""


def bomb() -> bytes:
    nodes = [
        node("ConstantOfShape", "s", "c"),
        node("Add", "x c", "d"),
        node("ReduceSum", "d", "y", keepdims=0),
    ]
    shape = np.array([400_000_000], np.int64)
    made = model(nodes, [value("x", "f4", (1,))], [value("y", "f4", ())], {"s": shape})
    return bytes(made.SerializeToString())


def test_a_graph_that_folds_to_more_than_the_quota_is_refused() -> None:
    """1.6 GB from 200 bytes, if the worker's quota leaves 1 GiB."""
    code = BOMB.format(path=[str(Path(__file__).parents[2])], limit=1 << 30)
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.stdout.strip() == "refused: RESOURCE_EXHAUSTED_TRANSIENT", ended.stderr
