"""What the generator alone does to pictures: how well it reconstructs them, and what that costs the model."""

from __future__ import annotations

import torch
from torch import Tensor

from counterfoil.doctor.findings import Finding
from counterfoil.doctor.sample import Handful, in_tiles, percent, share, verdicts
from counterfoil.doctor.similarity import psnr, ssim
from counterfoil.engine.scheduler import CPU_BATCH
from counterfoil.metrics.significance import mcnemar
from counterfoil.parts.contracts import Generator, Model, Oracle


def reconstructed(generator: Generator, few: Handful) -> Tensor:
    """The plain reconstructions, in 8 bits.  # → (N, 3, H, W)"""
    made = []
    rows = CPU_BATCH if few.images.device.type == "cpu" else 64
    with torch.no_grad():
        for at in range(0, len(few), rows):
            part = few.rows(slice(at, at + rows))
            made.append(generator.render(generator.start(part.images, part.labels, part.seeds)).float())
    return (torch.cat(made).clamp(0, 1) * 255).round() / 255


def check_reconstruction(
    model: Model, oracle: Oracle, few: Handful, pictures: Tensor, clean: Tensor
) -> tuple[dict[str, str], list[Finding]]:
    """Likeness, the model's accuracy on reconstructions and the oracle's acceptance of them. `clean`: right before.  # (N,)"""
    noise, likeness = psnr(few.images, pictures), ssim(few.images, pictures)
    right = in_tiles(model.logits, pictures).argmax(1) == few.truth
    said = verdicts(oracle, pictures, few.labels)
    lost, won = int((clean & ~right).sum()), int((right & ~clean).sum())
    rows = {
        "PSNR": f"{noise.median():.1f} dB (median)" if noise.min() < 100 else "pictures come back unchanged",
        "SSIM": f"{likeness.median():.3f} (median)",
        "accuracy on reconstructions": percent(share(right)),
        "what reconstruction alone costs": f"{100 * (lost - won) / len(few):.1f} points (lost {lost}, won {won})",
        "accepted by the oracle (VR)": percent(share(said[said >= 0] == 1)),
    }
    findings = []
    if float(likeness.median()) < 0.5 and float(noise.median()) < 15:
        findings.append(
            Finding(
                "reconstruction",
                "the generator does not reconstruct these pictures",
                f"median PSNR {noise.median():.1f} dB, SSIM {likeness.median():.2f}",
                "check its weights, its picture size, and that it was trained on such pictures",
            )
        )
    elif lost - won > 0 and mcnemar(lost, won) < 0.01:
        findings.append(
            Finding(
                "reconstruction",
                "reconstruction alone costs the model accuracy, which FMR charges to the model",
                f"lost on {lost} pictures, won on {won}",
                "read PA_reconstruction beside PA, or choose a generator that reconstructs better",
                severity="caution",
            )
        )
    return rows, findings
