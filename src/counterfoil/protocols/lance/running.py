"""A run of the LANCE protocol, stage by stage.

Caption each picture, rewrite one factor of the caption, edit the picture to match, keep what passes quality control and
what an oracle says still shows the class, and ask models about it. Every step is a stage that resumes by itself; captions
and edits are files that people may correct between stages.
"""

from __future__ import annotations

from counterfoil.protocols.lance import answers, captions, edits, pictures, realism, sources, trials
from counterfoil.protocols.lance.bench import Bench, assemble
from counterfoil.protocols.lance.results import lance_results
from counterfoil.protocols.staged import StagedProtocol
from counterfoil.store.stages import Stages

STAGES = ("sources", "captions", "edits", "directions", "inversions", "pictures", "quality", "oracle", "predictions", "set")
"""The stages in their order; a run can stop after any of them."""


def make(bench: Bench, stages: Stages) -> trials.Tables:
    """All stages, one after the other."""
    source = sources.read(bench, stages)
    caption = captions.caption(bench, stages, source)
    edit = edits.rewrite(bench, stages, caption)
    edits.directions(bench, stages, edit)
    inversion = pictures.invert(bench, stages, edit)
    edited = pictures.edit(bench, stages, edit, inversion)
    quality = pictures.control(bench, stages, edited)
    shown = answers.Shown(source, edited, quality)
    verdicts = answers.judge(bench, stages, shown)
    predictions = answers.predict(bench, stages, shown)
    tables = trials.Tables(source, caption, edit, inversion, edited, quality, verdicts, predictions)
    realism.describe(bench, stages, tables)
    return tables


run = StagedProtocol(assemble=assemble, stages=lambda bench: STAGES, make=make, write=trials.write, results=lance_results).run
