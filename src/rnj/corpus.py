"""What the small model reads: the Python standard library's own sources, by fixed rules.

    python -m rnj.corpus            compare this interpreter's library with the manifest that ships
    python -m rnj.corpus --write    make the manifest, the held-out sample and the tokenizer anew

Whole packages are held out together with their tests, so that no copy of a held-out file is trained on.
Licence of the texts: the Python Software Foundation's.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from rnj.config import SMALL, config_dict
from rnj.text import SMALL_FOLDER, load_tokenizer, train_tokenizer

# Never trained on: each name is a module or package of the library, and its tests are held out as well.
HELD_OUT = (
    "colorsys",
    "configparser",
    "fractions",
    "graphlib",
    "heapq",
    "ipaddress",
    "json",
    "netrc",
    "plistlib",
    "queue",
    "sched",
    "shelve",
    "statistics",
    "textwrap",
    "tomllib",
    "wsgiref",
    "zoneinfo",
)
# Tables, generated files, what differs from machine to machine, Python 2, and files that are broken on purpose.
LEFT_OUT = (
    "encodings/",
    "pydoc_data/",
    "_sysconfigdata",
    "config-",
    "lib2to3/tests/data/",
    "lib2to3/pgen2/",
    "test/encoded_modules/",
    "test/leakers/",
    "test/tokenizedata/",
    "test/badsyntax",
    "test/bad_",
    "turtledemo/",
)
LARGEST = 200_000  # bytes: what is longer is mostly a table
SAMPLE_BYTES = 200_000  # the held-out sample that ships is no longer than this
SAMPLE_FILES = (2_000, 30_000)  # bytes: the sample takes files of this length only
MANIFEST = SMALL_FOLDER / "manifest.json"
SAMPLE = SMALL_FOLDER / "held_out.json"


class CorpusError(RuntimeError):
    """The texts are not the ones that the shipped model was trained on; the message says what to do."""


@dataclass(frozen=True)
class Corpus:
    """File names and texts, in a fixed order."""

    train: dict[str, str]
    held_out: dict[str, str]
    hashes: dict[str, str]  # sha256 of each file's bytes

    @property
    def sha256(self) -> str:
        """One hash of all files: of their names and hashes in order."""
        return hashlib.sha256(json.dumps(self.hashes, sort_keys=True).encode()).hexdigest()


def read_corpus(folder: str | Path | None = None, any_corpus: bool = False) -> Corpus:
    """Read the .py files of the running interpreter's standard library (or of another folder).

    The order is that of the file names' own hashes: fixed, and no package stands together. Raises CorpusError where
    the files are not those of the shipped manifest, unless any_corpus says that they may differ.
    """
    root = Path(sysconfig.get_path("stdlib") if folder is None else folder)
    texts: dict[str, str] = {}
    hashes: dict[str, str] = {}
    for path in sorted(root.rglob("*.py"), key=lambda p: p.relative_to(root).as_posix()):
        name = path.relative_to(root).as_posix()
        if "site-packages" in name or "dist-packages" in name or name.startswith(LEFT_OUT):
            continue
        data = path.read_bytes()
        text = _decoded(data)
        digest = hashlib.sha256(data).hexdigest()
        if text is None or not text.strip() or len(data) > LARGEST or digest in hashes.values():
            continue
        texts[name], hashes[name] = text, digest
    if not any_corpus:
        _compare(hashes, root)
    order = sorted(texts, key=lambda name: hashlib.sha256(name.encode()).digest())
    train = {name: texts[name] for name in order if not is_held_out(name)}
    held_out = {name: texts[name] for name in order if is_held_out(name)}
    if not train or not held_out:
        raise CorpusError(f"{root} needs .py files to train on, and some of {', '.join(HELD_OUT)} to hold out")
    return Corpus(train, held_out, hashes)


def is_held_out(name: str) -> bool:
    """Whether a file (by its path in the library) is one of HELD_OUT's: a module, in a package, or a test of it."""
    parts = name.removesuffix(".py").split("/")
    top = parts[1].removeprefix("test_") if parts[0] == "test" and len(parts) > 1 else parts[0].lstrip("_")
    return top in HELD_OUT


def read_sample() -> dict[str, str]:
    """The held-out sample that ships: file names and texts. No number of the book depends on the reader's Python."""
    return json.loads(SAMPLE.read_text(encoding="utf-8"))


def choose_sample(held_out: dict[str, str]) -> dict[str, str]:
    """Whole files in the corpus's order while they fit; two of the library for each of the tests."""
    fits = [n for n, text in held_out.items() if SAMPLE_FILES[0] <= len(text.encode()) <= SAMPLE_FILES[1]]
    library = [name for name in fits if not name.startswith("test/")]
    tests = [name for name in fits if name.startswith("test/")]
    sample: dict[str, str] = {}
    for i in range(len(library)):
        for name in (*library[i : i + 1], *(tests[i // 2 : i // 2 + 1] if i % 2 else [])):
            longer = sample | {name: held_out[name]}
            if len(json.dumps(longer, ensure_ascii=False).encode()) <= SAMPLE_BYTES:
                sample = longer
    return sample


def _decoded(data: bytes) -> str | None:
    try:
        return data.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError:
        return None


def _compare(hashes: dict[str, str], root: Path) -> None:
    try:
        manifest = json.loads(MANIFEST.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CorpusError(f"{MANIFEST} is missing: python -m rnj.corpus --write makes it") from None
    shipped = manifest["files"]
    if hashes == shipped:
        return
    missing = [name for name in shipped if name not in hashes]
    other = [name for name in hashes if hashes[name] != shipped.get(name)]
    raise CorpusError(
        f"the library in {root} is not that of Python {manifest['python']}, on which the shipped model was trained: "
        f"{len(missing)} files are missing, {len(other)} are new or differ (first: {(missing + other)[0]}). "
        "Train on it all the same with --any-corpus"
    )


def write(folder: Path = SMALL_FOLDER) -> None:
    """Make what ships beside the weights: manifest, sample, tokenizer and config.json."""
    corpus = read_corpus(any_corpus=True)
    folder.mkdir(parents=True, exist_ok=True)
    manifest = {"python": platform.python_version(), "sha256": corpus.sha256, "held_out": HELD_OUT}
    (folder / MANIFEST.name).write_text(json.dumps(manifest | {"files": corpus.hashes}, indent=0) + "\n")
    sample = json.dumps(choose_sample(corpus.held_out), ensure_ascii=False, indent=0)
    (folder / SAMPLE.name).write_text(sample, encoding="utf-8")
    train_tokenizer(corpus.train.values(), SMALL.vocab_size).save(folder)
    (folder / "config.json").write_text(json.dumps(config_dict(SMALL), indent=2) + "\n")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m rnj.corpus", description=__doc__.split("\n")[0])
    parser.add_argument("--write", action="store_true", help="make the shipped files anew from this interpreter")
    if parser.parse_args(arguments).write:
        write()
    corpus, tokenizer = read_corpus(), load_tokenizer()
    for name, files in (("train", corpus.train), ("held out", corpus.held_out), ("sample", read_sample())):
        size = sum(len(text.encode()) for text in files.values())
        tokens = sum(len(ids) for ids in tokenizer.encode_all(list(files.values())))
        print(f"{name}: {len(files):,} files, {size:,} bytes, {tokens:,} tokens, {size / tokens:.3f} bytes a token")
    print(f"sha256 {corpus.sha256}, files as they were shipped")


if __name__ == "__main__":
    main()
