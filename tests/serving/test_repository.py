"""Models that come and go: versions as folders, reloads without a lost request, bad ones that fail alone."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

pytest.importorskip("tritonclient.grpc", reason="extra grpc is not installed")
pytest.importorskip("onnx", reason="it writes the networks of these tests")

import grpc
import onnx
import tritonclient.grpc as triton
from grpc_health.v1 import health_pb2, health_pb2_grpc
from onnx import TensorProto, helper
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException

from nnburst.hal.environment import KILLS
from nnburst.hal.errors import (
    DeadObject,
    DeviceUnavailable,
    InvalidArgument,
    MissedDeadline,
    NnburstError,
    ResourceExhausted,
)
from nnburst.importer.load import load_named
from nnburst.importer.named_sources import NamedSource
from nnburst.serving import front, models
from nnburst.serving.models import Models
from nnburst.serving.network import Network
from nnburst.serving.options import Options
from nnburst.serving.queue import Clock
from nnburst.serving.sources import GivenModels, Repository, UnknownModel
from nnburst.serving.workers import Workers
from nnburst.testing.faults.footprint import is_running
from serving.served import PATIENCE, Served

#: How often each model is loaded again under load.
TIMES = KILLS.read() if KILLS.is_set else 3
Array = np.ndarray[Any, Any]


def write_network(
    file: Path, addend: float, weights: int = 1, extent: int | str | None = 2
) -> None:
    """y = x + addend for two numbers; `weights` float32 are in the file, so that it has a size.

    The file says that x and y have `extent` numbers, which may be open.
    """
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [extent]) for name in "xy")
    addends = np.full(2, addend, np.float32)
    padding = np.random.default_rng(7).standard_normal((weights, 2)).astype(np.float32)
    zero = np.zeros((1, weights), np.float32)
    constants = {"b": addends, "w": padding, "zero": zero}
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["zero", "w"], ["nothing"]),
            helper.make_node("Add", ["x", "b"], ["sum"]),
            helper.make_node("Reshape", ["nothing", "shape"], ["flat"]),
            helper.make_node("Add", ["sum", "flat"], ["y"]),
        ],
        "net",
        [x],
        [y],
        [
            *(onnx.numpy_helper.from_array(array, name) for name, array in constants.items()),
            onnx.numpy_helper.from_array(np.array([2], np.int64), "shape"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    file.parent.mkdir(parents=True, exist_ok=True)
    written = file.with_suffix(".new")
    onnx.save(model, written)
    written.rename(file)


def version(repository: Path, name: str, number: int, addend: float, weights: int = 1) -> None:
    write_network(repository / name / str(number) / "model.onnx", addend, weights)


def given(value: float) -> list[Any]:
    found = triton.InferInput("x", [2], "FP32")
    found.set_data_from_numpy(np.full(2, value, np.float32))
    return [found]


def answer(client: Any, name: str, value: float, number: str = "") -> float:
    result = client.infer(name, given(value), number, client_timeout=PATIENCE)
    assert len(set(result.as_numpy("y").tolist())) == 1
    return float(result.as_numpy("y")[0])


def index(client: Any) -> dict[tuple[str, str], tuple[str, str]]:
    found = client.get_model_repository_index().models
    return {(each.name, each.version): (each.state, each.reason) for each in found}


def until(condition: Any) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)  # of other processes, which do not notify anyone


def fill(folder: Path) -> Path:
    version(folder, "one", 1, 1)
    version(folder, "two", 1, 1)
    version(folder, "two", 3, 3)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return fill(tmp_path)


@pytest.fixture(scope="module")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that `served` serves; tests change models of their own in it."""
    return fill(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def served(shared_folder: Path) -> Iterator[Served]:
    with Served("--repository", str(shared_folder), "--model-control", "explicit") as served:
        yield served


@pytest.fixture
def client(served: Served) -> Iterator[Any]:
    client = served.client()
    yield client
    client.close()


# -- the folder --------------------------------------------------------------------------------------


def test_newest_version_of_a_folder_is_served(folder: Path) -> None:
    repository = Repository(folder)
    assert repository.names() == ["one", "two"]
    assert list(repository.versions("two")) == [3]
    assert repository.versions("two")[3].network.source == str(folder / "two/3/model.onnx")


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("all {}", [1, 3]),
        ("latest { num_versions: 2 }", [1, 3]),
        ("latest { num_versions: 1 }", [3]),
        ("specific { versions: [1, 9] }", [1]),
    ],
)
def test_policy_of_the_configuration_chooses_the_versions(
    folder: Path, policy: str, expected: list[int]
) -> None:
    (folder / "two/config.pbtxt").write_text(f'name: "two" version_policy {{ {policy} }}')
    assert list(Repository(folder).versions("two")) == expected


