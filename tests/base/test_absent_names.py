"""Names that TVM's users look for, and misspelt ones."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import autotensor as at
from autotensor import te
from autotensor.cli.usage_errors import OPTIONAL

ROOT = Path(at.__file__).parent


def stage() -> Any:
    a = te.placeholder((4,), name="A")
    c = te.compute((4,), lambda i: a[i] + 1, name="C")
    return at.create_schedule(c)[c]


def kernel() -> Any:
    a = te.placeholder((4,), name="A")
    c = te.compute((4,), lambda i: a[i] + 1, name="C")
    return at.build(at.create_schedule(c), [a, c])


@pytest.mark.parametrize(
    ("look", "message"),
    [
        (
            lambda: at.nd,
            "at.nd does not exist in autotensor; pass NumPy arrays: f(a, b, c).",
        ),
        (lambda: at.auto_scheduler, "one search serves all: at.tune([A, B, C], trials=64)"),
        (lambda: at.testing, "write numpy.testing.assert_allclose"),
        (lambda: te.call_pure_extern, "a kernel calls no other code"),
        (lambda: stage().transform_layout, "write s.layout(tensor, splits, order)"),
        (lambda: at.relay, "models are read by at.from_onnx or at.from_torch"),
        (
            lambda: te.size_var,
            'te.size_var does not exist in autotensor; write te.var("n", range=(1, 512)), or n = 1024.',
        ),
        (
            lambda: stage().prefetch,
            "s[C].prefetch does not exist in autotensor; leave it out; a CPU fetches ahead by itself",
        ),
        (
            lambda: stage().schedule.create_group,
            "s.create_group does not exist in autotensor; attach each stage",
        ),
        (lambda: at.runtime.load_module, 'write at.load("k.atm")'),
        (lambda: te.isfinite, 'write te.abs(x) < float("inf")'),
        (lambda: at.placeholder, "at.placeholder does not exist in autotensor; write te.placeholder"),
        (lambda: at.target, 'write the text of the target: target="llvm -mcpu=znver4"'),
        (lambda: kernel().time_evaluator, "f.time_evaluator does not exist in autotensor; f.time([a, b])"),
    ],
)
def test_what_to_write_instead(look: Any, message: str) -> None:
    with pytest.raises(AttributeError) as caught:
        look()
    assert message in str(caught.value)


@pytest.mark.parametrize("name", ["auto_scheduler", "autotvm", "topi", "testing", "nd", "graph_executor"])
@pytest.mark.parametrize(
    "statement",
    ["from autotensor import {}", "import autotensor.{}", "from autotensor.{}.inside import anything"],
)
def test_an_import_gets_the_advice_of_the_attribute(name: str, statement: str) -> None:
    with pytest.raises(AttributeError) as attribute:
        getattr(at, name)
    with pytest.raises(ImportError) as imported:
        exec(statement.format(name))
    assert str(imported.value) == str(attribute.value)


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        (
            "from autotensor.tir import const",
            "at.tir does not exist in autotensor; it is te: from autotensor",
        ),
        ("import autotensor.te.hybrid", "te.hybrid does not exist in autotensor; a stage is always an expr"),
        ("from autotensor.ir.module import IRModule", "at.ir.module does not exist in autotensor; at.lower"),
        ("from autotensor.runtime.vm import x", "at.runtime.vm does not exist in autotensor; models are"),
    ],
)
def test_an_import_of_a_module_inside_gets_advice(statement: str, says: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=re.escape(says)):
        exec(statement)


@pytest.mark.parametrize(
    ("use", "says"),
    [
        (lambda: kernel()["main"], "C has no parts, got ['main']. It is one function: call it."),
        (lambda: at.lower(te.create_schedule(B), [A, B])["main"], "the loops have no parts, got ['main']."),
    ],
)
def test_a_function_and_its_loops_have_no_parts(use: Any, says: str) -> None:
    with pytest.raises(at.AutotensorError, match=re.escape(says)):
        use()


def test_modules_without_advice_are_not_found_as_usual() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'autotensor\.nonsense'"):
        exec("import autotensor.nonsense")


@pytest.mark.parametrize(
    ("look", "name", "message"),
    [
        (lambda: at.buld, "buld", "module 'autotensor' has no attribute 'buld'"),
        (lambda: te.computee, "computee", "module 'autotensor.te' has no attribute 'computee'"),
        (lambda: stage().vectorise, "vectorise", "'StageRef' object has no attribute 'vectorise'"),
        (lambda: kernel().sauce, "sauce", "'Module' object has no attribute 'sauce'"),
    ],
)
def test_python_can_ask_for_the_nearest_name(look: Any, name: str, message: str) -> None:
    with pytest.raises(AttributeError) as caught:
        look()
    assert str(caught.value) == message
    assert caught.value.name == name
    assert caught.value.obj is not None


def test_the_text_of_a_target_is_not_its_kind() -> None:
    with pytest.raises(
        at.AutotensorError, match=r"is not the kind of a target, .* Write target='llvm -threads=2'"
    ):
        at.Target("llvm -threads=2")


def test_a_tensor_of_te_is_no_model() -> None:
    with pytest.raises(
        at.AutotensorError, match=r"got a tensor of te\. at\.build\(\[A, B, C\]\) compiles it"
    ):
        at.compile_model(te.placeholder((4,)))


def test_doctor_offers_only_packages_that_are_used() -> None:
    folders = (ROOT, ROOT.parent / "tuning_db")
    texts = [p.read_text("utf-8") for folder in folders for p in folder.rglob("*.py")]
    for module in OPTIONAL:
        ways = (f"import {module}", f"from {module}", f"+{module}:", f"from dask.{module}")  # +: in a URL
        assert any(way in t for t in texts for way in ways), module


A = te.placeholder((4,), name="A")
B = te.compute((4,), lambda i: A[i] + 1.0, name="B")
K = te.reduce_axis(4, name="k")
S = te.compute((1,), lambda i: te.sum(A[K], axis=K), name="S")


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: at.tune([A, B], trails=8), "at.tune takes no argument 'trails'. Did you mean 'trials'"),
        (lambda: at.tune([A, B], num_measure_trials=8), "'num_measure_trials'. Write trials=N."),
        (lambda: at.build([A, B], target_host="llvm"), "'target_host'. Leave it out: the target is one text"),
        (lambda: at.lower(te.create_schedule(B), [A, B], binds={}), "at.lower takes no argument 'binds'."),
        (lambda: at.compile_model(A, numerics="bf16"), 'target="llvm -numerics=bf16"'),
        (lambda: te.compute((4,), lambda i: A[i], varargs_names=["x"]), "'varargs_names'. Leave it out"),
        (lambda: at.compile_model(at.input((4,)), trial=3), "no argument 'trial'. Did you mean 'trials'"),
        (lambda: at.build([A, B], runtime="cpp"), "no argument 'runtime'. Leave it out: f.save writes"),
        (
            lambda: at.build(te.create_schedule(B), [A, B], "llvm", "llvm"),
            "at.build: too many positional arguments. It takes what, args, target; by name only: name, db",
        ),
        (lambda: at.lower(te.create_schedule(B), A, B), "at.lower: too many positional arguments. It takes"),
        (lambda: stage().split(), "s[C].split: missing a required argument: 'axis'. It takes axis, factor"),
        (lambda: stage().split("i", faktor=2), "s[C].split takes no argument 'faktor'. Did you mean 'fact"),
        (lambda: stage().split("i", 2, disable_predication=True), "'disable_predication'. Leave it out: a"),
        (lambda: stage().split(parent="i", factor=2), "no argument 'parent'. Pass it by position"),
        (lambda: stage().vectorize(), "s[C].vectorize: missing a required argument: 'axis'. It takes axis."),
        (lambda: stage().compute_inline(1), "s[C].compute_inline: too many positional arguments. It takes"),
        (lambda: at.create_schedule(S).rfactor(S, K, factor_axis=1), "s.rfactor takes no argument 'factor"),
        (lambda: te.sum(A[K], K, keepdims=True), "te.sum takes no argument 'keepdims'. Known: expr, axis"),
        (lambda: te.placeholder((4,), "int8", "x", False, 1), "te.placeholder: too many positional"),
        (lambda: te.var("n", dtype="int32"), "te.var takes no argument 'dtype'. Leave it out: extents are"),
        (lambda: te.reduce_axis(4, thread_tag="threadIdx.x"), "'thread_tag'. Leave it out: s[C].bind"),
        (lambda: te.thread_axis("threadIdx.x", name="tx"), "'name'. Leave it out: loops keep their names"),
        (lambda: kernel().time([], number=10), "f.time takes no argument 'number'. Write repeat=N for N"),
        (lambda: kernel().save(), "f.save: missing a required argument: 'path'. It takes path, store."),
    ],
)
def test_wrong_arguments(call, says) -> None:
    with pytest.raises(at.AutotensorError, match=re.escape(says)) as found:
        call()
    assert isinstance(found.value, TypeError)  # as for every other function


def test_a_type_error_inside_a_function_stays_as_it_is() -> None:
    with pytest.raises(TypeError, match="can only concatenate list") as found:
        te.compute((4,), lambda i: [] + 1)
    assert not isinstance(found.value, at.AutotensorError)


@pytest.mark.parametrize(
    ("use", "says"),
    [
        (lambda: te.Cast, "write te.cast"),
        (lambda: te.div, "write a / b, or a // b"),
        (lambda: te.infinity, "te.max_value"),
        (lambda: at.module, 'at.load("k.atm")'),
        (lambda: at.max, "te.maximum of two"),
        (lambda: te.create_schedule(B).stage_map, "s[C] is the stage of C"),
        (lambda: te.create_schedule(B)[B].all_iter_vars, "leaf_iter_vars"),
        (lambda: at.build([A, B]).get_function, "a module is one function"),
        (lambda: at.tir.IntImm, 'write the number, or te.const(3, "int32")'),
        (lambda: at.tir.Add, "write the formula: a + b"),
        (lambda: at.tir.PrimFunc, "loops are made by at.lower"),
        (lambda: te.likely, "write the condition alone"),
        (lambda: at.ir.Range, "write the extent: te.reduce_axis(n)"),
        (lambda: at.ir.transform, "there are no passes to configure"),
        (lambda: at.runtime.ndarray, "pass NumPy arrays"),
        (lambda: at.TVMError, "errors are at.AutotensorError"),
        (lambda: at.exp, "write te.exp, after from autotensor import te"),
        (lambda: A.numpy, "a tensor of te has no values"),
        (lambda: A.T, "write a te.compute over the new axes"),
        (lambda: te.create_schedule(B)[B].shape, "a stage is not a tensor; C.shape"),
        (
            lambda: te.create_schedule(B)[B].op.body,
            "s[C].op.body does not exist in autotensor; it is C.op.body",
        ),
        (lambda: te.create_schedule(B)[B].op.axis[0].dom, "C.op.axis[0].dom.extent is the extent"),
        (lambda: at.lower(te.create_schedule(B), [A, B]).script, "print it, or its .ir"),
        (lambda: kernel().set_input, "call it with NumPy arrays"),
        (lambda: te.thread_axis("threadIdx.x").var, "leave it out; loops have the guards"),
        (lambda: B.op.num_outputs, "it is len(C.op.body)"),
        (lambda: at.ndarray, "pass NumPy arrays"),
    ],
)
def test_more_habits_of_tvm(use, says) -> None:
    with pytest.raises(AttributeError, match=re.escape(says)):
        use()
    assert B.op.axis[0].dom.extent == 4
    assert B.op.body == B.op.bodies
