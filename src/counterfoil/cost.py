"""What a run will ask of its parts, before it is started."""

from __future__ import annotations

from dataclasses import dataclass

from counterfoil.spec import RunSpec


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
        width = max(len(name) for name in rows)
        return [f"{name:<{width}}  {count:>12,}" for name, count in rows.items()]


def cost(spec: RunSpec, images: int) -> Cost:
    """The cost of `spec` over `images` images. `auto` guidance is taken for gradients; a black box spends its queries."""
    search = spec.search
    searching = search.guidance == "search"
    guided = search.queries or (20 if searching else 1) * search.budget + 1
    control = search.budget + 1 if search.control else 0
    gradients = 0 if searching else search.budget + (search.budget if search.control and search.norm == "raw" else 0)
    return Cost(
        images=images,
        model_calls=images * (1 + guided + control),
        gradients=images * gradients,
        renderings=images * (guided + control),
        verdicts=images * (1 + guided + control),
    )
