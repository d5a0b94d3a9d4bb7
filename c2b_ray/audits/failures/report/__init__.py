"""The page, terminal summary and exports of a failure search."""
