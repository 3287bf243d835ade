"""Steps as the code of a flow calls them, one after the other; gathers.py runs several at once.

Rules:
- A step's function is called with what is recorded for it; what cannot be recorded is refused before anything begins.
- A step contains no steps of its own flow (flow_run.py); an undoing is named after its step.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Final

from holdproof import validation
from holdproof.db import Work
from holdproof.errors import InvalidInputError, NonDeterminismError
from holdproof.executors.uses import IN_STEPS_OF
from holdproof.runtime import calls, step_runs, steps
from holdproof.runtime.flow_run import OWN, FlowRun, Undoing, outside_steps
from holdproof.runtime.step_retries import RetryPolicy
from holdproof.runtime.steps import OnUnknown, StepSpec
from holdproof.runtime.suspension import FlowSuspended

UNDO: Final = "undo "
"""How the names of steps start that undo others."""
_LONGEST_NUMBER: Final = " 999999"
"""The number of a step, at its longest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOptions:
    """How a step is run."""

    compensate: Callable[[Any], Any] | None = None
    on_unknown: OnUnknown = "ask"
    retries: int = 0
    backoff_s: float = 1.0
    retry_on: type[BaseException] | tuple[type[BaseException], ...] = Exception
    timeout_s: float | None = None
    record_args: bool = True


OPTIONS: Final = frozenset(each.name for each in fields(StepOptions))
"""The keywords of a step that are not its function's."""


@dataclass(frozen=True, slots=True)
class StepCall:
    """A step that has not begun: what `flow.call` gives, for `flow.gather`."""

    name: str
    fn: Callable[[], Any]
    arguments: str | None
    options: StepOptions
    function: Callable[..., Any] | None = None
    """What is called with the arguments, as it was given, where that runs here."""

    def check(self) -> None:
        """Refuse, before anything is recorded, what could not be run or undone."""
        options = self.options
        validate_name(self.name, undoable=options.compensate is not None)
        validation.count("retries", options.retries)
        validation.seconds("backoff_s", options.backoff_s)
        if options.timeout_s is not None:
            validation.seconds("timeout_s", options.timeout_s, least=0.001)


def prepare(first: Any, args: Sequence[Any], kwargs: Mapping[str, Any], options: StepOptions) -> StepCall:
    """Return a step, given its function, or its name and its function, and what the function is called with."""
    name, fn, rest = (first, args[0] if args else None, args[1:]) if isinstance(first, str) else (None, first, args)
    if not callable(fn):
        raise InvalidInputError("a step is a function, or a name and a function", field="fn")
    call = StepCall(
        _name_of(fn) if name is None else name,
        partial(fn, *rest, **kwargs),
        _arguments(rest, kwargs, required=options.record_args),
        options,
        fn,
    )
    call.check()
    return call


def _name_of(fn: Any) -> str:
    """The name of a function, also of one that is partly applied; of another callable, that of its class."""
    while isinstance(fn, partial):
        fn = fn.func
    return str(getattr(fn, "__name__", type(fn).__name__))


def _arguments(args: Sequence[Any], kwargs: Mapping[str, Any], *, required: bool) -> str | None:
    try:
        return calls.arguments_text(args, kwargs)
    except InvalidInputError:
        if required:
            raise
        # There is nothing to tell such arguments by, and their caller wants them nowhere.
        return None


def step(
    run: FlowRun,
    first: Any,
    /,
    *args: Any,
    compensate: Callable[[Any], Any] | None = None,
    on_unknown: OnUnknown = "ask",
    retries: int = 0,
    backoff_s: float = 1.0,
    retry_on: type[BaseException] | tuple[type[BaseException], ...] = Exception,
    timeout_s: float | None = None,
    record_args: bool = True,
    **kwargs: Any,
) -> Work[Any]:
    """Run a step once, whatever happens, and return its result: `step(pay, order)`, or `step("pay", pay, order)`.

    `compensate` gets the result if it is to be undone. A step that raises `retry_on` is tried `retries` times more, the
    first time after about `backoff_s`, then after twice as long. `on_unknown` is "ask", "retry" or "fail": what to do
    if it was started and never confirmed, by a worker that is gone or after `timeout_s`. With `record_args=False` what
    the function is called with is not recorded.
    """
    options = StepOptions(
        compensate=compensate,
        on_unknown=on_unknown,
        retries=retries,
        backoff_s=backoff_s,
        retry_on=retry_on,
        timeout_s=timeout_s,
        record_args=record_args,
    )
    return (yield from perform(run, prepare(first, args, kwargs, options)))


def perform(run: FlowRun, call: StepCall) -> Work[Any]:
    """Run a step that is prepared."""
    outside = outside_steps(run, f"step {call.name}")
    return (yield from perform_reached(run, call, reach(run, call), outside))


def reach(run: FlowRun, call: StepCall) -> StepSpec:
    """Number the step that the code reaches now."""
    return numbered(run, call, *run.reach(call.name))


def numbered(run: FlowRun, call: StepCall, n: int, position: int) -> StepSpec:
    """Return a step as it is recorded, given its number and its position."""
    options = call.options
    return StepSpec(
        call.name,
        n,
        position,
        undo=options.compensate is not None,
        on_unknown=options.on_unknown,
        arguments=call.arguments,
        record_args=options.record_args,
        policy=RetryPolicy(options.retries, options.backoff_s, options.retry_on),
        timeout_s=options.timeout_s,
        raw=run.raw,
        function=None if run.raw else call.function,
    )


def perform_reached(run: FlowRun, call: StepCall, spec: StepSpec, outside: frozenset[tuple[str, str]]) -> Work[Any]:
    """Run a step that is numbered; `outside` are the flows inside one of whose steps the caller is."""
    earlier = run.journal.get((spec.name, spec.n))
    recorded_step = None if earlier is None else earlier.value
    # Set for the function that the step calls, which runs in this context.
    IN_STEPS_OF.set(outside | {(run.lease.ns, run.lease.flow_id)})
    try:
        fn = call.fn
        if recorded_step is None or recorded_step.state not in steps.SETTLED:
            spec, fn = run.mode.step(spec, fn)
        result = yield from step_runs.step(run.lease, spec, fn, run.journal)
    except FlowSuspended as suspended:
        run.suspended = suspended
        raise
    except NonDeterminismError as error:
        # One of another flow, which the step's function runs, is an error of this step like any other.
        if error.fields.get("flow_id") == run.lease.flow_id:
            run.difference = error
        raise
    finally:
        IN_STEPS_OF.set(outside)
    if call.options.compensate is not None and spec.undo and run.mode.undoes(recorded_step):
        # Appended after the step: one that failed has nothing to undo.
        run.undoings.append(Undoing(spec.name, spec.n, partial(call.options.compensate, result)))
    return result


def validate_name(name: str, *, undoable: bool) -> None:
    """Refuse a name now whose undoing would have a name that is too long, or one that the flow itself uses."""
    if validation.name("step", name).startswith((UNDO, OWN)):
        raise InvalidInputError(f"names that start with {UNDO!r} or {OWN!r} are the flow's own", step=name)
    if undoable:
        validation.name("a step and its undoing together", f"{UNDO}{name}{_LONGEST_NUMBER}")
