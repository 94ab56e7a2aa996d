"""Receivers on links of varying bandwidth: a truncated stream against adaptive bitrate streaming.

`traces.py` reads or generates bandwidth traces. `playback.py` plays a stream over them and measures distortion and
stalls; `nestcode simulate-bandwidth` prints the comparison.
"""

from nestcode.simulate.playback import (
    Playback,
    Quality,
    bitrate_ladder,
    evaluate,
    play_ladder,
    play_truncated,
    play_whole,
)
from nestcode.simulate.traces import bits_per_item, lognormal, markov, read_trace, uniform

__all__ = [
    "Playback",
    "Quality",
    "bitrate_ladder",
    "bits_per_item",
    "evaluate",
    "lognormal",
    "markov",
    "play_ladder",
    "play_truncated",
    "play_whole",
    "read_trace",
    "uniform",
]
