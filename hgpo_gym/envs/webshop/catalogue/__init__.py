"""The products and their search engine, built once from WebShop's files.

- `catalogue`: what is built, opened and asked; `products`: what a product is; `search`: the ranking, over the terms of
  `analyzer`.
- `sources`: finds the files; `json_stream` reads them; `records` keeps what was made of them.
"""

from hgpo_gym.envs.webshop.catalogue.catalogue import Catalogue, build_catalogue, keep, open_catalogue

__all__ = ["Catalogue", "build_catalogue", "keep", "open_catalogue"]
