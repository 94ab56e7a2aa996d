"""Draw the figures of these pages: `python docs/figures.py` (three minutes on one core).

One function per figure, each from a real computation. Colors are the colorblind-safe palette of Okabe and Ito.
"""

import argparse
import io
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray
from PIL import Image
from torch import nn
from torch.nn.functional import mse_loss

import nestcode as nc
from nestcode.arrays import Bytes, Floats
from nestcode.coders import Coder
from nestcode.demo import stream
from nestcode.demo.drawing import patches_figure
from nestcode.lengths import Empirical, Full, Geometric, LogUniform, Uniform
from nestcode.metrics import recall
from nestcode.nn import NestedLoss, OrderedAutoencoder, SemiLinearAutoencoder, keep_prefix, sample_lengths
from nestcode.report import BLUE, COLORS, GREEN, PURPLE, VERMILLION
from nestcode.search import asymmetric_distances
from nestcode.training import Run, Sweep, Training, errors_by_length, train

FOLDER = Path(__file__).parent


def nested_dropout() -> Figure:
    """Draw the masks of a training batch, and the error of prefixes."""
    X = torch.from_numpy(nc.data.digits()[0])
    training_set, test_set = X[:1500], X[1500:]
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.3))
    torch.manual_seed(0)
    kept = keep_prefix(torch.ones(24, 32), sample_lengths(LogUniform(), 24, 32))
    left.imshow(kept, cmap="Blues", vmin=0, vmax=1.3, aspect="auto", interpolation="nearest")
    left.set(title="Masks of one training batch", xlabel="unit", ylabel="example", yticks=())
    left.set_xticks([0, 7, 15, 23, 31], ["1", "8", "16", "24", "32"])
    lengths = list(range(1, 33))
    for name, chosen, color in (("ordinary", Empirical([1], lengths=[32]), VERMILLION), ("nested", LogUniform(), BLUE)):
        errors = _autoencoder_errors(training_set, test_set, chosen, lengths)
        right.plot(lengths, errors, color=color, linewidth=2, label=f"trained with {name} dropout"
                   if name == "nested" else "ordinary training")  # fmt: skip
    right.set(title="Test error after training", xlabel="units kept", ylabel="MSE of a pixel", yscale="log")
    right.grid(alpha=0.3, which="both")
    right.legend(frameon=False)
    return figure


def _autoencoder_errors(X: torch.Tensor, test: torch.Tensor, lengths: nc.lengths.Lengths, shown: list[int]) -> Floats:
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32))
    decoder = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 64))
    loss = NestedLoss(lambda code, image: mse_loss(decoder(code), image), lengths)
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=2e-3)
    for _ in range(120):
        for batch in torch.randperm(len(X)).split(100):
            optimizer.zero_grad()
            loss(encoder(X[batch]), X[batch]).backward()
            optimizer.step()
    with torch.no_grad():
        code = encoder(test)
        return np.array([mse_loss(decoder(keep_prefix(code, length)), test) for length in shown], dtype=np.float32)


