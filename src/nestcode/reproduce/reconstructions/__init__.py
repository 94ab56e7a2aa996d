"""Figure 5a and section 6: images decoded from prefixes of growing length.

The paper: "We trained a single-layer 3072-1024-3072 autoencoder with nested dropout on CIFAR-10, and produced
reconstructions for different code lengths. […] As the code length increases (downwards in the figure), the
reconstruction quality increases. The images second-to-bottom row look very similar to the original uncompressed images
in the bottom row (24576 bits each)." "By 'continuous-degradation' we mean that the message can be decoded for any
number, b, of bits received, and that the reconstruction error decreases monotonically with b."

Measured: MSE at every length, PSNR and SSIM at the lengths shown, of the paper's network, of the repaired one and of an
AdaptiveCoder.
"""

from nestcode.reproduce.reconstructions.experiment import EXPERIMENT

__all__ = ["EXPERIMENT"]
