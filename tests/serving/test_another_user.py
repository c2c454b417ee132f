"""Another user of the host gets at nothing of a service, by whatever it tries."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("tritonclient.grpc", reason="extra grpc is not installed")
pytest.importorskip("grpc_reflection", reason="package grpcio-reflection is not installed")
pytest.importorskip("aiohttp", reason="extra http is not installed")
pytest.importorskip("prometheus_client", reason="extra metrics is not installed")
pytest.importorskip("posix_ipc", reason="names of queues need posix_ipc")

import nnburst
from nnburst.fmq.named_queue import create_named_queue
from nnburst.testing.faults.footprint import command_line
from programs import environ_of_tests
from serving import another_user
from serving.another_user import Facts
from serving.served import PATIENCE, Served, region_key
from waiting import wait_for

TOKEN = "a-token-of-the-Service"
SECRET = b"secret".ljust(64)
HEADERS = {"authorization": f"Bearer {TOKEN}"}
#: A folder of this mode refuses nobody, so that what lies in it has to.
OPEN_FOLDER = 0o755
#: Attempts that must have been made.
LEAST = 100

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")


@pytest.fixture
def secret() -> Iterator[Path]:
    """Shared memory of mode 0600."""
    path = Path("/dev/shm", region_key("another_user").removeprefix("/"))
    path.touch(0o600)
    path.write_bytes(SECRET)
    yield path
    path.unlink()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that everyone may enter, as pytest's own are not."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(OPEN_FOLDER)
        yield Path(name)


def processes(served: Served) -> list[int]:
    return [served.process.pid, *served.children()]


@pytest.mark.campaign
def test_another_user_is_refused_whatever_it_tries(secret: Path, folder: Path) -> None:
    (folder / "nnburst").mkdir(0o700)
    tokens = folder / "tokens"
    tokens.touch(0o600)
    tokens.write_text(TOKEN)
    paths = [folder / "grpc", folder / "http"]
    queue_name = region_key("queue")
    words = f"--shared-memory --token-file {tokens} --http 127.0.0.1:0 --http-metrics --metrics 127.0.0.1:0"
    at_paths = f"--grpc unix:{paths[0]} --http unix:{paths[1]}"
    with (
        Served(*words.split(), models=("add",), ready=False) as tcp,
        Served(*at_paths.split(), models=("add",), ready=False, grpc="") as unix,
        create_named_queue(queue_name, "u1", 64),
        nnburst.connect(tcp.driver),
    ):
        Path(unix.driver).parent.chmod(OPEN_FOLDER)
        Path(unix.driver).chmod(0o666)
        client = tcp.client()
        wait_for(lambda: client.is_server_ready(headers=HEADERS))
        client.register_system_shared_memory("victim", f"/{secret.name}", 64, headers=HEADERS)
        facts = Facts(
            grpc=tcp.address,
            http=tcp.http,
            metrics=tcp.metrics,
            token=TOKEN,
            token_file=str(tokens),
            key=secret.name,
            queue=queue_name,
            names=str(folder),
            private=str(Path(tcp.driver).parent),
            driver=unix.driver,
            sockets=[str(path) for path in paths],
            pids=[os.getpid(), *processes(tcp), *processes(unix)],
        )
        ends = attempted(facts)
        let_in = [f"{name}: {end}" for name, end, refusals in ends if end not in refusals]
        assert not let_in, "\n".join(let_in)
        assert len({name for name, *_ in ends}) == len(ends) >= LEAST
        # Everyone may read command lines.
        shown = [word for pid in facts.pids for word in command_line(pid)]
        assert shown
        assert not any(TOKEN.encode() in word for word in shown)
        # Nothing of the service has changed by it.
        assert set(facts.pids) <= {os.getpid(), *processes(tcp), *processes(unix)}
        assert (secret.read_bytes(), tokens.read_text()) == (SECRET, TOKEN)
        regions = client.get_system_shared_memory_status(headers=HEADERS).regions
        assert list(regions) == ["victim"]
        assert client.is_model_ready("add", headers=HEADERS)
        client.unregister_system_shared_memory(headers=HEADERS)
        client.close()


def attempted(facts: Facts) -> list[tuple[str, str, list[str]]]:
    """Each attempt's name, how it ended, and the ends that are refusals."""
    done = subprocess.run(
        [sys.executable, another_user.__file__, json.dumps(facts._asdict())],
        capture_output=True,
        text=True,
        check=False,
        timeout=4 * PATIENCE,
        env=environ_of_tests(),
    )
    assert done.returncode == 0, done.stdout[-500:] + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
