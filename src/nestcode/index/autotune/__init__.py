"""Autotuning: which index suits the data, chosen by trials on samples of it (`Index.build`).

    candidates.py     the candidates that fit a bound: structure, coder, width, type of stored vectors
    trials.py         builds candidates on samples, and tunes them to the target recall with held-out queries
    choice.py         pure functions: from trials to forecasts of the full size, and from these to the choice
    build.py          runs rounds of trials, builds the choice of all rows, and tunes it
    interruption.py   Ctrl-C during trials

Costs are counted work by the planner's table of costs, never seconds: the same data and seed give the same choice on
any machine.
"""

from nestcode.index.autotune.choice import Choice

__all__ = ["Choice"]
