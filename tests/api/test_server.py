"""The endpoints around generation, keys, and the golden list of routes."""

from headstart.api.app import ROUTES

from .doubles import ScriptedWorker, chat, http, run, services

GOLDEN = """
GET /
GET /health
GET /metrics
GET /models
GET /props
GET /slots
GET /v1/health
GET /v1/models
GET /v1/models/{id:path}
GET /v1/props
POST /apply-template
POST /chat/completions
POST /completions
POST /detokenize
POST /tokenize
POST /v1/chat/completions
POST /v1/completions
"""


def test_golden_routes():
    assert sorted(f"{method} {path}" for method, path, _ in ROUTES) == GOLDEN.split("\n")[1:-1]


@run
async def test_unknown_paths_and_methods_are_json_errors():
    async with http(services()) as client:
        for path in ("/api/v1/models", "/api/tags", "/version", "/docs", "/openapi.json", "/v1", "/v1/models/"):
            answer = await client.get(path)
            assert answer.status_code == 404, path
            assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
        assert (await client.post("/api/show", json={})).status_code == 404
        wrong = await client.get("/v1/chat/completions")
        assert wrong.status_code == 405 and wrong.json()["error"]["message"] and wrong.headers["allow"] == "POST"
        assert [(await client.head(path)).status_code for path in ("/", "/health", "/x")] == [200, 200, 404]
        assert (await client.get("/")).json()["server"] == "headstart"
        assert (await client.post("/v1/chat/completions?beta=true", json=chat())).status_code == 200


@run
async def test_models_tell_the_true_context():
    async with http(services()) as client:
        (card,) = (await client.get("/v1/models")).json()["data"]
        assert (await client.get("/v1/models/tiny")).json() == card
        assert (await client.get("/v1/models/other")).status_code == 404
    assert card["id"] == "tiny" and card["object"] == "model" and card["owned_by"] == "headstart"
    assert card["max_model_len"] == card["context_length"] == card["meta"]["n_ctx"] == 1000
    async with http(services(config={"alias": None})) as client:
        assert (await client.get("/v1/models")).json()["data"][0]["id"] == "tiny.gguf"


@run
async def test_while_there_is_no_model():
    worker = ScriptedWorker()
    made = services(worker)
    async with http(made) as client:
        assert (await client.get("/health")).json() == {"status": "ok"}
        for state in ("loading", "down"):
            worker.state = state
            sick = await client.get("/health")
            assert sick.status_code == 503
            assert sick.json()["error"]["code"] == 503 and sick.json()["error"]["type"] == "unavailable_error"
            for answer in (await client.get("/v1/models"), await client.post("/v1/chat/completions", json=chat())):
                assert answer.status_code == 503 and answer.headers["retry-after"] == "1"
        worker.state = "loading"
        assert (await client.get("/health")).json()["error"]["message"] == "Loading model"
    assert worker.submitted == []


@run
async def test_keys():
    worker = ScriptedWorker()
    async with http(services(worker, config={"api_key": ("one", "zwei ü")})) as client:
        for headers in ({}, {"authorization": "Bearer no"}, {"x-api-key": "on"}, {"authorization": "Basic one"}):
            answer = await client.post("/v1/chat/completions", json=chat(), headers=headers)
            assert answer.status_code == 401 and answer.json()["error"]["type"] == "authentication_error"
        for path in ("/props", "/slots", "/metrics", "/nowhere"):
            assert (await client.get(path)).status_code == 401
        for path in ("/health", "/v1/health", "/v1/models", "/models", "/"):
            assert (await client.get(path)).status_code == 200
        assert (await client.head("/")).status_code == 200
        for headers in ({"authorization": "Bearer one"}, {"x-api-key": "one"}, {"authorization": "bearer one"}):
            assert (await client.post("/v1/chat/completions", json=chat(), headers=headers)).status_code == 200
    assert len(worker.submitted) == 3


@run
async def test_llama_server_endpoints():
    made = services()
    async with http(made) as client:
        props = (await client.get("/props")).json()
        assert props == (await client.get("/v1/props")).json()
        (slot,) = (await client.get("/slots")).json()
        metrics = await client.get("/metrics")
        tokens = (await client.post("/tokenize", json={"content": "hé", "add_special": True})).json()
        pieces = (await client.post("/tokenize", json={"content": ["é", 97], "with_pieces": True})).json()
        text = (await client.post("/detokenize", json={"tokens": [104, 0xC3, 0xA9]})).json()
        prompt = (await client.post("/apply-template", json=chat())).json()
    assert props["default_generation_settings"]["n_ctx"] == 1000 and props["total_slots"] == 4
    assert props["default_generation_settings"]["params"]["temperature"] == 0.8
    assert props["model_path"] == "/models/tiny.gguf" and props["chat_template"] == "{{ messages }}"
    assert slot["is_processing"] is True and slot["n_prompt_tokens_cache"] == 3 and slot["state"] == "decode"
    assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4") and b"llamacpp:" in metrics.content
    assert tokens == {"tokens": [256, 104, 0xC3, 0xA9]}
    assert pieces["tokens"] == [{"id": 0xC3, "piece": [0xC3]}, {"id": 0xA9, "piece": [0xA9]}, {"id": 97, "piece": "a"}]
    assert text == {"content": "hé"} and prompt == {"prompt": "user:Say hello to the world.\n"}
