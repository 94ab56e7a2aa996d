"""What a training run needs of its machine: devices, processes, randomness, batches, checkpoints, logs, signals."""
