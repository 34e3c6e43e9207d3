"""Cores are counted as the library needs them: hyper-threads once, a container's share respected."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from headstart import machine


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two cores of two threads each, no quota."""
    for cpu, siblings in enumerate(["0,2", "1,3", "0,2", "1,3"]):
        topology = tmp_path / f"cpu{cpu}" / "topology"
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text(siblings + "\n")
    monkeypatch.setattr(machine, "_CPUS", tmp_path)
    monkeypatch.setattr(machine, "_CGROUP_QUOTA", tmp_path / "cpu.max")
    return tmp_path


def allow(monkeypatch: pytest.MonkeyPatch, cpus: set[int]) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: cpus, raising=False)


@pytest.mark.parametrize(("cpus", "cores"), [({0, 1, 2, 3}, 2), ({0, 2}, 1), ({0, 1}, 2), ({7}, 1), (set(), 1)])
def test_hyper_threads_count_once(system: Path, monkeypatch: pytest.MonkeyPatch, cpus: set[int], cores: int) -> None:
    allow(monkeypatch, cpus)
    assert machine.physical_cores() == cores


@pytest.mark.parametrize(
    ("quota", "cores"), [("max 100000", 2), ("100000 100000", 1), ("10000 100000", 1), ("800000 100000", 2), ("", 2)]
)
def test_a_containers_quota_is_respected(system: Path, monkeypatch: pytest.MonkeyPatch, quota: str, cores: int) -> None:
    allow(monkeypatch, {0, 1, 2, 3})
    (system / "cpu.max").write_text(quota)
    assert machine.physical_cores() == cores


def test_what_is_loaded_is_not_looked_through_again() -> None:
    kept: list[object] = [[]]
    machine.settle_memory()
    try:
        assert gc.get_freeze_count() > 0
        assert not any(seen is kept for seen in gc.get_objects())
    finally:
        gc.unfreeze()
