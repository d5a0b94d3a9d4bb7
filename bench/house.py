"""Prints what the code is like as a house: files, lines, imports, and how short functions are.

    python bench/house.py [ROOT]

Counted are the modules of `c2b_ray/` without `world/training`. A function's lines are those of its signature, docstring
and body; nested functions count.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

SHORT, THIN = 4, 60


def main(root: Path) -> None:
    modules = [path for path in sorted((root / "c2b_ray").rglob("*.py")) if "training" not in path.parts]
    sizes, imports, functions = [], 0, []
    for path in modules:
        text = path.read_text()
        sizes.append(len(text.splitlines()))
        for node in ast.walk(ast.parse(text)):
            lines = getattr(node, "end_lineno", 0) - getattr(node, "lineno", 0) + 1
            if isinstance(node, ast.Import | ast.ImportFrom):
                imports += lines
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                functions.append(lines)
    short = sum(lines <= SHORT for lines in functions)
    print(f"{len(modules)} files, {sum(size < THIN for size in sizes)} of them under {THIN} lines")
    print(f"{sum(sizes):,} lines, {imports / sum(sizes):.1%} imports")
    print(f"{len(functions):,} functions of {sum(functions) / len(functions):.1f} lines on average,", end=" ")
    print(f"{short / len(functions):.1%} of {SHORT} lines or fewer")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1]))
