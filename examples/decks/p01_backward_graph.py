"""P1: y = x1 + exp(1.5*x1 + 2.0*x2) at x1 = 3, x2 = 0.5, its gradients, and the graph that computes them.

The numbers are float64, because the slide shows nine digits.
"""

import numpy as np

import autotensor.flow as tf

x1 = tf.placeholder(tf.float64, [], name="x1")
x2 = tf.placeholder(tf.float64, [], name="x2")
y = x1 + tf.exp(1.5 * x1 + 2.0 * x2)
dy = tf.gradients(y, [x1, x2])
at = {x1: 3.0, x2: 0.5}

sess = tf.Session()
print("forward graph:")
print(sess.graph(y, at))
print("\nbackward graph, added to it:")
print(sess.graph(dy, at))

values = sess.run([y, *dy], at)
print(f"\ny = {values[0]:.6f}, dy/dx1 = {values[1]:.6f}, dy/dx2 = {values[2]:.6f}")
np.testing.assert_allclose(values, [247.691932, 368.037898, 489.383865], atol=5e-7)