def lengths() -> Figure:
    """Draw the survival function of four distributions."""
    width = 128
    chosen = {
        "Geometric(0.9), as in the paper": (Geometric(0.9), VERMILLION, "--"),
        "Uniform()": (Uniform(), GREEN, "-."),
        "LogUniform()": (LogUniform(), BLUE, "-"),
        "Empirical: 16, 64 or 128 bits": (Empirical([5, 3, 2], lengths=[16, 64, 128]), PURPLE, ":"),
    }
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    plain, close = figure.subplots(1, 2)
    for name, (distribution, color, style) in chosen.items():
        for axes in (plain, close):
            axes.plot(range(1, width + 1), distribution.survival(width), style, color=color, linewidth=2, label=name)
    plain.set(title="Probability that a unit is kept", xlabel="unit", ylabel="P(length ≥ unit)")
    close.set(title="The same, logarithmic", xlabel="unit", yscale="log", ylim=(1e-6, 1.5))
    for axes in (plain, close):
        axes.grid(alpha=0.3)
    figure.legend(*plain.get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    return figure


def ordered_bits() -> Figure:
    """Draw the direction that each bit of a linear coder refines, and digits by length."""
    X, _ = nc.data.digits()
    width, shown = 64, (0, 2, 4, 8, 16, 32, 64)
    codes = (coder := nc.LinearCoder(width=width).fit(X)).encode(X)
    decoded = [coder.decode(codes.prefix(length)) for length in range(width + 1)]
    figure = Figure(figsize=(9, 4), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.2, 1))
    _, directions = np.linalg.eigh(np.cov(X.T))
    moved = [np.abs((decoded[k + 1] - decoded[k]) @ directions[:, ::-1]).sum(axis=0) for k in range(width)]
    owners = np.argmax(moved, axis=1)
    depth = np.array([int((owners[: k + 1] == owners[k]).sum()) for k in range(width)])
    for nth, (name, color, marker) in enumerate(
        zip(("first", "second", "third", "fourth"), COLORS, "osD^", strict=True)
    ):
        mine = np.flatnonzero(depth == nth + 1)
        left.scatter(mine + 1, owners[mine] + 1, color=color, marker=marker, s=22, zorder=2, label=f"{name} bit")
    left.set(title="Direction refined by each bit", xlabel="bit", ylabel="principal direction")
    left.grid(alpha=0.3)
    left.legend(frameon=False)
    items = (0, 13, 36, 61, 5, 6, 7, 8)
    _grid(right, [[decoded[k][item] for k in shown] + [X[item]] for item in items], side=8)
    right.set_title("Digits decoded from the first bits")
    right.set_xticks(np.arange(len(shown) + 1) * 9 + 3.5, [*map(str, shown), "original"])
    return figure


