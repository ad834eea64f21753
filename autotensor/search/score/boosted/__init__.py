"""A learned model (XGBoost) that predicts the error of the prior, and how far to trust the prediction."""
