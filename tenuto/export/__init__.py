"""Policies taken away from tenuto. `recipe.py` is a list of steps on arrays, `networks.py` and `decision.py` write down
a policy's, `formats.py` and `graph.py` make files of them: for NumPy, which `tenuto.numpy_policy` reads, and ONNX."""
