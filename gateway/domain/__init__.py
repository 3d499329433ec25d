"""Values and pure rules: no I/O, no clock, no vendor; only the standard library and pydantic."""
