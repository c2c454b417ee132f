"""What a network's outputs are worth: beside the truth, or beside golden outputs of sequences.

They are those of the original's suite, and `segments` for detectors of speech. Each gives
figures by name, and in words what is not as expected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from nnburst.hal.errors import InvalidArgument

Array = npt.NDArray[Any]

#: `top_k` looks at so many classes; the first may be right for so many fewer than expected.
_TOPS: Final = 5
_TOP1_SLACK: Final = 0.05
#: Errors of an utterance's phones in parts of its frames, and of synthesised speech.
_PHONE_ERRORS: Final = 0.05
_MEL_CEPSTRUM: Final = 4.0
_LOG_PITCH: Final = 0.01
#: Of a frame of synthesised speech: amplitudes, aperiodicities, log F0, voicing.
_AMPLITUDES: Final = 40
_APERIODICITIES: Final = 7
_SPEECH_FRAME: Final = _AMPLITUDES + _APERIODICITIES + 2
#: Frames around the borders of what is spoken that do not count, and wrong decisions among the others.
_BORDER: Final = 2
_WRONG_DECISIONS: Final = 0.05


@dataclass(frozen=True, slots=True)
class Findings:
    """What an evaluator found.

    Attributes:
        evaluator: its name.
        figures: by name.
        failures: what is not as expected, in words; empty if all is.
    """

    evaluator: str
    figures: Mapping[str, float]
    failures: Sequence[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """As `--json` writes it."""
        finite = {k: v if np.isfinite(v) else None for k, v in self.figures.items()}
        return {"evaluator": self.evaluator, "figures": finite, "failures": list(self.failures)}


class Outputs(NamedTuple):
    """An output of one utterance, real values: frames first.

    Attributes:
        found: by the network.
        golden: what is right.
    """

    found: Array
    golden: Array


def top_k(scores: Array, labels: Array, expected_top1: float | None = None) -> Findings:
    """Shares of examples whose class is among the first 1 to 5.

    Args:
        scores: of each example and class, (examples, classes).
        labels: the right class of each example.
        expected_top1: fails if the first is right for 5 points fewer than this.
    """
    count, classes = scores.shape
    if labels.shape != (count,) or labels.min(initial=0) < 0 or labels.max(initial=0) >= classes:
        raise InvalidArgument(
            f"labels: {labels.shape} from {labels.min(initial=0)} to {labels.max(initial=0)}, expected"
            f" {count} classes below {classes}"
        )
    order = np.argsort(-scores, axis=1, kind="stable")[:, :_TOPS]
    right = order == labels[:, None]
    figures = {
        f"top{k}": float(right[:, :k].any(axis=1).mean()) for k in range(1, order.shape[1] + 1)
    }
    failures = []
    if expected_top1 is not None and figures["top1"] < expected_top1 - _TOP1_SLACK:
        failures.append(
            f"top1 is {figures['top1']:.4g}, expected at least {expected_top1:g} - {_TOP1_SLACK:g}"
        )
    return Findings("top_k", figures, failures)


def differences(
    name: str,
    pairs: Sequence[Outputs],
    mean: float = 0.0,
    deviation: float = 1.0,
    largest: float | None = None,
) -> Findings:
    """Mean squared and largest absolute difference from what is right.

    DEVIATES: the original keeps the largest signed difference, which negative ones never are.

    Args:
        name: of the evaluator.
        pairs: outputs.
        mean: stored mean of outputs that are normalised.
        deviation: their stored deviation; `output * deviation + mean` is the real value.
        largest: fails if a difference is larger.
    """
    errors = [
        np.abs(_real(pair.found, mean, deviation) - _real(pair.golden, mean, deviation)).reshape(-1)
        for pair in pairs
    ]
    every = np.concatenate([*errors, np.zeros(0)])
    every = np.where(np.isnan(every), np.inf, every)
    figures = {
        "mean_squared": float(np.mean(every**2)) if every.size else 0.0,
        "largest": float(every.max(initial=0.0)),
    }
    failures = []
    if largest is not None and not figures["largest"] <= largest:
        failures.append(f"largest is {figures['largest']:.3g}, expected at most {largest:g}")
    return Findings(name, figures, failures)


def phone_error_rate(pairs: Sequence[Outputs]) -> Findings:
    """Edits between the most likely phones of each utterance and the golden ones, by its frames."""
    rates = [
        _edits(pair.found.argmax(-1).reshape(-1), pair.golden.argmax(-1).reshape(-1))
        / max(len(pair.golden), 1)
        for pair in pairs
    ]
    worst = max(rates, default=0.0)
    failures = []
    if worst > _PHONE_ERRORS:
        failures.append(f"worst_rate is {worst:.3g}, expected at most {_PHONE_ERRORS:g}")
    return Findings("phone_error_rate", {"worst_rate": worst}, failures)


def mel_cep_log_f0(pairs: Sequence[Outputs], mean: float = 0.0, deviation: float = 1.0) -> Findings:
    """Of synthesised speech, the errors of its spectrum and of its melody, of the worst utterance."""
    spectrum, pitch = [0.0], [0.0]
    for pair in pairs:
        found, golden = (_real(one, mean, deviation).reshape(-1, _SPEECH_FRAME) for one in pair)
        spectrum.append(_root_mean_square((found - golden)[:, 1:_AMPLITUDES]))
        voiced = (found[:, -1] > 0) & (golden[:, -1] > 0)
        pitch.append(_root_mean_square((found - golden)[voiced, _AMPLITUDES + _APERIODICITIES]))
    figures = {"mel_cepstrum": max(spectrum), "log_f0": max(pitch)}
    failures = [
        f"{name} is {figures[name]:.3g}, expected at most {most:g}"
        for name, most in (("mel_cepstrum", _MEL_CEPSTRUM), ("log_f0", _LOG_PITCH))
        if not figures[name] <= most
    ]
    return Findings("mel_cep_log_f0", figures, failures)


def segments(probabilities: Array, spoken: Array, threshold: float = 0.5) -> Findings:
    """Wrong decisions of a detector of speech, away from the borders of what is spoken.

    Args:
        probabilities: of each frame.
        spoken: whether something is spoken in each.
        threshold: from which probability on a frame counts as spoken.
    """
    if probabilities.reshape(-1).shape != spoken.shape:
        raise InvalidArgument(
            f"segments: {probabilities.size} probabilities, expected one for each of"
            f" {spoken.size} frames"
        )
    wrong = (probabilities.reshape(-1) > threshold) != spoken
    for border in np.flatnonzero(spoken[1:] != spoken[:-1]) + 1:
        wrong[max(0, border - _BORDER) : border + _BORDER] = False
    share = float(wrong.mean()) if wrong.size else 0.0
    failures = []
    if share > _WRONG_DECISIONS:
        failures.append(f"wrong_decisions is {share:.3g}, expected at most {_WRONG_DECISIONS:g}")
    return Findings("segments", {"wrong_decisions": share}, failures)


def _real(values: Array, mean: float, deviation: float) -> Array:
    real: Array = values.astype(np.float64) * deviation + mean
    return real


def _root_mean_square(errors: Array) -> float:
    return float(np.sqrt(np.mean(errors**2))) if errors.size else 0.0


def _edits(one: Array, other: Array) -> int:
    """Fewest insertions, deletions and replacements between two rows (Levenshtein)."""
    last = np.arange(len(other) + 1)
    for number, item in enumerate(one, 1):
        now = np.minimum(last[1:] + 1, last[:-1] + (other != item))
        row = np.concatenate([[number], now])
        # An insertion costs one more than what stands to the left of it.
        steps = np.arange(len(row))
        last = np.minimum.accumulate(row - steps) + steps
    return int(last[-1])
