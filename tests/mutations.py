"""Break the package on purpose, one named fault at a time, and see a test turn red for each.

    python tests/mutations.py               a unit test for each fault
    python tests/mutations.py --chapters    the chapter that builds the part, as well
    python tests/mutations.py rotation      only faults with this word in their name

Each fault replaces one piece of source text in a copy of src/rnj; the sources themselves stay as they are. A test (or
chapter) must be green on the unbroken copy and red on the broken one. Exits with 1 where one is not.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]


class Mutation(NamedTuple):
    name: str  # what is broken
    file: str  # in src/rnj
    old: str  # stands there exactly once
    new: str  # what takes its place
    test: str  # in tests/: turns red
    chapter: int | None  # its notebook turns red as well; None: a fault that no chapter claims to show


# fmt: off
MUTATIONS = [
    # Chapter 1: the skeleton
    Mutation("embedding not scaled", "model.py",
             "self.embed(tokens) * root", "self.embed(tokens)",
             "test_model.py::test_embedding_scale_is_no_part_of_the_head", 1),
    Mutation("no residual around attention", "model.py",
             'note("mid", x + note(', 'note("mid", 0 * x + note(',
             "test_model.py::test_residual_stream_runs_past_both_norms", 1),
    Mutation("no residual around the MLP", "model.py",
             'note("out", x + note(', 'note("out", 0 * x + note(',
             "test_model.py::test_residual_stream_runs_past_both_norms", 1),
    Mutation("soft cap missing", "model.py",
             "logits if cap is None else cap * torch.tanh(logits / cap)", "logits",
             "test_model.py::test_soft_cap", 1),
    Mutation("final norm missing", "model.py",
             'note("final_norm", self.final_norm(x))', 'note("final_norm", x)',
             "test_model.py::test_each_norm_stands_where_its_name_says", 1),
    # Chapter 2: RMSNorm
    Mutation("(1 + w) dropped", "norm.py",
             "1 + self.weight", "self.weight",
             "test_norm.py::test_one_plus_weight_once", 2),
    Mutation("eps forgotten", "norm.py",
             "keepdim=True) + self.eps", "keepdim=True)",
             "test_norm.py::test_small_vector_feels_eps", 2),
    Mutation("mean square without the mean", "norm.py",
             "y.pow(2).mean(-1", "y.pow(2).sum(-1",
             "test_norm.py::test_one_plus_weight_once", 2),
    Mutation("norm computed in the input's dtype", "norm.py",
             "wide = torch.promote_types(x.dtype, torch.float32)", "wide = x.dtype",
             "test_norm.py::test_bfloat16_adds_one_in_float32", None),
    # Chapter 3: GeGLU
    Mutation("gate and up swapped", "mlp.py",
             'note("gate", self.gate_proj(x))', 'note("gate", self.up_proj(x))',
             "test_mlp.py::test_by_the_formula", 3),
    Mutation("gate not activated", "mlp.py",
             'F.gelu(gate, approximate="tanh")', "gate",
             "test_mlp.py::test_tanh_gelu", 3),
    Mutation("erf GELU", "mlp.py",
             'approximate="tanh"', 'approximate="none"',
             "test_mlp.py::test_tanh_gelu", 3),
    # Chapter 4: attention
    Mutation("queries not normalised", "attention.py",
             'note("q_norm", self.q_norm(q))', 'note("q_norm", q)',
             "test_attention.py::test_queries_and_keys_are_normalised_per_head_before_the_rotation", 4),
    Mutation("key norm used for queries", "attention.py",
             'note("q_norm", self.q_norm(q))', 'note("q_norm", self.k_norm(q))',
             "test_attention.py::test_queries_and_keys_are_normalised_per_head_before_the_rotation", 4),
    Mutation("keys not rotated", "attention.py",
             'note("k_rot", rotate(k, cos, sin))', 'note("k_rot", k)',
             "test_attention.py::test_queries_and_keys_are_normalised_per_head_before_the_rotation", 4),
    Mutation("`repeat` for `repeat_interleave`, explicit", "core_attention.py",
             "K = k.shape[2]", "k, v = (x.repeat(1, 1, N // x.shape[2], 1) for x in (k, v))\n    K = N",
             "test_core_attention.py::test_neighbouring_query_heads_share_a_key_head", 4),
    Mutation("`repeat` for `repeat_interleave`, fast", "core_attention.py",
             "out = F.scaled_dot_product_attention(",
             "k, v = (x.repeat(1, 1, q.shape[2] // x.shape[2], 1) for x in (k, v))\n"
             "    out = F.scaled_dot_product_attention(",
             "test_core_attention.py::test_neighbouring_query_heads_share_a_key_head", 4),
    Mutation("scale from d_model / n_heads", "config.py",
             "(self.query_pre_attn_scalar or self.head_dim) ** -0.5", "(self.d_model / self.n_heads) ** -0.5",
             "test_attention.py::test_scale", None),
    # Chapter 5: the rotation
    Mutation("halves swapped in the rotation", "yarn.py",
             "first, second = x.chunk(2, dim=-1)", "second, first = x.chunk(2, dim=-1)",
             "test_yarn.py::test_half_split_pairs", 5),
    Mutation("rotation of interleaved pairs", "yarn.py",
             "first, second = x.chunk(2, dim=-1)", "first, second = x[..., 0::2], x[..., 1::2]",
             "test_yarn.py::test_half_split_pairs", 5),
    Mutation("attention factor lost on the cosine", "yarn.py",
             "angle.cos() * config.rope_multiplier", "angle.cos()",
             "test_yarn.py::test_attention_factor_grows_scores_by_its_square", 5),
    Mutation("attention factor lost", "config.py",
             "return 0.1 * math.log(self.rope_factor) + 1.0", "return 1.0",
             "test_yarn.py::test_attention_factor_grows_scores_by_its_square", 5),
    Mutation("ramp turned round", "yarn.py",
             "slowed * (1 - keep) + plain * keep", "slowed * keep + plain * (1 - keep)",
             "test_yarn.py::test_table_of_the_model", 5),
    Mutation("beta_fast and beta_slow swapped", "yarn.py",
             "return pair_turning(config.beta_fast), pair_turning(config.beta_slow)",
             "return pair_turning(config.beta_slow), pair_turning(config.beta_fast)",
             "test_yarn.py::test_correction_range", 5),
    Mutation("YaRN read but never used", "yarn.py",
             "keep = ramp(config)", "keep = torch.ones(config.head_dim // 2)",
             "test_yarn.py::test_table_of_the_model", 5),
    # Chapter 6: masks and core attention
    Mutation("causal mask off by one", "core_attention.py",
             "k_pos <= q_pos", "k_pos < q_pos",
             "test_core_attention.py::test_small_masks_by_hand", 6),
    Mutation("one block too few", "core_attention.py",
             "k_pos // block_size <= lookback", "k_pos // block_size < lookback",
             "test_core_attention.py::test_ones_per_row", 6),
    Mutation("a sliding window for the blocks", "core_attention.py",
             "q_pos // block_size - k_pos // block_size <= lookback", "q_pos - k_pos < (lookback + 1) * block_size",
             "test_core_attention.py::test_ones_per_row", 6),
    Mutation("segments ignored", "core_attention.py",
             "(q_seg == k_seg) & (k_seg != 0)", "(q_seg == q_seg) & (k_seg != 0)",
             "test_core_attention.py::test_two_documents_in_a_row", 6),
    Mutation("padding looks at itself", "core_attention.py",
             "(q_seg == k_seg) & (k_seg != 0)", "q_seg == k_seg",
             "test_core_attention.py::test_padding_attends_nothing_and_nothing_attends_to_it", 6),
    Mutation("scores not scaled", "core_attention.py",
             'torch.einsum("BTKGH,BSKH->BKGTS", grouped, k) * scale', 'torch.einsum("BTKGH,BSKH->BKGTS", grouped, k)',
             "test_core_attention.py::test_explicit_by_hand", 6),
    Mutation("blind rows not zeroed", "core_attention.py",
             "out.masked_fill(blind[..., None], 0)", "out",
             "test_core_attention.py::test_rows_with_nothing_to_look_at_give_zero", None),
    Mutation("fast form sees one block too few", "core_attention.py",
             "F.pad(own, (span - block_size, 0), value=True)", "F.pad(own, (span - block_size, 0), value=False)",
             "test_core_attention.py::test_plain_rows_agree", 6),
    # Chapter 7: cache, generation, counting
    Mutation("cache of C for 2C", "cache.py",
             '"local": min(self.max_length, config.local_span)', '"local": min(self.max_length, config.block_size)',
             "test_cache.py::test_23_tokens_in_pieces", 7),
    Mutation("positions restart behind a cache", "cache.py",
             "Rows.plain(self.batch, length, self.length,", "Rows.plain(self.batch, length, 0,",
             "test_cache.py::test_23_tokens_in_pieces", 7),
    Mutation("local layers drop a block too early", "cache.py",
             "(rows.start // C - lookback) * C", "(rows.start // C - lookback + 1) * C",
             "test_cache.py::test_a_local_layer_drops_a_whole_block_at_its_edge", 7),
    Mutation("the first position projected for the last", "model.py",
             "self.head(x[:, -1], note)", "self.head(x[:, 0], note)",
             "test_model.py::test_shapes", 7),
    Mutation("temperature multiplies", "generate.py",
             "/ temperature).softmax", "* temperature).softmax",
             "test_generate.py::test_temperature_divides_the_logits", None),
    Mutation("end tokens ignored", "generate.py",
             "done |= torch.isin(new, ends)", "pass",
             "test_generate.py::test_stops_only_when_all_are_done", None),
    Mutation("factor 3 for 6 in training FLOPs", "accounting.py",
             "return 3 * matmul_flops(config, count)", "return 3 * weights_for_6n(config, count)",
             "test_accounting.py::test_matmul_flops_a_token_of_the_followed_model", 7),
    Mutation("keys counted and values forgotten", "accounting.py",
             "return 2 * config.n_kv_heads * config.head_dim * bytes_per_element",
             "return config.n_kv_heads * config.head_dim * bytes_per_element",
             "test_accounting.py::test_cache_bytes_a_token", 7),
]
# fmt: on


def source(mutation: Mutation) -> str:
    """The unbroken text of the file that the mutation is about."""
    return (ROOT / "src" / "rnj" / mutation.file).read_text(encoding="utf-8")


@contextmanager
def package(mutation: Mutation | None) -> Iterator[Path]:
    """A folder for PYTHONPATH with a copy of the package, broken by the mutation if there is one."""
    with tempfile.TemporaryDirectory(prefix="rnj-") as folder:
        copy = Path(folder) / "rnj"
        shutil.copytree(ROOT / "src" / "rnj", copy, ignore=shutil.ignore_patterns("__pycache__"))
        if mutation is not None:
            text = source(mutation)
            if text.count(mutation.old) != 1:
                raise SystemExit(f"{mutation.name}: {mutation.old!r} must stand once in {mutation.file}")
            (copy / mutation.file).write_text(text.replace(mutation.old, mutation.new), encoding="utf-8")
        yield Path(folder)


def _run_tests(folder: Path, tests: list[str]) -> None:
    """In a process of its own: import the package from the folder, run the tests, exit with pytest's code."""
    sys.stdout = sys.stderr = open(folder / "output.txt", "w", encoding="utf-8")  # noqa: SIM115
    sys.path.insert(0, str(folder))
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # none is needed here, and some load for seconds
    os.chdir(ROOT)
    import rnj

    assert Path(rnj.__file__).is_relative_to(folder), f"the tests would run on {rnj.__file__}"
    import pytest

    options = ["-q", "-x", "--tb=line", "-p", "no:cacheprovider"]
    code = pytest.main([*options, *(f"tests/{test}" for test in tests)])
    sys.stdout.flush()
    os._exit(int(code))


