"""Looks a set-up over before it is run: what it measures, and which of the classic mistakes it suspects."""

from counterfoil.doctor.examination import IMAGES, examine
from counterfoil.doctor.findings import Diagnosis, Finding, Section

__all__ = ["IMAGES", "Diagnosis", "Finding", "Section", "examine"]
