"""The settings of a prompt-to-prompt editor, checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from counterfoil.core.errors import BadSpec
from counterfoil.parts.editors.control import ControlSettings
from counterfoil.parts.editors.null_text import Fitting

Inverting = Literal["null-text", "negative-prompt", "ddim", "edit-friendly"]
INVERSIONS: tuple[Inverting, ...] = ("null-text", "negative-prompt", "ddim", "edit-friendly")
WORD_MAPS = ("refine", "replace")
BLENDS = ("words", "difference")


@dataclass(frozen=True)
class Settings:
    """Everything that decides what an editor makes of a picture."""

    inversion: Inverting = "null-text"
    steps: int = 50
    guidance: tuple[float, ...] = (7.5,)  # one for all, or one for each candidate
    self_replace: tuple[float, ...] = (0.4, 0.5, 0.6, 0.7, 0.8)
    control: ControlSettings = field(default_factory=ControlSettings)
    fitting: Fitting = field(default_factory=Fitting)  # of null-text inversion
    refinements: int = 0  # of every level of a DDIM inversion
    skip: float = 0.36  # of edit-friendly inversion: share of the steps, the noisiest, that is left out
    source_guidance: float | None = None  # of edit-friendly inversion: guide the source by the empty text, not by its caption

    def __post_init__(self) -> None:
        _one_of("inversion", self.inversion, INVERSIONS)
        _one_of("word_map", self.control.word_map, WORD_MAPS)
        _one_of("blend_by", self.control.blend_by, BLENDS)
        _within("steps", self.steps, 1, 1000)
        _within("cross_replace", self.control.cross_replace, 0, 1)
        _within("reweight", self.control.reweight, 0, 100)
        _within("blend", self.control.blend, 0, 0.99)
        _within("inner_steps", self.fitting.inner_steps, 0, 1000)
        _within("refinements", self.refinements, 0, 100)
        _within("skip", self.skip, 0, 0.99)
        if not self.self_replace:
            raise BadSpec("self_replace is a share of the steps, or several to try, got none; write self_replace=[0.4, 0.6]")
        for share in self.self_replace:
            _within("self_replace", share, 0, 1)
        self._check_guidance()

    @property
    def sweep(self) -> tuple[str, ...]:
        """The names of the candidates."""
        if len(self.guidance) == 1:
            return tuple(f"self_replace={share:g}" for share in self.self_replace)
        return tuple(f"self_replace={share:g}, guidance={pull:g}" for share, pull in self.candidates)

    @property
    def candidates(self) -> tuple[tuple[float, float], ...]:
        """Share of self-attention and guidance of each candidate."""
        pulls = self.guidance * len(self.self_replace) if len(self.guidance) == 1 else self.guidance
        return tuple(zip(self.self_replace, pulls, strict=True))

    @property
    def by_caption(self) -> bool:
        """Whether the caption stands where guidance has the empty text, so that guiding the source changes nothing."""
        return self.inversion == "negative-prompt" or (self.inversion == "edit-friendly" and self.source_guidance is None)

    @property
    def first(self) -> int:
        """The level from which the picture is redrawn."""
        return int(self.skip * self.steps) if self.inversion == "edit-friendly" else 0

    def _check_guidance(self) -> None:
        for pull in self.guidance:
            _within("guidance", pull, 0, 100)
        if len(self.guidance) not in (1, len(self.self_replace)):
            wanted = f"one number, or {len(self.self_replace)}, one for each self_replace"
            raise BadSpec(f"guidance is {wanted}, got {len(self.guidance)}")
        if len(set(self.guidance)) > 1 and not self.by_caption:
            # The source is guided too, and an edit that changes nothing has to end where the source does.
            raise BadSpec(f"several guidances need negative-prompt or edit-friendly inversion, got {self.inversion}")

    def record(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def shares(value: object, *, name: str = "self_replace") -> tuple[float, ...]:
    """A sweep as an option gives it: one number, or several."""
    try:
        several = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
        return tuple(float(one) for one in several)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise BadSpec(f"{name} is a number, or several to try, got {value!r}; write {name}=[0.4, 0.6]") from None


def _one_of(name: str, value: object, known: Sequence[str]) -> None:
    if value not in known:
        raise BadSpec(f"{name} is one of {', '.join(known)}, got {value!r}")


def _within(name: str, value: object, low: float, high: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise BadSpec(f"{name} is a number from {low:g} to {high:g}, got {value!r}")
