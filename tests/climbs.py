"""A few images through the engine, and Algorithm 1 written plainly to compare with."""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from counterfoil.core.spec import EngineSpec, SearchSpec
from counterfoil.engine.climb import Climb
from counterfoil.engine.guidance import draw, draw_patch
from counterfoil.engine.scheduler import Engine, Job, SearchResult
from counterfoil.testing import pictures
from tests.fakes import TinyModel

COLUMNS = [2, 0, 3, 1]  # the data's classes stand in another order in the model
IMAGES = 11


def jobs(count: int = IMAGES) -> list[Job]:
    return [Job(f"image-{at}", image, at % 4, seed=1000 + at) for at, image in enumerate(pictures(count, 16))]


def engine(generator, oracle, search, *, slots=7, batch_size=8, model=None, **settings) -> Engine:
    layout = EngineSpec(slots=slots, batch_size=batch_size)
    return Engine(model or TinyModel(), generator, oracle, columns=COLUMNS, search=search, layout=layout, **settings)


def climb(generator, oracle, search, *, order=None, pipelined=False, **settings) -> dict[str, SearchResult]:
    made = engine(generator, oracle, search, **settings)
    made.pipelined = pipelined
    work = jobs()
    if order is not None:
        random.Random(order).shuffle(work)
    return {done.job.image_id: done for done in made.run(work)}


@dataclass
class Outcome:
    ending: str
    steps: int
    queries: int
    losses: list[float]
    image: Tensor | None  # the one kept last


class Plain:
    """The parts, asked about one image at a time."""

    def __init__(self, model, generator, oracle, columns, copies=1):
        self.model, self.generator, self.oracle, self.columns, self.copies = model, generator, oracle, columns, copies

    def start(self, image: Tensor, label: int, seed: int) -> dict[str, Tensor]:
        many = self.copies
        with torch.no_grad():
            return self.generator.start(torch.stack([image] * many), torch.tensor([label] * many), torch.tensor([seed] * many))

    def show(self, state: dict[str, Tensor], label: int):
        """Image, loss, gradient and verdict of a state."""
        moving = self.generator.moving
        leaf = state[moving].detach().clone().requires_grad_()
        rendered = self.generator.render({**state, moving: leaf})
        picture = rendered + ((rendered.clamp(0, 1) * 255).round() / 255 - rendered).detach()
        picture.data = (rendered.detach().clamp(0, 1) * 255).round() / 255  # exact levels, gradient as if not rounded
        logits = self.model.logits(picture)
        loss = F.cross_entropy(logits, torch.tensor([self.columns[label]] * self.copies), reduction="none")
        gradient = torch.autograd.grad(loss.sum(), leaf)[0] if self.model.differentiable else None
        verdict = self.oracle.judge(picture.detach(), torch.tensor([label] * self.copies)).keeps_label[0].item()
        right = logits[0].argmax().item() == self.columns[label]
        return picture.detach()[0], loss[0].item(), gradient, verdict != 0, right

    def move(self, state: dict[str, Tensor], direction: Tensor) -> dict[str, Tensor]:
        with torch.no_grad():
            return self.generator.step(state, direction)


def one_step(direction: Tensor, scale: Tensor, search: SearchSpec) -> Tensor:
    """A direction of the wanted length."""
    row = direction[0]
    if search.norm == "sign":
        row = row.sign()
    if search.norm == "l2":
        row = row / row.flatten().norm()
        if search.unit == "scale":
            row = row * row.numel() ** 0.5
    if search.unit == "scale":
        row = row * scale[0]
    return (search.step * row).expand(direction.shape)


def guided_search(plain: Plain, image: Tensor, label: int, seed: int, search: SearchSpec) -> Outcome:
    """Gradient ascent: at the first image the oracle rejects, keep the one before."""
    state = plain.start(image, label, seed)
    picture, loss, gradient, accepted, right = plain.show(state, label)
    if not accepted:
        return Outcome("unvalidated", 0, 1, [], None)
    kept, losses = picture, [loss]
    for step in range(1, search.budget + 1):
        if search.stop_when_fooled and not right:
            return Outcome("fooled", step - 1, step, losses, kept)
        state = plain.move(state, one_step(gradient, state["scale"], search))
        picture, loss, gradient, accepted, right = plain.show(state, label)
        if not accepted:
            return Outcome("oracle", step - 1, step + 1, losses, kept)
        kept = picture
        losses.append(loss)
    fooled = search.stop_when_fooled and not right
    return Outcome("fooled" if fooled else "budget", search.budget, search.budget + 1, losses, kept)


