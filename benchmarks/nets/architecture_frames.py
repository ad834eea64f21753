"""The architectures of timm, torchvision and transformers, with random weights and small inputs.

    names("timm") ──▶ every architecture of the library
    made("timm", "resnet18") ──▶ the module in eval mode, its arguments, its keyword arguments

`Excluded` says why an architecture is not in the frame: it has more than 200 M parameters, or eager torch
does not run it on inputs that can be made without knowledge of the model. Nothing is downloaded. Models of
transformers are built from their configuration classes, with small extents: two layers, 64 wide (`shrunk`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

LARGEST = 200e6  # most parameters
LIBRARIES = ("timm", "torchvision", "transformers")
SIDES = (96, 128, 224, 256, 288, 384, 448)  # sides of square images; the first that a model accepts is used
WORDS = 24  # tokens of a sentence

# Names that configurations of transformers give to extents → the largest value that is kept.
SMALL = {
    1: "n_group topk_group",
    2: (
        "num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers num_encoder_layers "
        "num_decoder_layers depth num_blocks_per_group encoder_num_hidden_layers decoder_num_hidden_layers "
        "num_key_value_heads num_kv_heads n_shared_experts num_attention_layers num_block_layers "
        "num_experts_per_tok num_experts_per_token top_k top_k_experts moe_topk moe_top_k moe_k"
    ),
    4: (
        "num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads "
        "num_experts num_local_experts n_routed_experts moe_num_experts"
    ),
    16: "head_dim d_kv kv_channels attention_head_size qk_rope_head_dim qk_nope_head_dim v_head_dim",
    64: "hidden_size d_model n_embd dim embed_dim emb_dim projection_dim embedding_size hidden_dim model_dim",
    128: (
        "intermediate_size ffn_dim encoder_ffn_dim decoder_ffn_dim d_ff n_inner mlp_dim feed_forward_size "
        "moe_intermediate_size shared_expert_intermediate_size image_size max_position_embeddings "
        "n_positions max_source_positions"
    ),
    512: "vocab_size codebook_size audio_vocab_size",
}
LIMITS = {name: limit for limit, text in SMALL.items() for name in text.split()}


class Excluded(Exception):
    """The architecture is not in the frame; the message says why."""


Made = tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]


def names(library: str) -> list[str]:
    """Every architecture of the library, in its order."""
    if library == "timm":
        import timm

        return list(timm.list_models())
    if library == "torchvision":
        import torchvision

        return list(torchvision.models.list_models())
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    return list(MODEL_MAPPING_NAMES)


def made(library: str, name: str, *, whole: bool = False, shallow: bool = False) -> Made:
    """An architecture and its arguments. whole: models of transformers have the full size of their
    configurations. shallow: they have two layers, also with `whole`.

    Raises Excluded.
    """
    torch.manual_seed(0)
    of_transformers = partial(_transformers, whole=whole, shallow=shallow)
    how = {"timm": _timm, "torchvision": _torchvision, "transformers": of_transformers}
    module, args, kwargs = how[library](name)
    _lively(module)
    return module, args, kwargs


def _lively(module: torch.nn.Module) -> None:
    """Adds noise to weights that are initially all the same number (norms, biases, tiny scales), and to
    norms' statistics.

    Zeros and scales of 1e-6 would hide errors in the values that they multiply."""
    maker = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, p in [*module.named_parameters(), *module.named_buffers()]:
            noise = 0.1 * torch.randn(p.shape, generator=maker)
            if name.endswith("running_var"):
                p.mul_(noise.exp())
            elif name.endswith("running_mean") or (
                isinstance(p, torch.nn.Parameter)
                and p.is_floating_point()
                and p.numel()
                and bool((p == p.flatten()[0]).all())
            ):
                p.add_(noise)


def _few_enough(build: Callable[[], torch.nn.Module]) -> None:
    try:
        with torch.device("meta"):
            count = sum(p.numel() for p in build().parameters())
    except Exception:  # the module cannot be built without memory, so a real one is counted
        return
    if count >= LARGEST:
        raise Excluded(f"{count / 1e6:.0f} M parameters")


def _runs(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Why eager torch cannot run the module; "" if it can."""
    try:
        with torch.no_grad():
            module(*args, **kwargs)
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:160]
    return ""


