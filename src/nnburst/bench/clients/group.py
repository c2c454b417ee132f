"""The processes of the clients: `python -m nnburst.bench.clients.group LOAD FOLDER`.

Forks the clients before it has any thread or connection, so that 64 of them start as quickly as one. Prints
a line with the process ids of clients and workers once all are ready, reads a line with the moment of the
beginning, prints a line when all have finished, and ends with the next line. Each client leaves what it did
in the folder.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path

from nnburst._native import lib
from nnburst.bench.clients.client import LoadClient
from nnburst.bench.clients.load import Load


class _Member:
    """A forked client, as its parent sees it: a pipe there and one back."""

    def __init__(self, wanted: Load, number: int, folder: Path) -> None:
        """Fork it."""
        words, self._words = os.pipe()
        self._answers, answers = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._words)
            os.close(self._answers)
            _be_client(wanted, number, folder, words, answers)
        os.close(words)
        os.close(answers)

    def send(self, word: str) -> None:
        """One word for it."""
        os.write(self._words, word.encode())

    def receive(self) -> str:
        """Its next word; "" if it has ended."""
        return os.read(self._answers, 64).decode()

    def wait(self) -> bool:
        """Wait until it has ended; whether it did so in order."""
        return os.waitpid(self.pid, 0)[1] == 0


def _be_client(wanted: Load, number: int, folder: Path, words: int, answers: int) -> None:
    status = 1
    lib.nnb_die_with_parent(signal.SIGKILL)
    try:
        with LoadClient.open(wanted) as client:
            gc.collect()
            gc.disable()
            os.write(answers, str(client.worker).encode())
            client.run(wanted, number, int(os.read(words, 64))).save(folder, number)
            os.write(answers, b"done")
            os.read(words, 64)
        status = 0
    except BaseException:  # a fork must not get back into its parent's code
        traceback.print_exc()
    finally:
        os._exit(status)


def main() -> int:
    """Run the clients of a load once."""
    wanted, folder = Load.from_text(sys.argv[1]), Path(sys.argv[2])
    members = [_Member(wanted, number, folder) for number in range(wanted.clients)]
    workers = [member.receive() for member in members]
    if not all(workers):
        print("a client failed", file=sys.stderr)  # noqa: T201
        return _end(members)
    pids = {"clients": [member.pid for member in members], "workers": [int(w) for w in workers]}
    print(json.dumps(pids), flush=True)  # noqa: T201
    begin = sys.stdin.readline().strip()
    if not begin:
        return 1  # the benchmark has ended, and with this process its clients do
    for member in members:
        member.send(begin)
    finished = [member.receive() for member in members]
    print(json.dumps(time.monotonic_ns()), flush=True)  # noqa: T201
    sys.stdin.readline()
    return _end(members) or (0 if all(finished) else 1)


def _end(members: list[_Member]) -> int:
    for member in members:
        try:
            member.send("end")
        except BrokenPipeError:
            continue  # it has ended already
    ended = [member.wait() for member in members]  # every one, also after one that failed
    return 0 if all(ended) else 1


if __name__ == "__main__":
    sys.exit(main())