def test_names_of_states_are_those_of_the_configuration(folder: Path) -> None:
    names = 'input_name: "past", output_name: "present"'
    (folder / "two/config.pbtxt").write_text(f"sequence_batching {{ state [ {{ {names} }} ] }}")
    network = Repository(folder).versions("two")[3].network
    assert network.states == {"past": "present"}


def test_two_states_of_one_name_are_refused(folder: Path) -> None:
    states = [f'{{ input_name: "past", output_name: "{name}" }}' for name in ("one", "two")]
    (folder / "two/config.pbtxt").write_text(
        f"sequence_batching {{ state [ {', '.join(states)} ] }}"
    )
    message = r"config.pbtxt: sequence_batching.state of 'past': from 'one' and from 'two'"
    with pytest.raises(InvalidArgument, match=message):
        Repository(folder).versions("two")


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ('input { name: "x" dims: [2, 3] }', {"x": (2, 3)}),
        ('input [{ name: "x" dims: 2 }, { name: "y" dims: [-1, 3] }]', {"x": (2,)}),
        ('max_batch_size: 8 input { name: "x" dims: 2 }', {}),
        ('input { name: "x" dims: [2, 3] reshape { shape: [6] } }', {}),
        ('input { name: "x" }', {}),
    ],
)
def test_whole_dimensions_of_the_configuration_are_those_of_inputs(
    folder: Path, config: str, expected: dict[str, tuple[int, ...]]
) -> None:
    (folder / "two/config.pbtxt").write_text(config)
    assert Repository(folder).versions("two")[3].network.shapes == expected


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ('input { name: "x" dims: 5 }', r"config.pbtxt: dims of 'x': \[5\], the file declares"),
        ('input { name: "z" dims: 5 }', r"config.pbtxt: dims of 'z': not an input"),
        (
            'sequence_batching { state { input_name: "z" output_name: "y" } }',
            r"config.pbtxt: sequence_batching.state: 'z' is not an input",
        ),
    ],
)
def test_configuration_that_does_not_fit_the_file_is_named_as_it_is_written(
    folder: Path, config: str, message: str
) -> None:
    (folder / "two/config.pbtxt").write_text(config)
    with pytest.raises(InvalidArgument, match=message):
        load_named(Repository(folder).versions("two")[3].network)


def test_open_dimensions_are_asked_for_as_the_configuration_spells_them(folder: Path) -> None:
    write_network(folder / "two/3/model.onnx", 1, extent="n")
    (folder / "two/config.pbtxt").write_text("")
    imported = load_named(Repository(folder).versions("two")[3].network)
    assert imported.refusal is not None
    assert "give dims: […] of 'x' in config.pbtxt" in imported.refusal


@pytest.mark.parametrize(
    ("config", "rule"),
    [
        (b'name: "other"', "expected that of its folder"),
        (b"no configuration", "config.pbtxt"),
        (b'default_model_filename: "../../one/1/model.onnx"', "expected a name without '/'"),
        (b"version_policy { specific { versions: [7] } }", "no version to serve"),
        (b'parameters { key: "\xff" }', "config.pbtxt: 'utf-8' codec can't decode byte 0xff"),
        (b"#" * (1 << 20) + b'\nname: "two"', "config.pbtxt: more than 1048576 bytes"),
    ],
)
def test_configuration_that_is_not_as_it_must_be_is_refused_with_its_reason(
    folder: Path, config: bytes, rule: str
) -> None:
    (folder / "two/config.pbtxt").write_bytes(config)
    with pytest.raises(InvalidArgument, match=rule):
        Repository(folder).versions("two")


