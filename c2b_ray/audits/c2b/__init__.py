"""Classifier-to-Bias (CVPR 2025): which attributes of an image make a classifier better or worse at a class?"""
