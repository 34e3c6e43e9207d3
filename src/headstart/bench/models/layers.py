"""Tensors of one layer, by architecture."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from .shape import DELTA_NET, MIXTURE, Shape, attends


class Writer(Protocol):
    """What a layer needs of its writer."""

    arch: str
    shape: Shape
    rng: np.random.Generator

    def tensor(self, name: str, *shape: int, fill: str = "random", scale: float | None = None) -> None: ...

    def raw(self, name: str, data: np.ndarray[Any, Any]) -> None: ...


def write_layer(w: Writer, layer: int) -> None:
    """Add all tensors of ``layer``."""
    b, t, arch, embd = f"blk.{layer}.", w.tensor, w.arch, w.shape.embd
    t(b + "attn_norm.weight", embd, fill="one")
    if arch == "mamba2":
        _mamba2(w, b)
        return
    t(b + ("post_attention_norm.weight" if arch in DELTA_NET else "ffn_norm.weight"), embd, fill="one")
    if arch == "gemma3":
        t(b + "post_attention_norm.weight", embd, fill="one")
        t(b + "post_ffw_norm.weight", embd, fill="one")
    if attends(arch, layer):
        _attention(w, b)
    elif arch == "lfm2":
        t(b + "shortconv.conv.weight", 3, embd, fill="f32")
        t(b + "shortconv.in_proj.weight", embd, 3 * embd)
        t(b + "shortconv.out_proj.weight", embd, embd)
    else:
        _delta_net(w, b)
    _feed_forward(w, b)


def _attention(w: Writer, b: str) -> None:
    s, t = w.shape, w.tensor
    # Delta-net models gate their attention: the query projection carries the gate.
    t(b + "attn_q.weight", s.embd, s.head * s.heads * (2 if w.arch in DELTA_NET else 1))
    t(b + "attn_k.weight", s.embd, s.head * s.kv_heads)
    t(b + "attn_v.weight", s.embd, s.head * s.kv_heads)
    t(b + "attn_output.weight", s.head * s.heads, s.embd)
    if w.arch != "llama":
        t(b + "attn_q_norm.weight", s.head, fill="one")
        t(b + "attn_k_norm.weight", s.head, fill="one")


def _delta_net(w: Writer, b: str) -> None:
    s, t = w.shape, w.tensor
    key, value = s.state * s.state_groups, s.state * s.state_heads
    t(b + "attn_qkv.weight", s.embd, 2 * key + value)
    t(b + "attn_gate.weight", s.embd, value)
    t(b + "ssm_conv1d.weight", 4, 2 * key + value, fill="f32")
    w.raw(b + "ssm_dt.bias", w.rng.standard_normal(s.state_heads))
    w.raw(b + "ssm_a", -np.exp(w.rng.uniform(-3, 0, s.state_heads)))
    t(b + "ssm_beta.weight", s.embd, s.state_heads)
    t(b + "ssm_alpha.weight", s.embd, s.state_heads)
    t(b + "ssm_norm.weight", s.state, fill="one")
    t(b + "ssm_out.weight", value, s.embd)


def _mamba2(w: Writer, b: str) -> None:
    s, t = w.shape, w.tensor
    inner = s.state * s.state_heads
    conv = inner + 2 * s.state_groups * s.state
    t(b + "ssm_in.weight", s.embd, inner + conv + s.state_heads)
    t(b + "ssm_conv1d.weight", 4, conv, fill="f32")
    t(b + "ssm_conv1d.bias", conv, fill="zero")
    w.raw(b + "ssm_dt.bias", w.rng.standard_normal(s.state_heads))
    w.raw(b + "ssm_a", -np.exp(w.rng.uniform(-3, 0, (s.state_heads, 1))))
    w.raw(b + "ssm_d", np.ones((s.state_heads, 1)))
    t(b + "ssm_norm.weight", inner // s.state_groups, s.state_groups, fill="one")
    t(b + "ssm_out.weight", inner, s.embd)


def _feed_forward(w: Writer, b: str) -> None:
    s, t = w.shape, w.tensor
    if w.arch not in MIXTURE:
        t(b + "ffn_gate.weight", s.embd, s.ff)
        t(b + "ffn_up.weight", s.embd, s.ff)
        t(b + "ffn_down.weight", s.ff, s.embd)
        return
    t(b + "ffn_gate_inp.weight", s.embd, s.experts, fill="f32")
    t(b + "ffn_gate_exps.weight", s.embd, s.expert_ff, s.experts)
    t(b + "ffn_up_exps.weight", s.embd, s.expert_ff, s.experts)
    t(b + "ffn_down_exps.weight", s.expert_ff, s.embd, s.experts)
    if w.arch in DELTA_NET:
        t(b + "ffn_gate_inp_shexp.weight", s.embd, fill="f32")
        t(b + "ffn_gate_shexp.weight", s.embd, s.expert_ff)
        t(b + "ffn_up_shexp.weight", s.embd, s.expert_ff)
        t(b + "ffn_down_shexp.weight", s.expert_ff, s.embd)
