"""`hgpo-gym estimator-bias`: the error of advantage estimates, where the true advantages are known."""
