"""What clients and servers over HTTP have in common: the hosts that are this machine, and media types."""

import ipaddress
from urllib.parse import urlsplit


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, and cannot be reached from others."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name, which may lead anywhere
        return False


def goes_by_proxy(url: str) -> bool:
    """Whether a request may go through the proxy that the environment names. `http_proxy` alone, without a `no_proxy`
    as on many clusters, would send what is meant for this machine elsewhere."""
    return not is_loopback(urlsplit(url).hostname or "")


def media_type(content_type: str | None) -> str:
    """The media type of a `Content-Type` header without its parameters, such as a charset; empty without one."""
    return (content_type or "").partition(";")[0].strip().lower()
