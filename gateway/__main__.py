"""``gateway`` and ``python -m gateway``."""

import sys


def main() -> None:
    """Run the command line; without the server's libraries, say how to get them."""
    try:
        from gateway.cli import gateway  # noqa: PLC0415 - the plain install is the client and has no command line
    except ModuleNotFoundError as error:
        sys.exit(f"gateway: the command line needs more than the client ({error.name} is missing). Install agent-tool-gateway[server].")
    gateway()


if __name__ == "__main__":
    main()
