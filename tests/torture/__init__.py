"""Faults and hostile input: each kind is one file whose `trials` yields outcomes forever; `run.py` counts them."""
