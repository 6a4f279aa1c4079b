"""entr-lab: which keep rule survives the staleness of an asynchronous RL run.

Importing this package loads neither torch, ray nor vllm; import the layer that you need, for example
`entr_lab.rules` or `entr_lab.sim`.
"""

__all__ = ["__version__"]

__version__ = "0.1.0.dev0"
