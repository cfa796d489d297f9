"""ALFWorld: household tasks in text, on the games of the alfworld package.

- `env`: the environment; `splits`: which games it plays.
- `engine`: what plays a game: `native`, or `textworld_engine`; `games`: the files that games are in.
- `experts`: who plays them well; `generation`: games for a machine without data.
- `data`: how ALFWorld's own games get here.
"""
