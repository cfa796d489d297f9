"""`hgpo-gym serve`: environments over HTTP, for agents in another process or language; and a client that is one.

- `serve`: the command's arguments, and what runs the server.
- `app`: the routes; `models`: what goes over the wire; `problems`: what is answered to mistakes.
- `guard`: who is let in, and with how much; `offers`: what may be played; `session`, `sessions`,
  `threads`: playing it; `limits`: how much.
- `client`: `RemoteTextEnv`, a Gymnasium environment that is played on a server, over a `connection`.

Needs the extra `server`; neither torch nor the trainers.
"""
