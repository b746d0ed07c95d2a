"""Checks of the contracts in `counterfoil.parts.contracts`, for anyone who writes a part.

    from counterfoil.testing import check_generator
    check_generator(MyGenerator())

Each check raises AssertionError with a sentence that says what the contract wants. A part treats the rows of a batch
independently, up to rounding; with `exact=True` to the last bit, as long as the number of rows stays the same. The engine then
gives an image the same result whatever else is processed.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from counterfoil.core.errors import BadPart, RunFailed
from counterfoil.parts import calls
from counterfoil.parts import contracts as parts

ROWS, EXACT_ROWS = 4, 8  # of a batch; the latter is what the engine calls parts with on a CPU


def pictures(count: int = 4, size: int = 32, *, seed: int = 0) -> Tensor:
    """Smooth random images in the one image convention.  # (N, 3, size, size)"""
    coarse = torch.rand(count, 3, 4, 4, generator=torch.Generator().manual_seed(seed))
    smooth = torch.nn.functional.interpolate(coarse, size=(size, size), mode="bicubic", align_corners=False)
    return (smooth.clamp(0, 1) * 255).round() / 255


def check_model(model: parts.Model, *, size: int | None = None, exact: bool = False) -> None:
    """A classifier: named classes, finite logits row by row, gradients if it says it has them."""
    images = pictures(EXACT_ROWS if exact else ROWS, size or getattr(model, "size", None) or 32)
    assert isinstance(model, parts.Model), "a model has `classes`, `differentiable` and `logits(images)`"
    assert len(model.classes) >= 2, f"a model has at least two classes, got {list(model.classes)!r}"
    assert len(set(model.classes)) == len(model.classes), "class names are unique"
    given = images.clone()
    with torch.no_grad():
        logits = model.logits(given)
    assert torch.equal(given, images), "a model leaves the images it is given as they are"
    assert isinstance(logits, Tensor), f"logits are a tensor, got {type(logits).__name__}"
    expected = (len(images), len(model.classes))
    assert tuple(logits.shape) == expected, f"logits have shape {expected}, one column per class, got {tuple(logits.shape)}"
    assert torch.isfinite(logits).all(), "logits are finite"
    _check_rows(lambda rows: model.logits(images[rows]), "logits", exact=exact)
    if model.differentiable:
        leaf = images.clone().requires_grad_()
        answer = model.logits(leaf)
        assert answer.requires_grad, f"a differentiable model passes gradients, and this one {calls.NO_GRADIENT}"
        gradient = torch.autograd.grad(answer.sum(), leaf)[0]
        assert torch.isfinite(gradient).all() and gradient.abs().sum() > 0, (
            "a differentiable model passes gradients to the images"
        )
        _check_rows(lambda rows: _gradient(model, images[rows]), "gradients", exact=exact)


def check_generator(generator: parts.Generator, *, size: int | None = None, exact: bool = False) -> None:
    """A generator: row-wise states, images in range, steps that move the image and leave the old state alone."""
    images = pictures(EXACT_ROWS if exact else ROWS, size or generator.size or 32)
    labels, seeds = torch.zeros(len(images), dtype=torch.long), torch.arange(len(images))
    assert isinstance(generator, parts.Generator), "a generator has `moving`, `size`, `start`, `render` and `step`"
    with torch.no_grad():
        state = generator.start(images, labels, seeds)
        again = generator.start(images, labels, seeds)
    for name in (generator.moving, "scale"):
        assert name in state, f"the state has a tensor named {name!r}, got {sorted(state)}"
    for name, rows in state.items():
        assert len(rows) == len(images), f"state[{name!r}] has one row per image, got {len(rows)} for {len(images)}"
        assert torch.equal(rows, again[name]), f"state[{name!r}] comes from images, labels and seeds alone: the same again"
    assert state["scale"].shape == (len(images),) and (state["scale"] > 0).all(), "state['scale'] is one positive number per row"
    for name in state:
        start = lambda rows, name=name: generator.start(images[rows], labels[rows], seeds[rows])[name]  # noqa: E731
        _check_rows(start, f"state[{name!r}]", exact=exact)
    _check_rendering(generator, state, images, exact=exact)
    _check_step(generator, state, exact=exact)


