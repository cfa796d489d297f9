"""ALFWorld: household tasks in text, on the games of the alfworld package.

- `env`: the environment; `splits`: the games of each split.
- `engine`: the interface of the engines `native` and `textworld_engine`; `games`: the files of the games.
- `experts`: experts for imitation; `generation`: games for a machine without data.
- `data`: installation of ALFWorld's released games.
"""
