"""Weights in and out: what is written, what is read, and everything that is refused."""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import rnj
from rnj import RNJ_1_5, SMALL, TINY, Transformer
from rnj.text import load_tokenizer
from rnj.weights import INDEX, SINGLE, WeightsError, _shapes, hf_names, load, save

EMBED = "model.embed_tokens.weight"
Q = "model.layers.0.self_attn.q_proj.weight"
NORM = "model.norm.weight"
TINY_ROTATION = rnj.config_dict(TINY)["rope_parameters"]["full_attention"]
SHARD = 130_000  # bytes: TINY makes five shards


def tiny(seed: int = 0) -> Transformer:
    return rnj.build(TINY, seed=seed, random_norms=True)


def equal(a: Transformer, b: Transformer) -> bool:
    one, other = a.state_dict(), b.state_dict()
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


@pytest.fixture
def single(tmp_path: Path) -> Path:
    """A folder with a sound checkpoint in one file."""
    save(tiny(), tmp_path)
    return tmp_path


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    """A folder with a sound checkpoint in five shards and an index."""
    save(tiny(), tmp_path, max_shard_bytes=SHARD)
    return tmp_path


def change(folder: Path, **tensors: torch.Tensor | None) -> None:
    """Replace, add (or with None remove) tensors of the single file; "__" in a name stands for a dot."""
    state = load_file(folder / SINGLE)
    for name, tensor in tensors.items():
        key = name.replace("__", ".")
        state.pop(key, None)
        if tensor is not None:
            state[key] = tensor
    save_file(state, folder / SINGLE)


def refused(folder: Path, *words: str, **options) -> None:
    """load raises WeightsError, and the message names each of the words."""
    with pytest.raises(WeightsError) as error:
        load(folder, **options)
    for word in words:
        assert word in str(error.value)


# --- Names


def test_names_are_those_of_gemma_3() -> None:
    names = hf_names(RNJ_1_5)
    assert list(names) == list(rnj.meta(RNJ_1_5).state_dict())
    assert len(set(names.values())) == len(names) == 2 + 32 * 13
    assert names["embed.weight"] == EMBED
    assert names["final_norm.weight"] == NORM
    assert names["blocks.31.pre_attn_norm.weight"] == "model.layers.31.input_layernorm.weight"
    assert names["blocks.31.post_attn_norm.weight"] == "model.layers.31.post_attention_layernorm.weight"
    assert names["blocks.31.pre_mlp_norm.weight"] == "model.layers.31.pre_feedforward_layernorm.weight"
    assert names["blocks.31.post_mlp_norm.weight"] == "model.layers.31.post_feedforward_layernorm.weight"
    assert names["blocks.7.attn.k_norm.weight"] == "model.layers.7.self_attn.k_norm.weight"
    assert names["blocks.7.mlp.down_proj.weight"] == "model.layers.7.mlp.down_proj.weight"


# --- Round trips


def test_one_file(single: Path) -> None:
    assert sorted(os.listdir(single)) == ["config.json", SINGLE]
    assert load_file(single / SINGLE).keys() == set(hf_names(TINY).values())
    assert json.loads((single / "config.json").read_text())["dtype"] == "float32"
    model = load(single)
    assert model.config == TINY
    assert equal(model, tiny())
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_shards_and_their_index(sharded: Path) -> None:
    index = json.loads((sharded / INDEX).read_text())
    names = set(index["weight_map"].values())
    assert names == {f"model-{i}-of-00005.safetensors" for i in ("00001", "00002", "00003", "00004", "00005")}
    assert not (sharded / SINGLE).exists()
    for name in names:
        shard = load_file(sharded / name)
        assert sum(tensor.nbytes for tensor in shard.values()) <= SHARD
        assert shard.keys() == {key for key, where in index["weight_map"].items() if where == name}
    assert index["metadata"]["total_size"] == sum(weight.nbytes for weight in tiny().parameters())
    assert equal(load(sharded), tiny())


def test_a_tensor_larger_than_a_shard_has_one_for_itself(tmp_path: Path) -> None:
    save(tiny(), tmp_path, max_shard_bytes=1)
    assert len(list(tmp_path.glob("*.safetensors"))) == len(hf_names(TINY))
    assert equal(load(tmp_path), tiny())


