"""What the machine offers to this process: cores; and how its memory is looked after."""

from __future__ import annotations

import gc
import os
from pathlib import Path

_CPUS = Path("/sys/devices/system/cpu")
_CGROUP_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def physical_cores() -> int:
    """Cores that this process may run on, hyper-threads counted once, a container's quota respected; at least 1."""
    allowed = _allowed()
    cores = {_siblings(cpu) for cpu in allowed}
    return max(1, min(len(cores), _quota() or len(cores)))


def settle_memory() -> None:
    """Say that what is in memory now stays. The collector would look through all modules again and again: 30 ms each
    time, between two tokens of a worker."""
    gc.collect()
    gc.freeze()


def _allowed() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return set(os.sched_getaffinity(0))
    return set(range(os.cpu_count() or 1))


def _siblings(cpu: int) -> str:
    """A name that the hyper-threads of one core share; the CPU's own number where the system does not say."""
    try:
        return (_CPUS / f"cpu{cpu}/topology/thread_siblings_list").read_text().strip()
    except OSError:
        return str(cpu)


def _quota() -> int | None:
    """Whole CPUs that the control group grants, or None without a limit."""
    try:
        limit, period = _CGROUP_QUOTA.read_text().split()
        return max(1, round(int(limit) / int(period)))
    except (OSError, ValueError):
        return None
