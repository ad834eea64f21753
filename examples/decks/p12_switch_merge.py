"""P12: if x < y return x + z else return y²: switch, merge, dead tensors; and a loop."""

import autotensor.flow as tf

x = tf.placeholder(tf.float32, [], name="x")
y = tf.placeholder(tf.float32, [], name="y")
z = tf.placeholder(tf.float32, [], name="z")
result = tf.cond(x < y, lambda: x + z, lambda: tf.square(y))

sess = tf.Session()
for feeds, expected in (({x: 1, y: 2, z: 10}, 11.0), ({x: 3, y: 2, z: 10}, 4.0)):
    value = sess.run(result, feeds)
    print(f"x = {feeds[x]}, y = {feeds[y]}, z = {feeds[z]}: {value}")
    print("   ", "; ".join(sess.events))
    assert value == expected

# the primitives themselves: the branch not taken is dead, and merge forwards the other branch
no, yes = tf.switch(z, x < y)
merged = tf.merge([yes + 1.0, no * 2.0])
assert sess.run(merged, {x: 1, y: 2, z: 10}) == 11.0
assert sess.run(merged, {x: 3, y: 2, z: 10}) == 20.0

# a static graph contains the whole program: equal parts are merged, and constants are computed once
twice = tf.exp(x + z) * tf.exp(x + z) + (2.0 * 3.0)
explained = sess.graph(twice, {x: 0.5, z: 0.25}).explain()
print(explained)
assert explained.after.count("exp") == 1

# while i < 5: total, i = total * x, i + 1
i, total = tf.while_loop(lambda i, t: i < 5, lambda i, t: (i + 1, t * x), [tf.constant(0), tf.constant(1.0)])
print("1 * x five times, x = 3:", sess.run(total, {x: 3.0}), ";", "; ".join(sess.events))
assert sess.run(total, {x: 3.0}) == 243.0
