"""Text to tensors: the tokenizer, special tokens, packing, padding, fill-in-the-middle."""

from __future__ import annotations

import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rnj.config import SMALL
from rnj.text import (
    NO_TARGET,
    SPECIAL_TOKENS,
    TextError,
    chunk,
    fim,
    left_pad,
    load_tokenizer,
    pack,
    train_tokenizer,
)

TOKENIZER = load_tokenizer()
FIRST_SPECIAL = SMALL.vocab_size - len(SPECIAL_TOKENS)
texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=60)


def test_special_tokens_are_the_last_ids_and_are_those_of_the_config():
    assert TOKENIZER.vocab_size == SMALL.vocab_size == 2048
    assert list(TOKENIZER.special.values()) == list(range(2032, 2048))
    assert TOKENIZER.bos_id == SMALL.bos_id == 2032
    assert (TOKENIZER.eos_id, TOKENIZER.end_of_turn_id) == SMALL.eos_ids == (2033, 2034)
    assert TOKENIZER.pad_id == SMALL.pad_id == 2035


@pytest.mark.parametrize("name", SPECIAL_TOKENS)
def test_no_text_reaches_a_special_token(name):
    for text in (name, f"a{name}b", f"{name}{name}", f" {name}\n"):
        ids = TOKENIZER.encode(text)
        assert max(ids) < FIRST_SPECIAL
        assert TOKENIZER.decode(ids) == text
        assert TOKENIZER.encode_all([text]) == [ids]
    assert TOKENIZER.token(TOKENIZER.special[name]) == name


@settings(max_examples=200, deadline=None)
@given(texts)
def test_round_trip_is_lossless(text):
    ids = TOKENIZER.encode(text)
    assert all(0 <= i < FIRST_SPECIAL for i in ids)
    assert TOKENIZER.decode(ids) == text
    assert TOKENIZER.decode_bytes(ids) == text.encode()


@pytest.mark.parametrize(
    "text", ["", " ", "  x", "\r\n\t", "\x00", "café ½ 10²", "🙂👩‍👩‍👧", "İstanbul", "e\u0301", "\ufeffx"]
)
def test_round_trip_of_awkward_texts(text):
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


def test_every_byte_has_a_token_and_cut_letters_keep_their_bytes():
    assert {TOKENIZER.decode_bytes([i]) for i in range(FIRST_SPECIAL)} >= {bytes([b]) for b in range(256)}
    ids = TOKENIZER.encode("🙂")
    assert len(ids) > 1 and TOKENIZER.decode(ids[:1]) == "\ufffd"
    assert TOKENIZER.decode_bytes(ids[:1]) + TOKENIZER.decode_bytes(ids[1:]) == "🙂".encode()


def test_half_a_surrogate_pair_is_refused_with_its_place():
    for call in (TOKENIZER.encode, lambda text: TOKENIZER.encode_all(["fine", text])):
        with pytest.raises(TextError, match=r"character 2 .*\\ud800.*replace"):
            call("ab\ud800c")


def test_digits_stand_alone():
    assert [TOKENIZER.token(i) for i in TOKENIZER.encode("x = 2048")] == ["x", "·=", "·", "2", "0", "4", "8"]
    digits = [i for i in range(FIRST_SPECIAL) if any(c.isdigit() for c in TOKENIZER.decode([i]))]
    assert len(digits) == 10


def test_shown_form_of_blanks_and_lone_bytes():
    assert TOKENIZER.token(TOKENIZER.encode("\n    x")[0]) == "↵····"
    assert TOKENIZER.token(TOKENIZER.encode("\t")[0]) == "→"
    assert TOKENIZER.token(TOKENIZER.encode("🙂")[0]).startswith("\\xf0")
    assert TOKENIZER.token(TOKENIZER.encode("\x00")[0]) == "\\x00"
    assert all(TOKENIZER.token(i).isprintable() for i in range(SMALL.vocab_size))


@pytest.mark.parametrize("i", [-1, 2048])
def test_an_id_outside_the_vocabulary_is_refused(i):
    for call in (TOKENIZER.token, lambda i: TOKENIZER.decode([i])):
        with pytest.raises(TextError, match=f"token {i} is outside"):
            call(i)


def test_training_is_repeatable_saved_and_read_back(tmp_path):
    text = "def f(x):\n    return x + x\n" * 20 + "".join(f"name_{a}{b} " for a in "abcdefg" for b in "hijklmn")
    first, second = train_tokenizer([text], 300), train_tokenizer([text], 300)
    first.save(tmp_path / "a")
    second.save(tmp_path / "b")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    read = load_tokenizer(tmp_path / "a")
    assert read.encode(text) == first.encode(text) and read.special["<|pad|>"] == 300 - 16 + 3
    assert max(read.encode("<|pad|>")) < 284
    with pytest.raises(TextError, match="vocab_size must be at least 272"):
        train_tokenizer([text], 271)
    with pytest.raises(TextError, match="give more text"):
        train_tokenizer(["ab"], 2048)


def test_a_folder_without_or_with_another_tokenizer_is_refused(tmp_path):
    with pytest.raises(TextError, match="does not exist"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(TextError, match="not a readable tokenizer"):
        load_tokenizer(tmp_path)
    TOKENIZER.save(tmp_path)
    data = json.loads((tmp_path / "tokenizer.json").read_text())
    data["added_tokens"][0]["content"] = "<s>"
    (tmp_path / "tokenizer.json").write_text(json.dumps(data))
    with pytest.raises(TextError, match="begin_of_text"):
        load_tokenizer(tmp_path)


def test_transformers_reads_the_tokenizer(tmp_path):
    transformers = pytest.importorskip("transformers")
    TOKENIZER.save(tmp_path)
    theirs = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path)
    text = 'def f(x):\n    return "é" + 10 * x\n'
    assert theirs(text)["input_ids"] == TOKENIZER.encode(text)
    assert theirs.decode(TOKENIZER.encode(text)) == text
    assert theirs.bos_token_id == TOKENIZER.bos_id and theirs.pad_token_id == TOKENIZER.pad_id


