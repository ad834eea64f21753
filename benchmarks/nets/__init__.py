"""Networks as torch modules and ONNX files, and a kernel by hand."""
