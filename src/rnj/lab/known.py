"""Models that are known by their papers and configs, beside those of rnj.accounting: the table of chapter 7."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rnj.accounting import KNOWN_MODELS, DenseModel, all_global, as_dense_model, known_model
from rnj.config import RNJ_1_5


@dataclass(frozen=True)
class EncoderDecoder(DenseModel):
    """The original Transformer: an encoder of n_encoder_layers, and n_layers of a decoder that also looks at it.

    A decoder layer has a second attention of the same size, with a norm of its own. Positions are computed, not
    learned; one table serves both embeddings and the head. With post-norm the last layer ends in a norm, so none
    follows. Attention has no biases, the MLP has them.
    """

    n_encoder_layers: int = 0

    def parameters(self) -> int:
        """Every learnable number."""
        d, norm = self.d_model, 2 * self.d_model  # a LayerNorm has a weight and a bias
        attention = 4 * d * self.n_heads * self.head_dim
        mlp = 2 * d * self.d_ff + self.d_ff + d
        encoder = self.n_encoder_layers * (attention + mlp + 2 * norm)
        decoder = self.n_layers * (2 * attention + mlp + 3 * norm)
        return self.vocab_size * d + encoder + decoder


# "about 37,000 tokens" of byte-pair encoding, shared by source and target; the paper counts 65 million parameters. It
# names no longest text: its context is given as 0.
TRANSFORMER_BASE = EncoderDecoder(
    *("Transformer base", 2017, 6, 512, 2048, 8, 8, 64, 37_000, 0, "Vaswani et al. 2017, table 3"),
    mlp_matrices=2,
    tied=True,
    norm_bias=True,
    n_encoder_layers=6,
)
TRANSFORMER_BASE_PUBLISHED = 65_000_000
GPT_2_XL = replace(
    known_model("GPT-2 small"), name="GPT-2 XL", n_layers=48, d_model=1600, d_ff=6400, n_heads=25, n_kv_heads=25
)
_RNJ_1 = replace(all_global(RNJ_1_5), rope_factor=4.0)  # the same shape, all layers global
RNJ = (
    as_dense_model(_RNJ_1, "Rnj 1.0", 2025, "its model card"),
    as_dense_model(RNJ_1_5, "Rnj 1.5", 2026, "chapter 1"),
)


def table() -> tuple[DenseModel, ...]:
    """All of them in the order of their years."""
    return tuple(sorted((TRANSFORMER_BASE, *KNOWN_MODELS, GPT_2_XL, *RNJ), key=lambda model: model.year))
