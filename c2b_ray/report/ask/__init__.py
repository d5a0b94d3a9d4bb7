"""The page of one question to a finished run."""
