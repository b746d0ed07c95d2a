"""Run directories: where a run's records and images are stored, and read back without torch.

    run.json                 specification, classes and provenance
    chunks/000000.json       manifest that commits a chunk: sizes and hashes of its tables
    chunks.json              which chunks the run is made of
    trials/000000.parquet, predictions/…, verdicts/…
    images/3f/3f….png        images, named by their content; in a run of very many,
    images/000000.zip        those of a chunk in one file
    results.json             the numbers
    asked.json               models and oracles that were asked later, and whether they are independent
    review.json              how a review by people went, once their verdicts were written
    run.lock                 held by the process that writes

A chunk exists once its manifest does. The manifest is renamed into place after everything it names, so a writer
killed at any moment leaves either a whole chunk or leftovers that the next writer removes.
"""

from __future__ import annotations

from counterfoil.store.images import ImageFile, Images, image_name
from counterfoil.store.run import Run, open_run
from counterfoil.store.runfile import check
from counterfoil.store.writer import Writer, layout, write

__all__ = ["ImageFile", "Images", "Run", "Writer", "check", "image_name", "layout", "open_run", "write"]
