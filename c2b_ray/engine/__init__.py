"""Runs steps over millions of rows: stages that resume, where they run, and how much of a cluster each takes.

Steps and models come from the callers; nothing here knows what a step computes.
"""