@pytest.mark.parametrize("kept", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_the_dtype_of_the_file_is_kept_or_converted(tmp_path: Path, kept: torch.dtype) -> None:
    save(tiny(), tmp_path, dtype=kept, max_shard_bytes=SHARD)
    as_stored = load(tmp_path)
    assert {weight.dtype for weight in as_stored.parameters()} == {kept}
    assert equal(as_stored, tiny().to(kept))
    assert equal(load(tmp_path, dtype=torch.bfloat16), tiny().to(kept).to(torch.bfloat16))


def test_saving_leaves_the_model_alone(tmp_path: Path) -> None:
    model = tiny()
    save(model, tmp_path, dtype=torch.bfloat16)
    assert equal(model, tiny())


def test_a_loaded_model_computes_the_same(sharded: Path) -> None:
    tokens = torch.arange(40)[None] % 90
    assert torch.equal(load(sharded)(tokens), tiny()(tokens))


def test_writing_to_loaded_weights_leaves_the_file_alone(single: Path) -> None:
    model = load(single)
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
    assert equal(load(single), tiny())


def test_a_model_can_be_saved_over_the_files_it_is_mapped_from(single: Path) -> None:
    model = load(single)
    save(model, single, max_shard_bytes=SHARD)
    save(load(single), single, dtype=torch.float64)
    assert equal(load(single, dtype=torch.float32), tiny())
    assert equal(model, tiny())


def test_the_head_stays_tied(single: Path) -> None:
    change(single, lm_head__weight=tiny().embed.weight.detach().clone())
    model = load(single)
    assert "lm_head.weight" not in model.state_dict()
    with torch.no_grad():
        before = model(torch.tensor([[1, 2, 3]]))
        model.embed.weight[50] = 0  # token 50 is not among the inputs: only the head can see it
        after = model(torch.tensor([[1, 2, 3]]))
    assert (after[..., 50] == 0).all()
    assert torch.equal(after[..., :50], before[..., :50])


def test_a_tokenizer_goes_along(tmp_path: Path) -> None:
    tokenizer = load_tokenizer()
    model = rnj.build(dataclasses.replace(SMALL, n_layers=1, layer_types=("global",), d_model=32, d_ff=48))
    save(model, tmp_path, tokenizer=tokenizer)
    assert load_tokenizer(tmp_path).encode("def f(x):\n") == tokenizer.encode("def f(x):\n")


def test_other_files_stay_and_old_shards_go(sharded: Path) -> None:
    (sharded / "notes.txt").write_text("mine")
    save(tiny(1), sharded, max_shard_bytes=SHARD)
    assert equal(load(sharded), tiny(1))
    assert len(list(sharded.glob("*.safetensors"))) == 5
    save(tiny(2), sharded)
    assert sorted(os.listdir(sharded)) == ["config.json", SINGLE, "notes.txt"]
    assert equal(load(sharded), tiny(2))


def test_links_of_a_hugging_face_cache_are_followed(tmp_path: Path) -> None:
    snapshot, blobs = tmp_path / "snapshots" / "0123abcd", tmp_path / "blobs"
    blobs.mkdir()
    save(tiny(), snapshot, max_shard_bytes=SHARD)
    for i, path in enumerate(sorted(snapshot.iterdir())):
        path.rename(blobs / f"{i:064x}")
        path.symlink_to(f"../../blobs/{i:064x}")
    assert equal(load(snapshot), tiny())


# --- Keys, shapes and values that are refused


def test_missing_keys(single: Path) -> None:
    change(single, model__norm__weight=None)
    refused(single, SINGLE, "lacks", NORM)


def test_unexpected_keys(single: Path) -> None:
    change(single, model__layers__0__self_attn__q_proj__bias=torch.zeros(120))
    refused(single, SINGLE, "model.layers.0.self_attn.q_proj.bias", "does not have")


def test_another_number_of_layers(single: Path) -> None:
    raw = json.loads((single / "config.json").read_text())
    raw |= {"num_hidden_layers": 4, "layer_types": raw["layer_types"][:4]}
    (single / "config.json").write_text(json.dumps(raw))
    refused(single, SINGLE, "model.layers.4.input_layernorm.weight and 12 more", "does not have")


@pytest.mark.parametrize("shape", [(1,), (48, 1), (1, 48), (20,), ()])
def test_shapes_that_would_broadcast(single: Path, shape: tuple[int, ...]) -> None:
    change(single, model__norm__weight=torch.ones(shape))
    refused(single, SINGLE, NORM, str(list(shape)), "[48]")


def test_a_transposed_matrix(single: Path) -> None:
    change(single, **{Q.replace(".", "__"): torch.ones(48, 120)})
    refused(single, Q, "[48, 120]", "[120, 48]")


@pytest.mark.parametrize("dtype", [torch.int8, torch.int64, torch.uint8, torch.bool])
def test_integers(single: Path, dtype: torch.dtype) -> None:
    change(single, model__norm__weight=torch.ones(48, dtype=dtype))
    refused(single, SINGLE, NORM, "integers")


def test_types_that_this_model_does_not_know(single: Path) -> None:
    change(single, model__norm__weight=torch.ones(48).to(torch.float8_e4m3fn))
    refused(single, SINGLE, NORM, "F8_E4M3")


def test_mixed_types(single: Path) -> None:
    change(single, model__norm__weight=torch.ones(48, dtype=torch.bfloat16))
    refused(single, SINGLE, NORM, "BF16", "F32")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_nan_and_infinity(single: Path, value: float) -> None:
    weight = tiny().blocks[0].attn.q_proj.weight.detach().clone()
    weight[-1, -1] = value
    change(single, **{Q.replace(".", "__"): weight})
    refused(single, SINGLE, Q, "NaN or infinite")


def test_values_too_large_for_the_wanted_type(single: Path) -> None:
    change(single, model__norm__weight=torch.full((48,), 1e6))
    load(single)
    refused(single, NORM, "float16", dtype=torch.float16)


def test_a_head_that_differs(single: Path) -> None:
    head = tiny().embed.weight.detach().clone()
    head[100, 47] += 1e-6
    change(single, lm_head__weight=head)
    refused(single, SINGLE, "lm_head.weight", "differs", EMBED)
    change(single, lm_head__weight=head[:50].clone())
    refused(single, SINGLE, "lm_head.weight", "[50, 48]")


def test_a_wanted_type_that_is_none(single: Path) -> None:
    refused(single, "dtype", "torch.int8", dtype=torch.int8)


def test_the_same_key_twice_in_one_file(single: Path) -> None:
    raw = (single / SINGLE).read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = raw[8 : 8 + length].decode().rstrip()
    entry = json.dumps({NORM: json.loads(header)[NORM]})[1:-1]
    header = header[:-1] + "," + entry + "}"  # safetensors itself lets the last one win
    (single / SINGLE).write_bytes(len(header).to_bytes(8, "little") + header.encode() + raw[8 + length :])
    refused(single, SINGLE, NORM, "twice")


@pytest.mark.parametrize("config", [RNJ_1_5, SMALL, TINY], ids=["RNJ_1_5", "SMALL", "TINY"])
def test_the_expected_shapes_are_those_of_the_model(config: rnj.Config) -> None:
    state = rnj.meta(config).state_dict()
    assert _shapes(config) == {hf: tuple(state[ours].shape) for ours, hf in hf_names(config).items()}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_hidden_layers", 10**9),
        ("num_hidden_layers", 10_000),
        ("hidden_size", 2**62),
        ("hidden_size", 2**31),
        ("vocab_size", 2**63),
        ("vocab_size", 2**31),
        ("intermediate_size", 2**31),
        ("num_attention_heads", 2**31),
        ("rope_theta", 10**400),
        ("factor", 1e308),
        ("original_max_position_embeddings", 10**400),
        ("query_pre_attn_scalar", 1e-300),
    ],
)
def test_absurd_sizes_end_at_once(single: Path, key: str, value: float) -> None:
    raw = json.loads((single / "config.json").read_text())
    rotations = raw["rope_parameters"].values()
    for part in rotations if key in TINY_ROTATION else [raw]:
        part[key] = value
    if key == "num_hidden_layers":
        del raw["layer_types"]
    (single / "config.json").write_text(json.dumps(raw))
    with pytest.raises((rnj.ConfigError, WeightsError)):
        load(single)


