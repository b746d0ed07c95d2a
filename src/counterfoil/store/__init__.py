"""Run directories: where a run's records and pictures are kept, and read back without torch.

    run.json                 specification, classes and provenance
    parts/000000.json        the manifest that commits a part: sizes and hashes of its tables
    trials/part-000000.parquet, predictions/…, verdicts/…
    images/3f/3f….png        the pictures that were made, named by their content; in a run of very many,
    images/part-000000.pack  those of a part in one file
    results.json             the numbers
    asked.json               models and oracles that were asked later, and whether they are independent
    review.json              how people's review went, once their verdicts were written
    aside/                   what was said later, while trials are written anew
    run.lock                 held by the process that writes

A part exists once its manifest does. The manifest is renamed into place after everything it speaks of, so a writer
killed at any moment leaves either a whole part or leftovers that the next writer removes.
"""

from __future__ import annotations

from counterfoil.store.directory import write
from counterfoil.store.reader import Run, open_run
from counterfoil.store.writer import Writer

__all__ = ["Run", "Writer", "open_run", "write"]
