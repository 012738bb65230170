"""The candidate's process: imports the candidate's module and answers the referee's questions. Untrusted.

Whatever is loaded here can change anything in this process, so nothing that it says is more than a claim: verdicts
are made elsewhere, from lent memory and from the referee's own clock.
"""

import contextlib
import importlib.util
import json
import os
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import torch
from pydantic import ConfigDict, Field, JsonValue, TypeAdapter

from kernelgate.tasks.model import ENTRY_FILE, Frozen
from kernelgate.tools.kit.build_log import compiler_errors, with_first_error
from kernelgate.tools.kit.wire import DeviceRef
from kernelgate.tools.worker import cpu_profile, frames, nsight, protocol, tracing, triton_launchers
from kernelgate.tools.worker.cuda_candidate import CudaSide
from kernelgate.tools.worker.cuda_driver import CUDA_DEVICE
from kernelgate.tools.worker.cuda_profile import profile_calls, steady_calls
from kernelgate.tools.worker.fake_cuda import seemingly_available
from kernelgate.tools.worker.handover import Handover
from kernelgate.tools.worker.inputs import reseed
from kernelgate.tools.worker.interpreter import prepare_interpreter
from kernelgate.tools.worker.lending import Borrower, MemfdBorrower
from kernelgate.tools.worker.operators import OperatorRecord, closely_watched
from kernelgate.tools.worker.placement import take_place
from kernelgate.tools.worker.signals import CallSignals
from kernelgate.tools.worker.structure import call_arguments, decode, tensors_in
from kernelgate.tools.worker.timing import Arguments, Restorer, apply_policy, time_calls
from kernelgate.tools.worker.triton_target import answer_for, install_standin_driver

MODULE_NAME: Final = "kernelgate_candidate"
MAX_MISSING: Final = 20
_QUESTION: Final = TypeAdapter[protocol.Question](Annotated[protocol.Question, Field(discriminator="op")])


ProfileQuestion = protocol.ProfileCalls | protocol.Steady | protocol.Inspect | protocol.ReportPart
DeviceQuestion = (
    protocol.Load
    | protocol.Construct
    | protocol.Lend
    | protocol.Forget
    | protocol.Run
    | protocol.WaitForDevice
    | protocol.Watch
    | ProfileQuestion
)


class Start(Frozen):
    """What the supervisor tells a new child."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    scratch: str
    mode: Literal["run", "trace"]
    device: DeviceRef
    language: str


class NoModel(Exception):
    """The candidate's module has no `ModelNew`."""


