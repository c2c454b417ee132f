"""Discovery: which devices there are, in which order, and what is left out (RTT:I1, I10, V36, K1)."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from forked_child import refused_in_child, true_in_child
from nnburst.client.launch import launch
from nnburst.hal.enums import DeviceType, FeatureLevel
from nnburst.hal.errors import Closed, DeadObject, InvalidArgument
from nnburst.runtime import Manager, MemoryDesc
from nnburst.runtime.devices import engine_device
from nnburst.runtime.devices import manager as devices_manager
from nnburst.runtime.devices.device import Device
from nnburst.runtime.devices.driver_device import DriverDevice
from nnburst.runtime.devices.engine_device import EngineDevice
from nnburst.runtime.devices.manager import Settings
from nnburst.runtime.extensions import TypeRegistry
from nnburst.runtime.planning.plan import CompoundPlan, SimplePlan
from nnburst.testing.partitioning.run import uniform
from runtime.building import add_model, bad_data, finished, op_failed
from runtime.computing_device import ComputingDevice
from runtime.devices.conftest import Serve
from waiting import wait_for

X = np.ones(2, np.float32)
Managers = Callable[..., Manager]


def names(manager: Manager) -> list[str]:
    return [device.name for device in manager.devices]


def run(manager: Manager, devices: list[str] | None = None) -> object:
    """An addition over the manager's devices; the compilation."""
    listed = None if devices is None else [manager.device(name) for name in devices]
    compilation = finished(add_model(2), listed, manager)
    execution, out = compilation.execution(), np.zeros(2, np.float32)
    for index in range(2):
        execution.set_input(index, X)
    execution.set_output(0, out)
    execution.compute()
    assert out.tolist() == [2, 2]
    return compilation


