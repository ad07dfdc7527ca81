"""Facts that pages quote and that no cell computes: each with its source, and whether it is sure.

What the package computes (parameters, bytes, FLOPs, periods of the rotation, …) does not stand here, so that there is
one place for each number. The followed model's own values are read from RNJ_1_5; here stands how surely they are known.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rnj.config import RNJ_1_5

Value = int | float | str


@dataclass(frozen=True)
class Fact:
    """One quoted value. `sure` is False where the value is our choice until a published config says otherwise."""

    group: str  # one of GROUPS
    name: str  # unique
    value: Value
    unit: str
    source: str
    sure: bool = True


GROUPS = ("release", "model", "training run", "chip", "paper")

POST = "Gordić, Inside the Transformer: The Life of a Token"
CARD = "Rnj-1 model card"
VLLM = "vLLM, model_executor/models/rnj1.py"
VLLM_MASK = "vLLM, v1/attention/ops/triton_attention_helpers.py"
LLAMA_CPP = "llama.cpp, src/models/rnj1.cpp (Rnj 1.0)"
ARITHMETIC = "forced by the post's window of 160k and slowest period of 1.088 million positions"
OPEN = "not published: the default used here"
GPT_3 = "Brown et al. 2020, arXiv:2005.14165"
LLAMA_2 = "Touvron et al. 2023, arXiv:2307.09288, table 2"
LLAMA_3 = "Grattafiori et al. 2024, arXiv:2407.21783"
LLAMA_31_CARD = "Llama 3.1 model card"
V100 = "NVIDIA V100 data sheet"
A100 = "NVIDIA A100 data sheet"
H100 = "NVIDIA H100 architecture white paper, SXM5, without sparsity"
H200 = "NVIDIA H200 data sheet"

_RELEASE = (
    Fact("release", "Rnj 1.5, context window", "160k", "tokens", POST),
    Fact("release", "Rnj 1.5, RULER score", 79, "%", POST),
    Fact("release", "Rnj 1.5, context of that RULER score", "128k", "tokens", POST),
    Fact("release", "Rnj 1.0, context window", "32k", "tokens", POST),
    Fact("release", "Rnj 1.0, YaRN factor", 4, "", LLAMA_CPP),
    Fact("release", "Rnj 1.0, layers", "all global", "", CARD),
    Fact("release", "Rnj 1.0, pre-training tokens", 8.4e12, "tokens", CARD),
    Fact("release", "Rnj 1.0, mid-training tokens for the longer context", 380e9, "tokens", CARD),
    Fact("release", "Rnj 1.0, fine-tuning tokens", 150e9, "tokens", CARD),
)

_MODEL = (
    Fact("model", "layers, L", RNJ_1_5.n_layers, "", CARD),
    Fact("model", "width of the residual stream, D", RNJ_1_5.d_model, "", CARD),
    Fact("model", "width of the MLP, F", RNJ_1_5.d_ff, "", CARD),
    Fact("model", "query heads, N", RNJ_1_5.n_heads, "", CARD),
    Fact("model", "KV heads, K", RNJ_1_5.n_kv_heads, "", CARD),
    Fact("model", "width of a head, H", RNJ_1_5.head_dim, "", CARD),
    Fact("model", "vocabulary, V", RNJ_1_5.vocab_size, "tokens", POST),
    Fact("model", "id of the first special token", RNJ_1_5.bos_id, "", CARD),
    Fact("model", "ids that end a generation", " and ".join(f"{i:,}" for i in RNJ_1_5.eos_ids), "", OPEN, sure=False),
    Fact("model", "id of the padding token", RNJ_1_5.pad_id, "", OPEN, sure=False),
    Fact("model", "head tied to the embedding", "yes", "", CARD),
    Fact("model", "embedding scaled by the root of D", "yes", "", VLLM),
    Fact("model", "RMSNorm multiplies by 1 + weight", "yes", "", VLLM),
    Fact("model", "RMSNorm, eps", RNJ_1_5.norm_eps, "", OPEN, sure=False),
    Fact("model", "norms in a block", 4, "of width D", VLLM),
    Fact("model", "gate's activation", "GELU, tanh form", "", VLLM),
    Fact("model", "queries and keys normalised per head, before the rotation", "yes", "", VLLM),
    Fact("model", "query_pre_attn_scalar", RNJ_1_5.query_pre_attn_scalar or RNJ_1_5.head_dim, "", OPEN, sure=False),
    Fact("model", "rotated pairs", "half-split: i and i + H/2", "", VLLM),
    Fact("model", "rotation, theta", int(RNJ_1_5.rope_theta), "", ARITHMETIC),
    Fact("model", "YaRN factor", int(RNJ_1_5.rope_factor), "", ARITHMETIC),
    Fact("model", "YaRN, original length", RNJ_1_5.original_max_positions, "tokens", CARD),
    Fact("model", "YaRN, beta_fast", int(RNJ_1_5.beta_fast), "", OPEN, sure=False),
    Fact("model", "YaRN, beta_slow", int(RNJ_1_5.beta_slow), "", OPEN, sure=False),
    Fact("model", "YaRN, ends of the ramp rounded", "yes" if RNJ_1_5.truncate else "no", "", OPEN, sure=False),
    Fact("model", "YaRN, attention factor", "0.1 · ln(factor) + 1", "", OPEN, sure=False),
    Fact("model", "block of a local layer, C", RNJ_1_5.block_size, "tokens", VLLM_MASK),
    Fact("model", "earlier blocks that a local layer sees", RNJ_1_5.lookback, "", VLLM_MASK),
    Fact("model", "local layers", RNJ_1_5.layer_types.count("local"), "", POST),
    Fact("model", "global layers", RNJ_1_5.layer_types.count("global"), "", POST),
    Fact("model", "order of local and global layers", "every fourth is global", "", OPEN, sure=False),
    Fact("model", "blocks of packed documents counted from", "the document's start", "", OPEN, sure=False),
    Fact("model", "soft cap of the logits", int(RNJ_1_5.final_logit_softcap or 0), "", LLAMA_CPP, sure=False),
)

_TRAINING = (
    Fact("training run", "GPT-3 175B, tokens", 300e9, "tokens", GPT_3),
    Fact("training run", "GPT-3 175B, training compute as published", 3640, "PF-days", GPT_3 + ", table D.1"),
    Fact("training run", "GPT-3 175B, training FLOPs as published", 3.14e23, "FLOPs", GPT_3 + ", table D.1"),
    Fact("training run", "Llama 2 7B, tokens", 2e12, "tokens", LLAMA_2),
    Fact("training run", "Llama 2 7B, GPU-hours", 184_320, "A100-hours", LLAMA_2),
    Fact("training run", "Llama 2 70B, tokens", 2e12, "tokens", LLAMA_2),
    Fact("training run", "Llama 2 70B, GPU-hours", 1_720_320, "A100-hours", LLAMA_2),
    Fact("training run", "Llama 3.1 405B, tokens", 15.6e12, "tokens", LLAMA_3),
    Fact("training run", "Llama 3.1 405B, GPU-hours", 30.84e6, "H100-hours", LLAMA_31_CARD),
    Fact("training run", "Llama 3.1 405B, GPUs at most", 16_384, "H100", LLAMA_3 + ", table 4"),
    Fact("training run", "Llama 3.1 405B, training FLOPs as published", 3.8e25, "FLOPs", LLAMA_3),
    Fact("training run", "Llama 3.1 405B, steady-state MFU, lowest", 38, "%", LLAMA_3 + ", table 4"),
    Fact("training run", "Llama 3.1 405B, steady-state MFU, highest", 43, "%", LLAMA_3 + ", table 4"),
    Fact("training run", "Llama 3.1 405B, unexpected interruptions in 54 days", 419, "", LLAMA_3 + ", table 5"),
)

_CHIPS = (
    Fact("chip", "V100, dense float16 peak", 125e12, "FLOP/s", V100),
    Fact("chip", "A100, dense bfloat16 peak", 312e12, "FLOP/s", A100),
    Fact("chip", "H100, dense bfloat16 peak", 989.4e12, "FLOP/s", H100),
    Fact(
        "chip",
        "H100, bfloat16 peak with sparsity (not the one to use)",
        1979e12,
        "FLOP/s",
        "NVIDIA H100 data sheet",
    ),
    Fact("chip", "A100, memory", 80, "GB", A100),
    Fact("chip", "H100, memory", 80, "GB", H100),
    Fact("chip", "H200, memory", 141, "GB", H200),
    Fact("chip", "A100, memory bandwidth", 2.039e12, "B/s", A100 + ", 80 GB SXM"),
    Fact("chip", "H100, memory bandwidth", 3.35e12, "B/s", "NVIDIA H100 data sheet, SXM"),
)

# Year of the first public version: of the arXiv number, where there is one.
_PAPERS = tuple(
    Fact("paper", name, year, "year", source)
    for name, year, source in (
        ("long short-term memory", 1997, "Hochreiter & Schmidhuber, Neural Computation 9(8)"),
        ("vanishing gradients in recurrent networks", 1994, "Bengio et al., IEEE Transactions on Neural Networks 5(2)"),
        ("mixture of experts", 2017, "Shazeer et al., arXiv:1701.06538"),
        ("AdamW", 2017, "Loshchilov and Hutter, arXiv:1711.05101"),
        ("Universal Transformers", 2018, "Dehghani et al., arXiv:1807.03819"),
        ("ALBERT", 2019, "Lan et al., arXiv:1909.11942"),
        ("ELECTRA", 2020, "Clark et al., arXiv:2003.10555"),
        ("linear attention", 2020, "Katharopoulos et al., arXiv:2006.16236"),
        ("Switch Transformers", 2021, "Fedus et al., arXiv:2101.03961"),
        ("objectives and architectures compared", 2022, "Wang et al., arXiv:2204.05832"),
        ("induction heads", 2022, "Olsson et al., arXiv:2209.11895"),
        ("multi-token prediction", 2024, "Gloeckle et al., arXiv:2404.19737"),
        ("ModernBERT", 2024, "Warner et al., arXiv:2412.13663"),
        ("DeepSeek-V3", 2024, "DeepSeek-AI, arXiv:2412.19437"),
        ("byte pair encoding for text", 2015, "Sennrich et al., arXiv:1508.07909"),
        ("residual connections", 2015, "He et al., arXiv:1512.03385"),
        ("LayerNorm", 2016, "Ba et al., arXiv:1607.06450"),
        ("GELU", 2016, "Hendrycks & Gimpel, arXiv:1606.08415"),
        ("GLU", 2016, "Dauphin et al., arXiv:1612.08083"),
        ("tied embedding and head", 2016, "Press & Wolf, arXiv:1608.05859"),
        ("the Transformer", 2017, "Vaswani et al., arXiv:1706.03762"),
        ("online softmax", 2018, "Milakov & Gimelshein, arXiv:1805.02867"),
        ("BERT", 2018, "Devlin et al., arXiv:1810.04805"),
        ("GPT-2", 2019, "Radford et al., Language Models are Unsupervised Multitask Learners"),
        ("nucleus sampling", 2019, "Holtzman et al., arXiv:1904.09751"),
        ("RMSNorm", 2019, "Zhang & Sennrich, arXiv:1910.07467"),
        ("T5", 2019, "Raffel et al., arXiv:1910.10683"),
        ("multi-query attention", 2019, "Shazeer, arXiv:1911.02150"),
        ("scaling laws", 2020, "Kaplan et al., arXiv:2001.08361"),
        ("pre-norm and post-norm compared", 2020, "Xiong et al., arXiv:2002.04745"),
        ("GeGLU and SwiGLU", 2020, "Shazeer, arXiv:2002.05202"),
        ("GPT-3", 2020, GPT_3),
        ("QK-norm", 2020, "Henry et al., arXiv:2010.04245"),
        ("the rotary embedding", 2021, "Su et al., arXiv:2104.09864"),
        ("FLOPs of large-scale training", 2021, "Narayanan et al., arXiv:2104.04473"),
        ("ALiBi", 2021, "Press et al., arXiv:2108.12409"),
        ("compute-optimal training", 2022, "Hoffmann et al., arXiv:2203.15556"),
        ("model FLOPs utilization", 2022, "Chowdhery et al., arXiv:2204.02311"),
        ("FlashAttention", 2022, "Dao et al., arXiv:2205.14135"),
        ("fill-in-the-middle", 2022, "Bavarian et al., arXiv:2207.14255"),
        ("grouped-query attention", 2023, "Ainslie et al., arXiv:2305.13245"),
        ("position interpolation", 2023, "Chen et al., arXiv:2306.15595"),
        ("Llama 2", 2023, "Touvron et al., arXiv:2307.09288"),
        ("YaRN", 2023, "Peng et al., arXiv:2309.00071"),
        ("RULER", 2024, "Hsieh et al., arXiv:2404.06654"),
        ("DeepSeek-V2 and MLA", 2024, "DeepSeek-AI, arXiv:2405.04434"),
        ("Llama 3", 2024, "Grattafiori et al., arXiv:2407.21783"),
        ("soft-capped logits in Gemma 2", 2024, "Gemma Team, arXiv:2408.00118"),
        ("Muon", 2024, "Jordan et al., kellerjordan.github.io/posts/muon"),
        ("Gemma 3", 2025, "Gemma Team, arXiv:2503.19786"),
        ("Qwen 3", 2025, "Yang et al., arXiv:2505.09388"),
        ("Kimi Linear", 2025, "Kimi Team, arXiv:2510.26692"),
        ("Rnj 1.0", 2025, "Essential AI, essential.ai/research/rnj-1"),
        ("DeepSeek-V3.2", 2025, "DeepSeek-AI, arXiv:2512.02556"),
        ("attention residuals", 2026, "Kimi Team, arXiv:2603.15031"),
    )
)


def facts(group: str | None = None) -> list[Fact]:
    """All facts, or those of one group; ValueError names the groups."""
    if group is not None and group not in GROUPS:
        raise ValueError(f"group must be one of {', '.join(GROUPS)}, not {group!r}")
    return [fact for fact in _RELEASE + _MODEL + _TRAINING + _CHIPS + _PAPERS if group in (None, fact.group)]


def value(name: str) -> Value:
    """The value of one fact by its name; ValueError where there is none."""
    for fact in facts():
        if fact.name == name:
            return fact.value
    raise ValueError(f"no fact is named {name!r}")


def number(name: str) -> float:
    """The same for a fact whose value is a number."""
    found = value(name)
    if isinstance(found, str):
        raise ValueError(f"the fact {name!r} is not a number but {found!r}")
    return found


def shown(fact: Fact) -> str:
    """Value and unit as a page writes them: 1,720,320 A100-hours; 15.6 trillion tokens; 989.4 TFLOP/s."""
    if fact.unit == "year":
        return str(fact.value)
    if isinstance(fact.value, str):
        text = fact.value
    elif fact.unit in ("FLOP/s", "B/s"):
        return f"{fact.value / 1e12:g} T{fact.unit}"
    elif fact.unit == "FLOPs":
        text = f"{fact.value:.3g}".replace("e+", "e")
    elif isinstance(fact.value, float) and fact.value >= 1e6:
        size, word = next(
            (s, w) for s, w in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")) if fact.value >= s
        )
        text = f"{fact.value / size:g} {word}"
    else:
        text = f"{fact.value:,}"
    return f"{text} %" if fact.unit == "%" else f"{text} {fact.unit}".strip()


def numbers() -> set[str]:
    """The numerals that a page may quote on the ground of this table, without thousands separators.

    Those in names, in values, and in values as `shown` writes them: "1720320", "30840000", "30.84", "989.4", "2017".
    """
    found: set[str] = set()
    for fact in facts():
        texts = [fact.name, shown(fact)]
        if not isinstance(fact.value, str) and fact.value < 1e15:
            texts.append(f"{fact.value:.0f}" if fact.value >= 1 else f"{fact.value}")
        for text in texts:
            found |= set(re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?:e-?\d+)?", text.replace(",", "")))
    return found


def table(group: str | None = None) -> str:
    """The facts as a Markdown table for a page."""
    lines = ["| what | value | how surely | source |", "|---|---|---|---|"]
    for fact in facts(group):
        lines.append(f"| {fact.name} | {shown(fact)} | {'sure' if fact.sure else 'open'} | {fact.source} |")
    return "\n".join(lines)
