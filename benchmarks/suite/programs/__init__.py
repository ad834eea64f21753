"""Tensor programs that no kernel rule was written for, by suite: each in te, and in NumPy's words."""

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
