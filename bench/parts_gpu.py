"""Every source that can be had without a network, small, on a GPU: does it run there, and does it say what it says on a CPU?

    python -m bench.parts_gpu [--device cuda] [--roles model generator oracle …] [--keep NAME]

The sources are those of `tests/sources`, and some more of the same kinds. Each is made on the CPU, asked, moved to the device
and asked again; generators also climb a model's loss for a few steps. Prints a line each and ends with 1 if one failed. It needs
pytest, and works from a checkout that is not installed, with src and tests/plugin/src on the PYTHONPATH.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import tomllib
import traceback
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import transformers
from bench.results import add_keep, command, keep
from tests.fakes import CLASSES, TinyModel
from torch import Tensor

from counterfoil.engine.guidance import GradientAscent, StepLength
from counterfoil.parts import registry
from counterfoil.parts.contracts import EditResult, Inversion, RewriteRequest, Sample, to_device
from counterfoil.testing import pictures

ROOT = Path(__file__).parents[1]
STEPS = 3
AGREES = 0.02  # mean difference from the CPU, of images' range or of the answers' spread
CAPTION, EDITED = "a photo of a red wool dress on a beach", "a photo of a blue wool dress on a beach"
MORE: dict[tuple[str, str], tuple[str, dict[str, Any]]] = {
    ("model", "torchvision resnet50, 224"): ("torchvision:resnet50", {"pretrained": False}),
    ("generator", "lab vqgan"): ("lab:vqgan", {}),
    ("generator", "lab ddpm"): ("lab:ddpm", {"steps": 4}),
    ("generator", "transforms, all"): ("transforms:", {}),
    ("generator", "pixels linf"): ("pixels:linf", {"epsilon": 0.03}),
    ("painter", "lab scenes"): ("lab:scenes", {}),
}


def main() -> None:
    """Try them all and say how it went."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--roles", nargs="+", choices=list(ASKED), default=list(ASKED))
    add_keep(parser)
    asked = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False  # so that answers can be compared
    warnings.simplefilter("ignore")
    transformers.utils.logging.disable_progress_bar()
    announce()
    from tests.sources import list_sources

    rows = []
    for role, kind in [*list_sources(), *MORE]:
        if role in asked.roles:
            rows.append({"role": role, "kind": kind, **try_source(role, kind, asked.device)})
            print("{verdict:<7} {role:<10} {kind:<26} {seconds:6.2f} s  {says}".format(**rows[-1]), flush=True)
    failed = [row for row in rows if row["verdict"] != "ok"]
    machine = torch.cuda.get_device_name(asked.device) if asked.device.startswith("cuda") else "CPU"
    print(f"{len(rows) - len(failed)} of {len(rows)} ok on {machine}, torch {torch.__version__}")
    if asked.keep:
        about = f"Every source that needs no network, small, on {asked.device}: does it say there what it says on a CPU?"
        keep(asked.keep, rows, command=command("bench.parts_gpu"), about=about)
    sys.exit(1 if failed else 0)


def try_source(role: str, kind: str, device: str) -> dict[str, Any]:
    """Describe how one source did."""
    from tests.sources import RECIPES

    began = time.perf_counter()
    try:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "made"
            folder.mkdir()
            name, options = MORE.get((role, kind)) or RECIPES[role, kind](folder, stack)
            part = registry.create(role, name, options)
            says = ASKED[role](part, device)
        verdict = "ok"
    except Exception as error:  # one that fails shall not keep the others from being tried
        verdict, says = "failed", f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        last = traceback.extract_tb(error.__traceback__)[-1]
        says += f" ({Path(last.filename).name}:{last.lineno})"
    return {"verdict": verdict, "says": says, "seconds": round(time.perf_counter() - began, 2)}


def compare(here: Tensor, there: Tensor, *, spread: float | None = None) -> str:
    """Measure how far the device's answers are from the CPU's; refused if that is more than rounding."""
    there = there.detach().cpu()
    assert bool(torch.isfinite(there).all()), "answers on the device are not finite"
    far = float((here.detach() - there).abs().mean()) / (spread or max(float(here.std()), 1e-6))
    assert far <= AGREES, f"answers differ from the CPU's by {far:.2g} of their spread"
    return f"{far:.1e} from the CPU's answers"


def ask_model(model: Any, device: str) -> str:
    """Logits, and gradients where there are some."""
    images = pictures(4, getattr(model, "size", None) or 64)
    with torch.no_grad():
        here = model.logits(images)
    model = to_device(model, device)
    leaf = images.to(device).requires_grad_(model.differentiable)
    there = model.logits(leaf)
    says = compare(here, there)
    if model.differentiable:
        gradient = torch.autograd.grad(there.logsumexp(1).sum(), leaf)[0]
        assert bool(torch.isfinite(gradient).all()) and float(gradient.abs().sum()) > 0, "no gradient comes back"
    return says


