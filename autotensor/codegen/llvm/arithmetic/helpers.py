"""Operations that need branches. A kernel's expressions have no branches, so these operations are LLVM
functions that the kernel calls.

    far(…)     the C library's result, lane by lane, for the few lanes in which a formula fails
    power(…)   integers to integer powers, by squaring

LLVM inlines these functions (`alwaysinline`) and places their rare branches outside the main path.
"""

from __future__ import annotations

from autotensor.base.dtype import DType
from autotensor.codegen.llvm.function_writer import FunctionWriter, cond_type, literal, suffix, ty

# libm's functions of numbers change only errno, which autotensor's code never reads
PURE = "nounwind willreturn memory(none)"


def far(w: FunctionWriter, name: str, t: DType, cond: str, near: str, args: list[str]) -> str:
    """`near`, but the result of the C library's function `name` in the lanes where `cond` holds. Such
    lanes must be rare.

    t: the type of the arguments and the result, float32 or float64.
    """
    symbol = name + ("f" if t.bits == 32 else "")
    helper = f"at.far.{symbol}.{suffix(t)}"
    if helper not in w.declared:
        one, word, test = t.element, ty(t), cond_type(t)
        params = [f"%a{k}" for k in range(len(args))]
        # replaces an earlier declaration of this function, which has fewer attributes
        w.declared[symbol] = f"declare {ty(one)} @{symbol}({', '.join([ty(one)] * len(args))}) {PURE}"
        lines = [
            f"define internal {word} @{helper}({test} %c, {word} %near, "
            + ", ".join(f"{word} {p}" for p in params)
            + ") alwaysinline nounwind {",
            "entry:",
        ]
        if t.lanes == 1:
            lines += ["  br i1 %c, label %slow, label %done, !prof !0", "slow:"]
            lines += [f"  %r = call {word} @{symbol}({', '.join(f'{word} {p}' for p in params)})"]
        else:
            reduce = f"llvm.vector.reduce.or.v{t.lanes}i1"
            w.declared.setdefault(reduce, f"declare i1 @{reduce}({test})")
            lines += [
                f"  %any = call i1 @{reduce}({test} %c)",
                "  br i1 %any, label %slow, label %done, !prof !0",
                "slow:",
            ]
            so_far = "%near"
            for k in range(t.lanes):
                values = []
                for n, p in enumerate(params):
                    lines.append(f"  %x{n}.{k} = extractelement {word} {p}, i64 {k}")
                    values.append(f"{ty(one)} %x{n}.{k}")
                lines += [
                    f"  %y{k} = call {ty(one)} @{symbol}({', '.join(values)})",
                    f"  %s{k} = insertelement {word} {so_far}, {ty(one)} %y{k}, i64 {k}",
                ]
                so_far = f"%s{k}"
            lines.append(f"  %r = select {test} %c, {word} {so_far}, {word} %near")
        lines += [
            "  br label %done",
            "done:",
            f"  %result = phi {word} [ %near, %entry ], [ %r, %slow ]",
            f"  ret {word} %result",
            "}",
        ]
        w.declared[helper] = "\n".join(lines)
        w.declared["~rare"] = RARE
    given = ", ".join(f"{ty(t)} {a}" for a in args)
    return w.op(f"call {ty(t)} @{helper}({cond_type(t)} {cond}, {ty(t)} {near}, {given})")


RARE = '!0 = !{!"branch_weights", i32 1, i32 1000}'


def power(w: FunctionWriter, t: DType, x: str, y: str) -> str:
    """x**y of integers, wrapping around; 1/x without its fraction for negative y."""
    helper = f"at.pow.{'u' if t.kind == 'uint' else 's'}.{suffix(t)}"
    if helper not in w.declared:
        word, test = ty(t), cond_type(t)
        zero, one, minus = (literal(k, t) for k in (0, 1, -1 if t.kind == "int" else 0))
        more = [f"  %more = icmp ne {word} %e2, {zero}"]
        if t.lanes > 1:
            reduce = f"llvm.vector.reduce.or.v{t.lanes}i1"
            w.declared.setdefault(reduce, f"declare i1 @{reduce}({test})")
            more = [
                f"  %some = icmp ne {word} %e2, {zero}",
                f"  %more = call i1 @{reduce}({test} %some)",
            ]
        end = [f"  ret {word} %r2"]
        if t.kind == "int":
            end = [
                f"  %last = and {word} %y, {one}",
                f"  %isodd = icmp ne {word} %last, {zero}",
                f"  %turned = select {test} %isodd, {word} {minus}, {word} {one}",
                f"  %isone = icmp eq {word} %x, {one}",
                f"  %isminus = icmp eq {word} %x, {minus}",
                f"  %p = select {test} %isminus, {word} %turned, {word} {zero}",
                f"  %q = select {test} %isone, {word} {one}, {word} %p",
                f"  %below = icmp slt {word} %y, {zero}",
                f"  %result = select {test} %below, {word} %q, {word} %r2",
                f"  ret {word} %result",
            ]
        w.declared[helper] = "\n".join(
            [
                f"define internal {word} @{helper}({word} %x, {word} %y) alwaysinline nounwind {{",
                "entry:",
                "  br label %loop",
                "loop:",
                f"  %r = phi {word} [ {one}, %entry ], [ %r2, %loop ]",
                f"  %b = phi {word} [ %x, %entry ], [ %b2, %loop ]",
                f"  %e = phi {word} [ %y, %entry ], [ %e2, %loop ]",
                f"  %bit = and {word} %e, {one}",
                f"  %odd = icmp ne {word} %bit, {zero}",
                f"  %rb = mul {word} %r, %b",
                f"  %r2 = select {test} %odd, {word} %rb, {word} %r",
                f"  %b2 = mul {word} %b, %b",
                f"  %e2 = lshr {word} %e, {one}",
                *more,
                "  br i1 %more, label %loop, label %done",
                "done:",
                *end,
                "}",
            ]
        )
    return w.op(f"call {ty(t)} @{helper}({ty(t)} {x}, {ty(t)} {y})")
