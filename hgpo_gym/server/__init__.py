"""`hgpo-gym serve`: environments over HTTP, for agents in another process or language.

- `serve`: the command's arguments, and what runs the server.
- `app`: the routes; `models`: what goes over the wire; `problems`: what is answered to mistakes.
- `guard`: who is let in, and with how much; `offers`: what may be played; `session`, `sessions`,
  `threads`: playing it; `limits`: how much.

`hgpo_gym.client` plays there as a Gymnasium environment. Needs the extra `server`; neither torch nor the trainers.
"""
