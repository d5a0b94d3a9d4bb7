"""The export formats of datasets of failures, one file each; `kit` holds their common parts."""
