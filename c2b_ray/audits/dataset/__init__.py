"""Commands on a dataset of failures: build, export, evaluate, harden, verify and show it."""
