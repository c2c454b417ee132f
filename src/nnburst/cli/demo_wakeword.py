"""`nnburst demo wakeword`: spot a phrase in a stream of sound, one execution for each 10 ms.

The network is an int8 streaming one. Its variables stay in the pools from one execution to the next.
"""

from __future__ import annotations

from pathlib import Path
from time import perf_counter_ns
from typing import Any, Final

import nnburst
from nnburst.cli.demo_hops import in_time, part_figures, show_parts
from nnburst.cli.output import text_for_people, write_json
from nnburst.demo.speech import HOP_SECONDS, Clip, read_clip, shipped_clip
from nnburst.demo.wakeword import STRIDE, Decision, Features, WakeWord, find_wake_word
from nnburst.hal.model import Operand

#: The network looks at a while of sound and its answers are averaged: so much later it may detect one.
_GRACE: Final = 0.5
#: Executions before the clip begins: the first ones find nothing in the caches.
_WARM_UP: Final = 30
_PARTS: Final = ("features", "execution", "whole hop")


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
        _show(word, clip, figures)
    write_json(json_path, figures)
    return 0 if clip_path is not None or figures["as_spoken"] else 1


def _listen(word: WakeWord, clip: Clip, *, real_time: bool) -> dict[str, Any]:
    """What is detected, and how long every hop takes."""
    imported = nnburst.load(word.network)
    main = imported.model.main
    given, answer = (main.operands[i[0]] for i in (main.input_indexes, main.output_indexes))
    with (
        nnburst.launch("litert") as device,
        device.prepare(imported) as prepared,
        prepared.open_burst() as burst,
    ):
        streams = [nnburst.StatefulBurst(burst, imported.states) for _ in range(STRIDE)]
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
        **part_figures(_PARTS, ear.durations_ns),
    }


class _Ear:
    """Everything that happens to a hop.

    Attributes:
        detections: time in the clip (seconds) and mean probability of each.
        means: mean probability after each hop.
        durations_ns: of each execution's hop: features, execution, both and the decision.
    """

    def __init__(
        self,
        word: WakeWord,
        streams: list[nnburst.StatefulBurst],
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
        """Hop `number` of the clip."""
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


def _show(word: WakeWord, clip: Clip, figures: dict[str, Any]) -> None:
    for phrase in clip.phrases:
        print(f"  {phrase.start:.2f} s to {phrase.end:.2f} s is spoken: {phrase.text}")
    for found in figures["detections"]:
        print(
            f"heard {word.phrase!r} at {found['at_s']:.2f} s, probability {found['probability']:.3f}"
        )
    if not figures["detections"]:
        highest = max(figures["probabilities"], default=0)
        print(f"{word.phrase!r} was not heard; the highest probability is {highest:.3f}")
    show_parts(f"{figures['hops']} hops of 10 ms, one execution each", _PARTS, figures)
