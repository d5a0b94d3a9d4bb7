"""Small open_clip models of the world with planted biases, and the means to audit them and to train models on them.

`skew` describes a planted bias, `training` plants it, `members` lists the shipped models, `table` writes an audit's
data, `connector` and `downstream` train on the models. Nothing outside `world/` knows that they are small.
"""
