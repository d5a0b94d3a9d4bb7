"""Makes a dataset's shards: tasks of workers, in this process or on Ray, and the passes that assign them."""
