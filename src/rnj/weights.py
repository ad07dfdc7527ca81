"""Weights in and out: safetensors with Hugging Face's Gemma 3 names, in one file or in shards with an index."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from rnj.config import LFS, Config, config_dict, file_inside, json_object, read_config
from rnj.model import Transformer, meta

if TYPE_CHECKING:
    from rnj.text import Tokenizer

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
HEAD = "lm_head.weight"  # some checkpoints repeat the embedding under this name
_FLOATS = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_LONGEST_HEADER = 100_000_000  # bytes; safetensors itself reads no longer one
_TOKENIZER = ("tokenizer.json", "tokenizer_config.json")  # not read here, but they come with the weights
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_IN_LAYER = {
    "pre_attn_norm": "input_layernorm",
    "attn.q_proj": "self_attn.q_proj",
    "attn.k_proj": "self_attn.k_proj",
    "attn.v_proj": "self_attn.v_proj",
    "attn.o_proj": "self_attn.o_proj",
    "attn.q_norm": "self_attn.q_norm",
    "attn.k_norm": "self_attn.k_norm",
    "post_attn_norm": "post_attention_layernorm",
    "pre_mlp_norm": "pre_feedforward_layernorm",
    "mlp.gate_proj": "mlp.gate_proj",
    "mlp.up_proj": "mlp.up_proj",
    "mlp.down_proj": "mlp.down_proj",
    "post_mlp_norm": "post_feedforward_layernorm",
}


class WeightsError(ValueError):
    """A checkpoint that cannot be read or written as it stands; the message names the file and the key."""


class Stored(NamedTuple):
    """Where one tensor of a checkpoint lies, as its file's header says."""

    path: Path
    dtype: str  # safetensors' name: "BF16"
    shape: tuple[int, ...]


def hf_names(config: Config) -> dict[str, str]:
    """Every weight of the model: our name → its name in a Hugging Face checkpoint, in the order of the model."""
    names = {"embed.weight": "model.embed_tokens.weight"}
    for i in range(config.n_layers):
        names |= {f"blocks.{i}.{a}.weight": f"model.layers.{i}.{b}.weight" for a, b in _IN_LAYER.items()}
    return names | {"final_norm.weight": "model.norm.weight"}


def load(folder: str | Path, dtype: torch.dtype | None = None, device: torch.device | str = "cpu") -> Transformer:
    """The model of a folder that holds config.json and safetensors: one file, or shards with an index.

    dtype None keeps the file's; another converts tensor by tensor. On the CPU an unconverted tensor is a view of the
    mapped file: it is paged in when it is read, and writing to it leaves the file alone. Where a folder holds both an
    index and a single file, the index counts.
    Raises ConfigError for config.json and WeightsError for the rest: pickles, pointers, half downloads, shards outside
    the folder, keys that are missing, unexpected or there twice, wrong shapes, integers, NaN, a head unlike the
    embedding.
    """
    folder = Path(folder)
    no_folder = os.path.lexists(folder) and not folder.is_dir()
    if no_folder or folder.suffix in _PICKLES or folder.suffix == ".safetensors":
        raise WeightsError(f"{folder} is not a folder: give the one that holds config.json and the .safetensors files")
    if dtype is not None and dtype not in _FLOATS.values():
        raise WeightsError(f"dtype must be a floating-point type such as torch.bfloat16, not {dtype}")
    config = read_config(folder)
    for name in _TOKENIZER:
        if os.path.lexists(folder / name):
            _inside(folder, name, folder)
    stored = _stored(folder)
    _check(folder, stored, _shapes(config))
    model = meta(config)  # only now: before, its sizes could be anything
    state = {}
    for path in dict.fromkeys(entry.path for entry in stored.values()):
        mapped = safe_open(path, framework="pt", device="cpu")
        for ours, hf in hf_names(config).items():
            if stored[hf].path == path:
                raw = mapped.get_tensor(hf)
                state[ours] = raw.to(device=device, dtype=dtype or raw.dtype)
                _refuse_nan(state[ours], f"{path}: {hf}")
                if state[ours] is not raw:  # let go of the pages: what is kept has its own memory
                    del raw, mapped
                    mapped = safe_open(path, framework="pt", device="cpu")
    if HEAD in stored:
        _check_head(stored, "model.embed_tokens.weight")
    model.load_state_dict(state, strict=True, assign=True)
    return model