class Child:
    """The state of one candidate's process: its module, its model, the inputs that it was lent."""

    def __init__(self, start: Start, borrower: Borrower, signals: CallSignals) -> None:
        """Nothing of the candidate is touched yet."""
        self._start = start
        self._signals = signals
        self._borrower = borrower
        self.module: Any = None
        self.kernels: list[Any] = []
        """Of Triton, compiled by a trace."""
        self._model: Any = None
        self._restorer: Restorer | None = None
        self._pool: dict[int, Arguments] = {}
        self._places: dict[int, list[dict[str, torch.Tensor]]] = {}
        self._weights: tuple[torch.Tensor, ...] = ()
        self._lent: list[tuple[torch.Tensor, ...]] = []
        self._cuda: CudaSide | None = None
        self._constructed: Arguments = ((), {})
        self._nsight = nsight.Nsight(Path(start.scratch))
        self._waits = False

    def answer(self, question: DeviceQuestion, descriptors: list[int]) -> Frozen:
        """Do what is asked; whatever the candidate raises passes through."""
        if isinstance(question, protocol.Load):
            return self._load(question)
        if isinstance(question, protocol.Construct):
            return self._construct(question, descriptors)
        if isinstance(question, protocol.Lend):
            return self._take(question, descriptors)
        if isinstance(question, protocol.Forget):
            return self._forget()
        if isinstance(question, protocol.Run):
            return self._run(question) if self._cuda is None else self._run_block(question, self._cuda)
        if isinstance(question, protocol.WaitForDevice):
            self._waits = True
            return protocol.Done()
        if isinstance(question, protocol.Watch):
            return self._watch(question)
        return self._describe(question)

    def _describe(self, question: ProfileQuestion) -> Frozen:
        """What a profile asks."""
        if isinstance(question, protocol.ReportPart):
            return self._nsight.part(question.start)
        if isinstance(question, protocol.Inspect):
            kept = nsight.kept_for(self._model, self._constructed, self._pool[0], question, MODULE_NAME)
            return self._nsight.inspect(question, kept)
        if isinstance(question, protocol.Steady):
            return steady_calls(self._model, self._pool, *self._warm(question))
        if self._cuda is None:
            return cpu_profile.profile_calls(self._model, self._pool, *self._warm(question))
        return profile_calls(self._cuda.timer, self._model, self._pool, *self._warm(question))

    def load(self) -> None:
        """Import `candidate.py` under a name of its own, its folder first on the path for the files beside it."""
        folder = Path(self._start.scratch) / "candidate"
        start = self._start
        seeming: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        if start.mode == "trace" and start.device.kind == "cuda":
            answer_for(start.device.target)
            seeming = seemingly_available()
        if start.language == "triton" and start.mode == "trace":
            os.environ.pop("TRITON_INTERPRET", None)
            install_standin_driver(start.device.target)
        elif start.language == "triton" and start.device.kind == "cpu":
            prepare_interpreter(start.device.target)
        sys.dont_write_bytecode = True
        sys.path.insert(0, str(folder))
        spec = importlib.util.spec_from_file_location(MODULE_NAME, folder / ENTRY_FILE)
        if spec is None or spec.loader is None:
            raise NoModel(f"{ENTRY_FILE} cannot be imported")
        module = importlib.util.module_from_spec(spec)
        sys.modules[MODULE_NAME] = module
        with seeming:
            spec.loader.exec_module(module)
        if not callable(getattr(module, "ModelNew", None)):
            raise NoModel(f"{ENTRY_FILE} must define a class ModelNew with the constructor of the reference's Model")
        self.module = module

    def _load(self, question: protocol.Load) -> protocol.Done:
        if self._start.device.kind == "cuda" and self._start.mode == "run":
            self._cuda = CudaSide()
            self._borrower = self._cuda.borrower
        apply_policy(question.precision, question.threads)
        if self._start.device.kind == "cpu" and self._start.mode == "run":
            take_place(question.threads)
        self.load()
        return protocol.Done()

    def _construct(self, question: protocol.Construct, descriptors: list[int]) -> protocol.Constructed:
        self._forget()
        self._model = None
        self._borrower.release(self._weights)
        lent = () if question.parcel is None else self._borrower.open(question.parcel, _one_of(descriptors))
        arguments = decode(question.arguments, lent)
        positional, named = self._constructed = call_arguments(arguments)
        reseed(question.weight_seed)
        model = self._built(positional, named)
        if isinstance(model, torch.nn.Module):
            if model.training != question.training:
                model.train(question.training)
            answer = _load_weights(model, {name: lent[index] for name, index in question.parameters.items()})
            self._restorer = Restorer(model, question.parameters)
        else:
            answer = protocol.Constructed(loaded=0, missing=tuple(question.parameters)[:MAX_MISSING])
            self._restorer = Restorer(torch.nn.Module())
        self._model = model
        if tensors_in(arguments):
            self._weights = lent  # the model may keep them
        else:
            self._weights = ()
            self._borrower.release(lent)
        return answer

    def _built(self, positional: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """The candidate's model, on the device: made there, as large weights take seconds on the host."""
        if self._cuda is None:
            return self.module.ModelNew(*positional, **named)
        with torch.device(CUDA_DEVICE):
            model = self.module.ModelNew(*positional, **named)
        return model.to(CUDA_DEVICE) if isinstance(model, torch.nn.Module) else model

    def _forget(self) -> protocol.Done:
        self._pool, self._places = {}, {}
        lent, self._lent = self._lent, []
        for tensors in lent:
            self._borrower.release(tensors)
        if self._cuda is not None:
            torch.cuda.empty_cache()  # what forward allocates next lies elsewhere
        return protocol.Done()

    def _take(self, question: protocol.Lend, descriptors: list[int]) -> protocol.Done:
        if question.replace:
            self._forget()
        lent = self._borrower.open(question.parcel, _one_of(descriptors))
        self._lent.append(lent)
        for entry in question.entries:
            index = len(self._pool)
            self._pool[index] = call_arguments(decode(entry.inputs, lent))
            self._places[index] = [{place.path: lent[place.index] for place in places} for places in entry.answers]
        return protocol.Done()

    def _run(self, question: protocol.Run) -> protocol.Ran:
        restorer = self._restorer or Restorer(torch.nn.Module())
        reseed(question.seed)
        restore = restorer.before_call(question.seed, reseed=question.reseed, restore=question.restore)
        handover = Handover(self._places)

        def before() -> None:
            restore()
            self._signals.await_go()

        def after(index: int, output: object) -> None:
            # The answer first: what is not in place when the referee's clock stops does not count.
            handover.take(index, output, self._signals.returned())
            self._signals.done()

        samples = time_calls(self._model, self._pool, question.order, before, after)
        return protocol.Ran(samples_ns=tuple(samples), answers=handover.answers())

    def _run_block(self, question: protocol.Run, cuda: CudaSide) -> protocol.Ran:
        restorer = self._restorer or Restorer(torch.nn.Module())
        reseed(question.seed)
        before = restorer.before_call(question.seed, reseed=question.reseed, restore=question.restore)
        handover = Handover(self._places)
        waits, self._waits = self._waits, False

        def after(index: int, output: object) -> None:
            if waits:
                torch.cuda.synchronize()
            handover.take(index, output)

        made = cuda.compilations.total()
        cuda.timer.wake()
        self._signals.await_go(spin=True)
        times = cuda.timer.time_block(
            self._model, self._pool, question.order, before, after, question.sleep_us, self._signals.done
        )
        return protocol.Ran(
            samples_ns=times.samples_ns,
            answers=handover.answers(),
            enqueue_us=times.enqueue_us,
            covered=times.covered,
            compilations=max(0, cuda.compilations.total() - made),
        )

    def _watch(self, question: protocol.Watch) -> protocol.Watched:
        restorer = self._restorer or Restorer(torch.nn.Module())
        reseed(question.seed)
        restorer.before_call(question.seed, reseed=True, restore=True)()
        positional, named = self._pool[0]
        record = OperatorRecord()
        with torch.no_grad(), closely_watched() if question.closely else contextlib.nullcontext() as below, record:
            self._model(*positional, **named)
        names = dict.fromkeys([*record.names(), *(below.names() if below else ())])
        return protocol.Watched(operators=tuple(names), precisions=record.precisions())

    def _warm(self, question: protocol.ProfileCalls | protocol.Steady) -> tuple[list[int], Callable[[], None]]:
        """Which pool entries to call with, one after the other, and what to do before each call."""
        reseed(question.seed)
        restorer = self._restorer or Restorer(torch.nn.Module())
        before = restorer.before_call(question.seed, reseed=False, restore=True)
        return [index % len(self._pool) for index in range(question.calls)], before


def serve(conn: socket.socket, start: dict[str, JsonValue]) -> None:
    """Answer questions until the stream ends: the referee is done, or gone.

    Args:
        conn: The candidate's end of the line; closed at the end.
        start: See `Start`. The files lie in `scratch/candidate`.
    """
    child = Child(Start.model_validate_json(json.dumps(start)), MemfdBorrower(), CallSignals(conn))
    with conn:
        while True:
            received = frames.receive(conn)
            if received is None:
                return
            message, descriptors = received
            sequence = message.pop("sequence", None)
            reply = _reply(child, message, descriptors)
            try:
                frames.send(conn, {"sequence": sequence, **reply})
            except BrokenPipeError:
                return


def _reply(child: Child, message: dict[str, JsonValue], descriptors: list[int]) -> dict[str, JsonValue]:
    try:
        question = _QUESTION.validate_json(json.dumps(message))
        if isinstance(question, protocol.TraceWorkload):
            return {"ok": tracing.run_trace(child.module, message, child.kernels)}
        if isinstance(question, protocol.BuildLaunchers):
            triton_launchers.build_launchers(child.kernels)
            return {"ok": protocol.Done().model_dump(mode="json")}
        return {"ok": child.answer(question, descriptors).model_dump(mode="json")}
    except BaseException as error:  # noqa: BLE001  candidate code raises what it likes, SystemExit too: all is an answer
        return {"error": _described(error).model_dump(mode="json")}
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _one_of(descriptors: list[int]) -> int:
    """The descriptor that came with a frame; on a GPU there is none."""
    return descriptors.pop() if descriptors else -1


def _load_weights(model: torch.nn.Module, lent: dict[str, torch.Tensor]) -> protocol.Constructed:
    """Copy the reference's state where name, shape and dtype agree; the rest stays as the weight seed made it."""
    mine = model.state_dict()
    loaded: list[str] = []
    with torch.no_grad():
        for name, value in lent.items():
            target = mine.get(name)
            if isinstance(target, torch.Tensor) and target.shape == value.shape and target.dtype == value.dtype:
                target.copy_(value)
                loaded.append(name)
    missing = [name[:200] for name in lent if name not in set(loaded)]
    return protocol.Constructed(loaded=len(loaded), missing=tuple(missing[:MAX_MISSING]))


def _described(error: BaseException) -> protocol.Raised:
    name = type(error).__name__
    message = _text(lambda: str(error))
    errors = compiler_errors(message)[: protocol.MAX_LOG_CHARS]
    message = with_first_error(message)
    log = errors or _text(lambda: _traceback(error))
    return protocol.Raised(
        type=name[:200], message=message[: protocol.MAX_ERROR_CHARS], log=log[-protocol.MAX_LOG_CHARS :]
    )


def _traceback(error: BaseException) -> str:
    """The traceback from the candidate's first frame on, its files by their bare names."""
    told = traceback.TracebackException.from_exception(error)
    module = sys.modules.get(MODULE_NAME)
    folder = os.path.dirname(str(getattr(module, "__file__", "") or "")) + os.sep
    frames_told = list(told.stack)
    own = [index for index, frame in enumerate(frames_told) if frame.filename.startswith(folder)]
    for frame in frames_told:
        frame.filename = frame.filename.removeprefix(folder)
    told.stack = traceback.StackSummary.from_list(frames_told[own[0] :] if own else frames_told[-1:])
    return "".join(told.format())


def _text(make: Callable[[], str]) -> str:
    """Text of an exception whose own methods may raise; no lone surrogates, which JSON cannot carry."""
    try:
        made = make()
    except Exception as error:  # noqa: BLE001  the candidate's own __str__
        made = f"({type(error).__name__} while the error was put into words)"
    return made.encode("utf-8", "replace").decode("utf-8")
