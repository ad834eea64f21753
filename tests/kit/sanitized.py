"""LLVM IR with the calls that a sanitizer's runtime needs before each access of memory.

    %x = load i64, ptr %p      ──▶  call void @__tsan_read8(ptr %p)            (or __asan_load8)
                                    %x = load i64, ptr %p
    store atomic i32 0, ptr %p ──▶  call void @__tsan_atomic32_store(ptr %p, i32 0, i32 3)

Our text gets the calls that gcc's -fsanitize adds to C, and is linked with gcc's own runtimes. Masked and
gathering accesses get no calls. Source: LLVM, compiler-rt/include/sanitizer/tsan_interface.h,
asan_interface.h.
"""

from __future__ import annotations

import re

_SCALARS = {"ptr": 8, "half": 2, "bfloat": 2, "float": 4, "double": 8, "i1": 1}
_ORDERS = {"monotonic": 0, "acquire": 2, "release": 3, "acq_rel": 4, "seq_cst": 5}
_TYPE = r"(?P<type><.*?>|\[.*?\]|\w+)"
_AT, _ORDER = r"(?P<at>[^\s,]+)", r"(?P<order> \w+)"
_LOAD = re.compile(rf"\s*(?P<result>%\S+) = load (?P<atomic>atomic )?{_TYPE}, ptr {_AT}{_ORDER}?")
_STORE = re.compile(rf"\s*store (?P<atomic>atomic )?{_TYPE} (?P<value>.+?), ptr {_AT}{_ORDER}?")
_ADD = re.compile(
    rf"\s*(?P<result>%\S+) = atomicrmw (?P<what>add|sub) ptr {_AT}, {_TYPE} (?P<value>\S+){_ORDER}"
)
_EXCHANGE = re.compile(
    rf"\s*(?P<result>%\S+) = cmpxchg ptr {_AT}, {_TYPE} (?P<old>\S+), \w+ (?P<new>\S+){_ORDER} (?P<lost>\w+)"
)


def size_of(kind: str) -> int:
    """Bytes of a value in memory.

    >>> size_of("<16 x float>"), size_of("i64"), size_of("[16 x i64]")
    (64, 8, 128)
    """
    if parts := re.fullmatch(r"[<\[](\d+) x (.*)[>\]]", kind):
        return int(parts[1]) * size_of(parts[2])
    return _SCALARS.get(kind) or -(-int(kind.removeprefix("i")) // 8)


def for_threads(text: str) -> str:
    """In TSan's form."""
    return _instrumented(text, _Threads())


def for_addresses(text: str) -> str:
    """In ASan's form."""
    return _instrumented(text, _Addresses())


class _Addresses:
    declared = (
        "declare void @__asan_loadN(ptr, i64)",
        "declare void @__asan_storeN(ptr, i64)",
    )

    def access(self, at: str, kind: str, written: bool) -> list[str]:
        return [f"  call void @__asan_{'store' if written else 'load'}N(ptr {at}, i64 {size_of(kind)})"]

    def atomic(self, line: str, parts: re.Match[str]) -> list[str]:
        return [*self.access(parts["at"], parts["type"], True), line]

    def begin(self) -> list[str]:
        return []

    end = begin


class _Threads:
    declared = (
        "declare void @__tsan_read_range(ptr, i64)",
        "declare void @__tsan_write_range(ptr, i64)",
        "declare void @__tsan_func_entry(ptr)",
        "declare void @__tsan_func_exit()",
        "declare ptr @llvm.returnaddress(i32)",
        *(
            f"declare {t} @__tsan_atomic{t[1:]}_{what}"
            for t in ("i32", "i64")
            for what in (
                "load(ptr, i32)",
                f"fetch_add(ptr, {t}, i32)",
                f"fetch_sub(ptr, {t}, i32)",
                f"compare_exchange_val(ptr, {t}, {t}, i32, i32)",
            )
        ),
        *(f"declare void @__tsan_atomic{t[1:]}_store(ptr, {t}, i32)" for t in ("i32", "i64")),
    )
    _numbers = 0

    def access(self, at: str, kind: str, written: bool) -> list[str]:
        return [f"  call void @__tsan_{'write' if written else 'read'}_range(ptr {at}, i64 {size_of(kind)})"]

    def atomic(self, line: str, parts: re.Match[str]) -> list[str]:
        kind, at, order = parts["type"], parts["at"], _ORDERS[parts["order"].strip()]
        function = f"@__tsan_atomic{kind[1:]}"
        if parts.re is _LOAD:
            return [f"  {parts['result']} = call {kind} {function}_load(ptr {at}, i32 {order})"]
        if parts.re is _STORE:
            return [f"  call void {function}_store(ptr {at}, {kind} {parts['value']}, i32 {order})"]
        if parts.re is _ADD:
            call = f"{function}_fetch_{parts['what']}(ptr {at}, {kind} {parts['value']}, i32 {order})"
            return [f"  {parts['result']} = call {kind} {call}"]
        self._numbers += 1
        was, same, half = (f"%tsan.{what}.{self._numbers}" for what in ("was", "same", "half"))
        pair = f"{{ {kind}, i1 }}"
        values = f"{kind} {parts['old']}, {kind} {parts['new']}"
        arguments = f"ptr {at}, {values}, i32 {order}, i32 {_ORDERS[parts['lost']]}"
        return [
            f"  {was} = call {kind} {function}_compare_exchange_val({arguments})",
            f"  {same} = icmp eq {kind} {was}, {parts['old']}",
            f"  {half} = insertvalue {pair} undef, {kind} {was}, 0",
            f"  {parts['result']} = insertvalue {pair} {half}, i1 {same}, 1",
        ]

    def begin(self) -> list[str]:
        self._numbers += 1
        caller = f"%tsan.caller.{self._numbers}"
        return [
            f"  {caller} = call ptr @llvm.returnaddress(i32 0)",
            f"  call void @__tsan_func_entry(ptr {caller})",
        ]

    def end(self) -> list[str]:
        return ["  call void @__tsan_func_exit()"]


def _instrumented(text: str, sanitizer: _Addresses | _Threads) -> str:
    lines = list(sanitizer.declared)
    opened = False
    for line in text.splitlines():
        atomic = next((m for p in (_ADD, _EXCHANGE) if (m := p.match(line))), None)
        access = next((m for p in (_LOAD, _STORE) if (m := p.match(line))), None)
        if atomic or (access and access["atomic"]):
            found = atomic or access
            assert found
            lines += sanitizer.atomic(line, found)
            continue
        if access:
            lines += sanitizer.access(access["at"], access["type"], access.re is _STORE)
        elif line.strip().startswith("ret "):
            lines += sanitizer.end()
        lines.append(line)
        if opened and line.endswith(":"):
            lines += sanitizer.begin()
            opened = False
        opened = opened or line.startswith("define ")
    return "\n".join(lines) + "\n"