def save(
    model: Transformer,
    folder: str | Path,
    max_shard_bytes: int = 5_000_000_000,
    dtype: torch.dtype | None = None,
    tokenizer: Tokenizer | None = None,
) -> None:
    """Write config.json and the weights under Hugging Face names, in shards with an index if one file is too small.

    A tensor larger than max_shard_bytes gets a shard of its own; dtype None keeps the model's. Everything is written
    to a temporary folder inside `folder` and then renamed, the file that decides which weights count last: a save that
    is interrupted leaves the old checkpoint whole. Other files of the folder stay.
    Raises WeightsError, and writes nothing, where the weights hold NaN or lie on the meta device, or where `folder` is
    a file; ConfigError where config.json has no place for a value of the config.
    """
    folder = Path(folder)
    state = _state_to_save(model, dtype)
    kept = dtype or model.embed.weight.dtype
    shards = _split(state, kept.itemsize, max_shard_bytes)
    raw = config_dict(model.config) | {"dtype": str(kept).removeprefix("torch.")}
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise WeightsError(f"{folder} is not a folder, or lies in a file: give one to save to") from None
    old = _weight_files(folder)
    names = [SINGLE] if len(shards) == 1 else _shard_names(folder, len(shards))
    with tempfile.TemporaryDirectory(prefix=".saving-", dir=folder) as temporary:
        new = Path(temporary)
        for name, keys in zip(names, shards):
            tensors = {key: state[key].detach().to("cpu", kept).contiguous() for key in keys}
            save_file(tensors, new / name, metadata={"format": "pt"})
        if tokenizer is not None:
            tokenizer.save(new)
        _write_json(new / "config.json", raw)
        if len(shards) > 1:
            weight_map = {key: name for name, keys in zip(names, shards) for key in keys}
            total = sum(tensor.numel() for tensor in state.values()) * kept.itemsize
            _write_json(new / INDEX, {"metadata": {"total_size": total}, "weight_map": weight_map})
        for name in names:  # the library makes them readable by their owner alone
            shutil.copymode(new / "config.json", new / name)
        for path in new.iterdir():
            _to_disk(path)
        _put_in_place(new, folder)
    for name in old - set(names):
        (folder / name).unlink(missing_ok=True)


def _put_in_place(new: Path, folder: Path) -> None:
    """Rename the new files into the folder so that at every moment either the old or the new weights count."""
    last = INDEX if (new / INDEX).exists() else SINGLE
    if last == SINGLE and (folder / INDEX).exists():  # the old index counts until it is gone
        os.replace(new / SINGLE, folder / SINGLE)
    for path in sorted(new.iterdir()):
        if path.name not in (last, "config.json"):
            os.replace(path, folder / path.name)
    os.replace(new / "config.json", folder / "config.json")
    if (new / last).exists():
        os.replace(new / last, folder / last)
    else:
        (folder / INDEX).unlink()


def _stored(folder: Path) -> dict[str, Stored]:
    """Key → where it lies, from the headers of all files that count."""
    if os.path.lexists(folder / INDEX):
        weight_map = _weight_map(folder / INDEX)
        headers = {name: _header(_inside(folder, name, folder / INDEX)) for name in dict.fromkeys(weight_map.values())}
        for name, header in headers.items():
            for key in header:
                if key not in weight_map:
                    raise WeightsError(f"{folder / name} holds {key}, which {INDEX} does not name")
                if weight_map[key] != name:
                    raise WeightsError(f"{folder / name} holds {key} twice over: {INDEX} has it in {weight_map[key]}")
        for key, name in weight_map.items():
            if key not in headers[name]:
                raise WeightsError(f"{folder / name} lacks {key}, which {INDEX} says it holds")
        return {key: headers[name][key] for key, name in weight_map.items()}
    if not os.path.lexists(folder / SINGLE):
        raise WeightsError(_nothing_here(folder))
    return _header(_inside(folder, SINGLE, folder))


def _nothing_here(folder: Path) -> str:
    files = sorted(path.name for path in folder.iterdir())
    pickles = [name for name in files if name.endswith(_PICKLES)]
    if pickles:
        return (
            f"{folder} holds a pickle ({pickles[0]}), which is refused: reading one can run any code. If you trust it, "
            "convert it once: safetensors.torch.save_file(torch.load(path, weights_only=True), 'model.safetensors')"
        )
    others = [name for name in files if name.endswith(".safetensors")]
    found = f"it holds {', '.join(others[:3])}" if others else "it holds no .safetensors file"
    return f"{folder} has neither {SINGLE} nor {INDEX}; {found}"


