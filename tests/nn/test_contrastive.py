"""Contrastive losses and distillation against plain loops, and against those of sentence-transformers."""

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, cross_entropy

from nestcode.errors import InvalidInput
from nestcode.lengths import Empirical, LogUniform, Uniform
from nestcode.nn import (
    InfoNCE,
    MatryoshkaLoss,
    NestedLoss,
    NestedRankingLoss,
    PrefixDistillation,
    Temperature,
    keep_prefix,
)


def views(count: int = 2, n: int = 5, width: int = 6) -> Tensor:
    return torch.randn(count, n, width, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_a_temperature_is_log_linear_between_the_given_lengths() -> None:
    temperature = Temperature({4: 0.1, 1: 0.4, 64: 0.05})
    for length, expected in ((1, 0.4), (2, 0.2), (4, 0.1), (16, math.sqrt(0.1 * 0.05)), (64, 0.05), (900, 0.05)):
        for given in (length, torch.tensor(length)):
            assert float(temperature(given)) == pytest.approx(expected, rel=1e-5)
    temperature(2).backward()  # learned: both neighbors get half of its gradient, in logarithms
    grad = temperature.logarithms.grad
    assert grad is not None
    assert grad.tolist() == pytest.approx([0.1, 0.1, 0], rel=1e-5)
    assert not Temperature({1: 0.1}, learned=False).logarithms.requires_grad
    assert float(Temperature({8: 1e-9})(3)) == pytest.approx(0.01)


@pytest.mark.parametrize("count", [2, 4])
def test_info_nce_finds_the_positive_among_all(count: int) -> None:
    code = views(count)
    losses = []
    for query in range(5):  # similarity by similarity
        keys = code[1:].reshape(-1, 6)
        similarity = torch.stack([cosine_similarity(code[0, query], key, dim=0) for key in keys]) / 0.2
        losses.append(similarity.exp().sum().log() - similarity[query])
    torch.testing.assert_close(InfoNCE(0.2)(code), torch.stack(losses).mean())


def test_each_length_has_its_temperature() -> None:
    temperature = Temperature({1: 0.5, 6: 0.05}, learned=False)
    nested = NestedLoss(InfoNCE(temperature), Empirical([1, 2], lengths=[2, 6]), draws=None)
    code = views()
    short, full = InfoNCE(float(temperature(2)))(code[:, :, :2]), InfoNCE(0.05)(code)
    torch.testing.assert_close(nested(code), short / 3 + full * 2 / 3)
    drawn = NestedLoss(InfoNCE(temperature), Empirical([0, 1]), together=True)
    torch.testing.assert_close(drawn(code), short)


def test_distillation_is_the_divergence_of_neighbors() -> None:
    code, teacher = views()
    total = torch.zeros((), dtype=torch.float64)
    for i in range(5):
        others = [j for j in range(5) if j != i]
        wanted, found = (
            torch.stack([cosine_similarity(rows[i], rows[j], dim=0) for j in others]).div(t).softmax(dim=0)
            for rows, t in ((teacher, 0.1), (code, 0.3))
        )
        total += (wanted * (wanted / found).log()).sum() / 5
    distill = PrefixDistillation(temperature=0.3, teacher_temperature=0.1)
    torch.testing.assert_close(distill(code, teacher).double(), total, rtol=1e-5, atol=1e-6)
    code.requires_grad_()
    teacher.requires_grad_()
    NestedLoss(PrefixDistillation(), Uniform(), together=True)(code, teacher).backward()
    assert code.grad is not None
    assert teacher.grad is None


def test_long_prefixes_teach_short_ones() -> None:
    torch.manual_seed(0)
    X = torch.randn(64, 12)
    mixing = torch.nn.Linear(12, 12, bias=False)
    loss = NestedLoss(PrefixDistillation(0.3, 0.3), LogUniform(), together=True, draws=2)
    optimizer = torch.optim.Adam(mixing.parameters(), lr=0.02)

    def error() -> float:
        return float(NestedLoss(PrefixDistillation(0.3, 0.3), Uniform(), draws=None)(mixing(X), X))

    before = error()
    for _ in range(60):
        optimizer.zero_grad()
        loss(mixing(X), X).backward()
        optimizer.step()
    assert error() < 0.8 * before


def test_matryoshka_is_the_weighted_sum_over_its_lengths() -> None:
    code, labels = views()[0].requires_grad_(), torch.tensor([0, 1, 2, 3, 0])
    weight = views(1, 4)[0]
    ours = MatryoshkaLoss(lambda code, label: cross_entropy(code @ weight.T, label), [2, 3, 6], [1.0, 0.5, 2.0])
    plain = sum(c * cross_entropy(code[:, :m] @ weight[:, :m].T, labels) for m, c in ((2, 1.0), (3, 0.5), (6, 2.0)))
    assert isinstance(plain, Tensor)
    torch.testing.assert_close(ours(code, labels), plain)
    gradients = [torch.autograd.grad(loss, code)[0] for loss in (ours(code, labels), plain)]
    torch.testing.assert_close(*gradients)


# With sentence-transformers itself, on an embedding of words.


@pytest.fixture(scope="module")
def text_model() -> Any:
    package = pytest.importorskip("sentence_transformers")
    modules = pytest.importorskip("sentence_transformers.sentence_transformer.modules")
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = ["a", "the", "red", "blue", "cat", "dog", "sleeps", "runs", "far", "fast"]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(["[UNK]", *words])}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    torch.manual_seed(0)
    static = modules.StaticEmbedding(tokenizer, embedding_dim=16)
    return package.SentenceTransformer(modules=[static], device="cpu")


