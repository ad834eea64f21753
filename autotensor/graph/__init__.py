"""Whole models: graphs of operators, groups that become kernels, memory, one linked program.

    x = input((1, 3, 224, 224), name="x")
    y = ops.relu(ops.conv2d(x, weight, padding=1))
    graph = Graph((x,), (y,), "small")

Start reading at `graph/ir.py` (what a graph is) and `graph/build.py` (how one is written). Then read
`rules/`, `partition.py`, `memory.py` and `linking/`: a model passes through them in this order.
"""