def _weight_map(path: Path) -> dict[str, str]:
    """The index: key → file name. Every name is checked before anything is opened."""
    raw = json_object(path, _inside(path.parent, path.name, path.parent).read_bytes(), WeightsError)
    weight_map = raw.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise WeightsError(f"{path} has no weight_map")
    for key, name in weight_map.items():
        if not isinstance(name, str):
            raise WeightsError(f"{path}: the file of {key} must be a name, not {name!r}")
        if name.endswith(_PICKLES):
            raise WeightsError(f"{path}: {key} lies in the pickle {name}, which is refused: convert it to safetensors")
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\.safetensors", name):
            raise WeightsError(f"{path}: {key} lies in {name!r}, which is not the plain name of a .safetensors file")
    return weight_map


def _inside(folder: Path, name: str, source: Path) -> Path:
    return file_inside(folder, name, source, WeightsError)


def _header(path: Path) -> dict[str, Stored]:
    """What a safetensors file says about its tensors; its whole length is checked, its data not touched.

    Layout: 8 bytes, little-endian, the length of the JSON that follows; then the JSON; then the tensors' bytes.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(64)
        if start.startswith(LFS):
            raise WeightsError(f"{path} is a Git LFS pointer, not the weights: run `git lfs pull` in its folder")
        length = int.from_bytes(start[:8], "little")
        if size < 8 or (length > size - 8 and start[8:9] in (b"{", b"")):
            raise WeightsError(f"{path} is cut short at {size} bytes, within its header: download it again")
        if length > size - 8 or start[8:9] != b"{":
            raise WeightsError(f"{path} is not a safetensors file: it begins with {start[:16]!r}")
        if length > _LONGEST_HEADER:
            raise WeightsError(f"{path} claims a header of {length} bytes, above {_LONGEST_HEADER}: download it again")
        file.seek(8)
        raw = json_object(path, file.read(length), WeightsError)
    raw.pop("__metadata__", None)
    try:
        stored = {key: Stored(path, str(entry["dtype"]), tuple(entry["shape"])) for key, entry in raw.items()}
        promised = 8 + length + max([entry["data_offsets"][1] for entry in raw.values()], default=0)
    except (TypeError, KeyError, IndexError):
        raise WeightsError(f"{path} has a header that is not safetensors'") from None
    if size < promised:
        raise WeightsError(f"{path} is cut short: {size} bytes of {promised}; download it again")
    try:
        with safe_open(path, framework="pt"):
            pass
    except SafetensorError as error:
        raise WeightsError(f"{path} is not a sound safetensors file: {error}") from None
    return stored


def _shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """The shape of every weight under its Hugging Face name, without building the model."""
    d, f, h = config.d_model, config.d_ff, config.head_dim
    queries, keys = config.n_heads * h, config.n_kv_heads * h
    in_layer = {
        "attn.q_proj": (queries, d),
        "attn.k_proj": (keys, d),
        "attn.v_proj": (keys, d),
        "attn.o_proj": (d, queries),
        "attn.q_norm": (h,),
        "attn.k_norm": (h,),
        "mlp.gate_proj": (f, d),
        "mlp.up_proj": (f, d),
        "mlp.down_proj": (d, f),
    }
    shapes: dict[str, tuple[int, ...]] = {}
    for ours, hf in hf_names(config).items():
        part = ours.removesuffix(".weight").split(".", 2)[-1]  # blocks.3.attn.q_proj.weight: attn.q_proj
        shapes[hf] = (config.vocab_size, d) if ours == "embed.weight" else in_layer.get(part, (d,))  # the rest: norms
    return shapes


def _check(folder: Path, stored: dict[str, Stored], shapes: dict[str, tuple[int, ...]]) -> None:
    """Exactly the expected keys, each of its shape, all of one floating-point type."""
    where = folder / INDEX if (folder / INDEX).exists() else folder / SINGLE
    missing = [key for key in shapes if key not in stored]
    if missing:
        raise WeightsError(f"{where} lacks {_some(missing)}")
    unexpected = [key for key in stored if key not in shapes and key != HEAD]
    if unexpected:
        raise WeightsError(f"{stored[unexpected[0]].path} holds {_some(unexpected)}, which this model does not have")
    shapes = shapes | {HEAD: shapes["model.embed_tokens.weight"]}
    for key, entry in stored.items():
        if entry.dtype not in _FLOATS:
            kind = "integers" if re.fullmatch(r"[IU]\d+|BOOL", entry.dtype) else "an unknown type"
            raise WeightsError(f"{entry.path}: {key} holds {kind} ({entry.dtype}), not one of {', '.join(_FLOATS)}")
        if entry.shape != shapes[key]:
            raise WeightsError(f"{entry.path}: {key} has shape {list(entry.shape)}, expected {list(shapes[key])}")
    first = stored["model.embed_tokens.weight"]
    for key, entry in stored.items():
        if entry.dtype != first.dtype:
            raise WeightsError(f"{entry.path}: {key} is {entry.dtype} but the embedding is {first.dtype}: save in one")


def _check_head(stored: dict[str, Stored], embedding: str) -> None:
    """A head that is stored as well must be the embedding, bit for bit: this model has one matrix for both."""
    with safe_open(stored[HEAD].path, framework="pt") as a, safe_open(stored[embedding].path, framework="pt") as b:
        for one, other in zip(a.get_tensor(HEAD).split(1024), b.get_tensor(embedding).split(1024)):
            if not torch.equal(one, other):
                raise WeightsError(f"{stored[HEAD].path}: {HEAD} differs from {embedding}, but the two are tied")


def _refuse_nan(tensor: Tensor, where: str) -> None:
    for part in tensor.flatten().split(2**22):  # in parts: a mask for a whole embedding would be large
        low, high = torch.aminmax(part)
        if not (torch.isfinite(low) and torch.isfinite(high)):
            raise WeightsError(f"{where} holds NaN or infinite numbers as {str(tensor.dtype).removeprefix('torch.')}")


def _state_to_save(model: Transformer, dtype: torch.dtype | None) -> dict[str, Tensor]:
    """The model's weights under Hugging Face names, fit to be read again."""
    if dtype is not None and dtype not in _FLOATS.values():
        raise WeightsError(f"dtype must be a floating-point type such as torch.bfloat16, not {dtype}")
    names, state = hf_names(model.config), model.state_dict()
    if names.keys() != state.keys():
        raise WeightsError(f"the model's weights are not those of its config: {_some(names.keys() ^ state.keys())}")
    for name, tensor in state.items():
        if tensor.is_meta:
            raise WeightsError(f"{name} is on the meta device: there is nothing to save")
        if dtype is None and tensor.dtype != model.embed.weight.dtype:
            raise WeightsError(f"{name} is {tensor.dtype}, the embedding {model.embed.weight.dtype}: give a dtype")
        _refuse_nan(tensor if dtype is None else tensor.to(dtype), name)
    return {hf: state[ours] for ours, hf in names.items()}


