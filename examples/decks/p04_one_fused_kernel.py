"""P4: h = relu(matmul(x, W) + b): three operators, one kernel, fed at run time."""

import numpy as np

import autotensor.flow as tf

b = tf.Variable(tf.zeros((100,)), name="b")
W = tf.Variable(tf.random_uniform((784, 100), -1, 1), name="W")
x = tf.placeholder(tf.float32, (1, 784), name="x")
h = tf.nn.relu(tf.matmul(x, W) + b)

sess = tf.Session(seed=1)
sess.run(tf.initialize_all_variables())
image = np.random.default_rng(0).random((1, 784), dtype=np.float32)
explained = sess.graph(h, {x: image}).explain()
print(explained)
assert len(explained.groups) == 1
assert [n.op_name for n in explained.groups[0].nodes] == ["matmul", "add", "relu"]

answer = sess.run(h, {x: image})
np.testing.assert_allclose(answer, np.maximum(image @ sess.run(W), 0), rtol=1e-3, atol=1e-4)
print(f"h: {answer.shape}, {(answer > 0).mean():.0%} of it above 0")
