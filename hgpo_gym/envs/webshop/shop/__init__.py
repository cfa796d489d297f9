"""The shop itself: `rules` (where an action leads), `pages` (what is seen there), `scoring` (what a purchase is worth),
by the `nouns` of its title."""
