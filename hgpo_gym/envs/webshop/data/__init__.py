"""WebShop's published files, and the command `hgpo-gym data webshop` that brings them here."""
