"""WebShop (Yao et al., NeurIPS 2022) without Java: the shop, its search engine and its rewards in one process.

- `env`: the environment; `splits`: which catalogue it plays, and which of its goals.
- `shop`: the rules, the pages and the score; `goals`: what is to be bought; `catalogue`: the products and their search.
- `experts`: who plays it well; `generation`: products for a machine without data.
- `data`: how WebShop's own files get here; `web`: the shop in a browser.
"""
