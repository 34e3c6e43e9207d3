"""Tags that models write around reasoning and tool calls."""

from __future__ import annotations

THINK = {"<think>": "</think>", "[THINK]": "[/THINK]"}
HERMES, HERMES_END = "<tool_call>", "</tool_call>"
MISTRAL, LLAMA, XML = "[TOOL_CALLS]", "<|python_tag|>", "<function="
PYTHON, PYTHON_END = "<|tool_call_start|>", "<|tool_call_end|>"
OPENERS = (HERMES, MISTRAL, LLAMA, XML, PYTHON)
CHANNEL, START, MESSAGE = "<|channel|>", "<|start|>", "<|message|>"

# Some models have these as control tokens, whose text is otherwise not shown.
_INNER = ("[ARGS]", "[CALL_ID]", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")
MARKERS = frozenset((*THINK, *THINK.values(), *OPENERS, HERMES_END, PYTHON_END, *_INNER))
# Shown only in answers that begin with one of the first two: other models end messages with the same words.
HARMONY = frozenset((CHANNEL, START, MESSAGE, "<|end|>", "<|constrain|>"))
