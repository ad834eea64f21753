"""Files of llama.cpp: reads a decoder's size and weights from GGUF; Q8_0 and Q4_0 stay packed.

    blk.0.attn_q.weight     Q4_0 [rows, columns]     ──▶  layers.0.self_attn.q_proj.weight: PackedRows
    output_norm.weight      F32 [hidden]             ──▶  norm.weight: float32[hidden]

Tensors of other types become float32. In "llama" files, the rows of queries and keys are in the order for
rotating neighbouring pairs; the result has them in the order of halves. This needs the package gguf.
Source: ggml-org/llama.cpp, docs of GGUF and of its quantisation types; convert_hf_to_gguf.py (`permute`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from autotensor.base.errors import InputError
from autotensor.models.packed_rows import PackedRows, packed
from autotensor.models.weights import Array

GROUP = 32
KINDS = ("llama", "qwen2")
WHOLE = {"token_embd": "embed_tokens", "output_norm": "norm", "output": "lm_head"}
IN_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def read(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """A config as Hugging Face writes it, and the weights by transformers' names.

    Raises InputError for a file that is missing, damaged or of another architecture, or if gguf is missing.
    """
    try:
        import gguf
    except ImportError as error:
        raise InputError(
            "gguf files need the package gguf.", fix="pip install 'autotensor[gguf]'."
        ) from error
    if not path.is_file():
        raise InputError(f"there is no file {str(path)!r}.")
    try:
        reader = gguf.GGUFReader(path)
        fields = {name: field.contents() for name, field in reader.fields.items()}
    except Exception as error:  # damaged bytes may raise any error in NumPy and the reader
        raise InputError(f"{str(path)!r} cannot be read as GGUF: {error}.") from error
    config = _config(str(path), fields, {t.name: [int(n) for n in t.shape] for t in reader.tensors})
    try:
        weights = {_name(t.name): _weight(t, gguf) for t in reader.tensors}
    except Exception as error:
        raise InputError(f"{str(path)!r} cannot be read as GGUF: {error}.") from error
    if config["model_type"] == "llama":
        for name, a in weights.items():
            heads = config["num_attention_heads" if ".q_proj." in name else "num_key_value_heads"]
            if ".q_proj." in name or ".k_proj." in name:
                weights[name] = _in_halves(a, heads)
    return config, weights


def _config(path: str, fields: Mapping[str, Any], tensors: Mapping[str, list[int]]) -> dict[str, Any]:
    kind = fields.get("general.architecture")
    if kind not in KINDS:
        raise InputError(f"{path!r} holds a model of architecture {kind!r}.", fix="Known: llama, qwen2.")
    if "rope_freqs.weight" in tensors:
        raise InputError(f"{path!r}: scaled rotary embeddings are not known.")

    def field(name: str, default: Any = None) -> Any:
        value = fields.get(f"{kind}.{name}", default)
        if value is None:
            raise InputError(f"{path!r} lacks {kind}.{name}.")
        return value

    def count(name: str, default: Any = None) -> int:
        value = field(name, default)
        if not isinstance(value, int) or value < 1:
            raise InputError(f"{path!r}: {kind}.{name} is {value!r}, expected a number of at least 1.")
        return value

    scaling = field("rope.scaling.type", "none")
    heads, hidden = count("attention.head_count"), count("embedding_length")
    depth = hidden // heads
    for name in ("attention.key_length", "attention.value_length", "rope.dimension_count"):
        if field(name, depth) != depth:
            raise InputError(f"{path!r}: {kind}.{name} is {field(name)}, hidden / heads is {depth}.")
    return {
        "model_type": kind,
        "num_hidden_layers": count("block_count"),
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": count("attention.head_count_kv", heads),
        "intermediate_size": count("feed_forward_length"),
        "vocab_size": tensors.get("token_embd.weight", [hidden, 0])[-1],  # the number of columns comes first
        "rms_norm_eps": field("attention.layer_norm_rms_epsilon"),
        "rope_theta": field("rope.freq_base", 10_000.0),
        "rope_scaling": None if scaling == "none" else {"rope_type": scaling},
        "tie_word_embeddings": "output.weight" not in tensors,
    }


def _name(name: str) -> str:
    """transformers' name of a tensor.

    An unknown name stays as it is, and the model refuses it by this name.
    """
    part, _, ending = name.rpartition(".")
    if part in WHOLE:
        return f"{WHOLE[part]}.{ending}"
    block, _, inner = part.rpartition(".")
    return f"layers.{block.removeprefix('blk.')}.{IN_LAYER[inner]}.{ending}" if inner in IN_LAYER else name


def _weight(tensor: Any, gguf: Any) -> PackedRows | Array:
    """The tensor with its rows first, as packed numbers if its type is one of ours."""
    types, rows = gguf.GGMLQuantizationType, tensor.data
    if tensor.tensor_type in (types.Q4_0, types.Q8_0) and len(tensor.shape) == 2:
        blocks = rows.reshape(rows.shape[0], -1, 18 if tensor.tensor_type == types.Q4_0 else 34)
        scale = np.ascontiguousarray(blocks[..., :2]).view(np.float16)[..., 0]
        q = blocks[..., 2:]
        if tensor.tensor_type == types.Q8_0:
            return packed(q ^ np.uint8(128), scale, 8)
        return packed(np.concatenate([q & 15, q >> 4], axis=-1), scale, 4)
    floats: Array = gguf.quants.dequantize(rows, tensor.tensor_type)
    return floats


def _in_halves(a: Any, heads: int) -> Any:
    """Reorders the rows of a head: from pairs (0, depth / 2), (1, depth / 2 + 1), … to halves."""
    rows = np.arange(a.shape[0]).reshape(heads, -1, 2).swapaxes(1, 2).reshape(-1)
    return a.in_order(rows) if isinstance(a, PackedRows) else a[rows]
