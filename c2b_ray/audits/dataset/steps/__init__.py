"""The steps of a dataset of failures: its plan, its draws shard by shard, and what is left out of them."""
