"""The loop IR: expressions, statements, bounds, rewriting, simplification, meaning. Start at `node.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotensor.base.absent_names import advice

_LOWERED = "at.lower(s, args) gives the loops, at.build(s, args) the function"
_FUNCTIONS = "the functions are those of te; write others as formulas of these"
_ELSEWHERE = {  # names of TVM's ir → what to write here
    "IRModule": _LOWERED,
    "module": _LOWERED,
    "Range": "write the extent: te.reduce_axis(n)",
    "transform": 'there are no passes to configure; options belong to the target: target="llvm -threads=2"',
    "instrument": "AUTOTENSOR_DUMP=dir writes every kernel after every pass",
    "Op": _FUNCTIONS,
    "register_op_attr": _FUNCTIONS,
    "register_intrin_lowering": _FUNCTIONS,
    "assert_structural_equal": "compare the texts: str(at.lower(s, args))",
    "structural_equal": "compare the texts: str(at.lower(s, args))",
    "save_json": "f.save writes a compiled function",
    "load_json": "at.load reads a file of f.save",
}

if not TYPE_CHECKING:  # type checkers should still report unknown names
    __getattr__ = advice(__name__, "at.ir", _ELSEWHERE)
