"""The model loop that the gateway owns: rounds of one run, its events, and who goes on with it."""
