"""The files for operators fit what is served: series that exist, options that fit, pinned versions."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tools.container.dockerfile import read

pytest.importorskip("yaml", reason="extra test is not installed")
pytest.importorskip("tritonclient.grpc", reason="extra grpc is not installed")
pytest.importorskip("prometheus_client", reason="extra metrics is not installed")

import grpc
import yaml
from prometheus_client.parser import text_string_to_metric_families
from tritonclient.grpc import service_pb2, service_pb2_grpc

from nnburst.serving.options import parse
from serving.served import PATIENCE, Served
from serving.test_scraping import port_of, scrape

ROOT = Path(__file__).resolve().parents[2]
CONTRIB = ROOT / "contrib"
ALERTS = CONTRIB / "prometheus" / "alerts.yaml"
DASHBOARD = CONTRIB / "grafana" / "nnburst.json"
MANIFEST = CONTRIB / "kubernetes" / "nnburst.yaml"
DOCKERFILE = CONTRIB / "container" / "Dockerfile"
#: Labels that Prometheus adds to each series of a target.
OF_TARGETS = {"instance", "job"}


def expressions() -> list[str]:
    """The queries of the alerts and of the dashboard."""
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    found = [rule["expr"] for group in groups for rule in group["rules"]]
    dashboard = json.loads(DASHBOARD.read_text())
    found += [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    found += [
        each["definition"] for each in dashboard["templating"]["list"] if "definition" in each
    ]
    return found


@pytest.fixture(scope="module")
def metrics() -> bytes:
    """The metrics of a front that has executed once."""
    message = service_pb2.ModelInferRequest(model_name="add")
    for name in "ab":
        message.inputs.add(name=name, datatype="FP32", shape=[2, 3])
        message.raw_input_contents.append(np.ones(6, "<f4").tobytes())
    with Served("--metrics", "127.0.0.1:0", models=("add",)) as served:
        with grpc.insecure_channel(served.address) as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            stub.ModelInfer(message, timeout=PATIENCE)
        _, text = scrape(port_of(served.metrics))
    return text


@pytest.fixture(scope="module")
def exported(metrics: bytes) -> dict[str, set[str]]:
    """The labels of each series, by name."""
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(metrics.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def test_every_query_names_series_that_the_front_exports(exported: dict[str, set[str]]) -> None:
    asked = {expression: re.findall(r"\bnnburst_\w+", expression) for expression in expressions()}
    assert [expression for expression, names in asked.items() if not names] == []
    missing = {name for names in asked.values() for name in names} - exported.keys()
    assert sorted(missing) == []


def test_every_query_groups_and_selects_by_labels_of_its_series(
    exported: dict[str, set[str]],
) -> None:
    wrong = []
    for expression in expressions():
        labels = set()
        for name in re.findall(r"\bnnburst_\w+", expression):
            labels |= exported[name] | OF_TARGETS
        used = [
            each
            for group in re.findall(r"\bby \(([^)]*)\)", expression)
            for each in group.split(",")
        ]
        used += re.findall(r"[{,]\s*(\w+)\s*=~?", expression)
        wrong += [(expression, each.strip()) for each in used if each.strip() not in labels]
    assert wrong == []


def test_every_status_that_an_alert_selects_is_one_of_grpcs() -> None:
    selected = re.findall(r'status=~?"([^"]*)"', ALERTS.read_text())
    assert selected
    names = {each for words in selected for each in words.split("|")}
    assert names <= set(grpc.StatusCode.__members__)


def test_each_series_of_the_page_is_on_the_dashboard(exported: dict[str, set[str]]) -> None:
    shown = set(re.findall(r"\bnnburst_\w+", DASHBOARD.read_text()))
    plain = {re.sub(r"_(bucket|sum|count|created)$", "", name) for name in exported}
    assert plain <= {re.sub(r"_bucket$", "", name) for name in shown}


@pytest.fixture
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not installed (Debian's package prometheus has it)")
    return found


def checked(*command: str, text: bytes = b"") -> None:
    """A command that succeeds."""
    done = subprocess.run(command, input=text, capture_output=True, check=False, timeout=PATIENCE)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()


def test_alerts_are_what_prometheus_understands(promtool: str) -> None:
    checked(promtool, "check", "rules", str(ALERTS))


def test_alerts_fire_if_they_should_and_are_silent_for_a_service_that_is_well(
    promtool: str,
) -> None:
    checked(promtool, "test", "rules", str(ALERTS.with_name("alerts_test.yaml")))


def test_each_alert_is_tried_on_a_service_that_is_well_and_on_one_that_is_not() -> None:
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    alerts = {rule["alert"] for group in groups for rule in group["rules"]}
    well, *ill = yaml.safe_load(ALERTS.with_name("alerts_test.yaml").read_text())["tests"]
    silent = [each for each in well["alert_rule_test"] if "exp_alerts" not in each]
    assert {each["alertname"] for each in silent} == alerts
    fires = {
        each["alertname"]
        for one in ill
        for each in one["alert_rule_test"]
        if each.get("exp_alerts")
    }
    assert fires == alerts


def test_metrics_keep_the_rules_of_prometheus(promtool: str, metrics: bytes) -> None:
    checked(promtool, "check", "metrics", text=metrics)


def manifest() -> dict[str, Any]:
    return {each["kind"]: each for each in yaml.safe_load_all(MANIFEST.read_text())}


def test_manifest_is_what_kubernetes_understands() -> None:
    validate = pytest.importorskip(
        "kubernetes_validate", reason="extra test is not installed"
    ).validate
    for each in manifest().values():
        validate(each, "1.30", strict=True)


def test_manifest_and_image_fit_each_other_and_the_options(tmp_path: Path) -> None:
    image = read(DOCKERFILE)[-1]
    pod = manifest()["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert image.command[: len(image.entrypoint)][-1] == "--executor"
    executor, *words = container["args"]
    assert executor in image.command
    token = tmp_path / "token"
    token.write_text("a-token-of-this-test")
    here = {"/models": str(tmp_path), "/run/secrets/nnburst/token": str(token)}
    line = []
    for word in words:
        option, _, value = word.partition("=")
        line.append(f"{option}={here.get(value, value)}")
    options = parse(["--connect", "driver", "--any-user", *line])
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert ports == {
        "grpc": port_of(options.grpc),
        "http": port_of(options.http),
        "metrics": port_of(options.metrics),
    }
    assert sorted(ports.values()) == sorted(image.ports)
    mounts = {each["mountPath"] for each in container["volumeMounts"]}
    assert {*image.volumes, "/models", "/run/secrets/nnburst"} <= mounts
    assert pod["terminationGracePeriodSeconds"] > options.drain
    user = pod["securityContext"]["runAsUser"]
    assert any(f"--uid {user} {image.user} " in str(step) for step in image.steps)
    service = manifest()["Service"]["spec"]
    assert {each["port"] for each in service["ports"]} == set(image.ports)
    labels = manifest()["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert service["selector"] == labels


def pins(file: Path) -> dict[str, set[str]]:
    """Hashes of each pinned version."""
    found: dict[str, set[str]] = {}
    pin = ""
    for line in file.read_text().splitlines():
        if line[:1].isalnum():
            pin = line.split()[0]
        if hashes := re.findall(r"--hash=(\S+)", line):
            found.setdefault(pin, set()).update(hashes)
    return found


def test_image_has_the_versions_and_hashes_of_the_lock_file() -> None:
    locked, image = pins(ROOT / "requirements.lock"), pins(CONTRIB / "container/requirements.txt")
    assert image.items() <= locked.items()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = list(project["dependencies"])
    for extra in ("litert", "grpc", "http", "metrics", "otel"):
        wanted += project["optional-dependencies"][extra]
    names = {re.split(r"[\[<>=;!~ ]", each)[0].replace("_", "-").lower() for each in wanted}
    assert names <= {pin.partition("==")[0] for pin in image}


@pytest.mark.campaign
def test_container_is_checked_as_a_client_would(served_driver: str) -> None:
    """The command of HEALTHCHECK succeeds beside a driver, and fails without one."""
    python, option, program = read(DOCKERFILE)[-1].health
    assert (python, option) == ("python", "-c")

    def status(path: str) -> int:
        words = [sys.executable, option, program.replace("/run/nnburst/driver.sock", path)]
        return subprocess.run(
            words, check=False, timeout=PATIENCE, stderr=subprocess.DEVNULL
        ).returncode

    assert status(served_driver) == 0
    assert status(f"{served_driver}.gone") != 0


@pytest.fixture
def served_driver() -> Iterator[str]:
    with Served(models=("add",), ready=False) as served:
        yield served.driver