# -- images ------------------------------------------------------------------------------------------------


def _timm(name: str) -> Made:
    import timm

    _few_enough(lambda: timm.create_model(name))
    why = ""
    fixed = timm.create_model(name, pretrained=False).eval()
    if sum(p.numel() for p in fixed.parameters()) >= LARGEST:
        raise Excluded("too many parameters")
    channels = fixed.default_cfg.get("input_size", (3,))[0]
    own = fixed.default_cfg.get("input_size", (3, 224, 224))[-1]
    for side in (*(s for s in SIDES if s < own), own):
        x = torch.randn(1, channels, side, side)
        for settings in ({}, {"img_size": side}):
            try:
                module = fixed if not settings else timm.create_model(name, **settings).eval()
            except Exception:  # the model has no such setting
                continue
            why = _runs(module, (x,), {})
            if not why:
                return module, (x,), {}
    raise Excluded(why)


def _torchvision(name: str) -> Made:
    import torchvision

    def build() -> torch.nn.Module:
        models = torchvision.models
        if "quantization" in str(models.get_model_builder(name).__module__):
            raise Excluded("its weights are quantised")
        backbone = {"weights_backbone": None} if "weights_backbone" in _parameters(name) else {}
        return models.get_model(name, weights=None, **backbone)

    def _parameters(name: str) -> Any:
        return inspect.signature(torchvision.models.get_model_builder(name)).parameters

    kind = str(torchvision.models.get_model_builder(name).__module__)
    if "detection" in kind:
        raise Excluded("how many boxes it finds only the data know: no graph has its shapes")
    _few_enough(build)
    module = build().eval()
    why = ""
    for side in SIDES:
        if "video" in kind:
            args: tuple[Any, ...] = (torch.randn(1, 3, 16, side, side),)
        elif "optical_flow" in kind:
            args = (torch.randn(1, 3, side, side), torch.randn(1, 3, side, side))
        else:
            args = (torch.randn(1, 3, side, side),)
        why = _runs(module, args, {})
        if not why:
            return module, args, {}
    raise Excluded(why)


# -- transformers ------------------------------------------------------------------------------------------


def _transformers(name: str, *, whole: bool = False, shallow: bool = False) -> Made:
    import transformers

    why = ""
    for shrink in (_shallow,) if shallow else (_without_cache,) if whole else (shrunk, _shallow):
        try:
            config = shrink(transformers.AutoConfig.for_model(name))
            _few_enough(lambda c=config: transformers.AutoModel.from_config(c))  # type: ignore[misc]
            module = transformers.AutoModel.from_config(config).float().eval()
        except Exception as error:
            why = why or f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:160]
            continue
        if sum(p.numel() for p in module.parameters()) >= LARGEST:
            why = why or "too many parameters"
            continue
        for arguments in _arguments(module, config):
            failure = _runs(module, (), arguments)
            if not failure:
                return module, (), arguments
            why = why or failure
    raise Excluded(why)


def shrunk(config: Any) -> Any:
    """The configuration with small extents, also in its parts."""
    return _limited(config, LIMITS)


def _shallow(config: Any) -> Any:
    """The configuration with two layers and unchanged widths."""
    return _limited(config, {n: limit for n, limit in LIMITS.items() if limit == 2 and "heads" not in n})


def _without_cache(config: Any) -> Any:
    """The configuration in its full size, without a cache."""
    return _limited(config, {})


def _limited(config: Any, limits: dict[str, int]) -> Any:
    for name, value in list(vars(config).items()):
        if hasattr(value, "to_dict") and hasattr(value, "model_type"):
            _limited(value, limits)
        elif name == "use_cache":
            config.use_cache = False  # a cache is not a tensor
        elif type(value) is int and name in limits:
            setattr(config, name, min(value, limits[name]))
        elif type(value) is int and name.endswith("_token_id") and "vocab_size" in limits:
            setattr(config, name, min(value, 3))
        elif isinstance(value, list) and name == "layer_types":
            setattr(config, name, value[: getattr(config, "num_hidden_layers", len(value))])
        elif isinstance(value, dict) and "mrope_section" in value and "head_dim" in limits:
            setattr(config, name, value | {"mrope_section": _sections(config, value["mrope_section"])})
    return config


