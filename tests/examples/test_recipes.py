"""The recipes run: each does what docs/recipes.md promises, beside real drivers."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import nnburst
from examples.test_examples import EXAMPLES, run
from nnburst import OperandType, OperationType
from nnburst.hal.utils import driver_environment

UNIT = EXAMPLES.parent / "contrib" / "systemd" / "nnburst-grpc@.service"
#: Seconds that anything may take on a busy machine.
PATIENCE = 60


def needs(*modules: str) -> None:
    for module in modules:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")


@pytest.mark.every_day("litert")
@pytest.mark.parametrize("executor", ["reference", "litert"])
def test_callback_gets_every_frame_of_another_process_where_it_lies(
    executor: str, tmp_path: Path
) -> None:
    if executor == "litert":
        needs("ai_edge_litert")
    *frames, summary = run("frame_callback.py", executor, cwd=tmp_path)
    numbers = [tuple(map(int, re.findall(r"\d+", line))) for line in frames]
    assert [(number, mean) for number, _, mean in numbers] == [(n, n) for n in range(30)]
    assert {place for _, place, _ in numbers} == {0, 1, 2}
    assert summary == "30 frames, 0 wrong"


@pytest.mark.campaign
def test_detector_goes_on_after_its_driver_was_killed(tmp_path: Path) -> None:
    *lost, summary, deaths = run("detector.py", "reference", "3", cwd=tmp_path)
    assert [line for line in lost if "DEAD_OBJECT" in line] == lost[:1]
    frames, seen, replaced, missed, wrong = map(int, re.findall(r"\d+", summary))
    assert frames == 180 == seen + replaced + missed
    assert seen > 1, "nothing was seen after the death"
    assert (missed, wrong) == (1, 0)
    assert deaths.startswith("1 driver died")


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.campaign)])
def test_control_loop_keeps_its_ticks_and_its_state_over_deaths(kills: int, tmp_path: Path) -> None:
    ticks, deaths, late = run("control_loop.py", "reference", str(kills), cwd=tmp_path)
    answered, held, wrong = map(int, re.findall(r"\d+", ticks))
    assert (answered, wrong) == (300 * (kills + 1), 0)
    assert held >= kills, "each death costs a tick"
    assert deaths == f"{kills} of {kills} dead drivers made again"
    assert late.startswith("latest tick ")


def test_control_loop_is_short() -> None:
    text = (EXAMPLES / "control_loop.py").read_text(encoding="utf-8")
    loop = text.split("    for tick in")[1].split("    return Report")[0]
    assert len(loop.splitlines()) <= 25
    assert "_" not in re.findall(r"\bnnburst(?:\.\w+)*\.(_\w+)", text)


@pytest.mark.campaign
def test_wake_word_is_heard_and_its_share_of_a_core_printed(tmp_path: Path) -> None:
    needs("ai_edge_litert", "pymicro_wakeword", "pymicro_features")
    from nnburst.demo.speech import shipped_clip

    clip = shipped_clip().samples.tobytes()
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / "wake_word.py"), "-"],
        input=clip,
        cwd=tmp_path,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    first, *_, summary = done.stdout.decode().splitlines()
    assert first == "listening for 'Okay Nabu'"
    assert re.fullmatch(r"\d+\.\d s of sound, heard 1 times, \d+\.\d% of a core", summary)


def test_decoder_streams_the_tokens_of_each_sequence_alone_in_every_form(tmp_path: Path) -> None:
    needs("onnxruntime")
    import onnxruntime

    from nnburst.testing.models.transformers import FORMS, TransformerSize, decoder

    content = decoder("concat", TransformerSize(2, 128, 2, 4096, 256))
    engine = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    nothing = {each.name: np.zeros((1, 2, 0, 64), np.float32) for each in engine.get_inputs()[1:]}

    def alone(ids: list[int], count: int) -> list[int]:
        """Tokens of an engine that keeps no state and is given all of them each time."""
        for _ in range(count):
            logits = engine.run(["logits"], {"ids": np.array([ids]), **nothing})[0]
            ids = [*ids, int(logits.argmax())]
        return ids[-count:]

    expected = list(zip(alone([3, 1, 4, 1, 5], 16), alone([2, 7, 1, 8], 16), strict=True))
    lines = [line.split() for line in run("decoder.py", cwd=tmp_path)]
    assert lines == [[form, str(a), str(b)] for form in FORMS for a, b in expected]


def test_page_on_state_shows_the_decoder_as_it_runs() -> None:
    example = (EXAMPLES / "decoder.py").read_text(encoding="utf-8")
    page = (EXAMPLES.parent / "docs" / "how_to" / "state.md").read_text(encoding="utf-8")
    stream = example[example.index("def stream") : example.index("def show")]
    assert stream in page


def scaled() -> nnburst.Model:
    """y = 2 x of eight numbers."""
    builder = nnburst.ModelBuilder()
    x = builder.input(OperandType.TENSOR_FLOAT32, (1, 8))
    y = builder.output(OperandType.TENSOR_FLOAT32, (1, 8))
    builder.operation(OperationType.ADD, [x, x, builder.scalar(0)], [y])
    return builder.build()


def web_service() -> ModuleType:
    needs("fastapi", "httpx")
    spec = importlib.util.spec_from_file_location("web_service", EXAMPLES / "web_service.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@asynccontextmanager
async def web_client(app: Any) -> AsyncIterator[Any]:
    import httpx

    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://service", timeout=PATIENCE
        ) as client,
    ):
        yield client


def in_web_service(monkeypatch: pytest.MonkeyPatch, steps: Callable[[Any, Any], Any]) -> None:
    module = web_service()
    monkeypatch.setattr(module, "PATIENCE", float(PATIENCE))
    app = module.service(scaled(), "reference")

    async def use() -> None:
        async with web_client(app) as client:
            await steps(app, client)

    asyncio.run(use())


def test_web_service_answers_requests_at_once_with_their_own_results(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def steps(_app: Any, client: Any) -> None:
        bodies = [np.full(8, number, np.float32).tobytes() for number in range(20)]
        answers = await asyncio.gather(*(client.post("/infer", content=body) for body in bodies))
        assert [answer.json()["outputs"] for answer in answers] == [
            [[[2.0 * number] * 8]] for number in range(20)
        ]

    in_web_service(monkeypatch, steps)


def test_web_service_refuses_a_body_of_another_size(monkeypatch: pytest.MonkeyPatch) -> None:
    async def steps(_app: Any, client: Any) -> None:
        answer = await client.post("/infer", content=b"short")
        assert answer.status_code == 422
        assert answer.json()["detail"] == "the body has 5 bytes, the input 32 (float32 (1, 8))"

    in_web_service(monkeypatch, steps)


@pytest.mark.campaign
def test_web_service_goes_on_after_its_driver_was_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def steps(app: Any, client: Any) -> None:
        pid = app.state.device.pid
        os.kill(pid, signal.SIGKILL)
        body, codes = np.ones(8, np.float32).tobytes(), []
        for _ in range(3):  # one for each of its bursts may find out
            answer = await client.post("/infer", content=body)
            codes.append(answer.status_code)
        assert set(codes) <= {200, 503}
        assert codes[-1] == 200
        assert answer.json() == {"outputs": [[[2.0] * 8]]}
        health = (await client.get("/health")).json()
        assert health == {"driver_alive": True, "recoveries": 1}

    in_web_service(monkeypatch, steps)


@pytest.mark.campaign
def test_service_unit_starts_a_front_that_answers(shared_dir: Path, tmp_path: Path) -> None:
    needs("tritonclient", "grpc", "ai_edge_litert")
    import tritonclient.grpc as triton

    network = shared_dir / "models" / "kws_int8.tflite"
    configuration = tmp_path / "configuration"
    (configuration / "nnburst").mkdir(parents=True)
    (configuration / "nnburst" / "kws.tflite").symlink_to(network)
    (start,) = re.findall(r"^ExecStart=(.*)$", UNIT.read_text(), re.MULTILINE)
    words = shlex.split(start.replace("%i", "kws").replace("%E", str(configuration)))
    assert words[:2] == ["/usr/bin/env", "nnburst"]
    words[-1] = words[-1].replace(":8001", ":0")  # any port that is free
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "manager"))
        manager.settimeout(PATIENCE)
        environment = driver_environment()
        environment |= {
            "NOTIFY_SOCKET": str(tmp_path / "manager"),
            "XDG_RUNTIME_DIR": str(tmp_path),
        }
        command = [sys.executable, "-m", *words[1:]]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=environment
        ) as served:
            try:
                assert manager.recv(4096).startswith(b"READY=1\n")
                assert served.stdout is not None
                lines = iter(served.stdout.readline, "")
                address = next(x for x in lines if x.startswith("gRPC at ")).split()[-1]
                client = triton.InferenceServerClient(address)
                deadline = time.monotonic() + PATIENCE
                while not client.is_model_ready("kws"):
                    assert time.monotonic() < deadline
                    time.sleep(0.02)  # the protocol has no other way to wait
                assert client.get_model_metadata("kws").name == "kws"
                client.close()
            finally:
                served.terminate()
        assert served.returncode == 0


def test_every_recipe_is_in_the_documentation() -> None:
    text = (EXAMPLES.parent / "docs" / "recipes.md").read_text()
    for example in [*EXAMPLES.glob("*.py"), UNIT]:
        assert example.name in text
