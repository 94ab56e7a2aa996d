"""The environment of a training run: devices, processes, randomness, batches, checkpoints, logs, signals."""
