"""The report of a C2B run: findings, evidence, method, exports and the model card."""
