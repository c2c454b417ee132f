"""IDevice::prepareModelFromCache."""

from __future__ import annotations

from typing import Final

from nnburst.control.channel import Fds
from nnburst.control.messages.device import NotifyPrepared, PrepareModelFromCache
from nnburst.driver.calls.async_call import naming
from nnburst.driver.calls.preparation import check_deadline, check_in_time, in_time, opened
from nnburst.driver.model.cache.cache_files import CacheFiles
from nnburst.driver.session.client_session import ClientSession
from nnburst.hal.enums import Priority
from nnburst.hal.errors import NnburstError
from nnburst.hal.validation.values import validate_duration


class CachedPreparation:
    """A model to be prepared from cache files that have passed device:P5 and P6.

    Attributes:
        priority: the model's is not known yet.
    """

    priority: Final = Priority.MEDIUM

    def __init__(self, session: ClientSession, call: PrepareModelFromCache, fds: Fds) -> None:
        """Check what a call brings.

        Raises:
            InvalidArgument: P5: deadline, token, number of files or a descriptor cannot be.
            MissedDeadline: P6: it has passed (PERSISTENT).
            GeneralFailure: the device caches nothing.
        """
        self._session = session
        self._call = call
        with naming("P5"):
            validate_duration("deadline", call.deadline_ns)
        self._files = CacheFiles(fds, 0, call.model_cache, call.data_cache)
        try:
            session.device.compilation_cache.check(call.token, self._files.model, self._files.data)
            check_deadline("P6", call.deadline_ns)
        except BaseException:
            self._files.close()
            raise

    def run(self) -> NotifyPrepared:
        """Prepare the model; the notification has its handle.

        Raises:
            MissedDeadline: it passed before the model was prepared (TRANSIENT).
            GeneralFailure: the files are not what this driver wrote for this token.
            NnburstError: the executor's reason.
        """
        call, files = self._call, self._files
        cache = self._session.device.compilation_cache
        try:
            check_in_time(call.deadline_ns)
            prepared = cache.load(call.token, files.model, files.data)
        except NnburstError:
            self._note(hit=False)
            raise
        finally:
            files.close()
        self._note(hit=True)
        return opened(self._session, call.callback, in_time(prepared, call.deadline_ns))

    def _note(self, *, hit: bool) -> None:
        if self._session.counter_page is not None:
            self._session.counter_page.note_cache(hit=hit)

    def cancel(self) -> None:
        """Let go of the files."""
        self._files.close()
