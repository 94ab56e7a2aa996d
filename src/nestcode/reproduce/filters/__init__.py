"""Figure 1, sections 4.1 and 4.3: unit sweeping trains the filters of late units.

The paper: "The 100 filters learned by a binarized 3072-100-3072 nested dropout autoencoder on the raw CIFAR-10 pixels
where p_B is a geometric distribution with rate of 0.9. For this rate, the probability of sampling any index greater
than 50 is ≈ 0.005, and the probability of sampling the 100th unit is ≈ 0.00003: it is very unlikely to ever sample
these without unit sweeping. Note the increase of filter fineness as a function of the index."

Measured: both probabilities; and with and without sweeping, the spatial frequency of filters, their distance from the
random start, and the MSE of test images by length.
"""

from nestcode.reproduce.filters.experiment import EXPERIMENT

__all__ = ["EXPERIMENT"]
