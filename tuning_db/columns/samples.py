"""The samples of a trial in one column, as JSON, which any SQL shell can read.

    [[1.5e-05,2.1e-03],[1.6e-05,null]]     each sample's seconds and the reference's seconds, in order

All samples of a trial usually have one residency, which has its own column; if they differ, the residency is
a third entry of each pair.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from tuning_db.records import Sample
from tuning_db.values import canonical_json


def pack(samples: Sequence[Sample]) -> tuple[str | None, str | None]:
    """Residency and text of a trial's samples; (None, None) if there are none.

    >>> pack([Sample(0.5, "hot"), Sample(0.25, "hot", 2.0)])
    ('hot', '[[0.5,null],[0.25,2.0]]')
    """
    if not samples:
        return None, None
    residency = samples[0].residency
    entries = [
        [s.seconds, s.reference_s] if s.residency == residency else [s.seconds, s.reference_s, s.residency]
        for s in samples
    ]
    return residency, canonical_json(entries)


def unpack(residency: str | None, text: str | None) -> tuple[Sample, ...]:
    """The inverse of `pack`. Raises ValueError or TypeError for other text."""
    if text is None:
        return ()
    return tuple(
        Sample(seconds, other[0] if other else residency or "", reference)
        for seconds, reference, *other in json.loads(text)
    )
