"""Calls of compiled functions: results, ways of binding, threads, and the messages of refusals."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runtime_kernels import ADD, N, add_artifact, compiled, prepared_artifact, renamed, team_artifact, vector

from autotensor.base import switches
from autotensor.base.errors import ArgumentError, ArtifactError
from autotensor.base.target import host
from autotensor.runtime import saved_model
from autotensor.runtime.files import artifact_file as artifacts
from autotensor.runtime.files.artifact import ArgSpec, Artifact
from autotensor.runtime.module import Module
from autotensor.runtime.native import threads

ROOT = Path(__file__).parents[2]
RNG = np.random.default_rng(0)
A, B = (RNG.random(N, dtype=np.float32) for _ in range(2))


@pytest.fixture(scope="module")
def add() -> Module:
    return Module(add_artifact())


class TestCalls:
    def test_inputs_give_a_fresh_aligned_output(self, add: Module) -> None:
        c, d = add(A, B), add(A, B)
        assert (c == A + B).all()
        assert c is not d
        assert c.ctypes.data % 64 == 0

    def test_inputs_and_outputs_are_filled_in_place(self, add: Module) -> None:
        c = np.empty(N, np.float32)
        assert add(A, B, c) is None
        assert (c == A + B).all()

    def test_out_and_names(self, add: Module) -> None:
        c = np.zeros(N, np.float32)
        assert add(A, B, out=c) is c
        assert (c == A + B).all()
        assert (add(B=B, A=A) == A + B).all()
        assert add(A, C=c, B=A) is None
        assert (c == A + A).all()
        assert add(A, B, out=(c,)) is c

    @pytest.mark.parametrize("count", [1, 2, 3, 7])
    def test_any_number_of_threads_gives_the_same(self, count: int) -> None:
        assert (Module(add_artifact(), threads=count)(A, B) == A + B).all()

    def test_threads_can_be_changed(self) -> None:
        team = Module(team_artifact(), threads=1, provider="openmp-system")
        assert tuple(team()) == (1, 1)
        team.threads = 3
        assert tuple(team()) == (6, 3)
        with pytest.raises(ArgumentError, match="threads is 0; it must be a whole number of at least 1"):
            team.threads = 0

    def test_threads_come_from_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OMP_NUM_THREADS", "3")
        assert Module(add_artifact()).threads == 3
        with switches.override(num_threads=5):
            assert Module(add_artifact()).threads == 5

    @pytest.mark.parametrize("provider", [n for n in threads.PROVIDERS if n != "openmp-loaded"])
    def test_eight_threads_calling_200_times_equal_serial(self, provider: str) -> None:
        if provider not in threads.available():
            pytest.skip(f"{provider} is not available")
        team, add = Module(team_artifact(), 3, provider), Module(add_artifact(), 3, provider)
        inputs = [RNG.random(N, dtype=np.float32) for _ in range(8)]
        wrong: list[str] = []

        def call(x: Any) -> None:
            for _ in range(200):
                total, n = team()
                if total != n * (n + 1) // 2:
                    wrong.append(f"team {total} {n}")
                if not (add(x, B) == x + B).all():
                    wrong.append("add")

        callers = [threading.Thread(target=call, args=(x,)) for x in inputs]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join(60)
        assert not any(c.is_alive() for c in callers)
        assert wrong == []

    def test_scalars_empty_arrays_and_several_outputs(self) -> None:
        args = (ArgSpec("S", "output", (2,), "int32"), ArgSpec("T", "workspace", (1,), "int32", True))
        more = (*args, ArgSpec("e", "input", (0, 3), "bool"), ArgSpec("z", "output", (), "float64"))
        team = Module(renamed(team_artifact(), args=more), threads=2)
        out = team(np.zeros((0, 3), bool))
        assert isinstance(out, tuple)
        assert [x.shape for x in out] == [(2,), ()]


class TestRefusals:
    @pytest.mark.parametrize(
        ("call", "message"),
        [
            (
                lambda f: f(A),
                "add takes 2 arrays (A, B), or 3 with its outputs (C); got 1, without B: float32[1000].",
            ),
            (lambda f: f(A, B, A, B), "add takes 2 arrays (A, B), or 3 with its outputs (C); got 4."),
            (
                lambda f: f(A, [1.0]),
                "add: argument 'B' is a list; expected a NumPy array float32[1000]. "
                "Convert it with np.asarray(x, 'float32').",
            ),
            (
                lambda f: f(A, B[:5]),
                "add: argument 'B' is float32[5]; expected float32[1000]. "
                "Kernels are compiled for fixed shapes.",
            ),
            (
                lambda f: f(A, B.astype("f8")),
                "add: argument 'B' is float64[1000]; expected float32[1000]. "
                "Convert it with .astype('float32').",
            ),
            (
                lambda f: f(A, B.astype(">f4")),
                "add: argument 'B' is >f4[1000] in foreign byte order; expected float32[1000]. "
                "Convert it with .astype('float32').",
            ),
            (
                lambda f: f(A, np.repeat(B, 2)[::2]),
                "add: argument 'B' is not C-contiguous. Use np.ascontiguousarray.",
            ),
            (
                lambda f: f(A, np.zeros(4 * N + 1, np.uint8)[1:].view(np.float32)),
                "add: argument 'B' is not aligned to its 4-byte elements. Use a copy of it.",
            ),
            (
                lambda f: f(A, B, out=_read_only(A)),
                "add: argument 'C' is an output but read-only. Give an array that may be written to.",
            ),
            (lambda f: f(A, B, A), "add: output 'C' shares memory with 'A'. Give it memory of its own."),
            (lambda f: f(A, B, out=(A, B)), "add has 1 outputs; out= holds 2."),
            (lambda f: f(A, B, D=A), "add has no argument 'D'. Known: A, B, C."),
            (lambda f: f(A, B, A=A), "add: argument 'A' was given twice."),
            (lambda f: f.bind(A=A), "bind: add has no free constant 'A'. Known: none."),
            (lambda f: f.source("lvm"), "add keeps no text 'lvm'. Did you mean 'llvm'? Known: llvm, te."),
        ],
    )
    def test_message(self, add: Module, call: Callable[[Module], Any], message: str) -> None:
        with pytest.raises(ArgumentError) as caught:
            call(add)
        assert str(caught.value) == message
        assert (add(A, B) == A + B).all()  # still works afterwards

    def test_partly_overlapping_memory_is_found(self, add: Module) -> None:
        whole = np.zeros(2 * N, np.float32)
        add(whole[:N], B, whole[N:])
        with pytest.raises(ArgumentError, match="output 'C' shares memory with 'A'"):
            add(whole[:N], B, whole[N - 1 : -1])


class TestConstants:
    def test_bound_once_or_given_in_every_call(self) -> None:
        free = Module(prepared_artifact())
        assert [a.name for a in free.args] == ["A", "W", "C"]
        assert (free(A, B) == A + 2 * B).all()
        bound = free.bind(W=B)
        assert [a.name for a in bound.args] == ["A", "C"]
        assert (bound(A) == A + 2 * B).all()
        assert (free(A, A) == A + 2 * A).all()

    def test_bound_values_are_those_of_the_moment(self) -> None:
        w = B.copy()
        bound = Module(prepared_artifact()).bind(W=w)
        w[:] = 0
        assert (bound(A) == A + 2 * B).all()

    def test_values_that_do_not_fit_are_refused(self) -> None:
        free = Module(prepared_artifact())
        with pytest.raises(ArgumentError, match=r"argument 'W' is float32\[3\]; expected float32\[1000\]"):
            free.bind(W=B[:3])
        with pytest.raises(ArgumentError, match="no free constant 'W'"):
            free.bind(W=B).bind(W=B)

    def test_saved_bound_and_loaded(self, tmp_path: Path) -> None:
        path = tmp_path / "scale.atm"
        Module(prepared_artifact()).bind(W=B).save(path)
        loaded = saved_model.load(path, threads=2)
        assert (loaded(A) == A + 2 * B).all()
        prepared = loaded.artifact.values["P"]
        assert set(loaded.artifact.values) == {"P"}  # `entry` reads no constant, so W is not kept
        assert prepared.ctypes.data % 64 == 0
        assert not prepared.flags.writeable

    def test_constants_in_the_artifact_are_prepared_when_loading(self) -> None:
        bound = Module(renamed(prepared_artifact(), values={"W": B}))
        assert (bound(A) == A + 2 * B).all()


class TestLoading:
    def test_missing_features_are_named(self) -> None:
        with pytest.raises(ArtifactError) as caught:
            Module(renamed(add_artifact(), needs=("sse2", "avx9000", "+amx-magic")))
        assert (
            caught.value.what == "add needs the CPU features avx9000, amx-magic, which this processor lacks."
        )

    def test_other_machines_are_named(self) -> None:
        foreign = renamed(host(), triple="aarch64-unknown-linux-gnu")
        with pytest.raises(
            ArtifactError, match="add is compiled for aarch64-unknown-linux-gnu, this machine is "
        ):
            Module(renamed(add_artifact(), target=foreign))
        with pytest.raises(
            ArtifactError, match="add is compiled for 'cuda'; only code for CPUs is loaded here"
        ):
            Module(renamed(add_artifact(), target=renamed(host(), kind="cuda")))

    def test_code_of_another_processor_without_a_triple(self) -> None:
        code = bytearray(compiled(ADD))
        code[18:20] = (183).to_bytes(2, "little")
        with pytest.raises(ArtifactError, match="add holds code for aarch64, this machine is "):
            Module(renamed(add_artifact(), objects=(bytes(code),)))

    @pytest.mark.parametrize("cut", [20, 100, 400])
    def test_objects_cut_short(self, cut: int) -> None:
        with pytest.raises(ArtifactError, match=r"one of its object files is cut short|no function 'add'"):
            Module(renamed(add_artifact(), objects=(compiled(ADD)[:cut],)))

    def test_symbols_nobody_defines(self) -> None:
        ir = "declare void @nowhere_to_be_found()\n" + ADD.replace(
            "ret void", "call void @nowhere_to_be_found()\nret void"
        )
        with pytest.raises(
            ArtifactError, match="add calls nowhere_to_be_found, which no library here defines"
        ):
            Module(renamed(add_artifact(), objects=(compiled(ir),)))
        with pytest.raises(ArtifactError, match="add has no function 'sub' in its object code"):
            Module(renamed(add_artifact(), entry="sub"))

    def test_objects_see_each_other_and_libm(self) -> None:
        caller = "declare float @helper(float)\n" + ADD.replace(
            "%c = fadd float %a, %b", "%c = call float @helper(float %a)"
        )
        helper = (
            "declare float @expf(float)\n"
            "define float @helper(float %x) {\n%y = call float @expf(float %x)\nret float %y\n}"
        )
        for objects in ((compiled(caller), compiled(helper)), (compiled(helper), compiled(caller))):
            c = Module(renamed(add_artifact(), objects=objects))(A, B)
            np.testing.assert_allclose(c, np.exp(A), rtol=1e-6)

    def test_recompile_uses_the_text_inside(self, tmp_path: Path) -> None:
        path = tmp_path / "add.atm"
        broken = renamed(add_artifact(), needs=("avx9000",))
        artifacts.save(path, broken)
        with pytest.raises(ArtifactError, match="recompiling needs a compiler"):
            saved_model.load(path, recompile=True)
        with pytest.raises(ArtifactError, match="avx9000"):
            saved_model.load(path)
        rebuilt = saved_model.load(path, recompile=True, compiler=lambda text: (compiled(text), ()))
        assert (rebuilt(A, B) == A + B).all()
        artifacts.save(path, renamed(broken, texts={}))
        with pytest.raises(ArtifactError, match="keeps no LLVM text"):
            saved_model.load(path, recompile=True)

    def test_loading_and_running_needs_only_numpy_and_llvmlite(self, tmp_path: Path) -> None:
        path = tmp_path / "add.atm"
        artifacts.save(path, add_artifact())
        script = (
            "import sys, numpy as np; from autotensor.runtime.saved_model import load\n"
            f"a = np.ones(1000, np.float32); assert (load({str(path)!r})(a, a) == 2).all()\n"
            "print([m for m in ('xgboost', 'sqlalchemy', 'msgspec', 'psutil', 'platformdirs', 'filelock'"
            ", 'typer', 'ml_dtypes', 'autotensor.search') if m in sys.modules])"
        )
        command = [sys.executable, "-c", script]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True, timeout=240)
        assert done.stdout == "[]\n"


def test_texts_and_repr(add: Module) -> None:
    assert add.source("te") == "C[i] = A[i] + B[i]"
    words = "1 thread" if add.threads == 1 else f"{add.threads} threads"
    assert repr(add) == f"<Module add(A: float32[1000], B: float32[1000], C: float32[1000]), {words}>"


def test_time_gives_all_samples(add: Module) -> None:
    samples = add.time((A, B), repeat=4, min_seconds=0.001)
    assert len(samples) == 4
    assert all(0 < s < 0.1 for s in samples)


def test_argument_without_value_or_prepare_is_refused() -> None:
    args = (vector("A", "input"), vector("P", "prepared"), vector("C", "output"))
    with pytest.raises(ArtifactError, match="neither a value nor a prepare function for P"):
        Module(Artifact("add", host(), "add", None, args, (compiled(ADD),)))


def _read_only(x: np.ndarray) -> np.ndarray:
    y = x.copy()
    y.flags.writeable = False
    return y
