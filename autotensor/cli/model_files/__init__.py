"""Models from files: ONNX and PyTorch, as the verbs take them."""
