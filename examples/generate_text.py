"""Text from a Llama in a Hugging Face folder or a .gguf file; without a file, a tiny model with random
weights.

    python examples/generate_text.py [MODEL] [--prompt TEXT] [--count 64] [--temperature 0.8] [--top-p 0.95]
                                     [--bits 4] [--rounded 8] [--capacity 256] [--chunk 32] [--db my.db]

One compiled program reads the prompt in chunks, and another one writes one word at a time. This script keeps
the cache and draws the words. Text needs `pip install tokenizers` and the model's tokenizer.json
(`--tokenizer`); otherwise the prompt and the answer are word ids. `--trials N` searches for better kernels
first.
"""

import argparse
import time
from pathlib import Path

import numpy as np

import autotensor as at
from autotensor.models import llama

options = argparse.ArgumentParser()
options.add_argument("model", nargs="?", type=Path)
options.add_argument("--prompt", default="")
options.add_argument("--tokenizer", type=Path, help="a tokenizer.json; else the one in the model's folder")
options.add_argument("--count", type=int, default=64, help="words to write")
options.add_argument("--temperature", type=float, default=0.8, help="0: always the likeliest word")
options.add_argument("--top-p", type=float, default=0.95, help="share of the words drawn from")
options.add_argument("--seed", type=int, default=0)
options.add_argument("--bits", type=int, default=0, help="pack floats: 4 or 8")
options.add_argument("--rounded", type=int, default=0, help="round activations at packed weights: 8 or 16")
options.add_argument("--capacity", type=int, default=256, help="of the cache: prompt and answer together")
options.add_argument("--chunk", type=int, default=32)
options.add_argument("--trials", type=int, default=0)
options.add_argument("--db", default=None, help="tuning log; else your own")
asked = options.parse_args()
rng = np.random.default_rng(asked.seed)

if asked.model is None:
    size, weights = llama.LlamaSize(2, 64, 4, 2, 128, vocabulary=100), None
else:
    size, weights = llama.load(asked.model)
file = asked.tokenizer or (asked.model or Path()) / "tokenizer.json"
tokenizer = None
if file.is_file():
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise SystemExit(f"{file} needs the package tokenizers: pip install tokenizers.") from None

    tokenizer = Tokenizer.from_file(str(file))


def program(tokens):
    """The compiled program of one call, which reads this number of words after the cache."""
    graph = llama.build(
        1, weights, tokens=tokens, capacity=asked.capacity, size=size, bits=asked.bits, rounded=asked.rounded
    )
    return at.compile_model(graph, trials=asked.trials, db=asked.db)


def drawn(logits):
    """A word that is drawn by the logits [words]."""
    if asked.temperature == 0:
        return int(logits.argmax())
    order = np.argsort(-logits)
    shares = np.exp((logits[order] - logits[order[0]]) / asked.temperature)
    shares /= shares.sum()
    kept = np.searchsorted(np.cumsum(shares), asked.top_p) + 1
    return int(rng.choice(order[:kept], p=shares[:kept] / shares[:kept].sum()))


def read(words):
    """Reads words into the cache, in chunks while enough words are left. Returns the logits after the last
    word."""
    global place
    while words:
        n = asked.chunk if len(words) >= asked.chunk else 1
        logits, entry = programs[n](np.array([words[:n]]), np.array([place]), cache)
        llama.remember(cache, entry, place)
        place, words = place + n, words[n:]
    return logits[0, -1]


prompt = tokenizer.encode(asked.prompt).ids if tokenizer else [int(w) for w in asked.prompt.split()] or [1]
programs = {n: program(n) for n in {1, asked.chunk if len(prompt) >= asked.chunk else 1}}
cache, place = np.zeros(llama.cache_shape(1, asked.capacity, size), np.float32), 0
logits, written = read(prompt), []
begin = time.perf_counter()
while len(written) < asked.count and place < asked.capacity:
    written.append(drawn(logits))
    logits = read(written[-1:])
seconds = time.perf_counter() - begin
print(tokenizer.decode(prompt + written) if tokenizer else " ".join(map(str, prompt + written)))
print(f"{len(written)} words, {len(written) / seconds:.1f} a second")
