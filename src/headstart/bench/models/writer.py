"""Collect hyperparameters, vocabulary and random tensors, then write one GGUF file."""

from __future__ import annotations

from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, quants

from .layers import write_layer
from .shape import DELTA_NET, MIXTURE, WINDOW, Shape, attends

COPIED = ("pre", "tokens", "token_type", "merges", "bos_token_id", "eos_token_id", "padding_token_id")


class ModelWriter:
    """Writes one model; `layers` fills it through `tensor` and `raw`."""

    def __init__(
        self,
        arch: str,
        out: Path,
        tokenizer: dict[str, Any],
        shape: Shape,
        *,
        seed: int,
        quant: str,
        template: str | None,
    ) -> None:
        self.arch, self.shape, self._quant = arch, shape, quant
        self.rng = np.random.default_rng(seed)
        self._gguf: Any = GGUFWriter(str(out), arch)
        self._tok = tokenizer
        self._template = template if template is not None else own_template()

    def tensor(self, name: str, *shape: int, fill: str = "random", scale: float | None = None) -> None:
        """``shape`` is in ggml order (fastest first). ``fill``: random (quantized), f32, one, zero."""
        dims = tuple(reversed(shape))
        if fill in ("one", "zero"):
            self.raw(name, np.full(dims, float(fill == "one")))
            return
        data = self.rng.standard_normal(dims, dtype=np.float32) * np.float32(scale or 1.0 / np.sqrt(shape[0]))
        if fill == "f32":
            self._gguf.add_tensor(name, data)
        elif self._quant == "q8_0" and shape[0] % 32 == 0:
            kind = GGMLQuantizationType.Q8_0
            self._gguf.add_tensor(name, quants.quantize(data, kind), raw_dtype=kind)
        else:
            self._gguf.add_tensor(name, data.astype(np.float16))

    def raw(self, name: str, data: np.ndarray[Any, Any]) -> None:
        """Add float32 values as they are."""
        self._gguf.add_tensor(name, np.ascontiguousarray(data, np.float32))

    def write(self) -> None:
        """Write the file."""
        self._hyperparameters()
        self._attention_parameters()
        self._recurrent_parameters()
        self._vocabulary()
        embd, vocab = self.shape.embd, len(self._tok["tokens"])
        self.tensor("token_embd.weight", embd, vocab, scale=1.0)
        self.tensor("output.weight", embd, vocab)
        self.tensor("token_embd_norm.weight" if self.arch == "lfm2" else "output_norm.weight", embd, fill="one")
        for layer in range(self.shape.layers):
            write_layer(self, layer)
        self._gguf.write_header_to_file()
        self._gguf.write_kv_data_to_file()
        self._gguf.write_tensors_to_file()
        self._gguf.close()

    def _hyperparameters(self) -> None:
        s, w, arch = self.shape, self._gguf, self.arch
        w.add_name(f"random-{arch}")
        w.add_context_length(s.ctx)
        w.add_embedding_length(s.embd)
        w.add_block_count(s.layers)
        w.add_feed_forward_length(0 if arch == "mamba2" else s.ff)
        w.add_head_count(0 if arch == "mamba2" else s.heads)
        w.add_layer_norm_rms_eps(1e-6)
        w.add_vocab_size(len(self._tok["tokens"]))
        if arch in MIXTURE:
            w.add_expert_count(s.experts)
            w.add_expert_used_count(s.experts_used)
            w.add_expert_feed_forward_length(s.expert_ff)
            if arch in DELTA_NET:
                w.add_expert_shared_feed_forward_length(s.expert_ff)

    def _attention_parameters(self) -> None:
        s, w, arch = self.shape, self._gguf, self.arch
        if arch == "mamba2":
            return
        per_layer = [s.kv_heads if attends(arch, i) else 0 for i in range(s.layers)]
        w.add_head_count_kv(per_layer if arch == "lfm2" else s.kv_heads)
        w.add_key_length(s.head)
        w.add_value_length(s.head)
        w.add_rope_freq_base(1e6)
        w.add_rope_dimension_count(s.head // 4 if arch in DELTA_NET else s.head)
        if arch in DELTA_NET:
            w.add_rope_dimension_sections([s.head // 16, s.head // 16, 0, 0])
            w.add_full_attention_interval(4)
        if arch == "gemma3":
            w.add_sliding_window(WINDOW)

    def _recurrent_parameters(self) -> None:
        s, w = self.shape, self._gguf
        if self.arch == "lfm2":
            w.add_shortconv_l_cache(3)
        if self.arch in DELTA_NET or self.arch == "mamba2":
            w.add_ssm_conv_kernel(4)
            w.add_ssm_inner_size(s.state * s.state_heads)
            w.add_ssm_state_size(s.state)
            w.add_ssm_time_step_rank(s.state_heads)
            w.add_ssm_group_count(s.state_groups)

    def _vocabulary(self) -> None:
        w, t = self._gguf, self._tok
        w.add_tokenizer_model("gpt2")
        w.add_tokenizer_pre(t["pre"])
        w.add_token_list(t["tokens"])
        w.add_token_types(t["token_type"])
        w.add_token_merges(t["merges"])
        w.add_bos_token_id(t["bos_token_id"])
        w.add_eos_token_id(t["eos_token_id"])
        w.add_pad_token_id(t["padding_token_id"])
        w.add_add_bos_token(False)
        w.add_chat_template(self._template)


def own_template() -> str:
    """The generator's chat template: ChatML with tools first, JSON tool calls, removable reasoning."""
    return (resources.files(__package__) / "chat.jinja").read_text(encoding="utf-8")


@lru_cache(maxsize=2)
def read_tokenizer(source: str, size: int | None) -> dict[str, Any]:
    """The tokenizer of the GGUF ``source``, cut to its first ``size`` tokens; reading it takes seconds, so kept."""
    fields = GGUFReader(source).fields
    found: dict[str, Any] = {name: fields[f"tokenizer.ggml.{name}"].contents() for name in COPIED}
    if size is not None:
        found["tokens"], found["token_type"] = found["tokens"][:size], found["token_type"][:size]
        known = set(found["tokens"])
        found["merges"] = [m for m in found["merges"] if m.replace(" ", "") in known]
    return found
