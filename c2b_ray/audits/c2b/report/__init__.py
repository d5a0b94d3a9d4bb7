"""The page, terminal summary and exports of a C2B audit."""
