"""The checkpoints of a training: when it writes its state, how it ends at a signal, and how it goes on.

Lecture section: parallelism at scale, what fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from minigrad.module import Module
from minigrad.optim import Optimizer
from minigrad.own_state import OwnState
from minigrad.settings_repr import settings_repr
from minigrad.strategy import Strategy
from minigrad.train import History

from ..comm import Communicator
from ..comm.allgather_json import allgather_json
from ..process import rank
from ..process.stop_request import StopRequest
from ..process.stopped import Stopped
from .checkpoints import REAL, Checkpoints, Generation, newest_generation, numbers_in
from .disk import Disk
from .stop_agreement import StopAgreement
from .training_state import gather_state, load_model_state, load_state

Check = Callable[[Generation], object]


class TrainingCheckpoints:
    """Writes the state of a training into ``folder`` every ``every`` steps, and goes on from the newest one.

    All ranks of ``comm``, which share the folder, construct it before the model is placed, and call its
    methods together::

        with TrainingCheckpoints("kept", comm, steps=epochs * -(-len(data) // 64)) as checkpoints:
            model = backend.place(checkpoints.load_model(model))
            optimizer = SGD(model.parameters(), 0.1)
            history = checkpoints.load_rest(backend, model, optimizer)
            fit(model, optimizer, loss, data, backend=backend, epochs=epochs, batch_size=64,
                start=history, on_step=checkpoints.on_step)

    The same program then starts, goes on after it was killed, and, with more epochs, after its end: with the
    same bits where ranks and strategy are the same, and to rounding in other layouts. The newest ``keep``
    checkpoints are kept. After the last of ``steps`` one is written, too. Inside the ``with`` a signal only
    requests the training's end: all ranks stop after a step on which they agree, write it, and raise Stopped.

    ``resume`` is another folder from which to go on; False begins anew. ``check`` is called with the
    checkpoint, and raises an error where the training cannot go on from it. The program's ``facts`` are saved
    with the state. ``say`` prints a line; by default rank 0 does. Raises ValueError where there are
    checkpoints and none of them can be used, or none in another folder; OSError as ``Checkpoints``.
    """

    __repr__ = settings_repr

    def __init__(
        self,
        folder: Path | str | None,
        comm: Communicator,
        *,
        every: int = 100,
        keep: int = 2,
        steps: int | None = None,
        resume: Path | str | bool = True,
        check: Check = lambda generation: None,
        facts: Mapping[str, Any] | None = None,
        say: Callable[[str], object] | None = None,
        disk: Disk = REAL,
        request: StopRequest | None = None,
    ):
        if every < 1:
            raise ValueError(f"every must be at least 1 step, got {every}")
        source = folder if resume is True else resume or None
        self.comm, self.every, self.steps, self.disk = comm, every, steps, disk
        self.say = say or (print if comm.rank == 0 else lambda text: None)
        self.facts = dict(facts or {})
        self.arrays: dict[str, Any] = {}
        self.saved: dict[str, Any] = {}  # the facts of the checkpoint from which this training goes on
        if source is not None:
            self.read(Path(source), check, needed=resume is not True)
        self.files = None if folder is None else Checkpoints(folder, comm, keep=keep, disk=disk)
        self.training: tuple[Strategy, Module, Optimizer, OwnState | None] | None = None
        self.history = History()
        self.request, self.agreement = request or StopRequest(), StopAgreement(comm)
        self.agreed: int | None = None  # the signal on which all ranks stop after this step

    def __enter__(self) -> Self:
        if self.files is not None:
            self.request.__enter__()
            rank.note(f"{rank.SAVES}.{self.comm.rank}", str(self.files.folder))
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is None:
            self.close()
        elif self.files is not None:
            self.files.abandon()
        self.request.__exit__(kind, *error)
        if kind is None and self.request.number is not None:
            self.request.act(self.request.number)  # it came after the last step, as it would without us

    def read(self, folder: Path, check: Check, *, needed: bool) -> None:
        """Read the newest whole generation in a folder, and say which."""
        generation, arrays, skipped = newest_generation(folder, self.comm, self.disk)
        if generation is None and (skipped or needed):
            reasons = "; ".join(skipped) or "there is none"
            raise ValueError(
                f"no checkpoint in {folder} can be used: {reasons}; nothing in the folder was changed, and a "
                "training in another folder begins anew"
            )
        for problem in skipped:
            self.say(f"skipped a checkpoint: {problem}")
        if generation is not None:
            check(generation)
            self.arrays, self.saved = arrays, generation.facts
            self.say(f"resumed from {generation.folder}, at step {generation.step}")

    def load_model(self, model: Module) -> Module:
        """``model``, which has not been placed, with the saved arrays, if this training goes on."""
        load_model_state(model, self.arrays)
        return model

    def load_rest(
        self,
        backend: Strategy,
        model: Module,
        optimizer: Optimizer,
        *,
        schedule: OwnState | None = None,
        same_layout: bool | None = None,
    ) -> History:
        """Give a rank, whose model has been placed, everything else that was saved; the ``start`` of ``fit``.

        They are what will be written. ``same_layout`` says whether ranks, strategy and options are those that
        wrote the checkpoint; by default, whether ranks and strategy are. Errors as ``load_state``.
        """
        self.training = backend, model, optimizer, schedule
        if self.saved:
            load_state(
                self.comm,
                backend,
                model,
                optimizer,
                self.arrays,
                self.saved,
                same_layout=same_layout,
                schedule=schedule,
                history=self.history,
            )
            self.arrays = {}
        return self.history

    def on_step(self, step: int, loss: float) -> None:
        """Called after each step, as ``fit`` does: write a checkpoint if one is due, and stop if asked to."""
        self.write()
        self.stop_if_agreed()

    def write(self, **facts: Any) -> bool:
        """Begin to write a checkpoint, if the step is one of those, and say so; all ranks call every step.

        It is also one of those if all ranks stop after it, or no step comes after it. Where ranks may lag,
        nobody waits for them after any other step: they stop after one that is saved anyway.
        """
        if self.files is None or self.training is None:
            return False
        backend, model, optimizer, schedule = self.training
        step = len(self.history.losses)
        last = step == self.steps
        due = last or step % self.every == 0
        if backend.traits.may_lag:
            if not due:
                return False
            backend.state.drain(model)
        self.agreed = self.agreement.after_step(self.request.number, last=last or backend.traits.may_lag)
        if not due and self.agreed is None:
            return False
        arrays, state, own = gather_state(self.comm, backend, model, optimizer, schedule, self.history)
        self.attempt(Checkpoints.wait)  # apart: where the one before failed, this one is written all the same
        self.attempt(lambda files: files.write(step, arrays, {**state, **self.facts, **facts}, own))
        return True

    def stop_if_agreed(self) -> None:
        """Raise Stopped, on all ranks, if they have agreed to stop after this step, once it is written."""
        if self.files is None or self.agreed is None:
            return
        problem = ""
        try:
            self.files.wait()
        except OSError as error:
            problem = f"{error}; "
        self.request.restore()
        problem, newest = allgather_json(self.comm, [problem, self.files.committed])[0]  # of who commits
        if not newest:
            raise Stopped(self.agreed, f"{problem}no checkpoint of this run was written", "")
        saved = f"step {numbers_in(newest)[0]} is saved in {self.files.folder / newest}"
        raise Stopped(self.agreed, problem + saved, str(self.files.folder))

    def close(self) -> None:
        """Return when the last checkpoint is written."""
        self.agreement.close()
        self.attempt(Checkpoints.close)

    def attempt(self, job: Callable[[Checkpoints], None]) -> None:
        """Do ``job``; a disk that is full does not end the training, which says so."""
        if self.files is not None:
            try:
                job(self.files)
            except OSError as error:
                if isinstance(error, TimeoutError) and error.errno is None:
                    raise  # of a wait for another rank, and not of a file
                self.say(f"{error}; the training goes on")
