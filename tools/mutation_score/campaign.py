"""Try mutants of a part of a package, on as many copies of the project as there are jobs."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from random import Random

from mutation_score.mutants import Mutant, mutants
from mutation_score.project import Project, Trial
from mutation_score.trial import TIMED_OUT
from mutation_score.worker import PASSED, Worker


@dataclass
class Score:
    """The mutants that were tried: killed ones and survivors.

    Attributes:
        part: the folder or module below the package.
        mutants: how many there are.
        killed: those that were noticed, and by which test first; of one that hung, crashed or could not
            be imported, that.
        survivors: those that no test noticed.
        seconds: how long the trials took.
    """

    part: str
    mutants: int
    killed: list[tuple[Mutant, str]] = field(default_factory=list)
    survivors: list[Mutant] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def tried(self) -> int:
        """The number that were tried."""
        return len(self.killed) + len(self.survivors)

    @property
    def percent(self) -> float:
        """Of a hundred mutants, how many were killed; 100 if none was tried."""
        return 100 * len(self.killed) / self.tried if self.tried else 100.0


def modules(sources: Path, part: str) -> list[str]:
    """The modules of `part`, a module or a folder below `sources`, with their paths below it.

    Raises:
        ValueError: no mutant was found.
    """
    folder = sources / part
    paths = folder.rglob("*.py") if folder.is_dir() else [sources / f"{part}.py"]
    found = sorted(str(path.relative_to(sources)) for path in paths if path.is_file())
    if not found:
        raise ValueError(f"{part} is neither a folder nor a module of {sources}")
    return found


def nearest_tests(root: Path, part: str) -> list[str]:
    """Paths of the tests of a part below `root`: those that are named after it, else those of its layer.

    `hal/validation` has `tests/hal/test_validation*.py`; `fmq` has `tests/fmq`.
    """
    layer, _, rest = part.partition("/")
    folder = root / "tests" / layer
    named = sorted(folder.glob(f"test_{rest.replace('/', '_')}*.py")) if rest else []
    return [str(path.relative_to(root)) for path in named or [folder]]


def score(
    root: Path,
    part: str,
    sample: int | None = None,
    seed: int = 0,
    jobs: int = 1,
    package: str = "nnburst",
    progress: Callable[[str], None] = lambda _line: None,
) -> Score:
    """Try mutants of `part` with its `nearest_tests`.

    Args:
        root: folder of the project; it is copied, and not changed.
        part: a folder or module below `src/PACKAGE`: `serialize`, `hal/validation`.
        sample: how many mutants to try; None for all.
        seed: which ones.
        jobs: how many at once, each on a copy of its own.
        package: name of the package.
        progress: called with a line for each mutant.

    Raises:
        ValueError: there is no such part.
        RuntimeError: the tests fail without any mutant.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nnburst-mutants-")))
        projects = [Project(root, folder / str(job), package) for job in range(jobs)]
        names = modules(projects[0].sources, part)
        everything = [
            mutant
            for name in names
            for mutant in mutants(name, (projects[0].sources / name).read_text(encoding="utf-8"))
        ]
        chosen = everything
        if sample is not None and sample < len(everything):
            chosen = Random(seed).sample(everything, sample)  # noqa: S311 - no secrets
        tests = nearest_tests(projects[0].copy, part)
        workers = [stack.enter_context(Worker(project, part, tests)) for project in projects]
        knowledge = workers[0].learn()
        idle: SimpleQueue[Worker] = SimpleQueue()
        for worker in workers:
            worker.start(knowledge, names)
            idle.put(worker)

        def attempt(mutant: Mutant) -> Trial:
            worker = idle.get()
            try:
                return worker.run(mutant)
            finally:
                idle.put(worker)

        result = Score(part, len(everything))
        pool = stack.enter_context(ThreadPoolExecutor(jobs))
        for mutant, trial in zip(chosen, pool.map(attempt, chosen), strict=True):
            verdict = _verdict(trial)
            result.seconds += trial.seconds
            if verdict:
                result.killed.append((mutant, verdict))
            else:
                result.survivors.append(mutant)
            progress(f"{result.tried:5} {trial.seconds:6.1f} s  {verdict or 'SURVIVED'}  {mutant}")
    return result


def _verdict(trial: Trial) -> str:
    """The test that killed the mutant, or its end in brackets; empty if it survived."""
    if trial.status == PASSED:
        return ""
    if trial.status == TIMED_OUT:
        return "(hung)"
    if trial.status < 0:
        return f"(signal {-trial.status})"
    return trial.failed or "(not imported)"