@pytest.mark.parametrize("name", ["..", ".", "", "a/b", "../one", "nothing", ".hidden"])
def test_name_leads_nowhere_out_of_the_folder(folder: Path, name: str) -> None:
    (folder / ".hidden/1").mkdir(parents=True)
    with pytest.raises(UnknownModel):
        Repository(folder).versions(name)


def test_source_differs_when_a_file_has_changed(folder: Path) -> None:
    repository = Repository(folder)
    before = repository.versions("one")
    assert repository.versions("one") == before
    (folder / "one/1/weights.bin").write_bytes(b"1")
    after = repository.versions("one")
    assert after != before
    (folder / "one/config.pbtxt").write_text('name: "one"')
    assert repository.versions("one") not in (before, after)


def test_given_models_are_known_by_name() -> None:
    given = {number: NamedSource("net", number, "a:b") for number in (1, 2)}
    models = GivenModels({"net": given})
    assert {number: each.network for number, each in models.versions("net").items()} == given
    with pytest.raises(UnknownModel):
        models.versions("other")


# -- calls -------------------------------------------------------------------------------------------


def test_models_of_a_repository_are_served_beside_given_ones(client: Any) -> None:
    assert answer(client, "one", 5) == 6
    assert answer(client, "two", 5) == answer(client, "two", 5, "3") == 8
    assert client.get_model_metadata("two").versions == ["3"]
    assert client.infer("two", given(1)).get_response().model_version == "3"
    with pytest.raises(InferenceServerException, match="version 1 is not served"):
        answer(client, "two", 5, "1")
    found = index(client)
    assert found["one", "1"] == found["two", "3"] == found["add", "1"] == ("READY", "")


def ready(client: Any) -> set[str]:
    """Names of the models in the index of those that are ready."""
    request = service_pb2.RepositoryIndexRequest(ready=True)
    return {each.name for each in client._client_stub.RepositoryIndex(request).models}


def test_model_is_unloaded_and_loaded_again(
    client: Any, served: Served, shared_folder: Path
) -> None:
    health = health_pb2_grpc.HealthStub(grpc.insecure_channel(served.address))
    version(shared_folder, "leaves", 1, 1)
    client.load_model("leaves")
    before = set(served.workers())
    client.unload_model("leaves")
    with pytest.raises(InferenceServerException, match="is not served"):
        answer(client, "leaves", 5)
    status = health.Check(health_pb2.HealthCheckRequest(service="leaves")).status
    assert status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
    until(lambda: index(client)["leaves", "1"] == ("UNAVAILABLE", "unloaded"))
    until(lambda: any(not is_running(pid) for pid in before))  # its worker, with the weights
    assert "leaves" not in ready(client)
    assert "one" in ready(client)
    client.load_model("leaves")
    assert answer(client, "leaves", 5) == 6


def test_server_is_ready_without_what_was_unloaded(client: Any, shared_folder: Path) -> None:
    until(client.is_server_ready)
    version(shared_folder, "gone", 1, 1)
    client.load_model("gone")
    client.unload_model("gone")
    assert client.is_server_ready()


def test_versions_come_and_go_with_a_load(client: Any, shared_folder: Path) -> None:
    version(shared_folder, "many", 3, 3)
    client.load_model("many")
    version(shared_folder, "many", 4, 4)
    (shared_folder / "many/config.pbtxt").write_text(
        "version_policy { latest { num_versions: 2 } }"
    )
    client.load_model("many")
    assert client.get_model_metadata("many").versions == ["3", "4"]
    assert [answer(client, "many", 0, number) for number in ("", "3", "4")] == [4, 3, 4]
    shutil.rmtree(shared_folder / "many/4")
    client.load_model("many")
    assert answer(client, "many", 0) == 3


def test_new_model_is_loaded_and_one_that_is_not_there_is_not_found(
    client: Any, shared_folder: Path
) -> None:
    with pytest.raises(InferenceServerException, match="NOT_FOUND"):
        client.load_model("new")
    version(shared_folder, "new", 1, 30)
    assert index(client)["new", ""][0] == "UNAVAILABLE"
    client.load_model("new")
    assert answer(client, "new", 0) == 30


