"""P7: GradientDescentOptimizer(0.5).minimize of a loss that is a vector, one number per example.

The sum of the vector is minimised. Labels are [100, 10], so the batch of x, which is written as None, is 100.
"""

import numpy as np

import autotensor.flow as tf

x = tf.placeholder(tf.float32, [None, 784])
label = tf.placeholder(tf.float32, [100, 10])
W = tf.Variable(tf.zeros([784, 10]))
prediction = tf.nn.softmax(tf.matmul(x, W))
cross_entropy = -tf.reduce_sum(label * tf.log(prediction), axis=1)
print("prediction:", prediction.spec, " cross entropy:", cross_entropy.spec)
train_step = tf.train.GradientDescentOptimizer(0.5).minimize(cross_entropy)

rng = np.random.default_rng(0)
images = rng.random((100, 784), dtype=np.float32) / 100
labels = np.eye(10, dtype=np.float32)[rng.integers(0, 10, 100)]
sess = tf.Session()
sess.run(tf.initialize_all_variables())
first = sess.run(cross_entropy, {x: images, label: labels})
sess.run(train_step, {x: images, label: labels})

# By hand: dL/dW = xᵀ (softmax - label), summed over the examples
step = 0.5 * images.T @ (labels - 0.1)
np.testing.assert_allclose(sess.run(W), step, rtol=1e-4, atol=1e-6)
second = sess.run(cross_entropy, {x: images, label: labels})
print(f"sum of losses {first.sum():.3f} ──▶ {second.sum():.3f}")
assert first.shape == (100,)
assert second.sum() < first.sum()
