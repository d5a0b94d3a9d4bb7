"""Commands on runs and indexes: ask, compare, gate, export, build an index, run the demo."""
