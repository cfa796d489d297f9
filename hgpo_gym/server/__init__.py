"""`hgpo-gym serve`: environments over HTTP, for agents in another process or language.

- `serve`: the command's arguments and the start of the server.
- `app`: the routes; `models`: the JSON schemas; `problems`: the error responses.
- `guard`: authentication and request limits; `limits`: the limits.
- `offers`: the available environments; `session`, `sessions`, `threads`: playing them.

`hgpo_gym.client` plays there as a Gymnasium environment. The server needs the extra `server`, but neither torch nor
the trainers.
"""
