"""Checks of the rendered manifests: schemas, the operator's own rules, and what this project wants of every overlay."""
