"""A server of the standard library at work in a thread."""

import threading
from contextlib import contextmanager


@contextmanager
def at_work(server):
    """`server` answers until the block is left; then it is closed."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
