"""Colours can be read: WCAG AA contrast in light, dark and print, for every colour that text or a control has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import counterfoil.report

STATIC = Path(counterfoil.report.__file__).parent / "static"
TEXT = ("ink", "faint", "accent", "guided", "random", "plain", "clean", "warn", "stop", *(f"series-{n}" for n in range(5, 9)))


def palette(mode: str) -> dict[str, str]:
    """The colours in force in a mode: the light ones, with those that the mode gives other values."""
    wanted = {"dark": "(prefers-color-scheme: dark)", "print": "print"}.get(mode)
    colours: dict[str, str] = {}
    condition = ""
    for line in (STATIC / "colours.css").read_text().splitlines():
        if line.startswith("@media "):
            condition = line.removeprefix("@media ").rstrip(" {")
        elif line == "}":
            condition = ""
        if condition in ("", wanted):
            colours |= dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", line))
    return colours


def luminance(colour: str) -> float:
    shares = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, two: str) -> float:
    high, low = sorted((luminance(one), luminance(two)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_computed_as_the_standard_says() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("mode", ["light", "dark", "print"])
def test_text_stands_out_from_what_is_behind_it(mode: str) -> None:
    colours = palette(mode)
    for name in TEXT:
        for behind in ("paper", "card"):
            assert contrast(colours[name], colours[behind]) >= 4.5, (name, behind)
    for name, behind in (
        ("ink", "wash"),
        ("faint", "wash"),
        ("warn", "warn-wash"),
        ("ink", "warn-wash"),
        ("stop", "stop-wash"),
        ("ink", "stop-wash"),
    ):
        assert contrast(colours[name], colours[behind]) >= 4.5, (name, behind)


@pytest.mark.parametrize("mode", ["light", "dark", "print"])
def test_edges_of_controls_can_be_seen(mode: str) -> None:
    colours = palette(mode)
    assert contrast(colours["field"], colours["card"]) >= 3
    assert contrast(colours["field"], colours["paper"]) >= 3


def test_modes_are_different() -> None:
    assert len({palette(mode)["paper"] for mode in ("light", "dark", "print")}) == 3


@pytest.mark.parametrize("mode", ["light", "dark", "print"])
def test_numbers_stand_out_in_every_shade_of_a_heat_map(mode: str) -> None:
    colours = palette(mode)
    for shade in range(5):
        assert contrast(colours[f"on-heat-{shade}"], colours[f"heat-{shade}"]) >= 4.5, shade
