"""tenuto: temporally-extended actions in reinforcement learning."""

__version__ = "0.1.0"
