"""WebShop (Yao et al., NeurIPS 2022) without Java: the shop, its search engine and its rewards in one process.

- `env`: the environment; `splits`: the catalogue and the goals of each split.
- `shop`: the rules, the pages and the score; `goals`: the shopping goals; `catalogue`: the products and their search.
- `experts`: experts for imitation; `generation`: products for a machine without data.
- `data`: installation of WebShop's files; `web`: the shop in a browser.
"""
