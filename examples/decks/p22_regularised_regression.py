"""P22: ŷ = 1 / (1 + exp(-wᵀx)), L = Σ l(y, ŷ) + λ|w|², w ← w - η∇L: one graph, and one program for each
step."""

import numpy as np

import autotensor.flow as tf

rng = np.random.default_rng(0)
truth = rng.standard_normal(5).astype(np.float32)
points = rng.standard_normal((200, 5)).astype(np.float32)
classes = (points @ truth > 0).astype(np.float32)

x = tf.placeholder(tf.float32, [None, 5])
y = tf.placeholder(tf.float32, [None])
w = tf.Variable(tf.zeros([5, 1]), name="w")
share = tf.reshape(1.0 / (1.0 + tf.exp(-tf.matmul(x, w))), [-1])
likelihood = -(y * tf.log(share) + (1.0 - y) * tf.log(1.0 - share))
loss = tf.reduce_sum(likelihood) + 0.1 * tf.reduce_sum(tf.square(w))
step = tf.assign(w, w - 0.01 * tf.gradients(loss, [w])[0])

sess = tf.Session()
sess.run(tf.initialize_all_variables())
feeds = {x: points, y: classes}
by_hand = np.zeros((5, 1), np.float64)
for _ in range(50):
    value = sess.run([loss, step], feeds)[0]
    p = 1 / (1 + np.exp(-points.astype(np.float64) @ by_hand))
    by_hand -= 0.01 * (points.T.astype(np.float64) @ (p - classes[:, None]) + 0.2 * by_hand)
right = np.mean((sess.run(share, feeds) > 0.5) == (classes > 0.5))
print(f"loss {value:.3f}, {right:.1%} right, w = {np.round(sess.run(w).ravel(), 3).tolist()}")
np.testing.assert_allclose(sess.run(w), by_hand, rtol=1e-3)
assert right > 0.97
assert len(sess.programs) == 2  # the step, and the share
