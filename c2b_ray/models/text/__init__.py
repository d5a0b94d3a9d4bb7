"""Prompts, tokens and replies: what models of text share."""
