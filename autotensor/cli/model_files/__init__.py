"""Model files as arguments of the verbs: ONNX and PyTorch."""