def _sections(config: Any, sections: list[int]) -> list[int]:
    """For a narrower head, how many of its frequencies belong to each kind of position (time, height,
    width)."""
    wide = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    half = int(wide * (getattr(config, "partial_rotary_factor", None) or 1)) // 2
    cut = [max(1, n * half // sum(sections)) for n in sections[1:]]
    return [half - sum(cut), *cut]


def _arguments(module: torch.nn.Module, config: Any) -> list[dict[str, Any]]:
    """Sets of arguments that a model with this signature may accept, the likeliest first."""
    known = inspect.signature(module.forward).parameters
    more: dict[str, Any] = {"use_cache": False} if "use_cache" in known else {}
    vocabulary = _found(config, "vocab_size", 512)

    def words(n: int = WORDS) -> torch.Tensor:
        return torch.randint(4, max(5, min(vocabulary, 500)), (1, n))

    text: dict[str, Any] = {}
    if "input_ids" in known:
        text["input_ids"] = words()
        if "attention_mask" in known:
            text["attention_mask"] = torch.ones(1, WORDS, dtype=torch.int64)
    if "decoder_input_ids" in known:
        text["decoder_input_ids"] = words(8)
    if "bbox" in known:
        text["bbox"] = torch.tensor([[[1, 2, 30, 40]] * WORDS])
    for more_words in ("qformer_input_ids", "task_inputs"):
        if more_words in known:
            text[more_words] = words()
    found: list[dict[str, Any]] = []
    main = getattr(module, "main_input_name", "input_ids")
    side, channels = _found(config, "image_size", 128), _found(config, "num_channels", 3)
    side = side[0] if isinstance(side, (list, tuple)) else side
    video = {"pixel_values": torch.randn(1, _found(config, "num_frames", 8), channels, side, side)}
    if "pixel_values" in known:
        for s in dict.fromkeys((side, 64, 128, 224)):
            image = {"pixel_values": torch.randn(1, channels, s, s)}
            found += [image | text, image] if main == "input_ids" else [image, image | text]
        found += [video | text, video] if main == "input_ids" else [video, video | text]
    if "pixel_values_videos" in known:
        film = {"pixel_values_videos": video["pixel_values"]}
        found += [film, film | text]
    if "input_values" in known:
        found += [{"input_values": torch.randn(1, 8000)}, {"input_values": torch.randn(1, 1, 8000)}]
        found.append({"input_values": torch.randn(1, _found(config, "max_length", 128), 128)})
    if "input_features" in known:
        bins = _found(config, "num_mel_bins", 80)
        n = 2 * _found(config, "max_source_positions", 64)
        found += [
            {"input_features": torch.randn(1, bins, n)} | text,
            {"input_features": torch.randn(1, n, bins)} | text,
        ]
        if "input_features_mask" in known:
            whole = torch.ones(1, n, dtype=torch.bool)
            found.append({"input_features": torch.randn(1, n, bins), "input_features_mask": whole} | text)
    if text:
        found += [text, {"input_ids": text["input_ids"]}] if "input_ids" in text else [text]
    if "past_values" in known:
        past, series = _found(config, "context_length", 32), _found(config, "num_input_channels", 1)
        found.append({"past_values": torch.randn(1, past, series)})
        found.append({"past_values": torch.randn(1, past)})
    dummy = _dummy(module)
    return [{**f, **more} for f in (*found, *([dummy] if dummy else []))]


def _found(config: Any, name: str, default: Any) -> Any:
    """A setting of the configuration or of one of its parts."""
    value = getattr(config, name, None)
    if value is not None:
        return value
    for part in vars(config).values():
        if hasattr(part, "model_type") and getattr(part, name, None) is not None:
            return getattr(part, name)
    return default


def _dummy(module: torch.nn.Module) -> dict[str, Any]:
    try:
        return dict(module.dummy_inputs)
    except Exception:  # not every model has this setting
        return {}
