"""Verification: what images show, how often the verifier errs, and the correction of scores for it."""
