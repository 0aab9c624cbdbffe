"""Runs the cells of a notebook one after another, as a kernel does: python tests/notebook_cells.py FILE [goes on]

Cells are code of `__main__`, whose text Python knows, and there is no main guard. A cell that ends with an expression shows it: as HTML
where it has some. Prints `cell NUMBER`, and then what the cell shows. With `goes on`, an interrupt ends only its cell.
"""

import ast
import json
import linecache
import sys
from pathlib import Path
from typing import Any


def main(file: str, goes_on: bool) -> None:
    names = vars(sys.modules["__main__"])
    for number, text in enumerate(code_cells(Path(file))):
        print(f"cell {number}", flush=True)
        try:
            display = run_cell(text, f"/tmp/ipykernel_1/{number}.py", names)
        except KeyboardInterrupt:
            if not goes_on:
                raise
            display = KeyboardInterrupt()
        if display is not None:
            print(display._repr_html_() if hasattr(display, "_repr_html_") else repr(display), flush=True)


def code_cells(file: Path) -> list[str]:
    """The texts of the cells with code."""
    return ["".join(cell["source"]) for cell in json.loads(file.read_text())["cells"] if cell["cell_type"] == "code"]


def run_cell(text: str, name: str, names: dict[str, Any]) -> Any:
    """Run a cell, and return the value of its last expression, if it ends with one."""
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    tree = ast.parse(text, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), names)
    return eval(compile(ast.Expression(last.value), name, "eval"), names) if isinstance(last, ast.Expr) else None


if __name__ == "__main__":
    main(sys.argv[1], goes_on=len(sys.argv) > 2)