def _grid(axes: Axes, rows: list[list[Floats]], side: int) -> None:
    """Draw small gray images in a grid."""
    sheet = np.ones((len(rows) * (side + 1) - 1, len(rows[0]) * (side + 1) - 1), dtype=np.float32)
    for i, row in enumerate(rows):
        for j, image in enumerate(row):
            y, x = i * (side + 1), j * (side + 1)
            sheet[y : y + side, x : x + side] = 1 - np.clip(image.reshape(side, side), 0, 1)
    axes.imshow(sheet, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    axes.tick_params(length=0)
    axes.set_yticks(())
    for spine in axes.spines.values():
        spine.set_visible(False)


def tree() -> Figure:
    """Draw digits in the tree of their codes, and the path of one query."""
    X, _ = nc.data.digits()
    base, query, deep = X[1:], X[0], 9
    coder = nc.LinearCoder(width=32).fit(base)
    index = nc.Index(coder)
    index.add(base)
    codes = coder.encode(base)
    in_order = codes[codes.sort_order()].bits()[:, :deep]
    way = coder.encode(query[None]).bits()[0]
    family = index.nested(query)
    figure = Figure(figsize=(9, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.4, 1))
    for length in range(deep + 1):
        heads = in_order[:, :length]
        cuts = np.flatnonzero((heads[1:] != heads[:-1]).any(axis=1)) + 1
        for first, last in zip([0, *cuts], [*cuts, len(base)], strict=True):
            on_way = bool((heads[first] == way[:length]).all())
            box = Rectangle((first, length), last - first, 0.9, facecolor=VERMILLION if on_way else "#cfd8dc",
                            edgecolor="white", linewidth=0.5)  # fmt: skip
            left.add_patch(box)
    left.set(xlim=(0, len(base)), ylim=(deep + 1, 0), xlabel="all digits, sorted by code", ylabel="length: bits shared")
    left.set(title="The prefix tree, and the path of one query")
    left.set_yticks(np.arange(deep + 1) + 0.45, [str(length) for length in range(deep + 1)])
    shown, rng = [0, 1, 2, 3, 4, 5, 6, 9], np.random.default_rng(0)
    members = [rng.permutation(family[length].ids)[:6] for length in shown]
    blank = np.zeros(64, dtype=np.float32)
    _grid(right, [[query, blank, *(base[item] for item in row), *[blank] * (6 - len(row))] for row in members], side=8)
    right.set_title("The query, and items that share …")
    names = [f"{length} bits, of {family.count[length]:,}" for length in shown]
    right.set_yticks(np.arange(len(shown)) * 9 + 3.5, names)
    right.set_xticks(())
    return figure


def pca_order() -> Figure:
    """Draw the units of an ordinary and of a nested linear autoencoder beside principal directions."""
    side, width = 12, 16
    cut = nc.data.patches(list(nc.data.sample_images().values()), size=side, n=10_000, rng=np.random.default_rng(0))
    X = cut.mean(axis=3).reshape(len(cut), -1) / np.float32(255)
    trained = {
        "ordinary": SemiLinearAutoencoder(width, lengths=Full()).fit(X, by="exact", steps=200),
        "nested": SemiLinearAutoencoder(width).fit(X, by="exact"),
    }
    units = {"principal": np.linalg.eigh(np.cov(X.T))[1][:, : -width - 1 : -1]}
    units |= {name: (w := one.decoder_weight.numpy()) / np.linalg.norm(w, axis=0) for name, one in trained.items()}
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    grid = figure.add_gridspec(2, 2, height_ratios=(1, 1.6))
    axes = figure.add_subplot(grid[0, :])
    rows = [[np.float32(0.5) - 2 * units[name][:, k].astype(np.float32) for k in range(width)]
            for name in ("ordinary", "nested", "principal")]  # fmt: skip
    for row in rows:  # the sign of a unit is arbitrary
        row[:] = [filter_ if filter_[:side].mean() > 0.5 else 1 - filter_ for filter_ in row]
    _grid(axes, rows, side=side)
    axes.set_title("Units 1 to 16 of patches of two images")
    axes.set_xticks(())
    axes.set_yticks(np.arange(3) * (side + 1) + side / 2 - 0.5, ["ordinary", "nested", "principal directions"])
    for place, name in enumerate(("ordinary", "nested")):
        axes = figure.add_subplot(grid[1, place])
        cosines = np.abs(units[name].T @ units["principal"])
        axes.imshow(cosines, cmap="Blues", vmin=0, vmax=1)
        axes.set(title=f"{name}: |cos| with each direction", xlabel="principal direction", ylabel="unit")
        axes.set_xticks([0, 7, 15], ["1", "8", "16"])
        axes.set_yticks([0, 7, 15], ["1", "8", "16"])
    return figure


def distortion() -> Figure:
    """Draw the error by length of several coders, and the bound of a Gaussian source."""
    width, shown = 256, [1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256]
    cut = nc.data.patches(list(nc.data.sample_images().values()), size=8, n=12_000, rng=np.random.default_rng(0))
    X = cut.mean(axis=3).reshape(len(cut), -1) / np.float32(255)
    X, test = X[:10_000], X[10_000:]
    variances, directions = np.linalg.eigh(np.cov(X.T))
    variances, directions = variances[::-1], directions[:, ::-1]
    units = (test - X.mean(axis=0)) @ directions
    decoded = np.sign(units) * np.abs((X - X.mean(axis=0)) @ directions).mean(axis=0)
    signs = [(units[:, k:] ** 2).sum() + ((units - decoded)[:, :k] ** 2).sum() for k in range(65)]
    figure = Figure(figsize=(6.5, 3.8), layout="constrained")
    axes = figure.subplots()
    axes.plot(shown[:7], np.array(signs)[shown[:7]] / test.size, "--", color=VERMILLION, label="sign of each component")
    for coder, color, style in (
        (nc.LinearCoder(width), GREEN, "-."),
        (nc.ResidualCoder(width), PURPLE, ":"),
        (nc.AdaptiveCoder(width), BLUE, "-"),
    ):
        codes = coder.fit(X).encode(test)
        errors = [nc.metrics.distortion(test, coder.decode(codes.prefix(length))) for length in shown]
        axes.plot(shown, errors, style, marker="o", markersize=3, color=color, label=type(coder).__name__)
    levels = np.geomspace(variances[0], 1e-7, 400)  # reverse water-filling
    rates = [np.log2(np.maximum(variances / level, 1)).sum() / 2 for level in levels]
    bound = [np.minimum(variances, level).sum() / 64 for level in levels]
    axes.plot(rates, bound, color="#888888", linewidth=1, label="bound of a Gaussian source")
    axes.set(xscale="log", yscale="log", xlim=(1, 256), ylim=(1e-4, 0.1), xlabel="length: bits per patch",
             ylabel="MSE of a pixel", title="New patches of 8 x 8 pixels, decoded from prefixes")  # fmt: skip
    axes.set_xticks(ticks := [1, 4, 16, 64, 256], [str(tick) for tick in ticks])
    axes.grid(alpha=0.3, which="both")
    axes.legend(frameon=False, fontsize=9)
    return figure


def asymmetric_ranking() -> Figure:
    """Draw the recall of three distances on the same codes."""
    cut = nc.data.patches(list(nc.data.sample_images().values()), size=8, n=10_200, rng=np.random.default_rng(0))
    X = cut.reshape(len(cut), -1) / np.float32(255)
    base, queries = X[:-200], X[-200:]
    coder = nc.LinearCoder(width=256).fit(base)
    items, asked = coder.encode(base), coder.encode(queries)
    true = _nearest(((queries[:, None, :] - base[None]) ** 2).sum(axis=2), 10)
    lengths = [8, 16, 32, 64, 96, 128, 192, 256]
    measures: dict[str, tuple[Callable[[int], NDArray[Any]], str, str]] = {
        "asymmetric distance (ADC)": (lambda k: asymmetric_distances(coder, queries, items.prefix(k)), BLUE, "-"),
        "Hamming distance": (lambda k: asked.prefix(k).hamming(items.prefix(k)), VERMILLION, "--"),
        "common prefix": (lambda k: -asked.prefix(k).common_prefix(items.prefix(k)), GREEN, "-."),
    }
    figure = Figure(figsize=(6.5, 3.6), layout="constrained")
    axes = figure.subplots()
    for name, (distances, color, style) in measures.items():
        found = [recall(_nearest(distances(k), 10), true) for k in lengths]
        axes.plot(lengths, found, style, marker="o", markersize=4, color=color, linewidth=2, label=name)
    axes.set(xlabel="length: bits per item", ylabel="recall@10", ylim=(0, 1))
    axes.set(title="10,000 patches of 8 x 8 pixels, exhaustive search")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    return figure


def _nearest(distances: NDArray[Any], k: int) -> NDArray[np.int64]:
    """Return the columns of the k smallest values of each row, ties in random order, so that none is favored."""
    order = np.random.default_rng(0).permutation(distances.shape[1])
    nearest: NDArray[np.int64] = order[np.argsort(distances[:, order], axis=1, kind="stable")[:, :k]]
    return nearest


def unit_sweeping() -> Figure:
    """Draw errors by length with and without sweeping, for geometric lengths."""
    X, _ = nc.data.digits()
    shown = [1, 2, 4, 8, 12, 16, 24, 32, 40, 48]
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(range(1, 49), Geometric(0.8).survival(48), "--", color=VERMILLION, linewidth=2, label="no units frozen")
    for frozen, color, style in ((8, GREEN, "-."), (24, BLUE, "-")):
        kept = nc.lengths.Beyond(Geometric(0.8), frozen).survival(48)
        left.plot(range(1, 49), kept, style, color=color, linewidth=2, label=f"{frozen} units frozen")
    left.set(
        title="Probability that a unit is kept",
        xlabel="unit",
        ylabel="P(length ≥ unit)",
        yscale="log",
        ylim=(1e-5, 1.6),
    )
    sweep = Sweep(after=0.25, blocks=48)
    for name, chosen, color, style in (("without", None, VERMILLION, "--"), ("with", sweep, BLUE, "-")):
        torch.manual_seed(0)
        network = OrderedAutoencoder(64, width=48, lengths=Geometric(0.8), binarize=nc.nn.Binarize(48, signed=True))
        training = Training(steps=2000, batch_size=250, sweep=chosen, schedule="constant")
        train(network, X[:1500], training, Run(progress=False, report_every=10**9))
        errors = errors_by_length(network, torch.from_numpy(X[1500:]), shown)
        right.plot(shown, errors, style, marker="o", markersize=4, color=color, linewidth=2, label=f"{name} sweeping")
    right.set(title="Test error after training", xlabel="bits kept", ylabel="MSE of a pixel")
    for axes in (left, right):
        axes.grid(alpha=0.3, which="both")
        axes.legend(frameon=False)
    return figure


def streams() -> Figure:
    """Draw the layout of a stream, and digits decoded from its prefixes."""
    X, _ = nc.data.digits()
    coder = nc.LinearCoder(width=192).fit(X)
    data = nc.compress(X, coder)
    header = nc.stream_info(data).header_bytes
    cuts = [header, 2_000, 8_000, 14_000, 28_000, len(data)]
    figure = Figure(figsize=(9, 4.4), layout="constrained")
    top, bottom = figure.subplots(2, 1, height_ratios=(1, 2.6))
    span = (len(data) - header) / 3
    for group, color in enumerate((BLUE, "#56B4E9", "#A6D8F5")):
        top.add_patch(Rectangle((header + group * span, 0), span, 1, facecolor=color, edgecolor="white"))
        top.text(header + (group + 0.5) * span, 0.5, f"bits {64 * group}–{64 * group + 63} of every digit", ha="center",
                 va="center", color="black" if group else "white", bbox={"color": color}, zorder=3)  # fmt: skip
    top.add_patch(Rectangle((0, 0), header, 1, facecolor="black"))
    for cut in cuts:
        top.axvline(cut, color=VERMILLION, linewidth=2, clip_on=False)
    top.set(xlim=(0, len(data)), ylim=(0, 1), title="One stream of 1,797 digits, truncated at six positions (orange)")
    top.set_yticks(())
    top.set_xticks(cuts[1:], [f"{cut:,}" for cut in cuts[1:]])
    decoded = [nc.decompress(data[:cut], coder) for cut in cuts]
    _grid(bottom, [[part[item] for item in range(0, 1797, 90)] for part in decoded], side=8)
    bottom.set_title("Twenty of the digits, decoded from each prefix")
    bottom.set_xticks(())
    bottom.set_yticks(np.arange(len(cuts)) * 9 + 3.5, ["header only", *(f"{cut:,} bytes" for cut in cuts[1:])])
    return figure


def search_images() -> Figure:
    """Draw the results of the image tutorial."""
    cut = nc.data.patches(list(nc.data.sample_images().values()), size=12, n=8_000, rng=np.random.default_rng(0))
    X = cut.reshape(len(cut), -1) / np.float32(255)
    base, queries = X[:-100], X[-100:]
    index = nc.Index(nc.fit(base, width=256))
    index.add(base)
    contrast = queries.reshape(-1, 144, 3).mean(axis=2).std(axis=1)
    busy = queries[np.argsort(contrast)[-25:]]
    chosen = busy[np.argsort(busy.reshape(-1, 144, 3).mean(axis=1) @ [1, 0, -1])[[1, 7, 13, 19, 24]]]  # blue to red
    figure = Figure(figsize=(8, 3.4), layout="constrained")
    results = {"codes of 32 bytes": index.search(chosen, k=5),
               "codes, reranked by pixels": index.search(chosen, k=5, vectors=base)}  # fmt: skip
    for axes, (name, hits) in zip(figure.subplots(1, 2), results.items(), strict=True):
        sheet = np.ones((5 * 13 - 1, 6 * 13 + 8, 3), dtype=np.float32)  # white at the right parts the panels
        for i in range(5):
            for j, row in enumerate([chosen[i], *base[hits.ids[i]]]):
                x = 13 * j + (3 if j else 0)
                sheet[13 * i : 13 * i + 12, x : x + 12] = row.reshape(12, 12, 3)
        axes.imshow(sheet, interpolation="nearest")
        axes.set_title(f"Nearest by {name}", fontsize=11, pad=14)
        axes.text(5.5, -2, "query", ha="center", fontsize=9, color=VERMILLION)
        axes.text(15, -2, "results", fontsize=9)
        axes.axis("off")
    return figure


def truncated_stream() -> Figure:
    """Draw one stream and one JPEG file, truncated at the same bytes."""
    cuts = (300, 900, 2_500, 7_500, 22_500)
    ours, theirs = stream.truncate_both(nc.data.sample_images()["china"], cuts)
    titles = [f"{cut:,} bytes" for cut in cuts]
    return image_strips(
        {"Nestcode": dict(zip(titles, ours, strict=True)), "progressive JPEG": dict(zip(titles, theirs, strict=True))}
    )


def image_strips(rows: dict[str, dict[str, Bytes]]) -> Figure:
    """Draw images side by side: titles above the first row, the name of each row on its left."""
    columns = len(next(iter(rows.values())))
    figure = Figure(figsize=(2.6 * columns, 1.95 * len(rows)), layout="constrained")
    grid = figure.subplots(len(rows), columns, squeeze=False)
    for place, (name, images) in enumerate(rows.items()):
        grid[place][0].set_ylabel(name, fontsize=10)
        for axes, (title, image) in zip(grid[place], images.items(), strict=True):
            axes.imshow(image)
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_visible(False)
            axes.set_title(title if place == 0 else "", fontsize=10)
    return figure


def deep_patches() -> Figure:
    """Draw patches of an image decoded by a linear coder and by a refined one."""
    side, lengths = 32, (32, 64, 128)
    images = list(nc.data.sample_images().values())
    cut = nc.data.patches(images, size=side, n=5000, rng=np.random.default_rng(2))
    X = cut.reshape(len(cut), -1).astype(np.float32) / np.float32(255)
    coders = {
        "linear": nc.LinearCoder(max(lengths)).fit(X),
        "refined": nc.load_coder(Path(__file__).parents[1] / "models" / "photos-small.coder"),
    }
    rows: list[dict[str, Callable[[Floats], Floats]]] = [
        {f"{name}, {length} bits per patch": partial(_decode_prefix, coder, side, length) for length in lengths}
        for name, coder in coders.items()
    ]
    return patches_figure(nc.data.sample_images()["china"][64:320, 128:448], side, rows)


def _decode_prefix(coder: Coder, side: int, length: int, rows: Floats) -> Floats:
    """Return rows of pixels, encoded and decoded; the refined coder takes them plane by plane."""
    if isinstance(coder, nc.LinearCoder):
        return coder.decode(coder.encode(rows).prefix(length))
    planes = rows.reshape(-1, side, side, 3).transpose(0, 3, 1, 2).reshape(len(rows), -1)
    decoded = coder.decode(coder.encode(planes).prefix(length))
    return decoded.reshape(-1, 3, side, side).transpose(0, 2, 3, 1).reshape(len(rows), -1)


FIGURES: dict[str, Callable[[], Figure]] = {
    "concepts/nested-dropout.png": nested_dropout,
    "concepts/lengths.png": lengths,
    "concepts/ordered-bits.png": ordered_bits,
    "concepts/tree.png": tree,
    "concepts/asymmetric-ranking.png": asymmetric_ranking,
    "concepts/unit-sweeping.png": unit_sweeping,
    "concepts/streams.png": streams,
    "tutorials/search-images.png": search_images,
    "pca-order.png": pca_order,
    "distortion.png": distortion,
    "stream.webp": truncated_stream,
    "deep.webp": deep_patches,
}


def _save(figure: Figure, path: Path) -> None:
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=160 if path.suffix == ".webp" else 110)
    image = Image.open(drawn).convert("RGB")
    if path.suffix == ".webp":  # natural images
        image.save(path, quality=85, method=6)
    else:  # a palette of 128 colors makes files a third as large without a visible difference
        image.quantize(128, dither=Image.Dither.NONE).save(path, optimize=True)


def main() -> None:
    """Draw all figures, or those whose names are given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"of figures: {', '.join(Path(name).stem for name in FIGURES)}")
    names = parser.parse_args().names
    for name, draw in FIGURES.items():
        if not names or Path(name).stem in names:
            _save(draw(), FOLDER / name)
            print(f"{FOLDER / name}: {(FOLDER / name).stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
