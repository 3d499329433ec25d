"""A gateway that decides whether a model's proposed tool call may become real, and makes it real at most once."""

__version__ = "0.1.0"
