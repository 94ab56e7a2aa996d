"""Autotuning: which index suits the data, chosen by trials on samples of it (`Index.build`).

    candidates.py   what may be tried: structure, coder, width, how vectors are stored; and what a bound rules out
    trials.py       builds candidates on samples, and tunes them to the target recall with held-out queries
    choice.py       pure functions: from trials to forecasts of the full size, and from these to the choice
    build.py        runs the trials, builds the choice on all rows, and verifies it

Costs are counted work by the planner's table of costs, never seconds: the same data and seed give the same choice on
any machine.
"""

from nestcode.index.autotune.choice import Choice

__all__ = ["Choice"]
