"""Folders that other tools read: images of a run with their predictions and findings, in the form of each tool."""
