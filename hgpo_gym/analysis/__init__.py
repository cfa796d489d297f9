"""Analysis of runs, without training: reports, inspection, the bias of estimators, pages."""
