"""A short trial of the parts before anything is written: most wrong set-ups show on the first images."""

from __future__ import annotations

from dataclasses import replace

from counterfoil.core.errors import BadData, BadImage, BadPart, RunFailed
from counterfoil.core.spec import SearchSpec
from counterfoil.parts.contracts import Sample
from counterfoil.parts.datasets.image_set import TRIED
from counterfoil.protocols import strict
from counterfoil.protocols.assembly import Assembly


def check(assembly: Assembly) -> None:
    """Raise a usage error if model, generator and oracle cannot work on these data."""
    spec = assembly.spec
    bad: list[str] = []

    def note(sample: Sample, problem: BadImage) -> None:
        if spec.strict:
            raise strict.stopped(problem)
        bad.append(str(problem))

    few = replace(assembly, dataset=assembly.dataset.limited(count=TRIED))  # as many chances for an accepted reconstruction
    engine = few.engine(SearchSpec(budget=0, control="none"))
    seen = 0
    try:
        for done in engine.run(few.jobs(iter(few.dataset), note)):
            seen += 1
            if done.climbs[0].ending != "unvalidated":
                if _needs_gradient(assembly):
                    engine.check_gradient(done.job)
                return
    except RunFailed as error:
        raise BadPart(str(error)) from error
    if seen == 0:
        raise BadData(f"{spec.data.name}: none of {len(bad)} pictures tried can be read; the first: {bad[0]}")
    raise BadPart(
        f"oracle {spec.oracle.name} rejects the plain reconstruction of all {seen} images tried, so nothing can be tested; "
        f"check its class names and templates, and that generator {spec.generator.name} can reconstruct such images"
    )


def _needs_gradient(assembly: Assembly) -> bool:
    search = assembly.spec.search
    follows = search.guidance in ("auto", "gradient") or search.norm == "raw"
    return search.budget > 0 and assembly.model.differentiable and follows
