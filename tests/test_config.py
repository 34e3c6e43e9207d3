"""Settings: where they come from, which place wins, what a bad one says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from headstart.config import Config, fields
from headstart.errors import StartupError
from headstart.machine import physical_cores
from headstart.settings import load_config, nearest, unknown_variables

# The command line is public: a change of this list is a change for users.
FLAGS = {
    "config": ("--config", None),
    "host": ("--host", None),
    "port": ("--port", None),
    "api_key": ("--api-key", None),
    "strict_model": ("--strict-model", "--no-strict-model"),
    "max_body": ("--max-body", None),
    "shutdown_grace": ("--shutdown-grace", None),
    "log_format": ("--log-format", None),
    "log_level": ("--log-level", None),
    "model": ("-m --model", None),
    "hf_repo": ("-hf -hfr --hf-repo", None),
    "alias": ("-a --alias", None),
    "chat_template_file": ("--chat-template-file", None),
    "ctx_size": ("-c --ctx-size", None),
    "parallel": ("-np --parallel", None),
    "batch_size": ("-b --batch-size", None),
    "ubatch_size": ("-ub --ubatch-size", None),
    "threads": ("-t --threads", None),
    "threads_batch": ("-tb --threads-batch", None),
    "n_gpu_layers": ("-ngl --gpu-layers --n-gpu-layers", None),
    "flash_attn": ("-fa --flash-attn", None),
    "cache_type_k": ("-ctk --cache-type-k", None),
    "cache_type_v": ("-ctv --cache-type-v", None),
    "swa_full": ("--swa-full", "--no-swa-full"),
    "slot_attach": ("--slot-attach", "--no-slot-attach"),
    "auto_prefix": ("--auto-prefix", "--no-auto-prefix"),
    "prefix_min_tokens": ("--prefix-min-tokens", None),
    "step_ms": ("--step-ms", None),
    "max_queue": ("--max-queue", None),
    "state_slots": ("--state-slots", None),
    "cache_states": ("--cache-states", None),
}


def write(tmp_path: Path, text: str) -> str:
    path = tmp_path / "headstart.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def message(flags: dict[str, object], environ: dict[str, str] | None = None) -> str:
    with pytest.raises(StartupError) as caught:
        load_config(flags, environ or {})
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_golden_flags() -> None:
    assert {name: (" ".join(flag.names), flag.off) for name, _, flag in fields()} == FLAGS


def test_every_setting_is_documented_and_its_spellings_are_its_own() -> None:
    spellings = [name for _, _, flag in fields() for name in (*flag.names, *([flag.off] if flag.off else []))]
    assert len(spellings) == len(set(spellings))
    assert all(info.description for _, info, _ in fields())


def test_defaults_are_llama_servers() -> None:
    config = load_config({}, {})
    assert (config.host, config.port, config.parallel, config.batch_size, config.ubatch_size) == (
        "127.0.0.1",
        8080,
        4,
        2048,
        512,
    )
    assert config.ctx_size is None
    assert config.threads == config.threads_batch == physical_cores()
    assert config.slot_attach and config.auto_prefix


def test_flags_beat_variables_beat_file_beats_defaults(tmp_path: Path) -> None:
    file = write(tmp_path, 'port = 1\nparallel = 2\nmax-queue = 3\nalias = "file"\n')
    environ = {"HEADSTART_PORT": "10", "HEADSTART_PARALLEL": "20"}
    config = load_config({"config": file, "port": "100", "alias": None}, environ)
    assert (config.port, config.parallel, config.max_queue, config.alias) == (100, 20, 3, "file")
    assert config.batch_size == 2048


def test_the_file_can_be_named_by_a_variable(tmp_path: Path) -> None:
    assert load_config({}, {"HEADSTART_CONFIG": write(tmp_path, "port = 7")}).port == 7


def test_both_spellings_in_a_file(tmp_path: Path) -> None:
    config = load_config({"config": write(tmp_path, "ctx_size = 4096\nno-slot-attach = true\nauto-prefix = false")}, {})
    assert (config.ctx_size, config.slot_attach, config.auto_prefix) == (4096, False, False)


@pytest.mark.parametrize(
    ("environ", "attach"),
    [
        ({"HEADSTART_SLOT_ATTACH": "0"}, False),
        ({"HEADSTART_NO_SLOT_ATTACH": "1"}, False),
        ({"HEADSTART_NO_SLOT_ATTACH": "off"}, True),
        ({"HEADSTART_SLOT_ATTACH": ""}, True),
    ],
)
def test_a_switch_can_be_set_either_way_round(environ: dict[str, str], attach: bool) -> None:
    assert load_config({}, environ).slot_attach is attach


def test_a_model_named_in_a_stronger_place_replaces_the_other_kind() -> None:
    config = load_config({"hf_repo": "a/b"}, {"HEADSTART_MODEL": "x.gguf"})
    assert (config.model, config.hf_repo) == (None, "a/b")
    assert "--model and --hf-repo" in message({"hf_repo": "a/b", "model": "x.gguf"})


@pytest.mark.parametrize(
    ("flags", "key"),
    [
        ({"port": "x"}, "--port"),
        ({"port": "65536"}, "--port"),
        ({"parallel": "0"}, "--parallel"),
        ({"parallel": "1000000000000"}, "--parallel"),
        ({"ctx_size": "-5"}, "--ctx-size"),
        ({"step_ms": "nan"}, "--step-ms"),
        ({"step_ms": "inf"}, "--step-ms"),
        ({"threads": "-7"}, "--threads"),
        ({"flash_attn": "maybe"}, "--flash-attn"),
        ({"cache_type_k": "q9"}, "--cache-type-k"),
        ({"log_format": "xml"}, "--log-format"),
        ({"hf_repo": "nonsense"}, "--hf-repo"),
        ({"api_key": [""]}, "--api-key"),
        ({"ctx_size": "255"}, "--ctx-size"),
        ({"cache_type_v": "q8_0", "flash_attn": "off"}, "--cache-type-v"),
    ],
)
def test_a_bad_flag_is_named(flags: dict[str, object], key: str) -> None:
    assert message(flags).startswith(key)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (
            {"ctx_size": "abc"},
            "--ctx-size: expected a whole number from 256 to 2147483647, got 'abc'; all sessions share",
        ),
        ({"ctx_size": "10"}, "got '10'; all sessions share these cells: 1024 hold a short chat, agents want 16384"),
        ({"parallel": "0"}, "--parallel: expected a whole number from 1 to 128, got '0'"),
        ({"port": "99999"}, "--port: expected a whole number from 0 to 65535, got '99999'"),
        ({"host": ""}, "--host: expected a host name or an IP address, got ''"),
        ({"alias": ""}, "--alias: expected a name, got ''"),
        ({"model": ""}, "--model: expected the path of a file, got ''"),
        ({"model": "~nobody-of-that-name/x"}, "--model: expected the path of a file, got '~nobody"),
        ({"config": ""}, "--config: expected the path of a file, got ''"),
        ({"step_ms": "nan"}, "--step-ms: expected a number of milliseconds from 1 to 60000, got 'nan'"),
        ({"cache_states": "-1"}, "--cache-states: expected a whole number of MiB from 0 to 16777216, got '-1'"),
        ({"threads": "x"}, "--threads: expected a whole number from 1 to 1024, got 'x'; 0 chooses"),
        ({"flash_attn": "MAYBE"}, "--flash-attn: expected one of on, off, auto, got 'MAYBE'"),
        ({"cache_type_k": "q9"}, "--cache-type-k: expected one of f32, f16, bf16, q8_0"),
        ({"hf_repo": "x"}, "--hf-repo: expected user/repository or user/repository:quantization, got 'x'"),
        ({"api_key": [""]}, "--api-key: a key must not be empty"),
    ],
)
def test_what_is_wrong_and_what_is_expected(flags: dict[str, object], says: str) -> None:
    assert says in message(flags)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("port = true", "port in FILE: expected a whole number from 0 to 65535, got true"),
        ("ctx-size = false", "ctx-size in FILE: expected a whole number"),
        ("port = 80.5", "from 0 to 65535, got 80.5"),
        ("[parallel]", "parallel in FILE: expected a whole number from 1 to 128, got a table"),
        ("port = [1]", "got a list"),
        (f"port = 0x1{'0' * 5000}", "got a far larger number"),
        (f"port = {'1' * 5000}", "not valid TOML"),
        (f"port = {'[' * 5000}", "not valid TOML"),
        ("host = 5", "host in FILE: expected a host name or an IP address, got 5"),
        ('model = "a\\u0000b"', "model in FILE: expected the path of a file"),
        ("hf-repo = 5", "hf-repo in FILE: expected user/repository"),
        ('strict-model = "perhaps"', "strict-model in FILE: expected true or false, got 'perhaps'"),
        ("no-slot-attach = []", "no-slot-attach in FILE: expected true or false, got a list"),
        ("shutdown-grace = nan", "shutdown-grace in FILE: expected a number of seconds from 0 to 3600, got nan"),
        ("api-key = 5", "api-key in FILE: expected a string or a list of strings"),
        ("[server]", "unknown key 'server'; settings stand at the top level, not in tables"),
    ],
)
def test_a_bad_value_in_the_file(tmp_path: Path, text: str, says: str) -> None:
    path = write(tmp_path, text)
    assert says in message({"config": path}).replace(path, "FILE")


def test_no_setting_answers_in_the_validators_words() -> None:
    for name, info, flag in fields():
        bad = "\0" if flag.off is None else "perhaps"
        if name not in ("config", "api_key"):
            assert message({name: bad}).startswith(f"{flag.names[-1]}: expected "), info


def test_misspelled_variables_are_told_from_those_of_container_platforms() -> None:
    ours = {"HEADSTART_PORT": "1", "HEADSTART_NO_AUTO_PREFIX": "1", "HEADSTART_CONFIG": "x", "PATH": "x"}
    platforms = {
        "HEADSTART_SERVICE_HOST": "10.0.0.1",
        "HEADSTART_SERVICE_PORT_HTTP": "80",
        "HEADSTART_PORT_8080_TCP_ADDR": "10.0.0.1",
        "HEADSTART_WEB_PORT": "tcp://10.0.0.1:80",
    }
    assert unknown_variables(ours | platforms) == []
    slips = {"HEADSTART_CTXSIZE": "1", "HEADSTART_CTX-SIZE": "1", "HEADSTART_SPEED": "1"}
    dashed, slip, strange = unknown_variables(slips | ours)
    assert dashed == "HEADSTART_CTX-SIZE is no setting and has no effect; did you mean HEADSTART_CTX_SIZE?"
    assert slip.startswith("HEADSTART_CTXSIZE") and slip.endswith("did you mean HEADSTART_CTX_SIZE?")
    assert strange == "HEADSTART_SPEED is no setting and has no effect; headstart serve --help lists all settings"


def test_near_is_near() -> None:
    known = ["--port", "--threads", "--ctx-size", "--log-level", "--log-format", "--slot-attach", "--no-slot-attach"]
    assert nearest("--PROT", known) == "--port"
    assert nearest("--ctx", known) == "--ctx-size"
    assert nearest("--no-attach", known) == "--no-slot-attach"
    assert [nearest(word, known) for word in ("--log", "--threads-http", "--n", "", "--no-port")] == [None] * 5


def test_a_bad_variable_is_named_as_it_was_spelled() -> None:
    # What a container platform sets for a service named "headstart".
    assert message({}, {"HEADSTART_PORT": "tcp://10.0.0.1:8080"}).startswith("HEADSTART_PORT:")
    assert message({}, {"HEADSTART_NO_AUTO_PREFIX": "perhaps"}).startswith("HEADSTART_NO_AUTO_PREFIX:")
    assert load_config({}, {"HEADSTART_SERVICE_HOST": "10.0.0.1"}).host == "127.0.0.1"


def test_a_bad_key_of_the_file_is_named_with_the_file(tmp_path: Path) -> None:
    assert "batch-size in" in message({"config": write(tmp_path, 'batch-size = "many"')})
    assert "unknown key 'ctx-sise'; did you mean 'ctx-size'?" in message({"config": write(tmp_path, "ctx-sise = 1")})
    assert "unknown key 'config'" in message({"config": write(tmp_path, 'config = "x"')})
    assert "unknown key 'server'" in message({"config": write(tmp_path, "[server]\nport = 1")})
    assert "not valid TOML" in message({"config": write(tmp_path, "port = = 1")})
    assert "No such file" in message({"config": str(tmp_path / "absent.toml")})


def test_two_spellings_of_one_setting_are_a_mistake(tmp_path: Path) -> None:
    said = message({"config": write(tmp_path, "ctx_size = 4096\nctx-size = 2048")})
    assert "'ctx_size' and 'ctx-size' are the same setting" in said
    assert "are the same setting" in message({"config": write(tmp_path, "slot-attach = true\nno-slot-attach = true")})


def test_every_long_flag_is_a_key(tmp_path: Path) -> None:
    assert load_config({"config": write(tmp_path, "gpu-layers = 3")}, {}).n_gpu_layers == 3
    assert load_config({}, {"HEADSTART_GPU_LAYERS": "3"}).n_gpu_layers == 3


def test_keys_are_never_shown(tmp_path: Path) -> None:
    assert "s3cret" not in repr(Config(api_key=("s3cret",)))
    assert "s3cret" not in message({"config": write(tmp_path, 'api-key = ["s3cret", 5]')})


@pytest.mark.parametrize(
    ("value", "keys"), [("a", ("a",)), ("a, b", ("a", "b")), (["a,b", "c"], ("a,b", "c")), ([], ())]
)
def test_keys_come_as_one_string_or_a_list(value: object, keys: tuple[str, ...]) -> None:
    assert load_config({"api_key": value}, {}).api_key == keys


@pytest.mark.parametrize(
    ("spelling", "value"),
    [("1", "on"), ("0", "off"), ("ON", "on"), ("auto", "auto"), (True, "on"), (False, "off"), ("-1", "auto")],
)
def test_flash_attention_spellings(spelling: object, value: str) -> None:
    assert load_config({"flash_attn": spelling}, {}).flash_attn == value


@pytest.mark.parametrize("auto", ["0", "-1", "auto", 0, -1])
def test_llama_servers_ways_to_say_choose_for_me(auto: object) -> None:
    config = load_config({"ctx_size": auto, "threads": auto, "threads_batch": auto}, {})
    assert config.ctx_size is None
    assert config.threads == config.threads_batch == physical_cores()


def test_the_smaller_of_both_batch_sizes_counts() -> None:
    config = load_config({"batch_size": "200"}, {})
    assert (config.batch_size, config.ubatch_size) == (200, 512)
    assert "--parallel 100 needs a --batch-size above it" in message({"batch_size": "64", "parallel": "100"})


def test_batch_threads_follow_threads() -> None:
    assert load_config({"threads": "3"}, {}).threads_batch == 3
    assert load_config({"threads": "3", "threads_batch": "5"}, {}).threads_batch == 5


def test_travels_as_json_and_does_not_read_the_environment_again(monkeypatch: pytest.MonkeyPatch) -> None:
    config = load_config({"model": "x.gguf", "threads": "3", "api_key": ["k"], "config": None}, {})
    monkeypatch.setenv("HEADSTART_PORT", "1")
    assert Config.model_validate_json(config.model_dump_json()) == config
    assert json.loads(config.model_dump_json())["port"] == 8080


def test_frozen() -> None:
    with pytest.raises(ValidationError):
        Config().port = 1  # type: ignore[misc]


def test_cores_are_at_least_one_and_no_more_than_allowed() -> None:
    assert physical_cores() >= 1


def test_an_empty_key_in_the_environment_opens_nothing() -> None:
    with pytest.raises(StartupError, match="HEADSTART_API_KEY"):
        load_config({}, {"HEADSTART_API_KEY": ""})