def random_steps(plain: Plain, image: Tensor, label: int, seed: int, search: SearchSpec) -> Outcome:
    """The control: the same with random directions as long as the gradient's."""
    state = plain.start(image, label, seed)
    picture, loss, gradient, accepted, _ = plain.show(state, label)
    if not accepted:
        return Outcome("unvalidated", 0, 1, [], None)
    kept, losses = picture, [loss]
    for step in range(1, search.budget + 1):
        noise = draw(state[plain.generator.moving][:1], [seed], [step], stream="control")
        if search.norm == "raw":
            noise = noise / noise.flatten().norm() * gradient[0].flatten().norm()
        direction = one_step(noise.expand(state[plain.generator.moving].shape), state["scale"], search)
        state = plain.move(state, direction)
        picture, loss, gradient, accepted, _ = plain.show(state, label)
        if not accepted:
            return Outcome("oracle", step - 1, step + 1, losses, kept)
        kept = picture
        losses.append(loss)
    return Outcome("budget", search.budget, search.budget + 1, losses, kept)


def random_line(plain: Plain, image: Tensor, label: int, seed: int, distances: list[float]) -> Outcome:
    """The control at matched distance: along one random line, after each step as far from the start as `distances` say."""
    state = plain.start(image, label, seed)
    picture, loss, _, accepted, _ = plain.show(state, label)
    if not accepted:
        return Outcome("unvalidated", 0, 1, [], None)
    kept, losses = picture, [loss]
    moving = state[plain.generator.moving]
    line = draw(moving[:1], [seed], [0], stream="line")
    line = line / line.flatten().norm() * line.numel() ** 0.5
    for step in range(1, len(distances)):
        length = torch.tensor(distances[step] - distances[step - 1]) * state["scale"][0]
        state = plain.move(state, (line * length).expand(moving.shape))
        picture, loss, _, accepted, _ = plain.show(state, label)
        if not accepted:
            return Outcome("oracle", step - 1, step + 1, losses, kept)
        kept = picture
        losses.append(loss)
    return Outcome("budget", len(distances) - 1, len(distances), losses, kept)


def random_search(plain: Plain, image: Tensor, label: int, seed: int, search: SearchSpec, queries: int) -> Outcome:
    """Random search: propose from where the image stands, keep what raises the loss, until steps or queries are spent.

    A proposal that does not raise it is followed by its opposite, and that by a new one.
    """
    state = plain.start(image, label, seed)
    picture, loss, _, accepted, _ = plain.show(state, label)
    if not accepted:
        return Outcome("unvalidated", 0, 1, [], None)
    kept, losses = picture, [loss]
    asked, steps, failed = 1, 0, None  # the proposal that failed last, unless it was an opposite
    while steps < search.budget and asked < queries:
        moving = state[plain.generator.moving]
        pictorial = moving.dim() == 4 and min(moving.shape[2:]) >= 4
        opposite = failed is not None
        noise = -failed if opposite else (draw_patch if pictorial else draw)(moving[:1], [seed], [asked])
        proposal = plain.move(state, one_step(noise.expand(moving.shape), state["scale"], search))
        picture, loss, _, accepted, _ = plain.show(proposal, label)
        asked += 1
        if loss <= losses[-1]:
            failed = None if opposite else noise
            continue
        if not accepted:
            return Outcome("oracle", steps, asked, losses, kept)
        state, kept, steps, failed = proposal, picture, steps + 1, None
        losses.append(loss)
    return Outcome("budget" if steps == search.budget else "queries", steps, asked, losses, kept)


def assert_agrees(climbed: Climb, outcome: Outcome, image: Tensor) -> None:
    """Same ending, same steps, same losses, same final image."""
    assert (climbed.ending, climbed.steps, climbed.queries) == (outcome.ending, outcome.steps, outcome.queries)
    assert [look.loss for look in climbed.kept] == outcome.losses
    if outcome.image is not None:
        assert torch.equal(image, outcome.image)