def test_drivers_that_run_come_by_name_then_engines_then_the_cpu(
    serve: Serve, manager: Managers, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve("zebra")
    serve("ant")
    monkeypatch.setenv("NNBURST_DEVICES", "own=reference, zebra=null, not-installed")
    found = manager()
    assert names(found) == ["ant", "zebra", "own", "nnapi-reference"]
    assert found.device("zebra").version_string.split()[-1] == "reference"
    assert len({device.version_string for device in found.devices}) >= 1
    for device in found.devices:
        assert device.type in DeviceType
        device.wait(60)
    with pytest.raises(InvalidArgument, match="'bee' is unknown, known are ant, zebra, own"):
        found.device("bee")


def test_drivers_that_come_later_are_taken_up_by_refresh(serve: Serve, manager: Managers) -> None:
    found = manager()
    assert names(found) == ["nnapi-reference"]
    serve("late")
    assert names(found) == ["nnapi-reference"]
    assert [device.name for device in found.refresh()] == ["late", "nnapi-reference"]
    late = found.device("late")
    assert found.refresh()[0] is late
    run(found, ["late"])


def test_no_driver_may_call_itself_the_cpu(
    serve: Serve, manager: Managers, caplog: pytest.LogCaptureFixture
) -> None:
    serve("nnapi-reference", "null")
    with caplog.at_level(logging.WARNING, "nnburst.runtime"):  # whatever an earlier test has set
        found = manager()
    assert names(found) == ["nnapi-reference"]
    assert found.devices[0] is found.cpu
    assert "left out" in caplog.text


def test_a_socket_without_a_driver_is_left_out_with_the_reason(
    manager: Managers, caplog: pytest.LogCaptureFixture
) -> None:
    folder = Path(os.environ["XDG_RUNTIME_DIR"]) / "nnburst"
    folder.mkdir(mode=0o700)
    (folder / "gone.sock").touch()
    with caplog.at_level(logging.WARNING, "nnburst.runtime"):
        assert names(manager()) == ["nnapi-reference"]
    assert "device gone is left out" in caplog.text


@pytest.mark.parametrize(
    ("variable", "value"),
    [("PARTITION", "3"), ("CPUONLY", "yes"), ("ENABLED_DEVICES", "("), ("DEVICES", "=x")],
)
def test_a_switch_that_does_not_parse_is_refused_by_its_name(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"NNBURST_{variable}", value)
    with pytest.raises(InvalidArgument, match=f"NNBURST_{variable} is"):
        Manager()


def test_switches_say_what_is_found(
    serve: Serve, manager: Managers, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve("one")
    serve("two")
    monkeypatch.setenv("NNBURST_ENABLED_DEVICES", "t.*|n")
    assert names(manager()) == ["two", "nnapi-reference"]
    monkeypatch.setenv("NNBURST_CPUONLY", "1")
    assert names(manager()) == ["nnapi-reference"]


def test_without_partitioning_the_cpu_has_everything(manager: Managers) -> None:
    from nnburst.runtime.planning.plan import PartitioningMode

    fast = ComputingDevice("fast", lambda _o, _m: True, 0.1)
    found = manager([fast], settings=Settings(PartitioningMode.NONE))
    plan = run(found).plan  # type: ignore[attr-defined]
    assert isinstance(plan, SimplePlan)
    assert plan.devices[plan.device] == "nnapi-reference"
    assert fast.executed == 0


def test_an_engine_is_launched_by_the_first_compilation_that_asks_it(
    manager: Managers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NNBURST_DEVICES", "own=reference")
    first = manager()
    engine = first.devices[0]
    assert isinstance(engine, EngineDevice)
    assert engine._started is not None, "the first start ever says what the engine is"
    facts = (engine.name, engine.version_string, engine.feature_level, engine.capabilities)
    first.close()
    second = manager()
    again = second.devices[0]
    assert isinstance(again, EngineDevice)
    assert again._started is None
    assert facts == (again.name, again.version_string, again.feature_level, again.capabilities)
    run(second, ["nnapi-reference"])
    assert again._started is None
    run(second, ["own"])
    assert again._started is not None
    pid = again.pid
    run(second, ["own"])
    assert again.pid == pid
    second.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.every_day("own=reference-own")
@pytest.mark.parametrize(("listed", "name"), [("reference", "reference"), ("own=reference", "own")])
def test_facts_about_an_engine_are_dropped_when_its_capabilities_are_written(
    manager: Managers, monkeypatch: pytest.MonkeyPatch, listed: str, name: str
) -> None:
    monkeypatch.setenv("NNBURST_DEVICES", listed)
    assert manager().device(name).capabilities.if_performance.exec_time == 1.0
    path = Path(os.environ["XDG_CONFIG_HOME"]) / "nnburst" / "capabilities" / f"{name}.json"
    path.parent.mkdir(parents=True)
    info = {"exec_time": 0.25, "power_usage": 0.5}
    path.write_text(
        json.dumps({"operands": {}, "relaxed_scalar": info, "relaxed_tensor": info, "if": info})
    )
    assert manager().device(name).capabilities.if_performance.exec_time == 0.25


def test_facts_about_an_engine_are_of_the_hardware_that_the_environment_chooses(
    manager: Managers, monkeypatch: pytest.MonkeyPatch
) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    if "AzureExecutionProvider" not in onnxruntime.get_available_providers():
        pytest.skip("this onnxruntime has one provider only")
    monkeypatch.setenv("NNBURST_DEVICES", "onnxruntime")
    of_the_cpu = manager().devices[0].capabilities
    monkeypatch.setenv("NNBURST_ONNXRUNTIME_PROVIDER", "Azure")
    other = manager().devices[0]
    assert other.version_string.endswith(" Azure")
    assert other.capabilities != of_the_cpu
    monkeypatch.delenv("NNBURST_ONNXRUNTIME_PROVIDER")
    assert manager().devices[0].capabilities == of_the_cpu


@pytest.mark.parametrize(
    ("executor", "variable"),
    [
        ("litert", "LITERT_ROUTE"),
        ("litert", "LITERT_THREADS"),
        ("onnxruntime", "ONNXRUNTIME_THREADS"),
    ],
)
def test_an_engine_that_is_known_is_left_out_by_the_name_of_a_variable_that_is_not_valid(
    executor: str,
    variable: str,
    manager: Managers,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if not engine_device.is_installed(executor):
        pytest.skip(f"{executor} is not installed")
    monkeypatch.setenv("NNBURST_DEVICES", executor)
    assert names(manager()) == [executor, "nnapi-reference"]  # whose facts are cached from now on
    monkeypatch.setenv(f"NNBURST_{variable}", "many")
    with caplog.at_level(logging.WARNING, "nnburst.runtime"):
        assert names(manager()) == ["nnapi-reference"]
    assert f"device {executor} is left out: NNBURST_{variable} is 'many'" in caplog.text


def test_an_engine_is_there_if_its_distribution_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "openvino-2026.4.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: openvino\nVersion: 2026.4.1\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert engine_device.is_installed("openvino")
    assert not engine_device.is_installed("not-installed")


def install_extension(folder: Path, version: str, *numbers: int) -> None:
    """Install a distribution with an extension that has these operand types, in place of an earlier one."""
    for old in folder.glob("late_types-*"):
        shutil.rmtree(old)
    info = folder / f"late_types-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: late-types\nVersion: {version}\n")
    entry = "[nnburst.extensions]\ncom.example.late = late_types:LATE\n"
    (info / "entry_points.txt").write_text(entry)
    lines = [f'LATE.operand_type({n}, "T{n}", "i8", is_tensor=True)\n' for n in numbers]
    (folder / "late_types.py").write_text(
        "from nnburst.executor.graph.extension import VendorExtension\n"
        f'LATE = VendorExtension("com.example.late")\n{"".join(lines)}'
    )


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed distributions for this process and the drivers that it launches."""
    folder = tmp_path / "installed"
    folder.mkdir()
    types = TypeRegistry()
    for module in (devices_manager, engine_device):
        monkeypatch.setattr(module, "TYPES", types)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")  # a module that changes within a second
    monkeypatch.setenv("NNBURST_DEVICES", "own=reference")
    return folder


def test_an_extension_that_is_installed_or_replaced_later_is_known_to_the_next_manager(
    manager: Managers, installed: Path
) -> None:
    def types() -> dict[str, list[int]]:
        return {e.name: [t.type for t in e.operand_types] for e in manager().devices[0].extensions}

    assert "com.example.late" not in types()
    install_extension(installed, "1.0", 3)
    assert types()["com.example.late"] == [3]
    install_extension(installed, "2.0", 3, 4)
    assert types()["com.example.late"] == [3, 4]


def test_an_extension_that_a_driver_has_when_it_starts_can_be_used_from_then_on(
    manager: Managers, installed: Path
) -> None:
    manager().close()  # the facts are cached
    found = manager()
    install_extension(installed, "1.0", 3)
    run(found, ["own"])
    assert found.devices[0].supports_extension("com.example.late")
    assert devices_manager.TYPES.prefix("com.example.late") == 1


def test_an_executor_that_is_named_by_its_module_is_asked_at_each_start(
    manager: Managers, installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NNBURST_DEVICES", "own=late_engine:Engine")
    source = "from nnburst.executor.reference.executor import ReferenceExecutor as Engine\n"
    (installed / "late_engine.py").write_text(source)
    assert not manager().device("own").supports_extension("com.example.late")
    (installed / "late_types.py").write_text(
        "from nnburst.executor.graph.extension import VendorExtension\n"
        'LATE = VendorExtension("com.example.late")\n'
    )
    install = "from nnburst.executor.graph.extension import install_from\n"
    (installed / "late_engine.py").write_text(f'{source}{install}install_from("late_types:LATE")\n')
    assert manager().device("own").supports_extension("com.example.late")


@pytest.mark.parametrize("content", [b"{", b'{"a": ' + b"[" * 100_000], ids=len)
def test_a_broken_cache_of_facts_is_never_an_error(
    manager: Managers, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    monkeypatch.setenv("NNBURST_DEVICES", "own=reference")
    path = Path(os.environ["XDG_CACHE_HOME"]) / "nnburst" / "devices" / "own.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    assert names(manager()) == ["own", "nnapi-reference"]


@pytest.mark.every_day("the file")
@pytest.mark.parametrize("odd", ["the folder", "the file"])
def test_facts_about_an_engine_that_cannot_be_kept_are_never_an_error(
    manager: Managers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, odd: str
) -> None:
    monkeypatch.setenv("NNBURST_DEVICES", "own=reference")
    folder = tmp_path / "odd"
    if odd == "the folder":
        folder.write_bytes(b"")
    else:  # a folder has the name of the file, so that nothing can replace it
        (folder / "nnburst" / "devices" / "own.json" / "inside").mkdir(parents=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    found = manager()
    assert names(found) == ["own", "nnapi-reference"]
    run(found, ["own"])
    if odd == "the file":
        assert [path.name for path in (folder / "nnburst" / "devices").iterdir()] == ["own.json"]


@pytest.mark.every_day("XDG_CONFIG_HOME")
@pytest.mark.parametrize("variable", ["XDG_CONFIG_HOME", "XDG_STATE_HOME"])
def test_a_file_in_place_of_the_folder_of_capabilities_is_never_an_error(
    manager: Managers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str
) -> None:
    monkeypatch.setenv("NNBURST_DEVICES", "own=reference")
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv(variable, str(tmp_path / "file"))
    run(manager(), ["own"])


@pytest.mark.every_day("False-4", "True-3")
@pytest.mark.parametrize("level", [FeatureLevel.V1_2, FeatureLevel.V1_3])
@pytest.mark.parametrize("explicit", [True, False])
def test_only_devices_from_level_4_on_allocate_memory(
    manager: Managers, level: FeatureLevel, explicit: bool
) -> None:
    old = DriverDevice(partial(launch, "reference"), name="old", feature_level=level)
    old.capabilities = uniform(0.5)
    found = manager([old])
    compilation = finished(add_model(2), [old] if explicit else None, found)
    assert isinstance(compilation.plan, SimplePlan)
    assert compilation.plan.devices[compilation.plan.device] == "old"
    desc = MemoryDesc()
    desc.add_input_role(compilation, 0, 1.0)
    desc.finish()
    if level < FeatureLevel.V1_3 and explicit:
        with op_failed():
            desc.create_memory()
        return
    with desc.create_memory() as memory:
        assert (memory._buffer is not None) == (level >= FeatureLevel.V1_3)


def test_litert_beats_the_cpu_by_what_it_ships(
    manager: Managers, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ai_edge_litert")
    monkeypatch.delenv("NNBURST_DEVICES")
    found = manager()
    assert names(found) == ["litert", "nnapi-reference"]
    plan = run(found).plan  # type: ignore[attr-defined]
    assert isinstance(plan, SimplePlan)
    assert plan.devices[plan.device] == "litert"


def test_the_cpu_can_be_put_into_a_driver(
    manager: Managers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NNBURST_CPU_DRIVER", "1")
    found = manager()
    assert names(found) == ["nnapi-reference"]
    assert found.cpu.is_cpu
    run(found)
    run(found, ["nnapi-reference"])
    assert isinstance(found.cpu, EngineDevice)
    assert found.cpu.pid != os.getpid()


def test_devices_named_sample_refuse_half_if_asked_to(manager: Managers) -> None:
    from nnburst.hal.enums import OperandType
    from nnburst.runtime import Model
    from nnburst.testing.conformance.vectors import build
    from nnburst.testing.models.random_graphs import generate
    from nnburst.testing.models.random_graphs.graphs import as_vector

    devices = [ComputingDevice(f"sample {n}", lambda _o, _m: True, 0.5 + n / 10) for n in range(2)]
    found = manager(devices, settings=Settings(refuses_half=True))
    kinds = []
    for seed in range(8):
        built = build(as_vector(generate("small", OperandType.TENSOR_FLOAT32, seed)))
        kinds.append(type(finished(Model.of(built.model), None, found).plan))
    assert CompoundPlan in kinds


@pytest.mark.parametrize(
    ("runtime", "device", "expected"),
    [(1, 2, 1), (2, 2, 2), (3, 2, 2), (8, 2, 2), (2, 4, 2), (3, 4, 3), (4, 4, 4), (8, 4, 4)],
)
def test_the_level_of_a_device_is_never_above_the_runtimes(
    runtime: int, device: int, expected: int
) -> None:
    from nnburst.runtime.devices.driver_device import clamped

    assert clamped(FeatureLevel(device), FeatureLevel(runtime)) == expected


def test_a_driver_that_has_died_is_connected_to_again_behind_its_entry(
    serve: Serve, manager: Managers
) -> None:
    serve("mortal")
    found = manager()
    compilation = run(found, ["mortal"])
    device = found.device("mortal")
    assert isinstance(device, DriverDevice)
    died = device.pid
    os.kill(died, signal.SIGKILL)
    execution, out = compilation.execution(), np.zeros(2, np.float32)  # type: ignore[attr-defined]
    for index in range(2):
        execution.set_input(index, X)
    execution.set_output(0, out)
    execution.reusable = True
    said: list[str] = []

    def computed_by_another() -> bool:
        try:
            execution.compute()
        except DeadObject as error:  # unless the death was noticed before the call
            said.append(str(error))
            return False
        return device.pid != died

    wait_for(computed_by_another)
    assert all(re.search("SIGKILL|died|closed", text) for text in said)
    assert out.tolist() == [2, 2]


def test_a_wait_for_the_driver_of_a_closed_device_ends_at_once() -> None:
    device = DriverDevice(partial(launch, "null"))
    began = time.monotonic()
    assert refused_in_child(lambda: device.wait(60))
    device.close()
    with pytest.raises(Closed):
        device.wait(60)
    assert time.monotonic() - began < 60


def test_a_forked_child_makes_its_manager_though_a_thread_was_making_its_parents(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Manager, "_one", None)
    monkeypatch.setenv("NNBURST_CPUONLY", "1")
    making, may_end, refresh = threading.Event(), threading.Event(), Manager.refresh

    def slowly(manager: Manager) -> list[Device]:
        making.set()
        assert may_end.wait(60)
        return refresh(manager)

    monkeypatch.setattr(Manager, "refresh", slowly)
    thread = threading.Thread(target=Manager.of_process)
    thread.start()
    assert making.wait(60)

    def makes_its_own() -> bool:
        signal.alarm(20)  # in place of waiting for ever
        monkeypatch.setattr(Manager, "refresh", refresh)
        return names(Manager.of_process()) == ["nnapi-reference"]

    try:
        assert true_in_child(makes_its_own)
    finally:
        may_end.set()
        thread.join()
    Manager.of_process().close()


class IdleEngine(EngineDevice):
    """An engine that is never launched."""

    version_string = "1"
    feature_level = FeatureLevel.AIDL_V4
    extensions = ()

    def __init__(self, name: str, executor: str, _level: FeatureLevel) -> None:
        self.name, self.executor = name, executor  # type: ignore[misc]
        self.ended = False

    def close(self) -> None:
        self.ended = True


def test_compilations_at_once_try_the_same_engine_which_ends_with_the_last(
    manager: Managers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices_manager, "EngineDevice", IdleEngine)
    monkeypatch.setattr(devices_manager, "chosen_executor", lambda _name: "litert")
    monkeypatch.setattr(devices_manager, "is_installed", lambda _executor: True)
    made = manager(settings=Settings(engines=(("auto", "auto"),)))
    with made._contenders() as first:
        with made._contenders() as second:
            assert [device.name for device in first] == ["litert", "onnxruntime"]
            assert first == second
        assert not first[1].ended  # type: ignore[attr-defined]
    assert first[1].ended  # type: ignore[attr-defined]
    with made._contenders() as third, made._contenders():
        assert third[1] is not first[1]
        made._keep(third[1])
    with made._contenders() as fourth:
        assert fourth == third
    assert not third[1].ended  # type: ignore[attr-defined]


def test_names_are_given_once(manager: Managers) -> None:
    def twin(name: str) -> ComputingDevice:
        return ComputingDevice(name, lambda _o, _m: True)

    for pair in (["a", "a"], ["nnapi-reference"]):
        with bad_data():
            manager([twin(name) for name in pair])


@pytest.mark.parametrize("given", ["a connection", 5, None])
def test_what_is_no_device_of_the_runtime_is_refused(manager: Managers, given: object) -> None:
    with launch("null") as connection, pytest.raises(InvalidArgument, match=r"devices\[0\] is .*"):
        manager([connection if given == "a connection" else given])
    for devices in (5, "null"):
        with pytest.raises(InvalidArgument, match=r"devices: .* expected a list"):
            manager(devices)