def tests_pass(mutation: Mutation | None, tests: list[str]) -> tuple[bool, str]:
    """Whether the tests are green on the (broken) copy, and their output. A forked process saves importing torch."""
    with package(mutation) as folder:
        process = multiprocessing.get_context("fork").Process(target=_run_tests, args=(folder, tests))
        process.start()
        process.join()
        output = (folder / "output.txt").read_text(encoding="utf-8")
    if process.exitcode not in (0, 1):  # 1: tests failed; anything else: they could not run
        raise SystemExit(f"the tests {tests} did not run (exit code {process.exitcode}):\n{output}")
    return process.exitcode == 0, output


def chapter_passes(mutation: Mutation | None, chapter: int) -> tuple[bool, str]:
    """Whether the chapter's notebook runs through on the (broken) copy, and the error's last line."""
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, DeadKernelError

    (path,) = (ROOT / "book").glob(f"{chapter:02}_*.ipynb")
    notebook = nbformat.read(path, as_version=4)
    with package(mutation) as folder:
        check = f"import rnj; assert rnj.__file__.startswith({str(folder)!r}), rnj.__file__"
        notebook.cells.insert(0, nbformat.v4.new_code_cell(check))
        client = NotebookClient(notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": folder}})
        try:
            client.execute(env={**os.environ, "PYTHONPATH": str(folder)})
        except CellExecutionError as error:
            return False, f"{error.ename}: {error.evalue.strip().splitlines()[0] if error.evalue.strip() else ''}"
        except DeadKernelError as error:
            raise SystemExit(f"the kernel of {path.name} died: {error}") from None
    return True, ""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("word", nargs="?", default="", help="only faults with this word in their name")
    parser.add_argument("--chapters", action="store_true", help="run the chapters' notebooks as well (minutes)")
    options = parser.parse_args(arguments)
    chosen = [mutation for mutation in MUTATIONS if options.word in mutation.name]
    if not chosen:
        parser.error(f"no fault has {options.word!r} in its name")

    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch  # noqa: F401 - imported once here, so that the forked processes need not

    green, output = tests_pass(None, sorted({mutation.test for mutation in chosen}))
    if not green:
        raise SystemExit(f"the tests must be green before anything is broken:\n{output}")
    chapters = sorted({mutation.chapter for mutation in chosen if mutation.chapter}) if options.chapters else []
    for chapter in chapters:
        green, error = chapter_passes(None, chapter)
        if not green:
            raise SystemExit(f"chapter {chapter} must be green before anything is broken: {error}")

    survivors = 0
    for mutation in chosen:
        start = time.perf_counter()
        green, _ = tests_pass(mutation, [mutation.test])
        told = [f"{'GREEN' if green else 'red'}  {mutation.test}"]
        survivors += green
        if mutation.chapter in chapters:
            green, error = chapter_passes(mutation, mutation.chapter)
            told.append(f"{'GREEN' if green else 'red'}  chapter {mutation.chapter}  {error}")
            survivors += green
        print(f"{mutation.name:<48} {time.perf_counter() - start:5.1f} s  {'  |  '.join(told)}", flush=True)
    print(f"{len(chosen)} faults, {survivors} not noticed")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
