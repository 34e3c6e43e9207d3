"""Writes the map into CONTRIBUTING.md from the modules' own first sentences: ``python tests/house_map.py``."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "headstart"
PAGE = ROOT / "CONTRIBUTING.md"
BEGIN, END = "<!-- map: written by tests/house_map.py -->\n", "<!-- end of map -->\n"


def house_map() -> str:
    """One section per folder, one line per module."""
    folders: dict[Path, list[Path]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        folders.setdefault(path.parent, []).append(path)
    return "\n".join(_section(folder, paths) for folder, paths in sorted(folders.items()))


def written() -> str:
    """The map that stands in CONTRIBUTING.md."""
    return PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]


def _section(folder: Path, paths: list[Path]) -> str:
    about = _first_sentence(folder / "__init__.py") if folder != SOURCE else "Beside the folders."
    modules = [path for path in paths if path.name != "__init__.py"]
    title = f"`{folder.relative_to(SOURCE.parent).as_posix()}/`"
    return f"**{title}** {about}\n\n" + "".join(f"- `{path.name}`: {_first_sentence(path)}\n" for path in modules)


def _first_sentence(path: Path) -> str:
    if not path.exists():
        return ""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    paragraph = " ".join(text.partition("\n\n")[0].split())
    return re.split(r"(?<=[.!?])\s+(?=[A-Z`])", paragraph, maxsplit=1)[0]


if __name__ == "__main__":
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(before + BEGIN + house_map() + END + rest.partition(END)[2], encoding="utf-8")
