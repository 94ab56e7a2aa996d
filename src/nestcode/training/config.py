"""How to train: settings that say everything, and are saved with what they produced."""

from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, Self

from nestcode.arrays import check_int
from nestcode.errors import InvalidInput
from nestcode.training.data import batch_count
from nestcode.training.growth import Growth
from nestcode.training.regularization import AdaptivePenalty, ConstantPenalty
from nestcode.training.sweep import Sweep

Optimizer = Literal["adam", "conjugate"]
Schedule = Literal["cosine", "constant"]
Precision = Literal["auto", "float32", "bfloat16"]
_CHOICES = {
    "optimizer": ("adam", "conjugate"),
    "schedule": ("cosine", "constant"),
    "precision": ("auto", "float32", "bfloat16"),
    "compile": ("auto", True, False),
}
_PARTS: dict[str, tuple[type[Any], ...]] = {
    "penalty": (AdaptivePenalty, ConstantPenalty),
    "sweep": (Sweep,),
    "growth": (Growth,),
}
_ABOVE_0 = ("epochs", "learning_rate", "clip", "perturbation", "invariance_share", "temperature")
_AT_LEAST_0 = ("weight_decay", "invariance", "agreement", "reconstruction", "holdout")


@dataclass(frozen=True, kw_only=True)
class Training:
    """Settings of a training run.

    >>> Training(steps=500, learning_rate=3e-4).batch_size
    256

    Args:
        steps: how many batches to learn from, in each stage of a code that grows; `epochs` counts passes over the data
            instead.
        batch_size: examples of a batch, over all processes.
        parts: how many pieces a batch is worked off in, one after the other or by as many processes. Randomness belongs
            to a piece, so two processes with a piece each give the model that one process gives with two pieces.
        optimizer: "adam" (AdamW), or "conjugate": the paper's conjugate gradients, for large batches.
        searches: line searches of "conjugate" on each batch, with the same noise and lengths.
        learning_rate: of Adam, after a warm-up of 5 % of the steps.
        schedule: "cosine" lets the learning rate fall to 0 at the end, "constant" does not.
        weight_decay: of AdamW.
        clip: the largest norm of the gradient that Adam sees; larger ones are scaled down.
        penalty: keeps weights of the code's units small (section 4.2).
        invariance: the weight of the invariance penalty (section 4.4); 0 leaves it out.
        perturbation: the variance of its noise (ε̄ in the paper), of features that have variance 1.
        invariance_share: the share of each batch that it is estimated on.
        agreement: the weight of what asks two views of an item for the same code, see `agreement.py`; 0 leaves it out.
        temperature: of its similarities; the lower, the more the hardest others count.
        reconstruction: how much of the decoder's gradient reaches the encoder. With 0 the decoder only listens: it
            learns to read codes that are made for something else.
        sweep: fixes units that have converged, first to last (section 4.1).
        growth: starts with a narrow code and widens it while that pays (section 7).
        holdout: the share of the data kept apart to measure errors on, at most 4,096 items.
        seed: of all that is random: start, order of the data, noise, lengths.
        device: "auto" takes a GPU if there is one.
        precision: of products; "auto" is bfloat16 on GPUs that have it.
        compile: fuse the step by torch.compile; "auto" does on GPUs, for runs that are worth it.

    """

    steps: int = 2000
    epochs: float | None = None
    batch_size: int = 256
    parts: int = 1
    optimizer: Optimizer = "adam"
    searches: int = 10
    learning_rate: float = 1e-3
    schedule: Schedule = "cosine"
    weight_decay: float = 0.0
    clip: float = 1.0
    penalty: AdaptivePenalty | ConstantPenalty | None = None
    invariance: float = 0.0
    perturbation: float = 0.01
    invariance_share: float = 1.0
    agreement: float = 0.0
    temperature: float = 0.3
    reconstruction: float = 1.0
    sweep: Sweep | None = None
    growth: Growth | None = None
    holdout: float = 0.05
    seed: int = 0
    device: str = "auto"
    precision: Precision = "auto"
    compile: bool | Literal["auto"] = "auto"

    def __post_init__(self) -> None:
        for name, least in (("steps", 1), ("batch_size", 1), ("parts", 1), ("searches", 1), ("seed", 0)):
            object.__setattr__(self, name, check_int(getattr(self, name), name, least))
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise InvalidInput(
                    f"{name} must be one of {', '.join(map(repr, choices))}, got {getattr(self, name)!r}"
                )
        for name, kinds in _PARTS.items():
            if not isinstance(getattr(self, name), (*kinds, type(None))):
                wanted = " or ".join(f"{kind.__name__}(…)" for kind in kinds)
                raise InvalidInput(f"{name} must be None or {wanted}, got {getattr(self, name)!r}")
        if self.sweep is not None and isinstance(self.penalty, ConstantPenalty):
            raise InvalidInput("a constant penalty moves units that a sweep fixed: take AdaptivePenalty, or no sweep")
        for name in (*_ABOVE_0, *_AT_LEAST_0):
            if not isinstance(getattr(self, name), int | float | None) or isinstance(getattr(self, name), bool):
                raise InvalidInput(f"{name} must be a number, got {getattr(self, name)!r}")
        if self.seed >= 2**63:
            raise InvalidInput(f"seed must be below 2^63, got {self.seed}")
        for name in _ABOVE_0:
            if getattr(self, name) is not None and not 0 < getattr(self, name) < float("inf"):
                raise InvalidInput(f"{name} must be a number above 0, got {getattr(self, name)!r}")
        for name in _AT_LEAST_0:
            if not 0 <= getattr(self, name) < float("inf"):
                raise InvalidInput(f"{name} must be a number of at least 0, got {getattr(self, name)!r}")
        if self.holdout > 0.5 or self.invariance_share > 1:
            raise InvalidInput(
                f"holdout is at most 0.5 and invariance_share at most 1, got {self.holdout} and {self.invariance_share}"
            )
        if self.batch_size % self.parts:
            raise InvalidInput(f"batch_size must divide by parts, got {self.batch_size} and {self.parts}")

    def total_steps(self, examples: int) -> int:
        """How many batches that is, of so many examples.

        >>> Training(epochs=3, batch_size=100).total_steps(1000)
        30
        """
        if self.epochs is None:
            return self.steps
        return max(1, round(self.epochs * batch_count(examples, self.batch_size)))

    def to_json(self) -> dict[str, Any]:
        """The settings as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        """The settings that `to_json` gave."""
        known = {field.name for field in fields(cls)}
        if set(values) - known:
            raise InvalidInput(f"unknown settings of training: {', '.join(sorted(set(values) - known))}")
        made = {name: _part(kinds, values[name]) for name, kinds in _PARTS.items() if values.get(name) is not None}
        return cls(**{**values, **made})

    def but(self, **changes: Any) -> Self:
        """The same with some settings changed.

        >>> Training().but(steps=10).steps
        10
        """
        return replace(self, **changes)


def _part(kinds: tuple[type[Any], ...], values: dict[str, Any]) -> Any:
    """What these values are settings of: the kind that has their names."""
    named = [kind for kind in kinds if set(values) <= {field.name for field in fields(kind)}]
    return (named or kinds)[0](**values)