@pytest.fixture
def columns(text_model: Any) -> list[dict[str, Tensor]]:
    texts = [["the red cat", "a dog", "runs far"], ["a cat", "the blue dog", "runs fast"], ["far", "red", "a the"]]
    return [text_model.tokenize(column) for column in texts]


pytestmark = pytest.mark.filterwarnings("ignore")  # of sentence-transformers


@pytest.mark.parametrize("used", [2, 3])
def test_it_equals_the_losses_of_sentence_transformers(text_model: Any, columns: list[Any], used: int) -> None:
    from sentence_transformers import losses

    theirs = losses.MultipleNegativesRankingLoss(text_model)
    plain = NestedRankingLoss(text_model, Empirical([1], lengths=[16]), draws=None)
    torch.testing.assert_close(plain(columns[:used]), theirs(columns[:used], None))
    dims = [16, 8, 2]
    matryoshka = losses.MatryoshkaLoss(text_model, theirs, dims, matryoshka_weights=[1, 2, 4])
    ours = NestedRankingLoss(text_model, Empirical([1, 2, 4], lengths=dims), draws=None)
    torch.testing.assert_close(7 * ours(columns[:used]), matryoshka(columns[:used], None))
    embedded = torch.stack([text_model(dict(column))["sentence_embedding"] for column in columns[:used]])
    torch.testing.assert_close(
        MatryoshkaLoss(InfoNCE(0.05), dims, [1, 2, 4])(embedded), matryoshka(columns[:used], None)
    )


def test_the_trainer_takes_it(text_model: Any, tmp_path: Any) -> None:
    pytest.importorskip("accelerate", reason="the trainer of sentence-transformers needs it")
    datasets = pytest.importorskip("datasets", reason="the trainer of sentence-transformers needs it")
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments

    data = datasets.Dataset.from_dict({"anchor": ["the red cat", "a dog"] * 4, "positive": ["a cat", "the dog"] * 4})
    before = [parameter.clone() for parameter in text_model.parameters()]
    arguments = SentenceTransformerTrainingArguments(
        str(tmp_path), max_steps=2, per_device_train_batch_size=4, learning_rate=0.1, report_to=[], use_cpu=True,
        save_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    loss = NestedRankingLoss(text_model)
    SentenceTransformerTrainer(text_model, arguments, train_dataset=data, loss=loss).train()
    assert any(not torch.equal(a, b) for a, b in zip(before, text_model.parameters(), strict=True))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's compiler warns of PyTorch
def test_a_temperature_compiles_without_graph_breaks() -> None:
    torch._dynamo.reset()
    temperature = Temperature({1: 0.4, 16: 0.1})
    compiled = torch.compile(temperature, fullgraph=True, backend="eager")
    for length in (1, 3, 16, 40):
        assert torch.equal(compiled(torch.tensor(length)), temperature(torch.tensor(length)))


MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "one view": (lambda: InfoNCE()(views()[0]), "views must be (2 or more, n, width): queries, positives, negatives"),
    "a length for each": (
        lambda: NestedLoss(InfoNCE(), Uniform())(views()),
        "all need one length, got 2: wrap the loss in NestedLoss(…, together=True)",
    ),
    "no temperature": (lambda: InfoNCE(0), "temperature must be above 0, or a Temperature, got 0"),
    "no temperatures": (lambda: Temperature({}), "at must give temperatures above 0 by length, got {}"),
    "another batch": (
        lambda: PrefixDistillation()(views()[0], views()[1, :4]),
        "of the same 3 or more examples, got shapes (5, 6) and (4, 6)",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named(mistake: str) -> None:
    call, message = MISTAKES[mistake]
    with pytest.raises(InvalidInput, match=re.escape(message)):
        call()


def test_masked_and_sliced_prefixes_are_alike() -> None:
    code = views()
    torch.testing.assert_close(InfoNCE()(keep_prefix(code, 3)), InfoNCE()(code[:, :, :3]))
