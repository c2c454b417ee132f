"""What counts as growth, and a short soak."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from nnburst.testing.soak.__main__ import main
from nnburst.testing.soak.samples import Samples
from nnburst.testing.soak.series import FEWEST, Series, Trend

SECONDS = float(os.environ.get("NNBURST_SOAK", "20"))


def trend(values: np.ndarray, allowance: float = 1.0) -> Trend:
    series = Series(allowance)
    for second, value in enumerate(values):
        series.add(float(second), float(value))
    found = series.trend()
    assert found is not None
    return found


def test_leak_of_a_byte_in_the_noise_of_none_is_found() -> None:
    assert not trend(np.arange(100) * 0.1).is_flat
    assert not trend(np.floor(np.arange(1000) / 100) * 3).is_flat


def test_leak_that_rises_above_its_noise_is_found() -> None:
    noise = np.random.default_rng(1).uniform(-1, 1, 400)
    assert not trend(noise + np.arange(400) * 0.02).is_flat
    assert trend(noise).is_flat
    assert trend(noise - np.arange(400)).is_flat


def test_growth_within_the_warm_up_and_the_allowance_is_none() -> None:
    assert trend(np.minimum(np.arange(100), 20.0)).is_flat
    assert trend(np.arange(100) * 0.01).is_flat
    assert not trend(np.arange(100) * 0.01, allowance=0.5).is_flat


def test_line_says_where_it_begins_and_by_how_much_it_rises() -> None:
    found = trend(10 + np.arange(101) * 2.0)
    assert found.first == pytest.approx(60)  # after a quarter
    assert found.growth == pytest.approx(150)
    assert found.noise == pytest.approx(0, abs=1e-9)


def test_few_samples_say_nothing() -> None:
    series = Series(1.0)
    for second in range(FEWEST - 1):
        series.add(second, 1.0)
    assert series.trend() is None
    assert Series(1.0).trend() is None


def test_leaked_descriptor_of_this_process_shows_in_its_series() -> None:
    samples, fds = Samples({"me": os.getpid()}), []
    for _ in range(40):
        fds.append(os.open("/dev/null", os.O_RDONLY))
        samples.take()
    for fd in fds:
        os.close(fd)
    found = samples.series["me: fds"].trend()
    assert found is not None
    assert not found.is_flat
    threads = samples.series["me: threads"].trend()
    assert threads is not None
    assert threads.is_flat


@pytest.mark.slow
def test_soak_finds_nothing_that_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "soak.json"
    main(["--seconds", str(SECONDS), "--json", str(file)])
    facts, text = json.loads(file.read_text()), capsys.readouterr().out
    assert facts["errors"] == [], text
    assert all(count > 0 for count in facts["counts"].values()), text
    assert all(count > 0 for count in facts["rounds"].values()), text
    assert "supervisor: fds" in facts["trends"]
    grows = [
        name for name in facts["growing"] if name.startswith("supervisor") or SECONDS >= 3600
    ]  # a few seconds are the warm-up of the others
    assert grows == [], text