# --- Indices that are refused


def edit_index(folder: Path, edit) -> dict:
    index = json.loads((folder / INDEX).read_text())
    edit(index["weight_map"])
    (folder / INDEX).write_text(json.dumps(index))
    return index


def test_a_key_in_two_shards(sharded: Path) -> None:
    last = sharded / "model-00005-of-00005.safetensors"
    save_file(load_file(last) | {EMBED: tiny().embed.weight.detach()}, last)
    refused(sharded, last.name, EMBED, "twice")


def test_a_key_twice_in_the_index(sharded: Path) -> None:
    text = (sharded / INDEX).read_text().replace('"weight_map": {', f'"weight_map": {{"{NORM}": "a.safetensors",')
    (sharded / INDEX).write_text(text)
    refused(sharded, INDEX, NORM, "twice")


def test_a_key_that_the_index_does_not_name(sharded: Path) -> None:
    edit_index(sharded, lambda names: names.pop(NORM))
    refused(sharded, "model-00005-of-00005.safetensors", NORM, "does not name")


def test_a_key_that_its_shard_does_not_hold(sharded: Path) -> None:
    last = sharded / "model-00005-of-00005.safetensors"
    save_file({key: value for key, value in load_file(last).items() if key != NORM}, last)
    refused(sharded, last.name, NORM, "lacks")