def test_given_model_is_loaded_again_too(client: Any) -> None:
    client.load_model("both")
    client.unload_model("both")
    client.load_model("both")
    assert index(client)["both", "1"] == ("READY", "")


def test_open_dimensions_are_what_the_configuration_has(client: Any, shared_folder: Path) -> None:
    write_network(shared_folder / "open/1/model.onnx", 4, extent="n")
    with pytest.raises(InferenceServerException, match=r"is not supported.*executor onnxruntime"):
        client.load_model("open")
    config = shared_folder / "open/config.pbtxt"
    config.write_text('input { name: "x" data_type: TYPE_FP32 dims: [ 2 ] }')
    client.load_model("open")
    assert list(client.get_model_metadata("open").inputs[0].shape) == [2]
    assert answer(client, "open", 1) == 5
    config.write_text('input { name: "z" data_type: TYPE_FP32 dims: [ 2 ] }')
    with pytest.raises(InferenceServerException, match="not an input of the network"):
        client.load_model("open")
    assert answer(client, "open", 1) == 5
    shutil.rmtree(shared_folder / "open")
    client.unload_model("open")


def test_bad_file_fails_with_its_reason_and_what_was_served_still_is(
    client: Any, shared_folder: Path
) -> None:
    version(shared_folder, "spoilt", 1, 1)
    client.load_model("spoilt")
    file = shared_folder / "spoilt/1/model.onnx"
    good = file.read_bytes()
    file.write_bytes(b"no network")
    with pytest.raises(InferenceServerException, match=r"model\.onnx") as refused:
        client.load_model("spoilt")
    assert "INVALID_ARGUMENT" in str(refused.value.status())
    assert answer(client, "spoilt", 5) == 6
    state, reason = index(client)["spoilt", "1"]
    assert state == "READY"
    assert reason.startswith("FAILED to load again: ")
    file.write_bytes(good)
    client.load_model("spoilt")
    assert index(client)["spoilt", "1"] == ("READY", "")


def test_model_that_never_was_good_is_there_with_its_reason(
    client: Any, shared_folder: Path
) -> None:
    file = shared_folder / "bad/1/model.onnx"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"no network")
    with pytest.raises(InferenceServerException):
        client.load_model("bad")
    state, reason = index(client)["bad", ""]
    assert state == "UNAVAILABLE"
    assert reason.startswith("FAILED: ")
    assert not client.is_model_ready("bad")
    with pytest.raises(InferenceServerException, match=r"not ready: .*model\.onnx"):
        answer(client, "bad", 5)
    assert answer(client, "one", 5) == 6
    write_network(file, 1)
    client.load_model("bad")
    assert answer(client, "bad", 5) == 6


@pytest.mark.parametrize("kind", ["folder", "link to itself", "pipe"])
@pytest.mark.parametrize("place", ["config.pbtxt", "1/model.onnx"])
def test_what_is_no_file_fails_at_once_with_its_reason(
    client: Any, shared_folder: Path, place: str, kind: str
) -> None:
    version(shared_folder, "odd", 1, 1)
    client.load_model("odd")
    spoilt = shared_folder / "odd" / place
    spoilt.unlink(missing_ok=True)
    make = {"folder": spoilt.mkdir, "pipe": lambda: os.mkfifo(spoilt)}
    make.get(kind, lambda: spoilt.symlink_to(spoilt.name))()
    with pytest.raises(InferenceServerException, match="odd") as refused:
        client.load_model("odd", client_timeout=PATIENCE)
    assert "INVALID_ARGUMENT" in str(refused.value.status())
    assert answer(client, "odd", 5) == 6
    shutil.rmtree(shared_folder / "odd")
    client.unload_model("odd")


def test_folder_that_is_gone_is_named_and_what_was_served_still_is(
    client: Any, shared_folder: Path
) -> None:
    away = shared_folder.with_name("away")
    shared_folder.rename(away)
    try:
        for call in (client.get_model_repository_index, lambda: client.load_model("one")):
            with pytest.raises(InferenceServerException, match=str(shared_folder)) as refused:
                call()
            assert str(refused.value.status()).rpartition(".")[2] in (
                "UNAVAILABLE",
                "INVALID_ARGUMENT",
            )
        assert answer(client, "one", 5) == 6
    finally:
        away.rename(shared_folder)
    assert index(client)["one", "1"][0] == "READY"


