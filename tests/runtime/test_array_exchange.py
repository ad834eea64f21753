"""Arrays of other libraries, small types, names, and several shapes in one file."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import autotensor as at
from autotensor.base.errors import ArgumentError, ArtifactError
from autotensor.runtime.files import artifact_file as artifacts
from autotensor.runtime.files.artifact import Artifact
from autotensor.runtime.module import Module

RNG = np.random.default_rng(0)


class Foreign:
    """An array of another library: memory behind DLPack, and nothing else of NumPy's."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.shape = array.shape

    def __dlpack__(self, **how):
        return self.array.__dlpack__(**how)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def weighted(batch: int) -> Module:
    """relu(x @ w) of a batch, with the same w for all batches; and its greatest element."""
    w = np.random.default_rng(1).standard_normal((5, 64)).astype(np.float32)
    x = at.input((batch, 64), name="x")
    y = at.ops.relu(at.ops.dense(x, w))
    return at.compile_model(at.Graph((x,), (y, at.ops.max(y)), "weighted", ("y", "top")), db=":memory:")


def of_type(dtype: str) -> Module:
    x, y = at.input((3, 4), dtype, "x"), at.input((3, 4), dtype, "y")
    return at.compile_model(at.ops.relu(x + y), db=":memory:")


@pytest.fixture(scope="module")
def one() -> Module:
    return weighted(1)


@pytest.fixture(scope="module")
def several(one) -> Module:
    return at.by_shape([one, weighted(3)])


def draw(batch: int) -> np.ndarray:
    return RNG.standard_normal((batch, 64)).astype(np.float32)


class TestOthersArrays:
    def test_inputs_and_outputs(self, one):
        x, y, top = draw(1), np.empty((1, 5), np.float32), np.empty((), np.float32)
        expected = one(x)
        for a, b in zip(one(Foreign(x)), expected, strict=True):
            np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(one(x=Foreign(x))[0], expected[0])
        assert one(Foreign(x), Foreign(y), Foreign(top)) is None
        np.testing.assert_array_equal(y, expected[0])
        assert top == expected[1]
        assert len(one.time([Foreign(x)], repeat=1, min_seconds=0)) == 1

    def test_results_speak_dlpack(self, one):
        y = one(draw(1))[0]
        assert np.shares_memory(np.from_dlpack(y), y)

    def test_strided_ones_are_refused_not_misread(self, one):
        wide = RNG.standard_normal((1, 128)).astype(np.float32)
        for x in (wide[:, ::2], np.asfortranarray(np.ones((2, 64), np.float32))[:1]):
            with pytest.raises(ArgumentError, match=r"'x' is not C-contiguous. Use np.ascontiguousarray"):
                one(x)
        with pytest.raises(ArgumentError, match=r"'x' is not C-contiguous. With torch: x.contiguous\(\)\."):
            one(Foreign(wide[:, ::2]))
        with pytest.raises(
            ArgumentError, match=r"expected float32\[1, 64\]. With torch: x.to\(torch.float32\)"
        ):
            one(Foreign(draw(1).astype(np.float64)))

    def test_too_few_outputs_are_counted(self, one):
        with pytest.raises(
            ArgumentError, match=r"with its outputs \(y, top\); got 2: give all outputs or none"
        ):
            one(draw(1), draw(1))

    def test_read_only_ones_are_read_and_not_written(self, one):
        x, y, top = draw(1), np.empty((1, 5), np.float32), np.empty((), np.float32)
        expected = one(x)[0]
        x.flags.writeable = y.flags.writeable = False
        np.testing.assert_array_equal(one(x)[0], expected)
        with pytest.raises(ArgumentError, match=r"'y' is an output but read-only"):
            one(x, y, top)

    def test_refusals(self, one):
        class Elsewhere(Foreign):
            def __dlpack__(self, **how):
                raise BufferError("it lies on a GPU.")

        with pytest.raises(
            ArgumentError, match=r"a \w+.Elsewhere cannot be read in place: it lies on a GPU. "
        ):
            one(Elsewhere(draw(1)))
        with pytest.raises(ArgumentError, match=r"'x' is float64\[1, 64\]; expected float32\[1, 64\]"):
            one(Foreign(draw(1).astype(np.float64)))
        with pytest.raises(ArgumentError, match=r"'x' is a list; expected a NumPy array"):
            one([1.0])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "uint8", "float64"])
def test_small_and_large_types(dtype):
    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    x, y = ((RNG.random((3, 4)) * 9 - (0 if dtype == "uint8" else 4)).astype(kind) for _ in range(2))
    got = of_type(dtype)(x, y)
    assert got.dtype == kind
    np.testing.assert_array_equal(got, np.maximum(x + y, np.zeros((), kind)))


def test_signature(one):
    assert str(one.signature) == "(x: float32[1, 64]) -> (y: float32[1, 5], top: float32[])"
    results = one(draw(1))
    named = one.signature.named(results)
    assert list(named) == ["y", "top"]
    assert named["top"] is results[1]


