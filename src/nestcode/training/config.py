"""The settings of training: `Training` decides what is learned, `Run` what is logged and saved on the way."""

import os
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, Self, TypedDict

from nestcode.arrays import check_int
from nestcode.errors import InvalidInput
from nestcode.training.contrastive import Contrastive
from nestcode.training.data import batch_count
from nestcode.training.growth import Growth
from nestcode.training.regularization import AdaptivePenalty, ConstantPenalty, Invariance, check_number
from nestcode.training.runtime.checkpoint import check_writable
from nestcode.training.sweep import Sweep

Optimizer = Literal["adam", "conjugate"]
Schedule = Literal["cosine", "constant"]
Precision = Literal["auto", "float32", "tensorfloat32", "bfloat16"]
_CHOICES = {
    "optimizer": ("adam", "conjugate"),
    "schedule": ("cosine", "constant"),
    "precision": ("auto", "float32", "tensorfloat32", "bfloat16"),
    "compile": ("auto", True, False),
}
_PARTS: dict[str, tuple[type[Any], ...]] = {
    "penalty": (AdaptivePenalty, ConstantPenalty),
    "sweep": (Sweep,),
    "growth": (Growth,),
}
_ABOVE_0, _AT_LEAST_0 = ("learning_rate", "clip"), ("weight_decay", "reconstruction", "holdout")
_FILE_NAMES = {"micro_batches": "parts"}  # names in files, where they differ
_FLAT: dict[str, tuple[type[Any], dict[str, str]]] = {  # objects, and the names of their fields in files
    "invariance": (
        Invariance,
        {
            "invariance": "weight",
            "perturbation": "perturbation",
            "invariance_share": "share",
            "invariance_units": "units",
        },
    ),
    "contrastive": (Contrastive, {"agreement": "weight", "temperature": "temperature"}),
}
# Settings that earlier files lack. At their defaults, files still do: a setting is part of a coder's fingerprint.
_LATER = {"invariance_units": Invariance().units}


@dataclass(frozen=True, kw_only=True)
class Training:
    """Settings of a training run, which determine its result and are saved with the coder.

    >>> Training(steps=500, learning_rate=3e-4).batch_size
    256

    Args:
        steps: batches to train on, in each stage of a growing code; `epochs` counts passes over the data instead.
        batch_size: the number of examples in a batch, over all processes.
        micro_batches: the number of parts of a batch, for gradient accumulation or several processes. Each micro-batch
            has its own random seed, so two processes with one micro-batch each train the model of one process with two.
        optimizer: "adam" (AdamW), or "conjugate": the paper's nonlinear conjugate gradients, for large batches.
        searches: the number of line searches of "conjugate" on each batch, with the same noise and lengths. Bits are
            fixed within a search and updated between searches.
        learning_rate: the learning rate of Adam, after a warm-up of 5 % of the steps.
        schedule: "cosine" decays the learning rate to 0, "constant" does not.
        weight_decay: the weight decay of AdamW.
        clip: the largest norm of the gradient for Adam; larger gradients are scaled down.
        penalty: a penalty on the weights of the code's units (section 4.2).
        invariance: the invariance penalty (section 4.4), such as Invariance(0.1).
        contrastive: the contrastive loss of two views of an item, such as Contrastive(1).
        reconstruction: the share of the decoder's gradient that reaches the encoder. 0 is a stop-gradient: the decoder
            learns to decode codes that another loss trains.
        sweep: freeze units that have converged, first to last (section 4.1).
        growth: start with a narrow code and widen it while more units lower the error (section 7).
        holdout: the share of the data held out to measure errors on, at most 4,096 items.
        seed: the seed of all randomness of a run: the order of the data, noise and lengths, and the initialization of a
            coder. The model that you pass to `train` is already initialized.
        device: "auto" uses a GPU if there is one.
        precision: the precision of matrix products; "auto" is bfloat16 on GPUs that support it, but float32 for
            "conjugate". "tensorfloat32" rounds the factors of float32 products to 10 bits of mantissa on GPUs that
            have such units, which is several times as fast.
        compile: compile the step by torch.compile; "auto" does on GPUs, for runs that are long enough.

    """

    steps: int = 2000
    epochs: float | None = None
    batch_size: int = 256
    micro_batches: int = 1
    optimizer: Optimizer = "adam"
    searches: int = 10
    learning_rate: float = 1e-3
    schedule: Schedule = "cosine"
    weight_decay: float = 0.0
    clip: float = 1.0
    penalty: AdaptivePenalty | ConstantPenalty | None = None
    invariance: Invariance = field(default_factory=Invariance)
    contrastive: Contrastive = field(default_factory=Contrastive)
    reconstruction: float = 1.0
    sweep: Sweep | None = None
    growth: Growth | None = None
    holdout: float = 0.05
    seed: int = 0
    device: str = "auto"
    precision: Precision = "auto"
    compile: bool | Literal["auto"] = "auto"

    def __post_init__(self) -> None:
        for name, least in (("steps", 1), ("batch_size", 1), ("micro_batches", 1), ("searches", 1), ("seed", 0)):
            object.__setattr__(self, name, check_int(getattr(self, name), name, least))
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise InvalidInput(
                    f"{name} must be one of {', '.join(map(repr, choices))}, got {getattr(self, name)!r}"
                )
        for name, (kind, _) in _FLAT.items():
            if not isinstance(getattr(self, name), kind):
                raise InvalidInput(f"{name} must be {kind.__name__}(…), got {getattr(self, name)!r}")
        for name, kinds in _PARTS.items():
            if not isinstance(getattr(self, name), (*kinds, type(None))):
                wanted = " or ".join(f"{kind.__name__}(…)" for kind in kinds)
                raise InvalidInput(f"{name} must be None or {wanted}, got {getattr(self, name)!r}")
        if self.sweep is not None and isinstance(self.penalty, ConstantPenalty):
            raise InvalidInput("a constant penalty moves units that a sweep froze: take AdaptivePenalty, or no sweep")
        if self.optimizer == "conjugate" and self.precision == "bfloat16":
            raise InvalidInput("line searches compare losses in float32, got precision='bfloat16': leave it \"auto\"")
        for name in (*_ABOVE_0, *_AT_LEAST_0, *(() if self.epochs is None else ("epochs",))):
            object.__setattr__(self, name, check_number(getattr(self, name), name, above_0=name not in _AT_LEAST_0))
        if self.holdout > 0.5:
            raise InvalidInput(f"holdout must be at most 0.5, got {self.holdout}")
        if self.batch_size % self.micro_batches:
            raise InvalidInput(
                f"batch_size must divide by micro_batches, got {self.batch_size} and {self.micro_batches}"
            )

    def total_steps(self, examples: int) -> int:
        """Return the number of batches, given the number of examples.

        >>> Training(epochs=3, batch_size=100).total_steps(1000)
        30
        """
        if self.epochs is None:
            return self.steps
        return max(1, round(self.epochs * batch_count(examples, self.batch_size)))

    def to_json(self) -> dict[str, Any]:
        """Return the settings as JSON values, under the names they have in files."""
        values = {_FILE_NAMES.get(name, name): value for name, value in asdict(self).items() if name not in _FLAT}
        for name, (_, own) in _FLAT.items():
            values |= {file_name: getattr(getattr(self, name), part) for file_name, part in own.items()}
        return {name: value for name, value in values.items() if name not in _LATER or value != _LATER[name]}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        """Return the settings that `to_json` described."""
        names, values = {_FILE_NAMES.get(one.name, one.name): one.name for one in fields(cls)}, dict(values)
        made: dict[str, Any] = {}
        for name, (kind, own) in _FLAT.items():
            made[name] = kind(**{part: values.pop(file_name) for file_name, part in own.items() if file_name in values})
        if set(values) - set(names):
            raise InvalidInput(f"unknown settings of training: {', '.join(sorted(set(values) - set(names)))}")
        made |= {name: _part(kinds, values[name]) for name, kinds in _PARTS.items() if values.get(name) is not None}
        return cls(**{names[name]: value for name, value in {**values, **made}.items()})

    def but(self, **changes: Any) -> Self:
        """Return the settings with some of them changed.

        >>> Training().but(steps=10).steps
        10
        """
        return replace(self, **changes)


