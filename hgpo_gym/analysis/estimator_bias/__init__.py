"""How far advantage estimates are from the true advantages, where those can be known: `hgpo-gym estimator-bias`."""
