"""Every call of kserve's client for inference, by both protocols: `make kserve` installs it and runs this."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("tritonclient.grpc", reason="extra grpc is not installed")
pytest.importorskip("aiohttp", reason="extra http is not installed")

from serving.served import PATIENCE, Served

PROGRAM = Path(__file__).with_name("kserve_calls.py")
PYTHON = PROGRAM.parents[2] / "build" / "kserve" / "bin" / "python"
#: Methods of the clients that are no calls of the server.
OF_CLIENTS = {"close"}
METHODS = """
import kserve
for kind in (kserve.InferenceGRPCClient, kserve.InferenceRESTClient):
    print(*(name for name in vars(kind) if name[0] != "_"))
"""


def said(*words: str) -> str:
    if not PYTHON.exists():
        pytest.skip("kserve is not installed (`make kserve` does)")
    done = subprocess.run(
        [str(PYTHON), "-W", "ignore", *words],
        check=False,
        capture_output=True,
        text=True,
        timeout=5 * PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.campaign
def test_each_call_of_kserves_client_is_as_the_standard_has_it() -> None:
    with Served("--http", "127.0.0.1:0") as served:
        found = json.loads(said(str(PROGRAM), served.address, served.http))
    assert {name: outcome for name, outcome in found.items() if outcome} == {}
    assert len(found) == 23
    for protocol, methods in zip(("gRPC", "REST"), said("-c", METHODS).splitlines(), strict=True):
        for each in set(methods.split()) - OF_CLIENTS:
            words = f"{protocol} {each.replace('_', ' ')}"
            assert any(name.startswith(words) for name in found), words
