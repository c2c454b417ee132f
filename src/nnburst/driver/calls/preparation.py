"""prepareModel: what its caller waits for, and what comes after."""

from __future__ import annotations

from nnburst.control.channel import Fds
from nnburst.control.messages.device import NotifyPrepared, PrepareModel
from nnburst.control.model_id import model_id
from nnburst.driver.calls.async_call import has_passed, naming
from nnburst.driver.counting.model_counters import ModelCounters
from nnburst.driver.model.cache.cache_files import CacheFiles
from nnburst.driver.model.pools import adopt_pools, close_pools
from nnburst.driver.model.prepared_model import PreparedModel
from nnburst.driver.session.client_session import ClientSession
from nnburst.executor.base import PrepareOptions
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.errors import MissedDeadline
from nnburst.hal.validation.values import (
    validate_cache_token,
    validate_duration,
    validate_execution_preference,
    validate_priority,
)


class Preparation:
    """A model to be prepared that has passed device:P2 to P8; P9 is the scheduler's.

    Attributes:
        priority: among the client's models.
    """

    def __init__(self, session: ClientSession, call: PrepareModel, fds: Fds) -> None:
        """Check what a call brings, in the order of the HAL.

        Args:
            session: whose call it is.
            call: hostile until checked here.
            fds: the model's pools, then its cache files.

        Raises:
            InvalidArgument: P2: the model breaks a rule of validation; P3, P4: no such preference or
                priority; P5: deadline or token cannot be; P8: an operation is not supported.
            MissedDeadline: P6: it has passed (PERSISTENT).
            GeneralFailure: P7: a pool cannot be mapped.
        """
        self._session = session
        self._call = call
        device = session.device
        with naming("P2"):
            pools = adopt_pools(call.model.pools, fds, "M4")
        try:
            with naming("P2"):
                device.check(call.model, pools)
            with naming("P3"):
                self._preference = validate_execution_preference(call.preference)
            with naming("P4"):
                self.priority = validate_priority(call.priority)
            with naming("P5"):
                validate_duration("deadline", call.deadline_ns)
                validate_cache_token(call.token)
            check_deadline("P6", call.deadline_ns)
            with naming("P7"):
                self._views = [pool.readable for pool in pools]
            device.check_supported(call.model)
        finally:
            close_pools(pools)  # the views keep the mappings
        self._files = CacheFiles(fds, len(pools), call.model_cache, call.data_cache)

    def run(self) -> NotifyPrepared:
        """Prepare the model; the notification has its handle.

        Raises:
            MissedDeadline: it passed before the model was prepared (TRANSIENT).
            ResourceExhausted: the client holds as many objects as it may.
            NnburstError: the executor's reason.
        """
        try:
            prepared = self._prepare()
        finally:
            self._files.close()
        return opened(self._session, self._call.callback, prepared)

    def _prepare(self) -> PreparedModel:
        call, device = self._call, self._session.device
        check_in_time(call.deadline_ns)
        prepared = device.prepare_checked(
            call.model,
            self._views,
            PrepareOptions(self._preference, self.priority, call.num_threads),
        )
        device.compilation_cache.save(prepared, call.token, self._files.model, self._files.data)
        return in_time(prepared, call.deadline_ns)

    def cancel(self) -> None:
        """Let go of the cache files; beside them only mappings are held."""
        self._files.close()


def opened(session: ClientSession, callback: int, prepared: PreparedModel) -> NotifyPrepared:
    """The notification of a prepared model, which its client owns from here on.

    Raises:
        ResourceExhausted: the client holds as many objects as it may.
    """
    fields = {"num_threads": prepared.num_threads}
    if session.counter_page is not None:
        page = session.counter_page
        prepared.counters = ModelCounters(page, page.known(model_id(prepared.model)))
    handle = session.objects.add(prepared)
    return NotifyPrepared(callback, ErrorStatus.NONE, handle=handle, fields=fields)


def in_time(prepared: PreparedModel, deadline_ns: int | None) -> PreparedModel:
    """`prepared` itself; closed if its deadline has passed (MissedDeadline, TRANSIENT)."""
    try:
        check_in_time(deadline_ns)
    except MissedDeadline:
        prepared.close()
        raise
    return prepared


def check_deadline(rule: str, deadline_ns: int | None) -> None:
    """Raise MissedDeadline, which names `rule`, if a deadline had passed when the call came."""
    if has_passed(deadline_ns):
        raise MissedDeadline(
            f"device:{rule}: the deadline has passed", status=ErrorStatus.MISSED_DEADLINE_PERSISTENT
        )


def check_in_time(deadline_ns: int | None) -> None:
    """Raise MissedDeadline if a deadline has passed since the call came (TRANSIENT)."""
    if has_passed(deadline_ns):
        raise MissedDeadline(
            "the deadline passed while the model was being prepared",
            status=ErrorStatus.MISSED_DEADLINE_TRANSIENT,
        )
