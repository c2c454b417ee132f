"""The pack on one driver."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from nnburst.hal.errors import DeadObject, DeviceUnavailable, NnburstError
from nnburst.testing.conformance.run_result import Unsupported
from nnburst.testing.conformance.runners import Runner
from nnburst.testing.conformance.vectors import write
from nnburst.testing.models.random_graphs.as_vector import as_vector
from nnburst.testing.models.random_graphs.check import tolerance_for
from nnburst.testing.pack.cases import Case, Triple, cases
from nnburst.testing.pack.trial import problem_of
from nnburst.testing.report.results import Failure, TripleResult

#: Cases that a driver must refuse before the others of a triple are not even drawn: the small ones,
#: plain and not, with constants and without.
SCREENED: Final = 9
#: Failures of a triple after which it is known to be wrong.
_ENOUGH: Final = 5


class Options(NamedTuple):
    """How much is tried.

    Attributes:
        most: cases of a triple; None for all.
        filter: regular expression searched in names of cases; empty for all.
        dump: folder for files that reproduce a failure; None for none.
    """

    most: int | None = None
    filter: str = ""
    dump: Path | None = None


class Session:
    """A runner that is made again when its driver has died."""

    def __init__(self, make: Callable[[], Runner]) -> None:
        """`make` connects."""
        self._make = make
        self._runner: Runner | None = None

    @property
    def runner(self) -> Runner:
        """A connected one."""
        if self._runner is None:
            self._runner = self._make()
        return self._runner

    def close(self) -> None:
        """Close it; the next use connects again."""
        runner, self._runner = self._runner, None
        if runner is not None:
            try:
                runner.close()
            except NnburstError:
                pass  # it died, which is why it is dropped


def run(
    triples: Iterable[Triple], session: Session, options: Options
) -> Iterator[tuple[TripleResult, list[Case]]]:
    """Try the cases of each triple; yields its result and the cases that passed."""
    for triple in triples:
        yield _try_triple(triple, session, options)


def _try_triple(
    triple: Triple, session: Session, options: Options
) -> tuple[TripleResult, list[Case]]:
    skipped: Counter[str] = Counter()
    passed: list[Case] = []
    failures: list[Failure] = []
    for number, case in enumerate(cases(triple)):
        if number == options.most or len(failures) == _ENOUGH:
            break
        if number == SCREENED and not passed and not failures:
            break
        if not re.search(options.filter, case.name):
            continue
        try:
            reason = _problem(case, session)
        except Unsupported as error:
            skipped[f"{error} ({triple.kind.name})"] += 1
            continue
        if reason is None:
            passed.append(case)
        else:
            failures.append(Failure(case.name, reason, _dumped(case, options.dump)))
    result = TripleResult(
        triple.operation.name, triple.kind.name, triple.rank, len(passed), tuple(failures), skipped
    )
    return result, passed


def _problem(case: Case, session: Session) -> str | None:
    try:
        return problem_of(case, session.runner)
    except Unsupported:
        raise
    except (DeadObject, DeviceUnavailable) as error:
        session.close()
        return f"{type(error).__name__}: {error}"
    except Exception as error:
        session.close()
        return f"crashed with {type(error).__name__}: {error}"


def _dumped(case: Case, folder: Path | None) -> str:
    if folder is None:
        return ""
    path = folder / f"{case.name}.json.gz"
    write(path, as_vector(case.graph, tolerance=tolerance_for(case.graph, [0])))
    return str(path)
