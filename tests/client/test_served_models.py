"""Networks that a service serves by name, opened from Python."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest

import nnburst
from client.service import Service
from forked_child import true_in_child
from nnburst import InvalidArgument
from nnburst.driver.served_models import engine_of_all
from nnburst.hal.enums import OperationType
from nnburst.hal.model import ExtensionNameAndPrefix
from nnburst.hal.utils import chosen_executor
from serving.networks import both
from shared_drivers import connect_to
from waiting import wait_for

NETWORKS = [f"{name}=serving.networks:{name}" for name in ("add", "both", "accumulate")]


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service(*NETWORKS, "add@3=serving.networks:quantised") as service:
        yield service


def test_client_opens_a_network_by_name_and_hands_over_no_model(service: Service) -> None:
    with nnburst.connect(service.address) as device, device.model("add", 1) as add:
        assert (add.name, add.version) == ("add", 1)
        assert (add.input_names, add.output_names) == (("a", "b"), ("y",))
        assert add.model.main.operations == ()
        a, b = np.arange(6, dtype=np.float32).reshape(2, 3), np.full((2, 3), 10, np.float32)
        np.testing.assert_array_equal(add.execute([a, b]).outputs[0], a + b)
        with add.open_burst() as burst:
            np.testing.assert_array_equal(burst.execute([a, b]).outputs[0], a + b)


def test_names_and_versions_are_listed_and_the_newest_opens(service: Service) -> None:
    with nnburst.connect(service.address) as device:
        assert device.models() == [("accumulate", 1), ("add", 1), ("add", 3), ("both", 1)]
        with device.model("add") as newest:
            assert newest.version == 3
            assert newest.inputs[0].dimensions == (4,)


def test_network_that_is_not_served_is_refused_with_those_that_are(service: Service) -> None:
    with nnburst.connect(service.address) as device:
        with pytest.raises(
            InvalidArgument, match="'add@2' is not served, expected one of: accumulate@1"
        ):
            device.model("add", 2)
        with pytest.raises(InvalidArgument, match="version is -1"):
            device.model("add", -1)
    with connect_to("reference") as launched:
        assert launched.models() == []
        with pytest.raises(InvalidArgument, match="expected one of: none"):
            launched.model("add")


def test_states_begin_with_the_values_of_the_file(service: Service) -> None:
    with (
        nnburst.connect(service.address) as device,
        device.model("accumulate") as model,
        model.open_burst(states=model.states) as burst,
    ):
        stateful = burst.bind()
        stateful.inputs[0][...] = [1, 2]
        stateful.run()
        stateful.run()
        assert stateful.outputs[0].tolist() == [12, 24]


def test_forked_child_may_read_the_first_values_of_states(service: Service) -> None:
    with nnburst.connect(service.address) as device, device.model("accumulate") as model:
        (state,) = model.states
        assert true_in_child(lambda: state.initial.tolist() == [10, 20])
        assert not state.initial.flags.writeable


def double() -> nnburst.Model:
    """x + x."""
    return _of_one(OperationType.ADD)


def square() -> nnburst.Model:
    """x * x."""
    return _of_one(OperationType.MUL)


def _of_one(operation: OperationType) -> nnburst.Model:
    builder = nnburst.ModelBuilder()
    kind = nnburst.OperandType.TENSOR_FLOAT32
    x, y = builder.input(kind, (4,)), builder.output(kind, (4,))
    builder.operation(operation, [x, x, builder.scalar(0)], [y])
    return builder.build()


X = np.arange(4, dtype=np.float32)
DOUBLE, SQUARE = (f"client.test_served_models:{each}" for each in ("double", "square"))


@pytest.fixture
def restarted() -> Iterator[tuple[Service, nnburst.Device]]:
    """A service that tests restart, and a client that recovers."""
    with (
        Service(f"net={DOUBLE}", f"old@7={DOUBLE}") as service,
        nnburst.connect(service.address, recover=True) as device,
    ):
        yield service, device


def restart(service: Service, device: nnburst.Device, *networks: str) -> None:
    """Serve other networks; returns when the client is connected again."""

    def is_back() -> bool:
        try:
            device.models()
        except nnburst.NnburstError:  # from a try before the service listened
            return False
        return True

    ended = threading.Event()
    device.on_death(ended.set)
    service.kill()
    assert ended.wait(60)
    service.start(*networks)
    wait_for(is_back)


def test_recovery_opens_the_version_that_was_the_newest(
    restarted: tuple[Service, nnburst.Device],
) -> None:
    service, device = restarted
    with device.model("net") as model, device.model("net") as other:
        burst = other.open_burst()
        other.close()
        for _ in range(2):
            restart(service, device, f"net={DOUBLE}", f"net@2={SQUARE}")
            assert model.execute([X]).outputs[0].tolist() == (X + X).tolist()
            assert burst.execute([X]).outputs[0].tolist() == (X + X).tolist()
            assert model.version == 1
            with device.model("net") as newest:
                assert newest.version == 2
                assert newest.execute([X]).outputs[0].tolist() == (X * X).tolist()
        burst.close()


def test_version_that_is_no_longer_served_is_named_until_it_is_back(
    restarted: tuple[Service, nnburst.Device],
) -> None:
    service, device = restarted
    with device.model("net") as model, device.model("old") as old:
        restart(service, device, f"net@2={SQUARE}", f"old@7={DOUBLE}")
        with pytest.raises(
            nnburst.DeadObject, match=r"'net@1' is not served, expected one of: net@2, old@7"
        ):
            model.execute([X])
        assert old.execute([X]).outputs[0].tolist() == (X + X).tolist()
        assert old.version == 7
        restart(service, device, f"net={DOUBLE}", f"old@7={DOUBLE}")
        assert model.execute([X]).outputs[0].tolist() == (X + X).tolist()


def test_network_that_looks_different_after_a_restart_is_refused(
    restarted: tuple[Service, nnburst.Device],
) -> None:
    service, device = restarted
    with device.model("net") as model:
        restart(service, device, "net=serving.networks:quantised")
        with pytest.raises(
            nnburst.DeadObject, match="net@1 has other inputs, outputs or states than before"
        ):
            model.execute([X])
        restart(service, device, f"net={DOUBLE}")
        assert model.execute([X]).outputs[0].tolist() == (X + X).tolist()


def test_network_that_is_replaced_under_its_version_answers_alone_after_the_restart(
    restarted: tuple[Service, nnburst.Device],
) -> None:
    service, device = restarted
    with device.model("net") as model, model.open_burst() as burst:
        bound = burst.bind()
        bound.inputs[0][...] = X
        bound.run()
        for network, expected in ((SQUARE, X * X), (DOUBLE, X + X)):
            restart(service, device, f"net={network}")
            with device.model("net") as opened_later:
                for _ in range(3):
                    bound.run()
                    found = [each.execute([X]).outputs[0] for each in (model, burst, opened_later)]
                    assert [each.tolist() for each in (*found, bound.outputs[0])] == [
                        expected.tolist()
                    ] * 4


def test_released_network_stays_prepared_for_who_opens_it_next(service: Service) -> None:
    with nnburst.connect(service.address) as device:
        for _ in range(3):
            with device.model("add", 1) as first, device.model("add", 1) as second:
                first.close()
                pair = [np.ones((2, 3), np.float32)] * 2
                assert second.execute(pair).outputs[0].tolist() == [[2, 2, 2]] * 2


def test_shapes_that_a_network_leaves_open_come_with_each_request(service: Service) -> None:
    with nnburst.connect(service.address) as device, device.model("both") as both:
        five = np.arange(5, dtype=np.int32)
        total, difference = both.execute([five, five]).outputs
        assert (total.tolist(), difference.tolist()) == ([0, 2, 4, 6, 8], [0] * 5)


@pytest.mark.every_day("word", "file", "attribute")
@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["add"], "expected NAME=FILE or NAME@VERSION=FILE"),
        (["add@0=x.tflite"], "a version is a number from 1 on"),
        (["add=serving.networks:add", "add@1=serving.networks:both"], "add@1 comes twice"),
        (["add=missing.tflite"], "missing.tflite: No such file"),
        (["add=serving.networks:DIE"], "is a float, expected a model"),
    ],
    ids=["word", "version", "twice", "file", "attribute"],
)
def test_service_refuses_a_network_that_it_cannot_read(
    words: list[str], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parent.parent))
    command = [sys.executable, "-m", "nnburst", "serve", str(tmp_path / "driver")]
    for word in words:
        command += ["--model", word]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert reason in done.stderr
    assert not (tmp_path / "driver").exists()


@pytest.mark.every_day("Relu-None")
@pytest.mark.parametrize(("operator", "executor"), [("Det", "onnxruntime"), ("Relu", None)])
def test_a_network_that_is_served_whole_has_the_engine_that_runs_it_unless_one_is_named(
    operator: str, executor: str | None, tmp_path: Path
) -> None:
    pytest.importorskip("onnxruntime", reason="runs it")
    graphs = pytest.importorskip("importer.onnx.graphs")
    made = graphs.model(
        [graphs.node(operator, "x", "y")],
        [graphs.value("x", "f4", (2, 2))],
        [graphs.value("y", "f4", () if operator == "Det" else (2, 2))],
    )
    (tmp_path / "network.onnx").write_bytes(made.SerializeToString())
    with Service(f"net={tmp_path / 'network.onnx'}", executor="auto") as service:
        assert service.executor == (executor or chosen_executor())
        with nnburst.connect(service.address) as device, device.model("net") as network:
            found = network.execute([np.float32([[3, 1], [1, 2]])]).outputs[0]
    assert found.reshape(-1).tolist() == ([5] if operator == "Det" else [3, 1, 1, 2])


def test_whole_files_that_two_engines_run_are_refused_together() -> None:
    class Named(NamedTuple):
        name: str
        model: nnburst.Model

    def of(name: str, extension: str) -> Any:
        prefixes = (ExtensionNameAndPrefix(extension, 1),)
        return Named(name, msgspec.structs.replace(both().model, extension_name_to_prefix=prefixes))

    found = [of("a", "dev.nnburst.onnx"), of("b", "vendor.other"), of("c", "dev.nnburst.onnx")]
    assert engine_of_all(found) == "onnxruntime"
    assert engine_of_all(found[1:2]) is None
    with pytest.raises(
        InvalidArgument, match="a by onnxruntime and d by litert: serve them by two services"
    ):
        engine_of_all([*found, of("d", "dev.nnburst.tflite")])