def test_folder_that_is_gone_is_logged_once_while_it_is_followed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    outcomes = iter(["gone", "gone", "", "gone", "other"])
    stopped = threading.Event()

    class Followed:
        def follow(self) -> None:
            outcome = next(outcomes, None)
            if outcome is None:
                stopped.set()
            elif outcome:
                raise DeviceUnavailable(outcome)

    monkeypatch.setattr(front, "_POLL", 0)
    front._follow(cast("Any", Followed()), stopped)
    assert [each.getMessage().partition(";")[0] for each in caplog.records] == [
        "gone",
        "gone",
        "other",
    ]
    assert not any(each.exc_info for each in caplog.records)


class Following:
    """Models that follow a folder, without a driver.

    Attributes:
        models: the models.
        prepared: names of the models in the order in which they were prepared.
        errors: what preparing raises, one after another.
    """

    def __init__(self, folder: Path) -> None:
        self.prepared: list[str] = []
        self.errors: list[NnburstError] = []
        self.models = Models(
            [Repository(folder)], Options("", {}, ""), Workers("nowhere"), Clock(1)
        )

    def prepare(self, network: Network) -> None:
        self.prepared.append(network.name)
        if self.errors:
            raise self.errors.pop(0)

    def look(self, times: int = 1) -> list[str]:
        """Look at the folder; what is served then. A change is loaded by the second look at it."""
        for _ in range(times):
            self.models.follow()
        return sorted(
            name for name, model in self.models.served.models.items() if not model.failure
        )


@pytest.fixture
def following(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Following]:
    found = Following(folder)
    monkeypatch.setattr(models, "_prepare", found.prepare)
    yield found
    found.models.close()


