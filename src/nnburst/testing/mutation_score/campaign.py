"""Try mutants of a part of a package, each with the tests that execute its line, the quickest first."""

from __future__ import annotations

import ast
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final, Self

from nnburst.testing.mutation_score.mutants import Mutant, mutants
from nnburst.testing.mutation_score.project import Project, Trial
from nnburst.testing.mutation_score.trial import MUST_BE_COLD, TIMED_OUT

#: Seconds that a trial may take: some for a start, and so many times what its tests took when traced.
_START: Final = 15.0
_IMPORT: Final = 45.0
_SLOWER: Final = 10.0
_FIRST: Final = 1800.0
_PASSED: Final = 0


@dataclass
class Score:
    """What became of the mutants that were tried.

    Attributes:
        part: the folder or module below the package.
        mutants: how many there are.
        tried: how many were tried.
        killed: mutant -> the test that failed first; of one that hung, crashed or could not be imported,
            that.
        survivors: those that no test noticed.
        seconds: how long the trials took.
    """

    part: str
    mutants: int
    tried: int = 0
    killed: dict[str, str] = field(default_factory=dict)
    survivors: list[Mutant] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def percent(self) -> float:
        """Of a hundred mutants, how many were killed; 100 where none was tried."""
        return 100 * len(self.killed) / self.tried if self.tried else 100.0


def modules(sources: Path, part: str) -> list[str]:
    """The modules of `part`, a module or a folder below `sources`, with their paths below it.

    Raises:
        ValueError: there are none.
    """
    paths = (
        [sources / f"{part}.py"]
        if not (sources / part).is_dir()
        else (sources / part).rglob("*.py")
    )
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
    package: str = "nnburst",
    progress: Callable[[str], None] = lambda _line: None,
) -> Score:
    """Try mutants of `part` with its `nearest_tests`.

    Args:
        root: folder of the project; it is copied, and not changed.
        part: a folder or module below `src/PACKAGE`: `serialize`, `hal/validation`.
        sample: how many mutants to try; None for all.
        seed: which ones.
        package: name of the package.
        progress: called with a line for each mutant.

    Raises:
        ValueError: there is no such part.
        RuntimeError: the tests fail without any mutant.
    """
    with tempfile.TemporaryDirectory(prefix="nnburst-mutants-") as folder:
        project = Project(root, Path(folder), package)
        with _Tests(project, part) as tests:
            sources = {
                name: (project.sources / name).read_text()
                for name in modules(project.sources, part)
            }
            everything = [m for name, source in sources.items() for m in mutants(name, source)]
            chosen = everything
            if sample is not None and sample < len(everything):
                chosen = Random(seed).sample(everything, sample)  # noqa: S311 - no secrets
            result = Score(part, len(everything))
            tests.start(list(sources))
            for mutant in chosen:
                trial = tests.try_(mutant)
                result.tried += 1
                result.seconds += trial.seconds
                verdict = _verdict(trial)
                if verdict:
                    result.killed[str(mutant)] = verdict
                else:
                    result.survivors.append(mutant)
                progress(
                    f"{result.tried:5} {trial.seconds:6.1f} s  {verdict or 'SURVIVED'}  {mutant}"
                )
    return result


def _verdict(trial: Trial) -> str:
    """What killed the mutant; empty where it survived."""
    if trial.status == _PASSED:
        return ""
    if trial.status == TIMED_OUT:
        return "(hung)"
    if trial.status < 0:
        return f"(signal {-trial.status})"
    return trial.failed or "(not imported)"


class _Tests:
    """The tests of a part: what they execute, and how they are run."""

    def __init__(self, project: Project, part: str) -> None:
        self._project = project
        self._paths = nearest_tests(project.copy, part)
        self._folder = str(project.sources / part)
        self._stack = ExitStack()
        self._cold = self._stack.enter_context(project.server("cold", self._paths))
        self._seconds: dict[str, float] = {}
        self._imported: dict[str, set[int]] = {}
        self._testing: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))

    def start(self, names: Sequence[str]) -> None:
        """Run all tests without a mutant: traced, and the way that trials run them."""
        traced = self._cold.run(_FIRST, tests=None, paths=self._paths, trace=[self._folder])
        self._require_passed(traced, self._cold.last_words())
        self._seconds = traced.result["seconds"]
        lines: dict[str, dict[str, list[int]]] = traced.result["lines"]
        for test, executed in lines.items():
            for file, numbers in executed.items():
                name = str(Path(file).relative_to(self._project.sources))
                if not test:
                    self._imported[name] = set(numbers)
                    continue
                for number in numbers:
                    self._testing[name][number].add(test)
        self._warm = self._stack.enter_context(self._project.server("warm", self._paths))
        # The same text as of a mutant, unchanged: were tests to fail now, they would not fail for a mutant.
        with ExitStack() as stack:
            files = [stack.enter_context(_Replaced(self._project, name)) for name in names]
            paths = [str(file) for file in files]
            plain = self._warm.run(_FIRST, tests=self._all(), changed=[])
            self._require_passed(plain, self._warm.last_words())
            for path in paths:
                swapped = self._warm.run(_FIRST, tests=self._all()[:1], changed=[path])
                if swapped.status != MUST_BE_COLD:
                    self._require_passed(swapped, self._warm.last_words())

    def try_(self, mutant: Mutant) -> Trial:
        """Run the tests that execute the mutant's line; where they pass, once more from a cold start, all."""
        tests = self._nearest(mutant)
        with _Replaced(self._project, mutant.module, mutant.source) as file:
            if tests and mutant.in_function and not self._is_imported(mutant):
                limit = _START + _SLOWER * sum(self._seconds[test] for test in tests)
                trial = self._warm.run(limit, tests=tests, changed=[str(file)])
                if trial.status not in (_PASSED, MUST_BE_COLD):
                    return trial
            for some in (tests, self._all()):
                if some:
                    limit = _IMPORT + _SLOWER * sum(self._seconds[test] for test in some)
                    trial = self._cold.run(limit, tests=some)
                    if trial.status != _PASSED:
                        return trial
        return trial

    def _nearest(self, mutant: Mutant) -> list[str]:
        lines = self._testing[mutant.module]
        found: set[str] = set()
        for line in range(mutant.line, mutant.last_line + 1):
            found |= lines.get(line, set())
        return self._quickest_first(found)

    def _is_imported(self, mutant: Mutant) -> bool:
        lines = range(mutant.line, mutant.last_line + 1)
        return not self._imported.get(mutant.module, set()).isdisjoint(lines)

    def _all(self) -> list[str]:
        return self._quickest_first(self._seconds)

    def _quickest_first(self, tests: Iterator[str] | set[str] | dict[str, float]) -> list[str]:
        return sorted(tests, key=lambda test: (self._seconds[test], test))

    @staticmethod
    def _require_passed(trial: Trial, words: str) -> None:
        if trial.status != _PASSED:
            what = f"{trial.failed or 'something'} fails without any mutant ({trial.status})"
            raise RuntimeError(f"{what}:\n{words}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


class _Replaced:
    """A module of the copy with another text while the context lasts; without one, its own, rewritten."""

    def __init__(self, project: Project, module: str, source: str | None = None) -> None:
        self._project = project
        self._module = module
        self._original = (project.sources / module).read_text(encoding="utf-8")
        self._source = ast.unparse(ast.parse(self._original)) if source is None else source

    def __enter__(self) -> Path:
        return self._project.write(self._module, self._source)

    def __exit__(self, *_: object) -> None:
        self._project.write(self._module, self._original)
