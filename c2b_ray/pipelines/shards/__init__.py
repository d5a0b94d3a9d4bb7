"""How a dataset's shards are made: tasks of workers, in this process or on Ray, and the passes that assign them."""
