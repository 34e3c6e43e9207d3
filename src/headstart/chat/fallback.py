"""What stands in where a model's template is missing or knows no tools."""

from __future__ import annotations

import json
from typing import Any

# ChatML, the shape that most small open models were trained on.
CHATML = (
    "{%- for message in messages -%}"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"
)

_BEFORE = (
    "You can call functions to help with the task. These are the ones you have, one JSON object a line:\n<tools>\n"
)
_AFTER = (
    "\n</tools>\nTo call a function, write one block like this for each call, with its arguments as a JSON object:\n"
    '<tool_call>\n{"name": "function name", "arguments": {"argument": "value"}}\n</tool_call>\n'
    "Results come back to you inside <tool_response> tags."
)


def dumps(value: Any) -> str:
    """JSON for prompts: keys in their order, text as it is."""
    return json.dumps(value, ensure_ascii=False)


def tools_text(tools: list[dict[str, Any]]) -> str:
    """The tools as a block for a system message. It comes before the user's own text, so that the text that changes
    from day to day leaves it shared."""
    return _BEFORE + "\n".join(dumps(tool) for tool in tools) + _AFTER


def call_text(name: str, arguments: str) -> str:
    """A past call as the model would have written it; ``arguments`` is JSON text, kept as it is."""
    return f'<tool_call>\n{{"name": {dumps(name)}, "arguments": {arguments}}}\n</tool_call>'


def response_text(content: str) -> str:
    """A tool's result for a template without a tool role."""
    return f"<tool_response>\n{content}\n</tool_response>"
