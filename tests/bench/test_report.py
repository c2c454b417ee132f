"""The page of `bench model`: what differs, in colour."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="matplotlib is not installed (extra 'cli')")
pytest.importorskip("scipy", reason="scipy is not installed (extra 'data')")
pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed (extra 'litert')")

from nnburst.bench.model import report
from nnburst.bench.model.latency import BURST, C_API, EXECUTE, Latency
from nnburst.bench.model.report import Measurement, histograms, judge, page
from nnburst.bench.rounds import Measured, WarmUp

TIMES = (
    "load_ms",
    "engine_ms",
    "launch_ms",
    "prepare_cold_ms",
    "prepare_to_cache_ms",
    "prepare_cached_ms",
    "first_run_ms",
    "second_run_ms",
    "first_result_ms",
    "first_result_cached_ms",
    "cache_bytes",
)


def measurement(routes: Mapping[str, float], sigma: float = 0.01) -> Measurement:
    """A network whose routes take so many microseconds."""
    random = np.random.default_rng(1)
    cases = {}
    for name, micro in routes.items():
        blocks = [float(b) for b in 1000 * micro * random.normal(1, sigma, 41)]
        cases[name] = Measured(
            name, blocks, [np.full(3, max(1, round(b)), np.uint64) for b in blocks]
        )
    latency = Latency(cases, 50.0, 40.0, WarmUp(0.3, 9))
    figures: dict[str, Any] = {
        "network": "kws",
        "group": "speech",
        "file_bytes": 100,
        "operations": 3,
        "reference": "LiteRT",
        "accuracy": [],
        "ground_truth": [],
        "latency": latency.as_json(),
        "histograms": histograms(cases),
        "preparation": {**dict.fromkeys(TIMES, 1.0), "prepare_cold_spread": 0.25},
        "comparable": "results of others",
        "remarks": [],
    }
    return Measurement(figures, latency)


def test_page_has_what_a_network_may_be_compared_with() -> None:
    text = page({}, [measurement({C_API: 1, BURST: 1})])
    assert "May be compared with results of others." in text
    assert len(re.findall(r'<svg role="img"', text)) == 3


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out that pictures are written as SVG, which takes nine tenths of a page's time."""
    monkeypatch.setattr(report, "as_svg", lambda _figure, title: f"<svg>{title}</svg>")


@pytest.mark.usefixtures("undrawn")
def test_routes_differ_from_the_engine_in_colour() -> None:
    text = page({}, [measurement({C_API: 100, BURST: 90, EXECUTE: 130, "burst, other": 100})])
    assert re.search(r'<td class="better">(89|90)\.\d\d -(9|10)\.\d%</td>', text)
    assert re.search(r'<td class="worse">(129|130)\.\d\d \+(29|30)\.\d%</td>', text)
    assert re.search(r"<td>(99|100)\.\d\d same</td>", text)
    assert re.search(r"<td>(99|100)\.\d\d</td>", text)
    assert re.search(r'<td class="better">-(9|10)\.\d%</td>', text)
    assert "<th>burst, other</th>" in text


@pytest.mark.usefixtures("undrawn")
def test_routes_that_spread_are_called_noisy_and_have_no_colour() -> None:
    text = page({}, [measurement({C_API: 100, BURST: 300}, sigma=0.5)])
    assert re.search(r"<td>\d+\.\d\d noisy</td>", text)
    assert 'class="worse"' not in text


@pytest.mark.usefixtures("undrawn")
@pytest.mark.every_day("120-worse")
@pytest.mark.parametrize(("now", "word"), [(120, "worse"), (80, "better")])
def test_verdict_beside_an_older_report_has_the_colour_of_its_word(now: float, word: str) -> None:
    old = measurement({C_API: 100, BURST: 100})
    new = measurement({C_API: 100, BURST: now})
    found = new.judged(judge(new.figures, {"kws": old.figures}))
    assert f'<td class="{word}">{word}, ' in page({}, [found])
    same = old.judged(judge(old.figures, {"kws": old.figures}))
    assert "<td>same, +0.0%</td>" in page({}, [same])


@pytest.mark.usefixtures("undrawn")
def test_page_has_mean_deviation_and_count_of_routes_and_the_spread_of_preparing() -> None:
    text = page({}, [measurement({C_API: 100, BURST: 90})])
    assert "<th>count</th><th>mean µs</th><th>σ µs</th>" in text
    assert re.search(r"<td>123</td><td>(89|90)\.\d\d</td><td>0\.[5-9]\d</td>", text)
    assert "Warmed up for 0.3 s." in text
    assert "the first execution" in text
    assert "<td>25%</td>" in text


def test_network_that_fails_is_red_and_its_errors_have_a_table() -> None:
    right = measurement({C_API: 100, BURST: 90})
    wrong = measurement({C_API: 100, BURST: 90})
    finding = {"evaluator": "top k", "device": "", "figures": {}, "failures": ["top 1 is 0.5"]}
    figures = {**wrong.figures, "network": "broken", "ground_truth": [finding]}
    text = page({}, [right, replace(wrong, figures=figures)])
    assert '<td class="words worse">broken</td>' in text
    assert '<td class="words">kws</td>' in text
    assert text.index("<caption>Errors</caption>") < text.index("<caption>Overview")
