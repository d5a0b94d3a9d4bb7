"""Implementations of the roles on real libraries, one file each; `catalog` finds them by spec. They know no audit and
no Ray."""