def ask_generator(generator: Any, device: str) -> str:
    """The plain reconstruction, then a few steps up a model's loss."""
    side = generator.size or 64
    images, labels, seeds = pictures(4, side), torch.zeros(4, dtype=torch.long), torch.arange(4)
    with torch.no_grad():
        here = generator.render(generator.start(images, labels, seeds))
    generator, model = to_device(generator, device), TinyModel().to(device)
    labels = labels.to(device)
    guidance = GradientAscent(StepLength(0.2, "l2", "scale"))
    with torch.no_grad():
        state = generator.start(images.to(device), labels, seeds.to(device))
        says = compare(here, generator.render(state), spread=1.0)
    losses = []
    for _ in range(STEPS):
        leaf = state[generator.moving].detach().requires_grad_()
        made = generator.render({**state, generator.moving: leaf})
        loss = F.cross_entropy(model.logits(made), labels)
        gradient = torch.autograd.grad(loss, leaf)[0]
        assert bool(torch.isfinite(gradient).all()), "the gradient is not finite"
        signal = guidance.direction(gradient, moving=leaf.detach(), scale=state["scale"], seeds=[0] * 4, draws=[0] * 4)
        with torch.no_grad():
            state = dict(generator.step({**state, generator.moving: leaf.detach()}, signal))
        losses.append(float(loss))
    with torch.no_grad():
        made = generator.render(state)
    assert made.device.type == torch.device(device).type, f"images come back on {made.device}"
    assert float(made.min()) >= 0 and float(made.max()) <= 1, "images leave [0, 1]"
    return f"{says}; loss {losses[0]:.3f} to {float(F.cross_entropy(model.logits(made), labels)):.3f} in {STEPS} steps"


def ask_oracle(oracle: Any, device: str) -> str:
    """Verdicts."""
    images, labels = pictures(8, 64), torch.arange(8) % len(CLASSES)
    with torch.no_grad():
        here = oracle.bind(CLASSES).judge(images, labels)
        there = to_device(oracle, device).bind(CLASSES).judge(images.to(device), labels.to(device))
    says = compare(here.scores, there.scores, spread=1.0)
    assert torch.equal(here.keeps_label, there.keeps_label.cpu()), "verdicts differ from the CPU's"
    return says


def ask_encoder(encoder: Any, device: str) -> str:
    """Images as numbers."""
    images = pictures(4, 64)
    with torch.no_grad():
        here = encoder.embed_images(images)
        return compare(here, to_device(encoder, device).embed_images(images.to(device)))


def ask_captioner(captioner: Any, device: str) -> str:
    """Captions."""
    images, samples = pictures(2, 64), [Sample(str(at), 0, "", "a photo of a dog") for at in range(2)]
    here = captioner.caption(images, samples)
    there = to_device(captioner, device).caption(images.to(device), samples)
    return (
        "the same captions as on the CPU"
        if here == there
        else f"other captions than on the CPU: {here[0].text!r}, {there[0].text!r}"
    )


def ask_rewriter(rewriter: Any, device: str) -> str:
    """Captions rewritten."""
    found = to_device(rewriter, device).rewrite(
        [RewriteRequest(CAPTION, "subject", seed=1), RewriteRequest(CAPTION, "background", seed=2)]
    )
    assert len(found) == 2 and all(answer.captions or answer.rejections for answer in found), "a request went without an answer"
    return f"{sum(len(answer.captions) for answer in found)} captions for 2 requests"


def ask_editor(editor: Any, device: str) -> str:
    """Images edited."""
    editor = to_device(editor, device)
    found = editor.invert(list(pictures(2, editor.size or 64)), [CAPTION] * 2, [1, 2])
    assert all(isinstance(each, Inversion) for each in found), f"not inverted: {found}"
    made = editor.edit(found, [EDITED] * 2)
    assert all(isinstance(each, EditResult) for each in made), f"not edited: {made}"
    assert all(bool(torch.isfinite(each.candidates).all()) for each in made), "images are not finite"
    return f"{len(made[0].candidates)} candidates per image"


def ask_painter(painter: Any, device: str) -> str:
    """Images from words."""
    here = painter.paint([CAPTION, EDITED], torch.tensor([1, 2]))
    return compare(here, to_device(painter, device).paint([CAPTION, EDITED], torch.tensor([1, 2])), spread=1.0)


def ask_chat(chat: Any, device: str) -> str:
    """Answers in words."""
    said = to_device(chat, device).answer([image.to(device) for image in pictures(2, 32)], ["a boot or a bag ?"] * 2)
    assert len(said) == 2 and all(isinstance(text, str) for text in said), f"answers: {said}"
    return f"says {said[0]!r}"


ASKED: dict[str, Callable[[Any, str], str]] = {
    "model": ask_model,
    "generator": ask_generator,
    "oracle": ask_oracle,
    "encoder": ask_encoder,
    "captioner": ask_captioner,
    "rewriter": ask_rewriter,
    "editor": ask_editor,
    "painter": ask_painter,
    "chat": ask_chat,
}
"""By role; data sets stay on the CPU."""


def announce() -> None:
    """Register the package's sources from the checkout's own pyproject.toml where it is not installed."""
    if entry_points(group="counterfoil.models"):
        return
    place = Path(tempfile.mkdtemp())
    for file in (ROOT / "pyproject.toml", ROOT / "tests" / "plugin" / "pyproject.toml"):
        project = tomllib.loads(file.read_text())["project"]
        folder = place / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
        groups = [
            f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
            for group, entries in project["entry-points"].items()
        ]
        (folder / "entry_points.txt").write_text("\n".join(groups))
    sys.path.append(str(place))


if __name__ == "__main__":
    main()
