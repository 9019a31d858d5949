"""List the class names that several files of chai/ define: a name should mean one thing.

python tools/twins.py     prints one line per name, with the places, and the number of names
"""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def twins(folder: Path) -> dict[str, list[str]]:
    """Return path:line of each definition by name, for classes of one name in several files; nested ones count, too."""
    places: dict[str, dict[Path, int]] = defaultdict(dict)
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].setdefault(path, node.lineno)
    return {
        name: [f"{path.relative_to(folder.parent)}:{line}" for path, line in files.items()]
        for name, files in sorted(places.items())
        if len(files) > 1
    }


def main() -> None:
    """Print the names."""
    names = twins(ROOT / "chai")
    for name, places in names.items():
        print(f"{name:24} {'  '.join(places)}")
    print(f"{len(names)} names")


if __name__ == "__main__":
    main()
