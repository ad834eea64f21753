"""Networks as torch modules and ONNX files, how one becomes the other, and a kernel by hand."""
