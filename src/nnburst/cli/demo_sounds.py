"""`nnburst demo voice`, `noise` and `wakeword`: run networks on a sound, hop by hop."""

from __future__ import annotations

import time
import wave
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter_ns
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

import nnburst
from nnburst.cli.output import microseconds, progress, table, text_for_people, write_json
from nnburst.demo.sound import (
    NOISE_DELAY,
    NOISE_HOP,
    NOISE_HOP_SECONDS,
    THRESHOLD,
    VOICE_HOP_SECONDS,
    Frames,
    NoiseWindows,
    build_voice_network,
    find_voice_network,
    load_noise_networks,
    noise_golden,
    noise_hops,
    segments,
    signal_to_noise,
    voice_golden,
    voice_hops,
    with_noise,
)
from nnburst.demo.speech import (
    HOP_SECONDS,
    RATE,
    STRIDE,
    Clip,
    Decision,
    Features,
    WakeWord,
    find_wake_word,
    read_clip,
    shipped_clip,
)
from nnburst.hal.model import Operand

H = TypeVar("H")

#: Hops between two steps of the progress bar.
_STEP: Final = 10


def in_time(title: str, hops: Sequence[H], seconds: float, *, real_time: bool) -> Iterator[H]:
    """Yield the hops of a sound one after another and show a progress bar.

    Args:
        title: title of the bar.
        hops: the hops of the sound.
        seconds: duration of a hop.
        real_time: True yields each hop when a microphone would deliver it, False at once.
    """
    began = perf_counter_ns()
    with progress(title, len(hops)) as advance:
        for number, hop in enumerate(hops, 1):
            if real_time:
                due = began + number * int(seconds * 1e9)
                time.sleep(max(0, due - perf_counter_ns()) / 1e9)
            yield hop
            if number % _STEP == 0:
                advance(_STEP)


def part_figures(
    parts: Sequence[str], durations_ns: Sequence[Sequence[int]]
) -> dict[str, dict[str, float]]:
    """Median, p99 and longest of each part of a hop, by its name with underscores.

    Args:
        parts: names of the parts.
        durations_ns: for each hop, the nanoseconds of each part.
    """
    durations = np.array(durations_ns or [(0,) * len(parts)])
    found = {}
    for part, name in enumerate(parts):
        median, p99, longest = np.percentile(durations[:, part], [50, 99, 100])
        times = {"median_ns": float(median), "p99_ns": float(p99), "max_ns": float(longest)}
        found[_key(name)] = times
    return found


def show_parts(title: str, parts: Sequence[str], figures: dict[str, Any]) -> None:
    """Print the result of `part_figures` as a table."""
    table(
        title,
        ["part of a hop", "median µs", "p99 µs", "max µs"],
        [
            [name, *(microseconds(value) for value in figures[_key(name)].values())]
            for name in parts
        ],
    )


def _key(part: str) -> str:
    return part.replace(" ", "_")


# -- nnburst demo voice: marks the parts of a sound with speech ------------------------------------
# There is one execution for each hop of 32 ms. The network is a float32 one with an LSTM, whose state
# stays in the pools from one execution to the next.


#: Largest difference allowed between engines, which add in different orders.
_TOLERANCE: Final = 1e-4
_WARM_UP: Final = 30
_VOICE_PARTS: Final = ("frame", "execution")
#: Characters that draw probabilities from 0 to 1.
_LEVELS: Final = " ▁▂▃▄▅▆▇█"
_COLUMNS: Final = 87


def mark(json_path: Path | None, clip_path: Path | None, *, real_time: bool, executor: str) -> int:
    """Mark the speech in a clip; 1 if the shipped clip does not give its golden outputs.

    Args:
        json_path: where the figures go; None for nowhere.
        clip_path: a .wav file at 16 kHz, 16 bits, one channel; None for the one that is shipped.
        real_time: whether hops come every 32 ms, as from a microphone, or one after the other.
        executor: of the driver.
    """
    content = find_voice_network().read_bytes()
    clip = shipped_clip() if clip_path is None else read_clip(clip_path)
    with text_for_people(json_path):
        figures = _mark(content, clip, executor, real_time=real_time)
        if clip_path is None:
            figures["golden"] = _voice_beside_golden(content, figures["probabilities"])
        _show_voice(clip, figures)
    write_json(json_path, figures)
    return 0 if clip_path is not None or figures["golden"]["right"] else 1


