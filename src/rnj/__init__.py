"""The life of a token: a modern dense transformer, Rnj 1.5, small enough to read."""

from rnj.cache import CacheFull, KVCache
from rnj.config import RNJ_1_5, SMALL, TINY, Config, ConfigError, config_dict, read_config
from rnj.generate import fill_in_the_middle, generate, probabilities
from rnj.model import Block, Transformer, build, loss, meta
from rnj.weights import WeightsError, load, save

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
    "WeightsError",
    "build",
    "config_dict",
    "fill_in_the_middle",
    "generate",
    "load",
    "loss",
    "meta",
    "probabilities",
    "read_config",
    "save",
]
