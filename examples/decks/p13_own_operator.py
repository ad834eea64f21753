"""P13: class ExpOp(Op) with a gradient of its own: an operator is a te function, its gradient one line."""

import numpy as np

import autotensor as at
from autotensor import te
from autotensor.autodiff import gradients
from autotensor.operators import OPERATORS, Case, Kind
from autotensor.operators.operator import operator

if "deck_exp" not in OPERATORS.names():

    @operator(
        "deck_exp",
        kind=Kind.ELEMENTWISE,
        reference=np.exp,
        cases=(Case(((2, 3),)),),
        # the deck: gradient(node, out_grad) = exp(node.inputs[0]) * out_grad
        gradient=lambda node, out_grad, k: at.ops.deck_exp(node.inputs[0]) * out_grad,
    )
    def deck_exp(x: te.Tensor):
        return te.compute(x.shape, lambda *i: te.exp(x[i]), name="deck_exp")


x = at.input((2, 3), name="x")
y = at.ops.deck_exp(x) * x
(dx,) = gradients(y, x)
graph = at.Graph((x,), (y, dx), "exp_op")
print(graph)

array = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
value, slope = at.compile_model(graph)(array)
np.testing.assert_allclose(value, np.exp(array) * array, rtol=1e-5)
np.testing.assert_allclose(slope, np.exp(array) * (array + 1), rtol=1e-5)
print("d(exp(x) x)/dx at", array[0].tolist(), "=", slope[0].tolist())


# An operator without a declared gradient has one, too: its te body is differentiated.
def log_cosh(t):
    return te.compute(t.shape, lambda *i: te.log(te.cosh(t[i])), name="log_cosh")


y = at.call(log_cosh, x)
slope = at.compile_model(gradients(y, x)[0])(array)
np.testing.assert_allclose(slope, np.tanh(array), rtol=1e-4, atol=1e-6)
print("d log cosh(x)/dx = tanh(x):", slope[0].tolist())
