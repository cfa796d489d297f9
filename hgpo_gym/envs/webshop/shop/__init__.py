"""The shop: `rules` (the transitions), `pages` (the observations), `scoring` (the reward of a purchase), and the
`nouns` of a title, which the score uses."""
