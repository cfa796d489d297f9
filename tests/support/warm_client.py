"""Has a warm process run a command, with the streams, folder and environment of this one; see `warm.py`.

python -I -S warm_client.py SOCKET ARGUMENT ...
"""

import json
import os
import socket
import sys

request = {"arguments": sys.argv[2:], "folder": os.getcwd(), "environment": dict(os.environ)}  # noqa: PTH109
text = json.dumps(request).encode()
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(sys.argv[1])
    connection.sendall(len(text).to_bytes(8, "big"))
    socket.send_fds(connection, [text[:1]], [0, 1, 2])
    connection.sendall(text[1:])
    status = int(connection.recv(16) or 1)
sys.exit(status if status >= 0 else 128 - status)  # as a shell tells of a command that a signal ended
