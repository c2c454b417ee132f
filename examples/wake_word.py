"""A wake-word service: spots a phrase in a stream of sound, and prints its share of a core.

    arecord -q -t raw -f S16_LE -r 16000 -c 1 | python examples/wake_word.py -     # a microphone
    python examples/wake_word.py                                                  # the clip that is shipped
    python examples/wake_word.py FILE.wav

Sound comes as a microphone gives it, 10 ms at a time, and each 10 ms are one execution. What matters for a
program that always listens is what it costs: every second it adds up what this process and its driver
have computed, and at the end it prints the share of one core. Needs nnburst[demo].
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import nnburst
from nnburst.demo.speech import (
    HOP,
    HOP_SECONDS,
    STRIDE,
    Decision,
    Features,
    find_wake_word,
    read_clip,
    shipped_clip,
)

REPORT = round(1 / HOP_SECONDS)  # hops from report to report
TICKS = os.sysconf("SC_CLK_TCK")


def sound(source: str) -> Iterator[bytes]:
    """Hops of 160 samples of int16: from standard input as they come, from a clip every 10 ms."""
    if source == "-":
        while len(hop := sys.stdin.buffer.read(2 * HOP)) == 2 * HOP:
            yield hop
        return
    clip = read_clip(Path(source)) if source else shipped_clip()
    start = time.monotonic()
    for number, hop in enumerate(clip.hops(), 1):
        time.sleep(max(0.0, start + number * HOP_SECONDS - time.monotonic()))
        yield hop


def computed(pid: int) -> float:
    """Seconds that this process and another have computed so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return time.process_time() + (int(fields[11]) + int(fields[12])) / TICKS


def main(source: str) -> int:
    """Listen until the sound ends; 1 if the phrase was never heard."""
    word = find_wake_word()
    network = nnburst.load(word.network)
    main_graph = network.model.main
    given = main_graph.operands[main_graph.input_indexes[0]]
    answer = main_graph.operands[main_graph.output_indexes[0]]
    heard, hops = 0, 0
    with ExitStack() as stack:
        device = stack.enter_context(nnburst.launch("litert"))
        prepared = stack.enter_context(
            device.prepare(network, preference=nnburst.ExecutionPreference.LOW_POWER)
        )
        burst = stack.enter_context(prepared.open_burst(states=network.states))
        streams = [burst.bind() for _ in range(STRIDE)]
        features, decision = Features(given.scale, given.zero_point), Decision(word)
        print(f"listening for {word.phrase!r}", flush=True)
        began, before = time.monotonic(), computed(device.pid)
        since, spent = began, before
        for hops, hop in enumerate(sound(source), 1):
            if features.hear(hop):
                stream = streams[hops % STRIDE]
                stream.inputs[0][0] = features.latest
                stream.run(timeout=10.0)
                quantised = int(stream.outputs[0][0, 0])
                if decision.hear((quantised - answer.zero_point) * answer.scale):
                    heard += 1
                    print(f"heard {word.phrase!r} at {hops * HOP_SECONDS:.2f} s", flush=True)
            if hops % REPORT == 0:
                now, so_far = time.monotonic(), computed(device.pid)
                print(f"{(so_far - spent) / (now - since):6.1%} of a core", flush=True)
                since, spent = now, so_far
        share = (computed(device.pid) - before) / max(time.monotonic() - began, 1e-9)
    print(f"{hops * HOP_SECONDS:.1f} s of sound, heard {heard} times, {share:.1%} of a core")
    return 0 if heard else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else ""))
