"""Small open_clip models of the world whose bias is planted, and what is needed to audit them and to train on them.

`skew` says what is planted, `training` plants it, `members` lists the models that are shipped, `table` writes an
audit's data, `connector` and `downstream` train on the models. Nothing outside `world/` knows that they are small.
"""
