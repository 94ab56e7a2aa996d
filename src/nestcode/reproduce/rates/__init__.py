"""Figure 5b and section 6: rate–distortion of ordered codes, truncated codes and image codecs.

The paper: "Reconstruction rates as a function of code length for four different truncation techniques: ordered
representation, Optimal Brain Damage, a standard autoencoder, and JPEG." "Note that JPEG is not suited for the 32x32
pixel images we use in this study." "When the quality is extended to its maximum, the loss is approximately 0.0003, in
the same units."

Measured: MSE by bits of an image, of networks trained with and without nested dropout (the latter truncated as it is
or in the order of Optimal Brain Damage), of our coders, and of JPEG, WebP, AVIF and JPEG 2000 with and without headers.
"""

from nestcode.reproduce.rates.experiment import EXPERIMENT

__all__ = ["EXPERIMENT"]
