"""How models of different vendors write calls and read answers: pure translations, no I/O, no vendor's library."""
