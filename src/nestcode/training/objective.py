"""The protocol between the training loop and an objective."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from torch import Tensor, nn

from nestcode.training.runtime.accelerator import Accelerator
from nestcode.training.runtime.sampler import MicroBatch


class Objective(ABC):
    """A loss of a model on examples, with hooks around the steps that minimize it.

        begin_stage ──▶ (load ──▶ loss) per micro-batch ──▶ after_step ──▶ … ──▶ grows? ──▶ grow ──▶ begin_stage
                                                                                       └──▶ finish ──▶ release

    The loop owns the optimizer, the order of the data, randomness, checkpoints and logs. PyTorch's global generator is
    seeded for every micro-batch of every step, so `loss` is a function of these and may be evaluated again.
    """

    model: nn.Module  # whose parameters are trained and checkpointed
    examples: int  # to train on
    compilable: ClassVar[bool] = True  # whether steps may be compiled and captured as a CUDA graph
    discrete: bool = False  # whether the loss is of discrete units, which a line search holds fixed

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Return the values that a run must share with the checkpoint it resumes, as JSON."""

    @abstractmethod
    def prepare(self, accelerator: Accelerator, micro_batch_size: int) -> None:
        """Move the model and the data to the device, and allocate the buffers of a micro-batch."""

    def begin_stage(self) -> None:  # noqa: B027
        """Prepare whatever depends on the model's present width."""

    @abstractmethod
    def load(self, step: int, micro_batch: MicroBatch) -> None:
        """Load the examples of a micro-batch."""

    @abstractmethod
    def loss(self) -> Tensor:
        """Return the mean loss of the loaded micro-batch."""

    def begin_search(self) -> None:  # noqa: B027
        """Make discrete units anew in the next evaluation, and hold them fixed in later ones."""

    def begin_batch(self) -> None:  # noqa: B027
        """Discard the records of an earlier evaluation of the same batch: a line search evaluates it several times."""

    def after_step(self, step: int) -> bool:  # noqa: ARG002
        """Follow a step of the optimizer; return whether parameters were frozen."""
        return False

    def regularized_weights(self) -> list[nn.Parameter]:
        """Return the weights that a penalty acts on, (units, inputs) each."""
        return []

    def frozen_units(self) -> int:
        """Return how many leading units no longer change."""
        return 0

    def errors(self) -> dict[int, float]:
        """Return the error by length on held-out items, for reports; empty where it is not measured."""
        return {}

    def grows(self) -> bool:
        """Return whether another stage with a larger model pays."""
        return False

    def grow(self) -> None:
        """Enlarge the model for another stage."""
        raise NotImplementedError

    def finish(self) -> None:  # noqa: B027
        """Make the trained model ready for use."""

    def release(self) -> None:
        """Undo the run's temporary changes to the model, however it ended."""
        self.model.eval()

    def state_dict(self) -> dict[str, Any] | None:
        """Return the state that a checkpoint keeps in addition to the model's."""
        return None

    def load_state_dict(self, state: dict[str, Any] | None) -> None:  # noqa: B027
        """Restore the state of a checkpoint, after the model's state."""
