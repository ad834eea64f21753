"""P5: the logistic regression that the deck prints five times. It is tinyflow's program; only the import
differs.

python examples/decks/p05_logistic_regression.py [--steps 1000]
"""

import argparse

import autotensor.flow as tf
from autotensor.flow.datasets import get_mnist

options = argparse.ArgumentParser()
options.add_argument("--steps", type=int, default=1000)
steps = options.parse_args().steps

# Create the model
x = tf.placeholder(tf.float32, [None, 784])
W = tf.Variable(tf.zeros([784, 10]))
y = tf.nn.softmax(tf.matmul(x, W))

# Define loss and optimizer
y_ = tf.placeholder(tf.float32, [None, 10])

cross_entropy = tf.reduce_mean(-tf.reduce_sum(y_ * tf.log(y), reduction_indices=[1]))

learning_rate = 0.5
W_grad = tf.gradients(cross_entropy, [W])[0]
train_step = tf.assign(W, W - learning_rate * W_grad)

sess = tf.Session()
sess.run(tf.initialize_all_variables())

# get the mnist dataset
mnist = get_mnist(flatten=True, onehot=True)

for _ in range(steps):
    batch_xs, batch_ys = mnist.train.next_batch(100)
    sess.run(train_step, feed_dict={x: batch_xs, y_: batch_ys})

correct_prediction = tf.equal(tf.argmax(y, 1), tf.argmax(y_, 1))
accuracy = tf.reduce_mean(correct_prediction)

result = sess.run(accuracy, feed_dict={x: mnist.test.images, y_: mnist.test.labels})
print(f"accuracy {result:.4f} on {'drawn digits, not MNIST' if mnist.drawn else 'MNIST'}")
print(f"{len(sess.programs)} programs for {steps} steps of 100 and a test of {len(mnist.test.labels)} images")
assert result > (0.97 if mnist.drawn else 0.88)
