"""Tensor programs for which no kernel rule was written, by suite: each in te, and as NumPy functions."""

from __future__ import annotations

from suite.programs.contractions import CONTRACTIONS
from suite.programs.images import IMAGES
from suite.programs.odd import ODD
from suite.programs.polybench import POLYBENCH
from suite.programs.program import Program
from suite.programs.scans import SCANS
from suite.programs.stencils import STENCILS

PROGRAMS: tuple[Program, ...] = (*POLYBENCH, *CONTRACTIONS, *STENCILS, *IMAGES, *ODD, *SCANS)

__all__ = ["PROGRAMS", "Program"]
