"""`nnburst bench clients` starts many clients and reports what each of them got."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nnburst.bench.clients.load import Load
from nnburst.bench.clients.scenario import run_load
from nnburst.cli import main
from nnburst.hal.errors import DeviceUnavailable


@pytest.mark.campaign
def test_every_client_is_served_in_both_loops(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    words = ["bench", "clients", "--clients", "3", "--seconds", "0.5", "--rate", "100"]
    assert main([*words, "--waiting", "sleeping", "--on", "all", "--json", str(report)]) == 0
    closed, opened = json.loads(report.read_text())["cases"]
    assert (closed["loop"], opened["loop"]) == ("closed", "open")
    for case in (closed, opened):
        assert case["clients"] == 3
        assert case["fewest"] > 0
        assert 0 < case["fairness"] <= 1
        assert 0 < case["median_ns"] <= case["p99_ns"]
        assert case["client_cpu_share"] > 0
        assert case["worker_cpu_share"] > 0
        assert case["waits_per_request"] >= 0
    assert opened["requests"] > 60
    assert opened["queue_p99_ns"] >= opened["queue_median_ns"] > 0
    assert "queue_p99_ns" not in closed


def test_clients_that_find_no_service_are_an_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    missing = str(tmp_path / "missing.sock")
    with pytest.raises(DeviceUnavailable, match="clients: one of them failed"):
        run_load(Load(missing, clients=2, rate=0.0, spins=False, cores=(0,), seconds=0.1))
    assert "no driver serves" in capfd.readouterr().err


def test_file_that_is_no_network_is_refused_before_clients_start(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed (extra 'litert')")
    wrong, missing = tmp_path / "wrong.tflite", tmp_path / "missing.tflite"
    wrong.write_bytes(bytes(100))
    assert main(["bench", "clients", "--clients", "1", "--network", str(wrong)]) == 1
    assert f"nnburst: {wrong}: not an intact .tflite file" in (shown := capfd.readouterr().err)
    assert main(["bench", "clients", "--clients", "1", "--network", str(missing)]) == 1
    assert f"nnburst: {missing}: No such file" in (shown := shown + capfd.readouterr().err)
    assert "Traceback" not in shown


@pytest.mark.parametrize("counts", ["0", "", "4,x", "257"])
def test_senseless_numbers_of_clients_are_refused(counts: str) -> None:
    with pytest.raises(SystemExit):
        main(["bench", "clients", "--clients", counts])


def test_rates_that_no_client_reaches_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["bench", "clients", "--rate", "1e9"])
    assert "argument --rate: '1e9', expected at most 1e+06" in capsys.readouterr().err