def _split(state: dict[str, Tensor], itemsize: int, max_shard_bytes: int) -> list[list[str]]:
    """The keys of each shard, in the order of the model."""
    if max_shard_bytes < 1:
        raise WeightsError(f"max_shard_bytes must be at least 1, not {max_shard_bytes}")
    shards: list[list[str]] = [[]]
    room = max_shard_bytes
    for key, tensor in state.items():
        size = tensor.numel() * itemsize
        if size > room and shards[-1]:
            shards.append([])
            room = max_shard_bytes
        shards[-1].append(key)
        room -= size
    return shards


def _shard_names(folder: Path, count: int) -> list[str]:
    """Names that no file of the folder has, so that the old shards stay until the new index stands."""
    tag = ""
    while True:
        names = [f"model-{tag}{i + 1:05d}-of-{count:05d}.safetensors" for i in range(count)]
        if not any(os.path.lexists(folder / name) for name in names):
            return names
        tag = secrets.token_hex(4) + "-"


def _weight_files(folder: Path) -> set[str]:
    """The names of the checkpoint that a folder holds already, so far as they are those of a sound one."""
    files = {SINGLE} if (folder / SINGLE).exists() else set()
    if (folder / INDEX).exists():
        with contextlib.suppress(WeightsError):  # an unsound one is not ours to tidy up
            files |= set(_weight_map(folder / INDEX).values())
    return files


def _write_json(path: Path, raw: dict[str, Any]) -> None:
    path.write_text(json.dumps(raw, indent=2) + "\n", encoding="utf-8")


def _to_disk(path: Path) -> None:
    """Wait until a file is on the disk: after a power cut a renamed file must not be an empty one."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _some(keys: Iterable[str]) -> str:
    first, *rest = list(keys)
    return first + (f" and {len(rest)} more" if rest else "")