# Packing

IDS = {"bos_id": 90, "eos_id": 91, "pad_id": 93}


def test_pack_by_hand():
    packed = pack([[1, 2], [3]], 9, **IDS)
    assert packed.tokens.tolist() == [[90, 1, 2, 91, 90, 3, 91, 93, 93]]
    assert packed.positions.tolist() == [[0, 1, 2, 3, 0, 1, 2, 0, 0]]
    assert packed.segments.tolist() == [[1, 1, 1, 1, 2, 2, 2, 0, 0]]
    no = NO_TARGET
    assert packed.targets.tolist() == [[1, 2, 91, no, 3, 91, no, no, no]]
    for tensor in (packed.tokens, packed.positions, packed.segments, packed.targets):
        assert tensor.dtype == torch.int64


def test_a_row_is_closed_when_the_next_document_does_not_fit():
    packed = pack([[1, 2], [3, 4], [5]], 7, **IDS)
    assert packed.segments.tolist() == [[1, 1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 2, 2, 2]]


def test_documents_of_a_single_token_survive():
    packed = pack([[1], [2], [3, 4], [5]], 6, bos_id=None, eos_id=None, pad_id=93)
    assert packed.tokens.tolist() == [[1, 2, 3, 4, 5, 93]]
    assert packed.segments.tolist() == [[1, 2, 3, 3, 4, 0]]
    assert packed.positions.tolist() == [[0, 0, 0, 1, 0, 0]]
    assert (packed.targets != NO_TARGET).sum() == 1
    assert pack([[]], 2, **IDS).tokens.tolist() == [[90, 91]]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.integers(0, 89), max_size=8), min_size=1, max_size=12), st.integers(10, 25))
def test_packing_loses_nothing_and_mixes_nothing(documents, length):
    packed = pack(documents, length, **IDS)
    found = []
    for tokens, positions, segments, targets in zip(
        packed.tokens, packed.positions, packed.segments, packed.targets, strict=True
    ):
        for segment in range(1, int(segments.max()) + 1):
            inside = segments == segment
            found.append(tokens[inside].tolist())
            assert positions[inside].tolist() == list(range(int(inside.sum())))
            assert targets[inside].tolist() == [*tokens[inside].tolist()[1:], NO_TARGET]
        assert (targets[segments == 0] == NO_TARGET).all() and (tokens[segments == 0] == 93).all()
    assert found == [[90, *document, 91] for document in documents]
    assert int((packed.targets != NO_TARGET).sum()) == sum(len(document) + 1 for document in documents)


def test_pack_refuses_what_has_no_row():
    with pytest.raises(TextError, match=r"document 1 needs 7 positions, a row has 6.*chunk\(document, 4\)"):
        pack([[1], [1, 2, 3, 4, 5]], 6, **IDS)
    with pytest.raises(TextError, match="document 0 is empty"):
        pack([[]], 6, bos_id=None, eos_id=None, pad_id=93)
    with pytest.raises(TextError, match="no documents"):
        pack([], 6, **IDS)


def test_pack_and_chunk_change_no_input():
    documents = [[1, 2, 3], [4]]
    pack(documents, 9, **IDS)
    chunk(documents[0], 2)
    assert documents == [[1, 2, 3], [4]]


def test_chunk():
    assert chunk([1, 2, 3, 4, 5], 2) == [[1, 2], [3, 4], [5]]
    assert chunk([1, 2], 2) == [[1, 2]] and chunk([], 2) == []
    with pytest.raises(TextError, match="at least 1 token"):
        chunk([1], 0)
    long = list(range(50))
    assert pack(chunk(long, 8), 10, **IDS).tokens.shape == (7, 10)


def test_left_pad():
    tokens, positions, segments = left_pad([[1, 2, 3], [4]], 93)
    assert tokens.tolist() == [[1, 2, 3], [93, 93, 4]]
    assert positions.tolist() == [[0, 1, 2], [0, 0, 0]]
    assert segments.tolist() == [[1, 1, 1], [0, 0, 1]]
    for prompts in ([], [[1], []]):
        with pytest.raises(TextError, match="at least one"):
            left_pad(prompts, 93)


def test_fill_in_the_middle_puts_the_suffix_before_the_middle():
    ids = fim("def f(", "x", "):\n    pass", TOKENIZER)
    special, encode = TOKENIZER.special, TOKENIZER.encode
    assert ids == [
        special["<|fim_prefix|>"],
        *encode("def f("),
        special["<|fim_suffix|>"],
        *encode("):\n    pass"),
        special["<|fim_middle|>"],
        *encode("x"),
    ]
    assert fim([1, 2], [3], [], TOKENIZER) == [special["<|fim_prefix|>"], 1, 2, special["<|fim_suffix|>"], 2038, 3]
    assert fim("a", "", "<|fim_middle|>", TOKENIZER).count(TOKENIZER.fim_middle_id) == 1


def test_suffix_first_each_part_behind_its_own_token():
    first, second, third = (TOKENIZER.special[f"<|fim_{part}|>"] for part in ("prefix", "suffix", "middle"))
    assert fim([1, 2], [3], [4, 5], TOKENIZER, "spm") == [second, 4, 5, first, 1, 2, third, 3]
    with pytest.raises(TextError, match="not 'mps'"):
        fim("a", "b", "c", TOKENIZER, "mps")