def test_a_shard_that_is_not_there(sharded: Path) -> None:
    (sharded / "model-00003-of-00005.safetensors").unlink()
    refused(sharded, "model-00003-of-00005.safetensors", "missing")


@pytest.mark.parametrize(
    "name",
    [
        "../outside/model.safetensors",
        "..\\outside\\model.safetensors",
        "sub/../../outside/model.safetensors",
        "/tmp/model.safetensors",
        "C:\\model.safetensors",
        "C:model.safetensors",
        "\\\\server\\share\\model.safetensors",
        "file:///model.safetensors",
        "~/model.safetensors",
        "..safetensors",
        "model.safetensors\x00",
        "",
        "config.json",
    ],
)
def test_index_paths_that_leave_the_folder(sharded: Path, name: str) -> None:
    edit_index(sharded, lambda names: names.update({NORM: name}))
    refused(sharded, INDEX, NORM, repr(name))


@pytest.mark.parametrize("whole_folder", [False, True])
def test_links_that_leave_the_folder(tmp_path: Path, whole_folder: bool) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    save(tiny(), inside)
    save(tiny(), outside)
    (inside / SINGLE).unlink()
    (inside / SINGLE).symlink_to(outside / SINGLE if whole_folder else "../outside/model.safetensors")
    refused(inside, SINGLE, "link", str(outside))


def test_a_link_to_nowhere(sharded: Path) -> None:
    first = sharded / "model-00001-of-00005.safetensors"
    first.unlink()
    first.symlink_to(first.name)
    refused(sharded, first.name)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"weight_map": {}}', '{"weight_map": ["a"]}', "[" * 100_000])
def test_indices_that_say_nothing(sharded: Path, text: str) -> None:
    (sharded / INDEX).write_text(text)
    refused(sharded, INDEX)


def test_a_file_name_that_is_none(sharded: Path) -> None:
    edit_index(sharded, lambda names: names.update({NORM: 5}))
    refused(sharded, INDEX, NORM, "5")


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("nowhere", path)])
def test_an_index_that_is_no_file(sharded: Path, make) -> None:
    (sharded / INDEX).unlink()
    make(sharded / INDEX)
    refused(sharded, INDEX, "no file")


def test_an_index_that_is_a_pointer(sharded: Path) -> None:
    (sharded / INDEX).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    refused(sharded, INDEX, "Git LFS", "git lfs pull")


@pytest.mark.parametrize("name", [INDEX, "tokenizer.json", "tokenizer_config.json"])
def test_other_files_that_are_links_out_of_the_folder(sharded: Path, name: str) -> None:
    outside = sharded.parent / f"{sharded.name}-outside.json"
    outside.write_bytes((sharded / INDEX).read_bytes())
    (sharded / name).unlink(missing_ok=True)
    (sharded / name).symlink_to(outside)
    refused(sharded, name, "link", str(outside))


# --- Files that are refused


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.pth", "weights.ckpt"])
def test_pickles(single: Path, name: str) -> None:
    (single / SINGLE).rename(single / name)
    refused(single, name, "pickle", "safetensors.torch.save_file")
    refused(single / name, "is not a folder")


def test_pickles_in_an_index(sharded: Path) -> None:
    edit_index(sharded, lambda names: names.update({NORM: "pytorch_model-00001-of-00002.bin"}))
    refused(sharded, INDEX, NORM, "pickle", "pytorch_model-00001-of-00002.bin")


