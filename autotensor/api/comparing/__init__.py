"""The effect of quantising a model: two ONNX files side by side, layer by layer.

    float.onnx ─────▶ values of its layers ─┐                      cosine, largest error, signal to noise
                                            ├─ pairs ─▶ sums ─▶    of each layer and each result,
    quantised.onnx ─▶ values of its layers ─┘                      agreement of classes, time of both

Start reading at `compare.compare`; `onnx_layers.py` says which tensors belong together.
"""
