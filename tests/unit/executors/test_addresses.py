import socket

import pytest

from gateway.executors.addresses import AddressRefusedError, is_public, open_public_socket

REFUSED = [
    "127.0.0.1", "127.8.8.8", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "192.0.0.192",
    "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254",
    "ff02::1", "0.1.2.3", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:a9fe:a9fe", "64:ff9b::7f00:1", "64:ff9b::808:808", "64:ff9b:1::1",
    "2002:7f00:1::", "2002:808:808::1", "::127.0.0.1", "2001:db8::1",
]  # fmt: skip


@pytest.mark.parametrize("host", REFUSED)
def test_an_address_that_is_not_public_is_refused(host: str):
    assert not is_public(host)


@pytest.mark.parametrize("host", ["8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "::ffff:8.8.8.8"])
def test_a_public_address_is_allowed(host: str):
    assert is_public(host)


def test_the_socket_factory_opens_only_public_sockets():
    with pytest.raises(AddressRefusedError):
        open_public_socket((socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 80)))
    with open_public_socket((socket.AF_INET, socket.SOCK_STREAM, 6, "", ("8.8.8.8", 80))) as opened:
        assert opened.family is socket.AF_INET
