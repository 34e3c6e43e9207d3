"""The work that the bench sends: heads of tools and instructions in a wanted length, tasks, biases for clean text.

Everything comes from a seed, so a run can be repeated. Heads of different names share nothing: the name stands first.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..errors import HeadstartError
from .target import Body, Target

_NOUNS = (
    "account archive batch branch bridge budget cable camera canal cargo catalogue channel chart circuit claim "
    "cluster column contract corridor crane deposit device digest document drawer engine entry event fabric fence "
    "file filter folder forecast garden gateway harbour index invoice journal kernel label ladder ledger letter "
    "library lock log market meadow meter mirror module network notebook order orchard packet panel parcel "
    "pattern permit pipeline plan policy pump queue receipt record region report river route sample schedule "
    "sensor shelf signal sketch socket stage station stream survey switch table tank ticket timer tower track "
    "tunnel valve vessel volume warehouse window"
).split()
_VERBS = (
    "append archive assign balance cancel check close collect compare confirm convert copy count create delete "
    "describe export fetch find freeze group import inspect join label link list load lock merge move notify open "
    "order pause plan print publish queue read rename replace reserve restore resume review route save search "
    "send set show sort split start stop store submit summarize tag test trace unlock update upload validate "
    "watch write"
).split()
_RULES = (
    "Before you {verb} a {noun}, {verb2} the {noun2} that it belongs to and say what you found.",
    "Never {verb} more than one {noun} at a time unless the user asked for the whole {noun2}.",
    "When a {noun} cannot be found, {verb} the {noun2} first and report the difference.",
    "A {noun} without a {noun2} is a mistake: {verb} it and name the reason in one sentence.",
    "Keep every {noun} that the user mentioned, even if you have to {verb} the {noun2} again.",
)
TASKS = (
    "Check the pump behind the second tower.",
    "Write a note about the late cargo.",
    "Find who ordered the blue fence.",
    "Count all meters in the orchard.",
    "Explain why gate four stays shut.",
    "Plan tomorrow's tour of the canal.",
    "Sort these letters by their sender.",
    "Draw up a budget for the bridge.",
)
_CLEAN = " river stone garden window letter morning silver paper market bridge summer winter corner ladder music forest"


@dataclass(frozen=True)
class Head:
    """Tools and instructions that sessions have in common."""

    tools: list[dict[str, Any]]
    system: str
    tokens: int = 0

    def body(self, *turns: str | Body, **more: Any) -> Body:
        """A chat request: a text is a user's message, a mapping any other message."""
        messages = [{"role": "user", "content": t} if isinstance(t, str) else t for t in turns]
        body: Body = {"messages": [{"role": "system", "content": self.system}, *messages], **more}
        return {**body, "tools": self.tools} if self.tools else body


async def make_head(target: Target, name: str, n_tokens: int, *, tools: bool = True) -> Head:
    """A head of about ``n_tokens`` tokens as ``target`` tokenizes it; without ``tools`` all of it is system text."""
    chance = random.Random(name)
    head = Head([_tool(chance, name)] if tools else [], _opening(name))
    per_tool = len(await target.tokenize(json.dumps(_tool(random.Random(name), name)))) if tools else 0
    if tools:
        for _ in range(int(0.85 * n_tokens / per_tool) - 1):
            head.tools.append(_tool(chance))
    rules: list[str] = []
    for _ in range(12):
        missing = n_tokens - await _length(target, head)
        if abs(missing) <= max(8, n_tokens // 200):
            break
        step = max(1, abs(missing) // 24)
        if missing > 0:
            rules += [_rule(chance) for _ in range(step)]
        elif rules:
            del rules[-step:]
        elif len(head.tools) > 1:
            head.tools.pop()
        head = replace(head, system=_opening(name) + "\n".join(rules))
    length = await _length(target, head)
    if abs(n_tokens - length) > max(64, n_tokens // 50):
        raise HeadstartError(f"a head of {n_tokens} tokens came out with {length}")
    return replace(head, tokens=length)


async def _length(target: Target, head: Head) -> int:
    """Tokens before the first user message's own: what two different ones have in common."""
    one, two = [await target.tokens(head.body(text)) for text in ("Apples", "12")]
    return common(one, two)


def common(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the common beginning."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


async def clean_bias(target: Target) -> dict[str, float]:
    """A ``logit_bias`` under which even a model of random weights writes plain words, one token each.

    Without it a first token may be half a character, which no server can send.
    """
    ids = {(await target.tokenize(" " + word))[0] for word in _CLEAN.split()}
    return {str(token): 100.0 for token in sorted(ids)}


def task(number: int, words: int = 0) -> str:
    """A short request of a user, another for each number; ``words`` more make it longer."""
    text = TASKS[number % len(TASKS)]
    if number >= len(TASKS):
        text = f"{text[:-1]} ({number // len(TASKS)})."
    chance = random.Random(number)
    return text + "".join(f" {chance.choice(_NOUNS)}" for _ in range(words))


def _opening(name: str) -> str:
    return f"You are the assistant of the {name} team. You have tools; use them with care and answer briefly.\n"


def _rule(chance: random.Random) -> str:
    return chance.choice(_RULES).format(
        verb=chance.choice(_VERBS), verb2=chance.choice(_VERBS), noun=chance.choice(_NOUNS), noun2=chance.choice(_NOUNS)
    )


def _tool(chance: random.Random, name: str = "") -> dict[str, Any]:
    verb, noun = chance.choice(_VERBS), chance.choice(_NOUNS)
    properties = {
        f"{chance.choice(_NOUNS)}_{kind}": {"type": json_type, "description": _rule(chance)}
        for kind, json_type in (("id", "string"), ("count", "integer"), ("path", "string"), ("force", "boolean"))
    }
    return {
        "type": "function",
        "function": {
            "name": f"{name}{'_' if name else ''}{verb}_{noun}_{chance.randrange(100, 1000)}",
            "description": f"{verb.capitalize()} a {noun}. {_rule(chance)} {_rule(chance)}",
            "parameters": {"type": "object", "properties": properties, "required": [next(iter(properties))]},
        },
    }
