"""Tasks of the learning level: small multi-turn environments with a verifiable binary reward."""

from entr_lab.sim.tasks.tool_call import Episodes, ToolCallTask, ToolCallWorld

__all__ = ["Episodes", "ToolCallTask", "ToolCallWorld"]
