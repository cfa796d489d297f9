"""Parts that HTTP clients and servers share: a test for this machine's addresses, and media types."""

import ipaddress
from urllib.parse import urlsplit


def is_loopback(host: str) -> bool:
    """Return True for a host that is this machine and that others cannot reach."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a host name, which may resolve to any machine
        return False


def goes_by_proxy(url: str) -> bool:
    """Return True if a request may use the proxy of the environment. With `http_proxy` but no `no_proxy`, as on many
    clusters, requests to this machine would go elsewhere."""
    return not is_loopback(urlsplit(url).hostname or "")


def media_type(content_type: str | None) -> str:
    """Return the media type of a `Content-Type` header without its parameters, such as a charset; empty without one."""
    return (content_type or "").partition(";")[0].strip().lower()