def _mark(content: bytes, clip: Clip, executor: str, *, real_time: bool) -> dict[str, Any]:
    network = build_voice_network(content)
    probabilities: list[float] = []
    durations_ns: list[tuple[int, int]] = []  # of `_VOICE_PARTS`
    with (
        nnburst.launch(executor) as device,
        device.prepare(network) as prepared,
        prepared.open_burst(states=network.states) as burst,
    ):
        stream = burst.bind()
        for _ in range(_WARM_UP):
            stream.run()
        stream.reset()
        frames, hops = Frames(), list(voice_hops(clip.samples))
        title = f"{len(hops) * VOICE_HOP_SECONDS:.2f} s of sound"
        for hop in in_time(title, hops, VOICE_HOP_SECONDS, real_time=real_time):
            start = perf_counter_ns()
            stream.inputs[0][...] = frames.frame(hop)
            ready = perf_counter_ns()
            stream.run(timeout=10.0)
            durations_ns.append((ready - start, perf_counter_ns() - ready))
            probabilities.append(float(stream.outputs[0][0, 0]))
    return {
        "executor": executor,
        "real_time": real_time,
        "hops": len(hops),
        "spoken": [phrase._asdict() for phrase in clip.phrases],
        "probabilities": probabilities,
        "segments": [segment._asdict() for segment in segments(probabilities)],
        **part_figures(_VOICE_PARTS, durations_ns),
    }


def _voice_beside_golden(content: bytes, probabilities: list[float]) -> dict[str, Any]:
    """Compares the probabilities with those that the authors' file gives by another engine."""
    golden = voice_golden()
    found, expected = np.array(probabilities), np.array(golden.probabilities)
    largest = float(np.abs(found - expected).max())
    differing = int(((found > THRESHOLD) != (expected > THRESHOLD)).sum())
    return {
        "engine": golden.engine,
        "same_network": golden.is_of(content),
        "largest_difference": largest,
        "differing_decisions": differing,
        "right": largest <= _TOLERANCE and differing == 0,
    }


def _show_voice(clip: Clip, figures: dict[str, Any]) -> None:
    for phrase in clip.phrases:
        print(f"  {phrase.start:.2f} s to {phrase.end:.2f} s is spoken: {phrase.text}")
    for segment in figures["segments"]:
        print(f"speech from {segment['start']:.3f} s to {segment['end']:.3f} s")
    if not figures["segments"]:
        print("no speech")
    _draw(figures["probabilities"])
    if "golden" in figures:
        golden = figures["golden"]
        beside = (
            f"{golden['largest_difference']:.2g} from {golden['engine']} at most, expected"
            f" {_TOLERANCE:g}; {golden['differing_decisions']} decisions differ"
        )
        if not golden["same_network"]:
            beside += "; the weights are others than those of the golden outputs"
        print(beside)
    title = f"{figures['hops']} hops of 32 ms, one execution each ({figures['executor']})"
    show_parts(title, _VOICE_PARTS, figures)