def _part(kinds: tuple[type[Any], ...], values: dict[str, Any]) -> Any:
    """Return the object that these settings describe: its class has fields of their names."""
    named = [kind for kind in kinds if set(values) <= {field.name for field in fields(kind)}]
    return (named or kinds)[0](**values)


@dataclass(frozen=True, kw_only=True)
class Run:
    """Checkpoints, logs and progress of a training run; none of them changes the result.

    >>> Run(checkpoint="run.ckpt", resume=True, log="run.jsonl").report_every
    100

    Args:
        checkpoint: a file to resume from, written every `checkpoint_every` steps and at the end.
        checkpoint_every: steps between checkpoints.
        resume: continue from the checkpoint, if it exists.
        log: a file with one JSON object per report, for the whole run including its earlier parts.
        tensorboard: a folder for TensorBoard (extra `tensorboard`).
        progress: show a progress bar; None shows it on a terminal.
        report_every: steps between reports.

    """

    checkpoint: str | os.PathLike[str] | None = None
    checkpoint_every: int = 500
    resume: bool = False
    log: str | os.PathLike[str] | None = None
    tensorboard: str | os.PathLike[str] | None = None
    progress: bool | None = None
    report_every: int = 100

    def __post_init__(self) -> None:
        for name in ("checkpoint_every", "report_every"):
            check_int(getattr(self, name), name, least=1)
        if self.checkpoint is not None:
            check_writable(self.checkpoint)
        if not isinstance(self.resume, bool) or (self.resume and self.checkpoint is None):
            raise InvalidInput(
                f"resume must be True or False, and True needs a checkpoint, got resume={self.resume!r}, "
                f"checkpoint={self.checkpoint!r}"
            )
        if self.progress not in (None, True, False):
            raise InvalidInput(f"progress must be True, False or None, got {self.progress!r}")

    @classmethod
    def of(cls, options: "RunOptions") -> Self:
        """Return the settings that `fit` got as keywords.

        >>> Run.of({"log": "run.jsonl"}).log
        'run.jsonl'
        """
        known = [field.name for field in fields(cls)]
        unknown = sorted(set(options) - set(known))
        if unknown:
            raise InvalidInput(f"fit takes {', '.join(known)}, got {', '.join(unknown)}: pass the others in training=")
        return cls(**options)


class RunOptions(TypedDict, total=False):
    """The settings of a `Run`, as keywords of `fit`."""

    checkpoint: str | os.PathLike[str] | None
    checkpoint_every: int
    resume: bool
    log: str | os.PathLike[str] | None
    tensorboard: str | os.PathLike[str] | None
    progress: bool | None
    report_every: int
