"""What a number needs beside it to mean anything: machine, versions, commit, date."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ..machine import physical_cores


def facts(threads: int) -> dict[str, str]:
    """Facts by name, in reading order."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": f"{_processor()}, {physical_cores()} cores, {_memory_gib():.0f} GiB",
        "threads": str(threads),
        "system": f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        "headstart": version("headstart") if _installed("headstart") else "not installed",
        "commit": commit(),
        "llama-cpp-python": version("llama-cpp-python") if _installed("llama-cpp-python") else "not installed",
    }


def commit() -> str:
    """The checkout's commit, marked when files differ from it; "unknown" outside a checkout."""
    here = Path(__file__).parent
    try:
        named = _git(here, "rev-parse", "--short=12", "HEAD")
        return named + ("+changes" if _git(here, "status", "--porcelain", "--", str(here.parent)) else "")
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=10, check=True)
    return done.stdout.strip()


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _memory_gib() -> float:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    except (AttributeError, ValueError, OSError):
        return 0.0


def _installed(package: str) -> bool:
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True