def _draw(probabilities: list[float]) -> None:
    """The probabilities as one line of bars."""
    if not probabilities:
        return
    each = -(-len(probabilities) // _COLUMNS)
    tops = [max(probabilities[at : at + each]) for at in range(0, len(probabilities), each)]
    print("".join(_LEVELS[round(top * (len(_LEVELS) - 1))] for top in tops))


# -- nnburst demo noise: takes the noise out of a sound --------------------------------------------
# There are two executions for each hop of 8 ms, of two networks with LSTMs in a row; the state of each
# stays in its burst's pools.


#: Signal-to-noise ratio of the shipped clip before the networks run, and its least gain by them, in dB.
_BEFORE: Final = 5.0
_GAIN: Final = 6.0
_NOISE_PARTS: Final = ("transform", "mask", "samples", "whole hop")

_Samples = npt.NDArray[np.int16]


def suppress(
    json_path: Path | None,
    clip_path: Path | None,
    output: Path | None,
    *,
    real_time: bool,
    executor: str,
) -> int:
    """Take the noise out; 1 if the shipped clip does not become its golden outputs.

    Args:
        json_path: where the figures go; None for nowhere.
        clip_path: a .wav file at 16 kHz, 16 bits, one channel; None for the shipped one with a hiss.
        output: where the result goes as a .wav file; None for nowhere.
        real_time: whether hops come every 8 ms, as from a microphone, or one after the other.
        executor: of the driver.
    """
    if clip_path is None:
        clean = shipped_clip().samples
        heard = with_noise(clean, _BEFORE)
    else:
        clean, heard = None, read_clip(clip_path).samples
    with text_for_people(json_path):
        found, figures = _suppress(heard, executor, real_time=real_time)
        if clean is not None:
            figures |= _beside_clean(clean, heard, found)
            figures["golden"] = _noise_beside_golden(found)
        _show_noise(figures)
        if output is not None:
            _write(output, found[NOISE_DELAY:])
    write_json(json_path, figures)
    if clean is None:
        return 0
    gained = figures["after_db"] - figures["before_db"]
    return 0 if figures["golden"]["right"] and gained >= _GAIN else 1


def _suppress(
    heard: _Samples, executor: str, *, real_time: bool
) -> tuple[npt.NDArray[np.float32], dict[str, Any]]:
    """The sound without noise, delayed by `NOISE_DELAY`, and the duration of every hop."""
    first, second = load_noise_networks()
    with (
        nnburst.launch(executor) as device,
        device.prepare(first) as masking,
        device.prepare(second) as sampling,
        masking.open_burst(states=first.states) as mask_burst,
        sampling.open_burst(states=second.states) as sample_burst,
    ):
        mask, samples = mask_burst.bind(), sample_burst.bind()
        for stream in (mask, samples):
            for _ in range(_WARM_UP):
                stream.run()
            stream.reset()
        chain, hops = _Chain(mask, samples), list(noise_hops(heard))
        title = f"{len(hops) * NOISE_HOP_SECONDS:.2f} s of sound"
        coming = in_time(title, hops, NOISE_HOP_SECONDS, real_time=real_time)
        left = [chain.hear(hop) for hop in coming]
    found = np.concatenate([*left, np.zeros(0, np.float32)])
    figures: dict[str, Any] = {
        "executor": executor,
        "real_time": real_time,
        "hops": len(hops),
        "level_before": _level(heard.astype(np.float64) / 32768),
        "level_after": _level(found[NOISE_DELAY:]),
        **part_figures(_NOISE_PARTS, chain.durations_ns),
    }
    return found, figures


class _Chain:
    """Takes the noise out of each hop: transform, both networks, and the transform back.

    Attributes:
        durations_ns: for each hop: both transforms, the first and the second execution, and the whole.
    """

    def __init__(self, mask: nnburst.BoundRequest, samples: nnburst.BoundRequest) -> None:
        self._mask = mask
        self._samples = samples
        self._windows = NoiseWindows()
        self.durations_ns: list[tuple[int, ...]] = []

    def hear(self, hop: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Take one hop of sound; return the finished hop, which is older by `NOISE_DELAY`."""
        began = perf_counter_ns()
        self._mask.inputs[0][...] = self._windows.magnitudes(hop)
        first = perf_counter_ns()
        self._mask.run(timeout=10.0)
        masked = perf_counter_ns()
        self._samples.inputs[0][...] = self._windows.masked(self._mask.outputs[0])
        second = perf_counter_ns()
        self._samples.run(timeout=10.0)
        sampled = perf_counter_ns()
        done = self._windows.hop(self._samples.outputs[0])
        end = perf_counter_ns()
        executions = masked - first, sampled - second
        self.durations_ns.append((end - began - sum(executions), *executions, end - began))
        return done


def _level(samples: npt.NDArray[Any]) -> float:
    """The level of the quietest tenth of the hops, in decibels relative to full scale."""
    hops = samples[: len(samples) // NOISE_HOP * NOISE_HOP].reshape(-1, NOISE_HOP)
    if not len(hops):
        return 0.0
    quiet = np.percentile(np.sqrt(np.mean(hops.astype(np.float64) ** 2, axis=1)), 10)
    return float(20 * np.log10(max(quiet, 1e-6)))


def _beside_clean(
    clean: _Samples, heard: _Samples, found: npt.NDArray[np.float32]
) -> dict[str, float]:
    after = found[NOISE_DELAY:]
    return {
        "before_db": signal_to_noise(clean[: len(after)], heard[: len(after)]),
        "after_db": signal_to_noise(clean[: len(after)], after),
    }


def _noise_beside_golden(found: npt.NDArray[np.float32]) -> dict[str, Any]:
    """Compares the level of each hop with that of the authors' files by another engine."""
    golden = noise_golden()
    levels = np.sqrt(np.mean(found.reshape(-1, NOISE_HOP).astype(np.float64) ** 2, axis=1))
    largest = float(np.abs(levels - golden.levels).max())
    return {
        "engine": golden.engine,
        "same_networks": golden.is_of_installed(),
        "largest_difference": largest,
        "right": largest <= _TOLERANCE,
    }


def _show_noise(figures: dict[str, Any]) -> None:
    if "golden" in figures:
        print(
            f"speech is {figures['before_db']:.1f} dB louder than noise before,"
            f" {figures['after_db']:.1f} dB after"
        )
    print(
        f"the quietest tenth is at {figures['level_before']:.1f} dB before,"
        f" {figures['level_after']:.1f} dB after"
    )
    if "golden" in figures:
        golden = figures["golden"]
        others = "" if golden["same_networks"] else "; the weights are others than those of it"
        print(
            f"levels of hops are {golden['largest_difference']:.2g} from {golden['engine']} at most,"
            f" expected {_TOLERANCE:g}{others}"
        )
    title = f"{figures['hops']} hops of 8 ms, two executions each ({figures['executor']})"
    show_parts(title, _NOISE_PARTS, figures)


def _write(path: Path, samples: npt.NDArray[np.float32]) -> None:
    stored = np.clip(np.round(samples.astype(np.float64) * 32768), -32768, 32767)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(stored.astype("<i2").tobytes())
    print(f"wrote {path}")


# -- nnburst demo wakeword: spots a phrase in a stream of sound ------------------------------------
# There is one execution for each 10 ms. The network is an int8 streaming one. Its variables stay in the pools
# from one execution to the next.


#: The network looks at a while of sound and its answers are averaged: so much later it may detect one.
_GRACE: Final = 0.5
_WAKEWORD_PARTS: Final = ("features", "execution", "whole hop")


def hear(json_path: Path | None, clip_path: Path | None, *, real_time: bool) -> int:
    """Stream a clip; 1 if the clip that is shipped is not detected as it was spoken.

    Args:
        json_path: where the figures go; None for nowhere.
        clip_path: a .wav file at 16 kHz, 16 bits, one channel; None for the one that is shipped.
        real_time: whether hops come every 10 ms, as from a microphone, or one after the other.
    """
    word = find_wake_word()
    clip = shipped_clip() if clip_path is None else read_clip(clip_path)
    with text_for_people(json_path):
        figures = _listen(word, clip, real_time=real_time)
        _show_wakeword(word, clip, figures)
    write_json(json_path, figures)
    return 0 if clip_path is not None or figures["as_spoken"] else 1


def _listen(word: WakeWord, clip: Clip, *, real_time: bool) -> dict[str, Any]:
    """The detections, and the duration of every hop."""
    imported = nnburst.load(word.network)
    main = imported.model.main
    given, answer = (main.operands[i[0]] for i in (main.input_indexes, main.output_indexes))
    with (
        nnburst.launch("litert") as device,
        device.prepare(imported) as prepared,
        prepared.open_burst(states=imported.states) as burst,
    ):
        streams = [burst.bind() for _ in range(STRIDE)]
        for turn in range(_WARM_UP):
            streams[turn % STRIDE].run()
        for stream in streams:
            stream.reset()
        ear = _Ear(word, streams, Features(given.scale, given.zero_point), answer)
        hops = list(clip.hops())
        title = f"hearing {len(hops) * HOP_SECONDS:.2f} s of sound"
        for number, hop in enumerate(in_time(title, hops, HOP_SECONDS, real_time=real_time)):
            ear.hear(number, hop)
    detections = [{"at_s": at, "probability": mean} for at, mean in ear.detections]
    return {
        "phrase": word.phrase,
        "cutoff": word.cutoff,
        "real_time": real_time,
        "hops": len(hops),
        "spoken": [phrase._asdict() for phrase in clip.phrases],
        "detections": detections,
        "as_spoken": _as_spoken(word, clip, [at for at, _ in ear.detections]),
        "probabilities": ear.means,
        **part_figures(_WAKEWORD_PARTS, ear.durations_ns),
    }


class _Ear:
    """Computes the features of each hop, runs the network on them, and decides.

    Attributes:
        detections: for each detection the time in the clip (seconds) and the mean probability.
        means: mean probability after each hop.
        durations_ns: for each hop with an execution: features, execution, and the whole with the decision.
    """

    def __init__(
        self,
        word: WakeWord,
        streams: list[nnburst.BoundRequest],
        features: Features,
        answer: Operand,
    ) -> None:
        self._streams = streams
        self._features = features
        self._zero_point, self._scale = answer.zero_point, answer.scale
        self._decision = Decision(word)
        self.detections: list[tuple[float, float]] = []
        self.means: list[float] = []
        self.durations_ns: list[tuple[int, int, int]] = []

    def hear(self, number: int, hop: bytes) -> None:
        """Take hop `number` of the clip."""
        start = perf_counter_ns()
        if not self._features.hear(hop):
            self.means.append(0.0)
            return
        stream = self._streams[number % STRIDE]
        stream.inputs[0][0] = self._features.latest
        ready = perf_counter_ns()
        stream.run(timeout=10.0)
        done = perf_counter_ns()
        probability = (int(stream.outputs[0][0, 0]) - self._zero_point) * self._scale
        heard = self._decision.hear(probability)
        end = perf_counter_ns()
        self.durations_ns.append((ready - start, done - ready, end - start))
        self.means.append(self._decision.mean)
        if heard:
            self.detections.append(((number + 1) * HOP_SECONDS, self._decision.mean))


def _as_spoken(word: WakeWord, clip: Clip, detections: list[float]) -> bool:
    """Whether there is one detection for each time that the phrase is spoken, and no other."""
    said = [phrase for phrase in clip.phrases if word.phrase.lower() in phrase.text.lower()]
    return len(said) == len(detections) and all(
        phrase.start < at <= phrase.end + _GRACE
        for phrase, at in zip(said, detections, strict=True)
    )


def _show_wakeword(word: WakeWord, clip: Clip, figures: dict[str, Any]) -> None:
    for phrase in clip.phrases:
        print(f"  {phrase.start:.2f} s to {phrase.end:.2f} s is spoken: {phrase.text}")
    for found in figures["detections"]:
        print(
            f"heard {word.phrase!r} at {found['at_s']:.2f} s, probability {found['probability']:.3f}"
        )
    if not figures["detections"]:
        highest = max(figures["probabilities"], default=0)
        print(f"{word.phrase!r} was not heard; the highest probability is {highest:.3f}")
    show_parts(f"{figures['hops']} hops of 10 ms, one execution each", _WAKEWORD_PARTS, figures)