def check_oracle(oracle: parts.Oracle, classes: list[str], *, size: int = 32, exact: bool = False) -> None:
    """An oracle: bound to classes, it gives a verdict, a score and a class for every image."""
    images = pictures(EXACT_ROWS if exact else ROWS, size)
    labels = torch.arange(len(images)) % len(classes)
    assert isinstance(oracle, parts.Oracle), "an oracle has `bind(classes)` and `judge(images, labels)`"
    bound = oracle.bind(classes)
    given = images.clone()
    try:
        calls.judge(bound, given, labels, len(classes), part="the oracle")
    except (BadPart, RunFailed) as error:
        raise AssertionError(str(error)) from error
    assert torch.equal(given, images), "an oracle leaves the images it is given as they are"
    _check_rows(lambda rows: bound.judge(images[rows], labels[rows]).scores, "scores", exact=exact)


def check_dataset(dataset: parts.Dataset, *, size: int = 16) -> None:
    """A data set: ids of their own in a fixed order, labels that are classes, images that load alike from any thread."""
    assert isinstance(dataset, parts.Dataset), "a data set has `classes`, `len()`, samples in turn and `load(sample, size)`"
    assert len(dataset.classes) >= 2, f"a data set has at least two classes, got {list(dataset.classes)!r}"
    assert len(set(dataset.classes)) == len(dataset.classes), "class names are unique"
    samples = list(dataset)
    assert len(samples) == len(dataset), f"`len()` is the number of samples, got {len(dataset)} for {len(samples)}"
    assert samples == list(dataset), "samples come in the same order every time"
    assert len({sample.image_id for sample in samples}) == len(samples), "every sample has an id of its own"
    assert all(0 <= sample.label < len(dataset.classes) for sample in samples), "labels are indices of the classes"
    few = samples[:: max(1, len(samples) // 8)]
    for sample in few:
        image = dataset.load(sample, None)
        assert image.ndim == 3 and len(image) == 3 and image.dtype == torch.float32, "an image is float32 of shape (3, H, W)"
        assert image.min() >= 0 and image.max() <= 1, "pixel values lie in [0, 1]"
    alone = [dataset.load(sample, size) for sample in few]
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(lambda sample: dataset.load(sample, size), few * 2))
    for image, first, second in zip(alone, together, together[len(few) :], strict=False):
        assert image.shape == (3, size, size), f"with a size given, images are square, got {tuple(image.shape)}"
        assert torch.equal(image, first) and torch.equal(image, second), "an image is the same however often it is loaded"
    reader = parts.reader_of(dataset)
    if reader is not None:
        assert pickle.dumps(reader), "a reader can be pickled, as it is sent to workers"
        same = all(torch.equal(image, reader.load(sample, size)) for image, sample in zip(alone, few, strict=True))
        assert same, "a reader reads the same images as its data set"


def check_captioner(captioner: parts.Captioner, *, size: int = 32, samples: list[parts.Sample] | None = None) -> None:
    """A captioner: a caption or a problem for every image, whatever its neighbours are."""
    asked = samples or [parts.Sample(str(number), 0, f"{number}.png", "a photo of a dog") for number in range(3)]
    images = pictures(len(asked), size)
    assert isinstance(captioner, parts.Captioner), "a captioner has `caption(images, samples)`"
    said = captioner.caption(images, asked)
    assert len(said) == len(asked), f"one caption per image, got {len(said)} for {len(asked)}"
    for caption in said:
        assert isinstance(caption, parts.Caption), f"captions are of the class Caption, got {type(caption).__name__}"
        assert caption.text.strip() or caption.problem, "a caption has a text, or a problem that says why not"
    assert captioner.caption(images[1:2], asked[1:2]) == said[1:2], "a caption depends on its own image alone"
    assert captioner.caption(images[:0], []) == [], "no images, no captions"


def check_rewriter(rewriter: parts.Rewriter, *, caption: str = "a photo of a red dog on a beach next to a ball") -> None:
    """A rewriter: an answer for every request, the same again whatever its neighbours are, and never an empty one."""
    from counterfoil.parts.language.caption_checks import REASONS
    from counterfoil.parts.language.grammar import FACTORS

    requests = [parts.RewriteRequest(caption, factor, seed=1) for factor in FACTORS]
    assert isinstance(rewriter, parts.Rewriter), "a rewriter has `rewrite(requests)`"
    found = rewriter.rewrite(requests)
    assert len(found) == len(requests), f"one answer per request, got {len(found)} for {len(requests)}"
    for answer in found:
        assert isinstance(answer, parts.Proposals), f"answers are of the class Proposals, got {type(answer).__name__}"
        assert answer.captions or answer.rejections, "an answer has captions, or a rejection that says why not"
        assert {each.reason for each in answer.rejections} <= set(REASONS), f"reasons are among {', '.join(REASONS)}"
    assert rewriter.rewrite(requests[2:3]) == found[2:3], "an answer depends on its own request alone"
    assert rewriter.rewrite([]) == [], "no requests, no answers"


def check_painter(
    painter: parts.Painter, *, prompts: Sequence[str] = ("a photo of a mug", "a photo of a sock"), exact: bool = False
) -> None:
    """A painter gives one image per prompt in [0, 1], from prompt and seed alone."""
    seeds = torch.arange(1, len(prompts) + 1)
    images = painter.paint(prompts, seeds)
    assert images.ndim == 4 and images.shape[:2] == (len(prompts), 3), f"paint gives (N, 3, H, W), got {tuple(images.shape)}"
    assert images.dtype == torch.float32 and bool(torch.isfinite(images).all()), "images are finite numbers of type float32"
    low, high = float(images.min()), float(images.max())
    assert low >= 0 and high <= 1, f"images lie in [0, 1], got {low:.3g} to {high:.3g}"
    alone = painter.paint(prompts[-1:], seeds[-1:])
    near = 0 if exact else 2 / 255
    assert torch.allclose(alone[0], images[-1], rtol=0, atol=near), (
        "an image depends on its prompt and seed alone, not on its batch"
    )
    assert torch.allclose(painter.paint(prompts, seeds), images, rtol=0, atol=near), (
        "the same prompts and seeds give the same images"
    )
    other = painter.paint(prompts[:1], seeds[:1] + 1000)
    assert not torch.equal(other[0], images[0]), "another seed gives another image"


def check_editor(
    editor: parts.Editor,
    *,
    caption: str = "a photo of a red dress on a beach",
    edited: str = "a photo of a blue dress on a beach",
    size: int | None = None,
    exact: bool = False,
) -> None:
    """An editor: inversions that can be written down, a candidate for every setting of the sweep, bad rows refused alone."""
    side = size or editor.size or 32
    images = pictures(2, side)
    assert isinstance(editor, parts.Editor), "an editor has `size`, `sweep`, `invert` and `edit`"
    assert len(editor.sweep) >= 1, "the sweep names at least one setting"
    inversions = editor.invert([images[0], torch.zeros(4, side, side), images[1]], [caption] * 3, [1, 2, 3])
    first, refused, last = inversions
    assert isinstance(refused, parts.Refusal) and refused.reason, "an image with an alpha channel is refused with a reason"
    assert isinstance(first, parts.Inversion) and isinstance(last, parts.Inversion), "the rows next to a refused one are answered"
    assert first.caption == caption, "an inversion keeps its caption"
    assert all(tensor.device.type == "cpu" for tensor in first.tensors.values()), "an inversion's tensors are on the CPU"
    changed, same, empty = editor.edit([first, last, last], [edited, edited, " "])
    assert isinstance(empty, parts.Refusal) and empty.reason, "an empty caption is refused with a reason"
    (alone,) = editor.edit([last], [edited])
    for made in (changed, same, alone):
        assert isinstance(made, parts.EditResult), f"a sound row is edited, got {made}"
        shape = (len(editor.sweep), 3, side, side)
        assert tuple(made.candidates.shape) == shape, f"candidates have shape {shape}, got {tuple(made.candidates.shape)}"
        assert tuple(made.reconstruction.shape) == shape[1:], "the reconstruction is one image"
        for picture in (made.candidates, made.reconstruction):
            assert picture.min() >= 0 and picture.max() <= 1, "images lie in [0, 1]"
    assert isinstance(same, parts.EditResult) and isinstance(alone, parts.EditResult)
    worst = (same.candidates - alone.candidates).abs().max().item()
    assert worst <= (0 if exact else 1e-4), f"edits treat rows independently: other rows changed one by {worst:.2g}"


def check_encoder(
    encoder: parts.Embedder, *, size: int = 32, texts: Sequence[str] = ("a photo of a mug", "a sock"), exact: bool = False
) -> None:
    """An encoder: images as rows of numbers, each from its image alone; words in the same space, or a refusal."""
    images = pictures(EXACT_ROWS if exact else ROWS, size)
    assert isinstance(encoder, parts.Embedder), "an encoder has `embed_images(images)` and `embed_texts(texts)`"
    with torch.no_grad():
        embedded = encoder.embed_images(images)
    assert embedded.ndim == 2 and len(embedded) == len(images), f"one row per image, got shape {tuple(embedded.shape)}"
    assert torch.isfinite(embedded).all() and embedded.std(0).sum() > 0, "embeddings are finite and tell images apart"
    _check_rows(lambda rows: encoder.embed_images(images[rows]), "embeddings", exact=exact)
    try:
        words = encoder.embed_texts(texts)
    except BadPart:
        return  # it knows no words, and says so
    expected = (len(texts), embedded.shape[1])
    assert tuple(words.shape) == expected, f"texts are embedded as images are: {expected}, got {tuple(words.shape)}"
    alone = encoder.embed_texts(texts[1:2])
    assert (alone - words[1:2]).abs().max() <= 1e-4 * words.abs().max(), "a text's embedding does not depend on its neighbours"
    if not hasattr(encoder, "logits"):
        return  # none that models and oracles are made of
    similarity = torch.tensor([[0.1, 0.2], [0.3, 0.0]])
    logits = encoder.logits(similarity)
    assert logits.shape == similarity.shape and bool((logits.argsort(1) == similarity.argsort(1)).all()), (
        "logits keep the order of the similarities"
    )


def check_chat(chat: parts.Chat, *, size: int = 32, question: str = "is the main object a boot or a bag ?") -> None:
    """A chat: an answer in words for every image and question, whatever its neighbours are."""
    images = list(pictures(3, size))
    assert isinstance(chat, parts.Chat), "a chat has `answer(images, questions)`"
    said = chat.answer(images, [question] * 3)
    assert len(said) == 3, f"one answer per image, got {len(said)} for 3"
    assert all(isinstance(text, str) for text in said), f"answers are text, got {[type(text).__name__ for text in said]}"
    assert chat.answer(images[1:2], [question]) == said[1:2], "an answer depends on its own image and question alone"
    assert chat.answer([], []) == [], "no images, no answers"


def _check_rendering(generator: parts.Generator, state: parts.State, images: Tensor, *, exact: bool) -> None:
    weights = pictures(len(images), images.shape[-1], seed=1)

    def render(rows: Tensor) -> tuple[Tensor, Tensor]:
        """The images of some rows, and the gradient of their weighted sum."""
        some = {name: values[rows] for name, values in state.items()}
        leaf = some[generator.moving].detach().clone().requires_grad_()
        with torch.enable_grad():
            rendered = generator.render({**some, generator.moving: leaf})
            return rendered, torch.autograd.grad((rendered * weights[rows]).sum(), leaf)[0]

    rendered, gradient = render(torch.arange(len(images)))
    assert rendered.shape == images.shape, f"render gives images of shape {tuple(images.shape)}, got {tuple(rendered.shape)}"
    assert rendered.dtype == torch.float32, f"images are float32, got {rendered.dtype}"
    assert rendered.min() >= 0 and rendered.max() <= 1, "images lie in [0, 1]"
    assert torch.isfinite(gradient).all(), "gradients of the images in state[moving] are finite"
    assert gradient.abs().sum() > 0, "images are differentiable in state[moving]"
    _check_rows(lambda rows: render(rows)[0], "images", exact=exact)
    if exact:
        _check_rows(lambda rows: render(rows)[1], "gradients", exact=True)


def _check_step(generator: parts.Generator, state: parts.State, *, exact: bool) -> None:
    before = {name: rows.clone() for name, rows in state.items()}
    noise = torch.randn(state[generator.moving].shape, generator=torch.Generator().manual_seed(0))
    signal = noise.sign() * 0.1 * state["scale"].reshape(-1, *[1] * (noise.dim() - 1))
    with torch.no_grad():
        moved = generator.step(state, signal)
        assert set(moved) == set(state), f"a step keeps the state's names {sorted(state)}, got {sorted(moved)}"
        for name, rows in before.items():
            assert torch.equal(rows, state[name]), f"a step returns a new state and leaves state[{name!r}] alone"
        assert not torch.equal(generator.render(moved), generator.render(state)), "a step changes the images"
    some = lambda rows: generator.step({name: values[rows] for name, values in state.items()}, signal[rows])  # noqa: E731
    _check_rows(lambda rows: some(rows)[generator.moving], "steps", exact=exact)


def _gradient(model: parts.Model, images: Tensor) -> Tensor:
    leaf = images.clone().requires_grad_()
    with torch.enable_grad():
        return torch.autograd.grad(model.logits(leaf).sum(), leaf)[0]


def _check_rows(answer: Callable[[Tensor], Tensor], what: str, *, exact: bool) -> None:
    """Row i of the answer depends on row i of the question alone."""
    rows = torch.arange(EXACT_ROWS if exact else ROWS)
    with torch.no_grad():
        forward, backward = answer(rows).detach(), answer(rows.flip(0)).detach().flip(0)
    size = max(1.0, float(forward.abs().max())) if forward.is_floating_point() else 1.0
    worst = (forward - backward).abs().max().item() / size
    assert worst <= (0 if exact else 1e-5), f"{what} treat rows independently: reordering the batch changed them by {worst:.2g}"
