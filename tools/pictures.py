"""Draws docs/images/architecture.svg and execution.svg: `python tools/pictures.py`.

Boxes have a light ground of their own; lines and words outside of them have a grey that is legible on white
and on black.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

FOLDER: Final = Path(__file__).resolve().parent.parent / "docs" / "images"

_GREY: Final = "#7d7d7d"
_INK: Final = "#1d2733"
_CLIENT, _SHARED, _DRIVER, _KERNEL = "#cfe3fb", "#fdeeb5", "#d6f0d0", "#e6e6ea"


class Picture:
    """An SVG that grows by shapes, with a width and a height in pixels."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" font-family="sans-serif" font-size="13" role="img">\n'
            f"<title>{escape(title)}</title>\n"
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            f'orient="auto-start-reverse"><path d="M0 0 8 4 0 8z" fill="{_GREY}"/></marker></defs>\n'
        )
        self._shapes: list[str] = []

    def box(self, x: int, y: int, width: int, height: int, fill: str, *lines: str) -> None:
        """A box with lines of text in its middle; the first is bold."""
        self._shapes.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" fill="{fill}" stroke="{_GREY}"/>'
        )
        top = y + height / 2 - 8.5 * (len(lines) - 1) + 4.5
        for number, line in enumerate(lines):
            weight = ' font-weight="bold"' if number == 0 else ""
            self._shapes.append(
                f'<text x="{x + width / 2:g}" y="{top + 17 * number:g}" text-anchor="middle" '
                f'fill="{_INK}"{weight}>{escape(line)}</text>'
            )

    def frame(self, x: int, y: int, width: int, height: int, name: str) -> None:
        """A dashed frame around what belongs to one process."""
        self._shapes.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="10" fill="none" '
            f'stroke="{_GREY}" stroke-dasharray="5 4"/>'
        )
        self.words(x + 12, y + 20, name, bold=True)

    def words(
        self, x: float, y: float, text: str, *, anchor: str = "start", bold: bool = False
    ) -> None:
        """Words outside of boxes."""
        weight = ' font-weight="bold"' if bold else ""
        self._shapes.append(
            f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{_GREY}"{weight}>{escape(text)}</text>'
        )

    def arrow(
        self, x1: int, y1: int, x2: int, y2: int, text: str = "", *, both: bool = False
    ) -> None:
        """A line with a tip, and words above its middle."""
        start = ' marker-start="url(#tip)"' if both else ""
        self._shapes.append(
            f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{_GREY}" stroke-width="1.6" '
            f'marker-end="url(#tip)"{start}/>'
        )
        if text:
            self.words((x1 + x2) / 2, (y1 + y2) / 2 - 6, text, anchor="middle")

    def line(self, x1: int, y1: int, x2: int, y2: int) -> None:
        """A thin dashed line."""
        self._shapes.append(
            f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{_GREY}" stroke-dasharray="2 4"/>'
        )

    def svg(self) -> str:
        """The file's text."""
        return self._head + "\n".join(self._shapes) + "\n</svg>\n"


def architecture() -> str:
    """Processes, and what connects them."""
    p = Picture(900, 440, "A client, a driver, and what they share")
    p.frame(20, 20, 250, 400, "client process")
    p.box(40, 55, 210, 46, _CLIENT, "your program", "Python, or C through capi/")
    p.box(40, 121, 210, 46, _CLIENT, "runtime/", "places a model on devices")
    p.box(40, 187, 210, 46, _CLIENT, "client/", "devices, models, memory")
    p.box(40, 253, 210, 46, _CLIENT, "client/burst/ + csrc/", "a bound request, one C call")
    for y in (101, 167, 233):
        p.arrow(145, y, 145, y + 20)
    p.frame(630, 20, 250, 400, "driver: one worker per client")
    p.box(650, 55, 210, 46, _DRIVER, "driver/service/", "supervisor, receives, forks")
    p.box(650, 121, 210, 46, _DRIVER, "driver/calls/", "validates, schedules, executes")
    p.box(650, 253, 210, 46, _DRIVER, "driver/burst/ + csrc/", "a thread per burst")
    p.box(
        650, 333, 210, 62, _DRIVER, "executor/", "reference, litert, onnxruntime,", "null, your own"
    )
    p.arrow(755, 101, 755, 121)
    p.arrow(755, 299, 755, 333)
    p.arrow(755, 167, 755, 253)
    p.words(763, 215, "opens a burst")
    p.box(350, 121, 200, 46, _KERNEL, "control socket", "prepare, open, free; fds")
    p.box(350, 187, 200, 46, _KERNEL, "upcall socket", "outcomes, getMemories")
    p.box(350, 253, 200, 46, _SHARED, "request and result ring", "packets of 24-byte datums")
    p.box(350, 341, 200, 46, _SHARED, "pools: sealed memfds", "tensors, never copied")
    p.arrow(250, 200, 350, 150, both=True)
    p.arrow(550, 144, 650, 144, both=True)
    p.arrow(350, 215, 250, 215)
    p.arrow(650, 160, 550, 205)
    p.arrow(250, 276, 350, 276, both=True)
    p.arrow(550, 276, 650, 276, both=True)
    p.arrow(250, 290, 350, 355, both=True)
    p.arrow(550, 364, 650, 364, both=True)
    p.words(450, 100, "sockets: everything but executions", anchor="middle")
    p.words(450, 410, "shared memory: each execution", anchor="middle")
    return p.svg()


def execution() -> str:
    """One run of a bound request, from top to bottom in time."""
    p = Picture(900, 570, "One execution in time")
    lanes = (
        (120, _CLIENT, "your program", "bound.run()"),
        (330, _CLIENT, "client, C", "burst_client.c"),
        (570, _DRIVER, "driver, C", "burst_server.c"),
        (780, _DRIVER, "executor", "bound execution"),
    )
    for x, fill, name, detail in lanes:
        p.box(x - 85, 15, 170, 46, fill, name, detail)
        p.line(x, 61, x, 530)
    p.words(20, 100, "time ↓")
    p.arrow(120, 110, 330, 110, "one cffi call")
    p.box(245, 128, 170, 36, _SHARED, "packet → request ring")
    p.arrow(330, 186, 570, 186, "commit; wake only a sleeper")
    p.words(340, 220, "spins, then sleeps,")
    p.words(340, 237, "always with a deadline")
    p.box(485, 202, 170, 52, _SHARED, "copies the packet once", "known bytes?")
    p.arrow(570, 276, 780, 276, "yes: C function")
    p.words(470, 304, "no: Python decodes, validates,", anchor="middle")
    p.words(470, 321, "binds and remembers", anchor="middle")
    p.box(695, 290, 170, 52, _DRIVER, "computes", "on views of the pools")
    p.arrow(780, 366, 570, 366, "status, durations")
    p.box(485, 382, 170, 36, _SHARED, "packet → result ring")
    p.arrow(570, 440, 330, 440, "commit; wake only a sleeper")
    p.box(245, 456, 170, 36, _SHARED, "copies once, checks")
    p.arrow(330, 516, 120, 516, "Result, or an exception")
    p.words(450, 556, "tensors lie in the pools: no packet carries them", anchor="middle")
    return p.svg()


PICTURES: Final[dict[str, Callable[[], str]]] = {
    "architecture.svg": architecture,
    "execution.svg": execution,
}

if __name__ == "__main__":
    for file, draw in PICTURES.items():
        (FOLDER / file).write_text(draw(), encoding="utf-8")
