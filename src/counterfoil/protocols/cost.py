"""What a run will ask of its parts, before it is started."""

from __future__ import annotations

from dataclasses import dataclass

from counterfoil.core.spec import FmrSpec, ImagenetDSpec, LanceSpec


@dataclass(frozen=True)
class Cost:
    """Upper bounds in calls of one picture each; climbs that the oracle stops early cost less."""

    images: int
    model_calls: int
    gradients: int
    renderings: int
    verdicts: int

    def lines(self) -> list[str]:
        """For people."""
        rows = {
            "images": self.images,
            "model calls, at most": self.model_calls,
            "of these with a gradient": self.gradients,
            "pictures rendered, at most": self.renderings,
            "oracle verdicts, at most": self.verdicts,
        }
        return _aligned(rows)


def cost(spec: FmrSpec, images: int) -> Cost:
    """The cost of `spec` over `images` images. `auto` guidance is taken for gradients; a black box spends its queries."""
    search = spec.search
    steps = min(search.budget + 1, search.queries or search.budget + 1)  # pictures of a climb that keeps every step
    searching = search.guidance == "search"
    guided = (search.queries or 20 * search.budget + 1) if searching else steps
    control = steps if search.control and search.guidance != "random" else 0
    with_gradient = (search.guidance in ("auto", "gradient") or search.norm == "raw") + (control > 0 and search.norm == "raw")
    gradients = 0 if searching else with_gradient * min(search.budget, steps)
    return Cost(
        images=images,
        model_calls=images * (1 + guided + control),
        gradients=images * gradients,
        renderings=images * (guided + control),
        verdicts=images * (1 + guided + control),
    )


def staged_cost(spec: LanceSpec, images: int) -> list[str]:
    """The same for a run of LANCE, for people; what checks turn away costs nothing further."""
    edits = images * sum(map(spec.edit.most, spec.edit.factors))
    pictures = 2 * images + edits
    rows = {
        "images, captions, inversions": images,
        "captions to rewrite": images * len(spec.edit.factors),
        "edits, at most": edits,
        "oracle verdicts, at most": pictures,
        "model calls, at most": pictures * (1 + len(spec.others)),
    }
    return _aligned(rows)


def painting_cost(spec: ImagenetDSpec, pictures: int) -> list[str]:
    """The same for a run of ImageNet-D; vision-language models are asked about what is kept of the pictures."""
    rows = {
        "pictures painted" if spec.painter else "pictures": pictures,
        "model calls, at most": pictures * (len(spec.surrogates) + len(spec.models)),
        "oracle verdicts, at most": pictures if spec.oracle else 0,
        "questions, at most": pictures * len(spec.chats) * (2 if spec.questions.both_orders else 1),
    }
    return _aligned(rows)


def _aligned(rows: dict[str, int]) -> list[str]:
    width = max(len(name) for name in rows)
    return [f"{name:<{width}}  {count:>12,}" for name, count in rows.items()]
