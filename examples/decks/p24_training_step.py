"""P24: θ(t+1) = f(θ(t), ∇L(θ(t), D(t))): forward, backward and update as one program.

The program has the same step three times: static, imperative under @at.compile, and in place by
at.training_step. The first two give the same bits. The third may join products and sums of different
operators, and agrees within rounding.
"""

import numpy as np

import autotensor as at
import autotensor.flow as tf
from autotensor import imperative as torch
from autotensor.autodiff.optimizers import SGD

rng = np.random.default_rng(0)
data = rng.standard_normal((64, 20)).astype(np.float32)
goal = rng.standard_normal((64, 1)).astype(np.float32)
start = (rng.standard_normal((20, 1)) * 0.1).astype(np.float32)
STEPS = 20

x, y = tf.placeholder(tf.float32, [None, 20]), tf.placeholder(tf.float32, [None, 1])
w = tf.Variable(tf.constant(start))
loss = tf.losses.l2(tf.matmul(x, w), y)
step = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
sess = tf.Session()
sess.run(tf.initialize_all_variables())
static = [sess.run([loss, step], {x: data, y: goal})[0] for _ in range(STEPS)]

theta = torch.tensor(start, requires_grad=True)
optimizer = torch.optim.SGD([theta], lr=0.1)


@at.compile
def one_step(x, y):
    loss = torch.mse(x @ theta, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


compiled = [one_step(data, goal) for _ in range(STEPS)]
print(f"static   {static[0]:.6f} ──▶ {static[-1]:.6f}")
print(f"compiled {compiled[0]:.6f} ──▶ {compiled[-1]:.6f}, traced {one_step.traces} time")
assert np.array_equal(static, compiled)
assert np.array_equal(sess.run(w), theta.numpy())

images, wanted = at.input((64, 20), name="x"), at.input((64, 1), name="y")
parameter = at.parameter(start, name="w")
error = at.ops.matmul(images, parameter) - wanted
train = at.training_step(at.ops.mean(error * error), optimizer=SGD(0.1))
in_place = [float(train(data, goal)) for _ in range(STEPS)]
print(f"in place {in_place[0]:.6f} ──▶ {in_place[-1]:.6f}")
np.testing.assert_allclose(in_place, static, rtol=1e-4)

# the gradient of all examples is the average of the parts' gradients
parts = [sess.run(tf.gradients(loss, [w])[0], {x: data[k::4], y: goal[k::4]}) for k in range(4)]
whole = sess.run(tf.gradients(loss, [w])[0], {x: data, y: goal})
np.testing.assert_allclose(np.mean(parts, axis=0), whole, rtol=1e-3, atol=1e-5)
print("the average of four workers' gradients is the gradient of all examples")