class TestSeveralShapes:
    def test_shapes_choose(self, several, tmp_path):
        several.save(tmp_path / "m.atm")
        for f in (several, at.load(tmp_path / "m.atm")):
            for batch, m in ((1, several.modules[0]), (3, several.modules[1])):
                x = draw(batch)
                np.testing.assert_allclose(f(x)[0], m(x)[0], rtol=1e-6)
                np.testing.assert_allclose(f(x=Foreign(x))[1], m(x)[1], rtol=1e-6)
                y, top = np.empty((batch, 5), np.float32), np.empty((), np.float32)
                assert f(x, out=(y, top))[0] is y
                np.testing.assert_allclose(y, m(x)[0], rtol=1e-6)

    def test_other_shapes_are_refused(self, several):
        with pytest.raises(
            ArgumentError,
            match=r"weighted is not compiled for x \[2, 64\]. Its shapes are: x \[1, 64\]; x \[3, 64\]",
        ):
            several(draw(2))
        with pytest.raises(ArgumentError, match=r"takes 1 array"):
            several()
        with pytest.raises(ArgumentError, match=r"not compiled for x \[\]"):
            several([1.0])

    def test_weights_are_kept_once(self, one, tmp_path):
        """Two functions with the same weights in one file; only code and texts differ."""
        twin = Artifact(**{f: getattr(one.artifact, f) for f in one.artifact.__slots__})
        artifacts.save_all(tmp_path / "two.atm", [twin, replace(twin, name="other")])
        artifacts.save(tmp_path / "one.atm", twin)
        grown = (tmp_path / "two.atm").stat().st_size - (tmp_path / "one.atm").stat().st_size
        assert grown < 8192
        assert [a.name for a in artifacts.load_all(tmp_path / "two.atm")] == ["weighted", "other"]
        with pytest.raises(ArtifactError, match=r"holds 2 compiled functions\. autotensor\.load reads them"):
            artifacts.load(tmp_path / "two.atm")

    def test_threads_are_those_of_all(self, several):
        before = several.threads
        several.threads = 1
        assert [m.threads for m in several.modules] == [1, 1]
        several.threads = before

    def test_modules_that_do_not_belong_together(self, one, several):
        with pytest.raises(ArgumentError, match=r"there are no modules"):
            at.by_shape([])
        with pytest.raises(ArgumentError, match=r"two modules take the same shapes"):
            at.by_shape([one, one])
        with pytest.raises(ArgumentError, match=r"model takes and gives .*Names and types must be the same"):
            at.by_shape([one, of_type("int8")])
        with pytest.raises(ArgumentError, match=r"several shapes is among the modules. Give its .modules"):
            at.by_shape([one, several])
        assert "ByShape weighted: (x: float32[1, 64])" in repr(several)


@pytest.mark.torch
def test_torch_tensors():
    torch = pytest.importorskip("torch")
    f = weighted(1)
    x = torch.randn(1, 64)
    y, top = torch.empty(1, 5), torch.empty(())
    expected = f(x.numpy())
    np.testing.assert_array_equal(f(x)[0], expected[0])
    assert torch.from_dlpack(f(x)[0]).equal(torch.from_numpy(expected[0]))
    f(x, y, top)
    assert y.equal(torch.from_numpy(expected[0]))
    with pytest.raises(ArgumentError, match=r"a torch.Tensor cannot be read in place: .*grad"):
        f(x.clone().requires_grad_())
    with pytest.raises(ArgumentError, match=r"'x' is not C-contiguous"):
        f(torch.randn(1, 128)[:, ::2])
    with pytest.raises(ArgumentError, match=r"a torch.Tensor cannot be read in place"):
        f(x.to(torch.float8_e4m3fn))
    with pytest.raises(ArgumentError, match=r"'x' is bfloat16\[1, 64\]; expected float32"):
        f(x.to(torch.bfloat16))
    assert f(torch.nn.Parameter(x, requires_grad=False))[0].tolist() == expected[0].tolist()


@pytest.mark.torch
def test_tensors_that_stand_for_others_are_refused():
    """Their DLPack gives memory that does not belong to them, and so arbitrary numbers were computed."""
    torch = pytest.importorskip("torch")
    from torch._subclasses import FakeTensorMode

    class Wrapper(torch.Tensor):
        @staticmethod
        def __new__(cls, inner):
            return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            raise NotImplementedError

    f, x = weighted(1), torch.randn(1, 64)
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(x)
    for tensor, name in ((fake, "torch.FakeTensor"), (Wrapper(x), "Wrapper")):
        with pytest.raises(ArgumentError, match=rf"{name} has no memory of its own\. Give a plain torch"):
            f(tensor)


@pytest.mark.torch
def test_bfloat16_tensors_are_read_and_written_in_place():
    torch = pytest.importorskip("torch")
    x = at.input((3, 8), "bfloat16", name="x")
    f = at.compile_model(at.ops.relu(x), db=":memory:")
    given, out = torch.randn(3, 8).to(torch.bfloat16), torch.empty(3, 8, dtype=torch.bfloat16)
    f(given, out)
    assert out.equal(torch.relu(given))
    got = f(given)
    assert torch.from_numpy(got.view(np.int16)).view(torch.bfloat16).equal(out)