def test_an_empty_folder_and_other_names(single: Path) -> None:
    (single / SINGLE).rename(single / "weights.safetensors")
    refused(single, SINGLE, INDEX, "weights.safetensors")
    (single / "weights.safetensors").unlink()
    refused(single, SINGLE, INDEX)


def test_git_lfs_pointers(sharded: Path) -> None:
    shard = sharded / "model-00002-of-00005.safetensors"
    shard.write_text(f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 4976698672\n")
    refused(sharded, shard.name, "Git LFS", "git lfs pull")


@pytest.mark.parametrize("left", [0, 5, 8, 9, 400, -1, -48 * 4])
def test_half_downloads(sharded: Path, left: int) -> None:
    shard = sharded / "model-00002-of-00005.safetensors"
    raw = shard.read_bytes()
    shard.write_bytes(raw[:left])
    refused(sharded, shard.name, "cut short", "download it again")


@pytest.mark.parametrize("raw", [b"<!DOCTYPE html><html>", b"PK\x03\x04" + bytes(40), b"\x80\x02ctorch\nload\n"])
def test_files_of_another_kind(single: Path, raw: bytes) -> None:
    (single / SINGLE).write_bytes(raw)
    refused(single, SINGLE, "not a safetensors file")


def with_header(path: Path, header: bytes, data: bytes) -> None:
    path.write_bytes(len(header).to_bytes(8, "little") + header + data)


@pytest.mark.parametrize(
    "header",
    [
        b"{]",
        b'{"a": 1}',
        b'{"a": {}}',
        b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": []}}',
        b'{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}',
        b'{"a": {"dtype": "F32", "shape": [0], "data_offsets": [4, 4]}}',
        b'{"a": {"dtype": "F32", "shape": ["1"], "data_offsets": [0, "4"]}}',
        b'{"\xff": {}}',
    ],
)
def test_headers_that_make_no_sense(single: Path, header: bytes) -> None:
    with_header(single / SINGLE, header, bytes(4))
    refused(single, SINGLE)


def test_bytes_after_the_end(single: Path) -> None:
    with (single / SINGLE).open("ab") as file:
        file.write(b"more")
    refused(single, SINGLE, "not a sound safetensors file")


def test_a_folder_in_place_of_a_file(single: Path) -> None:
    (single / SINGLE).unlink()
    (single / SINGLE).mkdir()
    refused(single, SINGLE, "no file")


def test_a_header_that_is_too_long_is_not_read(single: Path) -> None:
    with (single / SINGLE).open("wb") as file:
        file.write((200_000_000).to_bytes(8, "little") + b"{")
        file.truncate(300_000_000)  # without data on the disk
    refused(single, SINGLE, "header of 200000000 bytes")


def test_a_file_in_place_of_the_folder(single: Path) -> None:
    refused(single / "config.json", "config.json is not a folder")
    for folder in (single / "config.json", single / "config.json" / "model"):
        with pytest.raises(WeightsError, match="not a folder"):
            save(tiny(), folder)


# --- What is not saved


def test_a_config_that_cannot_be_written_leaves_the_old_folder_whole(single: Path) -> None:
    with pytest.raises(rnj.ConfigError, match="attention_factor"):
        save(rnj.build(dataclasses.replace(TINY, rope_type="linear", attention_factor=1.5)), single)
    assert equal(load(single), tiny())


def test_models_that_cannot_be_saved_leave_the_old_folder_whole(single: Path) -> None:
    broken = tiny()
    with torch.no_grad():
        broken.blocks[2].mlp.up_proj.weight[3, 4] = float("nan")
    mixed = tiny()
    mixed.final_norm.bfloat16()
    longer = tiny()
    longer.register_parameter("extra", torch.nn.Parameter(torch.zeros(1)))
    for model, word in (
        (broken, "blocks.2.mlp.up_proj.weight"),
        (rnj.meta(TINY), "meta"),
        (mixed, "final_norm.weight"),
        (longer, "extra"),
    ):
        with pytest.raises(WeightsError, match=word):
            save(model, single)
    for options, word in (({"max_shard_bytes": 0}, "max_shard_bytes"), ({"dtype": torch.int32}, "dtype")):
        with pytest.raises(WeightsError, match=word):
            save(tiny(1), single, **options)
    assert sorted(os.listdir(single)) == ["config.json", SINGLE]
    assert equal(load(single), tiny())


def test_a_full_disk_leaves_the_old_folder_whole(sharded: Path) -> None:
    before = sorted(os.listdir(sharded))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (SHARD // 2, limits[1]))  # a write past it fails as on a full disk
    try:
        with pytest.raises(Exception, match=r"(?i)file too large|I/?O error"):
            save(tiny(1), sharded)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert sorted(os.listdir(sharded)) == before
    assert equal(load(sharded), tiny())


def run(code: str, *arguments: object) -> str:
    """Run Python in a process of its own; what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": "65536"},  # freed memory is given back
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


KILLED_AT_EVERY_STEP = """
import dataclasses, itertools, os, pathlib, shutil, sys
import torch, rnj
from rnj.weights import load, save

folder = pathlib.Path(sys.argv[1]) / "model"
config = dataclasses.replace(rnj.TINY, n_layers=1, layer_types=("local",))
models = {name: rnj.build(config, seed, random_norms=True) for seed, name in enumerate(("old", "new"))}

def found():
    state = load(folder).state_dict()
    return [n for n, m in models.items() if all(torch.equal(w, state[k]) for k, w in m.state_dict().items())]

def save_and_die(step, max_shard_bytes):
    left = [step]
    def hook(event, arguments):
        if event in ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir"):
            left[0] -= 1
            if not left[0]:
                os._exit(9)  # as by kill -9: nothing is tidied up
    sys.addaudithook(hook)
    save(models["new"], folder, max_shard_bytes)
    os._exit(0)

for before, after in itertools.product((10**9, 50_000), repeat=2):
    seen, code = [], 9
    while code == 9:
        shutil.rmtree(folder, ignore_errors=True)
        save(models["old"], folder, before)
        child = os.fork()
        if not child:
            save_and_die(len(seen) + 1, after)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        seen += [found()]
    assert code == 0, code
    turn = seen.index(["new"])
    assert seen == [["old"]] * turn + [["new"]] * (len(seen) - turn), seen
    print(turn, len(seen))
"""


def test_a_save_that_is_killed_leaves_the_old_or_the_new_weights_whole(tmp_path: Path) -> None:
    """Killed before each file operation in turn, from one file or shards to one file or shards."""
    lines = run(KILLED_AT_EVERY_STEP, tmp_path).splitlines()
    assert len(lines) == 4
    for line in lines:
        turn, steps = map(int, line.split())
        assert 5 <= turn < steps


PEAK_OF_LOADING = """
import dataclasses, pathlib, sys
import torch, rnj
from rnj.weights import load, save

def status(key):
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith(key))

def peak(name, dtype=None):
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the peak starts anew
    before = status("VmRSS")
    model = load(folder / name, dtype)
    kept = sum(weight.nbytes for weight in model.parameters())
    print(kept, (status("VmHWM") - before) / kept)

folder = pathlib.Path(sys.argv[1])
config = dataclasses.replace(rnj.TINY, d_model=512, d_ff=2048, head_dim=64, vocab_size=14_000)
save(rnj.build(config), folder / "single")
save(load(folder / "single"), folder / "sharded", max_shard_bytes=30_000_000)
save(load(folder / "single"), folder / "half", dtype=torch.bfloat16)
load(folder / "half", dtype=torch.float32)  # whatever torch imports late
for name in ("single", "sharded", "half"):
    peak(name)
peak("single", torch.bfloat16)
peak("half", torch.float32)
"""


def test_loading_takes_the_memory_of_the_file_once(tmp_path: Path) -> None:
    """A checkpoint of 100 MB: as it is, in shards, in half precision; and converted down and up."""
    lines = [line.split() for line in run(PEAK_OF_LOADING, tmp_path).splitlines()]
    kept, ratios = [int(line[0]) for line in lines], [float(line[1]) for line in lines]
    assert kept[0] > 100_000_000
    assert kept == [kept[0], kept[0], kept[0] // 2, kept[0] // 2, kept[0]]
    assert max(ratios[:3]) < 1.1, ratios
    assert max(ratios[3:]) < 1.2, ratios  # beside what is kept, the file's pages of one tensor


def test_whoever_may_read_the_config_may_read_the_weights(tmp_path: Path) -> None:
    rnj.save(rnj.build(rnj.TINY), tmp_path, max_shard_bytes=100_000)
    assert len({path.stat().st_mode for path in tmp_path.iterdir()}) == 1 and len(list(tmp_path.iterdir())) > 3
