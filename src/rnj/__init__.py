"""The life of a token: a modern dense transformer, Rnj 1.5, small enough to read."""

from rnj.cache import CacheFull, KVCache
from rnj.config import RNJ_1_5, SMALL, TINY, Config, ConfigError, config_dict, read_config
from rnj.generate import fill_in_the_middle, generate, probabilities
from rnj.model import Block, Transformer, build, loss, meta

__all__ = [
    "RNJ_1_5",
    "SMALL",
    "TINY",
    "Block",
    "CacheFull",
    "Config",
    "ConfigError",
    "KVCache",
    "Transformer",
    "build",
    "config_dict",
    "fill_in_the_middle",
    "generate",
    "loss",
    "meta",
    "probabilities",
    "read_config",
]
