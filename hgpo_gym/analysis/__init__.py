"""Reads runs, never trains: reports, inspection, the bias of estimators, pages."""
