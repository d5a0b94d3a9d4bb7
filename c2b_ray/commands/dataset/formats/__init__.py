"""The formats that datasets of failures are exported to, one file each; `kit` has what they share."""
