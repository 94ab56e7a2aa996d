"""Growth: a code is widened as long as that pays (the infinite latent dimensions of section 7 of the paper).

Not here: adding blocks without changing old ones (`nestcode.nn.layers`), the stages of training (`loop.py`).
"""

from dataclasses import dataclass

from nestcode.arrays import check_int, is_number, shown
from nestcode.errors import InvalidInput


@dataclass(frozen=True)
class Growth:
    """Start with a narrow code and add units while the last ones lower the error enough.

    >>> growth = Growth(least=0.01)
    >>> growth.pays(1.0, 0.5, 0.4, units=4), growth.pays(1.0, 0.4, 0.38, units=4)   # 0.025 a unit, 0.005 a unit
    (True, False)

    Args:
        start: the first width of a coder's network; `train` starts from the width of the model it is given.
        step: units added in each stage.
        most: the largest width.
        least: the marginal gain Δ_b of a unit that another stage requires: by how much each of the last `step` units
            lowers the error on average, as a share of the error at length 0.

    """

    start: int = 64
    step: int = 64
    most: int = 1024
    least: float = 1e-4

    def __post_init__(self) -> None:
        for name in ("start", "step", "most"):
            object.__setattr__(self, name, check_int(getattr(self, name), name, least=1))
        if not is_number(self.least) or self.least < 0:
            raise InvalidInput(f"least must be a share of the error, at least 0, got {shown(self.least)}")

    def pays(self, whole: float, before: float, now: float, units: int) -> bool:
        """Return whether the last `units` gained enough, given the errors at length 0, without and with them."""
        for name, error in (("whole", whole), ("before", before), ("now", now)):
            if not isinstance(error, float) and not is_number(error):  # an error that diverged is NaN
                raise InvalidInput(f"{name} must be the error of a network, a number, got {shown(error)}")
        units = check_int(units, "units", least=1)
        return bool(before - now > self.least * units * whole)
