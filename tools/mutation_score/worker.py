"""Runs mutants on one copy of a project, each with the tests that execute its line, the quickest first."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

from mutation_score.mutants import Mutant
from mutation_score.project import Project, Server, Trial
from mutation_score.trial import MUST_BE_COLD

PASSED: Final = 0
#: Seconds that a trial may take: some for a start, and so many times what its tests took when traced.
_START: Final = 15.0
_IMPORT: Final = 45.0
_SLOWER: Final = 10.0
_FIRST: Final = 1800.0


class Knowledge:
    """The lines that each test executes, and its time; immutable, so workers may share it."""

    def __init__(self, sources: Path, traced: Trial) -> None:
        """Take over what a traced run of all tests below `sources` has found."""
        self._seconds: dict[str, float] = traced.result["seconds"]
        self._imported: dict[str, set[int]] = {}
        self._testing: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        lines: dict[str, dict[str, list[int]]] = traced.result["lines"]
        for test, executed in lines.items():
            for file, numbers in executed.items():
                name = str(Path(file).relative_to(sources))
                if not test:
                    self._imported[name] = set(numbers)
                    continue
                for number in numbers:
                    self._testing[name][number].add(test)

    def nearest(self, mutant: Mutant) -> list[str]:
        """The tests that execute the mutant's lines, the quickest first."""
        lines = self._testing.get(mutant.module, {})
        found: set[str] = set()
        for line in range(mutant.line, mutant.last_line + 1):
            found |= lines.get(line, set())
        return self._quickest_first(found)

    def of_module(self, name: str) -> list[str]:
        """The tests that execute any line of a module, the quickest first."""
        lines = self._testing.get(name, {})
        return self._quickest_first(set().union(*lines.values()))

    def all(self) -> list[str]:
        """All tests, the quickest first."""
        return self._quickest_first(self._seconds)

    def is_imported(self, mutant: Mutant) -> bool:
        """Whether importing or collecting executes the mutant's lines."""
        lines = range(mutant.line, mutant.last_line + 1)
        imported = self._imported.get(mutant.module, set())
        return not mutant.in_function or not imported.isdisjoint(lines)

    def seconds(self, tests: Iterable[str]) -> float:
        """The seconds that tests took, traced."""
        return sum(self._seconds[test] for test in tests)

    def _quickest_first(self, tests: Iterable[str]) -> list[str]:
        return sorted(tests, key=lambda test: (self._seconds[test], test))


class Worker:
    """One copy and the processes that run its tests. Not thread-safe. Use it in `with`."""

    def __init__(self, project: Project, part: str, paths: Sequence[str]) -> None:
        """Use the tests at `paths` for mutants of `part`."""
        self._project = project
        self._paths = paths
        self._folder = str(project.sources / part)
        self._stack = ExitStack()
        self._cold = self._stack.enter_context(project.server("cold", paths))
        self._warm: Server | None = None

    def learn(self) -> Knowledge:
        """Run all tests without a mutant, traced.

        Raises:
            RuntimeError: one fails.
        """
        traced = self._cold.run(_FIRST, tests=None, paths=self._paths, trace=[self._folder])
        _require_passed(traced, self._cold)
        return Knowledge(self._project.sources, traced)

    def start(self, knowledge: Knowledge, names: Sequence[str]) -> None:
        """Run all tests once more, as trials do: the modules `names` rewritten, but not changed.

        Raises:
            RuntimeError: one fails: it would, and for no fault of theirs, kill mutants.
        """
        self._knowledge = knowledge
        self._warm = self._stack.enter_context(self._project.server("warm", self._paths))
        for name in names:
            with _Replaced(self._project, name) as file:
                tests = knowledge.of_module(name)
                trial = self._warm.run(_FIRST, tests=tests, changed=[str(file)])
                if trial.status != MUST_BE_COLD:
                    _require_passed(trial, self._warm)

    def run(self, mutant: Mutant) -> Trial:
        """Run the tests that execute the mutant's lines; if they pass, all from a cold start."""
        assert self._warm is not None
        tests = self._knowledge.nearest(mutant)
        with _Replaced(self._project, mutant.module, mutant.source) as file:
            if tests and not self._knowledge.is_imported(mutant):
                limit = _START + _SLOWER * self._knowledge.seconds(tests)
                trial = self._warm.run(limit, tests=tests, changed=[str(file)])
                if trial.status not in (PASSED, MUST_BE_COLD):
                    return trial
            for some in (tests, self._knowledge.all()):
                if some:
                    limit = _IMPORT + _SLOWER * self._knowledge.seconds(some)
                    trial = self._cold.run(limit, tests=some)
                    if trial.status != PASSED:
                        return trial
        return trial

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def _require_passed(trial: Trial, server: Server) -> None:
    if trial.status != PASSED:
        what = f"{trial.failed or 'something'} fails without any mutant ({trial.status})"
        raise RuntimeError(f"{what}:\n{server.last_words()}")


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
