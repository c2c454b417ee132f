"""Checks compilation caching: the files that a driver saves, loads, and must not load.

NNAPI: CompilationCachingTests.cpp.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Final

from nnburst.client.compilation_cache import CacheFiles
from nnburst.client.prepared_model import PreparedModel
from nnburst.hal.errors import GeneralFailure, InvalidArgument, MissedDeadline, NnburstError
from nnburst.hal.limits import MAX_NUMBER_OF_CACHE_FILES
from nnburst.testing.pack.cases import Case
from nnburst.testing.pack.contract import BrokenContract, Check, NotApplicable, Subject, run_once

_TOKEN: Final = bytes(range(32))
_OTHER_TOKEN: Final = bytes(reversed(range(32)))
#: Number of loads while another thread changes the files.
_RACES: Final = 20
#: Number of positions in a file that are changed one at a time.
_FLIPS: Final = 16
#: Content of a file before it becomes a cache, and the file's offset.
_BEFORE: Final = b"this is not a cache" * 10


@dataclass(frozen=True)
class Files:
    """The cache files of one compilation, which have no names."""

    model: tuple[int, ...]
    data: tuple[int, ...]

    @property
    def all(self) -> tuple[int, ...]:
        """All files: model files, then data files."""
        return (*self.model, *self.data)

    def cache(self, token: bytes = _TOKEN) -> CacheFiles:
        """The files in the form that calls take."""
        return CacheFiles(self.model, self.data, token)

    def contents(self) -> list[bytes]:
        """The bytes of each file."""
        return [os.pread(fd, os.fstat(fd).st_size, 0) for fd in self.all]

    def write(self, contents: Sequence[bytes]) -> None:
        """Write each file."""
        for fd, content in zip(self.all, contents, strict=True):
            _fill(fd, content)


def _fill(fd: int, content: bytes) -> None:
    os.ftruncate(fd, 0)
    os.pwrite(fd, content, 0)


@contextmanager
def _files(model: int, data: int, before: bytes = b"") -> Iterator[Files]:
    with ExitStack() as stack:

        def made(kind: str, count: int) -> tuple[int, ...]:
            found = []
            for number in range(count):
                fd = os.memfd_create(f"{kind} {number}", os.MFD_CLOEXEC)
                stack.callback(os.close, fd)
                os.write(fd, before)  # moves the offset, too
                found.append(fd)
            return tuple(found)

        yield Files(made("model cache", model), made("data cache", data))


@contextmanager
def _needed(subject: Subject, before: bytes = b"") -> Iterator[Files]:
    """As many files as the driver asks for, with the content `before`."""
    counts = subject.device.number_of_cache_files_needed
    if not any(counts):
        raise NotApplicable("the driver caches no compilations")
    with _files(counts.model_cache, counts.data_cache, before) as files:
        yield files


@contextmanager
def _compiled(
    subject: Subject, cache: CacheFiles, case: Case | None = None
) -> Iterator[PreparedModel]:
    model, pools = subject.model(case or subject.case)
    pending = subject.device.prepare_async(model, pools=pools, cache=cache)
    with pending.result(60) as prepared:
        yield prepared


def _bits(prepared: PreparedModel, case: Case) -> list[bytes]:
    with prepared.open_burst() as burst:
        bound = burst.bind()
        return [run_once(bound, case, number) for number in range(len(case.feeds))]


def _save(subject: Subject, files: Files) -> list[bytes]:
    """Compile with these files; returns the results of the compiled model."""
    with _compiled(subject, files.cache()) as prepared:
        found = _bits(prepared, subject.case)
    if not any(files.contents()):
        raise NotApplicable("the driver caches compilations, but not of this case")
    return found


def _load(subject: Subject, cache: CacheFiles) -> list[bytes]:
    model, _ = subject.model(subject.case)
    with subject.device.prepare_from_cache(model, cache) as prepared:
        return _bits(prepared, subject.case)


def _must_refuse(subject: Subject, cache: CacheFiles, why: str, *, status: bool = False) -> None:
    """Expect a failure of loading, GENERAL_FAILURE unless `status` permits INVALID_ARGUMENT, too."""
    permitted = (GeneralFailure, InvalidArgument) if status else (GeneralFailure,)
    model, _ = subject.model(subject.case)
    try:
        subject.device.prepare_from_cache(model, cache).close()
    except permitted:
        return
    except NnburstError as error:
        raise BrokenContract(f"{why}: refused with {error.status.name}") from error
    raise BrokenContract(f"{why}: a model was prepared from it")


def number_of_files_is_fixed_and_small(subject: Subject) -> None:
    """Ask for the numbers of files: at most 32 of each kind, the same each time."""
    first = subject.device.number_of_cache_files_needed
    if max(first) > MAX_NUMBER_OF_CACHE_FILES:
        raise BrokenContract(
            f"the driver wants {first}, at most {MAX_NUMBER_OF_CACHE_FILES} of a kind are allowed"
        )
    if first.data_cache and not first.model_cache:
        raise BrokenContract(f"the driver wants {first}: data is of no use without a model")


def what_was_saved_is_loaded(subject: Subject) -> None:
    """Save to empty files, and to files with other content and a non-zero offset; load from both."""
    for before in (b"", _BEFORE):
        with _needed(subject, before) as files:
            saved = _save(subject, files)
            try:
                loaded = _load(subject, files.cache())
            except NnburstError as error:
                raise BrokenContract(f"what was saved is not loaded: {error}") from error
            if loaded != saved:
                raise BrokenContract(
                    "the model from the cache gives other bits than the compiled one"
                )


def bad_files_do_not_stop_a_compilation(subject: Subject) -> None:
    """Give too few files, too many, or files that cannot be written: the model is prepared nevertheless."""
    counts = subject.device.number_of_cache_files_needed
    wrong = [
        (counts.model_cache + 1, counts.data_cache),
        (counts.model_cache, counts.data_cache + 1),
    ]
    wrong += [(counts.model_cache - 1, counts.data_cache)] if counts.model_cache else []
    for model, data in wrong:
        with _files(model, data) as files:
            _must_compile(subject, files.cache(), f"with {model} and {data} files")
    with _needed(subject) as files, ExitStack() as stack:
        for flags, word in ((os.O_RDONLY, "read"), (os.O_WRONLY, "written")):
            reopened = [os.open(f"/proc/self/fd/{fd}", flags | os.O_CLOEXEC) for fd in files.model]
            for fd in reopened:
                stack.callback(os.close, fd)
            cache = CacheFiles(tuple(reopened), files.data, _TOKEN)
            _must_compile(subject, cache, f"with files that can only be {word}")


def _must_compile(subject: Subject, cache: CacheFiles, which: str) -> None:
    try:
        with _compiled(subject, cache) as prepared:
            _bits(prepared, subject.case)
    except NnburstError as error:
        raise BrokenContract(f"{which}, the model is not prepared: {error}") from error


def wrong_files_are_not_loaded(subject: Subject) -> None:
    """Load from another number of files, from empty ones, and from files that cannot be written."""
    with _needed(subject) as files:
        _must_refuse(subject, files.cache(), "empty files", status=True)
        _save(subject, files)
        more = replace(files, data=(*files.data, files.model[0]))
        _must_refuse(subject, more.cache(), "a file too many", status=True)
        fewer = replace(files, model=files.model[1:])
        _must_refuse(subject, fewer.cache(), "a file too few", status=True)
        read_only = os.open(f"/proc/self/fd/{files.model[0]}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            cache = CacheFiles((read_only, *files.model[1:]), files.data, _TOKEN)
            _must_refuse(subject, cache, "a file that can only be read", status=True)
        finally:
            os.close(read_only)


def wrong_token_is_refused(subject: Subject) -> None:
    """Load with another token than the saved one."""
    with _needed(subject) as files:
        _save(subject, files)
        _must_refuse(subject, files.cache(_OTHER_TOKEN), "another token")


def changed_model_cache_is_refused(subject: Subject) -> None:
    """Flip one bit in many positions, cut off or append bytes (NNAPI: CompilationCachingSecurityTest)."""
    with _needed(subject) as files:
        _save(subject, files)
        good = files.contents()
        for at, fd in enumerate(files.model):
            if not good[at]:
                continue
            for place in sorted({number * len(good[at]) // _FLIPS for number in range(_FLIPS)}):
                flipped = bytearray(good[at])
                flipped[place] ^= 1
                _fill(fd, bytes(flipped))
                _must_refuse(subject, files.cache(), f"byte {place} of model cache {at} changed")
            for content, why in ((good[at][:-1], "cut"), (good[at] + b"\0", "longer")):
                _fill(fd, content)
                _must_refuse(subject, files.cache(), f"model cache {at} {why} by a byte")
            _fill(fd, good[at])
        _load(subject, files.cache())


def changed_data_cache_harms_nothing(subject: Subject) -> None:
    """Change data files: refused, or other results; the driver keeps running in either case."""
    with _needed(subject) as files:
        saved = _save(subject, files)
        good = files.contents()
        for at, fd in enumerate(files.data, len(files.model)):
            changed = [bytes(len(good[at])), good[at][: len(good[at]) // 2], good[at] + b"\xff" * 8]
            for content in changed:
                _fill(fd, content)
                try:
                    _load(subject, files.cache())
                except (GeneralFailure, InvalidArgument):
                    pass
                _must_live(subject, f"data cache {at} of {len(content)} bytes")
            _fill(fd, good[at])
        if _load(subject, files.cache()) != saved:
            raise BrokenContract(
                "after its files were restored, the model from the cache gives other bits"
            )


def _must_live(subject: Subject, after: str) -> None:
    if not subject.device.is_alive:
        raise BrokenContract(f"after {after}, the driver has died")


def files_in_another_order_are_refused(subject: Subject) -> None:
    """Swap model files, or model and data files."""
    with _needed(subject) as files:
        _save(subject, files)
        if len(files.all) < 2:
            raise NotApplicable("the driver has one cache file, which has no order")
        turned = files.all[1:] + files.all[:1]
        count = len(files.model)
        _must_refuse(subject, CacheFiles(turned[:count], turned[count:], _TOKEN), "files turned")


def cache_of_another_model_is_refused(subject: Subject) -> None:
    """Load the model files of a second model with the data files of the first.

    NNAPI: CompilationCachingSecurityTest.
    """
    other = subject.another()
    if other is None:
        raise NotApplicable("the driver supports no second model")
    with _needed(subject) as files, _needed(subject) as others:
        if not files.data:
            raise NotApplicable("the driver keeps no data beside the model")
        _save(subject, files)
        with _compiled(subject, others.cache(_OTHER_TOKEN), other):
            pass
        mixed = CacheFiles(others.model, files.data, _TOKEN)
        _must_refuse(subject, mixed, "the model cache of another model")


def two_compilations_at_once_leave_a_whole_cache_or_none(subject: Subject) -> None:
    """Prepare twice at once over the same files: these are then loaded with right results, or refused."""
    with _needed(subject) as files:
        saved = _save(subject, files)
        for _ in range(_RACES // 4):
            model, pools = subject.model(subject.case)
            pending = [
                subject.device.prepare_async(model, pools=pools, cache=files.cache())
                for _ in range(2)
            ]
            for preparation in pending:
                preparation.result(60).close()
            try:
                loaded = _load(subject, files.cache())
            except GeneralFailure:
                continue
            if loaded != saved:
                raise BrokenContract("after two compilations at once, the cache gives other bits")


def files_that_change_during_a_load_never_mix(subject: Subject) -> None:
    """Rewrite files while they are loaded: one of the models, or a refusal (NNAPI: the TOCTOU tests)."""
    with _needed(subject) as files:
        saved = _save(subject, files)
        good = files.contents()
        bad = [bytes(len(content)) for content in good]
        stop = threading.Event()

        def change() -> None:
            while not stop.is_set():
                files.write(bad)
                files.write(good)

        thread = threading.Thread(target=change)
        thread.start()
        try:
            for _ in range(_RACES):
                try:
                    loaded = _load(subject, files.cache())
                except (GeneralFailure, InvalidArgument):
                    continue
                if loaded != saved and not files.data:
                    raise BrokenContract("a model of files that changed meanwhile gives other bits")
        finally:
            stop.set()
            thread.join()
        _must_live(subject, "loads from files that changed meanwhile")


def expired_deadline_loads_nothing(subject: Subject) -> None:
    """Load after the deadline: MISSED_DEADLINE, and the files stay unchanged."""
    with _needed(subject) as files:
        saved = _save(subject, files)
        model, _ = subject.model(subject.case)
        try:
            subject.device.prepare_from_cache(model, files.cache(), deadline_ns=1).close()
        except MissedDeadline:
            pass
        if _load(subject, files.cache()) != saved:
            raise BrokenContract("after a load that came too late, the cache gives other bits")


#: Checks by name; each raises BrokenContract, or any other error, if the driver breaks its rule.
CHECKS: Final[dict[str, Check]] = {
    check.__name__: check
    for check in (
        number_of_files_is_fixed_and_small,
        what_was_saved_is_loaded,
        bad_files_do_not_stop_a_compilation,
        wrong_files_are_not_loaded,
        wrong_token_is_refused,
        changed_model_cache_is_refused,
        changed_data_cache_harms_nothing,
        files_in_another_order_are_refused,
        cache_of_another_model_is_refused,
        two_compilations_at_once_leave_a_whole_cache_or_none,
        files_that_change_during_a_load_never_mix,
        expired_deadline_loads_nothing,
    )
}
