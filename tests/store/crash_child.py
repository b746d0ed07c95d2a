"""Writes a run and says how far it is, so that it can be killed half-way: `python -m tests.store.crash_child FOLDER IMAGES`."""

from __future__ import annotations

import sys
from pathlib import Path

from counterfoil import store

from .made import CLASSES, PROVENANCE, SPEC, image_id, records


def main(path: Path, images: int) -> None:
    with store.write(path, SPEC, CLASSES, PROVENANCE, chunk_images=3) as writer:
        print("open", flush=True)
        for number in range(images):
            if image_id(number) not in writer.done:
                writer.add(*records(number))
                print(number, flush=True)
        writer.finish({"images": writer.counts["images"], "accepted": writer.counts["accepted"]})


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
