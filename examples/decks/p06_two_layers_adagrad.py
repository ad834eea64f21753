"""P6: a two-layer network, softmax_cross_entropy_with_logits, AdagradOptimizer(0.01), `with tf.Session()`."""

import argparse

import autotensor.flow as tf
from autotensor.flow.datasets import get_mnist

options = argparse.ArgumentParser()
options.add_argument("--steps", type=int, default=300)
steps = options.parse_args().steps

x = tf.placeholder(tf.float32, [None, 784])
y = tf.placeholder(tf.float32, [None, 10])
W_1 = tf.Variable(tf.random_uniform([784, 100], -1, 1, seed=1))
W_2 = tf.Variable(tf.random_uniform([100, 10], -1, 1, seed=2))
layer_1 = tf.matmul(x, W_1)
layer_2 = tf.matmul(layer_1, W_2)

loss = tf.nn.softmax_cross_entropy_with_logits(logits=layer_2, labels=y)
train_op = tf.train.AdagradOptimizer(0.01).minimize(loss)
mean_loss = tf.reduce_mean(loss)

mnist = get_mnist(flatten=True, onehot=True)
losses = []
with tf.Session() as sess:
    sess.run(tf.initialize_all_variables())
    for _ in range(steps):
        images, labels = mnist.train.next_batch(100)
        losses.append(float(sess.run([mean_loss, train_op], {x: images, y: labels})[0]))
print(f"loss {losses[0]:.2f} ──▶ {losses[-1]:.4f} in {steps} steps")
print("variables:", ", ".join(v.name for v in tf.variables()))
assert losses[-1] < losses[0] / 5
