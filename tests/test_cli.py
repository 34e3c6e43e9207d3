"""The command line as a user meets it: a process, its exit code, what it prints."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest

from headstart.cli import main
from headstart.config import Config
from headstart.flags import fill_bare

ROOT = Path(__file__).parents[1]


def headstart(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HEADSTART_")}
    return subprocess.run(
        [sys.executable, "-m", "headstart", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env=clean | {"COLUMNS": "160", "NO_COLOR": "1"} | environ,
    )


def one_line(code: object, out: str, err: str) -> str:
    """The one line of a start that failed as it should."""
    assert code == 2, err
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1, err
    return err


Refusal = Callable[..., str]


@pytest.fixture
def refusal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Refusal:
    """Run in this process, which is quick, what fails before anything is loaded."""
    for name in [name for name in os.environ if name.startswith("HEADSTART_")]:
        monkeypatch.delenv(name)

    def run(*arguments: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        return one_line(ended.value.code, *capsys.readouterr())

    return run


@pytest.fixture
def gguf(tmp_path: Path) -> str:
    """Passes for a model until somebody loads it."""
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"GGUF" + bytes(range(64)))
    return str(path)


@pytest.mark.parametrize("word", ["version", "--version"])
def test_versions_of_the_package_and_of_the_library(word: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert headstart(word).stdout == f"headstart {project['version']}, llama-cpp-python {version('llama-cpp-python')}\n"


def test_the_version_loads_nothing_heavy() -> None:
    code = (
        "import sys, headstart.cli as c\ntry: c.main(['--version'])\nexcept SystemExit: print(HEAVY & {*sys.modules})"
    )
    code = code.replace("HEAVY", "{'llama_cpp', 'numpy', 'fastapi', 'uvicorn', 'zmq'}")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[1] == "set()", done.stderr


@pytest.mark.parametrize("help_flag", ["-h", "--help"])
def test_help_lists_the_commands(help_flag: str) -> None:
    done = headstart(help_flag)
    assert done.returncode == 0
    for command in ("serve", "demo", "bench", "doctor", "version"):
        assert command in done.stdout


def test_help_of_serve_shows_every_llama_server_spelling() -> None:
    done = headstart("serve", "--help")
    assert done.returncode == 0
    for flag in ("-np", "-hf", "-ub", "-tb", "-ngl", "-fa", "-ctk", "-ctv", "--no-slot-attach", "--no-auto-prefix"):
        assert flag in done.stdout


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--prot", "1"), "--prot"),
        (("-np", "many"), "--parallel"),
        (("-fa", "maybe"), "--flash-attn"),
        (("--ctx_size", "x"), "--ctx-size"),
        (("-m",), "-m"),
        (("-m", "/no/such.gguf"), "/no/such.gguf"),
        (("-m", "/"), "Is a directory"),
        (("surplus",), "surplus"),
        (("--config", "/no/such.toml"), "/no/such.toml"),
    ],
)
def test_a_bad_start_is_one_line_that_names_the_fault(refusal: Refusal, arguments: tuple[str, ...], named: str) -> None:
    assert named in refusal("serve", *arguments)


def test_a_bad_variable_stops_the_start(refusal: Refusal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADSTART_MAX_QUEUE", "-1")
    assert "HEADSTART_MAX_QUEUE" in refusal("serve")


@pytest.mark.parametrize(
    ("flag", "meant"),
    [
        ("--ctxsize", "--ctx-size"),
        ("--ctx", "--ctx-size"),
        ("--paralel", "--parallel"),
        ("--n-gpu-layer", "--n-gpu-layers"),
        ("--prot", "--port"),
        ("--ngl", "-ngl"),
        ("-ng", "-ngl"),
        ("--no-attach", "--no-slot-attach"),
        ("--hlep", "--help"),
    ],
)
def test_a_slip_in_a_flag_is_recognised(refusal: Refusal, flag: str, meant: str) -> None:
    assert refusal("serve", flag, "1") == f"error: no such flag: {flag}; did you mean {meant}?\n"


@pytest.mark.parametrize(
    "flag", ["--n-predict", "--no-cont-batching", "--threads-http", "--no-mmap", "--temp", "--log", "-x"]
)
def test_a_flag_that_is_near_nothing_is_just_unknown(refusal: Refusal, flag: str) -> None:
    assert refusal("serve", flag, "1") == f"error: no such flag: {flag}\n"


def test_flags_of_llama_server_that_nothing_here_needs_are_passed_over(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[Config] = []
    monkeypatch.setattr("headstart.serve.run", served.append)
    with pytest.raises(SystemExit) as ended:
        main("serve --jinja -m x.gguf --cont_batching -kvu --no-webui --slots --metrics --jinja -np 2".split())
    assert ended.value.code == 0
    assert (served[0].model, served[0].parallel) == ("x.gguf", 2)
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("not needed")]
    on = ", ".join(f"{flag} (always on)" for flag in ("--jinja", "--cont-batching", "-kvu"))
    assert said == [f"not needed: {on}, --no-webui (there is none), --slots (always on), --metrics (always on)"]


def test_a_model_without_its_flag_is_told_which(refusal: Refusal) -> None:
    assert refusal("serve", "dir/model.gguf").endswith("; a model is named by a flag: -m dir/model.gguf\n")


@pytest.mark.parametrize("name", ["bench", "demo"])
def test_a_command_that_lacks_a_package_names_what_brings_it(
    refusal: Refusal, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def missing(_module: str) -> None:
        raise ModuleNotFoundError(name="httpx")

    monkeypatch.setattr("headstart.cli.importlib.import_module", missing)
    assert refusal(name) == f"error: headstart {name} needs httpx; pip install -e '.[{name}]'\n"


def test_a_flag_of_serve_without_serve_says_where_it_belongs(refusal: Refusal) -> None:
    assert refusal("-m", "x.gguf") == "error: no such flag here: -m; it belongs to headstart serve\n"


def test_a_misspelled_variable_is_a_warning_and_no_more(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headstart.serve.run", lambda _config: None)
    monkeypatch.setenv("HEADSTART_APIKEY", "secret")
    with pytest.raises(SystemExit) as ended:
        main(["serve"])
    assert ended.value.code == 0
    warned = [line for line in capsys.readouterr().err.splitlines() if "HEADSTART_APIKEY" in line]
    assert warned == ["warning: HEADSTART_APIKEY is no setting and has no effect; did you mean HEADSTART_API_KEY?"]


def test_an_unknown_command_is_one_line(refusal: Refusal) -> None:
    assert "serv" in refusal("serv")


def test_a_file_that_is_no_model_is_one_line(refusal: Refusal, tmp_path: Path) -> None:
    pointer = tmp_path / "pointer.gguf"
    pointer.write_text("version https://git-lfs.github.com/spec/v1\n", encoding="utf-8")
    assert "is not a GGUF file" in refusal("serve", "-m", str(pointer))


def test_a_port_in_use_is_one_line(refusal: Refusal, gguf: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        line = refusal("serve", "-m", gguf, "--port", port)
    assert line.count("127.0.0.1") == 1
    assert line.count(port) == 1
    assert "--port" in line


@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid", "127.0.0.1:80", "x" * 100, "a..b"])
def test_a_host_that_is_not_ours_is_one_line_with_a_hint(refusal: Refusal, gguf: str, host: str) -> None:
    line = refusal("serve", "-m", gguf, "--host", host, "--port", "0")
    assert host in line
    assert "--host 127.0.0.1" in line


def test_a_broken_model_is_one_line(gguf: str) -> None:
    done = headstart("serve", "-m", gguf, "--port", "0")
    assert "broken.gguf" in one_line(done.returncode, done.stdout, done.stderr)


def test_a_missing_chat_template_is_one_line() -> None:
    done = headstart("serve", "--port", "0", "--chat-template-file", "/no/such.jinja")
    assert "--chat-template-file /no/such.jinja" in one_line(done.returncode, done.stdout, done.stderr)


def test_no_network_is_one_line(tmp_path: Path) -> None:
    # A port that nothing listens on stands for a missing network.
    done = headstart("serve", "-hf", "nobody/nothing", HF_ENDPOINT="http://127.0.0.1:9", HF_HOME=str(tmp_path))
    line = one_line(done.returncode, done.stdout, done.stderr)
    assert "nobody/nothing" in line
    assert "-m" in line


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (["-fa"], ["-fa", "on"]),
        (["-fa", "-np", "4"], ["-fa", "on", "-np", "4"]),
        (["-fa", "off"], ["-fa", "off"]),
        (["--flash-attn", "--port", "1"], ["--flash-attn", "on", "--port", "1"]),
        (["--port", "1"], ["--port", "1"]),
    ],
)
def test_flash_attention_may_stand_bare(given: list[str], read: list[str]) -> None:
    assert fill_bare(given) == read


def test_flags_reach_the_settings_as_llama_server_users_write_them(monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[Config] = []
    monkeypatch.setattr("headstart.serve.run", served.append)
    words = "-m x.gguf -c8192 -np 8 -ub 256 -tb=3 -ngl all -fa -ctk q8_0 --no-slot-attach --no-auto-prefix"
    more = "--prefix_min_tokens 99 --api-key a --api-key b --port=0"
    with pytest.raises(SystemExit) as ended:
        main(["serve", *words.split(), *more.split()])
    assert ended.value.code == 0
    (config,) = served
    assert (config.model, config.ctx_size, config.parallel, config.ubatch_size) == ("x.gguf", 8192, 8, 256)
    assert (config.threads_batch, config.n_gpu_layers, config.flash_attn, config.cache_type_k) == (3, -1, "on", "q8_0")
    assert (config.slot_attach, config.auto_prefix, config.prefix_min_tokens) == (False, False, 99)
    assert (config.api_key, config.port) == (("a", "b"), 0)


def test_flags_that_are_not_given_leave_variables_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[Config] = []
    monkeypatch.setattr("headstart.serve.run", served.append)
    monkeypatch.setenv("HEADSTART_API_KEY", "secret")
    monkeypatch.setenv("HEADSTART_SLOT_ATTACH", "off")
    with pytest.raises(SystemExit):
        main(["serve"])
    assert served[0].api_key == ("secret",)
    assert not served[0].slot_attach


def test_without_a_command_there_is_help() -> None:
    done = headstart()
    assert "serve" in done.stdout
    assert done.stderr == ""