def test_folder_of_a_model_that_is_moved_away_and_back_is_served_again(
    following: Following, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    aside = tmp_path_factory.mktemp("aside")
    assert following.look() == ["one", "two"]
    for names in (["one"], ["one", "two"]):
        for name in names:
            (folder / name).rename(aside / name)
        assert following.look() == [name for name in ("one", "two") if name not in names]
        for name in names:
            (aside / name).rename(folder / name)
        assert following.look(2) == ["one", "two"]
    assert following.look(2) == ["one", "two"]
    assert following.prepared == ["one", "one", "two"]


@pytest.mark.parametrize("kind", [DeadObject, DeviceUnavailable, MissedDeadline, ResourceExhausted])
def test_model_whose_load_fails_for_a_time_is_loaded_by_a_later_look(
    following: Following,
    folder: Path,
    kind: type[NnburstError],
    caplog: pytest.LogCaptureFixture,
) -> None:
    version(folder, "three", 1, 30)
    following.errors += [kind("of the test"), kind("of the test"), kind("another")]
    for _ in range(4):
        assert following.look() == ["one", "two"]
    assert following.look() == ["one", "three", "two"]
    assert following.look(3) == ["one", "three", "two"]
    assert following.prepared == ["three"] * 4
    logged = [record.getMessage() for record in caplog.records]
    assert logged == [
        "model three is not loaded, it is tried again each second: of the test",
        "model three is not loaded, it is tried again each second: another",
    ]


def test_model_that_cannot_be_prepared_at_the_start_is_logged_once_for_each_reason(
    following: Following, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "_PAUSE", 0.0)
    reasons: list[set[str]] = []

    def prepare(network: Network) -> None:
        entries = following.models.index(ready=False)
        reasons.append({each.reason for each in entries if each.name == network.name})
        following.prepare(network)
        if network.name == "two":
            done.set()

    done = threading.Event()
    monkeypatch.setattr(models, "_prepare", prepare)
    following.errors += [DeviceUnavailable("of the test")] * 6
    following.models.start()
    assert done.wait(PATIENCE)
    assert {"of the test"} in reasons
    for name in ("one", "two"):
        line = f"model {name} is not prepared yet, it is tried again: of the test"
        assert [each.getMessage() for each in caplog.records].count(line) == 1


def test_model_that_cannot_be_served_is_loaded_again_when_its_files_change(
    following: Following, folder: Path
) -> None:
    version(folder, "three", 1, 30)
    following.errors.append(InvalidArgument("of the test"))
    assert following.look(5) == ["one", "two"]
    assert following.prepared == ["three"]
    version(folder, "three", 1, 31)
    assert following.look(2) == ["one", "three", "two"]


def test_sigterm_ends_a_service_without_waiting_for_a_model_that_is_being_prepared(
    folder: Path,
) -> None:
    words = ["--repository", str(folder), "--drain", "600"]
    with Served(*words, ready=False, executor="serving.networks:Unready", models=()) as served:
        assert served.process.stderr is not None
        assert any(line == "preparing\n" for line in served.process.stderr)
        served.process.terminate()
        assert served.process.wait(PATIENCE) == 0


def test_override_of_a_configuration_is_refused_by_name(client: Any) -> None:
    with pytest.raises(InferenceServerException, match=r"parameters: .*config"):
        client.load_model("one", config="{}")


@pytest.mark.campaign
def test_folder_is_followed_and_callers_load_nothing(folder: Path) -> None:
    with Served("--repository", str(folder), "--model-control", "poll") as served:
        client = served.client()
        for call in (client.load_model, client.unload_model):
            with pytest.raises(InferenceServerException, match="--model-control") as refused:
                call("one")
            assert "PERMISSION_DENIED" in str(refused.value.status())
        version(folder, "one", 1, 10)
        version(folder, "three", 1, 30)
        until(lambda: answer(client, "one", 0) == 10)
        until(lambda: ("three", "1") in index(client) and answer(client, "three", 0) == 30)
        shutil.rmtree(folder / "two")
        until(lambda: not [name for name, _ in index(client) if name == "two"])
        (folder / "three/1/model.onnx").write_bytes(b"no network")
        until(lambda: index(client)["three", "1"][1].startswith("FAILED"))
        assert answer(client, "three", 0) == 30
        client.close()


def resident(pid: int) -> float:
    """MiB."""
    return (
        int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20
    )


@pytest.mark.campaign
@pytest.mark.counted
def test_reloads_under_load_lose_no_request_and_give_their_memory_back(
    tmp_path: Path, capsys: Any
) -> None:
    names = [f"net{number}" for number in range(4 if TIMES < 50 else 20)]
    for name in names:
        version(tmp_path, name, 1, 0, weights=250_000)
    ended = threading.Event()
    answers: dict[str, list[float]] = {name: [] for name in names}
    lost: list[Exception] = []

    def ask(name: str) -> None:
        client = served.client()
        while not ended.is_set():
            try:
                answers[name].append(answer(client, name, 0))
            except Exception as error:
                lost.append(error)
        client.close()

    with Served("--repository", str(tmp_path), "--model-control", "explicit") as served:
        control = served.client()
        threads = [threading.Thread(target=ask, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        sizes = []
        try:
            for turn in range(1, TIMES + 1):
                for name in names:
                    version(tmp_path, name, 1, turn, weights=250_000)
                    control.load_model(name, client_timeout=PATIENCE)
                    assert answer(control, name, 0) == turn
                sizes.append(resident(served.front()))
        finally:  # or a failure would wait for them for ever
            ended.set()
        for thread in threads:
            thread.join(PATIENCE)
        before = len(served.workers())
        for name in names:
            control.unload_model(name)
        until(lambda: len(served.workers()) <= before - len(names))
        left = resident(served.front())
        control.close()
    assert lost == []
    for found in answers.values():
        assert found == sorted(found), "never an older model after a newer one"
    one = 250_000 * 8 / 2**20
    assert sizes[-1] < sizes[0] + 6 * one
    total = sum(map(len, answers.values()))
    with capsys.disabled():
        print(
            f"\n{len(names)} models loaded again x{TIMES}: {total} requests, {len(lost)} lost; front"
            f" {sizes[0]:.0f} to {sizes[-1]:.0f} MiB, {left:.0f} without them"
        )
