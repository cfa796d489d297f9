"""A shop for a machine without any download: generated products, and shopping goals on them."""

from hgpo_gym.envs.webshop.generation.catalogue import (
    GeneratedProduct,
    generate_catalogue,
    generated_folder,
    write_catalogue,
)

__all__ = ["GeneratedProduct", "generate_catalogue", "generated_folder", "write_catalogue"]
