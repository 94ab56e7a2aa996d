"""Switch oneDNN off in every Python process that has this folder on its PYTHONPATH: no variable of PyTorch does."""

import torch

torch.backends.mkldnn.set_flags(False)
