"""The real path: vLLM generators and a torch trainer around the same rules and the same protocol.

The only package that may import ray, vllm or transformers, and each module does so only where it needs it.
"""
