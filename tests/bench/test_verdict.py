"""When two measurements differ, and when there is no verdict."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("scipy", reason="scipy is not installed (extra 'data')")

from nnburst.bench.verdict import Verdict, compare, exit_status, spread
from nnburst.cli import main


def blocks(median: float, sigma: float = 0.03, count: int = 41, seed: int = 1) -> list[float]:
    drawn = np.random.default_rng(seed).normal(median, sigma * median, count)
    return [float(value) for value in drawn]


@pytest.mark.every_day("103-0.03-same", "110-0.03-worse", "90-0.03-better", "110-0.4-noisy")
@pytest.mark.parametrize(
    ("median", "sigma", "expected"),
    [
        (100, 0.03, Verdict.SAME),
        (103, 0.03, Verdict.SAME),  # surely slower, but not by what matters
        (110, 0.03, Verdict.WORSE),
        (90, 0.03, Verdict.BETTER),
        (110, 0.4, Verdict.NOISY),
        (200, 0.4, Verdict.NOISY),
    ],
)
def test_verdict_follows_effect_and_spread(median: float, sigma: float, expected: Verdict) -> None:
    found = compare("case", blocks(100), blocks(median, sigma, seed=2))
    assert found.verdict is expected
    assert bool(found.why) is (expected is Verdict.NOISY)


def test_few_blocks_give_no_verdict() -> None:
    found = compare("case", blocks(100, count=4), blocks(200))
    assert found.verdict is Verdict.NOISY
    assert "4 blocks, expected 7 or more" in found.why


def test_one_outlier_is_not_a_spread() -> None:
    assert spread([100.0] * 40 + [1e6]) == 0


@pytest.mark.every_day(
    "0.03-0.05-110-worse", "0.05-0.3-90-better", "0.12-1-100-same", "0.2-1-110-worse"
)
@pytest.mark.parametrize(
    ("now", "right"), [(100, Verdict.SAME), (110, Verdict.WORSE), (90, Verdict.BETTER)]
)
@pytest.mark.parametrize(
    ("sigma", "noisy"), [(0.03, 0.05), (0.05, 0.3), (0.08, 1), (0.12, 1), (0.2, 1)]
)
def test_pairs_of_runs_give_no_wrong_verdict_however_much_they_spread(
    now: float, right: Verdict, sigma: float, noisy: float
) -> None:
    found = Counter(
        compare("case", blocks(100, sigma, seed=n), blocks(now, sigma, seed=1000 + n)).verdict
        for n in range(100)
    )
    assert found.keys() <= {right, Verdict.NOISY}
    assert found[Verdict.NOISY] <= 100 * noisy


def test_more_blocks_decide_what_few_cannot() -> None:
    few = compare("case", blocks(100, 0.1), blocks(107, 0.1, seed=5))
    assert few.verdict is Verdict.NOISY
    assert "lies on either side of 5%" in few.why
    many = compare("case", blocks(100, 0.1, count=4001), blocks(107, 0.1, count=4001, seed=5))
    assert many.verdict is Verdict.WORSE
    assert many.margin < few.margin / 5


def test_large_difference_of_few_blocks_that_may_be_chance_gives_no_verdict() -> None:
    found = compare("case", [100.0] * 6 + [112.0], [110.0] * 6 + [99.0])
    assert found.verdict is Verdict.NOISY
    assert "between equal runs" in found.why


def test_worse_counts_before_noisy_and_noisy_before_same() -> None:
    assert exit_status([Verdict.SAME, Verdict.BETTER]) == 0
    assert exit_status([Verdict.NOISY, Verdict.WORSE]) == 1
    assert exit_status([Verdict.NOISY, Verdict.SAME]) == 2
    assert exit_status([]) == 2


def write(path: Path, **cases: list[float]) -> str:
    rows = [{"name": name, "blocks_ns": found} for name, found in cases.items()]
    path.write_text(json.dumps({"cases": rows, "conditions": {"doubts": ["a load"]}}))
    return str(path)


def test_files_of_runs_are_compared_case_by_case(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = [1.0, 1.0, 1.0]
    a = write(tmp_path / "a.json", same=blocks(100), slow=blocks(50), few=few, gone=blocks(1))
    b = write(tmp_path / "b.json", same=blocks(100, seed=2), slow=blocks(60, seed=3), few=few)
    out = tmp_path / "out.json"
    assert main(["bench", "compare", a, b, "--json", str(out)]) == 1
    found = {case["case"]: case["verdict"] for case in json.loads(out.read_text())["cases"]}
    assert found == {"same": "same", "slow": "worse", "few": "noisy"}
    shown = capsys.readouterr().out
    assert "worse" in shown
    assert "not quiet: a load" in shown
    assert "few: no verdict: 3 blocks, expected" in shown
    assert [line.split()[-1] for line in shown.splitlines() if line.startswith(("  s", "  f"))] == [
        *("same", "worse", "noisy")
    ]
    alone = write(tmp_path / "alone.json", same=blocks(100))
    assert main(["bench", "compare", alone, alone]) == 0


def test_ratios_to_a_case_forgive_a_machine_that_was_slower_as_a_whole(tmp_path: Path) -> None:
    pace = np.random.default_rng(5).uniform(0.7, 1.6, 41)
    floor, case = blocks(100), blocks(300, seed=2)
    slower = [list(map(float, np.asarray(found) * pace)) for found in (floor, case)]
    a = write(tmp_path / "a.json", floor=floor, case=case)
    b = write(tmp_path / "b.json", floor=slower[0], case=slower[1])
    assert main(["bench", "compare", a, b]) != 0
    assert main(["bench", "compare", a, b, "--relative-to", "floor"]) == 0


def test_files_without_blocks_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.json").write_text("{}")
    (tmp_path / "b.json").write_text("nothing")
    a, b = str(tmp_path / "a.json"), str(tmp_path / "b.json")
    assert main(["bench", "compare", a, a]) == 1
    assert "no case with blocks in both" in capsys.readouterr().err
    assert main(["bench", "compare", a, b]) == 1
    assert "b.json: JSON is malformed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('[{"name": "x", "blocks_ns": ["a"]}]', "blocks of 'x': ['a'], expected numbers above 0"),
        (
            '[{"name": "x", "blocks_ns": [null, 1]}]',
            "blocks of 'x': [None, 1], expected numbers above 0",
        ),
        ('[{"name": "x", "blocks_ns": [1, 0]}]', "blocks of 'x': [1, 0], expected numbers above 0"),
        (f'[{{"name": "x", "blocks_ns": [1{"0" * 400}]}}]', "too large"),
        ("[" * 200_000, "recursion"),
    ],
)
def test_files_with_damaged_cases_are_refused_by_their_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, reason: str
) -> None:
    path = tmp_path / "a.json"
    path.write_text(f'{{"cases": {content}}}')
    for options in ((), ("--relative-to", "x")):
        assert main(["bench", "compare", str(path), str(path), *options]) == 1
        told = capsys.readouterr().err
        assert f"{path}: " in told
        assert reason in told


def test_two_cases_of_one_name_in_a_file_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.json"
    twice = [{"name": "run", "blocks_ns": blocks(100)}, {"name": "run", "blocks_ns": blocks(200)}]
    path.write_text(json.dumps({"cases": twice}))
    assert main(["bench", "compare", str(path), str(path)]) == 1
    assert f"{path}: two cases named 'run', expected names that differ" in capsys.readouterr().err
    networks = [{"network": name, "cases": twice[:1]} for name in ("a", "b")]
    path.write_text(json.dumps({"cases": networks}))
    assert main(["bench", "compare", str(path), str(path)]) == 0


@pytest.mark.parametrize("conditions", [None, {"doubts": None}])
def test_files_with_damaged_conditions_are_refused_by_their_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], conditions: object
) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"name": "x", "blocks_ns": [1.0], "conditions": conditions}))
    assert main(["bench", "compare", str(path), str(path)]) == 1
    assert f"{path}: Expected " in capsys.readouterr().err


def test_cases_without_blocks_have_no_medians(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = write(tmp_path / "a.json", none=[]), tmp_path / "out.json"
    assert main(["bench", "compare", path, path, "--json", str(out)]) == 2
    (row,) = (line for line in capsys.readouterr().out.splitlines() if line.endswith("noisy"))
    assert row.split() == ["none", "-", "-", "-", "-", "noisy"]
    (case,) = json.loads(out.read_text())["cases"]
    assert case["before"] is case["now"] is None
    assert case["verdict"] == "noisy"
