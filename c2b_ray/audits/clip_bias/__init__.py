"""The audit `clip_bias`: how biased CLIP models are, globally and locally, and whether their bias transfers
downstream."""
