"""`c2b evaluate`: compares detected biases with ground truth, as in section 4 of Classifier-to-Bias (CVPR 2025)."""
