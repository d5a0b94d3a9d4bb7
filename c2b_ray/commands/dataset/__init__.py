"""What people do with a dataset of failures: export, evaluate, harden and show it."""
