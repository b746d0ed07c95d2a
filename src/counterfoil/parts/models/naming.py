"""Class names of a model, as an option gives them."""

from __future__ import annotations

from collections.abc import Sequence

from counterfoil.core.errors import BadPart
from counterfoil.parts import imagenet, labels

Names = tuple[list[str], labels.Aliases | None]


def class_names(classes: str | Sequence[str] | None) -> list[str] | None:
    """Class names as they are given, if they are."""
    return None if classes is None else labels.read_names(classes)


def check_names(classes: Sequence[str], outputs: int, what: str) -> None:
    """Raise BadPart unless there is one name for each of a model's outputs."""
    if len(classes) != outputs:
        raise BadPart(f"{what}: {len(classes)} class names for {outputs} outputs; give one name an output, in their order")


def named(classes: str | Sequence[str] | None) -> Names | None:
    """Names and aliases from a list, a file with one name a line, or the word imagenet."""
    if classes == "imagenet":
        return imagenet.names_and_aliases()
    given = class_names(classes)
    return None if given is None else labels.recognise(given)


def for_outputs(classes: str | Sequence[str] | None, outputs: int, *, what: str) -> Names:
    """One name an output: those given, or ImageNet's for a thousand outputs."""
    found = named(classes) or (named("imagenet") if outputs == 1000 else None)
    if found is None:
        hint = "; outputs before the first class are left out by skip: 1" if outputs == 1001 else ""
        raise BadPart(f"{what}: {outputs} outputs without names; give classes: a list, or a file with one name a line{hint}")
    check_names(found[0], outputs, what)
    return found
