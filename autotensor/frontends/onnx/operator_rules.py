"""The standard's rules for calls of its operators, from a table: `operator_rules.json`.

    {"types": [[element types], …], "domains": {domain: {operator: {version: [fields of Rules, …]}}}}

The table holds the rules of the package onnx. The test of this module writes it with --update-golden.
Importing the package takes longer than reading most models.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TABLE = Path(__file__).with_name("operator_rules.json")


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of one operator in one opset."""

    attributes: Mapping[str, int]  # name → kind, an AttributeType
    required: tuple[str, ...]  # attributes without a default
    fewest_inputs: int
    most_inputs: int
    most_outputs: int
    types: tuple[str, ...]  # names of the operands' types in the standard; equal names mean equal types
    allowed: tuple[frozenset[str], ...]  # element types of each operand, in the standard's spelling
    repeats: bool  # the last operand may be repeated
    since: int  # the opset that introduced these rules
    is_defined: bool  # whether the standard defines the operator by simpler ones


@functools.cache
def _table() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(TABLE.read_text())
    return found


def newest_opset() -> int:
    """The newest opset of ONNX's own operators in the table."""
    return int(_table()["newest"])


@functools.lru_cache(maxsize=1024)
def rules_of(op: str, opset: int, domain: str) -> Rules | None:
    """The rules of an operator; None if the standard does not have it."""
    versions = _table()["domains"].get(domain, {}).get(op, {})
    since = max((v for v in map(int, versions) if v <= opset), default=None)
    if since is None or versions[str(since)] is None:  # deprecated
        return None
    attributes, required, fewest, inputs, outputs, types, allowed, repeats, is_defined = versions[str(since)]
    kinds = _table()["types"]
    return Rules(
        attributes,
        tuple(required),
        fewest,
        inputs,
        outputs,
        tuple(types),
        tuple(frozenset(kinds[n]) for n in allowed),
        repeats,
        since,
        is_defined,
    )
