"""From a request to prompt tokens with cut points."""

from __future__ import annotations

from .inputs import ChatInput, Mark, Message, Prompt
from .template import ChatTemplate
from .tokenizer import Tokenizer

__all__ = ["ChatInput", "Mark", "Message", "Prompt", "PromptBuilder"]


class PromptBuilder:
    """Renders, tokenizes and cuts. Thread-safe; run `chat` and `text` on a thread with a big stack."""

    def __init__(
        self, template: ChatTemplate, tokenizer: Tokenizer, *, auto_prefix: bool = True, prefix_min_tokens: int = 256
    ) -> None:
        raise NotImplementedError

    def render_text(self, chat: ChatInput) -> str:
        """The prompt as text. Raises `RequestError` 400 for what the model's template cannot take."""
        raise NotImplementedError

    def chat(self, chat: ChatInput) -> Prompt:
        """The prompt of a chat request. Raises `RequestError` as `render_text` does."""
        raise NotImplementedError

    def text(self, prompt: str | list[int]) -> Prompt:
        """The prompt of a completion request: text (BOS added where the model wants one) or token ids as they are.

        Raises `RequestError` 400 on an empty prompt or ids outside the vocabulary.
        """
        raise NotImplementedError
