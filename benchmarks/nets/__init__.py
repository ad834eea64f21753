"""Networks as torch modules and ONNX files, the conversion between these, and a kernel written by hand."""
