"""`c2b evaluate`: detected biases held against ground truth, as section 4 of Classifier-to-Bias (CVPR 2025) does."""
