"""The paper's figures and claims as running code: one file each, run as `python -m nestcode.reproduce.NAME`.

`pca.py` (with its page in `pca_page.py`) is section 3 and appendix A: nested dropout recovers PCA exactly.
"""
