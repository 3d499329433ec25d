"""Which addresses a connection may reach, checked on the address that is really connected to.

A check of names or of a resolver's answers is not enough: IP literals never see a resolver, and a name may resolve to
something else the next time. So the check sits where the socket for one known address is made.
"""

import ipaddress
import socket
from typing import Any

_IPv6 = ipaddress.IPv6Address
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# Python 3.11 calls (parts of) these global. Most carry an IPv4 address inside; where they lead is the translator's choice.
_ALSO_REFUSED = (
    ipaddress.ip_network("::/96"),  # IPv4-compatible, long out of use (RFC 4291)
    ipaddress.ip_network("64:ff9b::/96"),  # NAT64 (RFC 6052)
    ipaddress.ip_network("64:ff9b:1::/48"),  # NAT64 for local use (RFC 8215)
    ipaddress.ip_network("2002::/16"),  # 6to4 (RFC 3056)
    ipaddress.ip_network("192.0.0.0/24"),  # IETF protocol assignments (RFC 6890)
)


class AddressRefusedError(OSError):
    """The connection is not `internal` and leads to an address that is not public."""


def is_public(host: str) -> bool:
    """Whether `host` (an address in text form, with or without a zone) is one of the public internet."""
    address: _Address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, _IPv6) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if any(address.version == network.version and address in network for network in _ALSO_REFUSED):
        return False
    return address.is_global and not address.is_multicast


def open_public_socket(address_info: tuple[Any, ...]) -> socket.socket:
    """A socket for one entry of getaddrinfo, or AddressRefusedError; for ``TCPConnector(socket_factory=)``."""
    family, kind, protocol, _, address = address_info
    if not is_public(address[0]):
        raise AddressRefusedError("not a public address")
    return socket.socket(family=family, type=kind, proto=protocol)
